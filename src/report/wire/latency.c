/* Times of encoding, reading and saying, after one round that is not counted: plans are made in it. */
#include "report/wire/latency.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "report/wire/rows.h"
#include "report/wire/speaker.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_REPEATS = 64 };

typedef struct timing {
    tn_session *s;
    tn_wire_latency *out;
    tn_wire_stop *stop;
    void *ctx;
    int64_t rows, kind;
    float *z;         /* (B, slots, width) */
    tn_wire_row *row; /* (B) */
    int32_t *next;    /* (B) */
    double each[3][MOST_REPEATS];
} timing;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_ms(double *x, int64_t n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return 1e3 * (n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2);
}

static tn_status encode(timing *t)
{
    const int64_t repeats = t->out->repeats;
    for (int64_t i = -1; i < repeats; i++) {
        int64_t n;
        tn_dtype type;
        if (t->stop) TN_RETURN_IF(t->stop(t->ctx));
        const double from = tn_clock_s();
        TN_RETURN_IF(tn_trainer_run_step(t->s->trainer, "encode"));
        const float *z = tn_trainer_step_output(t->s->trainer, "encode", "z", &type, &n);
        if (!z) return tn_error(TN_INTERNAL, "step encode puts out no z");
        if (i >= 0) t->each[0][i] = tn_clock_s() - from;
        if (i >= 0) continue;
        if (!(t->z = tn_alloc((size_t)n * sizeof *z))) return TN_MEMORY;
        const int64_t each = n / t->s->batch;
        for (int64_t b = 0; b < t->s->batch; b++)
            memcpy(t->z + b * each, z + b % t->rows * each, (size_t)each * sizeof *z);
    }
    t->out->encode_ms = median_ms(t->each[0], repeats);
    return TN_OK;
}

/* BOS ; question of the first question of each text, or the row of text that ends there. */
static tn_status lay(timing *t, char x, bool text, double *positions, int64_t own)
{
    const tn_wire_input labels = tn_wire_input_of(t->s, x, "labels"), tokens = tn_wire_input_of(t->s, x, "tokens"),
                        told = tn_wire_input_of(t->s, x, "told"), document = tn_wire_input_of(t->s, x, "told_document");
    *positions = 0;
    for (int64_t b = 0; b < t->s->batch; b++) {
        const int64_t i = b % t->rows * labels.q;
        int64_t at = 1, first = 0;
        while (at < labels.n && labels.at[i * labels.n + at] < 0) at++;
        if (at == labels.n)
            return tn_error(TN_USAGE, "a text has no question: there is no answer whose time could be taken");
        while (first < told.n && !document.at[i * told.n + first]) first++;
        t->row[b] = text ? (tn_wire_row){ told.at + i * told.n + first, told.n - (labels.n - 1) + at - 1 - first }
                         : (tn_wire_row){ tokens.at + i * labels.n, at };
        *positions += (double)(t->row[b].n + (text ? 0 : own + 1)) / (double)t->s->batch;
    }
    return TN_OK;
}

/* A token for each row, the most likely one, whether it ends the answer or not. */
static tn_status say(timing *t, tn_wire_speaker *v)
{
    const int64_t V = tn_wire_speaker_vocab(v);
    for (int64_t n = 1; n < t->out->tokens; n++) {
        const float *logits = tn_wire_speaker_logits(v);
        if (!logits) return tn_error(TN_INTERNAL, "the logits of a token are not there");
        for (int64_t b = 0; b < t->s->batch; b++) t->next[b] = tn_wire_likeliest(logits + b * V, V);
        for (int64_t b = 0; b < t->s->batch; b++)
            if (t->next[b] < 0) return tn_error(TN_DIVERGED, "a logit is NaN: the weights are damaged");
        TN_RETURN_IF(tn_wire_speaker_feed(v, t->next));
    }
    return tn_wire_speaker_logits(v) ? TN_OK : tn_error(TN_INTERNAL, "the logits of a token are not there");
}

static tn_status time_path(timing *t, tn_wire_speaker *v, bool text, tn_wire_path_times *out)
{
    for (int64_t i = -1; i < t->out->repeats; i++) {
        if (t->stop) TN_RETURN_IF(t->stop(t->ctx));
        const double from = tn_clock_s();
        TN_RETURN_IF(tn_wire_speaker_read(v, t->row, t->s->batch, text ? NULL : t->z, (int)t->kind));
        if (!tn_wire_speaker_logits(v)) return tn_error(TN_INTERNAL, "the logits of a token are not there");
        const double read = tn_clock_s();
        TN_RETURN_IF(say(t, v));
        if (i >= 0) t->each[1][i] = read - from, t->each[2][i] = tn_clock_s() - read;
    }
    out->prefill_ms = median_ms(t->each[1], t->out->repeats);
    out->decode_ms = median_ms(t->each[2], t->out->repeats);
    return TN_OK;
}

