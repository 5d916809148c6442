/* A profile's rows are the plan's, its parts add up, and every op is a part of something. */
#include "report/profile/replayed.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct example {
    const char *target, *more[4];
    const char *has[4]; /* components */
} example;

static const example examples[] = {
    { "ten_tiny", { "vocab=256", "train.context=32" }, { "recurrence", "linear layers", "loss" } },
    { "gpt_tiny", { "vocab=256", "train.context=32", "train.accumulate=3" }, { "attention", "linear layers", "loss" } },
    { "tep", { "task=xor" }, { "free solve", "nudged solve", "loss" } },
    { "tep", { "task=xor", "grad=implicit" }, { "free solve", "adjoint solve", "loss" } },
    { "tep", { "task=xor", "grad=bptt", "opt.relax=off" }, { "solve", "loss" } },
    { "flow_debug", { "inputs=36", "width=6", "height=6", "depth=4" }, { "lattice" } },
};

static const char *const small[] = { "threads=1", "dim=16", "layers=1", "train.batch=4" };

static void take(const example *e, tn_session *s, tn_profile **p)
{
    const char *set[8];
    size_t n = 0;
    const tn_ceilings ceilings = {
        .threads = 1, .fma_gflops = 10, .bf16_gflops = 20, .memory_gbs = 5, .shared_gbs = 20, .cache_gbs = 50
    };
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
    tn_profile p = { .compute = "f32",
                     .ceilings = { .fma_gflops = 10, .memory_gbs = 5, .shared_gbs = 20, .cache_gbs = 50 } };
    tn_profile_row r = { .calls = 1, .flops = 1e9, .bytes = 1e6 };
    tn_bound_by b = tn_profile_bound(&p, &r);
    assert_string_equal(b.what, "arithmetic");
    assert_true(fabs(b.ms - 100) < 1e-9);
    r.bytes = 100e6; /* of one call: from memory */
    r.flops = 0;
    b = tn_profile_bound(&p, &r);
    assert_string_equal(b.what, "memory");
    assert_true(fabs(b.ms - 20) < 1e-9);
    r.calls = 100; /* a megabyte each: they may be in the last cache */
    b = tn_profile_bound(&p, &r);
    assert_string_equal(b.what, "cache");
    assert_true(fabs(b.ms - 5) < 1e-9);
    r.calls = 1000; /* in that of one core */
    b = tn_profile_bound(&p, &r);
    assert_string_equal(b.what, "cache");
    assert_true(fabs(b.ms - 2) < 1e-9);
    r.varies = true, r.bytes = 0, r.flops = 1e9; /* FLOPs that nobody knows bound nothing */
    assert_string_equal(tn_profile_bound(&p, &r).what, "");
    r = (tn_profile_row){
        .calls = 1000, .flops = 1e6, .bytes = 1e6, .ms = 6
    }; /* 0.1 ms of arithmetic, 0.02 of a cache */
    assert_string_equal(tn_profile_bound(&p, &r).what, "arithmetic");
    p.launch_ms = 0.005; /* 6 us a call, of which 5 are the least that a call takes */
    b = tn_profile_bound(&p, &r);
    assert_string_equal(b.what, "launches");
    assert_true(fabs(b.ms - 5) < 1e-9);
    r.ms = 4; /* shorter than a launch: that is no bound of theirs */
    b = tn_profile_bound(&p, &r);
    assert_string_equal(b.what, "launches");
    assert_true(fabs(b.ms - 0.1) < 1e-9);
    r.ms = 0.3; /* near what its arithmetic allows */
    assert_string_equal(tn_profile_bound(&p, &r).what, "arithmetic");
    r.ms = 50; /* of 50 us a call launching took a tenth */
    assert_string_equal(tn_profile_bound(&p, &r).what, "arithmetic");
    r.ms = 200, r.flops = 1e9; /* long calls: 100 ms of arithmetic */
    assert_string_equal(tn_profile_bound(&p, &r).what, "arithmetic");
    r.varies = true; /* FLOPs that nobody knows, and long calls: nothing is known */
    assert_string_equal(tn_profile_bound(&p, &r).what, "");
    r.ms = 20; /* calls are counted even so */
    assert_string_equal(tn_profile_bound(&p, &r).what, "launches");
}

