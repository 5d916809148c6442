/* The steps of wire: what is minimised, what evaluations look at, and steps for whoever sends and reads messages. */
#include "models/wire/wire.h"

#include "base/status.h"
#include "models/encoder.h"

#include <stdio.h>

enum { MOST_LAYERS = 1024 };

/* What a step is built from. */
typedef struct work {
    tn_graph *g;
    const tn_batch *b;
    wire_config c;
    tn_ref z;
    tn_ref kind; /* (B) */
} work;

static tn_ref one(tn_graph *g, tn_ref x) { return tn_reshape(g, x, tn_shape(1)); }

tn_ref wire_plus(tn_graph *g, tn_ref sum, double weight, tn_ref x)
{
    if (!x.id || weight == 0) return sum;
    x = weight == 1 ? one(g, x) : tn_scale(g, one(g, x), (float)weight);
    return sum.id ? tn_add(g, sum, x) : x;
}

tn_ref wire_moved(tn_graph *g, tn_ref x, int64_t t)
{
    const int64_t N = tn_ref_dim(g, x, 0), n = tn_ref_dim(g, x, 1);
    if (t == 0) return x;
    const tn_ref part[] = { tn_fill(g, tn_shape(N, t < n ? t : n), TN_F32, 0),
                            tn_slice(g, x, 1, 0, t < n ? n - t : 1) };
    return t < n ? tn_concat(g, part, 2, 1) : part[0];
}

/* (B,Q,n) -> (B*Q,n) */
static tn_ref rows_of(tn_graph *g, tn_ref x)
{
    if (tn_graph_status(g) != TN_OK) return x;
    return tn_reshape(g, x, tn_shape(tn_ref_dim(g, x, 0) * tn_ref_dim(g, x, 1), tn_ref_dim(g, x, 2)));
}

/* Labels (N,n) of tokens 1 .. n-1, which are what the states of wire_read say. */
static tn_ref said_labels(tn_graph *g, tn_ref labels)
{
    return tn_slice(g, labels, 1, 1, tn_ref_dim(g, labels, 1) - 1);
}

static wire_prefix repeat_prefix(tn_graph *g, const wire_prefix *p, int64_t times)
{
    wire_prefix q = *p;
    if (p->keys.id) q.keys = wire_repeat(g, p->keys, times), q.values = wire_repeat(g, p->values, times);
    else q.vectors = wire_repeat(g, p->vectors, times);
    return q;
}

/* 1 where a label counts: (N,n) i32 -> (N,n) f32 */
static tn_ref counted(tn_graph *g, tn_ref labels)
{
    const int64_t N = tn_ref_dim(g, labels, 0), n = tn_ref_dim(g, labels, 1);
    const tn_ref flat = tn_cast(g, tn_reshape(g, tn_copy(g, labels), tn_shape(N * n)), TN_F32);
    return tn_reshape(g, tn_cast(g, tn_above(g, flat, -0.5f), TN_F32), tn_shape(N, n));
}

/* 1 where an answer begins: its label counts, and the one before does not. labels (N,n) i32 -> (N,n) f32 */
static tn_ref first_of(tn_graph *g, tn_ref labels)
{
    const tn_ref counts = counted(g, labels);
    return tn_mul(g, counts, tn_affine(g, wire_moved(g, counts, 1), -1, 1));
}

/* x (N,n) without its last columns. */
static tn_ref but_last(tn_graph *g, tn_ref x, int64_t n)
{
    return n && tn_graph_status(g) == TN_OK ? tn_slice(g, x, 1, 0, tn_ref_dim(g, x, 1) - n) : x;
}

/* Layers whose states are compared: the last n. */
static int64_t last_states(const wire_config *c, const wire_reader *r)
{
    return c->states < r->shape.layers ? c->states : r->shape.layers;
}

