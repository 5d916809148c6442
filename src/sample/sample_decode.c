/* The plans of decoding, made when a prompt first needs them, and running them in turn. All share one store and context.
 * The plan of a single token packs weights (CUDA: rounds them) once for all tokens that follow each other (its prologue); the others are
 * run too seldom for that. */
#include "sample/sample_decode_parts.h"

#include "backend/backend.h"
#include "base/rng.h"
#include "models/models.h"
#include "train/trainer/shared.h"
#include "train/trainer/trainer.h"

#include <tenon/ops.h>

#include <string.h>

/* Lengths of the pieces of a prompt, longest first. REST has the length of what is left, where that is worth a plan: one pass over the
 * weights instead of many. The last has logits.
 *
 * On a GPU a plan is made once for many prompts, because its first runs are slow. Where nothing but keys and values is kept, pieces may be
 * longer than what is left: nobody looks at what lies behind a row's end. Models with a state take a few lengths, one after the other. */
static const struct {
    int64_t tokens;
    bool padded; /* only for those who pad */
} lengths[] = { { 4096, true }, { 2048, true }, { 1024, true }, { 512, true }, { 256, false }, { 0, false },
                { 128, true },  { 64, true },   { 32, false },  { 16, true },  { 4, false },   { 1, false } };
enum { MOST_AT_ONCE = 4096, PLANS = TN_DECODER_PLANS, LAST = PLANS - 1, REST = 5, REST_LEAST = 16, REST_MOST = 256 };
_Static_assert(sizeof lengths / sizeof *lengths == PLANS, "a plan for every length");
typedef tn_decoder_piece piece;
enum { MANY = 1 << 20 }; /* tokens, one after the other, in a text: as many uses of what its plan prepares */

static int64_t length_of(const tn_decoder *d, int i) { return i == REST ? d->rest : lengths[i].tokens; }

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

tn_status tn__decoder_make_plan(tn_decoder *d, tn_graph *g, const tn_compile_options *how, piece *p)
{
    tn_status s = tn_graph_status(g);
    if (s == TN_OK) s = check_memory(d, g);
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
                           .length = length_of(d, i),
                           .step = "eval",
                           .want = { "logits" },
                           .n_wants = i == LAST } };
    TN_TRY(tn_graph_new(&d->setup.options, &g));
    tn_batch_add(&p.batch, "tokens", tn_input(g, "tokens", tn_shape(d->o.batch, length_of(d, i)), TN_I32));
    tn_decode_cache_inputs(g, &p.batch, d->o.capacity);
    tn_decode_cache_slides(g, &p.batch);
    if (d->commits) tn_batch_add(&p.batch, "commit", tn_input(g, "commit", tn_shape(d->o.batch), TN_F32));
    TN_TRY(tn_model_build(d->o.model, g, d->o.settings, &p.batch));
    TN_TRY(tn_graph_status(g));
    if (i == LAST) TN_TRY(check_graph(d, g));
    d->window = tn_decode_cache_window(g);
    d->keeps = g->n_assigns > 0;
    if (i == LAST && d->chooses) tn_output(g, "next", tn_argmax(g, tn_graph_output(g, "logits")));
    const int64_t repeats = i == LAST ? repeats_of(d, g) : 1;
    const bool token = i == LAST && d->o.batch == 1;
    s = tn__decoder_make_plan(d, g,
                              &(tn_compile_options){ .device = d->setup.device, .repeats = repeats, .token = token },
                              &p);
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
    d->position = tn_alloc(sizeof *d->position * (size_t)o->batch);
    d->slot = tn_alloc(sizeof *d->slot * (size_t)o->batch);
    d->ended = tn_alloc(sizeof *d->ended * (size_t)o->batch);
    if (!d->position || !d->slot || !d->ended) TN_TRY(TN_MEMORY);
    const tn_device device = tn_store_device(o->store);
    TN_TRY(tn_graph_setup_read(o->settings, &device, o->threads, &d->setup));
    const bool half = is_on(o->settings, "opt.decode_half");
    if (device != TN_CPU && !half) d->setup.options.activation = d->setup.options.round = TN_F32;
    d->setup.options.frozen = o->frozen;
    tn_graph_setup_freeze(&d->setup, o->weights);
    if (o->frozen && !o->drawn) tn_store_loads_weights(o->store);
    d->ahead = o->greedy && device != TN_CPU && is_on(o->settings, "opt.decode_ahead");
    d->chooses = o->greedy && (device == TN_CPU || d->ahead);
    TN_TRY(tn_context_new(device, d->setup.options.threads, &d->context));
    TN_TRY(make_piece(d, LAST));
    d->attends = d->window || tn_bound_data(d->piece[LAST].bound, "cache.keys");
    d->pads = device != TN_CPU && d->attends && !d->keeps;
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
    free_piece(&d->move);
    if (d->history) tn_context_backend(d->context)->free(d->history);
    tn_context_free(d->context);
    tn_store_drop_caches(d->o.store);
    tn_free(d->position);
    tn_free(d->slot);
    tn_free(d->ended);
    tn_free(d);
}

