/* scatter_rows: rows (dim = R, n, width, live), an index outside, and what a sum over an index must keep. With LIVE the
 * last input counts entries that are alive: of the index, whose rest is -1 and would be an error, or (LIVE_ROWS) of the
 * rows, whose rest is alive in the index. */
#include "optest.h"
#include "world.h"

#include <tenon/ops.h>

enum { LIVE = 1, LIVE_ROWS = 2, CUBES = 4, BACK = 8 };
enum { ROWS, INDEX, COUNT };

static const tn_case cases[] = {
    { "small", { 6, 9, 5 }, 0, 1e-6f, 2e-2f },
    { "one target", { 1, 9, 5 }, 0, 1e-6f, 2e-2f },
    { "cubes", { 6, 9, 5 }, CUBES, 1e-6f, 2e-2f },
    { "large", { 300, 500, 150 }, TN_FEW, 1e-6f, 2e-2f },
    { "live", { 6, 9, 5, 4 }, LIVE, 1e-6f, 2e-2f },
    { "live rows", { 6, 9, 5, 4 }, LIVE_ROWS, 1e-6f, 2e-2f },
    { "nothing alive", { 6, 9, 5, 0 }, LIVE, 1e-6f, 2e-2f },
    { "no entries", { 6, 0, 5 }, 0, 1e-6f, 2e-2f },
    { "no columns", { 6, 4, 0 }, 0, 1e-6f, 2e-2f },
    { "no targets", { 0, 0, 5 }, 0, 1e-6f, 2e-2f },
};

static tn_dims row_dims(const tn_case *c, int64_t rows)
{
    return c->flags & CUBES ? tn_shape(rows, c->dim[2], 2, 3) : tn_shape(rows, c->dim[2]);
}

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    tn_ref rows = tn_test_input(io, row_dims(c, c->dim[1]), (tn_fill_spec){ 0 });
    tn_ref index =
        tn_test_input(io, tn_shape(c->dim[1]), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = (double)c->dim[0] });
    if (c->flags & (LIVE | LIVE_ROWS)) {
        tn_ref *cut = c->flags & LIVE ? &index : &rows;
        *cut = tn_live(g, *cut, tn_test_input(io, tn_shape(1), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 1 }));
    }
    const tn_ref y = tn_scatter_rows(g, rows, index, c->dim[0]);
    tn_test_output(io, c->flags & BACK ? tn_gather_rows(g, y, index) : y);
}

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    if (input == COUNT) x[0] = (double)c->dim[3];
    for (int64_t i = c->dim[3]; input == INDEX && (c->flags & LIVE) && i < n; i++) x[i] = -1;
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t w = c->dim[2] * (c->flags & CUBES ? 6 : 1);
    const int64_t n = c->flags & (LIVE | LIVE_ROWS) ? c->dim[3] : c->dim[1];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < w; j++) o->out[0][(int64_t)o->in[INDEX][i] * w + j] += o->in[ROWS][i * w + j];
}

static const tn_op_test test;

/* Duplicates are summed in the order of the index: 1e8 + 1 - 1e8 is 0 in f32 from the left and 1 in any other order. */
static void order_of_the_index(void)
{
    enum { R = 2, N = 6, W = 70 };
    const tn_case c = { "property", { R, N, W }, 0, 1, 0 };
    static const float value[N] = { 1e8f, 5, 1, 6, -1e8f, 7 };
    const int32_t index[N] = { 0, 1, 0, 1, 0, 1 };
    float rows[N * W], y[R * W];
    for (int i = 0; i < N * W; i++) rows[i] = value[i / W];
    for (int threads = 1; threads <= 2; threads++) {
        tn_optest_run(&test, &c, threads, (const void *[]){ rows, index }, (void *[]){ y }, NULL, NULL);
        for (int j = 0; j < W; j++) assert_true(y[j] == 0 && y[W + j] == 18);
    }
}

