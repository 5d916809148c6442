/* Networks of `flow` as a whole: how they start, what samples see of each other, accumulation, what is kept, parts that are turned off,
 * the step "flows", metrics and instruments. */
#include "flow_world.h"

enum { SIDE = 6, S = SIDE * SIDE, MOST = 1 << 17 };

#define SMALL "dim=16", "layers=2", "depth=10", "noise=0.05"

static double size_of(const float *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (double)x[i] * (double)x[i];
    return sqrt(s);
}

/* --- the start ---------------------------------------------------------------------------------------------------------- */

/* Cells that the landings of a sample give something to, as splat does. */
static int covered(const float *u, const float *v, int side)
{
    bool hit[64 * 64] = { false };
    int n = 0;
    for (int i = 0; i < side * side; i++) {
        const double x = ((double)u[i] + 1) / 2 * (side - 1), y = ((double)v[i] + 1) / 2 * (side - 1);
        for (int k = 0; k < 4; k++) {
            const int cx = (int)floor(x) + k % 2, cy = (int)floor(y) + k / 2;
            if (fabs(x - cx) < 1 && fabs(y - cy) < 1 && cx < side && cy < side) hit[cy * side + cx] = true;
        }
    }
    for (int i = 0; i < side * side; i++) n += hit[i];
    return n;
}

/* Untrained flows land nearly everywhere, and every parameter has a gradient. */
static void start(void **state)
{
    static const struct {
        bool target;
        const char *more[5];
    } rows[] = { { true, { "depth=16" } },
                 { true, { "depth=6", "field=4", "field_deposit=smooth" } },
                 { false, { "depth=16", "field=4", "energy=2", "planes=beside" } },
                 { false, { "depth=16", "mapper_in=trained", "mapper_out=trained" } } };
    enum { LARGE = 14 };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *words[8] = { "dim=32", "layers=2" };
        float loss;
        int64_t n;
        for (int k = 0; rows[i].more[k]; k++) words[2 + k] = rows[i].more[k];
        flow_world w = flow_open(LARGE, 3, rows[i].target, words);
        flow_give(&w, 0, 3);
        assert_ok(tn_trainer_run_step(w.trainer, "flows"));
        const float *u = flow_output(&w, "flows", "u", &n), *v = flow_output(&w, "flows", "v", &n);
        for (int b = 0; b < 3; b++)
            if (covered(u + b * LARGE * LARGE, v + b * LARGE * LARGE, LARGE) < 0.9 * LARGE * LARGE)
                fail_msg("row %zu: flows reach %d of %d cells", i,
                         covered(u + b * LARGE * LARGE, v + b * LARGE * LARGE, LARGE), LARGE * LARGE);
        assert_ok(tn_trainer_grad(w.trainer, 0, &loss));
        assert_true(isfinite(loss) && loss > 0);
        for (size_t k = 0; k < tn_store_count(tn_trainer_store(w.trainer)); k++) {
            const tn_entry *e = tn_store_at(tn_trainer_store(w.trainer), k);
            if (e->role != TN_ROLE_PARAM) continue;
            float *grad = tn_memory_floats(tn_trainer_store(w.trainer), e->grad, tn_dims_count(e->dims));
            const double size = size_of(grad, tn_dims_count(e->dims));
            free(grad);
            if (!(size > 0 && isfinite(size))) fail_msg("row %zu: the gradient of %s is %g", i, e->name, size);
        }
        flow_close(&w);
    }
}

