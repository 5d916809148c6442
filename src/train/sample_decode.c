/* The plans of decoding, made when a prompt first needs them, and running them in turn. All share one store and context.
 * Weights are not packed: one token uses each of them once. */
#include "train/sample_decode.h"

#include "models/carry.h"
#include "train/graph_setup.h"

#include <string.h>

/* Lengths of the pieces of a prompt, longest first: each is run at most 7 times in a row. The last has logits. */
static const int64_t lengths[] = { 256, 32, 4, 1 };
enum { PLANS = sizeof lengths / sizeof *lengths, LAST = PLANS - 1, MOST_AT_ONCE = 4096 };

typedef struct piece {
    tn_plan *plan;
    tn_bound *bound;
    tn_batch batch;
} piece;

struct tn_decoder {
    tn_decoder_options o;
    tn_graph_setup setup;
    tn_context *context;
    piece piece[PLANS];
    int longest;      /* the first length that may be used */
    int64_t position; /* tokens fed so far */
    int64_t vocab;
    bool attends;
};

static const tn_gtensor *find_output(const tn_graph *g, const char *name)
{
    for (size_t i = 0; i < g->n_outputs; i++)
        if (strcmp(g->output[i].name, name) == 0) return &g->tensor[g->output[i].id];
    return NULL;
}

static bool has_cache(const tn_graph *g)
{
    for (size_t i = 1; i < g->n_tensors; i++)
        if (g->tensor[i].role == TN_ROLE_CACHE) return true;
    return false;
}

static tn_status check_graph(tn_decoder *d, const tn_graph *g)
{
    const tn_gtensor *logits = find_output(g, "logits");
    if (!has_cache(g))
        return tn_error(
            TN_USAGE,
            "model %s carries no state from token to token, so it cannot be sampled from: its build ignores "
            "tn_batch.carry (models/carry.h)",
            d->o.model->name);
    if (!logits)
        return tn_error(TN_USAGE, "model %s puts out no \"logits\" where tn_batch.logits asks for them",
                        d->o.model->name);
    d->vocab = logits->dims.dim[logits->dims.rank - 1];
    return TN_OK;
}

static tn_status make_piece(tn_decoder *d, int i)
{
    tn_status s = TN_OK;
    tn_graph *g = NULL;
    piece p = { .batch = { .size = sizeof p.batch, .batch = d->o.batch, .length = lengths[i], .logits = i == LAST } };
    TN_TRY(tn_graph_new(&d->setup.options, &g));
    p.batch.tokens = tn_input(g, "tokens", tn_shape(d->o.batch, lengths[i]), TN_I32);
    tn_carry_inputs(g, &p.batch, d->o.capacity);
    TN_TRY(d->o.model->build(g, d->o.settings, &p.batch));
    TN_TRY(tn_graph_status(g));
    if (i == LAST) TN_TRY(check_graph(d, g));
    TN_TRY(tn_store_adopt(d->o.store, g));
    s = tn_graph_compile(g, &(tn_compile_options){ .device = d->setup.device, .repeats = 1 }, &p.plan);
    g = NULL;
    if (s != TN_OK) goto done;
    TN_TRY(tn_bind(p.plan, d->context, d->o.store, &p.bound));
    d->piece[i] = p;
    p = (piece){ 0 };
done:
    tn_graph_free(g);
    tn_bound_free(p.bound);
    tn_plan_free(p.plan);
    return s;
}

tn_status tn_decoder_new(const tn_decoder_options *o, tn_decoder **out)
{
    tn_status s = TN_OK;
    tn_decoder *d = tn_alloc(sizeof *d);
    if (!d) TN_TRY(TN_MEMORY);
    d->o = *o;
    const tn_device device = tn_store_device(o->store);
    TN_TRY(tn_graph_setup_read(o->settings, &device, o->threads, &d->setup));
    if (device != TN_CPU) d->setup.options.activation = d->setup.options.round = TN_F32; /* logits are read as they are */
    TN_TRY(tn_context_new(device, d->setup.options.threads, &d->context));
    TN_TRY(make_piece(d, LAST));
    d->attends = tn_bound_data(d->piece[LAST].bound, "carry.keys") != NULL;
    const int64_t context = tn_settings_int(o->settings, "train.context");
    while (d->longest < LAST && (lengths[d->longest] > context || lengths[d->longest] * o->batch > MOST_AT_ONCE))
        d->longest++;
    *out = d;
    d = NULL;
done:
    tn_decoder_free(d);
    return s;
}

