/* Messages and controls on held-out texts, batch by batch: first all messages, then what readers say to each of the methods. */
#include "report/wire/controls.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/status.h"
#include "io/wire_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const tn_wire_method_names[TN_WIRE_METHODS] = {
    "text", "none", "first", "last", "random", "latent", "fp16", "int8", "int6", "int4", "shuffled", "mean", "zero",
};
const char *const tn_wire_control_steps[] = { "encode", "read", "text", NULL };

static const int bits_of[TN_WIRE_METHODS] = {
    [TN_WIRE_FP16] = 16, [TN_WIRE_INT8] = 8, [TN_WIRE_INT6] = 6, [TN_WIRE_INT4] = 4
};

/* An input (B, Q, n) or (B, n) of a reader. */
typedef struct input_rows {
    int32_t *at;
    int64_t q, n;
} input_rows;

typedef struct reader {
    input_rows labels, told, document, length;
    int32_t *told_kept, *document_kept; /* (B,Q,n): as the source filled them */
} reader;

typedef struct worker {
    tn_session *s;
    tn_wire_controls *out;
    reader reader[TN_CONTROL_READERS];
    float *message; /* (B, slots, width) */
    float *mean;    /* (slots, width) */
    uint64_t seed;
    int64_t private_slots;
    int64_t valid;  /* contexts of the batch at work */
    int64_t before; /* contexts before it */
} worker;

static input_rows input_of(tn_session *s, char x, const char *name)
{
    char full[32];
    const tn_inputs *in = tn_trainer_inputs(s->trainer);
    snprintf(full, sizeof full, "%c.%s", x, name);
    for (size_t i = 0; i < in->n; i++) {
        const tn_input_slot *slot = &in->slot[i];
        if (strcmp(slot->row->name, full) != 0) continue;
        return (input_rows){ tn_trainer_input(s->trainer, full), slot->rank == 3 ? slot->dim[1] : 1,
                             slot->rank == 3   ? slot->dim[2]
                             : slot->rank == 2 ? slot->dim[1]
                                               : 1 };
    }
    return (input_rows){ NULL, 0, 0 };
}

static tn_status find_readers(worker *w)
{
    tn_wire_controls *c = w->out;
    for (char x = 'a'; x < 'a' + TN_CONTROL_READERS; x++) {
        reader *r = &w->reader[c->readers];
        r->labels = input_of(w->s, x, "labels");
        r->told = input_of(w->s, x, "told");
        r->document = input_of(w->s, x, "told_document");
        r->length = input_of(w->s, x, "text_length");
        if (!r->labels.at || !r->told.at || !r->document.at || !r->length.at) continue;
        c->reader[c->readers++] = x;
    }
    return c->readers ? TN_OK : tn_error(TN_USAGE, "the run has no reader with data: set a.model and task=recall");
}

/* --- what readers said -------------------------------------------------------------------------------------------------- */

static tn_status score_reader(worker *w, const char *step, int k, tn_wire_score *to)
{
    const reader *r = &w->reader[k];
    const input_rows *l = &r->labels;
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
            const int64_t row = i * l->q + q;
            const int32_t *label = l->at + row * l->n + 1;
            int64_t tokens = 0, good = 0;
            for (int64_t t = 0; t < l->n - 1; t++) {
                if (label[t] < 0) continue;
                const bool same = (int32_t)said[row * (l->n - 1) + t] == label[t];
                if (!tokens) to->first += same;
                tokens++, good += same;
                to->nll += nll[row * (l->n - 1) + t];
            }
            to->tokens += tokens;
            asked += tokens > 0, right += tokens > 0 && good == tokens;
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
    for (int k = 0; k < w->out->readers; k++) TN_RETURN_IF(score_reader(w, step, k, &w->out->score[m][k]));
    w->out->seconds[m] += tn_clock_s() - from;
    return TN_OK;
}

/* --- messages ----------------------------------------------------------------------------------------------------------- */