/* How closely the surface that comes out follows the one that went in: correlation over all cells of all samples. */
static double follows(const char *how, const char *layers, double *slope)
{
    enum { B = 4 };
    int64_t n;
    double x = 0, y = 0, xx = 0, yy = 0, xy = 0;
    flow_world w = flow_open(SIDE, B, true, FLOW_LIST("dim=32", "depth=16", how, layers));
    flow_give(&w, 0, B);
    const tn_feed f = tn_trainer_feed(w.trainer);
    float *in = tn_feed_at(&f, "features");
    assert_ok(tn_trainer_run_step(w.trainer, "flows"));
    const float *out = flow_output(&w, "flows", "surface", &n);
    assert_int_equal(n, B * S);
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)in[i], b = (double)out[i];
        x += a / (double)n, y += b / (double)n;
        xx += a * a / (double)n, yy += b * b / (double)n, xy += a * b / (double)n;
    }
    flow_close(&w);
    *slope = (xy - x * y) / (xx - x * x);
    return (xy - x * y) / sqrt((xx - x * x) * (yy - y * y));
}

/* Untrained, with energies kept: the surface comes out as it went in, darker. Random first weights lose it. */
static void start_keeps(void **state)
{
    double kept, random;
    const double close = follows("energy_init=kept", *state, &kept);
    (void)follows("energy_init=random", *state, &random);
    if (!(close > 0.85 && kept > 0.2 && kept < 0.6)) fail_msg("correlation %.3f, slope %.3f", close, kept);
    if (!(fabs(random) < 0.1)) fail_msg("random: slope %.3f", random);
}

/* --- samples ------------------------------------------------------------------------------------------------------------ */

/* Another sample in one row changes nothing in the others; nor does its place in the batch. */
static void isolation(void **state)
{
    enum { B = 4 };
    static float first[B * S];
    int64_t n;
    const char *how = *state;
    flow_world w = flow_open(SIDE, B, true, FLOW_LIST(SMALL, "spawn=1", "rho=0.2", "field=2", how));
    flow_give(&w, 0, B);
    assert_ok(tn_trainer_run_step(w.trainer, "flows"));
    memcpy(first, flow_output(&w, "flows", "surface", &n), sizeof first);
    assert_int_equal(n, B * S);
    const tn_feed f = tn_trainer_feed(w.trainer);
    float *x = tn_feed_at(&f, "features");
    for (int i = 0; i < S; i++) x[2 * S + i] = 1 - x[2 * S + i];
    tn_feed_end(&f, B);
    assert_ok(tn_trainer_run_step(w.trainer, "flows"));
    const float *then = flow_output(&w, "flows", "surface", &n);
    for (int b = 0; b < B; b++) assert_int_equal(tn_world_same(then + b * S, first + b * S, S, 1e-5), b != 2);
    flow_give(&w, 1, B - 1); /* sample 1 is in row 0, and the last row is empty */
    assert_ok(tn_trainer_run_step(w.trainer, "flows"));
    then = flow_output(&w, "flows", "surface", &n);
    for (int b = 0; b < B - 1; b++) assert_true(tn_world_same(then + b * S, first + (b + 1) * S, S, 1e-5));
    const int32_t *landed = flow_output(&w, "flows", "landed", &n);
    for (int64_t i = n / B * (B - 1); i < n; i++) assert_int_equal(landed[i], 0);
    flow_close(&w);
}

/* Four batches of two with their noise are one of eight; without the samples' numbers they would not be. */
typedef struct parts {
    const char *name;
    bool target;
    int64_t each; /* samples of one of 4 batches */
    int steps;
    const char *depth;
} parts;

