/* Documents from examples. */
#include "tasks/wire/wire_document.h"

#include "base/alloc.h"

#include <string.h>

void tn_wire_document_free(tn_wire_document *d)
{
    tn_text_free(&d->text);
    tn_wire_example_free(&d->example);
    *d = (tn_wire_document){ 0 };
}

static tn_status add(tn_wire_document *d, const char *text, size_t bytes, tn_wire_span *where)
{
    void *p = d->text.data;
    if (d->text.n + bytes + 1 > d->text.capacity)
        TN_RETURN_IF(tn_grow(&p, &d->text.capacity, 2 * (d->text.n + bytes) + 1, 1));
    d->text.data = p;
    if (bytes) memcpy(d->text.data + d->text.n, text, bytes);
    if (where) *where = (tn_wire_span){ d->text.n, bytes };
    d->text.n += bytes;
    d->text.data[d->text.n] = 0;
    return TN_OK;
}

static tn_status add_span(tn_wire_document *d, tn_wire_span s, tn_wire_span *where)
{
    return add(d, s.bytes ? tn_wire_at(&d->example, s) : "", s.bytes, where);
}

/* The draw-th question of document i and the answer that is trained on. */
static tn_status ask(tn_wire_document *d, int64_t i, int64_t draw, tn_wire_span *question, tn_wire_span *answer)
{
    const tn_rng r = { 0, tn_rng_stream("wire.document") };
    const tn_wire_example *e = &d->example;
    const tn_wire_question *q =
        &e->question[tn_rng_below(r, (uint64_t)i << 24 | (uint64_t)draw, (uint64_t)e->questions)];
    TN_RETURN_IF(add_span(d, q->question, question));
    return add_span(d, e->gold[q->gold], answer);
}

/* A text with a single question is not asked it before: a reader would learn to copy the line above. */
static tn_status repeat(tn_wire_document *d, int64_t i, int64_t repeats)
{
    const size_t from = d->text.n;
    if (d->example.questions < 2) repeats = 0;
    if (repeats && from && d->text.data[from - 1] != '\n') TN_RETURN_IF(add(d, "\n", 1, NULL));
    for (int64_t k = 0; k < repeats; k++) {
        TN_RETURN_IF(ask(d, i, k + 1, NULL, NULL));
        TN_RETURN_IF(add(d, "\n", 1, NULL));
    }
    d->repeated = (tn_wire_span){ from, d->text.n - from };
    return TN_OK;
}

tn_status tn_wire_document_make(const tn_wire_texts *t, int64_t i, int64_t repeats, tn_wire_document *d)
{
    if (repeats && t->kind != TN_WIRE_QA)
        return tn_error(TN_USAGE, "repeats: the texts of task=%s have no questions: leave it out", t->task);
    if (!t->count[TN_TRAIN])
        return tn_error(TN_USAGE, "task=%s has no training contexts: make task.size larger", t->task);
    TN_RETURN_IF(tn_wire_read(t, TN_TRAIN, t->endless ? i : i % t->count[TN_TRAIN], &d->example));
    d->text.n = 0;
    d->repeated = d->anchor = d->question = d->answer = (tn_wire_span){ 0 };
    TN_RETURN_IF(add_span(d, d->example.context, &d->context));
    if (!d->example.questions) return TN_OK;
    TN_RETURN_IF(repeat(d, i, repeats));
    TN_RETURN_IF(add(d, t->anchor, strlen(t->anchor), &d->anchor));
    return ask(d, i, 0, &d->question, &d->answer);
}
