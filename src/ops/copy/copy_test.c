/* copy: rows (dim = R, C), casts and properties. */
#include "optest.h"

#include <tenon/ops.h>

enum { TO_BF16 = 1 };

static const tn_case cases[] = {
    { "matrix", { 5, 7 }, 0, 1e-7f, 1e-2f },
    { "large", { 700, 97 }, TN_FEW, 1e-7f, 1e-2f },
    { "empty", { 0, 7 }, 0, 1e-7f, 1e-2f },
    { "cast", { 5, 7 }, TO_BF16, 5e-3f, 0 },
};

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    const tn_ref x = tn_test_input(io, tn_shape(c->dim[0], c->dim[1]), (tn_fill_spec){ 0 });
    tn_test_output(io, c->flags & TO_BF16 ? tn_cast(g, x, TN_BF16) : tn_copy(g, x));
    tn_test_output(io, tn_copy(g, tn_transpose(g, x, 1, 0)));
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t R = c->dim[0], C = c->dim[1];
    for (int64_t i = 0; i < R; i++)
        for (int64_t j = 0; j < C; j++) {
            o->out[0][i * C + j] = o->in[0][i * C + j];
            o->out[1][j * R + i] = o->in[0][i * C + j];
        }
}

static const tn_op_test test = { .op = "copy", .cases = cases, .n_cases = TN_COUNT(cases), .build = build, .oracle = oracle };

void tn_tests_copy(tn_test_list *l) { tn_optest_add(l, &test); }
