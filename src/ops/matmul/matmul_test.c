/* matmul: rows (dim = outer, inner, m, k, n; outer or inner 0: that leading axis is not there), layouts,
 * broadcasting. */
#include "optest.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

enum {
    TA = 1,
    TB = 2,
    SCALE = 4,
    SHARE_A = 8,  /* a has 1 for the outer axis */
    SHARE_B = 16, /* b has no leading axes */
    HALF_B = 32,
    LIVE = 64,
    TURNED = 128,   /* a and b are views of transposed memory */
    SHARE_BI = 256, /* b has 1 for the inner axis */
};

static const tn_case cases[] = {
    /*            outer inner m  k   n */
    { "matrix", { 0, 0, 5, 7, 3 }, 0, 2e-6f, 2e-2f },
    { "tn", { 0, 0, 5, 7, 3 }, TA | SCALE, 2e-6f, 2e-2f },
    { "nt", { 0, 0, 5, 7, 3 }, TB, 2e-6f, 2e-2f },
    { "tt", { 0, 3, 5, 7, 3 }, TA | TB, 2e-6f, 2e-2f },
    { "batch", { 2, 3, 4, 6, 5 }, SCALE, 2e-6f, 2e-2f },
    { "shared a", { 3, 2, 4, 6, 5 }, SHARE_A, 2e-6f, 2e-2f },
    { "shared a t", { 3, 2, 4, 6, 5 }, SHARE_A | TA | TB, 2e-6f, 2e-2f },
    { "shared b", { 3, 2, 4, 6, 5 }, SHARE_B, 2e-6f, 2e-2f },
    { "shared b t", { 3, 2, 4, 6, 5 }, SHARE_B | TA | TB, 2e-6f, 2e-2f },
    { "shared inner b", { 3, 4, 4, 6, 5 }, SHARE_BI, 2e-6f, 2e-2f },
    { "both shared", { 3, 4, 4, 6, 5 }, SHARE_A | SHARE_BI | TB, 2e-6f, 2e-2f },
    { "half", { 2, 0, 4, 6, 5 }, HALF_B | TB, 2e-6f, 2e-2f },
    { "turned", { 2, 3, 4, 6, 5 }, TURNED, 2e-6f, 0 },
    { "live rows", { 0, 0, 6, 5, 4 }, LIVE, 2e-6f, 0 },
    { "live batch", { 5, 2, 6, 5, 4 }, LIVE | TB, 2e-6f, 0 },
    { "live shared", { 5, 2, 6, 5, 4 }, LIVE | SHARE_B, 2e-6f, 0 },
    { "live sum", { 0, 0, 6, 5, 4 }, LIVE | TA, 2e-6f, 0 },
    { "large", { 0, 3, 130, 270, 90 }, TB | TN_FEW, 4e-6f, 2e-2f },
    { "empty", { 0, 3, 4, 0, 5 }, 0, 1e-6f, 0 },
    { "no batch", { 0, 2, 0, 4, 5 }, SHARE_B, 1e-6f, 0 },
};

enum { ALIVE = 3 };

/* The batch axes of an operand: -1 is an axis that is not there. */
static void batch_of(const tn_case *c, int input, int64_t *outer, int64_t *inner)
{
    *outer = c->dim[0] ? c->dim[0] : -1;
    *inner = c->dim[1] ? c->dim[1] : -1;
    if (input == 0 && (c->flags & SHARE_A)) *outer = 1;
    if (input == 1 && (c->flags & SHARE_B)) *outer = *inner = -1;
    if (input == 1 && (c->flags & SHARE_BI)) *inner = 1;
}

static tn_ref draw(tn_op_io *io, const tn_case *c, int input, int64_t rows, int64_t cols)
{
    int64_t outer, inner;
    batch_of(c, input, &outer, &inner);
    tn_dims d = { 0 };
    if (outer >= 0) d.dim[d.rank++] = outer;
    if (inner >= 0) d.dim[d.rank++] = inner;
    d.dim[d.rank++] = rows;
    d.dim[d.rank++] = cols;
    const bool half = input == 1 && (c->flags & HALF_B);
    if (c->flags & TURNED) { /* (cols, outer, rows, inner) in memory */
        const tn_ref t = tn_test_input(io, tn_shape(cols, outer, rows, inner), (tn_fill_spec){ 0 });
        return tn_transpose(tn_test_graph(io), t, 1, 3, 2, 0);
    }
    return tn_test_input(io, d, (tn_fill_spec){ .dtype = half ? TN_F16 : TN_F32 });
}

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t m = c->dim[2], k = c->dim[3], n = c->dim[4];
    const bool ta = c->flags & TA, tb = c->flags & TB;
    tn_graph *g = tn_test_graph(io);
    tn_ref a = draw(io, c, 0, ta ? k : m, ta ? m : k);
    const tn_ref b = draw(io, c, 1, tb ? n : k, tb ? k : n);
    if (c->flags & LIVE)
        a = tn_live(g, a, tn_test_input(io, tn_shape(1), (tn_fill_spec){ TN_FILL_INT, .lo = ALIVE, .hi = ALIVE + 1 }));
    const tn_ref y = tn_matmul(g, a, b, .transpose_a = ta, .transpose_b = tb, .scale = c->flags & SCALE ? 0.3f : 0);
    tn_test_output(io, (c->flags & LIVE) && !ta ? tn_slice(g, y, 0, 0, ALIVE) : y);
}