/* Time outside ops: the loader's and the host's. What no clock saw is the part "other", and all parts are the whole. */
static void outside_ops(void **state)
{
    (void)state;
    static const struct {
        const char *name, *bound;
        double ms;
    } expected[] = { { "data", "loader", 5 },
                     { "host", "host", 3 },
                     { "linear layers", "launches", 2 },
                     { "optimizer", "memory", 1.5 },
                     { "other", "host", 0.5 } };
    tn_profile_row row = { .component = "linear layers", .calls = 100, .ms = 2, .flops = 1e3, .bytes = 1e3 };
    tn_profile p = { .compute = "f32",
                     .ceilings = { .fma_gflops = 10, .memory_gbs = 5 },
                     .launch_ms = 0.01,
                     .batches = 1,
                     .timed_ms = 12,
                     .data_ms = 5,
                     .host_ms = 3,
                     .optimizer_ms = 1.5,
                     .optimizer_bytes = 5e6,
                     .row = &row,
                     .n = 1 };
    tn_profile_part part[TN_PROFILE_PARTS];
    assert_int_equal(tn_profile_parts(&p, part), 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(part[i].name, expected[i].name);
        assert_string_equal(part[i].bound, expected[i].bound);
        assert_true(fabs(part[i].ms - expected[i].ms) < 1e-9 && fabs(part[i].share - expected[i].ms / 12) < 1e-9);
    }
    assert_true(tn_profile_whole(&p) == 12);
    p.gaps_ms = 2; /* of the host's 3 */
    assert_int_equal(tn_profile_parts(&p, part), 5);
    assert_string_equal(part[1].name, "host");
    assert_string_equal(part[1].bound, "launches");
}

/* Kernels that follow within microseconds, one that overlaps, and one behind a pause of the host. */
static void gaps(void **state)
{
    (void)state;
    const tn_span spans[] = {
        { .begin = 1000, .end = 5000, .kind = TN_SPAN_KERNEL }, { .begin = 2000, .end = 90000, .kind = TN_SPAN_CALL },
        { .begin = 6000, .end = 9000, .kind = TN_SPAN_KERNEL }, { .begin = 8000, .end = 8500, .kind = TN_SPAN_COPY },
        { .begin = 11000, .end = 12000, .kind = TN_SPAN_COPY }, { .begin = 62000, .end = 63000, .kind = TN_SPAN_KERNEL }
    };
    assert_float_equal(tn_profile_gaps(spans, sizeof spans / sizeof *spans), 0.003, 1e-12);
    assert_true(tn_profile_gaps(spans, 1) == 0);
}

/* Times of a second configuration are for the work of the first; a change counts if both rounds show it. */
static void changes(void **state)
{
    (void)state;
    tn_profile_row row[2][TN_PROFILE_ROUNDS][2] = { 0 };
    tn_profile p[2][TN_PROFILE_ROUNDS] = { 0 };
    /* linear 10 -> 2 x 3 = 6 in both rounds; norm 1 -> 2 x 1 in one and 2 x 0.2 in the other */
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < TN_PROFILE_ROUNDS; k++) {
            tn_profile_row *r = row[side][k];
            r[0] = (tn_profile_row){ .component = "linear layers", .ms = side ? 3 : 10, .spread_ms = 0.5 };
            r[1] = (tn_profile_row){ .component = "normalisation", .ms = !side ? 1 : k ? 0.2 : 1, .spread_ms = 0.1 };
            p[side][k] = (tn_profile){ .compute = "f32",
                                       .ceilings = { .fma_gflops = 1, .memory_gbs = 1 },
                                       .items = side ? 50 : 100,
                                       .step_ms = side ? 5 : 12,
                                       .spread_ms = 0.5,
                                       .timed_ms = side ? 5 : 12,
                                       .row = r,
                                       .n = 2 };
        }
    const tn_profile *before[] = { &p[0][0], &p[0][1] }, *after[] = { &p[1][0], &p[1][1] };
    tn_profile_change x[TN_PROFILE_CHANGES + 1];
    const size_t n = tn_profile_changes(before, after, x);
    assert_string_equal(x[0].name, "linear layers");
    assert_true(fabs(x[0].before_ms - 10) < 1e-9 && fabs(x[0].after_ms - 6) < 1e-9 && x[0].seen);
    assert_string_equal(x[n - 1].name, "step");
    assert_true(fabs(x[n - 1].before_ms - 12) < 1e-9 && fabs(x[n - 1].after_ms - 10) < 1e-9 && x[n - 1].seen);
    for (size_t i = 0; i + 1 < n; i++)
        if (strcmp(x[i].name, "normalisation") == 0) assert_true(!x[i].seen && fabs(x[i].after_ms - 1.2) < 1e-9);
    p[1][1].step_ms = 7; /* 14 of 12: the rounds disagree */
    assert_false(x[tn_profile_changes(before, after, x) - 1].seen);
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

