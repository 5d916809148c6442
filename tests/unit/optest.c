/* The driver of optest.h: builds a row's graph in several guises (types, threads, strided inputs, added gradients),
 * runs it, and compares with the op's double-precision oracle. On a GPU all rows share one context, every row runs three
 * times (queued, recorded, replayed) with the same bits, and strided inputs may change the last digits. */
#include "optest.h"

#include "base/rng.h"
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VIEW_BEFORE = 1, VIEW_EXTRA = 3 }; /* strided inputs: one element before, two after each row */

typedef struct test_input {
    tn_ref ref; /* the graph's own tensor (padded for views) */
    tn_dims dims;
    tn_fill_spec fill;
    tn_dtype dtype;
} test_input;

struct tn_op_io {
    tn_graph *g;
    tn_dtype dtype;
    bool strided, accumulate;
    int n_in, n_out;
    test_input in[TN_IO_MAX];
    tn_ref out[TN_IO_MAX];
};

typedef struct guise {
    tn_dtype dtype;
    int threads, runs;
    bool strided, accumulate, gradients;
} guise;

/* Numbers of one row: doubles on the oracle's side. */
typedef struct numbers {
    int n_in, n_out;
    int64_t in_count[TN_IO_MAX], out_count[TN_IO_MAX];
    bool differentiable[TN_IO_MAX], out_float[TN_IO_MAX];
    double *in[TN_IO_MAX], *out[TN_IO_MAX], *cot[TN_IO_MAX], *grad[TN_IO_MAX];
} numbers;

typedef struct row {
    const tn_op_test *test;
    const tn_case *c;
    tn_dtype dtype;
} row;

/* --- what an op's test file calls ------------------------------------------------------------------------------------ */

tn_graph *tn_test_graph(tn_op_io *io) { return io->g; }

tn_ref tn_test_input(tn_op_io *io, tn_dims dims, tn_fill_spec fill)
{
    char name[16];
    assert_true(io->n_in < TN_IO_MAX);
    test_input *in = &io->in[io->n_in];
    const bool integer = fill.kind == TN_FILL_INT;
    const bool half = !integer && (fill.dtype == TN_BF16 || fill.dtype == TN_F16);
    *in = (test_input){ .dims = dims, .fill = fill };
    const bool other = fill.dtype == TN_I64 || fill.dtype == TN_U8;
    in->dtype = integer ? (other ? fill.dtype : TN_I32) : half ? fill.dtype : io->dtype;
    tn_dims padded = dims;
    const bool pad = io->strided && !integer && dims.rank > 0;
    if (pad) padded.dim[dims.rank - 1] += VIEW_EXTRA;
    snprintf(name, sizeof name, "in%d", io->n_in++);
    in->ref = tn_input(io->g, name, padded, in->dtype);
    if (!integer && !fill.constant && !half) {
        tn_want_gradient(io->g, in->ref);
        if (io->g->status == TN_OK) io->g->tensor[in->ref.id].wanted_adds = io->accumulate;
    }
    return pad ? tn_slice(io->g, in->ref, -1, VIEW_BEFORE, dims.dim[dims.rank - 1]) : in->ref;
}

void tn_test_output(tn_op_io *io, tn_ref y)
{
    char name[16];
    assert_true(io->n_out < TN_IO_MAX);
    snprintf(name, sizeof name, "out%d", io->n_out);
    tn_output(io->g, name, y);
    io->out[io->n_out++] = y;
}

/* --- moving numbers ---------------------------------------------------------------------------------------------------- */

static double get(const void *p, tn_dtype t, int64_t i)
{
    double x = 0;
    if (t == TN_F32) return (double)((const float *)p)[i];
    tn_convert(&x, TN_F64, (const char *)p + i * (int64_t)tn_dtype_bytes(t), t, 1);
    return x;
}