int64_t tn_decoder_vocab(const tn_decoder *d) { return d->vocab; }

/* Of the longest row. */
static int64_t longest_row(const tn_decoder *d)
{
    int64_t most = 0;
    for (int64_t b = 0; b < d->o.batch; b++) most = d->position[b] > most ? d->position[b] : most;
    return most;
}

static void put_rows_at(tn_decoder *d, int64_t position)
{
    for (int64_t b = 0; b < d->o.batch; b++) {
        d->position[b] = position;
        tn__decoder_put_slot(d, b, position);
    }
    memset(d->ended, 0, sizeof *d->ended * (size_t)d->o.batch);
}

static void move_row(tn_decoder *d, int64_t row, int64_t further)
{
    d->position[row] += further;
    d->slot[row] += further;
}

void tn__decoder_move(tn_decoder *d, int64_t further)
{
    for (int64_t b = 0; b < d->o.batch && !d->stays; b++) move_row(d, b, d->ended[b] ? 0 : further);
}

int64_t tn_decoder_tokens_left(const tn_decoder *d) { return d->attends ? d->o.capacity - longest_row(d) : INT64_MAX; }

int64_t tn_decoder_row_left(const tn_decoder *d, int64_t row)
{
    return d->attends ? d->o.capacity - d->position[row] : INT64_MAX;
}

void tn_decoder_end_row(tn_decoder *d, int64_t row)
{
    d->ended[row] = true;
    d->position[row] = d->slot[row] = 0; /* where attention has the least to read */
}

void tn_decoder_clear(tn_decoder *d)
{
    tn_decode_cache_clear(d->o.store);
    put_rows_at(d, 0);
    d->stays = d->warm = false;
}

static tn_status check_row(const tn_decoder *d, const int32_t *tokens, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= d->vocab)
            return tn_error(TN_USAGE, "token %d is outside the model's vocabulary of %lld: is this its tokenizer?",
                            (int)tokens[i], (long long)d->vocab);
    return TN_OK;
}

tn_status tn__decoder_check(const tn_decoder *d, const int32_t *tokens, int64_t n)
{
    if (n > tn_decoder_tokens_left(d) && !d->stays)
        return tn_error(
            TN_USAGE,
            "%lld tokens after %lld do not fit into a context of %lld: use a shorter prompt or a larger context",
            (long long)n, (long long)longest_row(d), (long long)d->o.capacity);
    return check_row(d, tokens, d->o.batch * n);
}

/* Runs a piece on the tokens that are in its input. */
static tn_status run_here(tn_decoder *d, int i)
{
    piece *p = &d->piece[i];
    TN_RETURN_IF(tn__decoder_make_room(d, p->batch.length));
    tn_decode_cache_positions(p->bound, &p->batch, d->position);
    tn_decode_cache_slots(p->bound, &p->batch, d->slot);
    TN_RETURN_IF(i == LAST && d->warm ? tn_run_again(p->bound) : tn_run(p->bound));
    d->warm = true;
    return TN_OK;
}

/* Whose states a piece leaves behind: of rows that have tokens from `at` on, of `own` (B); NULL: of all. */
static void commit_rows(tn_decoder *d, int i, const int64_t *own, int64_t at)
{
    float *x = tn_bound_data(d->piece[i].bound, "commit"); /* (B) */
    for (int64_t b = 0; x && b < d->o.batch; b++) x[b] = !own || own[b] > at;
}

tn_status tn__decoder_run_token(tn_decoder *d)
{
    commit_rows(d, LAST, NULL, 0);
    return run_here(d, LAST);
}

/* Of n tokens of a row those from `at` on that are the piece's: the last one goes alone. */
static int64_t tokens_of(const tn_decoder *d, int i, int64_t n, int64_t at)
{
    const int64_t T = length_of(d, i), left = i == LAST ? 1 : n - 1 - at;
    return left < T ? left : T;
}

