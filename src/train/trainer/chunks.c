/* A batch in chunks of time: plans for a chunk and for the shorter last one, the states at the boundaries, and running them.
 * States are inputs and outputs of the plans and are copied on the device; the host waits for the losses alone.
 *
 * Invariant: both passes compute a chunk with the same tokens, states and random numbers. Losses and gradients are weighted
 * so that their sum is the mean over the batch: by counted labels, or by tokens for what a model adds to its loss. */
#include "train/trainer/chunks.h"

#include "backend/backend.h"
#include "models/decode_cache.h"
#include "models/models.h"
#include "train/trainer/shared.h"

#include <stdio.h>
#include <string.h>

enum { AUTO_MULTIPLE = 64 };
/* of a chunk, in all rows: enough for matrix products */
static const int64_t AUTO_TOKENS[TN_DEVICES] = { [TN_CPU] = 4096, [TN_CUDA] = 16384 };

static const char *const weight_name[TN_LOSSES_MAX] = { "chunk.weight0", "chunk.weight1", "chunk.weight2",
                                                        "chunk.weight3" };

typedef enum role { ADVANCE, GRAD, GRAD_LAST, EVAL, EVAL_LAST, ROLES } role;

/* One plan. The pointers are into its inputs and outputs; NULL where it has none. What the host writes is the host's, the rest
 * is where the plan runs. */
typedef struct piece {
    int64_t length;
    tn_batch batch;
    tn_plan *plan;
    tn_bound *bound;
    void *input[TN_INPUTS_MAX];                /* by slot */
    float *weight[TN_LOSSES_MAX];              /* of each part of the loss */
    float *scalar[TN_SCHEDULES_MAX];           /* by schedule */
    const void *loss[TN_LOSSES_MAX];           /* f32 (1) */
    void **state, **next, **d_state, **d_next; /* by state */
} piece;

typedef struct state {
    const char *name;     /* the plan's */
    size_t bytes, offset; /* in a slot */
} state;

struct tn_chunks {
    const tn_model *model;
    const tn_settings *settings;
    const tn_graph_options *graph;
    int64_t batch, length, chunk, n;
    bool forward_only;
    const tn_inputs *inputs; /* the trainer's */
    const char *const *wants;
    tn_store *store;
    tn_context *context;
    const tn_backend *backend; /* of the context, and its queue */
    void *queue;
    tn_status (*fits)(void *ctx, const tn_graph *g);
    void *ctx;
    piece piece[ROLES];
    state *state;
    size_t n_states, slot_bytes;
    unsigned char *slot; /* (slots, slot_bytes), of the device: the states before each chunk; the first is zero */
    unsigned char *d;    /* (slot_bytes), of the device: gradient of the states behind the chunk at hand */
    float *part;         /* (n, each), of the device: losses of the chunks in the order of the walk */
    float *seen;         /* the same for the host */
    double *factor;      /* (n, each): what each counts */
    tn_loss_row loss[TN_LOSSES_MAX]; /* (each): its parts, as the model's rows have them, or as a whole */
    int counts[TN_LOSSES_MAX];       /* the slot whose numbers they count; -1: tokens */
    size_t each;
    float sum[TN_LOSSES_MAX];      /* of the last batch */
    int32_t *feed;                 /* all inputs, one behind the other */
    int32_t *input[TN_INPUTS_MAX]; /* by slot; NULL: no plan reads it */
    void **pointer;                /* of all pieces' states */
    float *all_logits;             /* (B,T,vocab), or NULL */
    int64_t vocab;
    float total;
};

/* plan.chunk, or 0: the length is up to us. */
static int64_t given_length(const tn_settings *st)
{
    return tn_settings_is_auto(st, "plan.chunk") ? 0 : tn_settings_int(st, "plan.chunk");
}

/* Parts of at most AUTO_TOKENS. */
static int64_t auto_parts(tn_device device, int64_t batch, int64_t length)
{
    const int64_t most = batch < AUTO_TOKENS[device] ? AUTO_TOKENS[device] / batch : 1;
    return (length + most - 1) / most;
}