/* Nothing is lost: the columns of the result sum to those of the rows (whole numbers: exactly), and targets nobody
 * names are zero. */
static void columns_keep_their_sums(void)
{
    enum { R = 7, N = 40, W = 3 };
    const tn_case c = { "property", { R, N, W }, 0, 1, 0 };
    int32_t index[N];
    float rows[N * W], y[R * W];
    for (int i = 0; i < N; i++) index[i] = i * i % 6; /* 0 1 3 4 only */
    for (int i = 0; i < N * W; i++) rows[i] = (float)(i * 37 % 101);
    tn_optest_run(&test, &c, 2, (const void *[]){ rows, index }, (void *[]){ y }, NULL, NULL);
    for (int j = 0; j < W; j++) {
        float in = 0, out = 0;
        for (int i = 0; i < N; i++) in += rows[i * W + j];
        for (int r = 0; r < R; r++) out += y[r * W + j];
        assert_true(in == out && in > 0);
        assert_true(y[2 * W + j] == 0 && y[5 * W + j] == 0 && y[6 * W + j] == 0);
    }
}

/* To a permutation and gathered back: the rows themselves, and so are the gradients. */
static void permutation_and_back(void)
{
    enum { N = 12, W = 3 };
    const tn_case c = { "property", { N, N, W }, BACK, 1, 0 };
    float x[N * W], y[N * W], dx[N * W], dy[N * W];
    int32_t index[N];
    for (int i = 0; i < N; i++) index[i] = (5 * i + 1) % N;
    for (int i = 0; i < N * W; i++) x[i] = (float)i + 0.1f, dy[i] = 1 / x[i];
    tn_optest_run(&test, &c, 1, (const void *[]){ x, index }, (void *[]){ y }, (void *[]){ dx, NULL },
                  (const float *[]){ dy });
    assert_memory_equal(y, x, sizeof x);
    assert_memory_equal(dx, dy, sizeof dy);
}

static void outside_is_an_error(void)
{
    static const int32_t wrong[] = { -1, 4, INT32_MAX };
    for (size_t k = 0; k < TN_COUNT(wrong); k++) {
        tn_world w = tn_world_open(1, 1);
        tn_graph *g = tn_world_graph(NULL);
        const tn_ref rows = tn_input(g, "rows", tn_shape(3, 2), TN_F32),
                     index = tn_input(g, "index", tn_shape(3), TN_I32);
        tn_output(g, "y", tn_scatter_rows(g, rows, index, 4));
        tn_bound *b = tn_world_add(&w, g, NULL);
        int32_t *i = tn_world_data(b, "index");
        i[0] = 0, i[1] = 3, i[2] = wrong[k];
        assert_fails(tn_run(b), TN_USAGE, "index");
        i[2] = 2;
        assert_ok(tn_run(b));
        tn_world_close(&w);
    }
}

static void shapes_are_checked(void)
{
    tn_graph *g = tn_world_graph(NULL);
    tn_scatter_rows(g, tn_input(g, "rows", tn_shape(3, 2), TN_F32), tn_input(g, "index", tn_shape(4), TN_I32), 5);
    assert_fails(tn_graph_status(g), TN_USAGE, "one number for each of the 3 rows");
    tn_graph_free(g);
    g = tn_world_graph(NULL);
    tn_scatter_rows(g, tn_input(g, "rows", tn_shape(3, 2), TN_F32), tn_input(g, "index", tn_shape(3), TN_I32), -5);
    assert_fails(tn_graph_status(g), TN_USAGE, "negative");
    tn_graph_free(g);
}

static const tn_property properties[] = {
    { "duplicates in the order of the index", order_of_the_index },
    { "columns keep their sums", columns_keep_their_sums },
    { "a permutation and back", permutation_and_back },
    { "an index outside is an error", outside_is_an_error },
    { "shapes are checked", shapes_are_checked },
};

static const tn_op_test test = {
    .op = "scatter_rows",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_scatter_rows(tn_test_list *l) { tn_optest_add(l, &test); }
