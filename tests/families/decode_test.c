/* Rehearsal: decoding with a cache in its live extent. A prefill plan and a decode plan share one store (weights and
 * caches), one arena and one context; the position is a number in memory. Greedy decoding must agree with the plan of
 * the whole sequence at every length. */
#include "world.h"

#include <tenon/ops.h>

#include <math.h>

enum { V = 29, D = 32, HEADS = 4, KV = 2, HD = 8, FFN = 48, LAYERS = 2, B = 2, S = 16, PROMPT = 5, NEW = 10 };

typedef struct positions {
    tn_ref first, length; /* i32 (1): of the first token; keys alive after this step. None: the whole sequence */
} positions;

static tn_ref weight(tn_graph *g, const char *name, int64_t rows, int64_t columns)
{
    return tn_param(g, name, tn_shape(rows, columns), tn_normal(1.5f / sqrtf((float)columns)));
}

static tn_ref rows_of(tn_graph *g, const char *name) { return tn_param(g, name, tn_shape(D), tn_ones); }

/* qkv (B,T,(HEADS+2 KV) HD) -> y (B,T,D); with positions, keys and values go through the caches. */
static tn_ref attend(tn_graph *g, tn_ref qkv, positions at)
{
    const int64_t T = tn_ref_dim(g, qkv, 1);
    const tn_ref heads = tn_reshape(g, qkv, tn_shape(B, T, HEADS + 2 * KV, HD));
    const tn_ref q = tn_rope(g, tn_slice(g, heads, 2, 0, HEADS), .position = at.first);
    tn_ref k = tn_rope(g, tn_slice(g, heads, 2, HEADS, KV), .position = at.first);
    tn_ref v = tn_slice(g, heads, 2, HEADS + KV, KV);
    if (at.first.id) {
        k = tn_cache_write(g, tn_cache(g, "keys", tn_shape(B, S, KV, HD), TN_F32), k, at.first);
        v = tn_cache_write(g, tn_cache(g, "values", tn_shape(B, S, KV, HD), TN_F32), v, at.first);
    }
    const tn_ref y = tn_attention(g, q, k, v, .causal = true, .kv_length = at.length);
    return tn_reshape(g, y, tn_shape(B, T, HEADS * HD));
}

static tn_bound *add_plan(tn_world *w, int64_t T, bool cached)
{
    tn_graph *g = tn_world_graph(NULL);
    positions at = { TN_NONE, TN_NONE };
    if (cached) {
        at.first = tn_input(g, "position", tn_shape(1), TN_I32);
        at.length = tn_input(g, "length", tn_shape(1), TN_I32);
    }
    const tn_ref table = tn_param(g, "embed", tn_shape(V, D), tn_normal(1.f));
    tn_ref x = tn_embed(g, tn_input(g, "tokens", tn_shape(B, T), TN_I32), table);
    for (int i = 0; i < LAYERS; i++) {
        const tn_region r = tn_segment_begin(g, "layer%d", i);
        const tn_ref qkv = tn_linear(g, tn_rmsnorm(g, x, rows_of(g, "n1")), weight(g, "qkv", (HEADS + 2 * KV) * HD, D));
        x = tn_linear(g, attend(g, qkv, at), weight(g, "out", D, HEADS * HD), .residual = x);
        const tn_ref ab = tn_linear(g, tn_rmsnorm(g, x, rows_of(g, "n2")), weight(g, "w1", 2 * FFN, D));
        const tn_ref h = tn_swiglu(g, tn_part(g, ab, 0, 2), tn_part(g, ab, 1, 2));
        x = tn_linear(g, h, weight(g, "w2", D, FFN), .residual = x);
        tn_region_end(g, r);
    }
    tn_output(g, "logits", tn_linear(g, tn_rmsnorm(g, x, rows_of(g, "norm")), weight(g, "head", V, D)));
    return tn_world_add(w, g, NULL);
}

/* Runs T tokens that start at `first`; copies the logits of the last one (B,V) out. tokens is (B,S). */
static void run(tn_bound *b, const int32_t (*tokens)[S], int first, int T, float (*last)[V])
{
    int32_t *in = tn_world_data(b, "tokens");
    for (int i = 0; i < B * T; i++) in[i] = tokens[i / T][first + i % T];
    if (tn_bound_data(b, "position")) {
        *(int32_t *)tn_world_data(b, "position") = first;
        *(int32_t *)tn_world_data(b, "length") = first + T;
    }
    assert_ok(tn_run(b));
    const float *logits = tn_world_data(b, "logits"); /* (B,T,V) */
    for (int i = 0; i < B; i++) memcpy(last[i], logits + ((int64_t)i * T + T - 1) * V, sizeof last[i]);
}

static int32_t best(const float *x)
{
    int32_t at = 0;
    for (int32_t v = 1; v < V; v++)
        if (x[v] > x[at]) at = v;
    return at;
}

static void decode(void **state)
{
    (void)state;
    int32_t tokens[B][S] = { { 3, 1, 4, 1, 5 }, { 2, 7, 1, 8, 2 } };
    float logits[B][V], whole[B][V];
    int distinct = 0;
    tn_world w = tn_world_open(7, 1);
    tn_bound *prefill = add_plan(&w, PROMPT, true), *step = add_plan(&w, 1, true);
    const size_t entries = tn_store_count(w.store);
    run(prefill, tokens, 0, PROMPT, logits);
    for (int n = PROMPT; n <= PROMPT + NEW; n++) {
        run(add_plan(&w, n, false), tokens, 0, n, whole);
        for (int i = 0; i < B; i++) {
            for (int v = 0; v < V; v++) assert_float_equal(logits[i][v], whole[i][v], 1e-5f);
            assert_int_equal(best(logits[i]), best(whole[i]));
            tokens[i][n] = best(logits[i]);
            distinct += tokens[i][n] != tokens[i][n - 1];
        }
        if (n < PROMPT + NEW) run(step, tokens, n, 1, logits);
    }
    assert_true(distinct > 3);                          /* it says something */
    assert_int_equal(tn_store_count(w.store), entries); /* all plans use the same tensors */
    assert_true(tn_plan_memory(w.plan[1]).arena < tn_plan_memory(w.plan[0]).arena);
    assert_true(tn_plan_flops(w.plan[1]) * 4 < tn_plan_flops(w.plan[0])); /* the new token alone is computed */
    *(int32_t *)tn_world_data(step, "position") = S; /* a full cache is refused, nothing is written beyond it */
    assert_fails(tn_run(step), TN_USAGE, "cache_write in layer0");
    tn_world_close(&w);
}

void tn_tests_decode(tn_test_list *l)
{
    tn_test_add(l, decode, NULL, "families: decoding with a cache equals the whole sequence");
}