int64_t tn_chunk_length(const tn_settings *st, tn_device device, int64_t batch, int64_t length)
{
    if (strcmp(tn_settings_text(st, "plan.recompute"), "chunk") != 0) return 0;
    int64_t c = given_length(st);
    if (!c) { /* equal parts, as far as they are multiples */
        const int64_t parts = auto_parts(device, batch, length);
        c = ((length + parts - 1) / parts + AUTO_MULTIPLE - 1) / AUTO_MULTIPLE * AUTO_MULTIPLE;
    }
    return c < length ? c : 0;
}

int64_t tn_chunk_most_losses(const tn_model *model, const tn_settings *st, tn_device device, int64_t batch,
                             int64_t length)
{
    const int64_t c = given_length(st);
    if (!tn_chunk_length(st, device, batch, length)) return 1;
    return (model->n_losses ? (int64_t)model->n_losses : 1) *
           (c ? (length + c - 1) / c : auto_parts(device, batch, length));
}

/* --- plans ---------------------------------------------------------------------------------------------------------------- */

static bool trains(role r) { return r == ADVANCE || r == GRAD || r == GRAD_LAST; }

static int64_t last_length(const tn_chunks *c) { return c->length - (c->n - 1) * c->chunk; }

static int64_t slots(const tn_chunks *c) { return c->forward_only ? 2 : c->n; }

/* A model that knows nothing of carrying on would quietly start afresh with every chunk. */
static tn_status check_states(const tn_chunks *c, const tn_graph *g)
{
    bool any = false;
    for (size_t i = 0; i < g->n_outputs; i++) any |= strncmp(g->output[i].name, "next.", 5) == 0;
    if (!any)
        return tn_error(TN_USAGE,
                        "plan.recompute=chunk: model %s keeps no state from token to token: use plan.recompute=layer",
                        c->model->name);
    if (!tn_graph_output(g, "loss").id)
        return tn_error(TN_USAGE, "model %s has no output \"loss\": call tn_output(g, \"loss\", one number)",
                        c->model->name);
    return TN_OK;
}

/* What goes forward alone has no loss: what a loss counts is not there, and a model makes none. */
static void leave_out_losses(const tn_chunks *c, tn_batch *b)
{
    for (size_t i = 0; i < c->model->n_losses; i++)
        if (tn_in(b, c->model->losses[i].count).id) tn_batch_add(b, c->model->losses[i].count, TN_NONE);
}

static tn_status build(tn_chunks *c, role r, tn_graph **out)
{
    tn_status s = TN_OK;
    tn_graph *g = NULL;
    piece *p = &c->piece[r];
    tn_graph_options o = *c->graph;
    o.training = trains(r);
    o.carried = true;
    TN_TRY(tn_graph_new(&o, &g));
    tn_batch *b = &p->batch;
    *b = (tn_batch){ .size = sizeof *b,
                     .batch = c->batch,
                     .length = p->length,
                     .chunk = c->chunk,
                     .step = o.training ? "train" : "eval" };
    for (size_t i = 0; c->wants && !o.training && c->wants[i]; i++) tn_batch_want(b, c->wants[i]);
    tn_decode_cache_inputs(g, b, c->length);
    tn_inputs_build(c->inputs, g, b);
    if (r == ADVANCE) leave_out_losses(c, b);
    s = tn_model_build(c->model, g, c->settings, b);
    if (s == TN_USAGE) tn_error_prefix("plan.recompute=chunk");
    TN_TRY(s);
    TN_TRY(tn_graph_status(g));
    if (r != ADVANCE) TN_TRY(check_states(c, g));
    TN_TRY(c->fits(c->ctx, g));
    TN_TRY(tn_store_adopt(c->store, g));
    *out = g;
    g = NULL;
done:
    tn_graph_free(g);
    return s;
}