void tn_decoder_free(tn_decoder *d)
{
    if (!d) return;
    for (int i = 0; i < PLANS; i++) {
        tn_bound_free(d->piece[i].bound);
        tn_plan_free(d->piece[i].plan);
    }
    tn_context_free(d->context);
    tn_store_drop_caches(d->o.store);
    tn_free(d);
}

int64_t tn_decoder_vocab(const tn_decoder *d) { return d->vocab; }

int64_t tn_decoder_batch(const tn_decoder *d) { return d->o.batch; }

int64_t tn_decoder_room(const tn_decoder *d) { return d->attends ? d->o.capacity - d->position : INT64_MAX; }

void tn_decoder_clear(tn_decoder *d)
{
    tn_carry_clear(d->o.store);
    d->position = 0;
}

static tn_status check_tokens(const tn_decoder *d, const int32_t *tokens, int64_t n)
{
    if (n > tn_decoder_room(d))
        return tn_error(
            TN_USAGE,
            "%lld tokens after %lld do not fit into a context of %lld: use a shorter prompt or a larger context",
            (long long)n, (long long)d->position, (long long)d->o.capacity);
    for (int64_t i = 0; i < d->o.batch * n; i++)
        if (tokens[i] < 0 || tokens[i] >= d->vocab)
            return tn_error(TN_USAGE, "token %d is outside the model's vocabulary of %lld: is this its tokenizer?",
                            (int)tokens[i], (long long)d->vocab);
    return TN_OK;
}

/* Tokens [at, at + length of piece i) of every row. */
static tn_status run_piece(tn_decoder *d, int i, const int32_t *tokens, int64_t n, int64_t at)
{
    piece *p = &d->piece[i];
    int32_t *in = tn_bound_data(p->bound, "tokens"); /* (B,T) */
    const int64_t T = lengths[i];
    for (int64_t b = 0; in && b < d->o.batch; b++) memcpy(in + b * T, tokens + b * n + at, sizeof *in * (size_t)T);
    tn_carry_set(p->bound, &p->batch, d->position);
    TN_RETURN_IF(tn_run(p->bound));
    d->position += T;
    return TN_OK;
}

/* The longest piece that fits. A model that takes no piece of this length (token by token only, or no room for such a
 * table) gets shorter ones: the one token that made the decoder always works. */
static tn_status choose_piece(tn_decoder *d, int64_t left, int *out)
{
    for (int i = d->longest; i < LAST; i++) {
        if (lengths[i] >= left) continue; /* the last token is left over, for its logits */
        const tn_status s = d->piece[i].bound ? TN_OK : make_piece(d, i);
        if (s != TN_OK && s != TN_USAGE) return s;
        if (s == TN_OK) {
            *out = i;
            return TN_OK;
        }
        d->longest = i + 1;
    }
    *out = LAST;
    return TN_OK;
}

tn_status tn_decoder_feed(tn_decoder *d, const int32_t *tokens, int64_t n, const float **logits)
{
    if (n < 1) return tn_error(TN_USAGE, "no tokens to go on from");
    TN_RETURN_IF(check_tokens(d, tokens, n));
    for (int64_t at = 0; at < n;) {
        int i;
        TN_RETURN_IF(choose_piece(d, n - at, &i));
        TN_RETURN_IF(run_piece(d, i, tokens, n, at));
        at += lengths[i];
    }
    *logits = tn_bound_data(d->piece[LAST].bound, "logits");
    return TN_OK;
}
