/* A side that writes one token after the other: with its cache, or reading everything before it again. */
#include "report/ablate/side.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "sample/sample_decode.h"

#include <math.h>
#include <string.h>

enum { MOST_TOKENS = 128, WARM_TIMES = 3, PARITY_TOKENS = 64 };

typedef struct tn_token_side {
    tn_settings *settings;
    tn_store *store;
    tn_decoder *decoder;
    int64_t context;
    bool again;
    int32_t *in, *out; /* (context), (MOST_TOKENS) */
} tn_token_side;

static void close_token(void *side)
{
    tn_token_side *t = side;
    if (!t) return;
    tn_decoder_free(t->decoder);
    tn_store_free(t->store);
    tn_settings_free(t->settings);
    tn_free(t->in);
    tn_free(t->out);
    tn_free(t);
}

static tn_status set_words(const tn_side_options *o, tn_settings *st)
{
    for (size_t i = 0; i < o->n; i++) TN_RETURN_IF(tn_settings_override(st, o->word[i]));
    return TN_OK;
}

static tn_status open_token(const tn_side_options *o, void **out)
{
    tn_status s = TN_OK;
    tn_token_side *t = tn_alloc(sizeof *t);
    if (!t) return TN_MEMORY;
    const tn_device device = tn_trainer_device(o->base->trainer);
    *t = (tn_token_side){ .context = o->base->length, .again = o->again };
    TN_TRY(tn_settings_clone(o->base->settings, &t->settings));
    TN_TRY(set_words(o, t->settings));
    TN_TRY(tn_store_new(device, 0, &t->store));
    TN_TRY(tn_decoder_new(&(tn_decoder_options){ .model = o->model,
                                                 .settings = t->settings,
                                                 .store = t->store,
                                                 .frozen = device != TN_CPU,
                                                 .drawn = true,
                                                 .weights = TN_F32,
                                                 .batch = 1,
                                                 .capacity = t->context,
                                                 .greedy = !o->again },
                          &t->decoder));
    t->in = tn_alloc(sizeof *t->in * (size_t)t->context);
    t->out = tn_alloc(sizeof *t->out * MOST_TOKENS);
    if (!t->in || !t->out) TN_FAIL(TN_MEMORY, "out of memory");
    for (int64_t i = 0; i < t->context; i++) t->in[i] = (int32_t)(i * 7 % tn_decoder_vocab(t->decoder));
    *out = t;
    t = NULL;
done:
    close_token(t);
    return s;
}

static tn_status read_again(tn_token_side *t, int times)
{
    const float *logits;
    for (int i = 0; i < times; i++) {
        tn_decoder_clear(t->decoder);
        TN_RETURN_IF(tn_decoder_feed(t->decoder, t->in, t->context, &logits));
    }
    return TN_OK;
}

/* *ms: of one token. */
static tn_status run_token(void *side, int times, double *ms)
{
    tn_token_side *t = side;
    const double begun = tn_clock_s();
    TN_RETURN_IF(t->again ? read_again(t, times) : tn_decoder_greedy(t->decoder, t->in, times, t->out));
    *ms = 1e3 * (tn_clock_s() - begun) / times;
    return TN_OK;
}

static tn_status warm_token(void *side, double limit_s, double *ms)
{
    tn_token_side *t = side;
    (void)limit_s;
    if (!t->again) TN_RETURN_IF(tn_decoder_fill_to(t->decoder, t->context - 1, 1));
    TN_RETURN_IF(run_token(side, WARM_TIMES, ms));
    return run_token(side, 1, ms);
}

static double token_bytes(const void *side)
{
    const tn_token_side *t = side;
    const tn_memory m = tn_plan_memory(tn_decoder_plan(t->decoder));
    return (double)m.state + (double)m.arena;
}

/* Logits behind the last of a few tokens; n calls. */
static tn_status logits_of(tn_token_side *t, int64_t n, const float **logits)
{
    tn_decoder_clear(t->decoder);
    if (t->again) return tn_decoder_feed(t->decoder, t->in, n, logits);
    for (int64_t i = 0; i < n; i++) TN_RETURN_IF(tn_decoder_feed(t->decoder, t->in + i, 1, logits));
    return TN_OK;
}

static tn_status token_parity(void *plain, void *fast, double seconds, int *steps, tn_parity *out)
{
    tn_token_side *a = plain, *b = fast;
    const float *x, *y;
    const int64_t n = a->context < PARITY_TOKENS ? a->context : PARITY_TOKENS;
    (void)seconds;
    *steps = (int)n;
    *out = tn_parity_none();
    TN_RETURN_IF(logits_of(a, n, &x));
    TN_RETURN_IF(logits_of(b, n, &y));
    tn_parity_numbers(out, "", "logits", x, y, tn_decoder_vocab(a->decoder), 0);
    return TN_OK;
}

const tn_side_kind tn_side_token = { .what = "token",
                                     .open = open_token,
                                     .close = close_token,
                                     .warm = warm_token,
                                     .run = run_token,
                                     .bytes = token_bytes,
                                     .parity = token_parity,
                                     .most = MOST_TOKENS };
