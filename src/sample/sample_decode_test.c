/* Decoding against the whole sequence, on the device of TENON_TEST_DEVICE: at batch 64, and at contexts of several tiles of
 * keys; greedy decoding; half precision; caches that do not fit; a context that is only pretended. */
#include "base/alloc.h"
#include "decode_stage.h"

#include <stdio.h>

enum { STEPS = 6 };

/* Heads of 64 and 32 numbers, alone and in groups of 2 and 3: each takes another kernel where a cache is read as it lies. */
static const pupil pupils[] = {
    { "ten", { "dim=32" }, 64, 20, false, false },
    { "ten", { "dim=32" }, 2, 300, false, false },
    { "ten", { "dim=32", "pattern=DW", "window=70" }, 2, 300, false, false },
    { "gpt", { "dim=128", "heads=2" }, 64, 70, true, false },
    { "gpt", { "dim=128", "heads=2" }, 1, 300, true, false },
    { "gpt", { "dim=128", "heads=2", "kv_heads=1" }, 2, 300, true, false },
    { "gpt", { "dim=192", "heads=6", "kv_heads=2" }, 3, 200, true, false },
    { "gpt", { "dim=128", "heads=4" }, 2, 200, true, false },
    { "gpt", { "dim=128", "heads=2" }, 1, 256, true, false }, /* a piece that is longer than what is left */
    { "gpt", { "dim=128", "heads=2", "compute=bf16" }, 3, 512, false, true },
    { "gpt", { "dim=128", "heads=2", "compute=bf16" }, 2, 300, false, true },
    { "gpt", { "dim=128", "heads=2", "compute=bf16" }, 64, 70, false, true },
    { "ten", { "dim=32", "compute=bf16" }, 2, 100, false, true },
    /* several times what caches of the window have */
    { "ten", { "dim=32", "pattern=W", "window=70" }, 3, 1000, true, false },
    { "ten", { "dim=32", "pattern=OOOW", "layers=4", "window=70" }, 1, 1000, false, false },
    { "ten", { "dim=32", "pattern=W", "window=300", "train.context=1024" }, 2, 1500, true, false },
    { "ten", { "dim=32", "pattern=DW", "window=30", "compute=bf16" }, 2, 900, false, true },
};

static void equals_whole(void **state)
{
    const pupil *p = *state;
    const float *logits;
    stage s;
    open_stage(&s, p);
    tn_decoder *d = open_decoder(&s, p->batch, p->length, 2);
    const int64_t prompt = p->length - STEPS;
    int32_t *in = calloc((size_t)(p->batch * prompt), sizeof *in);
    assert_non_null(in);
    gather(&s, p, 0, prompt, in);
    assert_ok(tn_decoder_feed(d, in, prompt, &logits));
    check_logits(&s, p, prompt - 1, logits);
    for (int64_t t = prompt; t < p->length; t++) {
        gather(&s, p, t, 1, in);
        assert_ok(tn_decoder_feed(d, in, 1, &logits));
        check_logits(&s, p, t, logits);
    }
    free(in);
    tn_decoder_free(d);
    close_stage(&s);
}

/* --- rows of different length ------------------------------------------------------------------------------------------ */

/* On the device of TENON_TEST_DEVICE: prompts of different length side by side give the logits that each gives alone, at once and in
 * the tokens after, and a second prompt behind them too. */
enum { RAGGED = 5, RAGGED_MOST = 75, TIMES = 12 };

typedef struct ragged_row {
    const char *model, *more[4];
    bool exact;    /* on the CPU */
    int64_t times; /* the prompts are so many times as long as they are below */
} ragged_row;

static const ragged_row ragged_rows[] = {
    { "gpt", { "heads=4", "kv_heads=2" }, true, 1 },
    { "gpt", { "shape=gpt2", "heads=2" }, true, 1 },
    { "gpt_conv_gate", { "heads=4" }, true, 1 },
    { "ten", { "pattern=DW", "window=10" }, false, 1 },
    { "ten", { "pattern=DOE", "hten=1,2" }, false, 1 },
    { "ten", { "pattern=W", "window=10", "train.context=900" }, true, TIMES },
    { "ten", { "pattern=OOOW", "layers=4", "window=40", "train.context=900" }, false, TIMES },
};

