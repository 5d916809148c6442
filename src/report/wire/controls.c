/* Messages and controls on held-out texts, batch by batch: first all messages, then what readers say to each of the methods. */
#include "report/wire/controls.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "report/wire/rows.h"
#include "tasks/wire/wire_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const tn_wire_control_steps[] = { "encode", "read", "text", NULL };

typedef struct reader {
    tn_wire_input labels, told, document, length;
    int32_t *told_kept, *document_kept; /* (B,Q,n): as the source filled them */
    bool *far;                          /* (B,Q,length): labels that are copies from afar; NULL: not asked for */
} reader;

/* First tokens of all answers: what was said, what was right. */
typedef struct firsts {
    int32_t *said, *label; /* (n) */
    size_t n, said_capacity, label_capacity;
} firsts;

typedef struct worker {
    tn_session *s;
    tn_wire_controls *out;
    reader reader[TN_CONTROL_READERS];
    float *message; /* (B, slots, width) */
    tn_wire_given given;
    const int32_t *kind; /* (B) of questions; NULL: the session does not read it */
    int64_t valid;       /* contexts of the batch at work */
    int64_t before;      /* contexts before it */
    firsts first[TN_WIRE_METHODS][TN_CONTROL_READERS];
} worker;

static tn_status find_readers(worker *w)
{
    tn_wire_controls *c = w->out;
    for (char x = 'a'; x < 'a' + TN_CONTROL_READERS; x++) {
        reader *r = &w->reader[c->readers];
        r->labels = tn_wire_input_of(w->s, x, "labels");
        r->told = tn_wire_input_of(w->s, x, "told");
        r->document = tn_wire_input_of(w->s, x, "told_document");
        r->length = tn_wire_input_of(w->s, x, "text_length");
        if (!r->labels.at || !r->told.at || !r->document.at || !r->length.at) continue;
        c->reader[c->readers++] = x;
    }
    return c->readers ? TN_OK : tn_error(TN_USAGE, "the run has no reader with data: set a.model and task=recall");
}

/* --- what readers said -------------------------------------------------------------------------------------------------- */

/* One question: labels (n) of tokens, what was said and its -log p (n), and which are copies from afar, or NULL. 1: all of its tokens are
 * right; -1: there is none. */
static int score_row(const int32_t *label, const float *said, const float *nll, const bool *far, int64_t n,
                     tn_wire_score *to)
{
    int64_t tokens = 0, good = 0, last = 0;
    for (int64_t t = 0; t < n; t++) {
        if (label[t] < 0) continue;
        const bool same = (int32_t)said[t] == label[t];
        if (!tokens) to->first += same;
        tokens++, good += same;
        to->nll += nll[t];
        if (far && far[t]) to->far_nll += nll[t], to->far++;
        last = t;
    }
    to->tokens += tokens;
    if (!tokens) return -1;
    to->end_nll += nll[last];
    return good == tokens;
}

static tn_status keep_first(firsts *f, const int32_t *label, const float *said, int64_t n)
{
    int64_t t = 0;
    while (t < n && label[t] < 0) t++;
    if (t == n) return TN_OK;
    if (f->n == f->said_capacity)
        TN_RETURN_IF(tn_grow((void **)&f->said, &f->said_capacity, 2 * f->n + 64, sizeof *f->said));
    if (f->n == f->label_capacity)
        TN_RETURN_IF(tn_grow((void **)&f->label, &f->label_capacity, 2 * f->n + 64, sizeof *f->label));
    f->said[f->n] = (int32_t)said[t];
    f->label[f->n++] = label[t];
    return TN_OK;
}

