/* The order of tokens is in tn_wire_lay and nowhere else. */
#include "tasks/wire/wire_layout.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

void tn_wire_tokens_free(tn_wire_tokens *t)
{
    tn_tokens_free(&t->context);
    tn_tokens_free(&t->anchor);
    tn_tokens_free(&t->asked);
    tn_tokens_free(&t->alone);
    tn_text_free(&t->joined);
    *t = (tn_wire_tokens){ 0 };
}

/* inside: no blank that some vocabularies put before a whole text. */
static tn_status encode(const tn_wire_reader *r, tn_tokenizer_scratch *x, const char *text, size_t bytes, bool inside,
                        tn_tokens *out)
{
    out->n = 0;
    if (!bytes) return TN_OK;
    return tn_tokenizer_encode_part(r->tokenizer, x, text, bytes, &(tn_encode_part){ .inside = inside }, out);
}

static tn_status join(const tn_wire_parts *p, tn_text *out)
{
    void *v = out->data;
    TN_RETURN_IF(tn_grow(&v, &out->capacity, p->question_bytes + p->answer_bytes + 1, 1));
    out->data = v;
    out->n = p->question_bytes + p->answer_bytes;
    if (p->question_bytes) memcpy(out->data, p->question, p->question_bytes);
    if (p->answer_bytes) memcpy(out->data + p->question_bytes, p->answer, p->answer_bytes);
    return TN_OK;
}

tn_status tn_wire_tokenize(const tn_wire_reader *r, tn_tokenizer_scratch *x, const tn_wire_parts *p,
                           tn_wire_tokens *out)
{
    TN_RETURN_IF(encode(r, x, p->context, p->context_bytes, false, &out->context));
    TN_RETURN_IF(encode(r, x, p->anchor, p->anchor_bytes, true, &out->anchor));
    TN_RETURN_IF(join(p, &out->joined));
    TN_RETURN_IF(encode(r, x, out->joined.data, out->joined.n, true, &out->asked));
    TN_RETURN_IF(encode(r, x, p->question, p->question_bytes, true, &out->alone));
    out->answer = 0;
    while (out->answer < out->alone.n && out->answer < out->asked.n &&
           out->alone.ids[out->answer] == out->asked.ids[out->answer])
        out->answer++;
    return TN_OK;
}

static int32_t *put(int32_t *at, const int32_t *ids, size_t n)
{
    if (n) memcpy(at, ids, n * sizeof *ids);
    return at + n;
}

void tn_wire_lay(const tn_wire_sequence *s, int32_t *ids)
{
    *ids++ = s->bos;
    ids = put(ids, s->context, s->contexts);
    ids = put(ids, s->anchor, s->anchors);
    ids = put(ids, s->asked, s->askeds);
    *ids = s->eos;
}

tn_wire_sequence tn_wire_sequence_of(const tn_wire_reader *r, const tn_wire_tokens *work)
{
    return (tn_wire_sequence){ .bos = r->bos,
                               .eos = r->eos,
                               .context = work->context.ids,
                               .contexts = work->context.n,
                               .anchor = work->anchor.ids,
                               .anchors = work->anchor.n,
                               .asked = work->asked.ids,
                               .askeds = work->asked.n,
                               .answer = work->answer };
}

tn_status tn_wire_tokenizer_check(const tn_tokenizer *t, char x, const char *model, const char *was,
                                  char hash[TN_WIRE_TOKENIZER_HASH])
{
    snprintf(hash, TN_WIRE_TOKENIZER_HASH, "%016llx", (unsigned long long)tn_tokenizer_hash(t));
    if (!was[0] || strcmp(was, hash) == 0) return TN_OK;
    return tn_error(
        TN_USAGE,
        "%.300s has another tokenizer than the one the run was trained with: name the model or the tokenizer "
        "of then with %c.model=PATH or %c.tokenizer=FILE",
        model, x, x);
}

tn_status tn_wire_lay_out(const tn_wire_reader *r, tn_tokenizer_scratch *x, const tn_wire_parts *p,
                          tn_wire_tokens *work, tn_tokens *out, size_t *answer)
{
    TN_RETURN_IF(tn_wire_tokenize(r, x, p, work));
    const tn_wire_sequence s = tn_wire_sequence_of(r, work);
    void *v = out->ids;
    TN_RETURN_IF(tn_grow(&v, &out->capacity, tn_wire_length(&s), sizeof *out->ids));
    out->ids = v;
    out->n = tn_wire_length(&s);
    tn_wire_lay(&s, out->ids);
    *answer = tn_wire_answer(&s);
    return TN_OK;
}