static void accumulation(void **state)
{
    const parts *p = *state;
    static float x[MOST], y[MOST];
    double off = 0, size = 0;
    const double far = tn_test_device() == TN_CPU ? 1e-5 : 1e-4; /* products of other shapes add in other orders */
    float loss, sum = 0, whole = 0;
    flow_world small = flow_open(SIDE, p->each, p->target, FLOW_LIST(SMALL, "field=2", p->depth, "train.accumulate=4")),
               large = flow_open(SIDE, 4 * p->each, p->target, FLOW_LIST(SMALL, "field=2", p->depth));
    for (int step = 0; step < p->steps; step++) {
        tn_update_result a, b;
        sum = 0;
        for (int k = 0; k < 4; k++) {
            flow_give(&small, p->each * k, p->each);
            assert_ok(tn_trainer_grad(small.trainer, 4 * step + k, &loss));
            sum += loss / 4;
        }
        flow_give(&large, 0, 4 * p->each);
        assert_ok(tn_trainer_grad(large.trainer, step, &whole));
        assert_float_equal(sum, whole, far * fabs((double)whole));
        const int64_t n = flow_gradients(&small, x, MOST);
        assert_int_equal(flow_gradients(&large, y, MOST), n);
        off = size = 0;
        for (int64_t i = 0; i < n; i++) off += pow((double)x[i] / 4 - (double)y[i], 2), size += pow((double)y[i], 2);
        if (!(sqrt(off) < far * sqrt(size))) fail_msg("gradients differ by %g of them", sqrt(off / size));
        assert_ok(tn_trainer_apply(small.trainer, step, 4, 4 * sum, &a));
        assert_ok(tn_trainer_apply(large.trainer, step, 1, whole, &b));
    }
    flow_give(&large, 3, 4 * p->each); /* other samples, other noise */
    assert_ok(tn_trainer_grad(large.trainer, 2, &loss));
    assert_true(fabsf(loss - whole) > 1e-6f);
    flow_close(&small);
    flow_close(&large);
}

/* What is kept for the gradient, and how many threads work, changes no bit. */
static void same_bits(void **state)
{
    static float x[MOST], y[MOST];
    static const struct {
        const char *keep;
        int threads;
    } rows[] = { { "keep=0", 1 }, { "keep=1", 1 }, { "keep=3", 1 }, { "keep=5", 2 }, { "keep_memory=0.0007", 2 } };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        flow_world w;
        float loss;
        assert_ok(flow_try(SIDE, 3, false, rows[i].threads, FLOW_LIST(SMALL, "field=2", rows[i].keep), &w));
        flow_give(&w, 0, 3);
        assert_ok(tn_trainer_grad(w.trainer, 0, &loss));
        const int64_t n = flow_gradients(&w, i ? y : x, MOST);
        if (i && !tn_world_same(y, x, n, 1e-5))
            fail_msg("%s gives gradients that differ by %g", rows[i].keep, tn_world_distance(y, x, n));
        flow_close(&w);
    }
}

/* --- parts turned off ----------------------------------------------------------------------------------------------------- */

static int64_t trained(const flow_world *w, const char *scope, int64_t *others)
{
    int64_t n = 0;
    *others = 0;
    for (size_t i = 0; i < tn_store_count(tn_trainer_store(w->trainer)); i++) {
        const tn_entry *e = tn_store_at(tn_trainer_store(w->trainer), i);
        if (e->role != TN_ROLE_PARAM) continue;
        if (strncmp(e->name, scope, strlen(scope)) == 0) n += tn_dims_count(e->dims);
        else *others += tn_dims_count(e->dims);
    }
    return n;
}

