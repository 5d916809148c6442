/* The plans of a speaker, made when they are first needed, and running them in turn: one that opens rows with a message, pieces of rows, and
 * single tokens. All of them put out the logits of their last token.
 *
 * Rows of one length are read in one pass.
 *
 * Rows of different length: where a reader keeps keys and values alone, a piece is as long as the longest row, and what lies behind a
 * row's end is never looked at, or written over. A short convolution keeps a state, which every token changes: pieces are then no longer than
 * what all rows that go on have left, and "commit" leaves the states of the others alone. */
#include "report/wire/speaker.h"

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/status.h"
#include "models/decode_cache.h"
#include "models/wire/wire.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    PIECES = 16,
    ROUND = 16,
    LONGEST_PIECE = 512,
    AT_ONCE = 64 * LONGEST_PIECE,
    MANY = 1 << 20,
    SMALL_BYTES = 32000000
};

typedef struct piece {
    bool opens;
    int64_t tokens; /* of a row, without what the message puts before them */
    tn_plan *plan;
    tn_bound *bound;
    tn_batch batch;
} piece;

struct tn_wire_speaker {
    tn_wire_speaker_options o;
    wire_say shape;
    tn_store *store;
    tn_context *context;
    int64_t capacity;
    int64_t rows; /* of the batch that were read */
    bool keeps;   /* a state beside keys and values */
    piece piece[PIECES];
    int n_pieces, oldest;
    const piece *last; /* that ran */
    int64_t *position; /* (B) */
    int64_t *left;     /* (B) tokens of its row before the last one that are not read yet */
    bool *ended;       /* (B) */
    float *kept;       /* (B, vocab), or NULL */
    bool merged;       /* its logits are those in `kept` */
};

/* --- plans ---------------------------------------------------------------------------------------------------------------- */

static void free_piece(piece *p)
{
    tn_bound_free(p->bound);
    tn_plan_free(p->plan);
    *p = (piece){ 0 };
}

/* How often a plan may count on its weights: large ones are not packed, which would hold them twice. */
static int64_t repeats_of(const tn_wire_speaker *v, const tn_graph *g, const piece *p)
{
    double bytes = 0;
    if (p->opens || p->tokens > 1) return 1;
    for (size_t i = 1; i < g->n_tensors; i++)
        if (g->tensor[i].weight && g->tensor[i].base == (int32_t)i)
            bytes += 4 * (double)tn_dims_count(g->tensor[i].dims);
    return tn_store_device(v->store) != TN_CPU || bytes < SMALL_BYTES ? MANY : 1;
}

static tn_status build(tn_wire_speaker *v, piece *p, tn_graph *g)
{
    const wire_say *shape = &v->shape;
    const int64_t B = v->o.batch, before = !p->opens ? 0 : 1 + (shape->keys ? 0 : shape->own);
    tn_batch *b = &p->batch;
    *b = (tn_batch){ .size = sizeof *b, .batch = B, .length = before + p->tokens, .step = "say" };
    tn_batch_add(b, "tokens", tn_input(g, "tokens", tn_shape(B, p->tokens), TN_I32));
    if (p->opens) {
        tn_batch_add(b, "message", tn_input(g, "message.in", tn_shape(B, shape->slots, shape->width), TN_F32));
        tn_batch_add(b, "kind", tn_input(g, "kind", tn_shape(B), TN_I32));
    }
    tn_decode_cache_inputs(g, b, v->capacity);
    tn_batch_add(b, "commit", tn_input(g, "commit", tn_shape(B), TN_F32));
    TN_RETURN_IF(wire_build_say(g, tn_trainer_settings(v->o.trainer), b, v->o.reader));
    return tn_graph_status(g);
}

static tn_status make_piece(tn_wire_speaker *v, piece *p)
{
    tn_status s = TN_OK;
    tn_graph *g = NULL;
    const tn_device device = tn_store_device(v->store);
    v->last = NULL; /* binding may move the arena */
    TN_TRY(tn_graph_new(tn_trainer_graph_options(v->o.trainer), &g));
    TN_TRY(build(v, p, g));
    TN_TRY(tn_store_adopt(v->store, g));
    v->keeps = g->n_assigns > 0;
    const tn_compile_options how = { .device = device,
                                     .repeats = repeats_of(v, g, p),
                                     .token = v->o.batch == 1 && !p->opens && p->tokens == 1 };
    tn_graph *built = g;
    g = NULL; /* taken, also where it fails */
    TN_TRY(tn_graph_compile(built, &how, &p->plan));
    TN_TRY(tn_bind(p->plan, v->context, v->store, &p->bound));
done:
    tn_graph_free(g);
    if (s != TN_OK) free_piece(p);
    return s;
}

