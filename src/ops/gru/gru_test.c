/* gru: rows (dim = N, I, H) against a scalar cell in double with its backward pass written out, which itself is compared
 * with differences; closed forms, rounded operands, rows on their own. */
#include "optest.h"

#include "backend/cpu/pool.h"
#include "plan/plan.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LIVE = 1,
    TWIN = 2,
    TURNED = 4,
    FROZEN = 8
}; /* two dead rows; opt.gru_fused=off; transposed views; weights alone */
enum { DEAD = 2 };

static const tn_case cases[] = {
    /*             N  I  H */
    { "small", { 5, 7, 3 }, 0, 2e-6f, 3e-2f },
    { "one row", { 1, 9, 17 }, 0, 2e-6f, 3e-2f },
    { "one unit", { 4, 1, 1 }, 0, 2e-6f, 3e-2f },
    { "block", { 9, 65, 32 }, 0, 4e-6f, 3e-2f },
    { "wide", { 20, 24, 80 }, 0, 4e-6f, 3e-2f },
    { "two panels", { 150, 20, 24 }, 0, 4e-6f, 3e-2f },
    { "many panels", { 403, 33, 70 }, 0, 1e-5f, 3e-2f },
    { "deep", { 131, 300, 264 }, TN_SLOW, 1e-5f, 0 },
    { "few rows, wide", { 40, 40, 1100 }, TN_SLOW, 1e-5f, 0 },
    { "turned", { 11, 8, 6 }, TURNED | TN_NO_VIEWS, 2e-6f, 0 },
    { "weights alone", { 11, 8, 6 }, FROZEN, 2e-6f, 3e-2f },
    { "live", { 6, 8, 5 }, LIVE, 2e-6f, 0 },
    { "live, many", { 300, 8, 5 }, LIVE, 4e-6f, 0 },
    { "twin", { 9, 11, 6 }, TWIN, 4e-6f, 4e-2f },
    { "twin live", { 6, 8, 5 }, TWIN | LIVE, 4e-6f, 0 },
    { "no rows", { 0, 4, 3 }, 0, 1e-6f, 0 },
    { "no inputs", { 3, 0, 4 }, 0, 2e-6f, 0 },
};

static tn_ref rows_of(tn_op_io *io, const tn_case *c, int64_t width)
{
    const tn_fill_spec fill = { .constant = c->flags & FROZEN };
    if (c->flags & TURNED)
        return tn_transpose(tn_test_graph(io), tn_test_input(io, tn_shape(width, c->dim[0]), fill), 1, 0);
    return tn_test_input(io, tn_shape(c->dim[0], width), fill);
}

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t I = c->dim[1], H = c->dim[2];
    tn_graph *g = tn_test_graph(io);
    tn_ref in[TN_GRU_INPUTS] = { rows_of(io, c, I), rows_of(io, c, H) }, out[2];
    in[TN_GRU_WI] = tn_test_input(io, tn_shape(3 * H, I), (tn_fill_spec){ 0 });
    in[TN_GRU_WH] = tn_test_input(io, tn_shape(3 * H, H), (tn_fill_spec){ 0 });
    for (int i = TN_GRU_BI; i <= TN_GRU_BH; i++) in[i] = tn_test_input(io, tn_shape(3 * H), (tn_fill_spec){ 0 });
    if (c->flags & LIVE) {
        const double live = (double)(c->dim[0] - DEAD);
        const tn_ref count = tn_test_input(io, tn_shape(1), (tn_fill_spec){ TN_FILL_INT, .lo = live, .hi = live + 1 });
        in[0] = tn_live(g, in[0], count);
        if (c->flags & TWIN) in[1] = tn_live(g, in[1], count); /* element-wise ops set live rows of gradients only */
    }
    if (c->flags & TWIN) assert_ok(tn_op_gru.plain(g, NULL, in, TN_GRU_INPUTS, out));
    else out[0] = tn_gru(g, in[0], in[1], in[2], in[3], in[4], in[5]);
    tn_test_output(io, c->flags & LIVE ? tn_slice(g, out[0], 0, 0, c->dim[0] - DEAD) : out[0]);
}

/* Weights so small that the gates are open halfway. */
static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    const int64_t width = input == TN_GRU_WI ? c->dim[1] : c->dim[2];
    for (int64_t i = 0; i < n && (input == TN_GRU_WI || input == TN_GRU_WH); i++) x[i] /= sqrt((double)width);
}

