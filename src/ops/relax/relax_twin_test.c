/* relax against its twin of plain ops for every gradient, and what it promises: bits that depend on the sample alone,
 * memory that does not grow with the steps, errors that say what to do. */
#include "relax_case.h"

#include "base/rng.h"
#include "world.h"

#include <stdio.h>

enum { B = 37, D = 13, F = 29, C = 5, MOST = 4096 };

/* Everything a run gives. */
typedef struct result {
    float h[B * D], residuals[B], signal[B], grad[RO_PARAMS][MOST];
    int32_t free_steps[B], nudged_steps[B], adjoint_steps[B];
} result;

typedef struct how {
    const tn_graph_options *options;
    int threads;
    const int *who; /* which sample each row is, or NULL: as they come */
    int64_t rows;   /* 0 = the case's */
} how;

static const char *const output_names[] = { "h", "residuals", "signal", "free_steps", "nudged_steps", "adjoint_steps" };

/* Sample numbers come from `who`, so that a batch can be put together from others. */
static void fill(tn_bound *b, const tn_case *c, const how *w)
{
    for (int i = 0; i < RC_INPUTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        void *to = rc_has(c, i) ? tn_bound_data(b, name) : NULL;
        const tn_dims dims = rc_dims(c, i);
        const bool samples = i == TN_RELAX_A || i == TN_RELAX_H0 || i == TN_RELAX_LABELS || i == TN_RELAX_WEIGHTS;
        const int64_t n = tn_dims_count(dims), each = samples ? n / dims.dim[0] : n;
        const tn_fill_spec s = rc_fill(c, i);
        const tn_rng rng = { 31, (uint64_t)i };
        for (int64_t k = 0; to && k < n; k++) {
            const uint64_t at = samples && w->who ? (uint64_t)(w->who[k / each] * each + k % each) : (uint64_t)k;
            const double u = (double)tn_rng_uniform(rng, at);
            if (s.kind == TN_FILL_INT)
                ((int32_t *)to)[k] = (c->flags & RC_UNLABELLED) && samples && at % 3 == 1
                                         ? -1
                                         : (int32_t)floor(s.lo + (s.hi - s.lo) * u);
            else
                ((float *)to)[k] =
                    s.kind == TN_FILL_NORMAL ? 2 * tn_rng_normal(rng, at) : (float)(s.lo + (s.hi - s.lo) * u);
        }
    }
}

static void copy_out(tn_bound *b, const char *name, void *to, size_t bytes)
{
    const void *p = tn_bound_data(b, name);
    if (p) memcpy(to, p, bytes);
}

static void run(const tn_case *row, const how *w, result *r)
{
    tn_case c = *row;
    if (w->rows) c.dim[RC_B] = w->rows;
    tn_graph_options o = w->options ? *w->options : (tn_graph_options){ 0 };
    o.threads = w->threads;
    tn_world world = tn_world_open_on(tn_test_device(), 1, w->threads);
    tn_graph *g = tn_world_graph_on(tn_test_device(), &o);
    tn_ref in[RC_INPUTS];
    rc_inputs(g, &c, true, in);
    const rc_outputs out = rc_node(g, &c, in);
    const tn_ref refs[] = { out.h, out.residuals, out.signal, out.free_steps, out.nudged_steps, out.adjoint_steps };
    for (int i = 0; i < 6; i++) tn_output(g, output_names[i], refs[i]);
    const tn_ref dims = tn_input(g, "g", tn_shape(c.dim[RC_B], c.dim[RC_D]), TN_F32);
    const tn_ref loss = tn_sum_all(g, tn_mul(g, out.h, dims));
    tn_bound *b = tn_world_add(&world, g, &(tn_compile_options){ .loss = loss, .threads = w->threads });
    fill(b, &c, w);
    float *dout = tn_world_data(b, "g");
    for (int64_t i = 0; i < c.dim[RC_B] * c.dim[RC_D]; i++)
        dout[i] = sinf(0.3f + 1.1f * (float)(w->who ? w->who[i / c.dim[RC_D]] * c.dim[RC_D] + i % c.dim[RC_D] : i));
    assert_ok(tn_run(b));
    memset(r, 0, sizeof *r);
    const size_t rows = (size_t)c.dim[RC_B];
    copy_out(b, "h", r->h, rows * (size_t)c.dim[RC_D] * sizeof *r->h);
    void *const to[] = { r->residuals, r->signal, r->free_steps, r->nudged_steps, r->adjoint_steps };
    for (int i = 0; i < 5; i++) copy_out(b, output_names[i + 1], to[i], rows * 4);
    for (int i = 0; i < RO_PARAMS; i++) {
        char name[16];
        snprintf(name, sizeof name, "d.in%d", i);
        if (rc_has(&c, i)) copy_out(b, name, r->grad[i], (size_t)tn_dims_count(rc_dims(&c, i)) * sizeof(float));
    }
    tn_world_close(&world);
}

