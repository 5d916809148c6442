/* Caches of a window (models/decode_cache.h), on the device of TENON_TEST_DEVICE: whatever runs in them gives what it gives in caches of all
 * positions, on the CPU in the same bits, however often their rows moved and wherever each sequence stands; a graph of several windows. */
#include "models/blocks.h"
#include "models/decode_cache.h"

#include "device_memory.h"
#include "plan/plan_internal.h"
#include "train/run/train_settings.h"
#include "world.h"

#include <stdio.h>

enum { B = 3, V = 23, LONGEST = 256, MOST = 900 };

typedef struct pupil {
    const char *line[4];
    int64_t window, length; /* tokens of the first sequence; the others stand behind it */
    tn_dtype round;
} pupil;

static const pupil pupils[] = {
    { { "pattern=W", "window=1" }, 1, 500, TN_F32 },
    { { "pattern=W", "window=5" }, 5, 800, TN_F32 },
    { { "pattern=W", "window=70" }, 70, 750, TN_F32 },
    { { "pattern=W", "window=70" }, 70, 750, TN_BF16 },
    { { "pattern=DW", "window=64" }, 64, 700, TN_F32 },
    { { "pattern=OOOW", "layers=4", "window=65" }, 65, 700, TN_F32 },
    { { "pattern=OOOW", "layers=4", "window=65" }, 65, 700, TN_BF16 },
};

/* --- one way to keep the past ---------------------------------------------------------------------------------------------- */

enum { PIECES = 5 };
static const int64_t lengths[PIECES] = { 1, 5, 64, 100, LONGEST };

typedef struct reader {
    tn_world w;
    tn_bound *bound[PIECES], *move;
    tn_batch batch[PIECES];
    int64_t window; /* of short caches, or 0 */
    int64_t position[B], slot[B];
    int moves;
} reader;

static tn_graph *build(const tn_model *m, const tn_settings *st, tn_dtype round, int64_t batch, int64_t T, bool cached,
                       bool slides, tn_batch *b)
{
    tn_graph *g = tn_world_graph_on(tn_test_device(), &(tn_graph_options){ .threads = 2, .round = round });
    *b = (tn_batch){ .size = sizeof *b, .batch = batch, .length = T, .want = { "logits" }, .n_wants = 1 };
    tn_batch_add(b, "tokens", tn_input(g, "tokens", tn_shape(batch, T), TN_I32));
    if (cached) tn_decode_cache_inputs(g, b, MOST);
    if (slides) tn_decode_cache_slides(g, b);
    assert_ok(m->build(g, st, b));
    return g;
}

/* First values are small: larger ones make what is lost of the past visible. */
static void enlarge(tn_store *st)
{
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        const int64_t n = tn_dims_count(e->dims);
        if (e->role != TN_ROLE_PARAM || e->dims.rank != 2) continue;
        float *x = tn_memory_floats(st, e->data, n), most = 0;
        for (int64_t k = 0; k < n; k++) most = fabsf(x[k]) > most ? fabsf(x[k]) : most;
        for (int64_t k = 0; k < n && most < 0.2f; k++) x[k] *= 8;
        tn_memory_put(st, e->data, x, sizeof *x * (size_t)n);
        free(x);
    }
}

static void open_reader(reader *r, const tn_model *m, const tn_settings *st, const pupil *p, bool slides)
{
    *r = (reader){ .w = tn_world_open_on(tn_test_device(), 7, 2) };
    for (int i = 0; i < PIECES; i++) {
        tn_graph *g = build(m, st, p->round, B, lengths[i], true, slides, &r->batch[i]);
        assert_int_equal(tn_decode_cache_window(g), slides ? p->window : 0);
        r->window = tn_decode_cache_window(g);
        r->bound[i] = tn_world_add(&r->w, g, NULL);
    }
    for (int64_t b = 0; b < B; b++) r->position[b] = r->slot[b] = 37 * b; /* behind keys of zeros */
    enlarge(r->w.store);
    if (!slides) return;
    tn_graph *g = tn_world_graph_on(tn_test_device(), &(tn_graph_options){ .threads = 2 });
    tn_decode_cache_move(g, tn_plan_graph(r->w.plan[0]), B);
    assert_ok(tn_graph_status(g));
    r->move = tn_world_add(&r->w, g, NULL);
}

static void make_room(reader *r, int64_t T)
{
    bool full = false;
    for (int b = 0; b < B && r->window; b++) full |= r->slot[b] + T > tn_decode_window_rows(r->window);
    if (!full) return;
    int32_t *shift = tn_world_data(r->move, "cache.shift");
    for (int b = 0; b < B; b++) {
        const int64_t after = tn_decode_window_moved(r->window, r->slot[b]);
        shift[b] = (int32_t)(r->slot[b] - after);
        r->slot[b] = after;
        assert_true(after + T <= tn_decode_window_rows(r->window));
    }
    assert_ok(tn_run(r->move));
    r->moves++;
}

static int32_t token(int64_t row, int64_t t) { return (int32_t)((row * 5 + t * t % 19 + 3 * t) % V); }