/* The mean squared distance of the last states to those of a teacher, told[l] (N,n,d) by layer. */
static void add_states(work *w, const wire_reader *r, const tn_ref *states, const tn_ref *told, tn_ref counts,
                       tn_ref *loss)
{
    tn_graph *g = w->g;
    const int64_t n = last_states(&w->c, r);
    for (int64_t l = r->shape.layers - n + 1; l <= r->shape.layers; l++)
        *loss = wire_plus(g, *loss, w->c.state / (double)n,
                          tn_mse(g, tn_floats(g, states[l]), tn_floats(g, tn_stop_gradient(g, told[l])),
                                 .weights = counts));
}

/* The reader itself with the text before it, of the first n tokens of a row; its states by layer too. */
static tn_status ask_teacher(work *w, const wire_reader *r, int64_t n, tn_ref *told, tn_forward *teacher)
{
    tn_graph *g = w->g;
    const int64_t behind = tn_graph_status(g) == TN_OK ? tn_ref_dim(g, wire_in(w->b, r, "tokens"), 2) - n : 0;
    const tn_ref rows = but_last(g, rows_of(g, wire_in(w->b, r, "told")), behind),
                 document = but_last(g, rows_of(g, wire_in(w->b, r, "told_document")), behind);
    TN_RETURN_IF(tn_graph_status(g));
    return wire_read_told(g, r, w->b->step, rows, document, n, told, teacher);
}

/* What distillation compares: what the student says of the first tokens of rows, and which of it counts. */
typedef struct said_of {
    const tn_forward *student;
    tn_ref *states;
    tn_ref labels;  /* (N,n-1) */
    tn_ref weights; /* as labels, or none: 1 each */
} said_of;

static tn_ref counts_of(tn_graph *g, const said_of *x) { return x->weights.id ? x->weights : counted(g, x->labels); }

/* Its states need no gradient: nothing of it is trained. */
static tn_status distil_live(work *w, const wire_reader *r, const said_of *x, tn_ref *loss)
{
    tn_graph *g = w->g;
    const wire_config *c = &w->c;
    tn_ref told[MOST_LAYERS + 1];
    tn_forward teacher;
    TN_RETURN_IF(ask_teacher(w, r, tn_ref_dim(g, x->labels, 1) + 1, told, &teacher));
    if (c->kd != 0)
        *loss = wire_plus(g, *loss, c->kd,
                          tn_linear_kl(g, x->student->hidden, tn_stop_gradient(g, teacher.hidden), x->student->head,
                                       .labels = x->labels, .weights = x->weights, .temperature = c->kd_temperature));
    if (c->state != 0) add_states(w, r, x->states, told, counts_of(g, x), loss);
    return tn_graph_status(g);
}

/* What is kept of a teacher for tokens 1 .. n of rows: (B,Q,length,k) -> (N,n,k) */
static tn_ref taught(work *w, const wire_reader *r, const char *name, int64_t n)
{
    tn_graph *g = w->g;
    const tn_ref x = wire_in(w->b, r, name);
    if (tn_graph_status(g) != TN_OK || !x.id) return x;
    const tn_dims d = tn_ref_dims(g, x);
    return tn_slice(g, tn_reshape(g, x, tn_shape(d.dim[0] * d.dim[1], d.dim[2], d.dim[3])), 1, 1, n);
}