/* --- the oracle: one unit of one row at a time ------------------------------------------------------------------------ */

typedef struct problem {
    int64_t N, I, H;
    bool turned;
    const double *const *in; /* x, h, w_i, w_h, b_i, b_h */
} problem;

typedef struct unit {
    double r, z, n, q, h;
} unit;

static problem problem_of(const tn_case *c, const tn_oracle *o)
{
    return (problem){ c->dim[0] - (c->flags & LIVE ? DEAD : 0), c->dim[1], c->dim[2], c->flags & TURNED, o->in };
}

/* Where element (row,i) of x or h lies. */
static int64_t at(const problem *p, int64_t row, int64_t i, int64_t width)
{
    return p->turned ? i * p->N + row : row * width + i;
}

static double affine(const problem *p, int of, int64_t gate, int64_t unit_, int64_t row)
{
    const int64_t width = of ? p->H : p->I, line = gate * p->H + unit_;
    double s = p->in[TN_GRU_BI + of][line];
    for (int64_t i = 0; i < width; i++) s += p->in[TN_GRU_WI + of][line * width + i] * p->in[of][at(p, row, i, width)];
    return s;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static unit unit_of(const problem *p, int64_t row, int64_t j)
{
    unit u = { .h = p->in[1][at(p, row, j, p->H)], .q = affine(p, 1, 2, j, row) };
    u.r = sigmoid(affine(p, 0, 0, j, row) + affine(p, 1, 0, j, row));
    u.z = sigmoid(affine(p, 0, 1, j, row) + affine(p, 1, 1, j, row));
    u.n = tanh(affine(p, 0, 2, j, row) + u.r * u.q);
    return u;
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const problem p = problem_of(c, o);
    for (int64_t row = 0; row < p.N; row++)
        for (int64_t j = 0; j < p.H; j++) {
            const unit u = unit_of(&p, row, j);
            o->out[0][row * p.H + j] = (1 - u.z) * u.n + u.z * u.h;
        }
}

/* The gradient `a` before a gate of a unit: on to the weights and what they multiply. */
static void pass_on(const problem *p, double *const *din, int of, int64_t gate, int64_t j, int64_t row, double a)
{
    const int64_t width = of ? p->H : p->I, line = gate * p->H + j;
    din[TN_GRU_BI + of][line] += a;
    for (int64_t i = 0; i < width; i++) {
        const int64_t w = line * width + i, x = at(p, row, i, width);
        din[TN_GRU_WI + of][w] += a * p->in[of][x];
        din[of][x] += a * p->in[TN_GRU_WI + of][w];
    }
}

static void oracle_grad(const tn_case *c, const tn_oracle *o, double *const *dout, double *const *din)
{
    const problem p = problem_of(c, o);
    for (int64_t row = 0; row < p.N; row++)
        for (int64_t j = 0; j < p.H; j++) {
            const unit u = unit_of(&p, row, j);
            const double d = dout[0][row * p.H + j], an = d * (1 - u.z) * (1 - u.n * u.n),
                         az = d * (u.h - u.n) * u.z * (1 - u.z), ar = an * u.q * u.r * (1 - u.r);
            din[1][at(&p, row, j, p.H)] += d * u.z;
            for (int of = 0; of < 2; of++) {
                pass_on(&p, din, of, 0, j, row, ar);
                pass_on(&p, din, of, 1, j, row, az);
                pass_on(&p, din, of, 2, j, row, of ? an * u.r : an);
            }
        }
}

static const tn_op_test test;

/* --- properties ------------------------------------------------------------------------------------------------------- */

/* The oracle's own backward pass against differences of its forward pass. */
static void oracle_agrees_with_differences(void)
{
    enum { N = 4, I = 3, H = 5, MOST = 3 * H * H };
    const int64_t count[TN_GRU_INPUTS] = { N * I, N * H, 3 * H * I, 3 * H * H, 3 * H, 3 * H };
    const tn_case c = { "differences", { N, I, H }, 0, 1, 0 };
    static double in[TN_GRU_INPUTS][MOST], din[TN_GRU_INPUTS][MOST], y[N * H], dy[N * H];
    tn_oracle o = { .out = { y } };
    double *to[TN_GRU_INPUTS], *dout[] = { dy };
    memset(din, 0, sizeof din);
    for (int i = 0; i < TN_GRU_INPUTS; i++) {
        o.in[i] = in[i], to[i] = din[i];
        for (int64_t k = 0; k < count[i]; k++) in[i][k] = sin(3.7 * (double)k + i) * (i < 2 ? 1.5 : 0.8);
    }
    for (int k = 0; k < N * H; k++) dy[k] = cos(2.3 * k);
    oracle_grad(&c, &o, dout, to);
    for (int i = 0; i < TN_GRU_INPUTS; i++)
        for (int64_t k = 0; k < count[i]; k++) {
            const double keep = in[i][k], step = 1e-5;
            double loss[2] = { 0 };
            for (int side = 0; side < 2; side++) {
                in[i][k] = keep + (side ? step : -step);
                oracle(&c, &o);
                for (int j = 0; j < N * H; j++) loss[side] += y[j] * dy[j];
            }
            in[i][k] = keep;
            const double want = (loss[1] - loss[0]) / (2 * step);
            if (!(fabs(din[i][k] - want) < 1e-6 * fmax(1, fabs(want))))
                fail_msg("gradient of input %d, element %lld: %.12g, by differences %.12g", i, (long long)k, din[i][k],
                         want);
        }
}

/* One unit whose result is known without a cell: weights of 0, 1 and a gate shut or open by its bias. */
static void closed_forms(void)
{
    static const struct {
        float x, h, wi[3], wh[3], bi[3], bh[3];
        double want;
    } row[] = {
        { 3, 0.6f, { 0 }, { 0 }, { 0 }, { 0 }, 0.3 },                             /* r = z = 1/2, n = 0 */
        { 1, -0.7f, { 0 }, { 0 }, { 0, 200, 0 }, { 0 }, -0.7 },                   /* z = 1 keeps h */
        { 0.5f, 9, { 0, 0, 1 }, { 0 }, { 0, -200, 0 }, { 0 }, 0.46211715726 },    /* z = 0: tanh 0.5 */
        { 0, 2, { 0 }, { 0, 0, 1 }, { 0, -200, 0 }, { 0 }, 0.76159415596 },       /* reset after: tanh(r h), r = 1/2 */
        { 0, 2, { 0 }, { 0, 0, 1 }, { -200, -200, 0 }, { 0, 0, 7 }, 0 },          /* r = 0 hides b_hn too ... */
        { 0, 2, { 0 }, { 0, 0, 1 }, { -200, -200, 0.5f }, { 0 }, 0.46211715726 }, /* ... and not b_in */
        { 0, 2, { 0 }, { 0, 0, 1 }, { 200, -200, 0 }, { 0, 0, -1 }, 0.76159415596 },        /* r = 1: tanh(h + b_hn) */
        { 1, 1, { 0, 1, 0 }, { 0, -1, 0 }, { 0, 0, 1 }, { 0 }, 0.5 + 0.5 * 0.76159415596 }, /* z = 1/2 of both sides */
    };
    const tn_case c = { "closed", { 1, 1, 1 }, 0, 1, 0 };
    for (size_t i = 0; i < TN_COUNT(row); i++) {
        float y;
        tn_optest_run(&test, &c, 1,
                      (const void *[]){ &row[i].x, &row[i].h, row[i].wi, row[i].wh, row[i].bi, row[i].bh },
                      (void *[]){ &y }, NULL, NULL);
        assert_float_equal(y, row[i].want, 2e-7);
    }
}

/* At r = z = 1/2, n = 0, q = 0 the slopes are fractions: dh = dy (z + (1-z) r w_hn), dz = dy h / 4. */
static void closed_gradients(void)
{
    const tn_case c = { "closed", { 1, 1, 1 }, 0, 1, 0 };
    const float x = 0, h = 0, wi[3] = { 4, 8, 2 }, wh[3] = { 1, 1, 3 }, zero[3] = { 0 };
    float dx, dh, dwi[3], dwh[3], dbi[3], dbh[3];
    tn_optest_run(&test, &c, 1, (const void *[]){ &x, &h, wi, wh, zero, zero }, NULL,
                  (void *[]){ &dx, &dh, dwi, dwh, dbi, dbh }, NULL);
    assert_float_equal(dx, 1, 1e-6);          /* (1 - z) w_in */
    assert_float_equal(dh, 0.5 + 0.75, 1e-6); /* z + (1 - z) r w_hn */
    assert_float_equal(dbi[2], 0.5, 1e-6);    /* 1 - z */
    assert_float_equal(dbh[2], 0.25, 1e-6);   /* (1 - z) r */
    for (int i = 0; i < 2; i++) assert_true(dbi[i] == 0 && dbh[i] == 0 && dwi[i] == 0 && dwh[i] == 0);
}

/* A row's bits do not depend on how many rows there are, nor on threads. */
static void rows_stand_alone(void)
{
    enum { N = 301, I = 20, H = 37, ALL = N * (I + H) };
    if (tn_test_device() != TN_CPU) return; /* there the library chooses an algorithm by the shape */
    static float in[ALL], w[3 * H * (I + H + 2)], whole[N * H], one[H], dx[2][N * I], dh[2][N * H];
    for (int i = 0; i < ALL; i++) in[i] = sinf((float)i);
    for (int i = 0; i < 3 * H * (I + H + 2); i++) w[i] = 0.3f * cosf(0.7f * (float)i);
    const float *x = in, *h = in + N * I, *wh = w + 3 * H * I, *b = wh + 3 * H * H;
    const tn_case many = { "many", { N, I, H }, 0, 1, 0 }, single = { "one", { 1, I, H }, 0, 1, 0 };
    tn_optest_run(&test, &many, 2, (const void *[]){ x, h, w, wh, b, b + 3 * H }, (void *[]){ whole },
                  (void *[]){ dx[0], dh[0], NULL, NULL, NULL, NULL }, NULL);
    for (int i = 0; i < N; i += 25) {
        tn_optest_run(&test, &single, 1, (const void *[]){ x + i * I, h + i * H, w, wh, b, b + 3 * H },
                      (void *[]){ one }, (void *[]){ dx[1], dh[1], NULL, NULL, NULL, NULL }, NULL);
        assert_memory_equal(one, whole + i * H, sizeof one);
        assert_memory_equal(dx[1], dx[0] + i * I, sizeof *dx[0] * I);
        assert_memory_equal(dh[1], dh[0] + i * H, sizeof *dh[0] * H);
    }
}

/* Dead rows may hold anything: no gradient sees them, and theirs are 0. */
static void dead_rows_do_not_count(void)
{
    enum { N = 6, I = 3, H = 4, ALIVE = N - DEAD };
    const tn_case c = { "live", { N, I, H }, LIVE, 1, 0 };
    float x[N * I], h[N * H], w[3 * H * (I + H)], b[3 * H], y[2][ALIVE * H], d[2][N * (I + H) + 3 * H * (I + H + 2)];
    const int32_t live = ALIVE;
    for (int i = 0; i < 3 * H * (I + H); i++) w[i] = cosf((float)i);
    for (int i = 0; i < 3 * H; i++) b[i] = sinf((float)i);
    for (int run = 0; run < 2; run++) {
        float *dx = d[run], *dh = dx + N * I, *dwi = dh + N * H, *dwh = dwi + 3 * H * I, *db = dwh + 3 * H * H;
        for (int i = 0; i < N * I; i++) x[i] = i < ALIVE * I ? sinf((float)i) : run ? NAN : 1;
        for (int i = 0; i < N * H; i++) h[i] = i < ALIVE * H ? cosf((float)i) : run ? NAN : 1;
        tn_optest_run(&test, &c, 1, (const void *[]){ x, h, w, w + 3 * H * I, b, b, &live }, (void *[]){ y[run] },
                      (void *[]){ dx, dh, dwi, dwh, db, db + 3 * H, NULL }, NULL);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(d[0], d[1], sizeof d[0]);
    for (int i = ALIVE * I; i < N * I; i++) assert_float_equal(d[1][i], 0, 0);
    for (int i = N * I + ALIVE * H; i < N * (I + H); i++) assert_float_equal(d[1][i], 0, 0);
}

enum { RN = 150, RI = 40, RH = 33, GRADS = RN * (RI + RH) + 3 * RH * (RI + RH + 2) };
static const int64_t round_count[TN_GRU_INPUTS] = { RN * RI, RN *RH, 3 * RH *RI, 3 * RH *RH, 3 * RH, 3 * RH };

static float as_bf16(float x)
{
    uint16_t half;
    tn_convert(&half, TN_BF16, &x, TN_F32, 1);
    tn_convert(&x, TN_F32, &half, TN_BF16, 1);
    return x;
}

/* One step with operands rounded as `round` says; halves: operands of products that need no rounding. */
static void run_rounded(tn_dtype round, bool fused, bool halves, float *y, float *grads)
{
    static const char *const off[] = { "opt.gru_fused", NULL };
    static const char *const name[TN_GRU_INPUTS] = { "x", "h", "wi", "wh", "bi", "bh" };
    const tn_dims dims[TN_GRU_INPUTS] = { tn_shape(RN, RI),     tn_shape(RN, RH), tn_shape(3 * RH, RI),
                                          tn_shape(3 * RH, RH), tn_shape(3 * RH), tn_shape(3 * RH) };
    tn_graph *g;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
    tn_ref in[TN_GRU_INPUTS];
    assert_ok(
        tn_graph_new(&(tn_graph_options){ .training = true, .round = round, .threads = 2, .off = fused ? NULL : off },
                     &g));
    for (int i = 0; i < TN_GRU_INPUTS; i++) in[i] = tn_want_gradient(g, tn_input(g, name[i], dims[i], TN_F32));
    const tn_ref out = tn_gru(g, in[0], in[1], in[2], in[3], in[4], in[5]);
    tn_output(g, "y", out);
    const tn_seed seed = { .y = out, .dy = tn_input(g, "dy", dims[1], TN_F32) };
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = 2, .seeds = &seed, .n_seeds = 1 }, &plan));
    assert_ok(tn_context_new(TN_CPU, 2, &context));
    assert_ok(tn_bind(plan, context, NULL, &bound));
    for (int i = 0; i < TN_GRU_INPUTS; i++)
        for (int64_t k = 0; k < round_count[i]; k++) {
            const float v = sinf(1.3f * (float)k + (float)i) * (i == 2 || i == 3 ? 0.3f : 1);
            ((float *)tn_bound_data(bound, name[i]))[k] = halves ? as_bf16(v) : v;
        }
    for (int k = 0; k < RN * RH; k++) ((float *)tn_bound_data(bound, "dy"))[k] = cosf((float)k);
    assert_ok(tn_run(bound));
    memcpy(y, tn_bound_data(bound, "y"), sizeof *y * RN * RH);
    for (int i = 0; i < TN_GRU_INPUTS; i++) {
        char of[8] = "d.";
        strcat(of, name[i]);
        memcpy(grads, tn_bound_data(bound, of), sizeof *grads * (size_t)round_count[i]);
        grads += round_count[i];
    }
    tn_bound_free(bound);
    tn_context_free(context);
    tn_plan_free(plan);
}