/* The parts of the loss that a graph puts out, in the order of the model's rows; where one is missing, the loss as a whole. Returns how many. */
static size_t losses_of(const tn_chunks *c, const tn_graph *g, tn_loss_row *out)
{
    const tn_model *m = c->model;
    size_t n = 0;
    for (; n < m->n_losses && n < TN_LOSSES_MAX && tn_graph_output(g, m->losses[n].output).id; n++)
        out[n] = m->losses[n];
    if (n && n == m->n_losses) return n;
    out[0] = (tn_loss_row){ "loss", m->n_losses ? m->losses[0].count : TN_T };
    return 1;
}

/* The loss in its parts, each with a weight of its own, and the states that the chunk leaves. Returns how many, 0: no memory. */
static int make_seeds(const tn_chunks *c, tn_graph *g, const tn_seed **out)
{
    tn_loss_row row[TN_LOSSES_MAX];
    const size_t parts = losses_of(c, g, row);
    tn_seed *seeds = tn_arena_alloc(&g->memory, sizeof *seeds * (g->n_outputs + TN_LOSSES_MAX));
    int n = 0;
    if (!seeds) return 0;
    for (size_t i = 0; i < parts; i++)
        seeds[n++] = (tn_seed){ .y = tn_graph_output(g, row[i].output), .dy = tn_scalar(g, weight_name[i], 1) };
    for (size_t i = 0; i < g->n_outputs; i++) {
        const tn_ref y = { g->output[i].id };
        if (strncmp(g->output[i].name, "next.", 5) != 0 || !tn_dtype_is_float(tn_ref_dtype(g, y))) continue;
        const char *name = tn_arena_printf(&g->memory, "d.%s", g->output[i].name);
        if (!name) return 0;
        seeds[n] = (tn_seed){ .y = y, .dy = tn_input(g, name, tn_ref_dims(g, y), tn_ref_dtype(g, y)) };
        tn_input_by_copy(g, seeds[n++].dy);
    }
    *out = seeds;
    return n;
}

static tn_status make_plan(tn_chunks *c, role r)
{
    tn_graph *g;
    const int64_t batches = r == GRAD || r == ADVANCE ? tn_settings_int(c->settings, "train.accumulate") : 1;
    tn_compile_options o = { .device = tn_store_device(c->store),
                             .repeats = r == GRAD_LAST || r == EVAL_LAST ? 1 : batches * (c->n - 1) };
    TN_RETURN_IF(build(c, r, &g));
    if (r == GRAD || r == GRAD_LAST) o.n_seeds = make_seeds(c, g, &o.seeds);
    if ((r == GRAD || r == GRAD_LAST) && !o.n_seeds) {
        tn_graph_free(g);
        return TN_MEMORY;
    }
    return tn_graph_compile(g, &o, &c->piece[r].plan);
}

/* The inputs that losses are means over: of each chunk its part. */
static tn_status find_counts(tn_chunks *c)
{
    for (size_t k = 0; k < c->each; k++) {
        c->counts[k] = -1;
        for (size_t i = 0; i < c->inputs->n; i++)
            if (c->inputs->slot[i].read && strcmp(c->inputs->slot[i].row->name, c->loss[k].count) == 0)
                c->counts[k] = (int)i;
        if (c->counts[k] >= 0 && !c->inputs->slot[c->counts[k]].has_time)
            return tn_error(TN_USAGE,
                            "plan.recompute=chunk: model %s, loss %s is a mean over the input %s, which is not split "
                            "along time (.cut): use plan.recompute=layer",
                            c->model->name, c->loss[k].output, c->loss[k].count);
    }
    return TN_OK;
}

static tn_status list_states(tn_chunks *c)
{
    const tn_graph *g = tn_plan_graph(c->piece[EVAL].plan);
    c->state = tn_alloc(sizeof *c->state * (g->n_outputs + 1));
    if (!c->state) return TN_MEMORY;
    for (size_t i = 0; i < g->n_outputs; i++) {
        const tn_gtensor *t = &g->tensor[g->output[i].id];
        if (strncmp(g->output[i].name, "next.", 5) != 0) continue;
        const size_t bytes = (size_t)tn_gtensor_count(t) * tn_dtype_bytes(t->dtype);
        c->state[c->n_states++] = (state){ g->output[i].name + 5, bytes, c->slot_bytes };
        c->slot_bytes += (bytes + 63) / 64 * 64;
    }
    const tn_ref logits = tn_graph_output(g, "logits");
    c->vocab = logits.id ? tn_ref_dim(g, logits, -1) : 0;
    c->each = losses_of(c, g, c->loss);
    return find_counts(c);
}

