/* Carried state, in f32 on the device of TENON_TEST_DEVICE: a prompt at once and then token by token, or a prompt in pieces,
 * gives the logits of the whole sequence, for every kind of layer and every shape; a mark starts a document afresh. */
#include "models/decode_cache.h"

#include "device_memory.h"
#include "ten_variants.h"
#include "train/run/train_settings.h"
#include "world.h"

#include <math.h>
#include <stdio.h>

enum { B = 3, S = 21, V = 23 };

typedef struct pupil {
    const char *model, *more[4];
    bool attends;              /* its past is a cache by position: no marks */
    bool single;               /* carries on by one token only, and knows no marks */
    const tn_variant *variant; /* whose line comes in the place of more, or NULL */
} pupil;

static const pupil pupils[] = {
    { "ten", { "pattern=DO" }, false, false, NULL },
    { "ten", { "pattern=O", "rotate=true", "chunk=4" }, false, false, NULL },
    { "ten", { "pattern=E" }, false, false, NULL },
    { "ten", { "pattern=E", "select=bounded", "resonance=blockdiag", "xmem=true" }, false, false, NULL },
    { "ten", { "pattern=E", "select=rg", "conv=2", "pos=sin" }, false, false, NULL },
    { "ten", { "preset=ten_a", "k=8", "vocab=23" }, false, false, NULL },
    { "ten", { "preset=ten_b", "k=8", "vocab=23" }, false, false, NULL },
    { "ten", { "pattern=W", "window=5" }, true, false, NULL },
    { "ten", { "pattern=DEWO", "layers=4" }, true, false, NULL },
    { "ten", { "pattern=E", "hten=1,2,4" }, true, true, NULL },
    { "ten", { "pattern=DO", "hten=3", "norm=post" }, true, true, NULL },
    { "gpt", { "shape=llama", "kv_heads=2" }, true, false, NULL },
    { "gpt", { "shape=llama", "rope_pairs=interleaved", "qkv_bias=true", "tied=false" }, true, false, NULL },
    { "gpt", { "shape=llama", "qk_norm=true", "head_dim=10", "kv_heads=1" }, true, false, NULL },
    { "gpt", { "shape=llama", "rope_scaling=linear", "rope_stretch=3" }, true, false, NULL },
    { "gpt", { "shape=llama", "rope_scaling=yarn", "rope_stretch=4", "rope_stretch_context=16" }, true, false, NULL },
    { "gpt", { "shape=gpt2" }, true, false, NULL },
    { "gpt", { "shape=llama", "preset=gpt_conv_gate", "kv_heads=2" }, true, false, NULL },
    { "gpt", { "shape=llama", "conv=1", "gate=silu" }, true, false, NULL },
    { "gpt", { "shape=llama", "conv=8", "conv_act=silu", "qkv_bias=true" }, true, false, NULL },
    { "gpt", { "shape=gpt2", "conv=3", "gate=silu" }, true, false, NULL },
};

typedef struct stage {
    tn_world w;
    const tn_model *model;
    tn_settings *st;
    int32_t tokens[B][S];
    bool marks;
} stage;

static void open_stage(stage *s, const pupil *p)
{
    char room[256];
    const char *list[24];
    size_t n = 0;
    if (p->variant) n = tn_variant_words(p->variant, room, list);
    static const char *const small[] = { "dim=24", "layers=2", "heads=4", "vocab=23", "train.context=64" };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) list[n++] = small[i];
    for (int i = 0; i < 4 && p->more[i]; i++) list[n++] = p->more[i];
    if (p->variant) list[n++] = "dim=32"; /* heads of 8: half of the pairs can turn */
    if (p->variant && strstr(p->variant->line, "hybrid")) list[n++] = "layers=4";
    if (p->variant && strstr(p->variant->line, "hybrid")) list[n++] = "window=5";
    assert_ok(tn_settings_resolve(p->model, list, n, &s->st, &s->model));
    s->w = tn_world_open_on(tn_test_device(), 5, 2);
    s->marks = !p->single;
    uint32_t x = 99;
    for (int i = 0; i < B * S; i++) s->tokens[i / S][i % S] = (int32_t)((x = x * 1664525u + 1013904223u) >> 24) % V;
}