static double distance(const float *a, const float *b, int64_t n)
{
    double most = 0, scale = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        const double e = fabs((double)a[i] - (double)b[i]), size = fabs((double)b[i]);
        if (!(e <= most)) most = e; /* NaN stays */
        if (size > scale) scale = size;
    }
    return most / scale;
}

/* compute=bf16: operands of products are rounded and nothing else is. */
static void rounded_operands(void)
{
    static float y[2][RN * RH], d[2][GRADS];
    if (tn_test_device() != TN_CPU) return;
    run_rounded(TN_BF16, true, true, y[0], d[0]);
    run_rounded(TN_F32, true, true, y[1], d[1]);
    assert_true(distance(y[0], y[1], RN * RH) < 2e-6); /* nothing to round forward */
    run_rounded(TN_BF16, true, false, y[0], d[0]);
    run_rounded(TN_F32, true, false, y[1], d[1]);
    assert_true(distance(y[0], y[1], RN * RH) > 1e-4 && distance(y[0], y[1], RN * RH) < 2e-2);
    run_rounded(TN_BF16, false, false, y[1], d[1]);
    assert_true(distance(y[0], y[1], RN * RH) < 2e-6); /* as the twin */
    const float *a = d[0], *b = d[1];
    for (int i = 0; i < TN_GRU_INPUTS; a += round_count[i], b += round_count[i], i++)
        if (!(distance(a, b, round_count[i]) < 2e-3))
            fail_msg("gradient of input %d: %.2e from the twin's", i, distance(a, b, round_count[i]));
}