static int ascending(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* How many different ones; sorts them. */
static double different(int32_t *x, size_t n)
{
    double count = n > 0;
    if (n) qsort(x, n, sizeof *x, ascending);
    for (size_t i = 1; i < n; i++) count += x[i] != x[i - 1];
    return count;
}

static void count_firsts(worker *w)
{
    for (int m = 0; m < TN_WIRE_METHODS; m++)
        for (int k = 0; k < w->out->readers; k++) {
            firsts *f = &w->first[m][k];
            w->out->score[m][k].unique = f->n ? different(f->said, f->n) / different(f->label, f->n) : NAN;
        }
}

static tn_status score_reader(worker *w, const char *step, int k, tn_wire_method m)
{
    tn_wire_score *to = &w->out->score[m][k];
    const reader *r = &w->reader[k];
    const tn_wire_input *l = &r->labels;
    char name[2][16];
    int64_t n_said, n_nll;
    tn_dtype type;
    snprintf(name[0], sizeof name[0], "%c.said", w->out->reader[k]);
    snprintf(name[1], sizeof name[1], "%c.nll", w->out->reader[k]);
    const float *nll = tn_trainer_step_output(w->s->trainer, step, name[1], NULL, &n_nll);
    const float *said = tn_trainer_step_output(w->s->trainer, step, name[0], &type, &n_said);
    if (!said || !nll || type != TN_F32 || n_said != n_nll || n_said != w->s->batch * l->q * (l->n - 1))
        return tn_error(TN_INTERNAL, "step %s: %s has another shape", step, name[0]);
    for (int64_t i = 0; i < w->valid; i++) {
        int64_t asked = 0, right = 0;
        for (int64_t q = 0; q < l->q; q++) {
            const int64_t row = i * l->q + q, at = row * (l->n - 1);
            const int exact = score_row(l->at + row * l->n + 1, said + at, nll + at,
                                        r->far ? r->far + row * l->n + 1 : NULL, l->n - 1, to);
            asked += exact >= 0, right += exact > 0;
            TN_RETURN_IF(keep_first(&w->first[m][k], l->at + row * l->n + 1, said + at, l->n - 1));
        }
        to->em[w->before + i] = asked ? (float)right / (float)asked : NAN;
        to->right += (double)right, to->questions += asked;
    }
    return TN_OK;
}

static tn_status run(worker *w, const char *step, tn_wire_method m)
{
    const double from = tn_clock_s();
    TN_RETURN_IF(tn_trainer_run_step(w->s->trainer, step));
    for (int k = 0; k < w->out->readers; k++) TN_RETURN_IF(score_reader(w, step, k, m));
    w->out->seconds[m] += tn_clock_s() - from;
    return TN_OK;
}

/* --- messages ----------------------------------------------------------------------------------------------------------- */

static tn_status read_messages(worker *w, tn_wire_method m)
{
    const tn_store *store = tn_trainer_store(w->s->trainer);
    const tn_entry *e = tn_store_find(store, "message");
    const int64_t n = w->out->slots * w->out->width;
    for (int64_t i = 0; i < w->valid; i++)
        TN_RETURN_IF(tn_wire_give_message(&w->given, m, w->before + i, w->message + i * n, &w->out->bytes[m]));
    TN_RETURN_IF(tn_store_write(store, e->data, w->message, sizeof(float) * (size_t)(w->s->batch * n)));
    return run(w, "read", m);
}

/* --- texts -------------------------------------------------------------------------------------------------------------- */

static tn_status read_texts(worker *w, tn_wire_method m)
{
    for (int k = 0; k < w->out->readers; k++) {
        reader *r = &w->reader[k];
        const int64_t n = r->told.n;
        bool *keep = tn_alloc((size_t)n);
        if (!keep) return TN_MEMORY;
        for (int64_t i = 0; i < w->valid; i++) {
            const int64_t context = r->length.at[i] - 2; /* without BOS and EOS */
            tn_wire_give_tokens(&w->given, m, w->before + i, context < n ? context : n, keep);
            for (int64_t q = 0; q < r->told.q; q++) {
                const int64_t at = (i * r->told.q + q) * n;
                tn_wire_cut_row(r->told_kept + at, r->document_kept + at, n, context, keep, r->told.at + at,
                                r->document.at + at);
            }
        }
        tn_free(keep);
    }
    return run(w, "text", m);
}

/* --- all ---------------------------------------------------------------------------------------------------------------- */

/* All messages, batch by batch; the first pass also counts the contexts. */
static tn_status encode_all(worker *w, tn_wire_stop *stop, void *ctx)
{
    tn_wire_controls *c = w->out;
    size_t capacity = 0;
    for (int64_t i = 0, count;; i++) {
        int64_t n;
        tn_dtype type;
        if (stop) TN_RETURN_IF(stop(ctx));
        TN_RETURN_IF(tn_source_heldout(&w->s->source, i, w->s->trainer, &count));
        if (!count) break;
        const double from = tn_clock_s();
        TN_RETURN_IF(tn_trainer_run_step(w->s->trainer, "encode"));
        const float *z = tn_trainer_step_output(w->s->trainer, "encode", "z", &type, &n);
        if (!z || n != w->s->batch * c->slots * c->width)
            return tn_error(TN_INTERNAL, "step encode: z has another shape");
        c->encode_seconds += tn_clock_s() - from;
        const int64_t rows = tn_wire_valid(w->s), each = c->slots * c->width;
        if ((size_t)((c->contexts + rows) * each) > capacity)
            TN_RETURN_IF(tn_grow((void **)&c->z, &capacity, 2 * (size_t)((c->contexts + rows) * each), sizeof *c->z));
        memcpy(c->z + c->contexts * each, z, sizeof *z * (size_t)(rows * each));
        c->contexts += rows;
    }
    return c->contexts ? TN_OK : tn_error(TN_USAGE, "there are no held-out texts: set task.heldout");
}

/* The mean message, and the mean cosine of all pairs: (|S|^2 - N) / (N (N - 1)), S the sum of the messages at unit length. */
static tn_status look_at_messages(worker *w)
{
    tn_wire_controls *c = w->out;
    const int64_t n = c->slots * c->width;
    const double N = (double)c->contexts;
    double square = 0, *sum = tn_alloc(2 * sizeof *sum * (size_t)n), *unit = sum ? sum + n : NULL;
    if (!sum) return TN_MEMORY;
    memset(sum, 0, 2 * sizeof *sum * (size_t)n);
    for (int64_t i = 0; i < c->contexts; i++) {
        const float *z = c->z + i * n;
        double length = 0;
        for (int64_t k = 0; k < n; k++) length += (double)z[k] * z[k];
        for (int64_t k = 0; k < n; k++) sum[k] += z[k], unit[k] += length > 0 ? z[k] / sqrt(length) : 0;
    }
    for (int64_t k = 0; k < n; k++) c->mean[k] = (float)(sum[k] / N), square += unit[k] * unit[k];
    c->cosine = c->contexts > 1 ? (square - N) / (N * (N - 1)) : NAN;
    tn_free(sum);
    return TN_OK;
}

static tn_status allocate(worker *w)
{
    tn_wire_controls *c = w->out;
    const size_t each = (size_t)(c->slots * c->width);
    w->message = tn_alloc(sizeof *w->message * (size_t)w->s->batch * each);
    c->mean = tn_alloc(sizeof *c->mean * each);
    bool ok = w->message && c->mean;
    for (int m = 0; m < TN_WIRE_METHODS; m++)
        for (int k = 0; k < c->readers && ok; k++)
            ok = (c->score[m][k].em = tn_alloc(sizeof(float) * (size_t)c->contexts)) != NULL;
    for (int k = 0; k < c->readers && ok; k++) {
        reader *r = &w->reader[k];
        const size_t n = sizeof *r->told_kept * (size_t)(w->s->batch * r->told.q * r->told.n);
        ok = (r->told_kept = tn_alloc(n)) && (r->document_kept = tn_alloc(n));
        if (ok && w->kind && r->labels.n > 1)
            ok = (r->far = tn_alloc(sizeof *r->far * (size_t)(w->s->batch * r->labels.q * r->labels.n))) != NULL;
    }
    if (!ok) return tn_error(TN_MEMORY, "out of memory for the controls of %lld texts", (long long)c->contexts);
    memset(w->message, 0, sizeof *w->message * (size_t)w->s->batch * each);
    return TN_OK;
}

/* Of every row the copies from afar, where it is a continuation. */
static void find_far(const worker *w, reader *r)
{
    const tn_wire_input *l = &r->labels, *x = &r->told;
    memset(r->far, 0, sizeof *r->far * (size_t)(w->s->batch * l->q * l->n));
    for (int64_t row = 0; row < w->valid * l->q; row++) {
        const int32_t *label = l->at + row * l->n, *document = r->document_kept + row * x->n;
        int64_t first = 0, at = 1, n = 0;
        if (w->kind[row / l->q] != TN_WIRE_LM) continue;
        while (first < x->n && !document[first]) first++;
        while (at < l->n && label[at] < 0) at++;
        while (at + n < l->n && label[at + n] >= 0) n++;
        if (n < 2) continue; /* the last is the end */
        const int64_t answer = x->n - (l->n - 1) + at - 1 - first, context = r->length.at[row / l->q] - 2;
        (void)tn_wire_far(r->told_kept + row * x->n + first, context, w->out->slots, answer, n - 1,
                          r->far + row * l->n + at);
    }
}

static tn_status run_batch(worker *w)
{
    for (int k = 0; k < w->out->readers; k++) {
        reader *r = &w->reader[k];
        const size_t n = sizeof *r->told_kept * (size_t)(w->s->batch * r->told.q * r->told.n);
        memcpy(r->told_kept, r->told.at, n);
        memcpy(r->document_kept, r->document.at, n);
        if (r->far) find_far(w, r);
    }
    for (int m = 0; m < TN_WIRE_METHODS; m++)
        TN_RETURN_IF(tn_wire_is_text((tn_wire_method)m) ? read_texts(w, (tn_wire_method)m)
                                                        : read_messages(w, (tn_wire_method)m));
    return TN_OK;
}

static void release(worker *w)
{
    tn_free(w->message);
    for (int k = 0; k < TN_CONTROL_READERS; k++) {
        tn_free(w->reader[k].told_kept);
        tn_free(w->reader[k].document_kept);
        tn_free(w->reader[k].far);
        for (int m = 0; m < TN_WIRE_METHODS; m++) {
            tn_free(w->first[m][k].said);
            tn_free(w->first[m][k].label);
        }
    }
}

tn_status tn_wire_controls_run(tn_session *session, uint64_t seed, tn_wire_stop *stop, void *ctx, tn_wire_controls *out)
{
    tn_status s = TN_OK;
    worker w = { .s = session, .out = out };
    *out = (tn_wire_controls){ .width = tn_settings_int(session->settings, "width") };
    const tn_entry *e = tn_store_find(tn_trainer_store(session->trainer), "message");
    if (!e) TN_FAIL(TN_INTERNAL, "the session has not planned the steps of the controls");
    out->slots = e->dims.dim[1];
    TN_TRY(find_readers(&w));
    w.kind = tn_trainer_input(session->trainer, "kind");
    TN_TRY(encode_all(&w, stop, ctx));
    TN_TRY(allocate(&w));
    TN_TRY(look_at_messages(&w));
    w.given = tn_wire_given_of(out, session->settings, seed);
    for (int64_t i = 0, count; w.before < out->contexts; i++) {
        if (stop) TN_TRY(stop(ctx));
        TN_TRY(tn_source_heldout(&session->source, i, session->trainer, &count));
        if (!count) break;
        w.valid = tn_wire_valid(session);
        TN_TRY(run_batch(&w));
        w.before += w.valid;
    }
    count_firsts(&w);
done:
    release(&w);
    if (s != TN_OK) tn_wire_controls_free(out);
    return s;
}

void tn_wire_controls_free(tn_wire_controls *c)
{
    for (int m = 0; m < TN_WIRE_METHODS; m++)
        for (int k = 0; k < TN_CONTROL_READERS; k++) tn_free(c->score[m][k].em);
    tn_free(c->z);
    tn_free(c->mean);
    *c = (tn_wire_controls){ 0 };
}

tn_wire_method tn_wire_best_budget(const tn_wire_controls *c, int k)
{
    tn_wire_method best = TN_WIRE_FIRST;
    for (tn_wire_method m = TN_WIRE_FIRST; m <= TN_WIRE_RANDOM; m++)
        if (tn_wire_em(&c->score[m][k]) > tn_wire_em(&c->score[best][k])) best = m;
    return best;
}

tn_wire_given tn_wire_given_of(const tn_wire_controls *c, const tn_settings *st, uint64_t seed)
{
    return (tn_wire_given){ .z = c->z,
                            .mean = c->mean,
                            .contexts = c->contexts,
                            .slots = c->slots,
                            .width = c->width,
                            .private_slots = tn_settings_int(st, "private"),
                            .readers = c->readers,
                            .seed = seed };
}

int64_t tn_wire_far(const int32_t *row, int64_t context, int64_t M, int64_t answer, int64_t answers, bool *far)
{
    int64_t n = 0;
    for (int64_t t = answer; t < answer + answers; t++) {
        bool afar = false, near = false;
        for (int64_t j = 2; j < t; j++) { /* row[0] is BOS */
            if (row[j] != row[t] || row[j - 1] != row[t - 1]) continue;
            if (j <= context - M) afar = true;
            else near = true;
        }
        far[t - answer] = afar && !near;
        n += far[t - answer];
    }
    return n;
}

double tn_wire_recovered(const tn_wire_controls *c, tn_wire_method m, int k, bool far)
{
    double nats[3];
    const tn_wire_method of[] = { TN_WIRE_NONE, m, TN_WIRE_TEXT };
    for (int i = 0; i < 3; i++) {
        const tn_wire_score *x = &c->score[of[i]][k];
        nats[i] = far ? x->far_nll : x->nll - x->end_nll;
        if (far && !x->far) return NAN;
    }
    return nats[0] > nats[2] ? (nats[0] - nats[1]) / (nats[0] - nats[2]) : NAN;
}
