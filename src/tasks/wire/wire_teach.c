/* The payload of a lesson's file (wire_kept.h): by question, by reader: ids (n,top) i32, logits (n,top) f32, lse (n) f32, states
 * (n,states). What would be used as an index is checked when it is read. */
#include "tasks/wire/wire_teach.h"

#include "base/alloc.h"
#include "tasks/wire/wire_kept.h"

#include <string.h>

static const char format[8] = { 'T', 'N', 'T', 'E', 'A', 'C', 'H', '1' }; /* grows when numbers mean something else */

struct tn_wire_teach_writer {
    const tn_wire_lesson *lesson;
    tn_wire_kept_writer *to;
    int64_t question; /* the next one, */
    size_t reader;    /* and whose numbers of it */
};

struct tn_wire_teach {
    const tn_wire_lesson *lesson;
    tn_wire_kept from;
    int64_t first;
    uint64_t *at; /* (questions, readers): where the numbers begin in the payload */
};

/* --- sizes ---------------------------------------------------------------------------------------------------------------------- */

int64_t tn_wire_lesson_tokens(const tn_wire_lesson *l, size_t k, int64_t q, int64_t *first)
{
    const tn_wire_ids *x = &l->store->reader[l->taught[k].reader];
    const int64_t asked = x->asked_at[q + 1] - x->asked_at[q];
    if (first) *first = 1 + x->answer[q];
    return asked - x->answer[q] + 1; /* and the end */
}

int64_t tn_wire_lesson_questions(const tn_wire_lesson *l, int64_t *first)
{
    const tn_wire_store *s = l->store;
    const int64_t from = s->first[TN_TRAIN];
    *first = s->question_at[from];
    return s->question_at[from + s->count[TN_TRAIN]] - *first;
}

/* Of one token. */
static uint64_t token_bytes(const tn_wire_lesson *l, size_t k)
{
    const tn_wire_taught *t = &l->taught[k];
    const uint64_t kept = t->top ? (uint64_t)t->top * (sizeof(int32_t) + sizeof(float)) + sizeof(float) : 0;
    return kept + (uint64_t)t->states * tn_dtype_bytes(l->type);
}

static uint64_t record_bytes(const tn_wire_lesson *l, size_t k, int64_t q)
{
    return (uint64_t)tn_wire_lesson_tokens(l, k, q, NULL) * token_bytes(l, k);
}

static uint64_t payload_bytes(const tn_wire_lesson *l)
{
    uint64_t sum = 0;
    int64_t first;
    const int64_t n = tn_wire_lesson_questions(l, &first);
    for (int64_t q = first; q < first + n; q++)
        for (size_t k = 0; k < l->readers; k++) sum += record_bytes(l, k, q);
    return sum;
}

uint64_t tn_wire_teach_bytes(const tn_wire_lesson *l) { return tn_wire_kept_bytes(payload_bytes(l)); }

tn_status tn_wire_lesson_key(tn_wire_lesson *l, const char *const *about)
{
    tn_hash *h;
    TN_RETURN_IF(tn_hash_begin(&h));
    tn_hash_add(h, format, sizeof format);
    tn_hash_add(h, l->store->key, sizeof l->store->key);
    for (size_t k = 0; k < l->readers; k++) {
        const tn_wire_taught *t = &l->taught[k];
        const int64_t numbers[] = { l->store->reader[t->reader].letter, t->top, t->vocab, t->states, (int64_t)l->type };
        tn_hash_add(h, numbers, sizeof numbers);
        tn_hash_add(h, about[k], strlen(about[k]) + 1);
    }
    tn_hash_text(h, l->key);
    tn_hash_free(h);
    return TN_OK;
}

/* --- writing -------------------------------------------------------------------------------------------------------------------- */

tn_status tn_wire_teach_begin(const tn_wire_lesson *l, const char *path, tn_wire_teach_writer **out)
{
    tn_wire_teach_writer *w = tn_alloc(sizeof *w);
    if (!w) return TN_MEMORY;
    *w = (tn_wire_teach_writer){ .lesson = l };
    (void)tn_wire_lesson_questions(l, &w->question);
    const tn_status s = tn_wire_kept_begin(path, l->key, payload_bytes(l), &w->to);
    if (s == TN_OK) *out = w;
    else tn_wire_teach_abort(w);
    return s;
}