static tn_status run_piece(tn_decoder *d, int i, const int32_t *tokens, int64_t n, int64_t at)
{
    piece *p = &d->piece[i];
    int32_t *in = tn_bound_data(p->bound, "tokens"); /* (B,T) */
    const int64_t T = length_of(d, i), own = tokens_of(d, i, n, at);
    for (int64_t b = 0; in && b < d->o.batch; b++) {
        memcpy(in + b * T, tokens + b * n + at, sizeof *in * (size_t)own);
        memset(in + b * T + own, 0, sizeof *in * (size_t)(T - own));
    }
    commit_rows(d, i, NULL, at);
    TN_RETURN_IF(run_here(d, i));
    tn__decoder_move(d, own);
    return TN_OK;
}

/* Makes REST one of so many tokens, if that pays: on a GPU the first runs of a plan are slow. */
static void fit_rest(tn_decoder *d, int64_t tokens)
{
    const bool fits = tokens < REST_MOST && tokens * d->o.batch <= MOST_AT_ONCE &&
                      tokens <= tn_settings_int(d->o.settings, "train.context");
    const bool pays = d->setup.device == TN_CPU && tokens >= REST_LEAST && fits;
    if (pays && d->rest != tokens) free_piece(&d->piece[REST]);
    d->rest = pays ? tokens : d->rest;
}

/* Whether piece i is one for `own` tokens. A padded one may be a quarter longer, where the cache has room for it. */
static bool is_for(const tn_decoder *d, int i, int64_t own)
{
    const int64_t T = length_of(d, i), context = tn_settings_int(d->o.settings, "train.context");
    if (T == 0 || T > context || T * d->o.batch > MOST_AT_ONCE || (lengths[i].padded && !d->pads)) return false;
    if (d->window && T > tn_decode_window_room(d->window)) return false;
    return T <= own || (d->pads && 4 * own > 3 * T && T <= tn_decoder_tokens_left(d));
}

/* The longest piece that fits. A model that takes no piece of this length (token by token only, no room for such a table, or no memory)
 * gets shorter ones: the one token that made the decoder always works. */
