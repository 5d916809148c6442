/* Decoding with frozen weights in bf16 and f16 on the CPU against the same numbers in f32: the same logits bit for bit, in
 * pieces of a prompt and token by token; nothing is drawn, nothing has a gradient, and matrices take the bytes of their type. */
#include "sample/sample_decode.h"
#include "train/run/train_settings.h"
#include "world.h"

enum { V = 300, T = 41, MOST = 16 };

typedef struct pupil {
    const char *more[6];
    tn_dtype type;
    int64_t batch;
    int64_t numbers; /* of matrices */
} pupil;

enum { D = 64, F = 96 };

/* llama, tied and not, of such a batch that weights are read in place and packed; gpt2, whose positions are added. */
static const pupil pupils[] = {
    { { "kv_heads=2", "ffn=96", "opt.pack_weights=off" }, TN_BF16, 1, V *D + 2 * (2 * D * D + D * D + 3 * F * D) },
    { { "kv_heads=2", "ffn=96", "opt.pack_weights=off" }, TN_F16, 1, V *D + 2 * (2 * D * D + D * D + 3 * F * D) },
    { { "tied=false", "qkv_bias=true", "ffn=96" }, TN_BF16, 3, 2 * V *D + 2 * (3 * D * D + D * D + 3 * F * D) },
    { { "tied=false", "gate=silu", "ffn=96" }, TN_F16, 7, 2 * V *D + 2 * (3 * D * D + 2 * D * D + 3 * F * D) },
    { { "shape=gpt2", "ffn=96" }, TN_BF16, 2, V *D + 2 * (3 * D * D + D * D + 2 * F * D) },
};

static void open_settings(const pupil *p, const tn_model **model, tn_settings **st)
{
    const char *list[MOST] = { "layers=2", "vocab=300", "dim=64", "heads=4", "train.context=64", "threads=2" };
    size_t n = 6;
    for (int i = 0; i < 6 && p->more[i]; i++) list[n++] = p->more[i];
    assert_ok(tn_settings_resolve("gpt", list, n, st, model));
}

/* Larger than first values are, and exact in the type: then f32 computes with the same numbers. */
static void round_matrices(tn_store *st, tn_dtype type)
{
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        float *x = e->data;
        for (int64_t k = 0; e->dims.rank == 2 && k < tn_dims_count(e->dims); k++) {
            uint16_t half;
            x[k] *= 4;
            tn_convert(&half, type, &x[k], TN_F32, 1);
            tn_convert(&x[k], TN_F32, &half, type, 1);
        }
    }
}

/* logits (B,T,V) of whole sequences, with trained parameters in f32. */
static void run_whole(tn_world *w, const tn_model *model, const tn_settings *st, const pupil *p, const int32_t *tokens,
                      float *logits)
{
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .threads = 2 });
    tn_batch b = { .size = sizeof b, .batch = p->batch, .length = T, .want = { "logits" }, .n_wants = 1 };
    tn_batch_add(&b, "tokens", tn_input(g, "tokens", tn_shape(p->batch, T), TN_I32));
    assert_ok(model->build(g, st, &b));
    tn_bound *whole = tn_world_add(w, g, NULL);
    round_matrices(w->store, p->type);
    memcpy(tn_world_data(whole, "tokens"), tokens, sizeof *tokens * (size_t)(p->batch * T));
    assert_ok(tn_run(whole));
    memcpy(logits, tn_world_data(whole, "logits"), sizeof *logits * (size_t)(p->batch * T * V));
}

