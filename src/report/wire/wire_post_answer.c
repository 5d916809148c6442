/* Messages to answers: with caches, or by running the whole row again for each token. */
#include "report/wire/wire_post_parts.h"

#include "base/alloc.h"
#include "base/status.h"

#include <string.h>

static tn_status put_messages(tn_wire_post *p, const float *z, int64_t n)
{
    const tn_store *store = tn_trainer_store(p->trainer);
    const tn_entry *e = tn_store_find(store, "message");
    const size_t each = sizeof *z * (size_t)(p->about.slots * p->about.width);
    if (!e || tn_dims_count(e->dims) != p->batch * p->about.slots * p->about.width)
        return tn_error(TN_INTERNAL, "step read: the message has another shape");
    float *all = tn_alloc(each * (size_t)p->batch);
    if (!all) return TN_MEMORY;
    memset(all, 0, each * (size_t)p->batch);
    memcpy(all, z, each * (size_t)n);
    const tn_status s = tn_store_write(store, e->data, all, each * (size_t)p->batch);
    tn_free(all);
    return s;
}

/* Output NAME (batch, length - 1) of the step that has run. */
static tn_status output_of(tn_wire_post *p, const char *name, const float **out)
{
    char key[TN_WIRE_KEY];
    tn_dtype type;
    int64_t count;
    *out = tn_trainer_step_output(p->trainer, "read", tn_wire_key(p->reader, name, key), &type, &count);
    if (*out && type == TN_F32 && count == p->batch * (p->length - 1)) return TN_OK;
    return tn_error(TN_INTERNAL, "step read: %s has another shape", key);
}

typedef struct answer_rows {
    int32_t *tokens, *labels; /* (batch, length) */
    int64_t n;
} answer_rows;

static tn_status begin_answers(tn_wire_post *p, int64_t n, answer_rows *r)
{
    char key[2][TN_WIRE_KEY];
    tn_feed f;
    TN_RETURN_IF(tn__wire_post_begin(p, n, &f));
    *r = (answer_rows){ tn_feed_at(&f, tn_wire_key(p->reader, "tokens", key[0])),
                        tn_feed_at(&f, tn_wire_key(p->reader, "labels", key[1])), n };
    int32_t *kind = tn_feed_at(&f, "kind");
    if (!r->tokens || !r->labels || !kind) return tn_error(TN_INTERNAL, "step read has other inputs");
    for (int64_t i = 0; i < n; i++) {
        kind[i] = p->kind;
        memcpy(r->tokens + i * p->length, p->laid.ids, sizeof *r->tokens * (size_t)(1 + p->questions));
    }
    return TN_OK;
}

/* The next token of every row that goes on. Returns how many do after it. */
static tn_status say_next(tn_wire_post *p, const answer_rows *r, int64_t at, tn_wire_said *out, int64_t *going)
{
    const float *said;
    *going = 0;
    TN_RETURN_IF(output_of(p, "said", &said));
    for (int64_t i = 0; i < r->n; i++) {
        tn_tokens *ids = &out[i].ids;
        if (out[i].ended) continue;
        const int32_t id = (int32_t)said[i * (p->length - 1) + at - 1];
        r->tokens[i * p->length + at] = r->labels[i * p->length + at] = id;
        if ((out[i].ended = tn_wire_words_end(&p->words, id))) continue;
        TN_RETURN_IF(tn_grow((void **)&ids->ids, &ids->capacity, ids->n + 1, sizeof *ids->ids));
        ids->ids[ids->n++] = id;
        ++*going;
    }
    return TN_OK;
}

static tn_status finish_answers(tn_wire_post *p, const answer_rows *r, tn_wire_said *out)
{
    const float *nll;
    TN_RETURN_IF(tn_trainer_run_step(p->trainer, "read"));
    TN_RETURN_IF(output_of(p, "nll", &nll));
    for (int64_t i = 0; i < r->n; i++) {
        for (int64_t t = 1; t < p->length; t++)
            if (r->labels[i * p->length + t] >= 0) out[i].nats += nll[i * (p->length - 1) + t - 1];
    }
    return TN_OK;
}

/* Each token runs the whole row again, as it is in the evaluation. */
static tn_status answer_whole(tn_wire_post *p, const float *z, int64_t n, tn_status (*stop)(void *ctx), void *ctx,
                              tn_wire_said *out)
{
    answer_rows r;
    TN_RETURN_IF(begin_answers(p, n, &r));
    TN_RETURN_IF(put_messages(p, z, n));
    for (int64_t i = 0; i < n; i++) {
        out[i].text.n = out[i].ids.n = 0;
        out[i].nats = 0;
        out[i].ended = false;
    }
    int64_t going = n;
    for (int64_t t = 0; t < p->max_tokens && going; t++) {
        if (stop) TN_RETURN_IF(stop(ctx));
        TN_RETURN_IF(tn_trainer_run_step(p->trainer, "read"));
        TN_RETURN_IF(say_next(p, &r, 1 + p->questions + t, out, &going));
    }
    return finish_answers(p, &r, out);
}

static tn_status answer_cached(tn_wire_post *p, const float *z, int64_t n, tn_status (*stop)(void *ctx), void *ctx,
                               tn_wire_said *out)
{
    const tn_wire_say_options how = {
        .max_tokens = p->max_tokens, .ends = tn_wire_words_end, .ends_ctx = &p->words, .stop = stop, .ctx = ctx
    };
    tn_wire_row *row = tn_alloc((size_t)n * sizeof *row);
    if (!row) return TN_MEMORY;
    for (int64_t i = 0; i < n; i++) row[i] = (tn_wire_row){ p->laid.ids, 1 + p->questions };
    const tn_status s = tn_wire_speaker_say(p->speaker, row, n, z, p->kind, &how, out);
    tn_free(row);
    return s;
}

tn_status tn_wire_post_answer(tn_wire_post *p, const float *z, int64_t n, tn_status (*stop)(void *ctx), void *ctx,
                              tn_wire_said *out)
{
    TN_RETURN_IF(p->speaker ? answer_cached(p, z, n, stop, ctx, out) : answer_whole(p, z, n, stop, ctx, out));
    for (int64_t i = 0; i < n; i++) TN_RETURN_IF(tn_wire_words_spell(&p->words, &out[i]));
    return TN_OK;
}