static int64_t at(const tn_case *c, int input, int64_t o, int64_t i, int64_t row, int64_t col, int64_t rows,
                  int64_t cols)
{
    int64_t outer, inner;
    batch_of(c, input, &outer, &inner);
    if (c->flags & TURNED) return ((col * outer + o) * rows + row) * inner + i;
    const int64_t io = outer > 1 ? o : 0, ii = inner > 1 ? i : 0;
    return ((io * (inner > 0 ? inner : 1) + ii) * rows + row) * cols + col;
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    int64_t O = c->dim[0] ? c->dim[0] : 1, m = c->dim[2], k = c->dim[3];
    const int64_t I = c->dim[1] ? c->dim[1] : 1, n = c->dim[4], M = m, K = k;
    const bool ta = c->flags & TA, tb = c->flags & TB;
    const double scale = c->flags & SCALE ? (double)0.3f : 1;
    if (c->flags & LIVE) *(c->dim[0] ? &O : ta ? &k : &m) = ALIVE;
    const int64_t step_a = ta ? at(c, 0, 0, 0, 1, 0, K, M) : at(c, 0, 0, 0, 0, 1, M, K); /* from one p to the next */
    const int64_t step_b = tb ? at(c, 1, 0, 0, 0, 1, n, K) : at(c, 1, 0, 0, 1, 0, K, n);
    for (int64_t ob = 0, w = 0; ob < O; ob++)
        for (int64_t ib = 0; ib < I; ib++)
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++) {
                    const double *a = o->in[0] + (ta ? at(c, 0, ob, ib, 0, i, K, M) : at(c, 0, ob, ib, i, 0, M, K));
                    const double *b = o->in[1] + (tb ? at(c, 1, ob, ib, j, 0, n, K) : at(c, 1, ob, ib, 0, j, K, n));
                    double s = 0;
                    for (int64_t p = 0; p < k; p++) s += a[p * step_a] * b[p * step_b];
                    o->out[0][w++] = scale * s;
                }
}

static const tn_op_test test;

/* (a b)^T = b^T a^T: the same sums in the same order, so the same bits. */
static void transposed_product(void)
{
    enum { M = 9, K = 300, N = 14 };
    static float a[M * K], b[K * N], y[M * N], yt[N * M];
    for (int i = 0; i < M * K; i++) a[i] = sinf((float)i);
    for (int i = 0; i < K * N; i++) b[i] = cosf((float)i);
    const tn_case c = { "nn", { 0, 0, M, K, N }, 0, 1, 0 }, ct = { "tt", { 0, 0, N, K, M }, TA | TB, 1, 0 };
    tn_optest_run(&test, &c, 1, (const void *[]){ a, b }, (void *[]){ y }, NULL, NULL);
    tn_optest_run(&test, &ct, 2, (const void *[]){ b, a }, (void *[]){ yt }, NULL, NULL);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) assert_memory_equal(&y[i * N + j], &yt[j * M + i], sizeof(float));
}

/* A shared operand's gradient is the sum of the gradients of copies of it. */
static void shared_is_sum_of_copies(void)
{
    enum { O = 3, M = 4, K = 5, N = 6 };
    float a[O * M * K], b[K * N], copies[O * K * N], db[K * N], dc[O * K * N];
    for (int i = 0; i < O * M * K; i++) a[i] = sinf((float)i);
    for (int i = 0; i < O * K * N; i++) copies[i] = b[i % (K * N)] = cosf((float)(i % (K * N)));
    const tn_case shared = { "s", { O, 0, M, K, N }, SHARE_B, 1, 0 }, each = { "e", { O, 0, M, K, N }, 0, 1, 0 };
    tn_optest_run(&test, &shared, 1, (const void *[]){ a, b }, NULL, (void *[]){ NULL, db }, NULL);
    tn_optest_run(&test, &each, 1, (const void *[]){ a, copies }, NULL, (void *[]){ NULL, dc }, NULL);
    for (int i = 0; i < K * N; i++) assert_float_equal(db[i], dc[i] + dc[K * N + i] + dc[2 * K * N + i], 1e-5f);
}

static void shapes_are_checked(void)
{
    tn_graph *g;
    assert_ok(tn_graph_new(NULL, &g));
    tn_matmul(g, tn_input(g, "a", tn_shape(2, 3, 4), TN_F32), tn_input(g, "b", tn_shape(3, 4, 5), TN_F32));
    assert_fails(tn_graph_status(g), TN_USAGE, "leading axes");
    tn_graph_free(g);
}

static const tn_property properties[] = {
    { "transposed product has the same bits", transposed_product },
    { "gradient of a shared operand is a sum", shared_is_sum_of_copies },
    { "shapes are checked", shapes_are_checked },
};

static const tn_op_test test = { .op = "matmul",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_matmul(tn_test_list *l) { tn_optest_add(l, &test); }