/* The same from what was kept: no text is read here. */
static tn_status distil_cached(work *w, const wire_reader *r, const said_of *x, tn_ref *loss)
{
    tn_graph *g = w->g;
    const wire_config *c = &w->c;
    const int64_t d = r->shape.dim, layers = last_states(c, r), n = tn_ref_dim(g, x->labels, 1);
    tn_ref told[MOST_LAYERS + 1];
    TN_RETURN_IF(tn_graph_status(g));
    if (c->kd != 0)
        *loss =
            wire_plus(g, *loss, c->kd,
                      tn_linear_kl_top(g, x->student->hidden, x->student->head, taught(w, r, "teach_ids", n),
                                       taught(w, r, "teach_logits", n),
                                       tn_slice(g, rows_of(g, wire_in(w->b, r, "teach_lse")), 1, 1, n),
                                       .labels = x->labels, .weights = x->weights, .temperature = c->kd_temperature));
    if (c->state == 0) return tn_graph_status(g);
    const tn_ref all = taught(w, r, "teach_states", n);
    TN_RETURN_IF(tn_graph_status(g));
    if (tn_ref_dim(g, all, 2) != layers * d)
        return tn_model_error("%s.teach_states has %lld numbers for a token: %lld layers of %lld have others",
                              r->letter, (long long)tn_ref_dim(g, all, 2), (long long)layers, (long long)d);
    for (int64_t i = 0; i < layers; i++) told[r->shape.layers - layers + 1 + i] = tn_slice(g, all, 2, i * d, d);
    add_states(w, r, x->states, told, counts_of(g, x), loss);
    return tn_graph_status(g);
}

/* The teacher is the reader itself with the text before it, in this step or from what was kept. Without a source that has kept anything
 * (checks, benchmarks) it is asked here. */
static tn_status distil(work *w, const wire_reader *r, const said_of *x, tn_ref *loss)
{
    const wire_config *c = &w->c;
    if (c->kd == 0 && c->state == 0) return TN_OK;
    const bool kept = c->cached && wire_in(w->b, r, c->kd != 0 ? "teach_lse" : "teach_states").id;
    return kept ? distil_cached(w, r, x, loss) : distil_live(w, r, x, loss);
}

/* --- the terms of answers ---------------------------------------------------------------------------------------------- */

/* Rows of questions and answers, and where their answers are. */
typedef struct answers {
    wire_prefix prefix;
    tn_ref tokens;        /* (N,n) */
    tn_ref labels;        /* (N,n-1), and the next two */
    tn_ref counts, first; /* 1 where a label counts, and where an answer begins */
    int64_t k, reach;     /* loss.k; columns of labels that hold the first k tokens of every answer */
} answers;

static answers answers_of(work *w, const wire_reader *r, const wire_prefix *p)
{
    tn_graph *g = w->g;
    answers a = { .prefix = repeat_prefix(g, p, w->c.questions), .tokens = rows_of(g, wire_in(w->b, r, "tokens")) };
    a.labels = said_labels(g, rows_of(g, wire_in(w->b, r, "labels")));
    if (tn_graph_status(g) != TN_OK) return a;
    const int64_t n = tn_ref_dim(g, a.labels, 1), reach = r->before ? r->before - 1 + w->c.k : n;
    a.counts = counted(g, a.labels);
    a.first = first_of(g, a.labels);
    a.k = w->c.k < n ? w->c.k : n;
    a.reach = !w->c.k || reach > n ? n : reach < 2 ? 2 : reach; /* wire_read reads a token at least */
    return a;
}

/* 1 at token t = 1, 2, ... of each answer that has so many: answers are in one piece. */
static tn_ref token_of(tn_graph *g, const answers *a, int64_t t)
{
    return t == 1 ? a->first : tn_mul(g, a->counts, wire_moved(g, a->first, t - 1));
}

/* 1 at the first k tokens of answers. */
static tn_ref head_of(tn_graph *g, const answers *a)
{
    return tn_mul(g, a->counts, tn_affine(g, wire_moved(g, a->counts, a->k), -1, 1));
}

/* Of a mask, what makes a sum weight times the mean over it. */
static tn_ref share(tn_graph *g, tn_ref mask, double weight)
{
    return tn_scale(g, tn_div(g, mask, tn_clamp_min(g, tn_sum_all(g, mask), 1)), (float)weight);
}

static tn_ref columns(tn_graph *g, tn_ref x, int64_t n) { return tn_slice(g, x, 1, 0, n); }