/* T more tokens of every sequence, from the first's number `at` on. */
static const float *feed(reader *r, int i, int64_t at)
{
    const int64_t T = lengths[i];
    make_room(r, T);
    int32_t *in = tn_world_data(r->bound[i], "tokens"); /* (B,T) */
    for (int64_t k = 0; k < B * T; k++) in[k] = token(k / T, at + k % T);
    tn_decode_cache_positions(r->bound[i], &r->batch[i], r->position);
    if (r->window) tn_decode_cache_slots(r->bound[i], &r->batch[i], r->slot);
    assert_ok(tn_run(r->bound[i]));
    for (int b = 0; b < B; b++) r->position[b] += T, r->slot[b] += T;
    return tn_world_data(r->bound[i], "logits");
}

static int64_t rows_of(const reader *r, const char *name) { return tn_world_entry(&r->w, name)->dims.dim[2]; }

/* --- against caches of all positions --------------------------------------------------------------------------------------- */

/* Which piece comes at which turn: a prompt in pieces, many tokens one by one, a second prompt, ... */
static int piece_at(int turn)
{
    static const int first[] = { 4, 2, 1, 3 };
    const int in_turn = turn % 64;
    return in_turn < 4 ? first[in_turn] : in_turn == 40 ? 3 : in_turn == 41 ? 1 : 0;
}

static void short_is_whole(void **state)
{
    const pupil *p = *state;
    static float whole[MOST * V], logits[B * LONGEST * V];
    const char *list[16] = { "dim=24", "layers=2", "heads=2", "vocab=23", "train.context=1024" };
    size_t n = 5;
    tn_settings *st;
    const tn_model *m;
    reader all, brief;
    tn_batch unused;
    for (int i = 0; i < 4 && p->line[i]; i++) list[n++] = p->line[i];
    assert_ok(tn_settings_resolve("ten", list, n, &st, &m));
    open_reader(&all, m, st, p, false);
    open_reader(&brief, m, st, p, true);
    tn_bound *once = tn_world_add(&all.w, build(m, st, p->round, 1, p->length, false, false, &unused),
                                  NULL); /* the first sequence */
    for (int64_t t = 0; t < p->length; t++) ((int32_t *)tn_world_data(once, "tokens"))[t] = token(0, t);
    assert_ok(tn_run(once));
    memcpy(whole, tn_world_data(once, "logits"), sizeof *whole * (size_t)(p->length * V));
    const char *name = p->line[1][0] == 'l'      ? "layer3.mixer.keys"
                       : strchr(p->line[0], 'D') ? "layer1.mixer.keys"
                                                 : "layer0.mixer.keys";
    assert_int_equal(rows_of(&all, name), MOST);
    assert_int_equal(rows_of(&brief, name), tn_decode_window_rows(p->window));
    const double near = p->round == TN_BF16 ? 5e-2 : 5e-4;
    for (int64_t turn = 0, at = 0; at < p->length; turn++) {
        const int i = at + lengths[piece_at((int)turn)] <= p->length ? piece_at((int)turn) : 0;
        const int64_t T = lengths[i];
        memcpy(logits, feed(&all, i, at), sizeof *logits * (size_t)(B * T * V));
        const float *got = feed(&brief, i, at);
        if (!tn_world_same(got, logits, B * T * V, near))
            fail_msg("%d tokens from %d on, after %d moves: %.1e off", (int)T, (int)at, brief.moves,
                     tn_world_distance(got, logits, B * T * V));
        const double off = tn_world_distance(got, whole + at * V, T * V);
        if (!(off <= near)) fail_msg("%d tokens from %d on are %.1e off the whole", (int)T, (int)at, off);
        at += T;
    }
    assert_true(brief.moves >= 2 && brief.slot[0] < brief.position[0]);
    tn_world_close(&all.w);
    tn_world_close(&brief.w);
    tn_settings_free(st);
}

/* --- several windows ---------------------------------------------------------------------------------------------------------- */

enum { D = 16, TOKENS = 420, BEFORE = 3 };

/* Groups of heads, norms of heads and a convolution, as gpt has them; the last layer sees all. */
static const tn_block_heads heads[] = {
    { .heads = 4, .kv_heads = 2, .window = 9, .rotary = true, .qk_norm = true, .out_std = 0.3f },
    { .heads = 2, .kv_heads = 2, .window = 30, .rotary = true, .out_std = 0.3f, .gate = true },
    { .heads = 2, .kv_heads = 1, .window = 9, .rotary = true, .interleaved = true, .conv = 3, .out_std = 0.3f },
    { .heads = 2, .kv_heads = 2, .rotary = true, .qkv_bias = true, .out_bias = true, .out_std = 0.3f },
};
enum { LAYERS = sizeof heads / sizeof *heads };

