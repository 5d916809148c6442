/* The networks of `ten` as a whole, variation by variation: no token sees a later one, sequences of a batch do not touch,
 * blocks change nothing, cut gradients are cut where they should be, energy is what it says, presets have their sizes. */
#include "models/models.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"
#include "world.h"

#include <math.h>

enum { B = 2, T = 24, V = 19, MOST = 12 };

typedef struct variation {
    const char *more[8];
} variation;

static const variation variations[] = {
    { { "pattern=D" } },
    { { "pattern=O", "chunk=5" } },
    { { "pattern=O", "rotate=true" } },
    { { "pattern=W", "window=6" } },
    { { "pattern=E" } },
    { { "pattern=E", "xmem=true", "resonance=blockdiag" } },
    { { "pattern=E", "select=bounded", "rho=sigmoid", "spectrum=ring" } },
    { { "pattern=E", "select=rg", "gate=sigmoid", "resonance=dense_frob", "n_cells=2" } },
    { { "pattern=E", "hten=1,2,4" } },
    { { "pattern=DO", "hten=3", "pos=sin" } },
    { { "pattern=DEWO", "norm=post", "act=silu" } },
    { { "preset=ten_a", "k=8", "vocab=19" } },
    { { "preset=ten_b", "k=8", "vocab=19" } },
};

static tn_settings *settings_of(const char *const *more, int n_more, const tn_model **model)
{
    const char *list[MOST] = { "dim=24", "layers=2", "heads=4", "vocab=19", "train.context=24", "train.dropout=0" };
    size_t n = 6;
    tn_settings *st;
    for (int i = 0; i < n_more && more[i] && n < MOST; i++) list[n++] = more[i];
    assert_ok(tn_settings_resolve("ten", list, n, &st, model));
    return st;
}

static tn_trainer *open_trainer(tn_settings *st, const tn_model *model, bool logits)
{
    tn_trainer *t;
    const tn_trainer_options o = {
        .model = model, .settings = st, .batch = B, .length = T, .logits = logits, .threads = 2
    };
    assert_ok(tn_trainer_new(&o, &t));
    uint32_t x = 7;
    for (int i = 0; i < B * T; i++) {
        ((int32_t *)tn_trainer_input(t, "tokens"))[i] = (int32_t)((x = x * 1664525u + 1013904223u) >> 24) % V;
        ((int32_t *)tn_trainer_input(t, "labels"))[i] = (int32_t)((x = x * 1664525u + 1013904223u) >> 24) % V;
    }
    return t;
}

static void logits_of(tn_trainer *t, float *out)
{
    float loss;
    assert_ok(tn_trainer_eval(t, &loss));
    memcpy(out, tn_world_data(tn_trainer_bound(t, false), "logits"), sizeof *out * B * T * V);
}

static void no_token_sees_a_later_one(void **state)
{
    static float before[B * T * V], after[B * T * V];
    const variation *v = *state;
    const tn_model *model;
    tn_settings *st = settings_of(v->more, 8, &model);
    tn_trainer *t = open_trainer(st, model, true);
    logits_of(t, before);
    for (int at = 1; at < T; at += 5) {
        ((int32_t *)tn_trainer_input(t, "tokens"))[at] =
            (((int32_t *)tn_trainer_input(t, "tokens"))[at] + 1) % V; /* of the first sequence */
        logits_of(t, after);
        assert_memory_equal(before, after, sizeof *before * (size_t)(at * V));
        assert_memory_equal(before + T * V, after + T * V, sizeof *before * T * V); /* the second one is not touched */
        assert_memory_not_equal(before + at * V, after + at * V, sizeof *before * (size_t)((T - at) * V));
        memcpy(before, after, sizeof before);
    }
    tn_trainer_free(t);
    tn_settings_free(st);
}