static void load(tn_store *to, const tn_store *from, const pupil *p)
{
    int64_t numbers = 0;
    for (size_t i = 0; i < tn_store_count(to); i++) {
        const tn_entry *e = tn_store_at(to, i);
        if (!e->weight) continue;
        const int64_t n = tn_dims_count(e->dims), half = n / 2;
        const bool position = strcmp(e->name, "position") == 0; /* added, not multiplied by */
        const unsigned char *bytes = e->data;
        const float *x = tn_store_find(from, e->name)->data;
        assert_int_equal(e->role, TN_ROLE_FROZEN);
        assert_int_equal(e->dtype, e->dims.rank == 2 && !position ? p->type : TN_F32);
        for (int64_t k = 0; k < n * (int64_t)tn_dtype_bytes(e->dtype); k++) assert_int_equal(bytes[k], 0);
        assert_ok(tn_store_put(to, e, 0, half, x, TN_F32));
        assert_ok(tn_store_put(to, e, half, n - half, x + half, TN_F32));
        if (e->dtype != TN_F32) numbers += n;
    }
    assert_int_equal(numbers, p->numbers);
    assert_int_equal(tn_store_buckets(to), 0);
}

static void check(const pupil *p, int64_t t, const float *got, const float *whole)
{
    for (int64_t b = 0; b < p->batch; b++) assert_memory_equal(got + b * V, whole + (b * T + t) * V, sizeof *got * V);
}

static void frozen_is_f32(void **state)
{
    const pupil *p = *state;
    const tn_model *model;
    tn_settings *st;
    tn_store *store;
    tn_decoder *d;
    const float *got;
    enum { PROMPT = T - 3 };
    int32_t *tokens = calloc((size_t)(p->batch * T), sizeof *tokens), *in = calloc((size_t)(p->batch * T), sizeof *in);
    float *logits = calloc((size_t)(p->batch * T * V), sizeof *logits);
    assert_true(tokens && in && logits);
    uint32_t x = 7;
    for (int64_t i = 0; i < p->batch * T; i++) tokens[i] = (int32_t)((x = x * 1664525u + 1013904223u) >> 20) % V;
    open_settings(p, &model, &st);
    tn_world w = tn_world_open(3, 2);
    run_whole(&w, model, st, p, tokens, logits);
    assert_ok(tn_store_new(TN_CPU, 3, &store));
    assert_ok(tn_decoder_new(&(tn_decoder_options){ .model = model,
                                                    .settings = st,
                                                    .store = store,
                                                    .frozen = true,
                                                    .weights = p->type,
                                                    .batch = p->batch,
                                                    .capacity = T },
                             &d));
    load(store, w.store, p);
    for (int64_t b = 0; b < p->batch; b++) memcpy(in + b * PROMPT, tokens + b * T, sizeof *in * PROMPT);
    assert_ok(tn_decoder_feed(d, in, PROMPT, &got));
    check(p, PROMPT - 1, got, logits);
    for (int64_t t = PROMPT; t < T; t++) {
        for (int64_t b = 0; b < p->batch; b++) in[b] = tokens[b * T + t];
        assert_ok(tn_decoder_feed(d, in, 1, &got));
        check(p, t, got, logits);
    }
    tn_decoder_free(d);
    tn_store_free(store);
    tn_world_close(&w);
    tn_settings_free(st);
    free(tokens);
    free(in);
    free(logits);
}

/* --- on the device of TENON_TEST_DEVICE ------------------------------------------------------------------------------ */

enum { PIECE = 5, ROWS = 3 };

/* logits (ROWS,V) after some tokens: the first at once, then one by one. */
static void decode(const tn_model *model, const tn_settings *st, tn_store *store, const tn_store *from, float *logits)
{
    const int32_t prompt[ROWS * PIECE] = { 5, 17, 250, 3, 99, 101, 42, 0, 299, 7, 7, 8, 120, 31, 200 };
    const float *got;
    tn_host_copy host = { 0 };
    tn_decoder *d;
    assert_ok(tn_decoder_new(
        &(tn_decoder_options){
            .model = model, .settings = st, .store = store, .frozen = from != NULL, .batch = ROWS, .capacity = T },
        &d));
    for (size_t i = 0; from && i < tn_store_count(store); i++) {
        const tn_entry *e = tn_store_at(store, i), *f = tn_store_find(from, e->name);
        const int64_t n = tn_dims_count(e->dims);
        if (!e->weight) continue;
        const void *x = tn_store_read(from, f->data, sizeof(float) * (size_t)n, &host);
        assert_non_null(x);
        assert_ok(tn_store_put(store, e, 0, n, x, TN_F32));
    }
    assert_ok(tn_decoder_feed(d, prompt, PIECE, &got));
    for (int32_t i = 0; i < 4; i++) assert_ok(tn_decoder_feed(d, (const int32_t[]){ i, 50 * i, 299 - i }, 1, &got));
    memcpy(logits, got, sizeof *logits * ROWS * V);
    tn_host_copy_free(&host);
    tn_decoder_free(d);
}

