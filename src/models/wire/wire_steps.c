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

/* sum + weight x; either may be none. */
static tn_ref plus(tn_graph *g, tn_ref sum, double weight, tn_ref x)
{
    if (!x.id || weight == 0) return sum;
    x = weight == 1 ? one(g, x) : tn_scale(g, one(g, x), (float)weight);
    return sum.id ? tn_add(g, sum, x) : x;
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
    const int64_t N = tn_ref_dim(g, labels, 0), n = tn_ref_dim(g, labels, 1);
    const tn_ref counts = counted(g, labels);
    const tn_ref part[] = { tn_fill(g, tn_shape(N, 1), TN_F32, 0), tn_slice(g, counts, 1, 0, n - 1) };
    return tn_mul(g, counts, tn_affine(g, tn_concat(g, part, 2, 1), -1, 1));
}

/* Layers whose states are compared: the last n. */
static int64_t last_states(const wire_config *c, const wire_reader *r)
{
    return c->states < r->shape.layers ? c->states : r->shape.layers;
}

/* The mean squared distance of the last states to those of a teacher, told[l] (N,n,d) by layer. */
static void add_states(work *w, const wire_reader *r, const tn_ref *states, const tn_ref *told, tn_ref labels,
                       tn_ref *loss)
{
    tn_graph *g = w->g;
    const int64_t n = last_states(&w->c, r);
    const tn_ref counts = counted(g, labels);
    for (int64_t l = r->shape.layers - n + 1; l <= r->shape.layers; l++)
        *loss = plus(g, *loss, w->c.state / (double)n,
                     tn_mse(g, tn_floats(g, states[l]), tn_floats(g, tn_stop_gradient(g, told[l])), .weights = counts));
}

/* The reader itself with the text before it; its states by layer too. */
static tn_status ask_teacher(work *w, const wire_reader *r, int64_t n, tn_ref *told, tn_forward *teacher)
{
    tn_graph *g = w->g;
    const tn_ref rows = rows_of(g, wire_in(w->b, r, "told")), document = rows_of(g, wire_in(w->b, r, "told_document"));
    TN_RETURN_IF(tn_graph_status(g));
    return wire_read_told(g, r, w->b->step, rows, document, n, told, teacher);
}

/* Its states need no gradient: nothing of it is trained. */
static tn_status distil_live(work *w, const wire_reader *r, const tn_forward *student, tn_ref *states, tn_ref labels,
                             tn_ref *loss)
{
    tn_graph *g = w->g;
    const wire_config *c = &w->c;
    tn_ref told[MOST_LAYERS + 1];
    tn_forward teacher;
    TN_RETURN_IF(ask_teacher(w, r, tn_ref_dim(g, labels, 1) + 1, told, &teacher));
    if (c->kd != 0)
        *loss = plus(g, *loss, c->kd,
                     tn_linear_kl(g, student->hidden, tn_stop_gradient(g, teacher.hidden), student->head,
                                  .labels = labels, .temperature = c->kd_temperature));
    if (c->state != 0) add_states(w, r, states, told, labels, loss);
    return tn_graph_status(g);
}

/* What is kept of a teacher for tokens 1 .. n-1: (B,Q,n,k) -> (N,n-1,k) */
static tn_ref taught(work *w, const wire_reader *r, const char *name)
{
    tn_graph *g = w->g;
    const tn_ref x = wire_in(w->b, r, name);
    if (tn_graph_status(g) != TN_OK || !x.id) return x;
    const tn_dims d = tn_ref_dims(g, x);
    const tn_ref flat = tn_reshape(g, x, tn_shape(d.dim[0] * d.dim[1], d.dim[2], d.dim[3]));
    return tn_slice(g, flat, 1, 1, d.dim[2] - 1);
}