static void put(void *p, tn_dtype t, int64_t i, double x)
{
    if (t == TN_F32) {
        ((float *)p)[i] = (float)x;
        return;
    }
    tn_convert((char *)p + i * (int64_t)tn_dtype_bytes(t), t, &x, TN_F64, 1);
}

/* Index of element i in the padded memory of a strided input. */
static int64_t padded_index(const tn_op_io *io, const test_input *in, int64_t i)
{
    if (!io->strided || in->fill.kind == TN_FILL_INT || !in->dims.rank) return i;
    const int64_t n = in->dims.dim[in->dims.rank - 1];
    return i / n * (n + VIEW_EXTRA) + VIEW_BEFORE + i % n;
}

static double round_to(tn_dtype t, double x)
{
    _Alignas(8) char buf[8];
    put(buf, t, 0, x);
    return get(buf, t, 0);
}

/* --- one guise --------------------------------------------------------------------------------------------------------- */

typedef struct compiled {
    tn_op_io io;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
    int n_seeds;
    int seed_of[TN_IO_MAX]; /* output of each seed */
} compiled;

static tn_context *on_gpu; /* opening one takes longer than most rows */

static tn_context *open_context(int threads)
{
    tn_context *c = on_gpu;
    if (!c) assert_ok(tn_context_new(tn_test_device(), threads, &c));
    if (tn_test_device() != TN_CPU) on_gpu = c;
    return c;
}

static void compile(compiled *k, const tn_op_test *t, const tn_case *c, const guise *u)
{
    const tn_graph_options go = {
        .activation = u->dtype, .training = true, .threads = u->threads, .device = tn_test_device()
    };
    tn_seed seeds[TN_IO_MAX];
    *k = (compiled){ .io = { .dtype = u->dtype, .strided = u->strided, .accumulate = u->accumulate } };
    assert_ok(tn_graph_new(&go, &k->io.g));
    t->build(&k->io, c);
    assert_ok(tn_graph_status(k->io.g));
    for (int i = 0; u->gradients && i < k->io.n_out; i++) {
        char name[16];
        if (!k->io.g->tensor[k->io.out[i].id].needs_grad) continue;
        snprintf(name, sizeof name, "cot%d", i);
        k->seed_of[k->n_seeds] = i;
        seeds[k->n_seeds++] = (tn_seed){ .y = k->io.out[i],
                                         .dy = tn_input(k->io.g, name, tn_ref_dims(k->io.g, k->io.out[i]),
                                                        tn_ref_dtype(k->io.g, k->io.out[i])) };
    }
    const tn_compile_options co = {
        .device = tn_test_device(), .threads = u->threads, .seeds = seeds, .n_seeds = k->n_seeds
    };
    assert_ok(tn_graph_compile(k->io.g, &co, &k->plan));
    k->io.g = (tn_graph *)(uintptr_t)tn_plan_graph(k->plan);
    k->context = open_context(u->threads);
    assert_ok(tn_bind(k->plan, k->context, NULL, &k->bound));
    tn_bound_seed(k->bound, 12345, 7);
}

static void release(compiled *k)
{
    tn_bound_free(k->bound);
    if (k->context != on_gpu) tn_context_free(k->context);
    tn_plan_free(k->plan);
}

static void load_inputs(compiled *k, const numbers *x)
{
    char name[16];
    for (int i = 0; i < k->io.n_in; i++) {
        const test_input *in = &k->io.in[i];
        snprintf(name, sizeof name, "in%d", i);
        void *p = tn_bound_data(k->bound, name);
        for (int64_t j = 0; p && j < x->in_count[i]; j++) put(p, in->dtype, padded_index(&k->io, in, j), x->in[i][j]);
        snprintf(name, sizeof name, "d.in%d", i);
        void *d = tn_bound_data(k->bound, name);
        for (int64_t j = 0; d && j < x->in_count[i]; j++)
            put(d, in->dtype, padded_index(&k->io, in, j), k->io.accumulate ? 0.25 : (double)NAN);
    }
    for (int s = 0; s < k->n_seeds; s++) {
        snprintf(name, sizeof name, "cot%d", k->seed_of[s]);
        void *p = tn_bound_data(k->bound, name);
        const tn_dtype t = tn_ref_dtype(k->io.g, k->io.out[k->seed_of[s]]);
        for (int64_t j = 0; p && j < x->out_count[k->seed_of[s]]; j++) put(p, t, j, x->cot[k->seed_of[s]][j]);
    }
}