static const int64_t ragged_length[2][RAGGED] = { { 40, 1, 7, 33, 2 }, { 3, 20, 1, 8, 30 } };

static int32_t ragged_token(int64_t row, int64_t t) { return (int32_t)((row * 31 + t * t * 7 + t) % V); }

/* Two prompts and then three tokens of rows [row, row + batch): logits after each of the five. */
static void feed_ragged(tn_decoder *d, const ragged_row *r, int64_t row, int64_t batch, float *out)
{
    enum { MOST_TOKENS = RAGGED_MOST * TIMES };
    static int32_t tokens[RAGGED * MOST_TOKENS];
    int64_t at[RAGGED] = { 0 };
    const float *logits;
    for (int k = 0; k < 5; k++) {
        int64_t length[RAGGED];
        memset(tokens, 0, sizeof tokens);
        for (int64_t b = 0; b < batch; b++) {
            length[b] = k < 2 ? r->times * ragged_length[k][row + b] : 1;
            for (int64_t t = 0; t < length[b]; t++) tokens[b * MOST_TOKENS + t] = ragged_token(row + b, at[b]++);
        }
        assert_ok(tn_decoder_feed_rows(d, tokens, MOST_TOKENS, length, &logits));
        memcpy(out + k * batch * V, logits, sizeof *out * (size_t)(batch * V));
    }
}

static void ragged_is_alone(void **state)
{
    const ragged_row *r = *state;
    static float together[5 * RAGGED * V], alone[5 * V];
    const char *list[16] = { "layers=2", "vocab=37", "train.context=75", "dim=64", "compute=f32" };
    size_t n = 5;
    for (int i = 0; i < 4 && r->more[i]; i++) list[n++] = r->more[i];
    stage s = { .w = tn_world_open_on(tn_test_device(), 3, 2) };
    assert_ok(tn_settings_resolve(r->model, list, n, &s.st, &s.model));
    tn_decoder *d = open_decoder(&s, RAGGED, r->times * RAGGED_MOST, 2);
    feed_ragged(d, r, 0, RAGGED, together);
    if (r->times > 1) assert_true(d->window && d->slot[0] < d->position[0]);
    tn_decoder_free(d);
    const double most = tn_test_device() != TN_CPU ? 2e-2 : r->exact ? 0 : 2e-5;
    for (int b = 0; b < RAGGED; b++) {
        d = open_decoder(&s, 1, r->times * RAGGED_MOST, 2);
        feed_ragged(d, r, b, 1, alone);
        tn_decoder_free(d);
        for (int k = 0; k < 5; k++) {
            const double off = tn_world_distance(together + (k * RAGGED + b) * V, alone + k * V, V);
            if (!(off <= most)) fail_msg("row %d is off by %g after call %d", b, off, k);
        }
    }
    close_stage(&s);
}

static void ragged_is_checked(void **state)
{
    const float *logits;
    int32_t tokens[2 * 4] = { 1, 2, 3, 4, 5, 6, V, 7 };
    (void)state;
    const char *list[] = { "layers=1", "vocab=37", "train.context=8", "dim=32" };
    stage s = { .w = tn_world_open_on(tn_test_device(), 3, 1) };
    assert_ok(tn_settings_resolve("gpt", list, 4, &s.st, &s.model));
    tn_decoder *d = open_decoder(&s, 2, 6, 1);
    assert_fails(tn_decoder_feed_rows(d, tokens, 4, (const int64_t[]){ 4, 0 }, &logits), TN_USAGE,
                 "row 1 has 0 tokens");
    assert_fails(tn_decoder_feed_rows(d, tokens, 4, (const int64_t[]){ 5, 1 }, &logits), TN_USAGE,
                 "row 0 has 5 tokens");
    assert_fails(tn_decoder_feed_rows(d, tokens, 4, (const int64_t[]){ 4, 3 }, &logits), TN_USAGE,
                 "token 37 is outside");
    assert_ok(
        tn_decoder_feed_rows(d, tokens, 4, (const int64_t[]){ 4, 2 }, &logits)); /* the bad one is not looked at */
    assert_int_equal(tn_decoder_tokens_left(d), 2);
    assert_fails(tn_decoder_feed_rows(d, tokens, 4, (const int64_t[]){ 3, 1 }, &logits), TN_USAGE,
                 "3 tokens after 4 do not fit into a context of 6");
    assert_ok(tn_decoder_feed_rows(d, tokens, 4, (const int64_t[]){ 1, 2 }, &logits));
    assert_ok(tn_decoder_feed_rows(d, tokens, 4, (const int64_t[]){ 1, 2 }, &logits)); /* to the last place */
    tn_decoder_free(d);
    close_stage(&s);
}