/* Nearness by the largest number of a tensor. */
static double apart(const float *a, const float *b, int64_t n)
{
    double most = 1e-30, far = 0;
    for (int64_t i = 0; i < n; i++) {
        const double size = fabs((double)a[i]), e = fabs((double)a[i] - (double)b[i]);
        if (size > most) most = size;
        if (!(e <= far)) far = e; /* NaN stays */
        if (isnan(far)) return far;
    }
    return far / most;
}

static void near(const char *what, const tn_case *c, const float *a, const float *b, int64_t n, double tolerance)
{
    const double e = apart(a, b, n);
    if (!(e <= tolerance)) fail_msg("%s: %s is %.2e apart (tolerance %.1e)", c->name, what, e, tolerance);
}

/* Steps must be the twin's for all samples but those within rounding of the limit. */
static void same_steps(const char *what, const tn_case *c, const int32_t *a, const int32_t *b, int most)
{
    int differ = 0;
    for (int i = 0; i < c->dim[RC_B]; i++) differ += a[i] != b[i];
    if (differ > most) fail_msg("%s: %s differs in %d of %d samples", c->name, what, differ, (int)c->dim[RC_B]);
}

static const tn_case ways[] = {
    { "bptt", { B, D, F, C, 7 }, RC_FIXED, 2e-5f, 0 },
    { "bptt until each is there", { B, D, F, C, 60, 30 }, RC_H0, 5e-5f, 0 },
    { "implicit", { B, D, F, C, 40, 30 }, RC_IMPLICIT, 5e-5f, 0 },
    { "implicit anderson", { B, D, F, C, 40, 30 }, RC_IMPLICIT | RC_ANDERSON, 1e-3f, 0 },
    { "one step", { B, D, F, C, 40, 30 }, RC_ONE_STEP, 2e-5f, 0 },
    { "ep", { B, D, F, C, 40, 30 }, RC_EP | RC_MEAN | RC_WEIGHTS | RC_UNLABELLED, 2e-4f, 0 },
    { "ep centred", { B, D, F, C, 40, 30 }, RC_EP | RC_CENTRED, 2e-4f, 0 },
    { "ep at rest", { B, D, F, C, 40, 30 }, RC_EP | RC_REST | RC_UNLABELLED, 2e-4f, 0 },
    { "ep at rest by its move", { B, D, F, C, 40, 30 }, RC_EP | RC_REST | RC_MOVE, 2e-4f, 0 },
    { "ep centred by its move", { B, D, F, C, 40, 30 }, RC_EP | RC_CENTRED | RC_MOVE, 2e-4f, 0 },
    { "ep centred anderson", { B, D, F, C, 40, 30 }, RC_EP | RC_CENTRED | RC_ANDERSON, 1e-3f, 0 },
    { "proxy", { B, D, F, C, 40, 30 }, RC_EP | RC_PROXY | RC_TOL, 2e-4f, 0 },
    { "energy bptt", { B, D, F, C, 7 }, RC_ENERGY | RC_FIXED, 2e-5f, 0 },
    { "energy implicit", { B, D, F, C, 40, 30 }, RC_ENERGY | RC_IMPLICIT, 5e-5f, 0 },
    { "energy one step", { B, D, F, C, 40, 30 }, RC_ENERGY | RC_ONE_STEP | RC_H0, 2e-5f, 0 },
    { "energy ep centred", { B, D, F, C, 40, 30 }, RC_ENERGY | RC_EP | RC_CENTRED | RC_MEAN, 2e-4f, 0 },
    { "energy proxy", { B, D, F, C, 40, 30 }, RC_ENERGY | RC_EP | RC_PROXY | RC_TOL, 2e-4f, 0 },
    { "hopfield bptt", { B, D, D, C, 40, 30 }, RC_HOPFIELD, 5e-5f, 0 },
    { "hopfield implicit", { B, D, D, C, 40, 30 }, RC_HOPFIELD | RC_IMPLICIT, 5e-5f, 0 },
    { "hopfield ep", { B, D, D, C, 40, 30 }, RC_HOPFIELD | RC_EP | RC_REST | RC_WEIGHTS | RC_UNLABELLED, 2e-4f, 0 },
    { "hopfield ep centred", { B, D, D, C, 40, 30 }, RC_HOPFIELD | RC_EP | RC_CENTRED | RC_MEAN, 2e-4f, 0 },
};
enum { WAYS = sizeof ways / sizeof *ways };