tn_status tn_chunks_new(const tn_chunks_options *o, tn_chunks **out)
{
    tn_status s = TN_OK;
    const tn_trainer_options *t = o->trainer;
    tn_chunks *c = tn_alloc(sizeof *c);
    if (!c) TN_TRY(TN_MEMORY);
    *c = (tn_chunks){ .model = t->model,
                      .settings = t->settings,
                      .graph = o->graph,
                      .batch = t->batch,
                      .length = t->length,
                      .chunk = o->chunk,
                      .n = (t->length + o->chunk - 1) / o->chunk,
                      .forward_only = t->forward_only,
                      .inputs = o->inputs,
                      .wants = o->wants,
                      .store = o->store,
                      .context = o->context,
                      .backend = tn_context_backend(o->context),
                      .queue = tn_context_queue(o->context),
                      .fits = o->fits,
                      .ctx = o->ctx };
    for (role r = 0; r < ROLES; r++) {
        const bool last = r == GRAD_LAST || r == EVAL_LAST;
        c->piece[r].length = last ? last_length(c) : c->chunk;
        if ((last && c->piece[r].length == c->chunk) || (trains(r) && c->forward_only)) continue;
        TN_TRY(make_plan(c, r));
    }
    TN_TRY(list_states(c));
    *out = c;
    c = NULL;
done:
    tn_chunks_free(c);
    return s;
}

/* --- memory --------------------------------------------------------------------------------------------------------------- */

static size_t tokens_of(const tn_chunks *c) { return (size_t)(c->batch * c->length); }

/* Items of all inputs. */
static size_t items_of(const tn_chunks *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->inputs->n; i++)
        if (c->inputs->slot[i].read) n += (size_t)tn_input_items(&c->inputs->slot[i], c->batch, c->length);
    return n;
}

static void resolve(tn_chunks *c, piece *p, void **pointer)
{
    tn_bound *b = p->bound;
    for (size_t i = 0; i < c->inputs->n; i++)
        if (c->inputs->slot[i].read) p->input[i] = tn_bound_data(b, c->inputs->slot[i].row->name);
    for (size_t k = 0; k < c->each; k++) {
        p->loss[k] = tn_bound_place(b, c->loss[k].output);
        p->weight[k] = tn_bound_data(b, weight_name[k]);
    }
    for (size_t i = 0; i < c->model->n_schedules; i++) p->scalar[i] = tn_plan_scalar(b, c->model->schedules[i].name);
    p->state = pointer;
    p->next = pointer + c->n_states;
    p->d_state = pointer + 2 * c->n_states;
    p->d_next = pointer + 3 * c->n_states;
    for (size_t i = 0; i < c->n_states; i++) {
        char name[512];
        p->state[i] = tn_bound_place(b, c->state[i].name);
        snprintf(name, sizeof name, "d.next.%s", c->state[i].name);
        p->d_next[i] = tn_bound_place(b, name);
        p->next[i] = tn_bound_place(b, name + 2);
        snprintf(name, sizeof name, "d.%s", c->state[i].name);
        p->d_state[i] = tn_bound_place(b, name);
    }
}

