/* embed: rows (dim = V, d, tokens as B, T), tables in halves, tokens outside the table, and properties. */
#include "optest.h"

#include "plan/plan.h"

#include <tenon/ops.h>

#include <string.h>

enum { BF16_TABLE = 1, F16_TABLE = 2 };

static const tn_case cases[] = {
    { "small", { 11, 5, 2, 7 }, 0, 1e-6f, 2e-2f },
    { "wide", { 37, 200, 3, 50 }, TN_FEW, 1e-6f, 2e-2f },
    { "many tokens", { 7, 130, 30, 50 }, TN_FEW, 1e-5f, 0 },
    { "bf16 table", { 11, 9, 4, 5 }, BF16_TABLE | TN_NO_GRAD, 1e-7f, 2e-2f },
    { "f16 table", { 11, 9, 4, 5 }, F16_TABLE | TN_NO_GRAD, 1e-7f, 0 },
    { "no tokens", { 11, 5, 0, 7 }, 0, 1e-6f, 2e-2f },
    { "no columns", { 11, 0, 2, 7 }, 0, 1e-6f, 2e-2f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    const tn_fill_spec ids = { .kind = TN_FILL_INT, .hi = (double)c->dim[0] };
    const tn_dtype half = c->flags & BF16_TABLE ? TN_BF16 : c->flags & F16_TABLE ? TN_F16 : TN_F32;
    const tn_ref table = tn_test_input(io, tn_shape(c->dim[0], c->dim[1]), (tn_fill_spec){ .dtype = half });
    const tn_ref tokens = tn_test_input(io, tn_shape(c->dim[2], c->dim[3]), ids);
    tn_test_output(io, tn_embed(tn_test_graph(io), tokens, table));
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t d = c->dim[1];
    for (int64_t i = 0; i < o->n_in[1]; i++)
        for (int64_t j = 0; j < d; j++) o->out[0][i * d + j] = o->in[0][(int64_t)o->in[1][i] * d + j];
}

static const tn_op_test test;

/* With dy = 1 a row's gradient is how often its token occurs. */
static void gradient_counts(void)
{
    enum { V = 9, D = 70, N = 40 };
    const tn_case c = { "property", { V, D, 1, N }, 0, 1, 0 };
    static float table[V * D], dtable[V * D], y[N * D];
    int32_t tokens[N], count[V] = { 0 };
    for (int i = 0; i < N; i++) count[tokens[i] = i * i % (V - 1)]++;
    const void *in[] = { table, tokens };
    void *out[] = { y }, *grad[] = { dtable, NULL };
    tn_optest_run(&test, &c, 2, in, out, grad, NULL);
    for (int v = 0; v < V; v++)
        for (int j = 0; j < D; j++) assert_true(dtable[v * D + j] == (float)count[v]);
}

/* Tokens in another order give the rows in that order. */
static void order_of_tokens(void)
{
    enum { V = 9, D = 3, N = 8 };
    const tn_case c = { "property", { V, D, 1, N }, 0, 1, 0 };
    float table[V * D], y[2][N * D];
    int32_t tokens[2][N];
    for (int i = 0; i < V * D; i++) table[i] = (float)i;
    for (int i = 0; i < N; i++) tokens[0][i] = tokens[1][N - 1 - i] = (i * 5 + 2) % V;
    for (int k = 0; k < 2; k++) {
        const void *in[] = { table, tokens[k] };
        void *out[] = { y[k] };
        tn_optest_run(&test, &c, 1, in, out, NULL, NULL);
    }
    for (int i = 0; i < N; i++) assert_memory_equal(y[0] + i * D, y[1] + (N - 1 - i) * D, sizeof(float) * D);
}

/* Runs (4) tokens, `live` of them alive, on a table of 5 rows. */
static tn_status run_tokens(const int32_t *tokens, int32_t live)
{
    tn_graph *g;
    tn_plan *p;
    tn_context *c;
    tn_bound *b;
    assert_ok(tn_graph_new(&(tn_graph_options){ 0 }, &g));
    const tn_ref count = tn_input(g, "live", tn_shape(1), TN_I32);
    const tn_ref x = tn_live(g, tn_input(g, "tokens", tn_shape(4), TN_I32), count);
    tn_output(g, "y", tn_embed(g, x, tn_input(g, "table", tn_shape(5, 2), TN_F32)));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ 0 }, &p));
    assert_ok(tn_context_new(TN_CPU, 1, &c));
    assert_ok(tn_bind(p, c, NULL, &b));
    memcpy(tn_bound_data(b, "tokens"), tokens, 4 * sizeof *tokens);
    memcpy(tn_bound_data(b, "live"), &live, sizeof live);
    memset(tn_bound_data(b, "table"), 0, 5 * 2 * sizeof(float));
    const tn_status s = tn_run(b);
    tn_bound_free(b);
    tn_context_free(c);
    tn_plan_free(p);
    return s;
}

static void tokens_outside(void)
{
    const int32_t fine[] = { 0, 4, 3, 1 }, large[] = { 0, 4, 5, 1 }, negative[] = { 0, -1, 3, 1 };
    assert_ok(run_tokens(fine, 4));
    assert_fails(run_tokens(large, 4), TN_USAGE, "token 5 at position 2 is outside [0, 5)");
    assert_fails(run_tokens(negative, 4), TN_USAGE, "vocabulary");
    assert_ok(run_tokens(large, 2)); /* a token that is not alive is not looked at */
}

static const tn_property properties[] = {
    { "gradient counts tokens", gradient_counts },
    { "order of tokens", order_of_tokens },
    { "tokens outside the table", tokens_outside },
};

static const tn_op_test test = {
    .op = "embed",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_embed(tn_test_list *l) { tn_optest_add(l, &test); }