/* The plan for so many tokens; of many, the one that was made first makes room. */
static tn_status find_piece(tn_wire_speaker *v, bool opens, int64_t tokens, piece **out)
{
    for (int i = 0; i < v->n_pieces; i++)
        if (v->piece[i].opens == opens && v->piece[i].tokens == tokens) return *out = &v->piece[i], TN_OK;
    piece made = { .opens = opens, .tokens = tokens };
    TN_RETURN_IF(make_piece(v, &made));
    piece *to = &v->piece[v->n_pieces < PIECES ? v->n_pieces++ : 1 + v->oldest++ % (PIECES - 1)];
    free_piece(to);
    *to = made;
    *out = to;
    return TN_OK;
}

static tn_status open_speaker(tn_wire_speaker *v)
{
    tn_status s = TN_OK;
    tn_graph *g = NULL;
    piece *token;
    const tn_graph_options *options = tn_trainer_graph_options(v->o.trainer);
    TN_TRY(tn_graph_new(options, &g));
    TN_TRY(wire_say_shape(g, tn_trainer_settings(v->o.trainer), v->o.reader, &v->shape));
    if (v->o.longest > v->shape.context)
        TN_FAIL(TN_USAGE,
                "reader %c: a sequence of %lld tokens is longer than train.context=%lld: ask for fewer tokens "
                "(max_tokens), or use a reader that was trained on longer texts",
                v->o.reader, (long long)v->o.longest, (long long)v->shape.context);
    v->capacity = (v->o.longest + ROUND - 1) / ROUND * ROUND + ROUND; /* a piece may end behind its row */
    TN_TRY(tn_context_new(tn_store_device(v->store), options->threads, &v->context));
    TN_TRY(find_piece(v, false, 1, &token)); /* piece 0 stays */
done:
    tn_graph_free(g);
    return s;
}

tn_status tn_wire_speaker_new(const tn_wire_speaker_options *o, tn_wire_speaker **out)
{
    tn_wire_speaker *v = tn_alloc(sizeof *v);
    if (!v) return TN_MEMORY;
    *v = (tn_wire_speaker){ .o = *o, .store = tn_trainer_store(o->trainer) };
    const size_t B = (size_t)o->batch;
    v->position = tn_alloc(B * sizeof *v->position);
    v->left = tn_alloc(B * sizeof *v->left);
    v->ended = tn_alloc(B * sizeof *v->ended);
    const tn_status s = v->position && v->left && v->ended ? open_speaker(v) : TN_MEMORY;
    if (s == TN_OK) *out = v;
    else tn_wire_speaker_free(v);
    return s;
}

void tn_wire_speaker_free(tn_wire_speaker *v)
{
    if (!v) return;
    for (int i = 0; i < v->n_pieces; i++) free_piece(&v->piece[i]);
    tn_context_free(v->context);
    tn_free(v->position);
    tn_free(v->left);
    tn_free(v->ended);
    tn_free(v->kept);
    tn_free(v);
}

int64_t tn_wire_speaker_vocab(const tn_wire_speaker *v) { return v->shape.vocab; }
int64_t tn_wire_speaker_before(const tn_wire_speaker *v) { return v->shape.own + 1; }

int64_t tn_wire_speaker_room(const tn_wire_speaker *v, const tn_wire_row *row, bool message)
{
    return v->o.longest - row->n - (message ? tn_wire_speaker_before(v) : 0) + 1;
}

tn_status tn_wire_speaker_positions(tn_trainer *t, char reader, int64_t *out)
{
    tn_graph *g = NULL;
    wire_say shape;
    TN_RETURN_IF(tn_graph_new(tn_trainer_graph_options(t), &g));
    const tn_status s = wire_say_shape(g, tn_trainer_settings(t), reader, &shape);
    tn_graph_free(g);
    if (s == TN_OK) *out = shape.context;
    return s;
}

/* --- reading -------------------------------------------------------------------------------------------------------------- */

/* A state of its own, of which keys and values at positions are none, starts as zeros. */
static tn_status clear_states(tn_wire_speaker *v)
{
    static const char name[] = "conv_state";
    for (size_t i = 0; v->keeps && i < tn_store_count(v->store); i++) {
        const tn_entry *e = tn_store_at(v->store, i);
        const size_t n = strlen(e->name);
        if (e->role == TN_ROLE_CACHE && e->name[0] == v->o.reader && e->name[1] == '.' && n >= sizeof name - 1 &&
            strcmp(e->name + n - (sizeof name - 1), name) == 0)
            TN_RETURN_IF(tn_store_clear(v->store, e->data, (size_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype)));
    }
    return TN_OK;
}