/* All cross-entropies at once: the head is the most that is computed for them, and they share it. */
static tn_ref cross_entropies(work *w, const answers *a, const tn_forward *f)
{
    tn_graph *g = w->g;
    const wire_config *c = &w->c;
    if (c->first == 0 && c->k_ce == 0) return tn_linear_xent(g, f->hidden, f->head, a->labels);
    tn_ref weights = share(g, a->counts, 1);
    if (c->first != 0) weights = tn_add(g, weights, share(g, a->first, c->first));
    for (int64_t t = 1; t <= a->k && c->k_ce != 0; t++)
        weights = tn_add(g, weights, share(g, token_of(g, a, t), c->k_ce / (double)c->k));
    return tn_linear_xent(g, f->hidden, f->head, a->labels, .weights = weights, .sum = true);
}

/* Distillation of the first k tokens of answers, or of all, from states of all columns. */
static tn_status distil_head(work *w, const wire_reader *r, const answers *a, tn_forward *f, tn_ref *states,
                             tn_ref *loss)
{
    tn_graph *g = w->g;
    if (!w->c.k || (w->c.kd == 0 && w->c.state == 0))
        return distil(w, r, &(said_of){ f, states, a->labels, TN_NONE }, loss);
    f->hidden = columns(g, f->hidden, a->reach);
    for (int64_t l = r->shape.layers - last_states(&w->c, r) + 1; l <= r->shape.layers && w->c.state != 0; l++)
        states[l] = columns(g, states[l], a->reach);
    const said_of heads = { f, states, columns(g, a->labels, a->reach), columns(g, head_of(g, a), a->reach) };
    return distil(w, r, &heads, loss);
}

/* One pass over all answers of a reader: cross-entropies and distillation. */
static tn_status terms_of_one_pass(work *w, const wire_reader *r, const answers *a, tn_ref *loss)
{
    tn_ref states[MOST_LAYERS + 1];
    tn_forward f;
    TN_RETURN_IF(wire_read(w->g, r, w->b->step, &a->prefix, w->kind, a->tokens, states, &f));
    *loss = wire_plus(w->g, *loss, 1, cross_entropies(w, a, &f));
    *loss = wire_plus(w->g, *loss, 1, wire_entropy(w->g, &w->c, &f, a->first));
    return distil_head(w, r, a, &f, states, loss);
}

/* A pass over rows that end before token t of the answer whose question is the longest. *n: columns of what it says. */
static tn_status pass_of_token(work *w, const wire_reader *r, const answers *a, int64_t t, tn_ref *states,
                               tn_forward *f, int64_t *n)
{
    const int64_t all = tn_ref_dim(w->g, a->labels, 1), ends = r->before ? r->before - 1 + t : all;
    *n = ends > all ? all : ends < 2 ? 2 : ends;
    return wire_read(w->g, r, w->b->step, &a->prefix, w->kind, columns(w->g, a->tokens, *n + 1), states, f);
}

static tn_status add_token(work *w, const wire_reader *r, const answers *a, int64_t t, double weight, tn_ref *loss)
{
    tn_graph *g = w->g;
    tn_forward f;
    int64_t n;
    TN_RETURN_IF(pass_of_token(w, r, a, t, NULL, &f, &n));
    const tn_ref only = columns(g, token_of(g, a, t), n);
    *loss = wire_plus(g, *loss, weight, tn_linear_xent(g, f.hidden, f.head, columns(g, a->labels, n), .weights = only));
    return tn_graph_status(g);
}

/* *sum (N,reach,d) += x (N,n,d) at the tokens t of answers. */
static void add_at(tn_graph *g, const answers *a, int64_t t, tn_ref x, tn_ref *sum)
{
    const tn_dims d = tn_ref_dims(g, x);
    const int64_t N = d.dim[0], n = d.dim[1] < a->reach ? d.dim[1] : a->reach;
    const tn_ref only = tn_reshape(g, tn_copy(g, columns(g, token_of(g, a, t), n)), tn_shape(N, n, 1));
    tn_ref y = tn_mul(g, columns(g, x, n), tn_cast(g, only, tn_ref_dtype(g, x)));
    if (n < a->reach) {
        const tn_ref part[] = { y, tn_fill(g, tn_shape(N, a->reach - n, d.dim[2]), tn_ref_dtype(g, x), 0) };
        y = tn_concat(g, part, 2, 1);
    }
    *sum = sum->id ? tn_add(g, *sum, y) : y;
}

