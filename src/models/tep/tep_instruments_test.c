/* What the instruments of `tep` report of a solve: iterations, residuals, contraction, the nudge. */
#include "tep_world.h"

enum { B = 6, F = 5, C = 3, D = 12 };

typedef struct seen {
    tn_bound *bound;
    float row[B * D];
    char names[512]; /* "name=value " */
} seen;

static const float *output_of(void *ctx, const char *name, int64_t *count)
{
    seen *s = ctx;
    const tn_graph *g = tn_plan_graph(tn_bound_plan(s->bound));
    const tn_ref x = tn_graph_output(g, name);
    if (!x.id) return NULL;
    *count = tn_dims_count(tn_ref_dims(g, x));
    if (tn_ref_dtype(g, x) == TN_F32) return tn_bound_data(s->bound, name);
    for (int64_t i = 0; i < *count; i++) s->row[i] = (float)((int32_t *)tn_bound_data(s->bound, name))[i];
    return s->row;
}

static const float *no_param(void *ctx, const char *name, int64_t *count)
{
    (void)ctx, (void)name, (void)count;
    return NULL;
}

static void note(void *ctx, const char *name, double value, const char *unit)
{
    seen *s = ctx;
    const size_t at = strlen(s->names);
    (void)unit;
    snprintf(s->names + at, sizeof s->names - at, "%s=%.6g ", name, value);
}

static double value_of(const seen *s, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, " %s=", name);
    const char *at = strstr(s->names, key);
    if (!at) fail_msg("no %s in \"%s\"", name, s->names);
    return at ? strtod(at + strlen(key), NULL) : NAN;
}

static void looks(const tep_shape *z, const char *const *more, seen *s)
{
    tn_world w = tn_world_open(3, 1);
    const tn_model *model;
    tn_settings *st = tep_settings(z, more, &model);
    s->bound = tep_add(&w, z, more);
    *(int32_t *)tn_world_data(s->bound, "count") = B - 2;
    for (int i = B - 2; i < B; i++) ((int32_t *)tn_world_data(s->bound, "labels"))[i] = -1;
    snprintf(s->names, sizeof s->names, " ");
    tep_run(&w, s->bound);
    model->instruments(st, &(tn_instruments){ .ctx = s, .param = no_param, .report = note, .output = output_of });
    tn_settings_free(st);
    tn_world_close(&w);
}

/* Of an energy with kappa 0.7 whose solve runs without damping: a step takes at most 0.7 of what is missing. */
static void instruments_say(void **state)
{
    const tep_shape z = { .B = B, .S = 1, .F = F, .C = C, .L = 1, .count = true };
    seen s = { 0 };
    (void)state;
    looks(&z, TEP_LIST("dim=12", "mode=energy", "grad=ep_centred", "damping=1", "rtol=1e-4", "iterations=100"), &s);
    const double mean = value_of(&s, "steps"), most = value_of(&s, "steps_max"), ninety = value_of(&s, "steps_p90");
    assert_true(mean > 2 && mean <= ninety && ninety <= most && most < 40);
    assert_float_equal(value_of(&s, "evaluations"), mean * (B - 2), 1e-4);
    assert_true(value_of(&s, "nudged_steps") >= 2 && value_of(&s, "nudged_evaluations") > 0);
    assert_true(value_of(&s, "residual") < 1e-4 && value_of(&s, "residual_max") < 1e-4);
    assert_true(value_of(&s, "unconverged") == 0);
    assert_true(value_of(&s, "contraction") > 0.05 && value_of(&s, "contraction") < 0.7);
    assert_true(value_of(&s, "nudge_signal") > 10 && value_of(&s, "state_rms") > 0.01);
    assert_null(strstr(s.names, "adjoint"));
    looks(&z, TEP_LIST("dim=12", "mode=energy", "grad=implicit", "rtol=1e-4", "iterations=3"), &s);
    assert_true(value_of(&s, "unconverged") == 1 && value_of(&s, "steps") == 3);
    assert_true(value_of(&s, "adjoint_steps") >= 1 && value_of(&s, "adjoint_steps") <= 3);
    assert_null(strstr(s.names, "nudge"));
}

void tn_tests_tep_instruments(tn_test_list *l) { tn_test_add(l, instruments_say, NULL, "tep: what instruments say"); }