static void read_results(compiled *k, double *const *out, double *const *grad, const numbers *x)
{
    char name[16];
    for (int i = 0; i < x->n_out; i++) {
        snprintf(name, sizeof name, "out%d", i);
        const void *p = tn_bound_data(k->bound, name);
        const tn_dtype t = tn_ref_dtype(k->io.g, k->io.out[i]);
        assert_true(p || !x->out_count[i]);
        for (int64_t j = 0; j < x->out_count[i]; j++) out[i][j] = get(p, t, j);
    }
    for (int i = 0; i < x->n_in; i++) {
        snprintf(name, sizeof name, "d.in%d", i);
        const void *p = k->n_seeds ? tn_bound_data(k->bound, name) : NULL;
        for (int64_t j = 0; p && j < x->in_count[i]; j++)
            grad[i][j] = get(p, k->io.in[i].dtype, padded_index(&k->io, &k->io.in[i], j));
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs the row in one guise; with runs > 1 the bits of all runs must agree. */
static void run_guise(const tn_op_test *t, const tn_case *c, const guise *u, const numbers *x, double *const *out,
                      double *const *grad)
{
    compiled k;
    compile(&k, t, c, u);
    double *again_out[TN_IO_MAX] = { 0 }, *again_grad[TN_IO_MAX] = { 0 };
    double best = 1e9;
    for (int r = 0; r < u->runs; r++) {
        load_inputs(&k, x);
        const double start = seconds();
        assert_ok(tn_run(k.bound));
        const double took = seconds() - start;
        if (took < best) best = took;
        if (r == 0) {
            read_results(&k, out, grad, x);
            continue;
        }
        for (int i = 0; i < x->n_out; i++) again_out[i] = calloc((size_t)x->out_count[i] + 1, sizeof(double));
        for (int i = 0; i < x->n_in; i++) again_grad[i] = calloc((size_t)x->in_count[i] + 1, sizeof(double));
        read_results(&k, again_out, again_grad, x);
        for (int i = 0; i < x->n_out; i++) {
            if (memcmp(out[i], again_out[i], sizeof(double) * (size_t)x->out_count[i]))
                fail_msg("run %d: output %d has other bits", r, i);
            free(again_out[i]);
        }
        for (int i = 0; i < x->n_in; i++) {
            if (k.n_seeds && x->differentiable[i] &&
                memcmp(grad[i], again_grad[i], sizeof(double) * (size_t)x->in_count[i]))
                fail_msg("run %d: gradient %d has other bits", r, i);
            free(again_grad[i]);
        }
    }
    if (getenv("TENON_TIMES") && u->runs > 1)
        print_message("           %-12s %-14s %8.3f ms  %7.2f GFLOP/s  arena %zu bytes\n", t->op, c->name, best * 1e3,
                      tn_plan_flops(k.plan) / best * 1e-9, tn_plan_memory(k.plan).arena);
    release(&k);
}

/* --- comparing ----------------------------------------------------------------------------------------------------------- */

static double largest(const double *x, int64_t n)
{
    double m = 0;
    for (int64_t i = 0; i < n; i++)
        if (fabs(x[i]) > m) m = fabs(x[i]);
    return m;
}

static void compare(const char *what, int index, const double *x, const double *ref, int64_t n, double tolerance)
{
    const double scale = fmax(largest(ref, n), 1e-30);
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]) && isnan(ref[i])) continue;
        if (isinf(ref[i]) && x[i] == ref[i]) continue;
        const double e = fabs(x[i] - ref[i]) / (isinf(scale) ? fmax(fabs(ref[i]), 1e-30) : scale);
        if (!(e <= tolerance))
            fail_msg("%s %d, element %lld of %lld: %.9g instead of %.9g (error %.2e, tolerance %.1e)", what, index,
                     (long long)i, (long long)n, x[i], ref[i], e, tolerance);
    }
}