tn_status tn_chunks_bind(tn_chunks *c)
{
    size_t logits = 0;
    if (!tn_mul_ok((size_t)c->vocab * sizeof(float), tokens_of(c), &logits))
        return tn_error(TN_MEMORY, "logits of all tokens");
    const size_t losses = c->each * (size_t)c->n;
    c->slot = c->backend->alloc(c->slot_bytes * (size_t)slots(c) + 1);
    c->d = c->backend->alloc(c->slot_bytes + 1);
    c->part = c->backend->alloc(sizeof *c->part * losses);
    c->seen = tn_alloc(sizeof *c->seen * losses);
    c->factor = tn_alloc(sizeof *c->factor * losses);
    c->feed = tn_alloc(sizeof *c->feed * (items_of(c) + 1));
    c->pointer = tn_alloc(sizeof *c->pointer * 4 * ROLES * (c->n_states + 1));
    if (!c->slot || !c->d || !c->part || !c->seen || !c->factor || !c->feed || !c->pointer) return TN_MEMORY;
    if (logits && !(c->all_logits = tn_alloc(logits))) return TN_MEMORY;
    for (role r = 0; r < ROLES; r++)
        if (c->piece[r].plan) TN_RETURN_IF(tn_bind(c->piece[r].plan, c->context, c->store, &c->piece[r].bound));
    for (role r = 0; r < ROLES; r++) /* outputs stay where they are once the largest plan is bound */
        if (c->piece[r].bound) resolve(c, &c->piece[r], c->pointer + 4 * (size_t)r * c->n_states);
    int32_t *at = c->feed;
    for (size_t i = 0; i < c->inputs->n; i++) {
        if (!c->inputs->slot[i].read) continue;
        c->input[i] = at;
        at += tn_input_items(&c->inputs->slot[i], c->batch, c->length);
    }
    return TN_OK;
}

void tn_chunks_free(tn_chunks *c)
{
    if (!c) return;
    for (role r = 0; r < ROLES; r++) {
        tn_bound_free(c->piece[r].bound);
        tn_plan_free(c->piece[r].plan);
    }
    tn_free(c->state);
    c->backend->free(c->slot);
    c->backend->free(c->d);
    c->backend->free(c->part);
    tn_free(c->seen);
    tn_free(c->factor);
    tn_free(c->feed);
    tn_free(c->pointer);
    tn_free(c->all_logits);
    tn_free(c);
}

void tn_chunks_memory(const tn_chunks *c, tn_memory_plan *m, size_t *arena)
{
    for (role r = 0; r < ROLES; r++) tn_memory_plan_add(m, c->piece[r].plan, arena);
    m->state += c->slot_bytes * (size_t)(slots(c) + 1);
    if (c->backend->host_memory)
        m->other += sizeof *c->feed * items_of(c) + tokens_of(c) * sizeof(float) * (size_t)c->vocab;
}

tn_feed tn_chunks_feed(tn_chunks *c)
{
    tn_feed f = { .inputs = c->inputs, .batch = c->batch, .length = c->length };
    for (size_t i = 0; i < c->inputs->n; i++) f.at[i] = c->piece[EVAL].input[i] ? c->input[i] : NULL;
    return f;
}

/* --- running -------------------------------------------------------------------------------------------------------------- */

static piece *piece_at(tn_chunks *c, role whole, int64_t i)
{
    return &c->piece[i == c->n - 1 && c->piece[whole + 1].plan ? whole + 1 : whole];
}

/* The chunk's columns of one input, or all of one that is not cut. */
static void give(const tn_chunks *c, const piece *p, size_t which, int64_t start)
{
    const tn_input_slot *s = &c->inputs->slot[which];
    const int64_t each = s->each;
    int32_t *to = p->input[which];
    const int32_t *from = c->input[which];
    if (!to) return;
    if (!s->has_time) memcpy(to, from, sizeof *to * (size_t)tn_input_items(s, c->batch, c->length));
    for (int64_t b = 0; s->has_time && b < c->batch; b++)
        memcpy(to + b * p->length * each, from + (b * c->length + start) * each,
               sizeof *to * (size_t)(p->length * each));
}

static tn_status copy_states(const tn_chunks *c, void *const *from, void *const *to, unsigned char *slot)
{
    for (size_t i = 0; i < c->n_states; i++) {
        unsigned char *kept = slot + c->state[i].offset;
        if (from && from[i]) TN_RETURN_IF(c->backend->copy(c->queue, kept, from[i], c->state[i].bytes));
        if (to && to[i]) TN_RETURN_IF(c->backend->copy(c->queue, to[i], kept, c->state[i].bytes));
    }
    return TN_OK;
}