/* The same from what was kept: no text is read here. */
static tn_status distil_cached(work *w, const wire_reader *r, const tn_forward *student, tn_ref *states, tn_ref labels,
                               tn_ref *loss)
{
    tn_graph *g = w->g;
    const wire_config *c = &w->c;
    const int64_t d = r->shape.dim, n = last_states(c, r);
    tn_ref told[MOST_LAYERS + 1];
    if (c->kd != 0) {
        const tn_ref lse = said_labels(g, rows_of(g, wire_in(w->b, r, "teach_lse")));
        *loss = plus(g, *loss, c->kd,
                     tn_linear_kl_top(g, student->hidden, student->head, taught(w, r, "teach_ids"),
                                      taught(w, r, "teach_logits"), lse, .labels = labels,
                                      .temperature = c->kd_temperature));
    }
    if (c->state == 0) return tn_graph_status(g);
    const tn_ref all = taught(w, r, "teach_states");
    TN_RETURN_IF(tn_graph_status(g));
    if (tn_ref_dim(g, all, 2) != n * d)
        return tn_model_error("%s.teach_states has %lld numbers for a token: %lld layers of %lld have others",
                              r->letter, (long long)tn_ref_dim(g, all, 2), (long long)n, (long long)d);
    for (int64_t i = 0; i < n; i++) told[r->shape.layers - n + 1 + i] = tn_slice(g, all, 2, i * d, d);
    add_states(w, r, states, told, labels, loss);
    return tn_graph_status(g);
}

/* The teacher is the reader itself with the text before it, in this step or from what was kept. Without a source that has kept anything
 * (checks, benchmarks) it is asked here. */
static tn_status distil(work *w, const wire_reader *r, const tn_forward *student, tn_ref *states, tn_ref labels,
                        tn_ref *loss)
{
    const wire_config *c = &w->c;
    if (c->kd == 0 && c->state == 0) return TN_OK;
    const bool kept = c->cached && wire_in(w->b, r, c->kd != 0 ? "teach_lse" : "teach_states").id;
    return kept ? distil_cached(w, r, student, states, labels, loss) : distil_live(w, r, student, states, labels, loss);
}

/* One pass over all answers of a reader: cross-entropy, the first token's, distillation. */
static tn_status task_terms(work *w, const wire_reader *r, const wire_prefix *p, tn_ref *loss)
{
    tn_graph *g = w->g;
    tn_ref states[MOST_LAYERS + 1];
    tn_forward f;
    const wire_prefix rep = repeat_prefix(g, p, w->c.questions);
    const tn_ref tokens = rows_of(g, wire_in(w->b, r, "tokens"));
    const tn_ref labels = said_labels(g, rows_of(g, wire_in(w->b, r, "labels")));
    TN_RETURN_IF(wire_read(g, r, w->b->step, &rep, w->kind, tokens, states, &f));
    *loss = plus(g, *loss, 1, tn_linear_xent(g, f.hidden, f.head, labels));
    if (w->c.first != 0)
        *loss = plus(g, *loss, w->c.first, tn_linear_xent(g, f.hidden, f.head, labels, .weights = first_of(g, labels)));
    return distil(w, r, &f, states, labels, loss);
}

/* The text itself, said from P behind the anchor AE. */
static tn_status ae_terms(work *w, const wire_reader *r, const wire_prefix *p, double weight, tn_ref *loss)
{
    tn_graph *g = w->g;
    tn_forward f;
    const tn_ref kind = tn_fill(g, tn_shape(w->b->batch), TN_I32, WIRE_AE);
    TN_RETURN_IF(wire_read(g, r, w->b->step, p, kind, wire_in(w->b, r, "text"), NULL, &f));
    const tn_ref labels = said_labels(g, wire_in(w->b, r, "text_labels"));
    *loss = plus(g, *loss, weight, tn_linear_xent(g, f.hidden, f.head, labels));
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
    }
    loss = tn_scale(g, loss, 1 / (float)w.c.readers);
    tn_output(g, "loss", plus(g, loss, w.c.nce, contrast(&w)));
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
        loss = plus(g, loss, 1, nats);
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
        *loss = plus(g, *loss, 1 / (double)w->c.readers, nats);
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