static tn_graph *add_layers(int64_t T, bool cached, int64_t before, tn_batch *b)
{
    tn_graph *g = tn_world_graph_on(tn_test_device(), &(tn_graph_options){ .threads = 2 });
    *b = (tn_batch){ .size = sizeof *b, .batch = 1, .length = T };
    if (cached) tn_decode_cache_inputs(g, b, TOKENS);
    if (cached) tn_decode_cache_slides(g, b);
    tn_ref x = tn_input(g, "x", tn_shape(1, T, D), TN_F32);
    for (int l = 0; l < LAYERS; l++) {
        const tn_region r = tn_region_begin(g, "layer%d", l);
        tn_block_heads h = heads[l];
        if (before) {
            const tn_dims dims = tn_shape(1, before, h.kv_heads, D / h.heads);
            h.keys_before = tn_input(g, "K", dims, TN_F32), h.values_before = tn_input(g, "V", dims, TN_F32);
        }
        x = tn_add(g, x, tn_block_attention(g, x, &h, b));
        tn_region_end(g, r);
        if (before) break;
    }
    tn_output(g, "y", x);
    assert_ok(tn_graph_status(g));
    return g;
}

/* The first window's layers have short caches, of that window; the others' have all positions. */
static void several_windows(void **state)
{
    static const int64_t rows[LAYERS] = { 0, TOKENS, 0, TOKENS };
    (void)state;
    static float whole[TOKENS * D], x[TOKENS * D];
    tn_batch b, one;
    int64_t slot = 0;
    tn_world w = tn_world_open_on(tn_test_device(), 3, 2);
    tn_bound *all = tn_world_add(&w, add_layers(TOKENS, false, 0, &b), NULL);
    tn_bound *step = tn_world_add(&w, add_layers(1, true, 0, &one), NULL);
    tn_graph *g = tn_world_graph_on(tn_test_device(), &(tn_graph_options){ .threads = 2 });
    tn_decode_cache_move(g, tn_plan_graph(w.plan[1]), 1);
    tn_bound *move = tn_world_add(&w, g, NULL);
    const int64_t most = tn_decode_window_rows(9);
    for (int l = 0; l < LAYERS; l++) {
        char name[32];
        snprintf(name, sizeof name, "layer%d.values", l);
        assert_int_equal(tn_world_entry(&w, name)->dims.dim[2], rows[l] ? rows[l] : most);
    }
    enlarge(w.store);
    for (int i = 0; i < TOKENS * D; i++) x[i] = sinf(0.37f * (float)i + 1e-3f * (float)(i % 101 * (i % 89)));
    memcpy(tn_world_data(all, "x"), x, sizeof x);
    assert_ok(tn_run(all));
    memcpy(whole, tn_world_data(all, "y"), sizeof whole);
    for (int64_t t = 0; t < TOKENS; t++) {
        if (slot == most) {
            const int64_t after = tn_decode_window_moved(9, slot);
            *(int32_t *)tn_world_data(move, "cache.shift") = (int32_t)(slot - after);
            assert_ok(tn_run(move));
            slot = after;
        }
        memcpy(tn_world_data(step, "x"), x + t * D, sizeof *x * D);
        tn_decode_cache_position(step, &one, t);
        tn_decode_cache_slots(step, &one, &slot);
        assert_ok(tn_run(step));
        const double off = tn_world_distance(tn_world_data(step, "y"), whole + t * D, D);
        if (!(off <= 1e-3)) fail_msg("token %d is %.1e off", (int)t, off);
        slot++;
    }
    assert_true(slot < TOKENS);
    tn_world_close(&w);
}

/* What stands before a layer's own keys is in the first rows of a cache of all positions, whatever the window. */
static void rows_before_stay(void **state)
{
    (void)state;
    tn_batch b;
    tn_world w = tn_world_open_on(tn_test_device(), 3, 1);
    tn_graph *g = add_layers(1, true, BEFORE, &b);
    assert_int_equal(tn_decode_cache_window(g), 0);
    (void)tn_world_add(&w, g, NULL);
    assert_int_equal(tn_world_entry(&w, "layer0.keys")->dims.dim[2], TOKENS);
    tn_world_close(&w);
}

/* Rows, room and moves for many windows: what is kept is what is seen, and what fits, fits. */
static void sizes_agree(void **state)
{
    (void)state;
    for (int64_t window = 1; window < 3000; window = window * 5 / 4 + 1) {
        const int64_t rows = tn_decode_window_rows(window), room = tn_decode_window_room(window);
        assert_true(rows % 64 == 0 && rows <= 2 * window + 128 + (window < 256 ? 256 - window : 0));
        for (int64_t slot = 0; slot <= rows; slot++) {
            const int64_t after = tn_decode_window_moved(window, slot);
            assert_true(after >= 0 && after <= slot && (slot - after) % 64 == 0);
            assert_true(after >= window - 1 || after == slot);
            assert_true(after + room <= rows);
        }
    }
}

void tn_tests_decode_window(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof pupils / sizeof *pupils; i++)
        tn_test_add(l, short_is_whole, &pupils[i], "decode window: short caches equal whole ones, %s, %d%s",
                    pupils[i].line[0], (int)pupils[i].window, pupils[i].round == TN_BF16 ? ", bf16" : "");
    tn_test_add(l, several_windows, NULL, "decode window: several windows in one graph");
    tn_test_add(l, rows_before_stay, NULL, "decode window: rows before a layer's own stay");
    tn_test_add(l, sizes_agree, NULL, "decode window: sizes agree");
}