/* States at the first k tokens of answers, each from a pass of its own. */
static tn_status distil_passes(work *w, const wire_reader *r, const answers *a, tn_ref *loss)
{
    tn_graph *g = w->g;
    tn_ref states[MOST_LAYERS + 1], sum[MOST_LAYERS + 1] = { { 0 } };
    tn_forward f = { .hidden = TN_NONE }, all;
    int64_t n;
    all = f;
    for (int64_t t = 1; t <= a->k; t++) {
        TN_RETURN_IF(pass_of_token(w, r, a, t, states, &f, &n));
        all.head = f.head;
        add_at(g, a, t, f.hidden, &all.hidden);
        for (int64_t l = r->shape.layers - last_states(&w->c, r) + 1; l <= r->shape.layers && w->c.state != 0; l++)
            add_at(g, a, t, states[l], &sum[l]);
    }
    const said_of heads = { &all, sum, columns(g, a->labels, a->reach), columns(g, head_of(g, a), a->reach) };
    return distil(w, r, &heads, loss);
}

/* The same numbers in the way of the prototype: all answers, their first token, each of their first k tokens for the cross-entropy and once
 * more for distillation, from passes of their own over what stands before them. */
static tn_status terms_of_each_pass(work *w, const wire_reader *r, const answers *a, tn_ref *loss)
{
    const wire_config *c = &w->c;
    tn_ref states[MOST_LAYERS + 1];
    tn_forward f;
    TN_RETURN_IF(wire_read(w->g, r, w->b->step, &a->prefix, w->kind, a->tokens, states, &f));
    *loss = wire_plus(w->g, *loss, 1, tn_linear_xent(w->g, f.hidden, f.head, a->labels));
    *loss = wire_plus(w->g, *loss, 1, wire_entropy(w->g, c, &f, a->first));
    if (c->first != 0) TN_RETURN_IF(add_token(w, r, a, 1, c->first, loss));
    for (int64_t t = 1; t <= a->k && c->k_ce != 0; t++)
        TN_RETURN_IF(add_token(w, r, a, t, c->k_ce / (double)c->k, loss));
    if (!c->k) return distil(w, r, &(said_of){ &f, states, a->labels, TN_NONE }, loss);
    return c->kd == 0 && c->state == 0 ? tn_graph_status(w->g) : distil_passes(w, r, a, loss);
}

static tn_status task_terms(work *w, const wire_reader *r, const wire_prefix *p, tn_ref *loss)
{
    const answers a = answers_of(w, r, p);
    TN_RETURN_IF(tn_graph_status(w->g));
    TN_RETURN_IF(tn_graph_switch(w->g, "opt.one_pass") ? terms_of_one_pass(w, r, &a, loss)
                                                       : terms_of_each_pass(w, r, &a, loss));
    *loss = wire_plus(w->g, *loss, 1,
                      wire_alignment(w->g, &w->c, r, a.prefix.vectors, said_labels(w->g, a.tokens), a.counts));
    return tn_graph_status(w->g);
}

/* The text itself, said from P behind the anchor AE. */
static tn_status ae_terms(work *w, const wire_reader *r, const wire_prefix *p, double weight, tn_ref *loss)
{
    tn_graph *g = w->g;
    tn_forward f;
    const tn_ref kind = tn_fill(g, tn_shape(w->b->batch), TN_I32, WIRE_AE);
    TN_RETURN_IF(wire_read(g, r, w->b->step, p, kind, wire_in(w->b, r, "text"), NULL, &f));
    const tn_ref labels = said_labels(g, wire_in(w->b, r, "text_labels"));
    *loss = wire_plus(g, *loss, weight, tn_linear_xent(g, f.hidden, f.head, labels));
    return tn_graph_status(g);
}