/* --- greedy ----------------------------------------------------------------------------------------------------------- */

/* What greedy gives in one go is what feeding back the largest logit gives, whatever the threads. */
static void greedy_is_feeding(void **state)
{
    static const pupil p = { "gpt", { "dim=32", "heads=4" }, 5, 12, true, false };
    enum { B = 5, N = 9 };
    int32_t first[B], once[B * N], parts[B * N], next[B];
    const float *logits;
    stage s;
    (void)state;
    open_stage(&s, &p);
    gather(&s, &p, 0, 1, first);
    tn_decoder *d = open_decoder(&s, B, 16, 2);
    assert_ok(tn_decoder_greedy(d, first, N, once));
    assert_fails(tn_decoder_greedy(d, first, 16, parts), TN_USAGE, "16 tokens after 9 do not fit into a context of 16");
    tn_decoder_free(d);
    d = open_decoder(&s, B, 16, 1);
    memcpy(next, first, sizeof next);
    for (int i = 0; i < N; i++) {
        assert_ok(tn_decoder_feed(d, next, 1, &logits));
        for (int b = 0; b < B; b++) parts[b * N + i] = next[b] = largest(logits + b * V);
    }
    assert_memory_equal(once, parts, sizeof once);
    tn_memory_set(s.w.store, (float *)tn_world_entry(&s.w, "norm_f.w")->data + 3, NAN);
    tn_decoder_clear(d); /* weights may change here, and are packed again */
    assert_fails(tn_decoder_greedy(d, first, 2, parts), TN_DIVERGED, "a logit is NaN");
    tn_decoder_free(d);
    close_stage(&s);
}

/* On the device of TENON_TEST_DEVICE: whoever chooses, and however far ahead, the tokens are the same; so they are when a text is
 * asked for in two pieces. */
static void ahead_chooses_alike(void **state)
{
    enum { B = 3, N = 24 };
    static const char *const models[] = { "gpt", "ten" };
    (void)state;
    for (int m = 0; m < 2; m++) {
        int32_t out[2][B * N], piece[2][B * N / 2];
        for (int on = 0; on < 2; on++) {
            const int32_t first[B] = { 1, 2, 3 };
            const char *list[] = { "dim=64",
                                   "heads=2",
                                   "layers=2",
                                   "vocab=37",
                                   "train.context=64",
                                   "compute=f32",
                                   on ? "opt.decode_ahead=on" : "opt.decode_ahead=off" };
            stage s = { .w = tn_world_open_on(tn_test_device(), 3, 2) };
            assert_ok(tn_settings_resolve(models[m], list, sizeof list / sizeof *list, &s.st, &s.model));
            tn_decoder *d = open_decoder(&s, B, N + 1, 2);
            assert_ok(tn_decoder_greedy(d, first, N, out[on]));
            tn_decoder_clear(d);
            assert_ok(tn_decoder_greedy(d, first, N / 2, piece[0]));
            int32_t next[B];
            for (int b = 0; b < B; b++) next[b] = piece[0][b * (N / 2) + N / 2 - 1];
            assert_ok(tn_decoder_greedy(d, next, N / 2, piece[1]));
            for (int b = 0; b < B; b++)
                for (int i = 0; i < N; i++)
                    assert_int_equal(out[on][b * N + i], piece[i / (N / 2)][b * (N / 2) + i % (N / 2)]);
            tn_decoder_free(d);
            close_stage(&s);
        }
        assert_memory_equal(out[0], out[1], sizeof out[0]);
    }
}

/* On the device of TENON_TEST_DEVICE: a token in a few kernels is the token in many, whatever its state and cache hold, and twice in the
 * same bits. In bf16 sums of another order round differently. */
typedef struct fused_row {
    const char *model, *more[4];
    int vocab;
    int64_t context; /* 0: FUSED_CONTEXT; a longer one has caches of windows */
} fused_row;