static void order_of_sequences(void **state)
{
    static float before[B * T * V], after[B * T * V];
    const variation *v = *state;
    const tn_model *model;
    tn_settings *st = settings_of(v->more, 8, &model);
    tn_trainer *t = open_trainer(st, model, true);
    logits_of(t, before);
    for (int i = 0; i < T; i++) {
        int32_t *x = ((int32_t *)tn_trainer_input(t, "tokens")), first = x[i];
        x[i] = x[T + i];
        x[T + i] = first;
    }
    logits_of(t, after);
    assert_true(tn_world_distance(after, before + T * V, T * V) < 1e-6);
    assert_true(tn_world_distance(after + T * V, before, T * V) < 1e-6);
    tn_trainer_free(t);
    tn_settings_free(st);
}

static void blocks_change_nothing(void **state)
{
    static const char *const chunks[] = { "chunk=64", "chunk=1", "chunk=5", "chunk=16", "chunk=24" };
    static float first[B * T * V], other[B * T * V];
    (void)state;
    for (int i = 0; i < 5; i++) {
        const char *const more[] = { "pattern=O", chunks[i] };
        const tn_model *model;
        tn_settings *st = settings_of(more, 2, &model);
        tn_trainer *t = open_trainer(st, model, true);
        logits_of(t, i ? other : first);
        if (i) assert_true(tn_world_distance(other, first, B * T * V) < 1e-5);
        tn_trainer_free(t);
        tn_settings_free(st);
    }
}

/* The two forms of gelu: within 5e-4 of each other, and not the same. */
static void forms_of_gelu(void **state)
{
    static const char *const forms[] = { "act=gelu_tanh", "act=gelu_erf" };
    static float out[2][B * T * V];
    (void)state;
    for (int i = 0; i < 2; i++) {
        const tn_model *model;
        tn_settings *st = settings_of(&forms[i], 1, &model);
        tn_trainer *t = open_trainer(st, model, true);
        logits_of(t, out[i]);
        tn_trainer_free(t);
        tn_settings_free(st);
    }
    const double apart = tn_world_distance(out[0], out[1], B * T * V);
    if (!(apart > 0 && apart < 5e-4)) fail_msg("the forms are %g apart", apart);
}

/* --- gradients cut on request ------------------------------------------------------------------------------------- */

/* Norms of the gradient that reaches the positions of each third of the sequence when the last label alone counts. */
static float cut_gradient(const char *tbptt, const char *select, double norm[3])
{
    const char *const more[] = { "pattern=E", "pos=learned", "conv=0", "layers=1", tbptt, select };
    const tn_model *model;
    tn_settings *st = settings_of(more, 6, &model);
    tn_trainer *t = open_trainer(st, model, false);
    float loss;
    for (int i = 0; i < B * T; i++)
        if (i % T != T - 1) ((int32_t *)tn_trainer_input(t, "labels"))[i] = -1;
    assert_ok(tn_trainer_grad(t, 0, &loss));
    const tn_entry *e = tn_store_find(tn_trainer_store(t), "position");
    assert_non_null(e);
    for (int i = 0; i < 3; i++) norm[i] = 0;
    for (int64_t i = 0; i < T * 24; i++) norm[i / (T / 3 * 24)] += (double)e->grad[i] * (double)e->grad[i];
    tn_trainer_free(t);
    tn_settings_free(st);
    return loss;
}

static void cut_where_asked(void **state)
{
    const char *select = *state;
    double exact[3], cut[3];
    const float whole = cut_gradient("tbptt=0", select, exact), pieces = cut_gradient("tbptt=8", select, cut);
    assert_true(fabsf(whole - pieces) < 1e-6f); /* the states are the same */
    assert_true(exact[0] > 0 && exact[1] > 0 && exact[2] > 0);
    assert_true(cut[0] == 0 && cut[1] == 0);
    assert_true(fabs(cut[2] - exact[2]) < 1e-4 * exact[2]);
}

/* --- energy ------------------------------------------------------------------------------------------------------- */