/* The halves of a message name each other among those of the batch: messages differ from each other. */
static tn_ref contrast(work *w)
{
    tn_graph *g = w->g;
    const int64_t M = w->c.slots, half = M / 2;
    if (w->c.nce == 0 || M < 2) return TN_NONE;
    const tn_ref a = tn_l2_normalize(g, tn_mean(g, tn_slice(g, w->z, 1, 0, half), 1), 1e-6f);
    const tn_ref b = tn_l2_normalize(g, tn_mean(g, tn_slice(g, w->z, 1, half, M - half), 1), 1e-6f);
    const tn_ref count = tn_in(w->b, "count"); /* of the batch's rows the first are texts */
    return tn_infonce(g, tn_live(g, a, count), tn_live(g, b, count), .temperature = w->c.nce_temperature);
}

static tn_status begin(work *w, tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    *w = (work){ .g = g, .b = b };
    TN_RETURN_IF(wire_config_read(g, st, b, &w->c));
    w->kind = tn_in(b, "kind");
    return tn_graph_status(g);
}

/* Rows of BOS and EOS alone ask nothing (task=ae): then texts are said, and nothing else. */
static bool asks(const work *w)
{
    return tn_graph_status(w->g) != TN_OK || tn_ref_dim(w->g, wire_in(w->b, &w->c.reader[0], "tokens"), 2) > 2;
}

static tn_status minimise(tn_graph *g, const tn_settings *st, const tn_batch *b, bool task, bool ae)
{
    work w;
    tn_ref loss = TN_NONE;
    TN_RETURN_IF(begin(&w, g, st, b));
    if (!asks(&w)) task = false, ae = true;
    TN_RETURN_IF(wire_encode(g, &w.c, b, &w.z));
    for (int64_t i = 0; i < w.c.readers; i++) {
        const wire_reader *r = &w.c.reader[i];
        const wire_prefix p = wire_adapt(g, &w.c, r, w.z);
        if (task) TN_RETURN_IF(task_terms(&w, r, &p, &loss));
        if (ae) TN_RETURN_IF(ae_terms(&w, r, &p, task ? w.c.ae : 1, &loss));
        loss = wire_plus(g, loss, 1, wire_size(g, &w.c, r, &p, tn_in(b, "count")));
    }
    loss = tn_scale(g, loss, 1 / (float)w.c.readers);
    tn_output(g, "loss", wire_plus(g, loss, w.c.nce, contrast(&w)));
    return tn_graph_status(g);
}

tn_status wire_build_train(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    return minimise(g, st, b, true, tn_settings_float(st, "loss.ae") != 0);
}
tn_status wire_build_task(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    return minimise(g, st, b, true, false);
}
/* Planned always, taken where loss.ae says so: where it does not, no larger plan is made for it. */
tn_status wire_build_ae(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const bool ae = tn_settings_float(st, "loss.ae") != 0;
    return minimise(g, st, b, !ae, ae);
}

/* Places in the table of steps (wire.c): train, eval, task, ae. */
size_t wire_choose(const tn_settings *st, int64_t step)
{
    enum { TRAIN = 0, TASK = 2, AE = 3 };
    const int64_t alone = tn_settings_int(st, "ae.alone"), until = tn_settings_int(st, "ae.until");
    if (tn_settings_float(st, "loss.ae") == 0) return TASK;
    return step < alone ? AE : until && step >= until ? TASK : TRAIN;
}

/* --- looking ---------------------------------------------------------------------------------------------------------- */

static void put(tn_graph *g, const wire_reader *r, const char *name, tn_ref x)
{
    char full[32];
    snprintf(full, sizeof full, "%s.%s", r->letter, name);
    tn_output(g, full, x);
}

