/* A profile's rows are the plan's, its parts add up, and every op is a part of something. */
#include "report/profile/profile.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

typedef struct example {
    const char *target, *more[4];
    const char *has[4]; /* components */
} example;

static const example examples[] = {
    { "ten_tiny", { "vocab=256", "train.context=32" }, { "recurrence", "linear layers", "loss" } },
    { "gpt_tiny", { "vocab=256", "train.context=32", "train.accumulate=3" }, { "attention", "linear layers", "loss" } },
    { "tep", { "task=xor" }, { "solve", "loss" } },
    { "flow_debug", { "inputs=36", "width=6", "height=6", "depth=4" }, { "lattice" } },
};

static const char *const small[] = { "threads=1", "dim=16", "layers=1", "train.batch=4" };

static void take(const example *e, tn_session *s, tn_profile **p)
{
    const char *set[8];
    size_t n = 0;
    const tn_ceilings ceilings = { .threads = 1, .fma_gflops = 10, .bf16_gflops = 20, .copy_gbs = 5, .cache_gbs = 50 };
    const bool has_sizes = e->more[0] != NULL && strcmp(e->target, "tep") != 0;
    for (size_t i = 0; i < (has_sizes ? 4 : 1); i++) set[n++] = small[i];
    for (size_t i = 0; i < 4 && e->more[i]; i++) set[n++] = e->more[i];
    assert_ok(tn_session_open(e->target, set, n, false, s));
    assert_ok(tn_profile_take(s, &(tn_profile_options){ .seconds = 1e-3, .ceilings = &ceilings }, p));
}

static void rows_and_parts(void **state)
{
    const example *e = *state;
    tn_session s = { 0 };
    tn_profile *p = NULL;
    tn_profile_part part[TN_PROFILE_PARTS];
    take(e, &s, &p);
    double flops = 0, share = 0, ms = 0, calls = 0;
    for (size_t i = 0; i < p->n; i++) flops += p->row[i].flops, calls += p->row[i].calls;
    const double batch = tn_trainer_flops(s.trainer);
    if (!isnan(batch)) assert_true(fabs(flops - (double)p->batches * batch) <= 1e-9 * flops);
    assert_true(p->n > 3 && calls >= (double)p->n && p->steps >= 5 && p->step_ms > 0);
    const size_t n = tn_profile_parts(p, part);
    for (size_t i = 0; i < n; i++) {
        share += part[i].share;
        ms += part[i].ms;
        if (i) assert_true(part[i].ms <= part[i - 1].ms);
        if (part[i].bound_ms > 0) assert_true(part[i].bound[0] != 0);
    }
    assert_true(fabs(share - 1) < 1e-9 && ms >= p->timed_ms * (1 - 1e-9));
    for (size_t k = 0; k < 4 && e->has[k]; k++) {
        size_t i = 0;
        while (i < n && strcmp(part[i].name, e->has[k]) != 0) i++;
        if (i == n) fail_msg("%s has no part %s", e->target, e->has[k]);
    }
    tn_profile_free(p);
    tn_session_close(&s);
}

/* A row of known work: what bounds it, and the least time. */
static void bounds(void **state)
{
    (void)state;
    tn_profile p = { .compute = "f32", .ceilings = { .fma_gflops = 10, .copy_gbs = 5, .cache_gbs = 50 } };
    tn_profile_row r = { .calls = 1, .flops = 1e9, .bytes = 1e6 };
    tn_bound_by b = tn_profile_bound(&p, &r);
    assert_string_equal(b.what, "arithmetic");
    assert_true(fabs(b.ms - 100) < 1e-9);
    r.bytes = 100e6; /* of one call: from memory */
    r.flops = 0;
    b = tn_profile_bound(&p, &r);
    assert_string_equal(b.what, "memory");
    assert_true(fabs(b.ms - 20) < 1e-9);
    r.calls = 100; /* a megabyte each: they may be in the cache */
    b = tn_profile_bound(&p, &r);
    assert_string_equal(b.what, "cache");
    assert_true(fabs(b.ms - 2) < 1e-9);
    r.varies = true, r.bytes = 0, r.flops = 1e9; /* FLOPs that nobody knows bound nothing */
    assert_string_equal(tn_profile_bound(&p, &r).what, "");
}

/* Ops of the optimizer's and evaluation's plans are in no training plan. */
static void every_op_has_a_component(void **state)
{
    static const char *const ops[] = {
#define TN_OP(name) #name,
#include "ops/ops.def"
#undef TN_OP
    };
    static const char *const outside = " clipnorm adamw sgd argmax ";
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        char word[48];
        snprintf(word, sizeof word, " %s ", ops[i]);
        if (!strstr(outside, word) && strcmp(tn_component_of(ops[i]), "other ops") == 0)
            fail_msg("op %s has no line in components.def", ops[i]);
    }
    assert_string_equal(tn_component_of("no such op"), "other ops");
}

void tn_tests_profile(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        tn_test_add(l, rows_and_parts, &examples[i], "profile: rows and parts of %s", examples[i].target);
    tn_test_add(l, bounds, NULL, "profile: what bounds a row");
    tn_test_add(l, every_op_has_a_component, NULL, "profile: every op has a component");
}
