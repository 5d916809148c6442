/* The plans of the shipped models, followed byte by byte: nothing is read that is not there, with and without
 * recomputation, shared memory and the fused ops. */
#include "plan_check.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <stdio.h>

static void placement(void **state)
{
    static const char *const more[] = { "opt.inplace=on", "opt.inplace=off", "plan.recompute=layer",
                                        "train.dropout=0.2" };
    const char *target = *state;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        const char *const set[] = { "dim=32",        "heads=2", "train.context=16",    "vocab=40", "threads=2",
                                    "train.steps=1", more[i],   "plan.recompute=layer" };
        char what[96];
        tn_settings *st;
        tn_trainer *t;
        const tn_model *model;
        assert_ok(tn_settings_resolve(target, set, i == 3 ? 8 : 7, &st, &model));
        assert_ok(
            tn_trainer_new(&(tn_trainer_options){ .model = model, .settings = st, .batch = 2, .length = 16 }, &t));
        snprintf(what, sizeof what, "%s, %s", target, more[i]);
        tn_plan_check(tn_trainer_plan(t, true), what);
        tn_plan_check(tn_trainer_plan(t, false), what);
        tn_trainer_free(t);
        tn_settings_free(st);
    }
}

void tn_tests_placement(tn_test_list *l)
{
    static const char *const presets[] = { "gpt_tiny", "gpt2_124m", "ten_tiny", "recall" };
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        tn_test_add(l, placement, presets[i], "placement: %s", presets[i]);
}