static void close_stage(stage *s)
{
    tn_world_close(&s->w);
    tn_settings_free(s->st);
}

/* First values are small, and so is what states do with them: larger ones make a lost state visible. */
static void enlarge(tn_store *st)
{
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        const int64_t n = tn_dims_count(e->dims);
        float most = 0;
        if (e->role != TN_ROLE_PARAM || e->dims.rank < 2) continue;
        float *x = tn_memory_floats(st, e->data, n);
        for (int64_t k = 0; k < n; k++)
            if (fabsf(x[k]) > most) most = fabsf(x[k]);
        for (int64_t k = 0; k < n && most < 0.2f; k++) x[k] *= 10;
        tn_memory_put(st, e->data, x, sizeof *x * (size_t)n);
        free(x);
    }
}

typedef struct piece {
    tn_bound *bound;
    tn_batch batch;
} piece;

static piece add_piece(stage *s, int64_t T, bool cached)
{
    tn_graph *g = tn_world_graph_on(tn_test_device(), &(tn_graph_options){ .threads = 2 });
    piece p = { .batch = { .size = sizeof p.batch, .batch = B, .length = T, .want = { "logits" }, .n_wants = 1 } };
    tn_batch_add(&p.batch, "tokens", tn_input(g, "tokens", tn_shape(B, T), TN_I32));
    if (s->marks) tn_batch_add(&p.batch, "reset", tn_input(g, "reset", tn_shape(B, T), TN_I32));
    if (cached) tn_decode_cache_inputs(g, &p.batch, 32);
    assert_ok(s->model->build(g, s->st, &p.batch));
    p.bound = tn_world_add(&s->w, g, NULL);
    return p;
}

/* Runs tokens first .. first+T-1, which stand at `position`, and puts their logits into rows of out (B,S,V). */
static void run(const stage *s, const piece *p, int64_t first, int64_t position, float *out)
{
    const int64_t T = p->batch.length;
    int32_t *in = tn_world_data(p->bound, "tokens");
    for (int64_t i = 0; i < B * T; i++) in[i] = s->tokens[i / T][first + i % T];
    if (p->batch.cached) tn_decode_cache_position(p->bound, &p->batch, position);
    assert_ok(tn_run(p->bound));
    const float *logits = tn_world_data(p->bound, "logits"); /* (B,T,V) */
    for (int64_t b = 0; b < B; b++)
        memcpy(out + (b * S + first) * V, logits + b * T * V, sizeof *out * (size_t)(T * V));
}

/* How far apart what is the same may lie: on a GPU products of other shapes add in other orders. */
static double near_by(double on_the_cpu) { return tn_test_device() == TN_CPU ? on_the_cpu : 5e-4; }

/* Prompts of several lengths at once, then single tokens. */
static void prompt_then_steps(stage *s, const piece *step, const float *whole)
{
    static const int prompts[] = { 1, 2, 7, 16 };
    static float got[B * S * V];
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        const piece prompt = add_piece(s, prompts[i], true);
        tn_decode_cache_clear(s->w.store);
        memset(got, 0, sizeof got);
        run(s, &prompt, 0, 0, got);
        for (int t = prompts[i]; t < S; t++) run(s, step, t, t, got);
        const double off = tn_world_distance(got, whole, B * S * V);
        if (!(off < near_by(1e-4))) fail_msg("a prompt of %d tokens, then steps: off by %g", prompts[i], off);
        if (!s->marks) return;
    }
}

