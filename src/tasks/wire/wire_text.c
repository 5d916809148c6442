/* Examples piece by piece, and which of their questions are asked. */
#include "tasks/wire/wire_text.h"

#include "base/alloc.h"
#include "io/stream.h"
#include "tasks/wire/wire_parts.h"

#include <string.h>

enum { READ_BYTES = 1 << 20, FILE_MAX = 1 << 30 };

/* --- pieces --------------------------------------------------------------------------------------------------------------------- */

static tn_status add(tn_wire_example *e, const char *text, size_t bytes)
{
    void *p = e->text.data;
    TN_RETURN_IF(tn_grow(&p, &e->text.capacity, e->text.n + bytes + 1, 1));
    e->text.data = p;
    if (bytes) memcpy(e->text.data + e->text.n, text, bytes);
    e->text.n += bytes;
    return TN_OK;
}

tn_status tn__wire_add_context(tn_wire_example *e, const char *text, size_t bytes)
{
    TN_RETURN_IF(add(e, text, bytes));
    e->context = (tn_wire_span){ e->text.n - bytes, bytes };
    return TN_OK;
}

tn_status tn__wire_add_question(tn_wire_example *e, const char *before, const char *text, size_t bytes,
                                const char *after)
{
    const size_t at = e->text.n;
    void *p = e->question;
    TN_RETURN_IF(tn_grow(&p, &e->question_capacity, e->questions + 1, sizeof *e->question));
    e->question = p;
    TN_RETURN_IF(add(e, before, strlen(before)));
    TN_RETURN_IF(add(e, text, bytes));
    TN_RETURN_IF(add(e, after, strlen(after)));
    e->question[e->questions++] = (tn_wire_question){ { at, e->text.n - at }, e->golds, 0 };
    return TN_OK;
}

tn_status tn__wire_add_gold(tn_wire_example *e, const char *before, const char *text, size_t bytes)
{
    const size_t at = e->text.n;
    void *p = e->gold;
    TN_RETURN_IF(tn_grow(&p, &e->gold_capacity, e->golds + 1, sizeof *e->gold));
    e->gold = p;
    TN_RETURN_IF(add(e, before, strlen(before)));
    TN_RETURN_IF(add(e, text, bytes));
    e->gold[e->golds++] = (tn_wire_span){ at, e->text.n - at };
    e->question[e->questions - 1].golds++;
    return TN_OK;
}

void tn_wire_example_free(tn_wire_example *e)
{
    tn_text_free(&e->text);
    tn_free(e->question);
    tn_free(e->gold);
    *e = (tn_wire_example){ 0 };
}

/* --- texts ---------------------------------------------------------------------------------------------------------------------- */

tn_status tn__wire_texts_new(const tn_wire_texts *like, tn_wire_texts **out)
{
    tn_wire_texts *t = tn_alloc(sizeof *t);
    if (!t) {
        like->close(like->data);
        return TN_MEMORY;
    }
    *t = *like;
    *out = t;
    return TN_OK;
}

void tn_wire_texts_free(tn_wire_texts *t)
{
    if (t) t->close(t->data);
    tn_free(t);
}

tn_status tn_wire_read(const tn_wire_texts *t, int split, int64_t i, tn_wire_example *e)
{
    e->text.n = e->questions = e->golds = 0;
    e->context = (tn_wire_span){ 0 };
    return t->read(t, split, i, e);
}

tn_status tn__wire_hash(const int64_t *numbers, size_t n, const void *data, size_t bytes, char hash[TN_HASH_BYTES])
{
    tn_hash *h;
    TN_RETURN_IF(tn_hash_begin(&h));
    tn_hash_add(h, numbers, n * sizeof *numbers);
    tn_hash_add(h, data, bytes);
    tn_hash_text(h, hash);
    tn_hash_free(h);
    return TN_OK;
}

tn_status tn__wire_read_file(const char *path, tn_text *out)
{
    tn_status s = TN_OK;
    tn_stream *in = NULL;
    tn_text t = { 0 };
    size_t got = 1;
    TN_TRY(tn_stream_open(path, &in));
    while (got) {
        void *p = t.data;
        if (t.n > FILE_MAX) TN_FAIL(TN_BAD_FILE, "%.640s has more than %d bytes: use a part of it", path, FILE_MAX);
        if (t.n + READ_BYTES + 1 > t.capacity) TN_TRY(tn_grow(&p, &t.capacity, 2 * t.n + READ_BYTES + 1, 1));
        t.data = p;
        TN_TRY(tn_stream_read(in, t.data + t.n, READ_BYTES, &got));
        t.n += got;
    }
    t.data[t.n] = 0;
    *out = t;
    t = (tn_text){ 0 };
done:
    tn_stream_close(in);
    tn_text_free(&t);
    return s;
}

/* --- which are asked ------------------------------------------------------------------------------------------------------------ */

/* The first draws of a shuffle. Questions often stand in the order of the context, so that without one held-out questions would be about
 * its beginning alone. */
int64_t tn_wire_pick(uint64_t seed, int64_t step, int split, int64_t context, int64_t n, int64_t q, int32_t *out)
{
    const bool trains = step >= 0;
    const tn_rng r = { trains ? seed : (uint64_t)split,
                       tn_rng_stream(trains ? "wire.ask" : "wire.order") + (trains ? (uint64_t)step : 0) };
    const int64_t picked = q > 0 && q < n ? q : n;
    for (int64_t k = 0; k < picked; k++) {
        /* Drawn among the n - k that are left, counted over those that are taken, which are sorted in out[0..k). */
        int64_t x = (int64_t)tn_rng_below(r, (uint64_t)context << 20 | (uint64_t)k, (uint64_t)(n - k)), at = 0;
        while (at < k && out[at] <= x) at++, x++;
        memmove(out + at + 1, out + at, sizeof *out * (size_t)(k - at));
        out[at] = (int32_t)x;
    }
    return picked;
}