/* Both kernels with nothing behind the workspace that they asked for: of all threads, and of fewer. */
static void keeps_to_workspace(void)
{
    enum { GUARD = 4096, BYTE = 0x5a, MOST_THREADS = 3 };
    static const int64_t shapes[][3] = {
        { 1, 5, 3 }, { 130, 7, 24 }, { 403, 33, 70 }, { 40, 40, 1100 }, { 300, 600, 64 }
    };
    for (int i = 0; i < (int)TN_COUNT(shapes) * 2 * MOST_THREADS; i++) {
        const int64_t *shape = shapes[i / (2 * MOST_THREADS)], N = shape[0], I = shape[1], H = shape[2];
        const int64_t count[] = { N * I, N * H, 3 * H * I, 3 * H * H, 3 * H, 3 * H, N * H, 4 * N * H };
        const tn_dims dims[] = { tn_shape(N, I),  tn_shape(N, H),  tn_shape(3 * H, I), tn_shape(3 * H, H),
                                 tn_shape(3 * H), tn_shape(3 * H), tn_shape(N, H),     tn_shape(N, 4 * H) };
        tn_arg at[8] = { { 0 } }, din[TN_GRU_INPUTS];
        tn_type types[8] = { { 0 } };
        tn_pool *pool;
        assert_ok(tn_pool_new(1 + i % MOST_THREADS, &pool));
        for (int k = 0; k < 8; k++) {
            types[k] = (tn_type){ .dims = dims[k] };
            at[k] = (tn_arg){ .data = calloc((size_t)count[k], sizeof(float)), .dims = dims[k], .stride = { 1 } };
            if (dims[k].rank == 2) at[k].stride[0] = dims[k].dim[1], at[k].stride[1] = 1;
            if (k < TN_GRU_INPUTS) din[k] = at[k], din[k].data = calloc((size_t)count[k], sizeof(float));
        }
        const tn_dtype round = i / MOST_THREADS % 2 ? TN_BF16 : TN_F32;
        const tn_sig s = {
            .in = types, .n_in = 6, .out = types + 6, .n_out = 2, .threads = MOST_THREADS, .round = round
        };
        for (int backward = 0; backward < 2; backward++) {
            const size_t bytes = tn_op_gru.kernel[TN_CPU].work(&s, backward);
            unsigned char *work = aligned_alloc(64, (bytes + GUARD + 63) / 64 * 64);
            memset(work + bytes, BYTE, GUARD);
            const tn_call c = { .in = at,
                                .n_in = 6,
                                .out = at + 6,
                                .n_out = 2,
                                .dout = at + 6,
                                .din = din,
                                .work = work,
                                .work_bytes = bytes,
                                .round = round,
                                .pool = pool };
            assert_ok(backward ? tn_op_gru.kernel[TN_CPU].backward(&c) : tn_op_gru.kernel[TN_CPU].forward(&c));
            for (int k = 0; k < GUARD; k++) assert_int_equal(work[bytes + (size_t)k], BYTE);
            free(work);
        }
        for (int k = 0; k < 8; k++) free(at[k].data);
        for (int k = 0; k < TN_GRU_INPUTS; k++) free(din[k].data);
        tn_pool_free(pool);
    }
}