static const fused_row fused_rows[] = {
    { "ten", { "pattern=DO" }, 1000, 0 },
    { "ten", { "pattern=DOEW", "window=16" }, 1000, 0 },
    { "ten", { "dim=512", "heads=8" }, 1000, 0 },
    { "ten_b", { NULL }, 1000, 0 },
    { "ten_static", { NULL }, 1000, 0 },
    { "ten_hybrid", { NULL }, 1000, 0 },
    { "ten_hybrid", { "window=40" }, 1000, 3000 },
    { "gpt", { "heads=2" }, 1000, 0 },
    { "gpt", { "heads=4", "kv_heads=2" }, 1000, 0 },
    { "gpt", { "heads=2", "shape=gpt2" }, 1000, 0 },
    { "gpt_conv_gate", { "heads=2" }, 1000, 0 },
    { "ten", { "dim=72", "heads=3", "k=20" }, 1000, 0 },
    /* rows that a warp makes four at a time, the last of them fewer; vectors of two pairs a thread, and longer ones */
    { "ten", { "dim=512", "heads=8" }, 9001, 0 },
    { "gpt", { "dim=1024", "heads=8", "layers=2" }, 9001, 0 },
    { "gpt", { "dim=1088", "heads=8", "layers=2" }, 1000, 0 },
    /* rows that are cut into pieces, the last of them shorter; a gate of more numbers than are fetched otherwise */
    { "gpt", { "ffn=3000", "heads=2" }, 1000, 0 },
    { "gpt", { "dim=1536", "heads=12", "layers=1", "ffn=8192" }, 1000, 0 },
    { "gpt", { "heads=2", "rope_stretch=8", "rope_stretch_context=16" }, 1000, 0 },
    { "gpt", { "heads=2", "rope_scaling=yarn", "rope_stretch=4", "rope_stretch_context=16" }, 1000, 0 },
    { "gpt", { "heads=2", "rope_scaling=linear", "rope_stretch=4" }, 1000, 0 },
};

enum { FUSED_TOKENS = 7, FUSED_MOST = 9001, FUSED_CONTEXT = 40 };

static void fused_logits(const fused_row *r, bool half, bool on, float *out)
{
    char vocab[32];
    const char *list[16] = { "layers=4", vocab, "train.context=64", "dim=128" };
    size_t n = 4;
    const int words = r->vocab;
    (void)snprintf(vocab, sizeof vocab, "vocab=%d", words);
    for (int i = 0; i < 4 && r->more[i]; i++) list[n++] = r->more[i];
    list[n++] = half ? "compute=bf16" : "compute=f32";
    list[n++] = half ? "opt.decode_half=on" : "opt.decode_half=off";
    list[n++] = on ? "opt.decode_fused=on" : "opt.decode_fused=off";
    stage s = { .w = tn_world_open_on(tn_test_device(), 3, 2) };
    assert_ok(tn_settings_resolve(r->model, list, n, &s.st, &s.model));
    const int64_t context = r->context ? r->context : FUSED_CONTEXT;
    tn_decoder *d = open_decoder(&s, 1, context, 2);
    assert_ok(tn_decoder_fill_to(d, context / 2 + 1, 5));
    assert_true((d->window > 0) == (r->context > 0));
    for (int32_t i = 0; i < FUSED_TOKENS; i++) { /* queued, recorded, replayed */
        const float *logits;
        const int32_t token = 31 * i % words;
        assert_ok(tn_decoder_feed(d, &token, 1, &logits));
        memcpy(out + i * words, logits, sizeof *out * (size_t)words);
    }
    tn_decoder_free(d);
    close_stage(&s);
}

static void fused_is_plain(void **state)
{
    const fused_row *r = *state;
    static float plain[FUSED_TOKENS * FUSED_MOST], fused[FUSED_TOKENS * FUSED_MOST], again[FUSED_TOKENS * FUSED_MOST];
    const int words = r->vocab;
    for (int half = 0; half < 2; half++) {
        fused_logits(r, half, false, plain);
        fused_logits(r, half, true, fused);
        fused_logits(r, half, true, again);
        assert_memory_equal(fused, again, sizeof *fused * FUSED_TOKENS * (size_t)words);
        for (int i = 0; i < FUSED_TOKENS; i++) {
            const double far = tn_world_distance(fused + i * words, plain + i * words, (size_t)words);
            if (!(far <= (half ? 4e-2 : 2e-5))) fail_msg("%s, token %d: %.1e apart", half ? "bf16" : "f32", i, far);
        }
    }
}