/* Zeros may differ in sign: a gradient of -0 that is added to a zeroed view becomes +0. */
static void same_bits(const char *what, double *const *a, double *const *b, const int64_t *n, int count,
                      const bool *which)
{
    for (int i = 0; i < count; i++) {
        if (which && !which[i]) continue;
        for (int64_t j = 0; j < n[i]; j++)
            if (a[i][j] != b[i][j] && !(isnan(a[i][j]) && isnan(b[i][j])))
                fail_msg("%s: tensor %d, element %lld: %.9g instead of %.9g", what, i, (long long)j, b[i][j], a[i][j]);
    }
}

static double oracle_loss(const row *r, const numbers *x, double *const *scratch)
{
    tn_oracle o = { 0 };
    double loss = 0;
    for (int i = 0; i < x->n_in; i++) {
        o.in[i] = x->in[i];
        o.n_in[i] = x->in_count[i];
    }
    for (int i = 0; i < x->n_out; i++) {
        o.out[i] = scratch[i];
        o.n_out[i] = x->out_count[i];
        memset(scratch[i], 0, sizeof(double) * (size_t)x->out_count[i]);
    }
    r->test->oracle(r->c, &o);
    for (int i = 0; i < x->n_out; i++)
        for (int64_t j = 0; x->out_float[i] && j < x->out_count[i]; j++) loss += scratch[i][j] * x->cot[i][j];
    return loss;
}

static void check_gradient(const row *r, numbers *x, int i, double *const *scratch, double tolerance)
{
    const int64_t n = x->in_count[i], most = r->c->flags & TN_FEW ? (TN_SANITIZED ? 2 : 4) : 24;
    const double least = r->dtype == TN_F16 ? 0x1p-14 : 1e-12; /* below it f16 has fewer and fewer digits */
    const double scale = fmax(largest(x->grad[i], n), least);
    const tn_rng rng = { 99, (uint64_t)i };
    for (int64_t s = 0; s < (n < most ? n : most); s++) {
        const int64_t j = n <= most ? s : (int64_t)tn_rng_below(rng, (uint64_t)s, (uint64_t)n);
        const double keep = x->in[i][j], h = 1e-5 * fmax(1, fabs(keep));
        x->in[i][j] = keep + h;
        const double up = oracle_loss(r, x, scratch);
        x->in[i][j] = keep - h;
        const double down = oracle_loss(r, x, scratch);
        x->in[i][j] = keep;
        const double want = (up - down) / (2 * h), got = x->grad[i][j];
        const double e = fabs(got - want) / fmax(scale, fabs(want));
        if (!(e <= tolerance + 1e-7))
            fail_msg("gradient of input %d, element %lld: %.9g, by differences %.9g (error %.2e, tolerance %.1e)", i,
                     (long long)j, got, want, e, tolerance);
    }
}

/* --- one row ------------------------------------------------------------------------------------------------------------- */