/* Made-up records of a device: op i of the training plan as kernels and a copy of known length, in some order, among others. */
static size_t make_spans(size_t ops, int steps, tn_span *to)
{
    size_t n = 0;
    for (int k = 0; k < steps; k++)
        for (size_t i = 0; i < ops; i++) {
            const uint64_t at = 1000000 * (uint64_t)(k + 1), mark = TN_TRAINER_MARK(0) + i;
            to[n++] = (tn_span){ .begin = at, .end = at + 100 * (i + 1), .kind = TN_SPAN_KERNEL, .mark = mark };
            to[n++] = (tn_span){ .begin = at + 500, .end = at + 600, .kind = TN_SPAN_COPY, .mark = mark };
            to[n++] = (tn_span){ .begin = at, .end = at + 9999, .kind = TN_SPAN_CALL, .mark = mark }; /* no work */
            to[n++] = (tn_span){ .begin = at, .end = at + 9999, .kind = TN_SPAN_KERNEL };             /* nobody's */
        }
    for (int k = 0; k < steps; k++)
        to[n++] =
            (tn_span){ .begin = 0, .end = 250000, .kind = TN_SPAN_KERNEL, .mark = TN_TRAINER_MARK(TN_TRAINER_UPDATE) };
    return n;
}

static void replayed(void **state)
{
    enum { STEPS = 4, MOST = 512 };
    static tn_node_time node[MOST];
    tn_session s = { 0 };
    tn_profile *p = NULL;
    tn_profile_part part[TN_PROFILE_PARTS];
    double optimizer_ms = -1, sum = 0, rows = 0;
    (void)state;
    take(&examples[1], &s, &p);
    const size_t ops = tn_plan_steps(tn_trainer_plan(s.trainer, true)), n = p->n;
    tn_span *spans = calloc(STEPS * (4 * ops + 1), sizeof *spans);
    assert_false(p->replayed);
    assert_false(tn_trainer_take_spans(s.trainer, spans, 0, STEPS, &optimizer_ms));
    assert_false(tn_profile_use_times(p, node, 0, STEPS, 0));
    const size_t n_spans = make_spans(ops, STEPS, spans);
    assert_true(tn_trainer_take_spans(s.trainer, spans, n_spans, STEPS, &optimizer_ms));
    assert_float_equal(optimizer_ms, STEPS * 0.25, 1e-9);
    assert_int_equal(tn_trainer_node_times(s.trainer, node, MOST), n);
    for (size_t i = 0; i < n; i++) sum += node[i].ms;
    const double expected = 1e-6 * STEPS * (100.0 * (double)ops * (double)(ops + 1) / 2 + 100.0 * (double)ops);
    assert_float_equal(sum, expected, 1e-9);
    const double marked = expected - STEPS * 1e-4 * (double)ops + STEPS * 0.25, nobodys = STEPS * 9999e-6 * (double)ops;
    assert_float_equal(tn_profile_marked(spans, n_spans), marked / (marked + nobodys), 1e-9);
    p->step_ms = 10;
    assert_true(tn_profile_use_times(p, node, n, STEPS, optimizer_ms) && p->replayed);
    for (size_t i = 0; i < n; i++) rows += p->row[i].ms;
    assert_float_equal(rows, expected / STEPS, 1e-9);
    assert_float_equal(p->optimizer_ms, 0.25, 1e-9);
    const size_t parts = tn_profile_parts(p, part); /* which add up to a step of training */
    double whole = 0;
    for (size_t i = 0; i < parts; i++) whole += part[i].ms;
    assert_float_equal(whole, 10, 1e-6);
    node[0].backward = !node[0].backward; /* of another plan: nothing is taken */
    assert_false(tn_profile_use_times(p, node, n, STEPS, optimizer_ms));
    free(spans);
    tn_profile_free(p);
    tn_session_close(&s);
}

void tn_tests_profile(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        tn_test_add(l, rows_and_parts, &examples[i], "profile: rows and parts of %s", examples[i].target);
    tn_test_add(l, bounds, NULL, "profile: what bounds a row");
    tn_test_add(l, gaps, NULL, "profile: gaps between kernels");
    tn_test_add(l, outside_ops, NULL, "profile: what bounds time outside ops");
    tn_test_add(l, changes, NULL, "profile: what changed between two configurations");
    tn_test_add(l, every_op_has_a_component, NULL, "profile: every op has a component");
    tn_test_add(l, replayed, NULL, "profile: ops of replayed steps");
}