static void ablations(void **state)
{
    float loss;
    int64_t n, others;
    (void)state;
    flow_world on = flow_open(SIDE, 2, false, FLOW_LIST(SMALL)),
               frozen = flow_open(SIDE, 2, false, FLOW_LIST(SMALL, "lattice=frozen")),
               off = flow_open(SIDE, 2, false, FLOW_LIST(SMALL, "lattice=off")),
               still = flow_open(SIDE, 2, false, FLOW_LIST(SMALL, "movement=false"));
    assert_true(trained(&on, "lattice.", &others) > 1000);
    assert_int_equal(others, FLOW_CLASSES * (S + 1));
    assert_int_equal(trained(&frozen, "lattice.", &others), 0);
    assert_int_equal(others, FLOW_CLASSES * (S + 1));
    assert_int_equal(trained(&off, "lattice.", &others), 0);
    flow_world *const all[] = { &on, &frozen, &off, &still };
    for (int i = 0; i < 4; i++) {
        tn_update_result a;
        flow_give(all[i], 0, 2);
        for (int k = 0; k < 2; k++) {
            assert_ok(tn_trainer_grad(all[i]->trainer, k, &loss));
            assert_true(isfinite(loss));
            assert_ok(tn_trainer_apply(all[i]->trainer, k, 1, loss, &a));
        }
    }
    assert_fails(tn_trainer_run_step(off.trainer, "flows"), TN_USAGE, "lattice=off has no flows to show");
    assert_ok(tn_trainer_run_step(still.trainer, "flows"));
    const float *u = flow_output(&still, "flows", "u", &n), *v = flow_output(&still, "flows", "v", &n);
    for (int i = 0; i < 2 * S; i++) assert_int_equal(flow_cell((double)u[i], (double)v[i], SIDE, SIDE), i % S);
    for (int i = 0; i < 2 * S; i++) assert_float_equal(u[i], 2.0 * (i % SIDE) / (SIDE - 1) - 1, 1e-6);
    for (int i = 0; i < 4; i++) flow_close(all[i]);
}

/* --- what is put out ------------------------------------------------------------------------------------------------------ */

static void flows_step(void **state)
{
    enum { B = 2, T = 5, N = S + S / 4 };
    int64_t n, born = 0, ended = 0;
    (void)state;
    flow_world w = flow_open(SIDE, B, false, FLOW_LIST(SMALL, "spawn=1", "rho=0.1", "planes=beside", "energy=2"));
    flow_give(&w, 0, B);
    assert_ok(tn_trainer_run_step(w.trainer, "flows"));
    const float *paths = flow_output(&w, "flows", "paths", &n);
    assert_int_equal(n, (T + 1) * B * N * 5);
    const int32_t *landed = flow_output(&w, "flows", "landed", &n), *age = flow_output(&w, "flows", "age", &n);
    assert_int_equal(n, B * N);
    const float *u = flow_output(&w, "flows", "u", &n), *d = flow_output(&w, "flows", "d", &n);
    for (int i = 0; i < B * N; i++) {
        int points = 0;
        for (int t = 0; t <= T; t++) points += !isnan(paths[((int64_t)t * B * N + i) * 5]);
        if (!landed[i]) continue;
        born++;
        assert_int_equal(points, age[i] + 1);
        assert_true(landed[i] == 2 || d[i] == 0);
        for (int t = T; t >= 0; t--)
            if (!isnan(paths[((int64_t)t * B * N + i) * 5])) {
                ended += paths[((int64_t)t * B * N + i) * 5] == u[i];
                break;
            }
    }
    assert_true(born >= B * S);
    assert_int_equal(ended, born);
    flow_output(&w, "flows", "surface", &n);
    assert_int_equal(n, B * 2 * S * 2);
    flow_close(&w);
}

/* A network that moves everything by its goal has psnr 100 and lands all; these stand for themselves. */
static void metrics(void **state)
{
    const double sums[2] = { 1, 1000 }, none[2] = { 0, 10 };
    (void)state;
    assert_float_equal(flow_psnr(sums, NULL), 30, 1e-9);
    assert_float_equal(flow_psnr(none, NULL), 100, 1e-9);
    assert_int_equal(flow_cell(-1, -1, 5, 3), 0);
    assert_int_equal(flow_cell(1, 1, 5, 3), 14);
    assert_int_equal(flow_cell(-0.75, 0, 5, 3), 5); /* half: the even one */
    assert_int_equal(flow_cell(-0.25, 0, 5, 3), 7);
    assert_int_equal(flow_cell((double)NAN, 9, 5, 3), 10);
}

typedef struct heard {
    char name[32][32];
    double value[32];
    int n;
} heard;

static void hear(void *ctx, const char *name, double value, const char *unit)
{
    heard *h = ctx;
    (void)unit;
    snprintf(h->name[h->n], sizeof h->name[0], "%s", name);
    h->value[h->n++] = value;
}