static result first, second; /* too large for a stack */

static void agrees_with_twin(void **state)
{
    const tn_case *c = *state;
    static const char *const off[] = { "opt.relax", NULL };
    const double tolerance = (double)c->f32;
    run(c, &(how){ .threads = 2 }, &first);
    run(c, &(how){ .threads = 2, .options = &(tn_graph_options){ .off = off } }, &second);
    same_steps("free steps", c, first.free_steps, second.free_steps, 0);
    same_steps("nudged steps", c, first.nudged_steps, second.nudged_steps, 0);
    same_steps("adjoint steps", c, first.adjoint_steps, second.adjoint_steps, 0);
    near("h", c, second.h, first.h, B * D, tolerance);
    for (int i = 0; i < B; i++)
        assert_float_equal(first.residuals[i], second.residuals[i], 1e-6f + 1e-3f * second.residuals[i]);
    near("signal", c, second.signal, first.signal, B, 1e-2);
    for (int i = 0; i < RO_PARAMS; i++) {
        char name[24];
        snprintf(name, sizeof name, "gradient %d", i);
        if (rc_has(c, i)) near(name, c, second.grad[i], first.grad[i], tn_dims_count(rc_dims(c, i)), tolerance);
    }
}

/* Sizes at which the GPU's kernel takes clusters of several blocks, in both of its widths. */
static void large_as_twin(void **state)
{
    static const char *const off[] = { "opt.relax", NULL }, *const names[] = { "h", "d.in0", "d.in1", "d.in3" };
    const tn_case *c = *state;
    float *kept[4] = { 0 };
    for (int plain = 0; plain < 2; plain++) {
        tn_world w = tn_world_open_on(tn_test_device(), 1, 2);
        tn_graph *g =
            tn_world_graph_on(tn_test_device(), &(tn_graph_options){ .threads = 2, .off = plain ? off : NULL });
        tn_ref in[RC_INPUTS];
        rc_inputs(g, c, true, in);
        const rc_outputs o = rc_node(g, c, in);
        tn_output(g, "h", o.h);
        tn_output(g, "steps", o.free_steps);
        tn_bound *b =
            tn_world_add(&w, g, &(tn_compile_options){ .loss = tn_sum_all(g, tn_square(g, o.h)), .threads = 2 });
        fill(b, c, &(how){ 0 });
        assert_ok(tn_run(b));
        for (int i = 0; i < 4; i++) {
            if (i == 3 && (c->flags & RC_ENERGY)) continue;
            const int64_t n = tn_dims_count(rc_dims(c, i < 2 ? TN_RELAX_A : i == 2 ? TN_RELAX_W1 : TN_RELAX_W2));
            const float *x = tn_world_data(b, names[i]);
            if (plain) {
                near(names[i], c, x, kept[i], n, (double)c->f32);
            } else {
                kept[i] = malloc(sizeof *x * (size_t)n);
                assert_non_null(kept[i]);
                memcpy(kept[i], x, sizeof *x * (size_t)n);
            }
        }
        tn_world_close(&w);
    }
    for (int i = 0; i < 4; i++) free(kept[i]);
}

