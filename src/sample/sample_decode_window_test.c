/* Decoding where layers look back on a window, far beyond the rows of their caches, against the whole sequence: token by token, with a row
 * that has ended, greedy, from a position that is only pretended; what a state takes. On the device of TENON_TEST_DEVICE. Prompts and
 * rows of different length: sample_decode_test.c. */
#include "decode_stage.h"

/* A window of 66 is left with exactly what the next token sees. */
static const pupil pupils[] = {
    { "ten", { "dim=32", "pattern=W", "window=66" }, 3, 950, true, false },
    { "ten", { "dim=32", "pattern=W", "window=1" }, 1, 800, true, false },
    { "ten", { "dim=32", "pattern=DW", "window=80" }, 1, 950, false, false },
    { "ten", { "dim=32", "pattern=OOOW", "layers=4", "window=80" }, 3, 950, false, false },
    { "ten", { "dim=32", "pattern=OOOW", "layers=4", "window=80", "compute=bf16" }, 3, 950, false, true },
};

/* A row that has ended goes along at position 0. */
static void tokens_equal_whole(void **state)
{
    const pupil *p = *state;
    const float *logits;
    int32_t in[3];
    stage s;
    open_stage(&s, p);
    tn_decoder *d = open_decoder(&s, p->batch, p->length, 2);
    const int64_t rows = tn_decode_window_rows(d->window);
    assert_true(d->window > 0 && 2 * rows < p->length);
    for (int64_t t = 0; t < p->length; t++) {
        const int64_t ended = t > 2 && p->batch > 2 ? 1 : -1;
        gather(&s, p, t, 1, in);
        assert_ok(tn_decoder_feed(d, in, 1, &logits));
        for (int64_t b = 0; b < p->batch; b++) {
            const float *want = s.logits + (b * p->length + t) * V;
            const double off = tn_world_distance(logits + b * V, want, V);
            if (b != ended && !(off <= tolerance(p)))
                fail_msg("row %d at position %d is off by %g", (int)b, (int)t, off);
            assert_int_equal(d->position[b], b == ended ? 0 : t + 1);
            assert_true(d->slot[b] <= rows);
        }
        if (t == 2 && p->batch > 2) tn_decoder_end_row(d, 1);
    }
    assert_int_equal(tn_decoder_tokens_left(d), 0);
    tn_decoder_clear(d); /* from the start, in the same caches, and with the row that had ended */
    gather(&s, p, 0, 1, in);
    assert_ok(tn_decoder_feed(d, in, 1, &logits));
    check_logits(&s, p, 0, logits);
    tn_decoder_free(d);
    close_stage(&s);
}

/* --- greedy ----------------------------------------------------------------------------------------------------------- */

/* In one go, in pieces whose ends are anywhere, and where the device chooses (the CPU's backend knows that too): the tokens that feeding
 * back the largest logit gives. */
static void greedy_is_feeding(void **state)
{
    enum { N = 900, MOST_ROWS = 3 };
    static int32_t fed[MOST_ROWS * N], got[MOST_ROWS * N], piece[MOST_ROWS * N];
    static const int64_t cuts[] = { 0, 1, 383, 384, 385, 800, N };
    const pupil *p = *state;
    const int64_t B = p->batch;
    const int32_t first[MOST_ROWS] = { 1, 2, 3 };
    int32_t next[MOST_ROWS] = { 1, 2, 3 };
    const float *logits;
    stage s;
    open_stage(&s, p);
    tn_decoder *d = open_decoder(&s, B, N, 2);
    for (int64_t i = 0; i < N; i++) {
        assert_ok(tn_decoder_feed(d, next, 1, &logits));
        for (int64_t b = 0; b < B; b++) fed[b * N + i] = next[b] = largest(logits + b * V);
    }
    const bool ahead = d->ahead;
    for (int way = 0; way < 2; way++) { /* by the host and by the device, or by the device twice */
        d->ahead = way || ahead;
        tn_decoder_clear(d);
        assert_ok(tn_decoder_greedy(d, first, N, got));
        assert_memory_equal(got, fed, sizeof *got * (size_t)(B * N));
        assert_true(d->slot[0] < N);
        tn_decoder_clear(d);
        memcpy(next, first, sizeof next);
        for (size_t c = 0; c + 1 < sizeof cuts / sizeof *cuts; c++) {
            const int64_t n = cuts[c + 1] - cuts[c];
            assert_ok(tn_decoder_greedy(d, next, n, piece));
            for (int64_t b = 0; b < B; b++) {
                next[b] = piece[b * n + n - 1];
                assert_memory_equal(piece + b * n, fed + b * N + cuts[c], sizeof *piece * (size_t)n);
            }
        }
    }
    tn_decoder_free(d);
    close_stage(&s);
}