static double said(const heard *h, const char *name)
{
    for (int i = 0; i < h->n; i++)
        if (strcmp(h->name[i], name) == 0) return h->value[i];
    fail_msg("nothing is reported as %s", name);
    return 0;
}

static void instruments(void **state)
{
    heard h = { .n = 0 };
    float loss;
    (void)state;
    flow_world w = flow_open(SIDE, 3, true, FLOW_LIST(SMALL, "noise=0", "stop=never"));
    flow_give(&w, 0, 2); /* the third row is padding */
    assert_ok(tn_trainer_grad(w.trainer, 0, &loss));
    assert_ok(tn_trainer_eval(w.trainer, &loss));
    tn_trainer_keep_outputs(w.trainer);
    assert_ok(tn_trainer_instruments(w.trainer, hear, NULL, &h));
    assert_float_equal(said(&h, "flows_created"), S, 0);
    assert_float_equal(said(&h, "flows_exited") + said(&h, "flows_projected"), S, 1e-9);
    assert_float_equal(said(&h, "flows_refused"), 0, 0);
    assert_float_equal(said(&h, "lattice_steps"), 5, 0);
    assert_float_equal(said(&h, "flow_steps"), S * said(&h, "flow_age"), 1e-6 * S);
    assert_true(said(&h, "cells_hit") > 0.5 && said(&h, "cells_hit") <= 1);
    assert_true(said(&h, "landing_entropy") > log(S / 2.0) && said(&h, "landing_entropy") < log(S) + 1e-9);
    flow_close(&w);
}

/* Moving by a cell is learned in a few steps on one batch: gradients reach where flows go. */
static void learns(void **state)
{
    float first = 0, loss = 0;
    (void)state;
    flow_world w = flow_open(SIDE, 4, true,
                             FLOW_LIST("dim=16", "layers=1", "depth=6", "train.lr=1e-2", "train.schedule=constant"));
    for (int k = 0; k < 60; k++) {
        tn_update_result a;
        flow_give(&w, 0, 4);
        assert_ok(tn_trainer_grad(w.trainer, k, &loss));
        if (!k) first = loss;
        assert_ok(tn_trainer_apply(w.trainer, k, 1, loss, &a));
    }
    if (!(loss < 0.5f * first)) fail_msg("the loss went from %g to %g", (double)first, (double)loss);
    flow_close(&w);
}

void tn_tests_flow(tn_test_list *l)
{
    static const char *const how[] = { "stop=never", "stop=sample" };
    static const parts accumulated[] = { { "4 batches of 2 are one of 8, classes", false, 2, 2, "depth=10" },
                                         { "4 batches of 2 are one of 8, surfaces", true, 2, 2, "depth=10" },
                                         { "4 batches of 64 are one of 256, surfaces", true, 64, 1, "depth=4" } };
    tn_test_add(l, start_keeps, "layers=1", "flow: at the start the surface comes out as it went in, 1 layer");
    tn_test_add(l, start_keeps, "layers=3", "flow: at the start the surface comes out as it went in, 3 layers");
    tn_test_add(l, start, NULL, "flow: at the start flows land everywhere and all parameters have gradients");
    for (int i = 0; i < 2; i++) tn_test_add(l, isolation, how[i], "flow: no sample feels another, %s", how[i]);
    for (size_t i = 0; i < sizeof accumulated / sizeof *accumulated; i++)
        tn_test_add(l, accumulation, &accumulated[i], "flow: %s", accumulated[i].name);
    tn_test_add(l, same_bits, NULL, "flow: what is kept changes no bit");
    tn_test_add(l, ablations, NULL, "flow: lattice frozen, off, without movement");
    tn_test_add(l, flows_step, NULL, "flow: the step flows");
    tn_test_add(l, metrics, NULL, "flow: metrics");
    tn_test_add(l, instruments, NULL, "flow: instruments");
    tn_test_add(l, learns, NULL, "flow: learns a batch");
}