static void whole_equals_steps(void **state)
{
    static float whole[B * S * V], got[B * S * V];
    const pupil *p = *state;
    stage s;
    open_stage(&s, p);
    const piece all = add_piece(&s, S, false);
    enlarge(s.w.store);
    run(&s, &all, 0, 0, whole);
    const piece step = add_piece(&s, 1, true);
    prompt_then_steps(&s, &step, whole);
    tn_decode_cache_clear(s.w.store); /* it is the state that does it */
    memcpy(got, whole, sizeof got);
    run(&s, &step, S - 1, S - 1, got);
    assert_true(tn_world_distance(got, whole, B * S * V) > 1e-2);
    if (!p->single) { /* a prompt in two pieces */
        const piece left = add_piece(&s, 8, true), right = add_piece(&s, S - 8, true);
        tn_decode_cache_clear(s.w.store);
        run(&s, &left, 0, 0, got);
        run(&s, &right, 8, 8, got);
        assert_true(tn_world_distance(got, whole, B * S * V) < near_by(1e-4));
    }
    close_stage(&s);
}

/* What an earlier sequence left is forgotten by a mark at the first token (states), or by position 0 (attention). */
static void starts_afresh(void **state)
{
    static float fresh[B * S * V], got[B * S * V], other[B * S * V];
    const pupil *p = *state;
    stage s;
    open_stage(&s, p);
    const piece prompt = add_piece(&s, 6, true), step = add_piece(&s, 1, true);
    enlarge(s.w.store);
    run(&s, &prompt, 0, 0, fresh);
    run(&s, &step, 6, 6, fresh);
    run(&s, &prompt, 9, 7, other);
    int32_t *mark = tn_bound_data(prompt.bound, "reset");
    if (mark)
        for (int b = 0; b < B; b++) mark[b * 6] = 1;
    assert_true(p->attends || mark);
    run(&s, &prompt, 0, 0, got);
    run(&s, &step, 6, 6, got);
    const double most =
        near_by(p->variant && strstr(p->variant->line, "rotate") ? 5e-5 : 1e-5); /* angles go on: rounding differs */
    for (int b = 0; b < B; b++) {
        const double off = tn_world_distance(got + b * S * V, fresh + b * S * V, 7 * V);
        if (!(off < most)) fail_msg("off by %g", off);
    }
    close_stage(&s);
}

/* Two documents in one sequence: the second is as if alone. */
static void documents_are_apart(void **state)
{
    static float both[B * S * V], alone[B * S * V];
    stage s;
    open_stage(&s, *state);
    const piece all = add_piece(&s, S, false), second = add_piece(&s, S - 9, false);
    enlarge(s.w.store);
    for (int b = 0; b < B; b++) ((int32_t *)tn_world_data(all.bound, "reset"))[b * S + 9] = 1;
    run(&s, &all, 0, 0, both);
    run(&s, &second, 9, 0, alone);
    for (int b = 0; b < B; b++) {
        const int64_t at = (b * S + 9) * V;
        assert_true(tn_world_distance(both + at, alone + at, (S - 9) * V) < near_by(1e-5));
    }
    close_stage(&s);
}

/* The same for attention, which reads the numbers of documents, and a convolution before it, which reads marks: rotary
 * positions are relative, so places do not matter. */