static float loss_with(const char *energy, float *xent)
{
    const char *const more[] = { "pattern=DE", energy };
    const tn_model *model;
    tn_settings *st = settings_of(more, 2, &model);
    tn_trainer *t = open_trainer(st, model, false);
    float loss;
    assert_ok(tn_trainer_eval(t, &loss));
    const float *x = tn_bound_data(tn_trainer_bound(t, false), "xent");
    *xent = x ? *x : loss;
    tn_trainer_free(t);
    tn_settings_free(st);
    return loss;
}

static void energy_adds_to_the_loss(void **state)
{
    float plain, one, two;
    (void)state;
    const float none = loss_with("energy=0", &plain), some = loss_with("energy=20", &one),
                twice = loss_with("energy=40", &two);
    assert_true(none == plain && one == plain && two == plain);
    assert_true(some > none);
    assert_true(fabsf((twice - none) - 2 * (some - none)) < 1e-3f * (twice - none));
}

/* --- presets ------------------------------------------------------------------------------------------------------ */

typedef struct size_of {
    const char *preset;
    int64_t parameters;
} size_of;

/* TEN-A: L [ |S| (n_c (2Kd + 2K + K^2) + 8d^2 + 9d) + (|S|-1) d^2 + |S| ] + Vd + Td + 2d, without scales the last two terms
 * of the bracket fall away; others as published. */
static const size_of sizes[] = {
    { "ten_a_nano", 34959872 },          { "ten_a_micro", 69620736 },      { "ten_a_small", 124156928 },
    { "ten_a_small_32k", 156662784 },    { "small_32k", 156662784 },       { "ten_b", 40974592 },
    { "ten_b_ring", 40974592 + 6 * 64 }, /* log gamma */
    { "ten_b_wide", 111833600 },         { "ten_b_small", 15433728 },      { "gpt2_124m", 124439808 },
    { "gpt2_355m", 354823168 },          { "gpt2_774m", 774030080 },       { "gpt2_1558m", 1557611200 },
    { "llama_stories260k", 260032 },     { "llama_stories15m", 15191712 }, { "llama_stories110m", 109529856 },
    { "llama3_2_1b", 1235814400 },       { "llama3_1_8b", 8030261248 },    { "mistral_7b", 7248023552 },
    { "qwen2_5_0_5b", 494032768 },       { "qwen2_5_7b", 7615616512 },     { "qwen3_0_6b", 596049920 },
};

static int64_t parameters_of(const char *preset, int64_t length)
{
    tn_settings *st;
    const tn_model *model;
    int64_t n = 0;
    assert_ok(tn_settings_resolve(preset, NULL, 0, &st, &model));
    tn_graph *g = tn_world_graph(NULL);
    tn_batch b = { .size = sizeof b, .batch = 1, .length = length, .want = { "logits" }, .n_wants = 1 };
    tn_batch_add(&b, "tokens", tn_input(g, "tokens", tn_shape(1, length), TN_I32));
    assert_ok(model->build(g, st, &b));
    for (size_t i = 1; i < g->n_tensors; i++)
        if (g->tensor[i].role == TN_ROLE_PARAM && g->tensor[i].base == (int32_t)i)
            n += tn_dims_count(g->tensor[i].dims);
    tn_graph_free(g);
    tn_settings_free(st);
    return n;
}

static void presets_have_their_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t n = parameters_of(sizes[i].preset, 1);
        if (n != sizes[i].parameters)
            fail_msg("%s has %lld parameters, not %lld", sizes[i].preset, (long long)n, (long long)sizes[i].parameters);
    }
}