/* Where products are of halves, frozen weights are rounded once as they are loaded, trained ones for each text. A table of positions,
 * which is added, stays f32. */
static void rounded_alike(void **state)
{
    static const char *const computes[] = { "compute=f32", "compute=bf16" };
    for (int half = 0; half < 2; half++) {
        const char *list[] = { "layers=2", "vocab=300",        "dim=64",    "heads=4",     "ffn=96",
                               *state,     "train.context=64", "threads=2", computes[half] };
        const tn_device device = tn_test_device();
        const tn_model *model;
        tn_settings *st;
        tn_store *trained, *frozen;
        static float want[ROWS * V], got[ROWS * V];
        assert_ok(tn_settings_resolve("gpt", list, sizeof list / sizeof *list, &st, &model));
        assert_ok(tn_store_new(device, 3, &trained));
        assert_ok(tn_store_new(device, 4, &frozen));
        decode(model, st, trained, NULL, want);
        decode(model, st, frozen, trained, got);
        assert_int_equal(tn_store_find(frozen, "embed")->dtype, device != TN_CPU && half ? TN_BF16 : TN_F32);
        const double off = tn_world_distance(got, want, ROWS * V);
        if (!(off <= (device == TN_CPU ? 0 : half ? 4e-2 : 1e-4))) fail_msg("%s: off by %g", computes[half], off);
        tn_store_free(trained);
        tn_store_free(frozen);
        tn_settings_free(st);
    }
}

/* What is trained beside it is drawn, and what is frozen but no weight of the model too. */
static void only_weights_are_left(void **state)
{
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .weights = TN_BF16 });
    tn_store *s;
    (void)state;
    tn_matrix(g, "trained", tn_shape(4, 8), tn_normal(1.f));
    tn_frozen(g, "table", tn_shape(4, 8), TN_F32, tn_normal(1.f));
    tn_frozen_begin(g);
    tn_matrix(g, "matrix", tn_shape(4, 8), tn_normal(1.f));
    tn_param(g, "vector", tn_shape(8), tn_ones);
    tn_frozen_end(g);
    assert_ok(tn_graph_status(g));
    assert_ok(tn_store_new(TN_CPU, 3, &s));
    tn_store_loads_weights(s);
    assert_ok(tn_store_adopt(s, g));
    static const struct {
        const char *name;
        tn_dtype type;
        bool drawn;
    } rows[] = { { "trained", TN_F32, false },
                 { "table", TN_F32, true },
                 { "matrix", TN_BF16, false },
                 { "vector", TN_F32, false } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tn_entry *e = tn_store_find(s, rows[i].name);
        assert_int_equal(e->dtype, rows[i].type);
        assert_int_equal(((const unsigned char *)e->data)[0] || ((const unsigned char *)e->data)[3], rows[i].drawn);
    }
    tn_graph_free(g);
    tn_store_free(s);
}

void tn_tests_sample_frozen(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof pupils / sizeof *pupils; i++)
        tn_test_add(l, frozen_is_f32, (void *)(uintptr_t)&pupils[i], "decode: frozen %s weights, batch %d, %s %s",
                    tn_dtype_name(pupils[i].type), (int)pupils[i].batch, pupils[i].more[0], pupils[i].more[1]);
    static const char *const shapes[] = { "tied=false", "kv_heads=2", "qkv_bias=true", "gate=silu", "shape=gpt2" };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        tn_test_add(l, rounded_alike, shapes[i], "decode: frozen weights decode as trained ones, in f32 and bf16, %s",
                    shapes[i]);
    tn_test_add(l, only_weights_are_left, NULL, "store: weights that are loaded are not drawn");
}