static int64_t longest_row(const timing *t)
{
    int64_t most = 0;
    for (int64_t b = 0; b < t->s->batch; b++) most = t->row[b].n > most ? t->row[b].n : most;
    return most;
}

static tn_status time_reader(timing *t, int k)
{
    tn_status s = TN_OK;
    tn_wire_speaker *v = NULL;
    const char x = t->out->reader[k];
    const tn_settings *st = t->s->settings;
    const int64_t own = tn_settings_int(st, "slots") + tn_settings_int(st, "private");
    int64_t longest, message;
    TN_TRY(lay(t, x, false, &t->out->message[k].positions, own));
    message = longest_row(t) + own + 1;
    TN_TRY(lay(t, x, true, &t->out->text[k].positions, own));
    longest = longest_row(t) > message ? longest_row(t) : message;
    const tn_wire_speaker_options o = {
        .trainer = t->s->trainer, .reader = x, .batch = t->s->batch, .longest = longest + t->out->tokens - 1
    };
    TN_TRY(tn_wire_speaker_new(&o, &v));
    TN_TRY(time_path(t, v, true, &t->out->text[k]));
    TN_TRY(lay(t, x, false, &t->out->message[k].positions, own));
    TN_TRY(time_path(t, v, false, &t->out->message[k]));
done:
    tn_wire_speaker_free(v);
    return s;
}

/* As many tokens as fit all readers: rows of text are the longest. */
static tn_status fit_tokens(timing *t)
{
    for (int k = 0; k < t->out->readers; k++) {
        const char x = t->out->reader[k];
        const int64_t own = tn_settings_int(t->s->settings, "slots") + tn_settings_int(t->s->settings, "private");
        int64_t positions, longest;
        double mean;
        TN_RETURN_IF(tn_wire_speaker_positions(t->s->trainer, x, &positions));
        TN_RETURN_IF(lay(t, x, false, &mean, own));
        longest = longest_row(t) + own + 1;
        TN_RETURN_IF(lay(t, x, true, &mean, own));
        if (longest_row(t) > longest) longest = longest_row(t);
        if (longest + t->out->tokens - 1 > positions) t->out->tokens = positions + 1 - longest;
    }
    return t->out->tokens > 0 ? TN_OK : tn_error(TN_USAGE, "texts fill the readers' train.context: no answer fits");
}

static tn_status measure(timing *t)
{
    int64_t count;
    TN_RETURN_IF(tn_source_heldout(&t->s->source, 0, t->s->trainer, &count));
    t->rows = count ? tn_wire_valid(t->s) : 0;
    const int32_t *kind = tn_trainer_input(t->s->trainer, "kind");
    if (!t->rows || !kind) return tn_error(TN_USAGE, "there are no held-out texts: set task.heldout");
    t->kind = kind[0];
    for (char x = 'a'; x < 'a' + TN_CONTROL_READERS; x++)
        if (tn_wire_input_of(t->s, x, "labels").at) t->out->reader[t->out->readers++] = x;
    t->row = tn_alloc((size_t)t->s->batch * sizeof *t->row);
    t->next = tn_alloc((size_t)t->s->batch * sizeof *t->next);
    if (!t->row || !t->next) return TN_MEMORY;
    TN_RETURN_IF(fit_tokens(t));
    TN_RETURN_IF(encode(t));
    for (int k = 0; k < t->out->readers; k++) TN_RETURN_IF(time_reader(t, k));
    return TN_OK;
}

tn_status tn_wire_latency_measure(tn_session *session, int64_t tokens, int64_t repeats, tn_wire_stop *stop, void *ctx,
                                  tn_wire_latency *out)
{
    timing *t = tn_alloc(sizeof *t);
    if (!t) return TN_MEMORY;
    if (repeats > MOST_REPEATS) repeats = MOST_REPEATS;
    *out = (tn_wire_latency){ .batch = session->batch, .tokens = tokens, .repeats = repeats < 1 ? 1 : repeats };
    *t = (timing){ .s = session, .out = out, .stop = stop, .ctx = ctx };
    const tn_status s = measure(t);
    tn_free(t->z);
    tn_free(t->row);
    tn_free(t->next);
    tn_free(t);
    return s;
}
