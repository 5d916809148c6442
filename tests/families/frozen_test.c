/* Rehearsal: one trained encoder drives two frozen language models of different widths. Text becomes a few soft tokens;
 * an adapter for each model turns them into its width and puts them before its own embeddings. Frozen weights are bf16,
 * have no gradient and no optimizer memory, nothing is kept for them, and training leaves their bytes alone. */
#include "optim/optim.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>

enum { V = 19, B = 4, TEXT = 6, SOFT = 3, T = 5, D = 24, STEPS = 20 };

/* Matrices and norms of a language model; trained ones only to see what freezing saves. */
static tn_ref weight(tn_graph *g, bool frozen, const char *name, tn_dims dims, float std)
{
    const tn_init init = dims.rank == 1 ? tn_ones : tn_normal(std);
    return frozen ? tn_frozen(g, name, dims, TN_BF16, init) : tn_param(g, name, dims, init);
}

/* Text -> soft tokens (B,SOFT,D). */
static tn_ref encoder(tn_graph *g)
{
    const tn_region r = tn_region_begin(g, "encoder");
    const tn_ref text = tn_input(g, "text", tn_shape(B, TEXT), TN_I32);
    const tn_ref x = tn_embed(g, text, tn_param(g, "embed", tn_shape(V, D), tn_normal(1.f)));
    const tn_ref groups = tn_reshape(g, x, tn_shape(B, SOFT, TEXT / SOFT * D));
    const tn_ref soft = tn_linear(g, groups, tn_param(g, "mix", tn_shape(D, TEXT / SOFT * D), tn_normal(0.15f)),
                                  .bias = tn_param(g, "bias", tn_shape(D), tn_zeros), .act = TN_ACT_GELU);
    tn_region_end(g, r);
    return soft;
}

/* The loss of a language model of width d that reads the soft tokens and then its own (B,T). */
static tn_ref reader(tn_graph *g, const char *name, int64_t d, bool frozen, tn_ref soft, tn_ref tokens, tn_ref labels)
{
    const int64_t L = SOFT + T;
    const tn_region r = tn_region_begin(g, "%s", name);
    const tn_ref table = weight(g, frozen, "embed", tn_shape(V, d), 0.5f);
    const tn_ref parts[] = { tn_linear(g, soft, tn_param(g, "adapter", tn_shape(d, D), tn_normal(0.2f))),
                             tn_embed(g, tokens, table) };
    tn_ref x = tn_concat(g, parts, 2, 1);
    for (int i = 0; i < 2; i++) {
        const tn_region layer = tn_region_begin(g, "block%d", i);
        const float std = 1.f / sqrtf((float)d);
        const tn_ref u = tn_rmsnorm(g, x, weight(g, frozen, "n1", tn_shape(d), 0));
        const tn_ref qkv = tn_linear(g, u, weight(g, frozen, "qkv", tn_shape(3 * d, d), std));
        const tn_ref heads = tn_reshape(g, qkv, tn_shape(B, L, 6, d / 2));
        const tn_ref y =
            tn_attention(g, tn_rope(g, tn_slice(g, heads, 2, 0, 2)), tn_rope(g, tn_slice(g, heads, 2, 2, 2)),
                         tn_slice(g, heads, 2, 4, 2), .causal = true);
        x = tn_linear(g, tn_reshape(g, y, tn_shape(B, L, d)), weight(g, frozen, "out", tn_shape(d, d), 2 * std),
                      .residual = x);
        const tn_ref h = tn_linear(g, tn_rmsnorm(g, x, weight(g, frozen, "n2", tn_shape(d), 0)),
                                   weight(g, frozen, "w1", tn_shape(2 * d, d), std), .act = TN_ACT_GELU);
        x = tn_linear(g, h, weight(g, frozen, "w2", tn_shape(d, 2 * d), 2 * std), .residual = x);
        tn_region_end(g, layer);
    }
    const tn_ref last = tn_slice(g, tn_rmsnorm(g, x, weight(g, frozen, "norm", tn_shape(d), 0)), 1, SOFT, T);
    const tn_ref loss = tn_linear_xent(g, last, table, labels);
    tn_region_end(g, r);
    return loss;
}