/* --- memory ----------------------------------------------------------------------------------------------------------- */

/* Where there is no memory for a long piece of a prompt, shorter ones do. */
static void long_pieces_may_not_fit(void **state)
{
    (void)state;
    enum { B = 8, TOKENS = 258, WORDS = 37 };
    static const pupil p = { "gpt", { "dim=32", "heads=4" }, B, TOKENS, true, false };
    int32_t tokens[B * TOKENS];
    float want[B * WORDS];
    size_t most = 0;
    stage s = { .w = tn_world_open_on(tn_test_device(), 3, 1) };
    resolve(&s, &p);
    for (int32_t i = 0; i < B * TOKENS; i++) tokens[i] = 7 * i % WORDS;
    for (int limited = 0; limited < 2; limited++) {
        const float *logits;
        tn_decoder *d = open_decoder(&s, B, TOKENS + 8, 1);
        assert_true(tn_context_bytes(d->context) < most || !limited);
        if (limited) tn_alloc_fail_above(most / 2);
        const tn_status fed = tn_decoder_feed(d, tokens, TOKENS, &logits);
        tn_alloc_fail_above(0);
        assert_int_equal(fed, TN_OK);
        assert_true(!limited || tn_context_bytes(d->context) <= most / 2);
        if (!limited) most = tn_context_bytes(d->context), memcpy(want, logits, sizeof want);
        for (int i = 0; i < B * WORDS; i++) assert_true(fabsf(want[i] - logits[i]) < 1e-5f);
        tn_decoder_free(d);
    }
    close_stage(&s);
}

static void too_large_is_refused(void **state)
{
    static const pupil p = { "gpt", { "dim=128", "heads=2" }, 1, 8, true, false };
    stage s;
    tn_decoder *d = NULL;
    (void)state;
    open_stage(&s, &p);
    tn_decoder_options o = {
        .model = s.model, .settings = s.st, .store = s.w.store, .batch = 64, .capacity = 1000000000, .threads = 1
    };
    assert_fails(tn_decoder_new(&o, &d), TN_MEMORY, "use a smaller context or batch");
    o.capacity = 8; /* and nothing of it is left behind */
    assert_ok(tn_decoder_new(&o, &d));
    tn_decoder_free(d);
    close_stage(&s);
}

/* Caches have the type of products, and are what a plan says it keeps. */
static void caches_are_half(void **state)
{
    static const pupil p[2] = { { "gpt", { "dim=32", "heads=4" }, 2, 8, true, false },
                                { "gpt", { "dim=32", "heads=4", "compute=bf16" }, 2, 8, false, true } };
    (void)state;
    for (int i = 0; i < 2; i++) {
        stage s;
        open_stage(&s, &p[i]);
        tn_decoder *d = open_decoder(&s, 2, 10, 1);
        const tn_entry *e = tn_world_entry(&s.w, "layer1.attn.keys");
        assert_int_equal(e->dtype, i ? TN_BF16 : TN_F32);
        const size_t cache = 2 * 10 * 32 * tn_dtype_bytes(e->dtype); /* a multiple of 64: nothing is rounded up */
        if (tn_test_device() == TN_CPU) assert_int_equal(tn_plan_memory(tn_decoder_plan(d)).state, 4 * cache);
        tn_decoder_free(d);
        close_stage(&s);
    }
}

