/* The preset wire_seed as a GPU would hold it. No GPU is needed to plan, and no memory is taken: workspaces of kernels, which a build without
 * them does not know, come on top. */
#include "plan/plan.h"
#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/source/task_setup.h"
#include "train/trainer/graph_setup.h"

#include <string.h>

typedef struct arm {
    const char *name, *words[4];
    double least_gb, most_gb; /* weights, parameters with gradients and moments, what is kept, inputs */
} arm;

/* As the trainer plans it (trainer_plans.c). */
static tn_plan *plan_of(const char *const *words, tn_settings **st)
{
    const tn_device gpu = TN_CUDA;
    const tn_model *model;
    tn_source source = { 0 };
    static tn_graph_setup setup;
    tn_graph *g;
    tn_plan *p;
    size_t n = 0;
    while (words[n]) n++;
    assert_ok(tn_settings_resolve("wire_seed", words, n, st, &model));
    assert_ok(tn_source_find(&(tn_source_open){ .model = model, .settings = *st, .needed = true }, &source));
    const tn_input_spec spec = tn_source_input_spec(&source);
    assert_ok(tn_graph_setup_read(*st, &gpu, 1, &setup));
    tn_graph_setup_freeze(&setup, TN_F32);
    const tn_graph_shape shape = {
        .batch = tn_settings_int(*st, "train.batch"), .length = 1, .training = true, .step = "task", .input_spec = &spec
    };
    assert_ok(tn_graph_setup_build(&setup, model, *st, &shape, &g));
    tn_source_close(&source);
    const bool again = strcmp(tn_settings_text(*st, "plan.recompute"), "trained") == 0;
    const tn_compile_options how = {
        .device = gpu, .loss = tn_graph_output(g, "loss"), .recompute = again, .trained_alone = again
    };
    assert_ok(tn_graph_compile(g, &how, &p));
    return p;
}

static void fits(void **state)
{
    const arm *a = *state;
    tn_settings *st;
    tn_plan *p = plan_of(a->words, &st);
    const tn_memory m = tn_plan_memory(p);
    const double all = (double)(m.frozen + 4 * m.parameters + m.activations + m.inputs) / 1e9;
    assert_true((double)m.frozen / 1e9 > 16.05 && (double)m.frozen / 1e9 < 16.08); /* 8.03 G of two bytes */
    if (all < a->least_gb || all > a->most_gb)
        fail_msg("%s needs %.2f GB, and it is said to need %.2f to %.2f", a->name, all, a->least_gb, a->most_gb);
    tn_plan_free(p);
    tn_settings_free(st);
}

void tn_tests_wire_seed(tn_test_list *l)
{
    static const arm arms[] = { { "a live teacher", { NULL }, 29, 31.3 },
                                { "no teacher", { "loss.kd=0" }, 28, 30 },
                                { "a pass for each term", { "opt.one_pass=off" }, 95, 110 },
                                { "the encoder kept", { "plan.recompute=none" }, 33, 36 } };
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
        tn_test_add(l, fits, &arms[i], "wire seed: memory with %s", arms[i].name);
}