static tn_status load(tn_chunks *c, piece *p, int64_t i, int64_t slot)
{
    const int64_t start = i * c->chunk;
    for (size_t k = 0; k < c->inputs->n; k++) give(c, p, k, start);
    tn_decode_cache_position(p->bound, &p->batch, start);
    return copy_states(c, NULL, p->state, c->slot + c->slot_bytes * (size_t)slot);
}

/* What a part of the loss is a mean over, of so many tokens of every row: numbers of an input that are not padding, or tokens. */
static int64_t count(const tn_chunks *c, size_t part, int64_t start, int64_t length)
{
    if (c->counts[part] < 0) return length;
    const tn_input_slot *s = &c->inputs->slot[c->counts[part]];
    const bool real = s->row->type == TN_F32;
    const float real_pad = (float)s->row->pad;
    const int32_t pad = (int32_t)s->row->pad;
    int64_t n = 0;
    for (int64_t b = 0; b < c->batch; b++) {
        const int32_t *x = c->input[c->counts[part]] + (b * c->length + start) * s->each;
        for (int64_t t = 0; t < length * s->each; t++) n += real ? ((const float *)x)[t] != real_pad : x[t] != pad;
    }
    return n;
}

typedef struct total {
    int64_t all[TN_LOSSES_MAX];   /* of the batch, by part of the loss */
    double weight[TN_LOSSES_MAX]; /* of the chunk at hand */
    size_t n;                     /* chunks so far */
} total;

static total begin_total(const tn_chunks *c)
{
    total t = { .n = 0 };
    for (size_t k = 0; k < c->each; k++) t.all[k] = count(c, k, 0, c->length);
    return t;
}

static void weigh(const tn_chunks *c, const piece *p, int64_t i, total *t)
{
    for (size_t k = 0; k < c->each; k++)
        t->weight[k] = (double)count(c, k, i * c->chunk, p->length) / (double)(t->all[k] ? t->all[k] : 1);
}

/* The loss of the chunk that has just run, before another one takes its place. */
static tn_status keep_loss(tn_chunks *c, const piece *p, total *t)
{
    const size_t at = c->each * t->n++;
    for (size_t k = 0; k < c->each; k++) {
        c->factor[at + k] = t->weight[k];
        TN_RETURN_IF(c->backend->copy(c->queue, c->part + at + k, p->loss[k], sizeof *c->part));
    }
    return TN_OK;
}

/* Waits for the walk. */
tn_status tn_chunks_loss(tn_chunks *c, float *loss)
{
    double all = 0, sum[TN_LOSSES_MAX] = { 0 };
    const size_t n = c->each * (size_t)c->n;
    TN_RETURN_IF(c->backend->download(c->queue, c->seen, c->part, sizeof *c->seen * n));
    for (size_t i = 0; i < n; i++) {
        const double x = c->factor[i] * (double)c->seen[i];
        all += x;
        sum[i % c->each] += x;
    }
    *loss = c->total = (float)all;
    for (size_t k = 0; k < c->each; k++) c->sum[k] = (float)sum[k];
    return TN_OK;
}

static tn_status run(piece *p, bool *again)
{
    TN_RETURN_IF(*again ? tn_run_again(p->bound) : tn_run(p->bound));
    *again = true; /* weights do not change within a batch */
    return TN_OK;
}

/* States before every chunk, by going forward over all but the last. */
static tn_status advance(tn_chunks *c, int64_t seed, int64_t step, bool *again)
{
    piece *p = &c->piece[ADVANCE];
    for (int64_t i = 0; i + 1 < c->n; i++) {
        TN_RETURN_IF(load(c, p, i, i));
        tn_bound_seed(p->bound, seed, step * c->n + i);
        TN_RETURN_IF(run(p, again));
        TN_RETURN_IF(copy_states(c, p->next, NULL, c->slot + c->slot_bytes * (size_t)(i + 1)));
    }
    return TN_OK;
}