static const tn_case large[] = {
    { "large ep", { 37, 128, 512, 10, 6, 35 }, RC_EP | RC_CENTRED | RC_FIXED, 2e-4f, 0 },
    { "large implicit", { 20, 100, 300, 10, 6 }, RC_IMPLICIT | RC_FIXED, 1e-4f, 0 },
    { "wider than a warp holds in four", { 20, 160, 200, 10, 6 }, RC_IMPLICIT | RC_FIXED, 1e-4f, 0 },
    { "large energy", { 20, 64, 256, 10, 6 }, RC_ENERGY | RC_IMPLICIT | RC_FIXED, 1e-4f, 0 },
};

/* compute=bf16 and =f16 round the same operands in both; portable products are the fp32 ones in other instructions. */
static void rounds_like_the_twin(void **state)
{
    (void)state;
    static const char *const off[] = { "opt.relax", NULL }, *const portable[] = { "opt.gemm_kernels", NULL };
    static const tn_dtype round[] = { TN_BF16, TN_F16, TN_F32, TN_F32 };
    const tn_case *c = &(tn_case){ "rounded", { B, D, F, C, 5 }, RC_EP | RC_FIXED, 0, 0 };
    for (int k = 0; k < (tn_test_device() == TN_CPU ? 4 : 1); k++) { /* the others are the CPU's */
        const tn_graph_options on = { .round = round[k], .bf16x3 = k == 2, .off = k == 3 ? portable : NULL };
        const tn_graph_options plain = { .round = round[k], .bf16x3 = k == 2, .off = off };
        const double tolerance = k < 1 ? 3e-2 : k == 1 ? 4e-3 : 2e-4;
        run(c, &(how){ .threads = 2, .options = &on }, &first);
        run(c, &(how){ .threads = 2, .options = &plain }, &second);
        near("h", c, second.h, first.h, B * D, tolerance);
        for (int i = 0; i < RO_PARAMS; i++)
            near("gradient", c, second.grad[i], first.grad[i], tn_dims_count(rc_dims(c, i)), 5 * tolerance);
        run(c, &(how){ .threads = 1, .options = &on }, &second);
        assert_memory_equal(&first, &second, sizeof first);
    }
}

/* A batch in another order, with other neighbours and another size: each sample's numbers stay as they are. */
static void neighbours_change_nothing(void **state)
{
    const tn_case *c = *state;
    int who[B];
    for (int i = 0; i < B; i++) who[i] = i * 11 % B;
    for (int rows = B; rows > 2; rows -= 17) {
        tn_case all = *c;
        if (tn_test_device() != TN_CPU && rows != B) continue; /* there a product of another size may have other bits */
        all.dim[RC_COUNT] = 0;
        run(&all, &(how){ .threads = 2 }, &first);
        run(&all, &(how){ .threads = 1, .who = who, .rows = rows }, &second);
        for (int i = 0; i < rows; i++) {
            assert_memory_equal(second.h + i * D, first.h + who[i] * D, sizeof(float) * D);
            assert_int_equal(second.free_steps[i], first.free_steps[who[i]]);
            assert_int_equal(second.nudged_steps[i], first.nudged_steps[who[i]]);
            assert_int_equal(second.adjoint_steps[i], first.adjoint_steps[who[i]]);
            assert_memory_equal(&second.signal[i], &first.signal[who[i]], sizeof(float));
            if (!(c->flags & RC_MEAN))
                assert_memory_equal(second.grad[0] + i * D, first.grad[0] + who[i] * D, sizeof(float) * D);
        }
    }
}