static void attention_stays_inside(void **state)
{
    static float both[B * S * V], alone[B * S * V];
    stage s;
    open_stage(&s, *state);
    tn_graph *g = tn_world_graph_on(tn_test_device(), &(tn_graph_options){ .threads = 2 });
    piece all = { .batch = { .size = sizeof all.batch, .batch = B, .length = S, .want = { "logits" }, .n_wants = 1 } };
    tn_batch_add(&all.batch, "tokens", tn_input(g, "tokens", tn_shape(B, S), TN_I32));
    tn_batch_add(&all.batch, "document", tn_input(g, "document", tn_shape(B, S), TN_I32));
    tn_batch_add(&all.batch, "reset", tn_input(g, "reset", tn_shape(B, S), TN_I32));
    assert_ok(s.model->build(g, s.st, &all.batch));
    all.bound = tn_world_add(&s.w, g, NULL);
    const piece second = add_piece(&s, S - 9, false);
    enlarge(s.w.store);
    for (int i = 0; i < B * S; i++) ((int32_t *)tn_world_data(all.bound, "document"))[i] = i % S >= 9;
    int32_t *mark = tn_bound_data(all.bound, "reset");
    for (int b = 0; mark && b < B; b++) mark[b * S + 9] = 1;
    run(&s, &all, 0, 0, both);
    run(&s, &second, 9, 0, alone);
    for (int b = 0; b < B; b++) {
        const int64_t at = (b * S + 9) * V;
        assert_true(tn_world_distance(both + at, alone + at, (S - 9) * V) < near_by(1e-4));
    }
    close_stage(&s);
}

static void scales_go_token_by_token(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, &(pupil){ "ten", { "pattern=E", "hten=1,2" }, false, true, NULL });
    tn_graph *g = tn_world_graph_on(tn_test_device(), &(tn_graph_options){ .threads = 2 });
    tn_batch b = { .size = sizeof b, .batch = B, .length = 2, .want = { "logits" }, .n_wants = 1 };
    tn_batch_add(&b, "tokens", tn_input(g, "tokens", tn_shape(B, 2), TN_I32));
    tn_decode_cache_inputs(g, &b, 32);
    assert_fails(s.model->build(g, s.st, &b), TN_USAGE, "token by token");
    tn_graph_free(g);
    close_stage(&s);
}

/* Every line of docs/variants.md. Where positions are a table, a second document is not as if alone. */
static void add_variants(tn_test_list *l)
{
    static pupil all[TN_VARIANTS];
    for (size_t i = 0; i < TN_VARIANTS; i++) {
        const tn_variant *v = &tn_variants[i];
        const bool attends = strcmp(v->model, "gpt") == 0 || strstr(v->line, "hybrid");
        const bool table = strstr(v->line, "gpt2") || strstr(v->line, "ten_b");
        all[i] = (pupil){ .model = v->model, .variant = v, .attends = attends };
        tn_test_add(l, whole_equals_steps, &all[i], "variants: prompt and steps equal the whole, %s", v->name);
        tn_test_add(l, starts_afresh, &all[i], "variants: a new sequence starts afresh, %s", v->name);
        if (attends && !table)
            tn_test_add(l, attention_stays_inside, &all[i], "variants: attention stays inside a document, %s", v->name);
        if (!attends && !table)
            tn_test_add(l, documents_are_apart, &all[i], "variants: documents are apart, %s", v->name);
    }
}

void tn_tests_decode_cache(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof pupils / sizeof *pupils; i++) {
        const pupil *p = &pupils[i];
        char name[128];
        snprintf(name, sizeof name, "%s %s %s", p->model, p->more[0], p->more[1] ? p->more[1] : "");
        tn_test_add(l, whole_equals_steps, p, "decode cache: prompt and steps equal the whole, %s", name);
        if (!p->single) tn_test_add(l, starts_afresh, p, "decode cache: a new sequence starts afresh, %s", name);
        const bool positions =
            strncmp(p->more[0], "preset", 6) == 0 || (p->more[3] && strcmp(p->more[3], "pos=sin") == 0);
        const bool rotary = strcmp(p->more[0], "shape=llama") == 0 || strcmp(p->more[0], "pattern=W") == 0;
        if (rotary)
            tn_test_add(l, attention_stays_inside, p, "decode cache: attention stays inside a document, %s", name);
        if (!p->attends && !positions)
            tn_test_add(l, documents_are_apart, p, "decode cache: documents are apart, %s", name);
    }
    add_variants(l);
    tn_test_add(l, scales_go_token_by_token, NULL, "decode cache: scales go token by token");
}