static tn_bound *add_plan(tn_world *w, bool frozen)
{
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref tokens = tn_input(g, "tokens", tn_shape(B, T), TN_I32),
                 labels = tn_input(g, "labels", tn_shape(B, T), TN_I32);
    const tn_ref soft = encoder(g), a = reader(g, "small", 16, frozen, soft, tokens, labels);
    const tn_ref loss = tn_add(g, a, reader(g, "large", 32, frozen, soft, tokens, labels));
    tn_output(g, "loss", loss);
    return tn_world_add(w, g, &(tn_compile_options){ .loss = loss });
}

/* What the soft tokens must say: each sequence repeats one token of its text. */
static void fill(tn_bound *b)
{
    int32_t *text = tn_world_data(b, "text"), *tokens = tn_world_data(b, "tokens"),
            *labels = tn_world_data(b, "labels");
    for (int i = 0; i < B * TEXT; i++) text[i] = (i * 7 + i / TEXT) % V;
    for (int i = 0; i < B * T; i++) labels[i] = text[i / T * TEXT], tokens[i] = i % T ? labels[i] : 0;
}

static bool trained(const char *name) { return strncmp(name, "encoder.", 8) == 0 || strstr(name, ".adapter"); }

static int64_t check_roles(const tn_world *w)
{
    int64_t count = 0;
    for (size_t i = 0; i < tn_store_count(w->store); i++) {
        const tn_entry *e = tn_store_at(w->store, i);
        assert_int_equal(e->role, trained(e->name) ? TN_ROLE_PARAM : TN_ROLE_FROZEN);
        assert_int_equal(e->dtype, trained(e->name) ? TN_F32 : TN_BF16);
        if (!trained(e->name)) assert_null(e->grad);
        else count += (tn_dims_count(e->dims) + 15) / 16 * 16;
    }
    return count;
}

static void train(void **state)
{
    (void)state;
    tn_world w = tn_world_open(11, 1), all = tn_world_open(11, 1);
    tn_bound *step = add_plan(&w, true);
    add_plan(&all, false);
    const tn_memory m = tn_plan_memory(w.plan[0]), of_all = tn_plan_memory(all.plan[0]);
    assert_true(m.activations < of_all.activations && m.arena < of_all.arena);
    assert_true(m.gradients * 4 < of_all.gradients);
    tn_world_close(&all);

    tn_plan *apply;
    assert_ok(tn_optim_plan(w.store, &(tn_optim_options){ .kind = TN_ADAMW }, TN_CPU, 1, &apply));
    tn_bound *update = tn_world_bind(&w, apply);
    assert_int_equal(tn_store_buckets(w.store), 1); /* its moments are all the optimizer has */
    assert_int_equal(tn_store_bucket(w.store, 0)->count, check_roles(&w));
    unsigned char *before[64];
    for (size_t i = 0; i < tn_store_count(w.store); i++) {
        const tn_entry *e = tn_store_at(w.store, i);
        const size_t bytes = (size_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype);
        memcpy(before[i] = test_malloc(bytes), e->data, bytes);
    }
    float first = 0, loss = 0;
    fill(step);
    for (int i = 0; i <= STEPS; i++) {
        assert_ok(tn_run(step));
        memcpy(&loss, tn_world_data(step, "loss"), sizeof loss);
        if (!i) first = loss;
        if (i == STEPS) break;
        assert_ok(tn_optim_set(
            update,
            &(tn_optim_scalars){
                .lr = 0.02f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .clip = 1, .scale = 1, .opt_step = i + 1 }));
        memcpy(tn_world_data(update, "loss"), &loss, sizeof loss);
        assert_ok(tn_run(update));
        assert_int_equal(*(int32_t *)tn_world_data(update, "ok"), 1);
    }
    if (!(loss <= 0.7f * first)) fail_msg("the loss went from %g to %g", (double)first, (double)loss);
    for (size_t i = 0; i < tn_store_count(w.store); i++) {
        const tn_entry *e = tn_store_at(w.store, i);
        const bool same = memcmp(before[i], e->data, (size_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype)) == 0;
        if (same == trained(e->name)) fail_msg("%s %s", e->name, same ? "has not moved" : "is frozen and has changed");
        test_free(before[i]);
    }
    tn_world_close(&w);
}

void tn_tests_frozen(tn_test_list *l)
{
    tn_test_add(l, train, NULL, "families: one encoder drives two frozen language models");
}