static size_t arena(uint32_t flags, int64_t steps)
{
    const tn_case c = { "", { 64, 24, 48, 4, steps }, flags, 0, 0 };
    tn_graph *g = tn_world_graph_on(tn_test_device(), NULL);
    tn_ref in[RC_INPUTS];
    tn_plan *p;
    rc_inputs(g, &c, true, in);
    const tn_ref loss = tn_sum_all(g, rc_node(g, &c, in).h);
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .loss = loss, .device = tn_test_device() }, &p));
    const size_t bytes = tn_plan_memory(p).arena;
    tn_plan_free(p);
    return bytes;
}

static void memory_of_steps(void **state)
{
    (void)state;
    static const uint32_t flags[] = { RC_EP | RC_CENTRED, RC_IMPLICIT | RC_ANDERSON, RC_ONE_STEP,
                                      RC_EP | RC_TOL | RC_PROXY };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) assert_int_equal(arena(flags[i], 5), arena(flags[i], 50));
    assert_true(arena(0, 50) - arena(0, 5) >= 45 * 64 * 24 * sizeof(float));
}

/* Outputs that nobody reads are not there; the others are what they were. */
static void steps_alone(void **state)
{
    (void)state;
    const tn_case c = { "", { B, D, F, C, 40, 30 }, RC_EP, 0, 0 };
    tn_world w = tn_world_open_on(tn_test_device(), 1, 2);
    tn_graph *g = tn_world_graph_on(tn_test_device(), &(tn_graph_options){ .threads = 2 });
    tn_ref in[RC_INPUTS];
    rc_inputs(g, &c, false, in);
    tn_output(g, "steps", rc_node(g, &c, in).free_steps);
    tn_bound *b = tn_world_add(&w, g, NULL);
    fill(b, &c, &(how){ 0 });
    assert_ok(tn_run(b));
    run(&c, &(how){ .threads = 1 }, &first);
    assert_memory_equal(tn_world_data(b, "steps"), first.free_steps, sizeof first.free_steps);
    tn_world_close(&w);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static void refused(tn_relax_options o, const char *why)
{
    tn_graph *g = tn_world_graph_on(tn_test_device(), NULL);
    const tn_ref a = tn_input(g, "a", tn_shape(3, 4), TN_F32), w = tn_input(g, "w", tn_shape(6, 4), TN_F32);
    const tn_ref rtol = tn_scalar(g, "rtol", 0.1f);
    const tn_ref known[] = { TN_NONE, a,
                             w,       tn_input(g, "w2", tn_shape(4, 6), TN_F32),
                             rtol,    tn_input(g, "y", tn_shape(3), TN_I32) };
    tn_ref *const refs[] = { &o.w1,  &o.w2,   &o.b1,     &o.norm_gain, &o.scale, &o.rtol,
                             &o.tol, &o.beta, &o.head_w, &o.labels,    &o.count };
    for (size_t i = 0; i < sizeof refs / sizeof *refs; i++)
        *refs[i] = known[refs[i]->id]; /* numbers stand for the list above */
    tn_relax_(g, "model.c", 12, a, o);
    assert_fails(tn_graph_status(g), TN_USAGE, why);
    assert_fails(tn_graph_status(g), TN_USAGE, "(model.c:12)");
    tn_graph_free(g);
}

static void errors(void **state)
{
    (void)state;
    enum { A = 1, W1, W2, SCALAR, LABELS };
#define R(x)                                                                                                           \
    {                                                                                                                  \
        .id = (x)                                                                                                      \
    }
    const tn_relax_options good = { .w1 = R(W1), .w2 = R(W2), .rtol = R(SCALAR), .steps = 3, .grad = TN_LOOP_ONE_STEP };
    tn_relax_options o = good;
    o.w1 = (tn_ref)R(W2), refused(o, "w1 must be (f,4)");
    o = good, o.w2 = (tn_ref)R(0), refused(o, "the block needs w2");
    o = good, o.w2 = (tn_ref)R(W1), refused(o, "w2 must be floats of shape (4,6)");
    o = good, o.b1 = (tn_ref)R(A), refused(o, "b1 must be floats of shape (6)");
    o = good, o.norm_gain = (tn_ref)R(SCALAR), refused(o, "norm_gain must be floats of shape (4)");
    o = good, o.kind = TN_RELAX_ENERGY, refused(o, "the energy needs scale (1)");
    o = good, o.kind = TN_RELAX_ENERGY, o.scale = (tn_ref)R(SCALAR), refused(o, "leave out w2, b2 and the norms");
    o = good, o.kind = TN_RELAX_HOPFIELD, refused(o, "hopfield has w1 (d,d) alone");
    o = good, o.tol = (tn_ref)R(SCALAR), refused(o, "by rtol or by tol: give one of them");
    o = good, o.rtol = (tn_ref)R(0), refused(o, "by rtol or by tol: give one of them");
    o = good, o.steps = 0, refused(o, "steps >= 1");
    o = good, o.grad = TN_LOOP_EP, refused(o, "ep needs head_w, labels and beta");
    o.head_w = (tn_ref)R(W2), o.labels = (tn_ref)R(LABELS), o.beta = (tn_ref)R(SCALAR),
    refused(o, "head_w must be (C,4)");
    o.head_w = (tn_ref)R(W1), o.labels = (tn_ref)R(A), refused(o, "labels must be i32 of shape (3)");
    o = good, o.proxy = true, refused(o, "leave centred out");
    o = good, o.grad = TN_LOOP_BPTT, o.solver = TN_SOLVE_ANDERSON, refused(o, "take picard");
    o = good, o.memory = 17, refused(o, "anderson keeps 2 to 16 pairs, not 17");
    o = good, o.count = (tn_ref)R(SCALAR), refused(o, "count is an i32 of shape (1)");
#undef R
}

static void bad_numbers(void **state)
{
    (void)state;
    if (tn_test_device() != TN_CPU) return; /* see loop.h: NaN, and a count that is cut */
    const tn_case c = { "", { 3, 4, 6, 5, 3, 2 }, RC_EP, 0, 0 };
    tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
    tn_graph *g = tn_world_graph_on(tn_test_device(), NULL);
    tn_ref in[RC_INPUTS];
    rc_inputs(g, &c, true, in);
    tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .loss = tn_sum_all(g, rc_node(g, &c, in).h) });
    fill(b, &c, &(how){ 0 });
    int32_t *labels = tn_world_data(b, "in13"), *count = tn_world_data(b, "in15");
    labels[2] = 99; /* not there */
    assert_ok(tn_run(b));
    labels[1] = 5;
    assert_fails(tn_run(b), TN_USAGE, "label 5 of sample 1 is neither in [0,5) nor -1");
    labels[1] = -1, *count = 4;
    assert_fails(tn_run(b), TN_USAGE, "count is 4 and the batch has 3 rows");
    *count = 2;
    assert_ok(tn_bound_set(b, "beta", 0));
    assert_fails(tn_run(b), TN_USAGE, "beta must be above 0");
    tn_world_close(&w);
}

void tn_tests_relax_twin(tn_test_list *l)
{
    for (int i = 0; i < WAYS; i++) {
        tn_test_add(l, agrees_with_twin, &ways[i], "relax: %s as its twin", ways[i].name);
        if (!(ways[i].flags & RC_TOL))
            tn_test_add(l, neighbours_change_nothing, &ways[i], "relax: %s, neighbours change nothing", ways[i].name);
    }
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        tn_test_add(l, large_as_twin, &large[i], "relax: %s as its twin", large[i].name);
    tn_test_add(l, rounds_like_the_twin, NULL, "relax: rounded operands");
    tn_test_add(l, memory_of_steps, NULL, "relax: memory does not grow with steps, but for bptt");
    tn_test_add(l, steps_alone, NULL, "relax: steps without states");
    tn_test_add(l, errors, NULL, "relax: what is refused");
    tn_test_add(l, bad_numbers, NULL, "relax: bad labels, counts and beta");
}