static tn_status run(tn_wire_speaker *v, piece *p)
{
    tn_decode_cache_positions(p->bound, &p->batch, v->position);
    const bool again = v->last == p;
    v->last = p;
    return again ? tn_run_again(p->bound) : tn_run(p->bound);
}

static tn_status check_rows(const tn_wire_speaker *v, const tn_wire_row *row, int64_t n, int64_t before)
{
    if (n < 1 || n > v->o.batch) return tn_error(TN_INTERNAL, "%lld rows do not fit a batch", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        if (row[i].n < 1 || before + row[i].n > v->o.longest)
            return tn_error(TN_INTERNAL, "a row of %lld tokens does not fit", (long long)row[i].n);
        for (int64_t t = 0; t < row[i].n; t++)
            if (row[i].ids[t] < 0 || row[i].ids[t] >= v->shape.vocab)
                return tn_error(TN_USAGE,
                                "token %d is outside the vocabulary of reader %c, %lld: is this its tokenizer?",
                                (int)row[i].ids[t], v->o.reader, (long long)v->shape.vocab);
    }
    return TN_OK;
}

/* Tokens from `at` on of all rows into a piece; rows that have no more get zeros, and keep their states. Rows beside the n are those of the
 * first, so that no number in them is odd. */
static void fill(const tn_wire_speaker *v, piece *p, const tn_wire_row *row, int64_t n, const int64_t *at)
{
    int32_t *tokens = tn_bound_data(p->bound, "tokens"); /* (B,T) */
    float *commit = tn_bound_data(p->bound, "commit");   /* (B) */
    for (int64_t b = 0; b < v->o.batch; b++) {
        const tn_wire_row *r = &row[b < n ? b : 0];
        for (int64_t t = 0; t < p->tokens; t++) tokens[b * p->tokens + t] = at[b] + t < r->n ? r->ids[at[b] + t] : 0;
        if (commit) commit[b] = v->left[b] > 0 || p->opens;
    }
}

/* BOS, message, anchor, and the first tokens of all rows. */
static tn_status open_rows(tn_wire_speaker *v, const tn_wire_row *row, int64_t n, int64_t tokens, const float *z,
                           int kind, int64_t *at)
{
    piece *p;
    const int64_t B = v->o.batch, each = v->shape.slots * v->shape.width;
    TN_RETURN_IF(find_piece(v, true, tokens, &p));
    fill(v, p, row, n, at);
    float *message = tn_bound_data(p->bound, "message.in");
    int32_t *kinds = tn_bound_data(p->bound, "kind");
    if (!message || !kinds) return tn_error(TN_INTERNAL, "step say has other inputs");
    for (int64_t b = 0; b < B; b++) {
        memcpy(message + b * each, z + (b < n ? b : 0) * each, sizeof *z * (size_t)each);
        kinds[b] = kind;
        v->position[b] = v->shape.keys ? v->shape.own : 0;
    }
    TN_RETURN_IF(run(v, p));
    for (int64_t b = 0; b < B; b++) {
        v->position[b] = v->shape.own + 1 + tokens;
        at[b] = tokens;
        v->left[b] -= tokens;
    }
    return TN_OK;
}

/* How long the next piece is: 0 where no row has tokens left. */
static int64_t next_length(const tn_wire_speaker *v)
{
    int64_t least = INT64_MAX, most = 0, power = 1;
    for (int64_t b = 0; b < v->o.batch; b++) {
        if (v->left[b] > 0 && v->left[b] < least) least = v->left[b];
        if (v->left[b] > most) most = v->left[b];
    }
    if (!most || (!v->keeps && most <= LONGEST_PIECE)) return most ? (most + ROUND - 1) / ROUND * ROUND : 0;
    if (!v->keeps) return LONGEST_PIECE;
    while (2 * power <= least && 2 * power <= LONGEST_PIECE) power *= 2;
    return power;
}

static tn_status read_pieces(tn_wire_speaker *v, const tn_wire_row *row, int64_t n, int64_t *at)
{
    for (int64_t T; (T = next_length(v)) > 0;) {
        piece *p;
        TN_RETURN_IF(find_piece(v, false, T, &p));
        fill(v, p, row, n, at);
        TN_RETURN_IF(run(v, p));
        for (int64_t b = 0; b < v->o.batch; b++) {
            const int64_t own = v->left[b] < 0 ? 0 : v->left[b] < T ? v->left[b] : T;
            v->position[b] += own, at[b] += own, v->left[b] -= own;
        }
    }
    return TN_OK;
}

static tn_status keep_logits(tn_wire_speaker *v)
{
    const size_t bytes = (size_t)(v->o.batch * v->shape.vocab) * sizeof *v->kept;
    const float *logits = tn_bound_data(v->last->bound, "logits");
    if (!v->kept) v->kept = tn_alloc(bytes);
    if (!logits || !v->kept) return tn_error(TN_MEMORY, "out of memory for logits");
    memcpy(v->kept, logits, bytes);
    return TN_OK;
}

