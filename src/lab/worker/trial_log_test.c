/* What a trial took survives a checkpoint, also one that was written before cost rows were the model's; names and
 * caps of its rules too. */
#include "lab/worker/trial_log.h"

#include "testlib.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static tn_settings *open_log(const char *model, const char *word, const tn_study_plan *p, tn_trial_log *l)
{
    tn_settings *st;
    const tn_model *m;
    assert_ok(tn_settings_resolve(model, &word, 1, &st, &m));
    assert_ok(tn_trial_log_open(p, st, m, &(tn_source){ 0 }, 4, l));
    return st;
}

static void costs_are_kept(void **state)
{
    (void)state;
    static const struct {
        const char *model, *word;
        double units;
    } rows[] = {
        { "tep", "grad=ep", 100 + 50 + 7 + 3 * 12 + 30 },
        { "tep", "grad=bptt", 100 + 50 + 7 + 2 * 12 + 30 },
        { "gpt", "layers=1", NAN },
    };
    const tn_study_plan p = { 0 };
    json_t *old = json_pack("{s:[], s:[i,i,i,f,f,f,f,f], s:f}", "rules", "solves", 9, 12, 3, 100., 50., 7., 12., 30.,
                            "eval_s", 1.5);
    json_t *zeros =
        json_pack("{s:[], s:[i,i,i,f,f,f,f,f], s:f}", "rules", "solves", 0, 0, 0, 0., 0., 0., 0., 0., "eval_s", 1.5);
    json_t *cut = json_pack("{s:[], s:[i,i,i,f], s:f}", "rules", "solves", 9, 12, 3, 100., "eval_s", 1.5);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tn_trial_log l, again;
        const bool counts = !isnan(rows[i].units);
        tn_settings *st = open_log(rows[i].model, rows[i].word, &p, &l),
                    *other = open_log(rows[i].model, rows[i].word, &p, &again);
        assert_true(isnan(tn_costs_units(&l.costs)));
        assert_ok(tn_trial_log_load(&l, counts ? old : zeros));
        json_t *saved = tn_trial_log_save(&l);
        assert_non_null(saved);
        assert_ok(tn_trial_log_load(&again, saved));
        const double units = tn_costs_units(&again.costs);
        assert_true(counts ? units == rows[i].units : isnan(units));
        assert_true(again.eval_s == 1.5 && again.costs.calls == (counts ? 9 : 0) &&
                    again.costs.samples == (counts ? 12 : 0));
        if (counts) assert_true(json_equal(json_object_get(saved, "solves"), json_object_get(old, "solves")));
        if (counts) assert_fails(tn_trial_log_load(&again, cut), TN_BAD_FILE, "belongs to another trial");
        json_decref(saved);
        tn_trial_log_free(&l);
        tn_trial_log_free(&again);
        tn_settings_free(st);
        tn_settings_free(other);
    }
    json_decref(old);
    json_decref(zeros);
    json_decref(cut);
}

static void names_of_rows(void **state)
{
    (void)state;
    const tn_study_plan p = { 0 };
    tn_trial_log l;
    bool there;
    tn_settings *st = open_log("tep", "grad=ep", &p, &l);
    tn_trial_log_put(&l, "steps_max", 17);
    tn_trial_log_put(&l, "contraction", 0.5);
    assert_true(tn_trial_log_get(&l, "solver_iters", &there) == 17 && there);
    assert_true(tn_trial_log_get(&l, "spectral_radius", &there) == 0.5 && there);
    assert_true(tn_trial_log_get(&l, "steps_max", &there) == 17 && there);
    (void)tn_trial_log_get(&l, "residual", &there);
    assert_false(there);
    tn_trial_log_free(&l);
    tn_settings_free(st);
    st = open_log("gpt", "layers=1", &p, &l); /* has no such names */
    tn_trial_log_put(&l, "steps_max", 17);
    (void)tn_trial_log_get(&l, "solver_iters", &there);
    assert_false(there);
    tn_trial_log_free(&l);
    tn_settings_free(st);
}

/* Instruments of a deep model come first: they leave room for what its trials are judged by. */
static void many_instruments(void **state)
{
    (void)state;
    const tn_study_plan p = { 0 };
    tn_trial_log l;
    bool there;
    char name[32];
    tn_settings *st = open_log("gpt", "layers=1", &p, &l);
    for (int i = 0; i < TN_REPORT_METRICS - TN_SCORES_MAX; i++) {
        snprintf(name, sizeof name, "layer%d.norm", i);
        tn_trial_log_put(&l, name, i);
    }
    for (int i = 0; i < TN_SCORES_MAX; i++) {
        snprintf(name, sizeof name, "score_%d", i);
        tn_trial_log_put(&l, name, i);
        assert_true(tn_trial_log_get(&l, name, &there) == i && there);
    }
    assert_true(TN_REPORT_METRICS - TN_SCORES_MAX >= 128);
    tn_trial_log_free(&l);
    tn_settings_free(st);
}

void tn_tests_trial_log(tn_test_list *l)
{
    tn_test_add(l, costs_are_kept, NULL, "trial log: what a trial took is kept in checkpoints, old ones too");
    tn_test_add(l, many_instruments, NULL, "trial log: scores beside many instruments");
    tn_test_add(l, names_of_rows, NULL, "trial log: other names of what a model reports are the model's");
}