static void shapes_are_checked(void)
{
    static const struct {
        int64_t N, wi, bh;
        const char *says;
    } row[] = { { 3, 12, 12, "the same N" }, { 2, 11, 12, "w_i must be (12,3)" }, { 2, 12, 4, "b_h must be (12)" } };
    for (size_t i = 0; i < TN_COUNT(row); i++) {
        tn_graph *g;
        assert_ok(tn_graph_new(NULL, &g));
        tn_gru(g, tn_input(g, "x", tn_shape(2, 3), TN_F32), tn_input(g, "h", tn_shape(row[i].N, 4), TN_F32),
               tn_input(g, "wi", tn_shape(row[i].wi, 3), TN_F32), tn_input(g, "wh", tn_shape(12, 4), TN_F32),
               tn_input(g, "bi", tn_shape(12), TN_F32), tn_input(g, "bh", tn_shape(row[i].bh), TN_F32));
        assert_fails(tn_graph_status(g), TN_USAGE, row[i].says);
        tn_graph_free(g);
    }
}

static const tn_property properties[] = {
    { "the oracle agrees with differences", oracle_agrees_with_differences },
    { "closed forms of one unit", closed_forms },
    { "closed gradients of one unit", closed_gradients },
    { "a row does not depend on the others", rows_stand_alone },
    { "dead rows do not count", dead_rows_do_not_count },
    { "rounded operands", rounded_operands },
    { "keeps to its workspace", keeps_to_workspace },
    { "shapes are checked", shapes_are_checked },
};

static const tn_op_test test = { .op = "gru",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .oracle_grad = oracle_grad,
                                 .adjust = adjust,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_gru(tn_test_list *l) { tn_optest_add(l, &test); }