static double *fresh(int64_t n)
{
    double *p = calloc((size_t)n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

/* Draws inputs and cotangents, rounded to the row's type, so that oracle and kernel see the same numbers. */
static void draw(const row *r, numbers *x)
{
    compiled k;
    const guise plain = { .dtype = r->dtype, .threads = 1 };
    compile(&k, r->test, r->c, &plain);
    *x = (numbers){ .n_in = k.io.n_in, .n_out = k.io.n_out };
    for (int i = 0; i < x->n_in; i++) {
        const test_input *in = &k.io.in[i];
        const tn_rng rng = { 4711, (uint64_t)i };
        x->in_count[i] = tn_dims_count(in->dims);
        x->differentiable[i] = in->fill.kind != TN_FILL_INT && !in->fill.constant && in->fill.dtype == TN_F32;
        x->in[i] = fresh(x->in_count[i]);
        x->grad[i] = fresh(x->in_count[i]);
        for (int64_t j = 0; j < x->in_count[i]; j++) {
            const double u = tn_rng_uniform(rng, (uint64_t)j), span = in->fill.hi - in->fill.lo;
            switch (in->fill.kind) {
            case TN_FILL_NORMAL: x->in[i][j] = tn_rng_normal(rng, (uint64_t)j); break;
            case TN_FILL_UNIFORM: x->in[i][j] = in->fill.lo + span * u; break;
            case TN_FILL_INT: x->in[i][j] = in->fill.lo + floor(span * u); break;
            case TN_FILL_CONSTANT: x->in[i][j] = in->fill.lo; break;
            }
        }
        if (r->test->adjust) r->test->adjust(r->c, i, x->in[i], x->in_count[i]);
        for (int64_t j = 0; j < x->in_count[i]; j++) x->in[i][j] = round_to(in->dtype, x->in[i][j]);
    }
    for (int i = 0; i < x->n_out; i++) {
        const tn_dtype t = tn_ref_dtype(k.io.g, k.io.out[i]);
        x->out_count[i] = tn_dims_count(tn_ref_dims(k.io.g, k.io.out[i]));
        x->out_float[i] = tn_dtype_is_float(t) && k.io.g->tensor[k.io.out[i].id].needs_grad;
        x->out[i] = fresh(x->out_count[i]);
        x->cot[i] = fresh(x->out_count[i]);
        for (int64_t j = 0; x->out_float[i] && j < x->out_count[i]; j++)
            x->cot[i][j] = round_to(t, tn_rng_normal((tn_rng){ 17, (uint64_t)i }, (uint64_t)j));
    }
    release(&k);
}

static void discard(numbers *x)
{
    for (int i = 0; i < x->n_in; i++) free(x->in[i]), free(x->grad[i]);
    for (int i = 0; i < x->n_out; i++) free(x->out[i]), free(x->cot[i]);
}

typedef struct results {
    double *out[TN_IO_MAX], *grad[TN_IO_MAX];
} results;

static results fresh_results(const numbers *x)
{
    results r = { { 0 }, { 0 } };
    for (int i = 0; i < x->n_out; i++) r.out[i] = fresh(x->out_count[i]);
    for (int i = 0; i < x->n_in; i++) r.grad[i] = fresh(x->in_count[i]);
    return r;
}

static void free_results(const numbers *x, results *r)
{
    for (int i = 0; i < x->n_out; i++) free(r->out[i]);
    for (int i = 0; i < x->n_in; i++) free(r->grad[i]);
}

/* The same numbers, in another guise, must give the same bits. */
static void check_guise(const row *r, const numbers *x, const char *what, guise u)
{
    results y = fresh_results(x);
    run_guise(r->test, r->c, &u, x, y.out, y.grad);
    if (tn_test_device() != TN_CPU) {
        const double near = u.dtype == TN_F32 ? 1e-5 : 2e-2;
        for (int i = 0; i < x->n_out; i++) compare(what, i, y.out[i], x->out[i], x->out_count[i], near);
        for (int i = 0; u.gradients && !u.accumulate && i < x->n_in; i++)
            if (x->differentiable[i]) compare(what, i, y.grad[i], x->grad[i], x->in_count[i], near);
    } else {
        same_bits(what, x->out, y.out, x->out_count, x->n_out, NULL);
        if (u.gradients && !u.accumulate) same_bits(what, x->grad, y.grad, x->in_count, x->n_in, x->differentiable);
    }
    for (int i = 0; u.accumulate && i < x->n_in; i++) {
        if (!x->differentiable[i]) continue;
        for (int64_t j = 0; j < x->in_count[i]; j++) y.grad[i][j] -= 0.25;
        compare("added gradient", i, y.grad[i], x->grad[i], x->in_count[i],
                (u.dtype == TN_F32 ? 1e-5 : 2e-2) * (1 + 0.25 / fmax(largest(x->grad[i], x->in_count[i]), 1e-12)));
    }
    free_results(x, &y);
}

static void check_nan(const row *r, numbers *x)
{
    int i = 0;
    while (i < x->n_in && !(x->differentiable[i] && x->in_count[i])) i++;
    if (i == x->n_in || (r->c->flags & TN_NO_NAN)) return;
    const double keep = x->in[i][0];
    results got = fresh_results(x), want = fresh_results(x);
    x->in[i][0] = NAN;
    const guise u = { .dtype = r->dtype, .threads = 1, .runs = 1 };
    run_guise(r->test, r->c, &u, x, got.out, got.grad);
    oracle_loss(r, x, want.out);
    x->in[i][0] = keep;
    for (int k = 0; k < x->n_out; k++)
        for (int64_t j = 0; j < x->out_count[k]; j++)
            if (isnan(got.out[k][j]) != isnan(want.out[k][j]))
                fail_msg("with a NaN in input %d: output %d, element %lld is %.9g, the oracle's %.9g", i, k,
                         (long long)j, got.out[k][j], want.out[k][j]);
    free_results(x, &got);
    free_results(x, &want);
}

static void run_row(void **state)
{
    const row *r = *state;
    const double looser = tn_test_device() == TN_CPU ? 1 : 4; /* sums in other orders, approximate instructions */
    const double tolerance = looser * (double)(r->dtype == TN_F32 ? r->c->f32 : r->c->bf16);
    const bool gradients = !(r->c->flags & TN_NO_GRAD);
    numbers x;
    draw(r, &x);
    results ref = fresh_results(&x);
    const guise plain = { .dtype = r->dtype, .threads = 1, .runs = 3, .gradients = gradients };
    run_guise(r->test, r->c, &plain, &x, x.out, x.grad);
    oracle_loss(r, &x, ref.out);
    for (int i = 0; i < x.n_out; i++) compare("output", i, x.out[i], ref.out[i], x.out_count[i], tolerance);
    if (gradients && r->test->oracle_grad) {
        tn_oracle o = { 0 };
        for (int i = 0; i < x.n_in; i++) o.in[i] = x.in[i], o.n_in[i] = x.in_count[i];
        for (int i = 0; i < x.n_out; i++) o.out[i] = ref.out[i], o.n_out[i] = x.out_count[i];
        r->test->oracle_grad(r->c, &o, x.cot, ref.grad);
        for (int i = 0; i < x.n_in; i++)
            if (x.differentiable[i]) compare("gradient", i, x.grad[i], ref.grad[i], x.in_count[i], tolerance);
    } else if (gradients) {
        for (int i = 0; i < x.n_in; i++)
            if (x.differentiable[i]) check_gradient(r, &x, i, ref.out, tolerance);
    }
    guise u = plain;
    u.runs = 1;
    u.threads = 2;
    check_guise(r, &x, "2 threads", u);
    u.threads = 1;
    if (!(r->c->flags & TN_NO_VIEWS)) {
        u.strided = true;
        check_guise(r, &x, "strided inputs", u);
        u.strided = false;
    }
    u.accumulate = true;
    if (gradients) check_guise(r, &x, "added gradients", u);
    if (r->dtype == TN_F32) check_nan(r, &x);
    free_results(&x, &ref);
    discard(&x);
}

static void run_property(void **state) { ((const tn_property *)*state)->run(); }

enum { MOST_ROWS = 8192 };
static row rows[MOST_ROWS]; /* as long as the test program */
static size_t n_rows;

static double size_of(const tn_case *c)
{
    double n = 1;
    for (int i = 0; i < TN_CASE_DIMS; i++) n *= c->dim[i] > 1 ? (double)c->dim[i] : 1;
    return n;
}

/* TENON_TEST_SMALLEST=N: the N smallest rows of each op and nothing else, for tools that slow it all down. */
static bool left_out(const tn_op_test *t, size_t i)
{
    const char *most = getenv("TENON_TEST_SMALLEST");
    long smaller = 0;
    for (size_t k = 0; most && k < t->n_cases; k++)
        smaller +=
            size_of(&t->cases[k]) < size_of(&t->cases[i]) || (size_of(&t->cases[k]) == size_of(&t->cases[i]) && k < i);
    return most && smaller >= strtol(most, NULL, 10);
}

void tn_optest_add(tn_test_list *l, const tn_op_test *t)
{
    static const tn_dtype types[] = { TN_F32, TN_BF16, TN_F16 };
    const int n_types = tn_test_device() == TN_CPU ? 2 : 3; /* the CPU's kernels never see halves of either kind */
    for (size_t i = 0; i < t->n_cases; i++)
        for (int k = 0; k < n_types; k++) {
            if (left_out(t, i)) continue;
            if ((k ? t->cases[i].bf16 : t->cases[i].f32) <= 0) continue;
            if (TN_SANITIZED && (t->cases[i].flags & TN_SLOW)) continue;
            assert_true(n_rows < MOST_ROWS);
            row *r = &rows[n_rows++];
            *r = (row){ .test = t, .c = &t->cases[i], .dtype = types[k] };
            tn_test_add(l, run_row, r, "%s: %s %s", t->op, t->cases[i].name, tn_dtype_name(types[k]));
        }
    for (size_t i = 0; i < t->n_properties && !getenv("TENON_TEST_SMALLEST"); i++)
        tn_test_add(l, run_property, &t->properties[i], "%s: %s", t->op, t->properties[i].name);
}

void tn_optest_run(const tn_op_test *t, const tn_case *c, int threads, const void *const *inputs, void *const *outputs,
                   void *const *gradients, const float *const *cotangents)
{
    compiled k;
    char name[16];
    const guise u = { .dtype = TN_F32, .threads = threads, .gradients = gradients != NULL };
    compile(&k, t, c, &u);
    for (int i = 0; i < k.io.n_in; i++) {
        snprintf(name, sizeof name, "in%d", i);
        void *p = tn_bound_data(k.bound, name);
        if (p && inputs[i])
            memcpy(p, inputs[i], (size_t)tn_dims_count(k.io.in[i].dims) * tn_dtype_bytes(k.io.in[i].dtype));
    }
    for (int s = 0; s < k.n_seeds; s++) {
        snprintf(name, sizeof name, "cot%d", k.seed_of[s]);
        float *p = tn_bound_data(k.bound, name);
        const int64_t n = tn_dims_count(tn_ref_dims(k.io.g, k.io.out[k.seed_of[s]]));
        for (int64_t j = 0; j < n; j++)
            p[j] = cotangents && cotangents[k.seed_of[s]] ? cotangents[k.seed_of[s]][j] : 1.f;
    }
    assert_ok(tn_run(k.bound));
    for (int i = 0; i < k.io.n_out; i++) {
        snprintf(name, sizeof name, "out%d", i);
        const void *p = tn_bound_data(k.bound, name);
        const tn_ref y = k.io.out[i];
        if (outputs && outputs[i] && p)
            memcpy(outputs[i], p,
                   (size_t)tn_dims_count(tn_ref_dims(k.io.g, y)) * tn_dtype_bytes(tn_ref_dtype(k.io.g, y)));
    }
    for (int i = 0; gradients && i < k.io.n_in; i++) {
        snprintf(name, sizeof name, "d.in%d", i);
        const void *p = tn_bound_data(k.bound, name);
        if (p && gradients[i]) memcpy(gradients[i], p, (size_t)tn_dims_count(k.io.in[i].dims) * sizeof(float));
    }
    release(&k);
}
