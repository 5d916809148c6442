/* text_part: rows (dim = B, T, n, live). */
#include "optest.h"
#include "world.h"

#include <tenon/ops.h>

enum { LIVE = 1 };

static const tn_case cases[] = {
    { "texts of any length", { 23, 17, 40 }, TN_NO_GRAD, 1e-7f, 1e-7f },
    { "fewer parts than tokens", { 23, 17, 5 }, TN_NO_GRAD, 1e-7f, 1e-7f },
    { "one part", { 3, 4, 1 }, TN_NO_GRAD, 1e-7f, 1e-7f },
    { "empty", { 0, 5, 3 }, TN_NO_GRAD, 1e-7f, 0 },
    { "live", { 23, 17, 6, 9 }, LIVE | TN_NO_GRAD, 1e-7f, 1e-7f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    const tn_fill_spec lengths = { .kind = TN_FILL_INT, .lo = -2, .hi = (float)c->dim[1] + 3 };
    tn_graph *g = tn_test_graph(io);
    tn_ref x = tn_test_input(io, tn_shape(c->dim[0]), lengths);
    if (c->flags & LIVE)
        x = tn_live(g, x, tn_test_input(io, tn_shape(1), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 1 }));
    const tn_ref y = tn_text_part(g, x, c->dim[1], c->dim[2]);
    tn_test_output(io, c->flags & LIVE ? tn_slice(g, y, 0, 0, c->dim[3]) : y); /* nobody writes the others */
}

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    for (int64_t i = 0; input == 1 && i < n; i++) x[i] = (double)c->dim[3];
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t T = c->dim[1], parts = c->dim[2];
    for (int64_t b = 0; b < (c->flags & LIVE ? c->dim[3] : c->dim[0]); b++) {
        const double n = o->in[0][b] < 1 ? 1 : o->in[0][b] > (double)T ? (double)T : o->in[0][b];
        for (int64_t t = 0; t < T; t++) {
            int64_t part = 0; /* the largest p with p n <= (t + 1/2) parts */
            while ((double)(part + 1) * n <= ((double)t + 0.5) * (double)parts) part++;
            o->out[0][b * T + t] = (double)t < n ? (double)part : (double)(parts - 1);
        }
    }
}

static void by_hand(void)
{
    const int32_t lengths[2] = { 6, 3 }, want[12] = { 0, 1, 2, 3, 4, 5, 1, 3, 5, 5, 5, 5 };
    tn_world w = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(NULL);
    tn_output(g, "y", tn_text_part(g, tn_input(g, "x", tn_shape(2), TN_I32), 6, 6));
    tn_bound *b = tn_world_add(&w, g, NULL);
    memcpy(tn_world_data(b, "x"), lengths, sizeof lengths);
    assert_ok(tn_run(b));
    assert_memory_equal(tn_world_data(b, "y"), want, sizeof want);
    tn_world_close(&w);
}

static void wants_lengths(void)
{
    tn_graph *g = tn_world_graph(NULL);
    tn_text_part(g, tn_input(g, "x", tn_shape(4, 3), TN_I32), 5, 5);
    assert_fails(tn_graph_status(g), TN_USAGE, "text_part of (4,3): lengths must be i32 of shape (B)");
    tn_graph_free(g);
}

static const tn_property properties[] = { { "a text of as many tokens as parts, and one of half", by_hand },
                                          { "lengths of texts", wants_lengths } };

static const tn_op_test test = {
    .op = "text_part",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_text_part(tn_test_list *l) { tn_optest_add(l, &test); }
