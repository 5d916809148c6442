/* The plans of decoding, made when a prompt first needs them, and running them in turn. All share one store and context.
 * The plan of a single token packs weights (CUDA: rounds them) once for all tokens that follow each other (its prologue); the others are
 * run too seldom for that. */
#include "sample/sample_decode.h"

#include "backend/backend.h"
#include "base/rng.h"
#include "models/decode_cache.h"
#include "models/models.h"
#include "train/trainer/graph_setup.h"
#include "train/trainer/shared.h"
#include "train/trainer/trainer.h"

#include <tenon/ops.h>

#include <string.h>

/* Lengths of the pieces of a prompt, longest first: each is run at most 7 times in a row. The last has logits. */
static const int64_t lengths[] = { 256, 32, 4, 1 };
enum { PLANS = sizeof lengths / sizeof *lengths, LAST = PLANS - 1, MOST_AT_ONCE = 4096 };
enum { MANY = 1 << 20 }; /* tokens, one after the other, in a text: as many uses of what its plan prepares */

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
    piece reply;      /* for the last prompt's length, where the model replies */
    int longest;      /* the first length that may be used */
    int64_t position; /* tokens fed so far */
    int64_t vocab;
    bool attends;
    bool stays;       /* position is that of every token: tn_decoder_fill_to */
    bool warm;        /* parameters are as they were when a plan ran last */
    bool chooses;     /* the plan of a token puts out "next" */
    bool ahead;       /* ... and feeds it to the next run without the host */
    int32_t *history; /* (1 + n B) device memory for what was chosen ahead (tn_chain), or NULL */
    int64_t history_n;
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
        return tn_error(TN_USAGE,
                        "model %s keeps no state from token to token, so it cannot be sampled from: if tn_batch.cached "
                        "is set, read "
                        "the state with tn_cache and store it with tn_assign, as the model of `tenon new model` does",
                        d->o.model->name);
    if (!logits)
        return tn_error(TN_USAGE,
                        "model %s does not output \"logits\" although tn_wants(b, \"logits\") requests them: call "
                        "tn_output for them",
                        d->o.model->name);
    d->vocab = logits->dims.dim[logits->dims.rank - 1];
    return TN_OK;
}

/* Bytes that caches of the graph still have to be given. */
static double cache_bytes(const tn_decoder *d, const tn_graph *g)
{
    double bytes = 0;
    for (size_t i = 1; i < g->n_tensors; i++) {
        const tn_gtensor *t = &g->tensor[i];
        if (t->role == TN_ROLE_CACHE && t->base == (int32_t)i && !tn_store_find(d->o.store, t->name))
            bytes += (double)tn_dims_count(t->dims) * (double)tn_dtype_bytes(t->dtype);
    }
    return bytes;
}

/* Memory that a system promises may not be there when it is touched: a cache that cannot fit is refused before. */
static tn_status check_memory(const tn_decoder *d, const tn_graph *g)
{
    const double need = cache_bytes(d, g);
    double available = tn_memory_available();
    size_t left, all;
    const tn_backend *b = tn_backend_get(d->setup.device);
    if (!b->host_memory) {
        TN_RETURN_IF(b->memory(&left, &all));
        available = (double)left;
    }
    if (need <= 0.95 * available) return TN_OK;
    return tn_error(TN_MEMORY,
                    "the decode cache of %s for %lld tokens at batch %lld needs %.1f GB, and %.1f GB are free: use a "
                    "smaller context or batch",
                    d->o.model->name, (long long)d->o.capacity, (long long)d->o.batch, need / 1e9, available / 1e9);
}

/* How often the plan of a single token may count on its weights: where there is no room for them twice, they are not packed. Those of a
 * file are there once, but for small models, which are computed in caches and not in memory. */
static int64_t repeats_of(const tn_decoder *d, const tn_graph *g)
{
    const double most = d->o.frozen ? 32e6 : 0.4 * tn_memory_available();
    double bytes = 0;
    for (size_t i = 1; i < g->n_tensors; i++)
        if (g->tensor[i].weight && g->tensor[i].base == (int32_t)i)
            bytes += 4 * (double)tn_dims_count(g->tensor[i].dims);
    return d->setup.device != TN_CPU || bytes < most ? MANY : 1;
}

/* Evaluations have the values of a run's last step (rows.h). */
static void set_schedules(const tn_decoder *d, tn_bound *b)
{
    const tn_model *m = d->o.model;
    const int64_t last = m->n_schedules ? tn_settings_int(d->o.settings, "train.steps") - 1 : 0;
    for (size_t i = 0; i < m->n_schedules; i++) {
        float *x = tn_plan_scalar(b, m->schedules[i].name);
        if (x) *x = (float)m->schedules[i].value(d->o.settings, last);
    }
}