static void scaled_presets_have_theirs(void **state)
{
    static const struct {
        const char *preset;
        int64_t d, L, K, T, S;
    } rows[] = { { "ten_a_large", 1536, 16, 192, 1024, 3 },
                 { "ten_a_xlarge", 2048, 20, 256, 2048, 4 },
                 { "ten_a_medium_32k", 1280, 12, 160, 32768, 3 },
                 { "ten_a_large_32k", 1536, 16, 192, 32768, 4 } };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t d = rows[i].d, K = rows[i].K, S = rows[i].S;
        const int64_t block = 2 * (2 * K * d + 2 * K + K * K) + 8 * d * d + 9 * d;
        const int64_t want = rows[i].L * (S * block + (S - 1) * d * d + S) + 50257 * d + rows[i].T * d + 2 * d;
        assert_int_equal(parameters_of(rows[i].preset, 1), want);
        assert_int_equal(parameters_of(rows[i].preset, 9), want); /* whatever the length */
    }
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static void bad_settings(void **state)
{
    static const struct {
        const char *more[3], *says;
    } rows[] = {
        { { "pattern=DX" }, "pattern=DX: use the letters D, O, E and W" },
        { { "hten=1,2,1" }, "scale 1 appears twice" },
        { { "hten=2,x" }, "at most 8 scales" },
        { { "tbptt=8" }, "tbptt is for E layers only" },
        { { "pattern=E", "tbptt=7" }, "must divide the 24 tokens" },
        { { "rho=sigmoid", "rho_min=0.6", "rho_max=0.5" }, "must be below" },
        { { "xmem=true", "hten=1,2" }, "cannot be combined" },
        { { "resonance=blockdiag", "k=6" }, "divisible by heads=4" },
        { { "pattern=W", "dim=26" }, "times an even number" },
        { { "rotate=learned", "head_dim=5" }, "rotate needs a head_dim divisible by 2" },
        { { "rotate=true", "rotate_pairs=half" }, "divisible by 4, it is 6" },
        { { "ring_min=0.9", "ring_max=0.8" }, "ring_min=0.9 must be below" },
        { { "write=delta" }, "set qk_norm=true" },
        { { "forget=channel" }, "set write=delta" },
        { { "pattern=E", "select=bounded", "omega=zero" }, "use select=none or rg" },
        { { "pos=learned", "train.context=8" }, "longer than the 8" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tn_model *model;
        tn_trainer *t = NULL;
        tn_settings *st = settings_of(rows[i].more, 3, &model);
        const tn_trainer_options o = { .model = model, .settings = st, .batch = B, .length = T, .threads = 1 };
        assert_fails(tn_trainer_new(&o, &t), TN_USAGE, rows[i].says);
        tn_trainer_free(t);
        tn_settings_free(st);
    }
}

void tn_tests_ten(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof variations / sizeof *variations; i++) {
        const variation *v = &variations[i];
        const char *second = v->more[1] ? v->more[1] : "";
        tn_test_add(l, no_token_sees_a_later_one, v, "ten: no token sees a later one, %s %s", v->more[0], second);
        tn_test_add(l, order_of_sequences, v, "ten: the order of sequences is nothing, %s %s", v->more[0], second);
    }
    tn_test_add(l, blocks_change_nothing, NULL, "ten: blocks change nothing");
    tn_test_add(l, forms_of_gelu, NULL, "ten: gelu_tanh and gelu_erf differ by less than 5e-4");
    tn_test_add(l, cut_where_asked, "select=none", "ten: gradients are cut where asked");
    tn_test_add(l, cut_where_asked, "select=bounded", "ten: gradients are cut where asked, eigenvalues by token");
    tn_test_add(l, cut_where_asked, "select=rg", "ten: gradients are cut where asked, gated");
    tn_test_add(l, energy_adds_to_the_loss, NULL, "ten: energy adds to the loss");
    tn_test_add(l, presets_have_their_sizes, NULL, "ten: presets have their sizes");
    tn_test_add(l, scaled_presets_have_theirs, NULL, "ten: presets on scales have their sizes");
    tn_test_add(l, bad_settings, NULL, "ten: bad settings are refused with a reason");
}