/* The most likely token of each state, as floats: metrics see no others. */
static tn_ref said(tn_graph *g, const tn_forward *f)
{
    return tn_cast(g, tn_argmax(g, tn_linear(g, f->hidden, f->head)), TN_F32);
}

/* x.nats: mean of -log p of answers; x.nll (N,n-1) of each token; x.said (N,n-1): the most likely token after the right ones before
 * it. Greedy decoding gives an answer where all of its tokens are said, so that exact matches are counted without decoding. */
static tn_ref put_said(tn_graph *g, const wire_reader *r, const tn_forward *f, tn_ref labels)
{
    tn_ref nll = TN_NONE;
    const tn_ref nats = tn_linear_xent(g, f->hidden, f->head, labels, .nll = &nll);
    put(g, r, "nats", nats);
    put(g, r, "nll", nll);
    put(g, r, "said", said(g, f));
    return nats;
}

/* All readers on their answers, from Z. */
static tn_status read_all(work *w)
{
    tn_graph *g = w->g;
    tn_ref loss = TN_NONE;
    tn_forward f;
    for (int64_t i = 0; i < w->c.readers; i++) {
        const wire_reader *r = &w->c.reader[i];
        const wire_prefix p = wire_adapt(g, &w->c, r, w->z), rep = repeat_prefix(g, &p, w->c.questions);
        const tn_ref tokens = rows_of(g, wire_in(w->b, r, "tokens"));
        TN_RETURN_IF(wire_read(g, r, w->b->step, &rep, w->kind, tokens, NULL, &f));
        const tn_ref nats = put_said(g, r, &f, said_labels(g, rows_of(g, wire_in(w->b, r, "labels"))));
        loss = wire_plus(g, loss, 1, nats);
    }
    tn_output(g, "loss", tn_scale(g, loss, 1 / (float)w->c.readers));
    return tn_graph_status(g);
}

/* x.text_said (B,m-1); *loss: the mean of -log p over readers. */
static tn_status read_texts(work *w, tn_ref *loss)
{
    tn_graph *g = w->g;
    tn_forward f;
    *loss = TN_NONE;
    const tn_ref kind = tn_fill(g, tn_shape(w->b->batch), TN_I32, WIRE_AE);
    for (int64_t i = 0; i < w->c.readers; i++) {
        const wire_reader *r = &w->c.reader[i];
        const wire_prefix p = wire_adapt(g, &w->c, r, w->z);
        TN_RETURN_IF(wire_read(g, r, w->b->step, &p, kind, wire_in(w->b, r, "text"), NULL, &f));
        put(g, r, "text_said", said(g, &f));
        const tn_ref nats = tn_linear_xent(g, f.hidden, f.head, said_labels(g, wire_in(w->b, r, "text_labels")));
        *loss = wire_plus(g, *loss, 1 / (double)w->c.readers, nats);
    }
    return tn_graph_status(g);
}

tn_status wire_build_eval(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    work w;
    TN_RETURN_IF(begin(&w, g, st, b));
    TN_RETURN_IF(wire_encode(g, &w.c, b, &w.z));
    const bool asked = asks(&w);
    tn_ref texts = TN_NONE;
    if (asked) TN_RETURN_IF(read_all(&w));
    if (!asked || w.c.ae != 0) TN_RETURN_IF(read_texts(&w, &texts));
    if (!asked) tn_output(g, "loss", texts);
    tn_output(g, "z", tn_reshape(g, w.z, tn_shape(b->batch, w.c.slots * w.c.width)));
    return tn_graph_status(g);
}

tn_status wire_build_encode(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    work w;
    TN_RETURN_IF(begin(&w, g, st, b));
    TN_RETURN_IF(wire_encode(g, &w.c, b, &w.z));
    tn_output(g, "z", tn_reshape(g, w.z, tn_shape(b->batch, w.c.slots * w.c.width)));
    return tn_graph_status(g);
}