/* Compiles what a model built and adopts its tensors; takes the graph, also where it fails. */
static tn_status make_plan(tn_decoder *d, tn_graph *g, const tn_compile_options *how, piece *p)
{
    tn_status s = check_memory(d, g);
    if (s == TN_OK) s = tn_store_adopt(d->o.store, g);
    if (s != TN_OK) {
        tn_graph_free(g);
        return s;
    }
    TN_RETURN_IF(tn_graph_compile(g, how, &p->plan));
    s = tn_bind(p->plan, d->context, d->o.store, &p->bound);
    if (s != TN_OK) {
        tn_plan_free(p->plan);
        p->plan = NULL;
        return s;
    }
    set_schedules(d, p->bound);
    return TN_OK;
}

static tn_status make_piece(tn_decoder *d, int i)
{
    tn_status s = TN_OK;
    tn_graph *g = NULL;
    piece p = { .batch = { .size = sizeof p.batch,
                           .batch = d->o.batch,
                           .length = lengths[i],
                           .step = "eval",
                           .want = { "logits" },
                           .n_wants = i == LAST } };
    TN_TRY(tn_graph_new(&d->setup.options, &g));
    tn_batch_add(&p.batch, "tokens", tn_input(g, "tokens", tn_shape(d->o.batch, lengths[i]), TN_I32));
    tn_decode_cache_inputs(g, &p.batch, d->o.capacity);
    TN_TRY(tn_model_build(d->o.model, g, d->o.settings, &p.batch));
    TN_TRY(tn_graph_status(g));
    if (i == LAST) TN_TRY(check_graph(d, g));
    if (i == LAST && d->chooses) tn_output(g, "next", tn_argmax(g, tn_graph_output(g, "logits")));
    const int64_t repeats = i == LAST ? repeats_of(d, g) : 1;
    const bool token = i == LAST && d->o.batch == 1;
    s = make_plan(d, g, &(tn_compile_options){ .device = d->setup.device, .repeats = repeats, .token = token }, &p);
    g = NULL;
    if (s == TN_OK) d->piece[i] = p;
done:
    tn_graph_free(g);
    return s;
}

static void free_piece(piece *p)
{
    tn_bound_free(p->bound);
    tn_plan_free(p->plan);
    *p = (piece){ 0 };
}

static bool is_on(const tn_settings *st, const char *key)
{
    return tn_settings_find(st, key) < tn_settings_count(st) && tn_settings_on(st, key);
}

tn_status tn_decoder_new(const tn_decoder_options *o, tn_decoder **out)
{
    tn_status s = TN_OK;
    tn_decoder *d = tn_alloc(sizeof *d);
    if (!d) TN_TRY(TN_MEMORY);
    d->o = *o;
    const tn_device device = tn_store_device(o->store);
    TN_TRY(tn_graph_setup_read(o->settings, &device, o->threads, &d->setup));
    const bool half = is_on(o->settings, "opt.decode_half");
    if (device != TN_CPU && !half) d->setup.options.activation = d->setup.options.round = TN_F32;
    d->setup.options.frozen = o->frozen;
    d->setup.options.weights = tn_graph_setup_weights(&d->setup, o->weights);
    if (o->frozen) tn_store_loads_weights(o->store);
    d->ahead = o->greedy && device != TN_CPU && is_on(o->settings, "opt.decode_ahead");
    d->chooses = o->greedy && (device == TN_CPU || d->ahead);
    TN_TRY(tn_context_new(device, d->setup.options.threads, &d->context));
    TN_TRY(make_piece(d, LAST));
    d->attends = tn_bound_data(d->piece[LAST].bound, "cache.keys") != NULL;
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
    for (int i = 0; i < PLANS; i++) free_piece(&d->piece[i]);
    free_piece(&d->reply);
    if (d->history) tn_context_backend(d->context)->free(d->history);
    tn_context_free(d->context);
    tn_store_drop_caches(d->o.store);
    tn_free(d);
}

int64_t tn_decoder_vocab(const tn_decoder *d) { return d->vocab; }

int64_t tn_decoder_tokens_left(const tn_decoder *d) { return d->attends ? d->o.capacity - d->position : INT64_MAX; }

void tn_decoder_clear(tn_decoder *d)
{
    tn_decode_cache_clear(d->o.store);
    d->position = 0;
    d->stays = d->warm = false;
}

static tn_status check_ids(const tn_decoder *d, const int32_t *tokens, int64_t n)
{
    for (int64_t i = 0; i < d->o.batch * n; i++)
        if (tokens[i] < 0 || tokens[i] >= d->vocab)
            return tn_error(TN_USAGE, "token %d is outside the model's vocabulary of %lld: is this its tokenizer?",
                            (int)tokens[i], (long long)d->vocab);
    return TN_OK;
}

