/* What a speaker says by itself, and how likely given words are. */
#include "report/wire/speaker.h"

#include "base/alloc.h"

#include <math.h>

void tn_wire_said_free(tn_wire_said *s)
{
    tn_text_free(&s->text);
    tn_tokens_free(&s->ids);
    *s = (tn_wire_said){ 0 };
}

double tn_wire_nats(const float *logits, int64_t n, int32_t id)
{
    double sum = 0, most = -INFINITY;
    for (int64_t i = 0; i < n; i++) most = logits[i] > most ? logits[i] : most;
    for (int64_t i = 0; i < n; i++) sum += exp(logits[i] - most);
    return log(sum) + most - logits[id];
}

int32_t tn_wire_likeliest(const float *logits, int64_t n)
{
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(logits[i])) return -1;
        if (logits[i] > logits[at]) at = i;
    }
    return (int32_t)at;
}

static tn_status append(tn_tokens *to, int32_t id)
{
    void *p = to->ids;
    TN_RETURN_IF(tn_grow(&p, &to->capacity, to->n + 1, sizeof *to->ids));
    to->ids = p;
    to->ids[to->n++] = id;
    return TN_OK;
}

static bool is_full(const tn_wire_say_options *how, const tn_wire_said *said, int64_t row)
{
    return how->most && (int64_t)said->ids.n >= how->most[row];
}

/* The most likely token of every row that goes on, into next; *going: how many do after it. */
static tn_status choose(tn_wire_speaker *v, int64_t n, const tn_wire_say_options *how, tn_wire_said *out, int32_t *next,
                        int64_t *going)
{
    const int64_t V = tn_wire_speaker_vocab(v);
    const float *logits = tn_wire_speaker_logits(v);
    if (!logits) return tn_error(TN_INTERNAL, "the logits of a token are not there");
    *going = 0;
    for (int64_t i = 0; i < n; i++) {
        if (out[i].ended || is_full(how, &out[i], i)) continue;
        next[i] = tn_wire_likeliest(logits + i * V, V);
        if (next[i] < 0)
            return tn_error(TN_DIVERGED,
                            "a logit is NaN: the weights are damaged; check them with `tenon ckpt verify`");
        out[i].nats += tn_wire_nats(logits + i * V, V, next[i]);
        if ((out[i].ended = how->ends(how->ends_ctx, next[i]))) {
            tn_wire_speaker_end_row(v, i);
            continue;
        }
        TN_RETURN_IF(append(&out[i].ids, next[i]));
        if (is_full(how, &out[i], i)) tn_wire_speaker_end_row(v, i);
        else ++*going;
    }
    return TN_OK;
}

static tn_status say(tn_wire_speaker *v, int64_t n, const tn_wire_say_options *how, tn_wire_said *out, int32_t *next)
{
    int64_t going = n;
    for (int64_t t = 0; t < how->max_tokens && going; t++) {
        if (how->stop) TN_RETURN_IF(how->stop(how->ctx));
        if (t) TN_RETURN_IF(tn_wire_speaker_feed(v, next));
        TN_RETURN_IF(choose(v, n, how, out, next, &going));
    }
    return TN_OK;
}

tn_status tn_wire_speaker_say(tn_wire_speaker *v, const tn_wire_row *row, int64_t n, const float *z, int kind,
                              const tn_wire_say_options *how, tn_wire_said *out)
{
    for (int64_t i = 0; i < n; i++) {
        out[i].text.n = out[i].ids.n = 0;
        out[i].nats = 0;
        out[i].ended = false;
    }
    if (how->stop) TN_RETURN_IF(how->stop(how->ctx));
    TN_RETURN_IF(tn_wire_speaker_read(v, row, n, z, kind));
    int32_t *next = tn_alloc((size_t)n * sizeof *next);
    if (!next) return TN_MEMORY;
    const tn_status s = say(v, n, how, out, next);
    tn_free(next);
    return s;
}

static tn_status score(tn_wire_speaker *v, int64_t n, const tn_wire_row *answer, int32_t *next, double *nats)
{
    const int64_t V = tn_wire_speaker_vocab(v);
    for (int64_t t = 0, going = n; going; t++) {
        const float *logits = tn_wire_speaker_logits(v);
        if (!logits) return tn_error(TN_INTERNAL, "the logits of a token are not there");
        going = 0;
        for (int64_t i = 0; i < n; i++) {
            if (t < answer[i].n) nats[i] += tn_wire_nats(logits + i * V, V, next[i] = answer[i].ids[t]);
            if (t + 1 >= answer[i].n) tn_wire_speaker_end_row(v, i);
            else going++;
        }
        if (going) TN_RETURN_IF(tn_wire_speaker_feed(v, next));
    }
    return TN_OK;
}

tn_status tn_wire_speaker_score(tn_wire_speaker *v, const tn_wire_row *row, int64_t n, const float *z, int kind,
                                const tn_wire_row *answer, double *nats)
{
    const int64_t V = tn_wire_speaker_vocab(v);
    for (int64_t i = 0; i < n; i++)
        for (int64_t t = 0; t < answer[i].n; t++)
            if (answer[i].ids[t] < 0 || answer[i].ids[t] >= V)
                return tn_error(TN_USAGE, "token %d is outside a vocabulary of %lld", (int)answer[i].ids[t],
                                (long long)V);
    TN_RETURN_IF(tn_wire_speaker_read(v, row, n, z, kind));
    int32_t *next = tn_alloc((size_t)n * sizeof *next);
    if (!next) return TN_MEMORY;
    for (int64_t i = 0; i < n; i++) nats[i] = 0;
    const tn_status s = score(v, n, answer, next, nats);
    tn_free(next);
    return s;
}