/* All weights but a table that is only looked up in; each once. */
static void weights_count_once(void **state)
{
    static const pupil p[2] = {
        { "gpt", { "dim=32", "heads=4", "opt.pack_weights=off" }, 1, 8, true, false },
        { "gpt", { "dim=32", "heads=4", "opt.pack_weights=off", "tied=false" }, 1, 8, true, false }
    };
    (void)state;
    if (tn_test_device() != TN_CPU) {
        print_message("skipped: which steps of a plan read weights is looked at on the CPU\n");
        return;
    }
    for (int i = 0; i < 2; i++) {
        stage s;
        size_t bytes = 0;
        open_stage(&s, &p[i]);
        for (size_t k = 0; k < tn_store_count(s.w.store); k++) {
            const tn_entry *e = tn_store_at(s.w.store, k);
            if (i == 0 || strcmp(e->name, "embed") != 0)
                bytes += ((size_t)tn_dims_count(e->dims) * sizeof(float) + 63) / 64 * 64;
        }
        tn_decoder *d = open_decoder(&s, 1, 10, 1);
        assert_int_equal(tn_plan_weight_bytes(tn_decoder_plan(d)), bytes);
        tn_decoder_free(d);
        close_stage(&s);
    }
}

/* --- measuring -------------------------------------------------------------------------------------------------------- */

/* Tokens stand at one position, with something before it; a new text knows nothing of that. */
static void pretends(void **state)
{
    static const pupil p = { "gpt", { "dim=128", "heads=2" }, 2, 8, true, false };
    float fresh[2 * V], after[2 * V];
    const int32_t tokens[2] = { 1, 2 };
    const float *logits;
    int32_t out[2 * 40];
    stage s;
    (void)state;
    open_stage(&s, &p);
    tn_decoder *d = open_decoder(&s, 2, 100, 2);
    assert_ok(tn_decoder_feed(d, tokens, 1, &logits));
    memcpy(fresh, logits, sizeof fresh);
    assert_fails(tn_decoder_fill_to(d, 100, 1), TN_USAGE, "fill a context of 100");
    assert_ok(tn_decoder_fill_to(d, 99, 1));
    assert_ok(tn_decoder_greedy(d, tokens, 40, out)); /* more than fit behind it */
    assert_ok(tn_decoder_feed(d, tokens, 1, &logits));
    assert_true(tn_world_distance(logits, fresh, 2 * V) > 1e-3);
    tn_decoder_clear(d);
    assert_ok(tn_decoder_feed(d, tokens, 1, &logits));
    memcpy(after, logits, sizeof after);
    assert_true(tn_world_same(after, fresh, 2 * V, 1e-5));
    tn_decoder_free(d);
    close_stage(&s);
}

void tn_tests_sample_decode(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof pupils / sizeof *pupils; i++) {
        const pupil *p = &pupils[i];
        char name[160];
        int n = snprintf(name, sizeof name, "%s", p->model);
        for (int k = 0; k < 5 && p->more[k]; k++) n += snprintf(name + n, sizeof name - (size_t)n, " %s", p->more[k]);
        tn_test_add(l, equals_whole, p, "decode: steps equal the whole, %s, %d x %d", name, (int)p->batch,
                    (int)p->length);
    }
    for (size_t i = 0; i < sizeof ragged_rows / sizeof *ragged_rows; i++)
        tn_test_add(l, ragged_is_alone, &ragged_rows[i],
                    "decode: rows of different length are what each is alone, %s %s", ragged_rows[i].model,
                    ragged_rows[i].more[0]);
    tn_test_add(l, ragged_is_checked, NULL, "decode: rows of different length are checked");
    /* the CPU has no fused kernel, and would compare a plan with itself */
    for (size_t i = 0; i < sizeof fused_rows / sizeof *fused_rows && tn_test_device() == TN_CUDA; i++)
        tn_test_add(l, fused_is_plain, &fused_rows[i], "decode: the device's fused token, %s %s, %d words",
                    fused_rows[i].model, fused_rows[i].more[0] ? fused_rows[i].more[0] : "", fused_rows[i].vocab);
    tn_test_add(l, greedy_is_feeding, NULL, "decode: greedy is feeding back the largest logit");
    tn_test_add(l, ahead_chooses_alike, NULL, "decode: the device that chooses ahead chooses alike");
    if (tn_test_device() == TN_CPU) /* its memory can be refused */
        tn_test_add(l, long_pieces_may_not_fit, NULL, "decode: shorter pieces where a long one does not fit");
    tn_test_add(l, too_large_is_refused, NULL, "decode: a cache that cannot fit is refused");
    tn_test_add(l, caches_are_half, NULL, "decode: caches are bf16 where products are");
    tn_test_add(l, weights_count_once, NULL, "decode: weights read for a token count once");
    tn_test_add(l, pretends, NULL, "decode: a context that is only pretended");
}