tn_status tn_wire_teach_add(tn_wire_teach_writer *w, const tn_wire_numbers *x)
{
    const tn_wire_lesson *l = w->lesson;
    const tn_wire_taught *t = &l->taught[w->reader];
    const int64_t n = tn_wire_lesson_tokens(l, w->reader, w->question, NULL);
    if (t->top) {
        TN_RETURN_IF(tn_wire_kept_add(w->to, x->ids, TN_I32, TN_I32, n * t->top));
        TN_RETURN_IF(tn_wire_kept_add(w->to, x->logits, TN_F32, TN_F32, n * t->top));
        TN_RETURN_IF(tn_wire_kept_add(w->to, x->lse, TN_F32, TN_F32, n));
    }
    if (t->states) TN_RETURN_IF(tn_wire_kept_add(w->to, x->states, TN_F32, l->type, n * t->states));
    w->reader = (w->reader + 1) % l->readers;
    w->question += w->reader == 0;
    return TN_OK;
}

tn_status tn_wire_teach_finish(tn_wire_teach_writer *w) { return tn_wire_kept_finish(w->to); }

void tn_wire_teach_abort(tn_wire_teach_writer *w)
{
    if (!w) return;
    tn_wire_kept_abort(w->to);
    tn_free(w);
}

/* --- reading -------------------------------------------------------------------------------------------------------------------- */

static tn_status find_records(tn_wire_teach *t)
{
    const tn_wire_lesson *l = t->lesson;
    size_t count;
    uint64_t at = 0;
    const int64_t n = tn_wire_lesson_questions(l, &t->first);
    if (!tn_mul_ok((size_t)n, l->readers * sizeof *t->at, &count)) return tn_error(TN_MEMORY, "too many questions");
    t->at = tn_alloc(count + 1);
    if (!t->at) return TN_MEMORY;
    for (int64_t q = 0; q < n; q++)
        for (size_t k = 0; k < l->readers; k++) {
            t->at[(size_t)q * l->readers + k] = at;
            at += record_bytes(l, k, t->first + q);
        }
    return TN_OK;
}

tn_status tn_wire_teach_open(const tn_wire_lesson *l, const char *path, tn_wire_teach **out)
{
    tn_status s = TN_OK;
    tn_wire_teach *t = tn_alloc(sizeof *t);
    if (!t) return TN_MEMORY;
    *t = (tn_wire_teach){ .lesson = l };
    TN_TRY(tn_wire_kept_open(path, l->key, payload_bytes(l), &t->from));
    TN_TRY(find_records(t));
    *out = t;
    t = NULL;
done:
    tn_wire_teach_close(t);
    return s;
}

void tn_wire_teach_close(tn_wire_teach *t)
{
    if (!t) return;
    tn_wire_kept_close(&t->from);
    tn_free(t->at);
    tn_free(t);
}

tn_status tn_wire_teach_read(const tn_wire_teach *t, size_t k, int64_t q, const tn_wire_numbers *to)
{
    const tn_wire_lesson *l = t->lesson;
    const tn_wire_taught *x = &l->taught[k];
    const int64_t n = tn_wire_lesson_tokens(l, k, q, NULL), top = n * x->top;
    const uint64_t each = sizeof(int32_t);
    uint64_t at = t->at[(size_t)(q - t->first) * l->readers + k];
    if (to->ids) TN_RETURN_IF(tn_wire_kept_read(&t->from, at, TN_I32, top, to->ids));
    for (int64_t i = 0; to->ids && i < top; i++)
        if (to->ids[i] < 0 || to->ids[i] >= x->vocab)
            return tn_wire_kept_damaged(t->from.path, "it was changed after it was opened");
    at += (uint64_t)top * each;
    if (to->logits) TN_RETURN_IF(tn_wire_kept_read(&t->from, at, TN_F32, top, to->logits));
    at += (uint64_t)top * each;
    if (to->lse) TN_RETURN_IF(tn_wire_kept_read(&t->from, at, TN_F32, n, to->lse));
    at += x->top ? (uint64_t)n * each : 0;
    return to->states ? tn_wire_kept_read(&t->from, at, l->type, n * x->states, to->states) : TN_OK;
}