static tn_status check_tokens(const tn_decoder *d, const int32_t *tokens, int64_t n)
{
    if (n > tn_decoder_tokens_left(d) && !d->stays)
        return tn_error(
            TN_USAGE,
            "%lld tokens after %lld do not fit into a context of %lld: use a shorter prompt or a larger context",
            (long long)n, (long long)d->position, (long long)d->o.capacity);
    return check_ids(d, tokens, n);
}

/* Runs a piece on the tokens that are in its input. */
static tn_status run_here(tn_decoder *d, int i)
{
    piece *p = &d->piece[i];
    tn_decode_cache_position(p->bound, &p->batch, d->position);
    TN_RETURN_IF(i == LAST && d->warm ? tn_run_again(p->bound) : tn_run(p->bound));
    d->warm = true;
    if (!d->stays) d->position += lengths[i];
    return TN_OK;
}

/* Tokens [at, at + length of piece i) of every row. */
static tn_status run_piece(tn_decoder *d, int i, const int32_t *tokens, int64_t n, int64_t at)
{
    piece *p = &d->piece[i];
    int32_t *in = tn_bound_data(p->bound, "tokens"); /* (B,T) */
    const int64_t T = lengths[i];
    for (int64_t b = 0; in && b < d->o.batch; b++) memcpy(in + b * T, tokens + b * n + at, sizeof *in * (size_t)T);
    return run_here(d, i);
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
    if (n < 1) return tn_error(TN_USAGE, "no tokens to continue from");
    TN_RETURN_IF(check_tokens(d, tokens, n));
    for (int64_t at = 0; at < n;) {
        int i;
        if (d->o.interrupted && d->o.interrupted(d->o.ctx)) return tn_error(TN_INTERRUPTED, "interrupted");
        TN_RETURN_IF(choose_piece(d, n - at, &i));
        TN_RETURN_IF(run_piece(d, i, tokens, n, at));
        at += lengths[i];
    }
    *logits = tn_bound_data(d->piece[LAST].bound, "logits");
    return TN_OK;
}

/* --- replies ---------------------------------------------------------------------------------------------------------- */

bool tn_decoder_replies(const tn_decoder *d) { return tn_model_replies(d->o.model); }

/* A plan for prompts of n tokens, in the place of the last one. */
static tn_status make_reply(tn_decoder *d, int64_t n)
{
    tn_status s = TN_OK;
    tn_graph *g = NULL;
    piece p = { .batch = {
                    .size = sizeof p.batch, .batch = d->o.batch, .length = n, .step = "reply", .cached = true } };
    TN_TRY(tn_graph_new(&d->setup.options, &g));
    tn_batch_add(&p.batch, "tokens", tn_input(g, "tokens", tn_shape(d->o.batch, n), TN_I32));
    TN_TRY(tn_model_build(d->o.model, g, d->o.settings, &p.batch));
    TN_TRY(tn_graph_status(g));
    if (!find_output(g, "logits") || !find_output(g, "position") || !find_output(g, "capacity"))
        TN_FAIL(TN_USAGE, "model %s, step reply: it must output logits, position and capacity", d->o.model->name);
    s = make_plan(d, g, &(tn_compile_options){ .device = d->setup.device, .repeats = 1 }, &p);
    g = NULL;
    if (s != TN_OK) goto done;
    free_piece(&d->reply);
    d->reply = p;
done:
    tn_graph_free(g);
    return s;
}

tn_status tn_decoder_reply(tn_decoder *d, const int32_t *tokens, int64_t n, const float **logits)
{
    if (n < 1) return tn_error(TN_USAGE, "the prompt is empty: there is nothing to reply to");
    TN_RETURN_IF(check_ids(d, tokens, n));
    tn_decoder_clear(d);
    if (d->reply.batch.length != n) TN_RETURN_IF(make_reply(d, n));
    tn_bound *b = d->reply.bound;
    memcpy(tn_bound_data(b, "tokens"), tokens, sizeof *tokens * (size_t)(d->o.batch * n));
    TN_RETURN_IF(tn_run(b));
    d->position = *(const int32_t *)tn_bound_data(b, "position");
    d->o.capacity = *(const int32_t *)tn_bound_data(b, "capacity");
    *logits = tn_bound_data(b, "logits");
    return TN_OK;
}

/* --- greedy ----------------------------------------------------------------------------------------------------------- */

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
        TN_RETURN_IF(run_here(d, LAST));
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