bool tn_chunks_schedule(const tn_chunks *c, size_t i, float value)
{
    bool any = false;
    for (role r = 0; r < ROLES; r++) {
        if (!c->piece[r].scalar[i]) continue;
        *c->piece[r].scalar[i] = value;
        any = true;
    }
    return any;
}

tn_status tn_chunks_queue_grad(tn_chunks *c, int64_t seed, int64_t step, bool again, float scale)
{
    total t = begin_total(c);
    TN_RETURN_IF(advance(c, seed, step, &again));
    TN_RETURN_IF(c->backend->zero(c->queue, c->d, c->slot_bytes));
    for (int64_t i = c->n; i-- > 0;) {
        piece *p = piece_at(c, GRAD, i);
        TN_RETURN_IF(load(c, p, i, i));
        TN_RETURN_IF(copy_states(c, NULL, p->d_next, c->d));
        weigh(c, p, i, &t);
        for (size_t k = 0; k < c->each; k++)
            if (p->weight[k]) *p->weight[k] = (float)t.weight[k] * scale;
        tn_bound_seed(p->bound, seed, step * c->n + i);
        TN_RETURN_IF(run(p, &again));
        TN_RETURN_IF(copy_states(c, p->d_state, NULL, c->d));
        TN_RETURN_IF(keep_loss(c, p, &t));
    }
    return TN_OK;
}

const float *tn_chunks_losses(const tn_chunks *c, size_t *n, const double **factor)
{
    *n = c->each * (size_t)c->n;
    *factor = c->factor;
    return c->part;
}

static tn_status keep_logits(tn_chunks *c, const piece *p, int64_t i)
{
    const int64_t rows = p->length * c->vocab;
    const float *logits = c->all_logits ? tn_bound_data(p->bound, "logits") : NULL; /* (B,length,vocab) */
    if (c->all_logits && !logits) return TN_INTERNAL;
    for (int64_t b = 0; logits && b < c->batch; b++)
        memcpy(c->all_logits + (b * c->length + i * c->chunk) * c->vocab, logits + b * rows,
               sizeof(float) * (size_t)rows);
    return TN_OK;
}

tn_status tn_chunks_eval(tn_chunks *c, bool again, float *loss)
{
    total t = begin_total(c);
    for (int64_t i = 0; i < c->n; i++) {
        piece *p = piece_at(c, EVAL, i);
        TN_RETURN_IF(load(c, p, i, i ? 1 : 0));
        weigh(c, p, i, &t);
        TN_RETURN_IF(run(p, &again));
        TN_RETURN_IF(copy_states(c, p->next, NULL, c->slot + c->slot_bytes));
        TN_RETURN_IF(keep_loss(c, p, &t));
        TN_RETURN_IF(keep_logits(c, p, i));
    }
    return tn_chunks_loss(c, loss);
}

/* --- looking -------------------------------------------------------------------------------------------------------------- */

const float *tn_chunks_output(const tn_chunks *c, const char *name, int64_t *count)
{
    const bool logits = strcmp(name, "logits") == 0;
    *count = logits ? c->batch * c->length * c->vocab : 1;
    if (logits) return c->all_logits;
    if (strcmp(name, "loss") == 0) return &c->total;
    for (size_t k = 0; k < c->each; k++)
        if (strcmp(name, c->loss[k].output) == 0) return &c->sum[k];
    return NULL;
}

tn_bound *tn_chunks_bound(const tn_chunks *c, bool training) { return c->piece[training ? GRAD : EVAL].bound; }

tn_bound *tn_chunks_part(const tn_chunks *c, int i, int64_t *runs)
{
    const bool apart = c->piece[GRAD_LAST].plan != NULL;
    if (i >= (apart ? 3 : 2)) return NULL;
    *runs = i == 0 ? c->n - apart : i == 1 ? c->n - 1 : 1;
    return c->piece[i == 0 ? GRAD : i == 1 ? ADVANCE : GRAD_LAST].bound;
}
