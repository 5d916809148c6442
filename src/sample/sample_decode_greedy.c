/* Greedy decoding: the likeliest token, one after the other; on a GPU the device may choose and feed them itself. */
#include "sample/sample_decode_parts.h"

#include "backend/backend.h"

#include <string.h>

enum { LAST = TN_DECODER_PLANS - 1 };

static tn_status not_a_number(void)
{
    return tn_error(TN_DIVERGED, "a logit is NaN: the weights are damaged; check them with `tenon ckpt verify`");
}

/* The first largest of n logits, or -1. */
static int32_t largest(const float *x, int64_t n)
{
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] != x[i]) return -1;
        if (x[i] > x[at]) at = i;
    }
    return (int32_t)at;
}

/* Number i of n tokens in each row, from what was just run. */
static tn_status choose(tn_decoder *d, int64_t i, int64_t n, int32_t *out)
{
    tn_bound *b = d->piece[LAST].bound;
    const int32_t *next = d->chooses ? tn_bound_data(b, "next") : NULL;   /* (B,1) */
    const float *logits = d->chooses ? NULL : tn_bound_data(b, "logits"); /* (B,1,V) */
    if (!next && !logits) return TN_MEMORY;
    for (int64_t r = 0; r < d->o.batch; r++) {
        out[r * n + i] = next ? next[r] : largest(logits + r * d->vocab, d->vocab);
        if (out[r * n + i] < 0) return not_a_number();
    }
    return TN_OK;
}

static tn_status greedy_here(tn_decoder *d, int64_t n, int32_t *out)
{
    int32_t *in = tn_bound_data(d->piece[LAST].bound, "tokens"); /* (B,1) */
    for (int64_t i = 0; i < n; i++) {
        TN_RETURN_IF(tn__decoder_run_token(d));
        tn__decoder_move(d, 1);
        TN_RETURN_IF(choose(d, i, n, out));
        for (int64_t r = 0; r < d->o.batch; r++) in[r] = out[r * n + i];
    }
    return TN_OK;
}

static tn_status keep_history(tn_decoder *d, int64_t n)
{
    const tn_backend *b = tn_context_backend(d->context);
    if (n <= d->history_n) return TN_OK;
    if (d->history) b->free(d->history);
    d->history_n = 0;
    d->history = b->alloc(sizeof *d->history * (size_t)(1 + n * d->o.batch));
    if (!d->history) return TN_MEMORY;
    d->history_n = n;
    return TN_OK;
}

/* The device's "next" is the next run's tokens, and is put aside; a NaN is seen at the end. There is room for n tokens. */
static tn_status queue_ahead(tn_decoder *d, int64_t n)
{
    tn_decoder_piece *p = &d->piece[LAST];
    const tn_chain chain = { .input = "tokens",
                             .output = "next",
                             .counter = { "cache.position", "cache.keys", "cache.positions", "cache.slot",
                                          "cache.slot_keys" },
                             .step = !d->stays,
                             .log = d->history };
    tn_decode_cache_positions(p->bound, &p->batch, d->position);
    tn_decode_cache_slots(p->bound, &p->batch, d->slot);
    TN_RETURN_IF(tn_bound_chain(p->bound, &chain));
    TN_RETURN_IF(d->warm ? tn_run_again(p->bound) : tn_run(p->bound));
    d->warm = true;
    TN_RETURN_IF(tn_run_chain(p->bound, n - 1));
    tn__decoder_move(d, n);
    return TN_OK;
}

/* Tokens [at, at + m) of n, which are then in their places, and the last of them in the place of the next one's input. */
static tn_status greedy_part(tn_decoder *d, int64_t at, int64_t m, int64_t n, int32_t *host, int32_t *out)
{
    const int64_t B = d->o.batch;
    tn_bound *bound = d->piece[LAST].bound;
    const tn_status s = queue_ahead(d, m);
    (void)tn_bound_chain(bound, NULL);
    TN_RETURN_IF(s);
    TN_RETURN_IF(tn_context_backend(d->context)
                     ->download(tn_context_queue(d->context), host, d->history + 1, sizeof *host * (size_t)(m * B)));
    int32_t *in = tn_bound_data(bound, "tokens"); /* (B,1) */
    for (int64_t i = 0; i < m * B; i++) {
        if (host[i] < 0) return not_a_number();
        in[i % B] = out[i % B * n + at + i / B] = host[i];
    }
    return TN_OK;
}

/* In one go, or where caches of a window are full in several: their rows move between them. */
static tn_status greedy_ahead(tn_decoder *d, int64_t n, int32_t *out)
{
    tn_status s = TN_OK;
    int32_t *host = tn_alloc(sizeof *host * (size_t)(n * d->o.batch)); /* (n,B) */
    if (!host) TN_TRY(TN_MEMORY);
    TN_TRY(keep_history(d, n));
    for (int64_t at = 0, m; at < n; at += m) {
        TN_TRY(tn__decoder_make_room(d, 1));
        const int64_t left = n - at, room = d->stays ? left : tn__decoder_room(d);
        m = left < room ? left : room;
        TN_TRY(greedy_part(d, at, m, n, host, out));
    }
done:
    tn_free(host);
    return s;
}

tn_status tn_decoder_greedy(tn_decoder *d, const int32_t *tokens, int64_t n, int32_t *out)
{
    if (n < 1) return tn_error(TN_USAGE, "no tokens are asked for");
    TN_RETURN_IF(tn__decoder_check(d, tokens, 1));
    if (n > tn_decoder_tokens_left(d) && !d->stays)
        return tn_error(
            TN_USAGE,
            "%lld tokens after %lld do not fit into a context of %lld: ask for fewer, or use a larger context",
            (long long)n, (long long)(d->o.capacity - tn_decoder_tokens_left(d)), (long long)d->o.capacity);
    memcpy(tn_bound_data(d->piece[LAST].bound, "tokens"), tokens, sizeof *tokens * (size_t)d->o.batch);
    return d->ahead ? greedy_ahead(d, n, out) : greedy_here(d, n, out);
}