/* Rows that had a last token take the logits behind it. */
static tn_status merge_logits(tn_wire_speaker *v)
{
    const int64_t V = v->shape.vocab;
    const float *logits = tn_bound_data(v->last->bound, "logits");
    if (!logits) return tn_error(TN_MEMORY, "out of memory for logits");
    for (int64_t b = 0; b < v->o.batch; b++)
        if (v->left[b]) memcpy(v->kept + b * V, logits + b * V, sizeof *logits * (size_t)V);
    v->merged = true;
    return TN_OK;
}

/* Rows of text of one length, in one pass, as messages are read: times of both are compared. */
static tn_status read_at_once(tn_wire_speaker *v, const tn_wire_row *row, int64_t n, int64_t tokens, int64_t *at)
{
    piece *p;
    TN_RETURN_IF(find_piece(v, false, tokens, &p));
    for (int64_t b = 0; b < v->o.batch; b++) v->left[b] = tokens; /* the last one too */
    fill(v, p, row, n, at);
    TN_RETURN_IF(run(v, p));
    for (int64_t b = 0; b < v->o.batch; b++) v->position[b] = at[b] = tokens, v->left[b] = 0;
    return TN_OK;
}

static tn_status read_rows(tn_wire_speaker *v, const tn_wire_row *row, int64_t n, const float *z, int kind, int64_t *at)
{
    const int64_t B = v->o.batch;
    v->rows = n;
    v->merged = false;
    int64_t least = INT64_MAX, most = 0;
    for (int64_t b = 0; b < B; b++) {
        const int64_t has = row[b < n ? b : 0].n;
        least = has < least ? has : least, most = has > most ? has : most;
        v->position[b] = at[b] = 0;
        v->ended[b] = false;
        v->left[b] = has - 1;
    }
    if (least == most && z) return open_rows(v, row, n, least, z, kind, at);
    if (least == most && B * least <= AT_ONCE) return read_at_once(v, row, n, least, at);
    const bool apart = z && least == 1; /* rows of BOS alone are done when they are opened */
    if (z) TN_RETURN_IF(open_rows(v, row, n, apart ? 1 : least - 1, z, kind, at));
    if (apart) TN_RETURN_IF(keep_logits(v));
    TN_RETURN_IF(read_pieces(v, row, n, at));
    for (int64_t b = 0; b < B; b++) v->left[b] = at[b] < row[b < n ? b : 0].n;
    fill(v, &v->piece[0], row, n, at); /* the last token of each goes alone: its logits are asked for */
    TN_RETURN_IF(run(v, &v->piece[0]));
    for (int64_t b = 0; b < B; b++) v->position[b] += v->left[b];
    return apart ? merge_logits(v) : TN_OK;
}

tn_status tn_wire_speaker_read(tn_wire_speaker *v, const tn_wire_row *row, int64_t n, const float *z, int kind)
{
    TN_RETURN_IF(check_rows(v, row, n, z ? tn_wire_speaker_before(v) : 0));
    TN_RETURN_IF(clear_states(v));
    int64_t *at = tn_alloc((size_t)v->o.batch * sizeof *at); /* (B) tokens of a row that are read */
    if (!at) return TN_MEMORY;
    const tn_status s = read_rows(v, row, n, z, kind, at);
    tn_free(at);
    return s;
}

tn_status tn_wire_speaker_feed(tn_wire_speaker *v, const int32_t *ids)
{
    piece *p = &v->piece[0];
    v->merged = false;
    int32_t *tokens = tn_bound_data(p->bound, "tokens"); /* (B,1) */
    float *commit = tn_bound_data(p->bound, "commit");   /* (B) */
    for (int64_t b = 0; b < v->o.batch; b++) {
        const bool goes = b < v->rows && !v->ended[b];
        if (goes && v->position[b] >= v->o.longest) return tn_error(TN_INTERNAL, "a row is full");
        tokens[b] = goes ? ids[b] : 0;
        if (commit) commit[b] = 1;
        if (!goes) v->position[b] = 0; /* where attention has the least to read */
    }
    TN_RETURN_IF(run(v, p));
    for (int64_t b = 0; b < v->rows; b++) v->position[b] += !v->ended[b];
    return TN_OK;
}

void tn_wire_speaker_end_row(tn_wire_speaker *v, int64_t row) { v->ended[row] = true; }

const float *tn_wire_speaker_logits(tn_wire_speaker *v)
{
    return v->merged ? v->kept : tn_bound_data(v->last->bound, "logits");
}