/* --- memory, measuring -------------------------------------------------------------------------------------------------- */

static tn_decoder *open_small(stage *s, const char *preset, int64_t batch, int64_t context)
{
    const char *list[] = { "dim=64", "heads=2", "layers=4", "vocab=37", "compute=f32" };
    *s = (stage){ .w = tn_world_open_on(tn_test_device(), 3, 1) };
    assert_ok(tn_settings_resolve(preset, list, sizeof list / sizeof *list, &s->st, &s->model));
    return open_decoder(s, batch, context, 1);
}

/* Bytes of a token's plan where this many positions can be looked back on. */
static size_t state_bytes(const char *preset, int64_t context)
{
    stage s;
    tn_decoder *d = open_small(&s, preset, 1, context);
    const size_t bytes = tn_plan_memory(tn_decoder_plan(d)).state;
    tn_decoder_free(d);
    close_stage(&s);
    return bytes;
}

static void states_do_not_grow(void **state)
{
    (void)state;
    const size_t first = state_bytes("ten_hybrid", 1024);
    assert_int_equal(state_bytes("ten_hybrid", 131072), first);
    assert_true(state_bytes("ten_hybrid", 300) < first); /* nor are there more rows than positions */
    assert_true(state_bytes("gpt", 131072) > 100 * state_bytes("gpt", 1024));
}

/* Beyond the rows of the caches, which are then as full as after so many tokens. */
static void pretends(void **state)
{
    enum { N = 500, CONTEXT = 100000 };
    static int32_t out[2 * N];
    static const int64_t positions[] = { 0, 254, 255, 575, 576, 577, CONTEXT - 1 };
    const int32_t tokens[2] = { 1, 2 };
    float fresh[2 * V];
    const float *logits;
    stage s;
    (void)state;
    tn_decoder *d = open_small(&s, "ten_hybrid", 2, CONTEXT);
    assert_ok(tn_decoder_feed(d, tokens, 1, &logits));
    memcpy(fresh, logits, sizeof fresh);
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        assert_ok(tn_decoder_fill_to(d, positions[i], 1));
        assert_true(d->slot[1] >= (positions[i] < 255 ? positions[i] : 255));
        assert_ok(tn_decoder_greedy(d, tokens, N, out)); /* more than there are rows */
        assert_int_equal(d->position[1], positions[i]);
        assert_ok(tn_decoder_feed(d, tokens, 1, &logits));
        for (int k = 0; k < 2 * V; k++) assert_true(isfinite(logits[k]));
        assert_true(tn_world_distance(logits, fresh, 2 * V) > 1e-3);
        tn_decoder_clear(d);
        assert_ok(tn_decoder_feed(d, tokens, 1, &logits));
        assert_true(tn_world_same(logits, fresh, 2 * V, 1e-5));
    }
    tn_decoder_free(d);
    close_stage(&s);
}

void tn_tests_sample_decode_window(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof pupils / sizeof *pupils; i++) {
        const pupil *p = &pupils[i];
        tn_test_add(l, tokens_equal_whole, p, "decode window: tokens equal the whole, %s %s, %d rows%s", p->more[1],
                    p->more[2], (int)p->batch, p->half ? ", bf16" : "");
        if (!p->half)
            tn_test_add(l, greedy_is_feeding, p, "decode window: greedy is feeding, %s %s, %d rows", p->more[1],
                        p->more[2], (int)p->batch);
    }
    tn_test_add(l, states_do_not_grow, NULL, "decode window: states do not grow with the context");
    tn_test_add(l, pretends, NULL, "decode window: a context that is only pretended");
}