/* z as it arrives in so many bits. */
static tn_status through_wire(worker *w, int bits, const float *z, float *to, size_t *bytes)
{
    tn_status s = TN_OK;
    tn_wire_message m = { .z = NULL };
    unsigned char *buffer = NULL;
    tn_wire_size size;
    const tn_wire_controls *c = w->out;
    const uint32_t own = (uint32_t)(w->private_slots * c->readers);
    const tn_wire_options o = { .encoder = "00000000000000000000000000000000",
                                .bits = bits,
                                .group = TN_WIRE_GROUP,
                                .scale = TN_F16,
                                .shared_slots = (uint32_t)c->slots - own,
                                .private_slots = (uint32_t)w->private_slots,
                                .models = own ? (uint32_t)c->readers : 0,
                                .width = (uint32_t)c->width };
    TN_TRY(tn_wire_size_of(&o, &size));
    buffer = tn_alloc(size.message);
    if (!buffer) TN_FAIL(TN_MEMORY, "out of memory");
    TN_TRY(tn_wire_encode(&o, z, buffer));
    TN_TRY(tn_wire_decode("message", buffer, size.message, &(tn_wire_limits){ 0 }, &m));
    memcpy(to, m.z, sizeof *to * (size_t)(c->slots * c->width));
    *bytes = size.message;
done:
    tn_free(buffer);
    tn_wire_message_free(&m);
    return s;
}

static tn_status make_message(worker *w, tn_wire_method m, int64_t i, float *to)
{
    tn_wire_controls *c = w->out;
    const size_t n = (size_t)(c->slots * c->width);
    const int64_t of = w->before + i;
    switch (m) {
    case TN_WIRE_LATENT: memcpy(to, c->z + of * (int64_t)n, n * sizeof *to); return TN_OK;
    case TN_WIRE_SHUFFLED: memcpy(to, c->z + (of + 1) % c->contexts * (int64_t)n, n * sizeof *to); return TN_OK;
    case TN_WIRE_MEAN: memcpy(to, w->mean, n * sizeof *to); return TN_OK;
    case TN_WIRE_ZERO: memset(to, 0, n * sizeof *to); return TN_OK;
    default: return through_wire(w, bits_of[m], c->z + of * (int64_t)n, to, &c->bytes[m]);
    }
}

static tn_status read_messages(worker *w, tn_wire_method m)
{
    const tn_store *store = tn_trainer_store(w->s->trainer);
    const tn_entry *e = tn_store_find(store, "message");
    const int64_t n = w->out->slots * w->out->width;
    for (int64_t i = 0; i < w->valid; i++) TN_RETURN_IF(make_message(w, m, i, w->message + i * n));
    TN_RETURN_IF(tn_store_write(store, e->data, w->message, sizeof(float) * (size_t)(w->s->batch * n)));
    return run(w, "read", m);
}

/* --- texts -------------------------------------------------------------------------------------------------------------- */

/* Which of n tokens stay, ascending, into keep (n); returns how many. */
static int64_t choose(const worker *w, tn_wire_method m, int64_t context, int64_t n, bool *keep)
{
    const int64_t most = m == TN_WIRE_NONE ? 0 : m == TN_WIRE_TEXT ? n : w->out->slots < n ? w->out->slots : n;
    const tn_rng rng = { w->seed, (uint64_t)context };
    int64_t left = most;
    for (int64_t i = 0; i < n; i++) {
        if (m == TN_WIRE_FIRST || m == TN_WIRE_TEXT) keep[i] = i < most;
        else if (m == TN_WIRE_LAST) keep[i] = i >= n - most;
        else keep[i] = left > 0 && tn_rng_uniform(rng, (uint64_t)i) * (double)(n - i) < (double)left;
        left -= keep[i];
    }
    return most;
}

/* A row of text, right-aligned, as: zeros ; BOS ; context ; anchor text ; question ; answer. Of the context `keep` says what stays. */
static void cut_row(const int32_t *told, const int32_t *document, int64_t n, int64_t context, const bool *keep,
                    int32_t *to, int32_t *to_document)
{
    int64_t at = 0, out = n;
    while (at < n && !document[at]) at++;
    memset(to, 0, sizeof *to * (size_t)n);
    memset(to_document, 0, sizeof *to * (size_t)n);
    if (at == n) return; /* no such question */
    for (int64_t i = n; i-- > at;) {
        const int64_t place = i - at - 1; /* in the context; -1: BOS */
        if (place >= 0 && place < context && !keep[place]) continue;
        to[--out] = told[i];
        to_document[out] = 1;
    }
}

static tn_status read_texts(worker *w, tn_wire_method m)
{
    for (int k = 0; k < w->out->readers; k++) {
        reader *r = &w->reader[k];
        const int64_t n = r->told.n;
        bool *keep = tn_alloc((size_t)n);
        if (!keep) return TN_MEMORY;
        for (int64_t i = 0; i < w->valid; i++) {
            const int64_t context = r->length.at[i] - 2; /* without BOS and EOS */
            (void)choose(w, m, w->before + i, context < n ? context : n, keep);
            for (int64_t q = 0; q < r->told.q; q++) {
                const int64_t at = (i * r->told.q + q) * n;
                cut_row(r->told_kept + at, r->document_kept + at, n, context, keep, r->told.at + at,
                        r->document.at + at);
            }
        }
        tn_free(keep);
    }
    return run(w, "text", m);
}