/* Messages that the host has written to "message" (B,slots,width): quantised ones, another text's, zeros. */
tn_status wire_build_read(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    work w;
    TN_RETURN_IF(begin(&w, g, st, b));
    w.z = tn_cache(g, "message", tn_shape(b->batch, w.c.slots, w.c.width), TN_F32);
    return read_all(&w);
}

/* Rows of text without any message, x.told: the reader itself, and what is left of it when the text is cut. */
tn_status wire_build_text(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    work w;
    tn_forward f;
    TN_RETURN_IF(begin(&w, g, st, b));
    for (int64_t i = 0; i < w.c.readers; i++) {
        const wire_reader *r = &w.c.reader[i];
        const tn_ref labels = said_labels(g, rows_of(g, wire_in(b, r, "labels")));
        const tn_ref told = rows_of(g, wire_in(b, r, "told")), document = rows_of(g, wire_in(b, r, "told_document"));
        TN_RETURN_IF(tn_graph_status(g));
        TN_RETURN_IF(wire_read_told(g, r, b->step, told, document, tn_ref_dim(g, labels, 1) + 1, NULL, &f));
        put_said(g, r, &f, labels);
        put(g, r, "tokens_of_text", tn_copy(g, wire_in(b, r, "text_length")));
    }
    tn_output(g, "bytes_of_text",
              tn_copy(g, tn_in(b, "bytes"))); /* inputs that only those who cut and count texts look at */
    tn_output(g, "bytes_count", tn_copy(g, tn_in(b, "lengths")));
    return tn_graph_status(g);
}

/* x.teach_ids, x.teach_logits (N,n-1,K), x.teach_lse (N,n-1): the largest logits of a teacher; x.teach_states (N,n-1,states*d): its last
 * states, one layer behind the other. */
static tn_status teach(work *w, const wire_reader *r)
{
    tn_graph *g = w->g;
    const wire_config *c = &w->c;
    const int64_t layers = r->shape.layers, n = last_states(c, r);
    tn_ref told[MOST_LAYERS + 1], logits, lse;
    tn_forward f;
    const tn_ref labels = said_labels(g, rows_of(g, wire_in(w->b, r, "labels")));
    TN_RETURN_IF(tn_graph_status(g));
    TN_RETURN_IF(ask_teacher(w, r, tn_ref_dim(g, labels, 1) + 1, told, &f));
    if (c->kd != 0 || c->state == 0) {
        const int64_t K = c->kd_top < r->shape.vocab ? c->kd_top : r->shape.vocab;
        put(g, r, "teach_ids",
            tn_linear_top(g, f.hidden, f.head, K, .labels = labels, .temperature = c->kd_temperature, .logits = &logits,
                          .lse = &lse));
        put(g, r, "teach_logits", logits);
        put(g, r, "teach_lse", lse);
    }
    if (c->state == 0) return tn_graph_status(g);
    for (int64_t l = 0; l < n; l++) told[l] = tn_floats(g, told[layers - n + 1 + l]);
    put(g, r, "teach_states", n > 1 ? tn_concat(g, told, (int)n, 2) : tn_copy(g, told[0]));
    return tn_graph_status(g);
}

/* What is kept before a run: of readers as teachers, of the sender features (B,m,d). What nobody keeps is not made, but something is. */
tn_status wire_build_teach(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    work w;
    TN_RETURN_IF(begin(&w, g, st, b));
    const bool sends = w.c.encoder == WIRE_SENDER && w.c.features;
    const bool asks = !sends || (w.c.cached && (w.c.kd != 0 || w.c.state != 0));
    for (int64_t i = 0; i < w.c.readers && asks; i++) TN_RETURN_IF(teach(&w, &w.c.reader[i]));
    tn_ref x = TN_NONE;
    if (sends) TN_RETURN_IF(wire_send(g, &w.c, b, &x));
    if (sends) tn_output(g, "features", tn_floats(g, x));
    return tn_graph_status(g);
}