static tn_status choose_piece(tn_decoder *d, int64_t left, int *out)
{
    fit_rest(d, left - 1);
    for (int i = d->longest; i < LAST; i++) {
        if (!is_for(d, i, left - 1)) continue; /* the last token is left over, for its logits */
        const tn_status s = d->piece[i].bound ? TN_OK : make_piece(d, i);
        if (s != TN_OK && s != TN_USAGE && s != TN_MEMORY) return s;
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
    TN_RETURN_IF(tn__decoder_check(d, tokens, n));
    for (int64_t at = 0; at < n;) {
        int i;
        if (d->o.interrupted && d->o.interrupted(d->o.ctx)) return tn_error(TN_INTERRUPTED, "interrupted");
        TN_RETURN_IF(choose_piece(d, n - at, &i));
        const int64_t own = tokens_of(d, i, n, at);
        TN_RETURN_IF(run_piece(d, i, tokens, n, at));
        at += own;
    }
    *logits = tn_bound_data(d->piece[LAST].bound, "logits");
    return TN_OK;
}

/* --- rows of different length ------------------------------------------------------------------------------------------ */

/* A state is changed by every token: rows that have no more leave theirs alone, which takes other plans. Keys and values are only
 * looked at up to a row's length, so what lies behind may be anything. */
static tn_status make_commits(tn_decoder *d)
{
    if (!d->keeps || d->commits) return TN_OK;
    for (int i = 0; i < PLANS; i++) free_piece(&d->piece[i]);
    d->commits = true;
    d->warm = false;
    TN_RETURN_IF(make_piece(d, LAST));
    if (tn_bound_data(d->piece[LAST].bound, "commit")) return TN_OK;
    return tn_error(TN_USAGE,
                    "model %s keeps a state and does not read \"commit\", so prompts of different length cannot go "
                    "together: give them one by one",
                    d->o.model->name);
}

/* How many tokens from `at` on may be in one piece: all rows have them or, where states are kept, have none; and there is room for
 * them behind every row. */
static int64_t at_once(const tn_decoder *d, const int64_t *own, int64_t at)
{
    int64_t least = INT64_MAX, most = 0;
    for (int64_t b = 0; b < d->o.batch; b++) {
        const int64_t left = own[b] - at;
        if (left > 0 && left < least) least = left;
        if (left > most) most = left;
    }
    const int64_t n = d->keeps ? least : most, room = tn_decoder_tokens_left(d);
    return n < room ? n : room;
}

static tn_status run_ragged(tn_decoder *d, int i, const int32_t *tokens, int64_t n, const int64_t *own, int64_t at)
{
    piece *p = &d->piece[i];
    int32_t *in = tn_bound_data(p->bound, "tokens"); /* (B,T) */
    const int64_t T = length_of(d, i);
    for (int64_t k = 0; in && k < d->o.batch * T; k++)
        in[k] = at + k % T < own[k / T] ? tokens[k / T * n + at + k % T] : 0;
    commit_rows(d, i, own, at);
    TN_RETURN_IF(run_here(d, i));
    for (int64_t b = 0; b < d->o.batch; b++) {
        const int64_t left = own[b] > at ? own[b] - at : 0;
        move_row(d, b, left < T ? left : T);
    }
    return TN_OK;
}

static tn_status check_rows(const tn_decoder *d, const int32_t *tokens, int64_t n, const int64_t *length)
{
    for (int64_t b = 0; b < d->o.batch; b++) {
        if (length[b] < 1 || length[b] > n)
            return tn_error(TN_USAGE, "row %lld has %lld tokens of %lld: it needs at least one", (long long)b,
                            (long long)length[b], (long long)n);
        if (d->attends && d->position[b] + length[b] > d->o.capacity)
            return tn_error(TN_USAGE, "%lld tokens after %lld do not fit into a context of %lld: use a larger context",
                            (long long)length[b], (long long)d->position[b], (long long)d->o.capacity);
        TN_RETURN_IF(check_row(d, tokens + b * n, length[b]));
    }
    return TN_OK;
}

static tn_status feed_ragged(tn_decoder *d, const int32_t *tokens, int64_t n, int64_t *own)
{
    int64_t most = 0;
    for (int64_t b = 0; b < d->o.batch; b++) most = own[b] > most ? own[b] : most;
    for (int64_t at = 0; at < most;) {
        int i;
        if (d->o.interrupted && d->o.interrupted(d->o.ctx)) return tn_error(TN_INTERRUPTED, "interrupted");
        TN_RETURN_IF(choose_piece(d, at_once(d, own, at) + 1, &i));
        TN_RETURN_IF(run_ragged(d, i, tokens, n, own, at));
        at += length_of(d, i);
    }
    int32_t *in = tn_bound_data(d->piece[LAST].bound, "tokens"); /* (B,1) */
    for (int64_t b = 0; in && b < d->o.batch; b++) in[b] = tokens[b * n + own[b]];
    TN_RETURN_IF(tn__decoder_run_token(d));
    tn__decoder_move(d, 1);
    return TN_OK;
}

tn_status tn_decoder_feed_rows(tn_decoder *d, const int32_t *tokens, int64_t n, const int64_t *length,
                               const float **logits)
{
    TN_RETURN_IF(check_rows(d, tokens, n, length));
    TN_RETURN_IF(make_commits(d));
    int64_t *own = tn_alloc(sizeof *own * (size_t)d->o.batch); /* (B) tokens before the last, which goes alone */
    if (!own) return TN_MEMORY;
    for (int64_t b = 0; b < d->o.batch; b++) own[b] = length[b] - 1;
    const tn_status s = feed_ragged(d, tokens, n, own);
    tn_free(own);
    if (s == TN_OK) *logits = tn_bound_data(d->piece[LAST].bound, "logits");
    return s;
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
    s = tn__decoder_make_plan(d, g, &(tn_compile_options){ .device = d->setup.device, .repeats = 1 }, &p);
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
    TN_RETURN_IF(check_row(d, tokens, d->o.batch * n));
    tn_decoder_clear(d);
    if (d->reply.batch.length != n) TN_RETURN_IF(make_reply(d, n));
    tn_bound *b = d->reply.bound;
    memcpy(tn_bound_data(b, "tokens"), tokens, sizeof *tokens * (size_t)(d->o.batch * n));
    TN_RETURN_IF(tn_run(b));
    put_rows_at(d, *(const int32_t *)tn_bound_data(b, "position"));
    d->o.capacity = *(const int32_t *)tn_bound_data(b, "capacity");
    *logits = tn_bound_data(b, "logits");
    return TN_OK;
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
    put_rows_at(d, position);
    d->stays = true;
done:
    tn_free(numbers);
    tn_free(block);
    return s;
}

const tn_plan *tn_decoder_plan(const tn_decoder *d) { return d->piece[LAST].plan; }