/* --- all ---------------------------------------------------------------------------------------------------------------- */

static int64_t valid_rows(const worker *w)
{
    const int64_t rows = *tn_trainer_feed_again(w->s->trainer).valid;
    return rows < w->s->batch ? rows : w->s->batch;
}

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
        const int64_t rows = valid_rows(w), each = c->slots * c->width;
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
    for (int64_t k = 0; k < n; k++) w->mean[k] = (float)(sum[k] / N), square += unit[k] * unit[k];
    c->cosine = c->contexts > 1 ? (square - N) / (N * (N - 1)) : NAN;
    tn_free(sum);
    return TN_OK;
}

static tn_status allocate(worker *w)
{
    tn_wire_controls *c = w->out;
    const size_t each = (size_t)(c->slots * c->width);
    w->message = tn_alloc(sizeof *w->message * (size_t)w->s->batch * each);
    w->mean = tn_alloc(sizeof *w->mean * each);
    bool ok = w->message && w->mean;
    for (int m = 0; m < TN_WIRE_METHODS; m++)
        for (int k = 0; k < c->readers && ok; k++)
            ok = (c->score[m][k].em = tn_alloc(sizeof(float) * (size_t)c->contexts)) != NULL;
    for (int k = 0; k < c->readers && ok; k++) {
        reader *r = &w->reader[k];
        const size_t n = sizeof *r->told_kept * (size_t)(w->s->batch * r->told.q * r->told.n);
        ok = (r->told_kept = tn_alloc(n)) && (r->document_kept = tn_alloc(n));
    }
    if (!ok) return tn_error(TN_MEMORY, "out of memory for the controls of %lld texts", (long long)c->contexts);
    memset(w->message, 0, sizeof *w->message * (size_t)w->s->batch * each);
    return TN_OK;
}

static tn_status run_batch(worker *w)
{
    for (int k = 0; k < w->out->readers; k++) {
        reader *r = &w->reader[k];
        const size_t n = sizeof *r->told_kept * (size_t)(w->s->batch * r->told.q * r->told.n);
        memcpy(r->told_kept, r->told.at, n);
        memcpy(r->document_kept, r->document.at, n);
    }
    for (int m = 0; m < TN_WIRE_METHODS; m++)
        TN_RETURN_IF(m < TN_WIRE_LATENT ? read_texts(w, (tn_wire_method)m) : read_messages(w, (tn_wire_method)m));
    return TN_OK;
}

static void release(worker *w)
{
    tn_free(w->message);
    tn_free(w->mean);
    for (int k = 0; k < TN_CONTROL_READERS; k++) tn_free(w->reader[k].told_kept), tn_free(w->reader[k].document_kept);
}

tn_status tn_wire_controls_run(tn_session *session, uint64_t seed, tn_wire_stop *stop, void *ctx, tn_wire_controls *out)
{
    tn_status s = TN_OK;
    worker w = {
        .s = session, .out = out, .seed = seed, .private_slots = tn_settings_int(session->settings, "private")
    };
    *out = (tn_wire_controls){ .width = tn_settings_int(session->settings, "width") };
    const tn_entry *e = tn_store_find(tn_trainer_store(session->trainer), "message");
    if (!e) TN_FAIL(TN_INTERNAL, "the session has not planned the steps of the controls");
    out->slots = e->dims.dim[1];
    TN_TRY(find_readers(&w));
    TN_TRY(encode_all(&w, stop, ctx));
    TN_TRY(allocate(&w));
    TN_TRY(look_at_messages(&w));
    for (int64_t i = 0, count; w.before < out->contexts; i++) {
        if (stop) TN_TRY(stop(ctx));
        TN_TRY(tn_source_heldout(&session->source, i, session->trainer, &count));
        if (!count) break;
        w.valid = valid_rows(&w);
        TN_TRY(run_batch(&w));
        w.before += w.valid;
    }
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
    *c = (tn_wire_controls){ 0 };
}

tn_wire_method tn_wire_best_budget(const tn_wire_controls *c, int k)
{
    tn_wire_method best = TN_WIRE_FIRST;
    for (tn_wire_method m = TN_WIRE_FIRST; m <= TN_WIRE_RANDOM; m++)
        if (tn_wire_em(&c->score[m][k]) > tn_wire_em(&c->score[best][k])) best = m;
    return best;
}