/* The device's "next" is the next run's tokens, and is put aside; a NaN is seen at the end. */
static tn_status queue_ahead(tn_decoder *d, int64_t n)
{
    piece *p = &d->piece[LAST];
    const tn_chain chain = { .input = "tokens",
                             .output = "next",
                             .counter = { "cache.position", "cache.keys", "cache.positions" },
                             .step = !d->stays,
                             .log = d->history };
    tn_decode_cache_position(p->bound, &p->batch, d->position);
    TN_RETURN_IF(tn_bound_chain(p->bound, &chain));
    TN_RETURN_IF(d->warm ? tn_run_again(p->bound) : tn_run(p->bound));
    d->warm = true;
    TN_RETURN_IF(tn_run_chain(p->bound, n - 1));
    d->position += n * chain.step;
    return TN_OK;
}

static tn_status greedy_ahead(tn_decoder *d, int64_t n, int32_t *out)
{
    tn_status s = TN_OK;
    const int64_t B = d->o.batch;
    int32_t *host = tn_alloc(sizeof *host * (size_t)(n * B)); /* (n,B) */
    if (!host) TN_TRY(TN_MEMORY);
    TN_TRY(keep_history(d, n));
    s = queue_ahead(d, n);
    (void)tn_bound_chain(d->piece[LAST].bound, NULL);
    if (s != TN_OK) goto done;
    TN_TRY(tn_context_backend(d->context)
               ->download(tn_context_queue(d->context), host, d->history + 1, sizeof *host * (size_t)(n * B)));
    for (int64_t i = 0; i < n * B; i++) {
        if (host[i] < 0) TN_TRY(not_a_number());
        out[i % B * n + i / B] = host[i];
    }
done:
    tn_free(host);
    return s;
}

tn_status tn_decoder_greedy(tn_decoder *d, const int32_t *tokens, int64_t n, int32_t *out)
{
    if (n < 1) return tn_error(TN_USAGE, "no tokens are asked for");
    TN_RETURN_IF(check_tokens(d, tokens, 1));
    if (n > tn_decoder_tokens_left(d) && !d->stays)
        return tn_error(
            TN_USAGE,
            "%lld tokens after %lld do not fit into a context of %lld: ask for fewer, or use a larger context",
            (long long)n, (long long)d->position, (long long)d->o.capacity);
    memcpy(tn_bound_data(d->piece[LAST].bound, "tokens"), tokens, sizeof *tokens * (size_t)d->o.batch);
    return d->ahead ? greedy_ahead(d, n, out) : greedy_here(d, n, out);
}

/* --- measuring -------------------------------------------------------------------------------------------------------- */

enum { RANDOM_NUMBERS = 1 << 16 };

/* A piece of random numbers, and copies of what was written, twice as many each time: a cache may be most of the memory. */
static tn_status fill_random(tn_decoder *d, const tn_entry *e, const float *numbers, void *block)
{
    const tn_backend *b = tn_context_backend(d->context);
    const int64_t count = tn_dims_count(e->dims), first = count < RANDOM_NUMBERS ? count : RANDOM_NUMBERS;
    const size_t each = tn_dtype_bytes(e->dtype), all = (size_t)count * each;
    if (count == 0) return TN_OK;
    tn_convert(block, e->dtype, numbers, TN_F32, first);
    TN_RETURN_IF(tn_store_write(d->o.store, e->data, block, (size_t)first * each));
    for (size_t done = (size_t)first * each; done < all;) {
        const size_t more = all - done < done ? all - done : done;
        TN_RETURN_IF(b->copy(tn_context_queue(d->context), (char *)e->data + done, e->data, more));
        done += more;
    }
    return TN_OK;
}

tn_status tn_decoder_fill_to(tn_decoder *d, int64_t position, uint64_t seed)
{
    tn_status s = TN_OK;
    const tn_rng rng = { .seed = seed, .stream = tn_rng_stream("pretend") };
    float *numbers = NULL, *block = NULL;
    if (position < 0 || (d->attends && position >= d->o.capacity))
        TN_FAIL(TN_USAGE, "%lld tokens fill a context of %lld: use a larger one", (long long)position,
                (long long)d->o.capacity);
    numbers = tn_alloc(sizeof *numbers * RANDOM_NUMBERS);
    block = tn_alloc(sizeof *block * RANDOM_NUMBERS);
    if (!numbers || !block) TN_TRY(TN_MEMORY);
    for (int i = 0; i < RANDOM_NUMBERS; i++) numbers[i] = 0.5f * tn_rng_normal(rng, (uint64_t)i);
    for (size_t i = 0; i < tn_store_count(d->o.store); i++)
        if (tn_store_at(d->o.store, i)->role == TN_ROLE_CACHE)
            TN_TRY(fill_random(d, tn_store_at(d->o.store, i), numbers, block));
    TN_TRY(tn_context_backend(d->context)->wait(tn_context_queue(d->context)));
    d->position = position;
    d->stays = true;
done:
    tn_free(numbers);
    tn_free(block);
    return s;
}

const tn_plan *tn_decoder_plan(const tn_decoder *d) { return d->piece[LAST].plan; }
