/* What an encoder sees behind a context, when it sees the question too. It is made from the texts each time and is no part of the store's file:
 * questions are short, and the file serves both. Nothing here depends on an answer. */
#include "base/alloc.h"
#include "tasks/wire/wire_store.h"

#include <string.h>

typedef struct seeing {
    tn_wire_store *s;
    tn_wire_seen *x;
    const tn_wire_texts *texts;
    const tn_wire_reader *sender;
    tn_tokenizer_scratch *scratch;
    tn_wire_example example;
    tn_wire_tokens tokens;
    size_t bytes_capacity, ids_capacity;
} seeing;

void tn_wire_seen_free(tn_wire_seen *x)
{
    if (!x) return;
    tn_free(x->byte_at);
    tn_free(x->bytes);
    tn_free(x->id_at);
    tn_free(x->ids);
    tn_free(x);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static tn_status add_bytes(seeing *m, const char *question, size_t bytes, int64_t q)
{
    tn_wire_seen *x = m->x;
    const size_t anchor = strlen(m->texts->anchor), at = (size_t)x->byte_at[q], need = at + anchor + bytes + 1;
    void *p = x->bytes;
    if (need > m->bytes_capacity) TN_RETURN_IF(tn_grow(&p, &m->bytes_capacity, need + need / 2, 1));
    x->bytes = p;
    memcpy(x->bytes + at, m->texts->anchor, anchor);
    if (bytes) memcpy(x->bytes + at + anchor, question, bytes);
    x->byte_at[q + 1] = (int64_t)(at + anchor + bytes);
    return TN_OK;
}

static tn_status add_ids(seeing *m, const char *question, size_t bytes, int64_t q)
{
    tn_wire_seen *x = m->x;
    const tn_wire_ids *own = &m->s->reader[x->sender];
    const tn_wire_parts parts = { .question = question, .question_bytes = bytes };
    TN_RETURN_IF(tn_wire_tokenize(m->sender, m->scratch, &parts, &m->tokens));
    const size_t at = (size_t)x->id_at[q], anchors = (size_t)own->anchors, n = m->tokens.asked.n,
                 need = at + anchors + n + 1;
    void *p = x->ids;
    if (need > m->ids_capacity) TN_RETURN_IF(tn_grow(&p, &m->ids_capacity, need + need / 2, sizeof *x->ids));
    x->ids = p;
    if (anchors) memcpy(x->ids + at, own->anchor, anchors * sizeof *x->ids);
    if (n) memcpy(x->ids + at + anchors, m->tokens.asked.ids, n * sizeof *x->ids);
    x->id_at[q + 1] = (int64_t)(at + anchors + n);
    return TN_OK;
}

static tn_status add_context(seeing *m, int split, int64_t i)
{
    tn_wire_store *s = m->s;
    const int64_t c = s->first[split] + i, first = s->question_at[c], n = s->question_at[c + 1] - first;
    TN_RETURN_IF(tn_wire_read(m->texts, split, i, &m->example));
    if (n < 1 || n != (int64_t)m->example.questions)
        return tn_error(TN_USAGE, "text %lld has no question that the encoder could see: use encoder_sees=context",
                        (long long)i);
    for (int64_t k = 0; k < n; k++) {
        const tn_wire_span q = m->example.question[k].question;
        TN_RETURN_IF(add_bytes(m, tn_wire_at(&m->example, q), q.bytes, first + k));
        s->most_bytes = larger(s->most_bytes, tn_wire_seen_bytes(s, c, first + k, NULL));
        if (!m->sender) continue;
        TN_RETURN_IF(add_ids(m, tn_wire_at(&m->example, q), q.bytes, first + k));
        m->x->most_ids = larger(m->x->most_ids, tn_wire_seen_ids(s, c, first + k, NULL));
    }
    return TN_OK;
}

static tn_status see_all(seeing *m)
{
    const size_t offsets = ((size_t)m->s->questions + 1) * sizeof(int64_t);
    m->x->byte_at = tn_alloc(offsets);
    if (m->sender) m->x->id_at = tn_alloc(offsets);
    if (!m->x->byte_at || (m->sender && !m->x->id_at)) return TN_MEMORY;
    if (m->sender) TN_RETURN_IF(tn_tokenizer_scratch_new(&m->scratch));
    for (int split = 0; split < TN_SPLITS; split++)
        for (int64_t i = 0; i < m->s->count[split]; i++) TN_RETURN_IF(add_context(m, split, i));
    return TN_OK;
}

tn_status tn_wire_store_see(tn_wire_store *s, const tn_wire_texts *t, const tn_wire_reader *sender)
{
    tn_wire_seen *x = tn_alloc(sizeof *x);
    if (!x) return TN_MEMORY;
    *x = (tn_wire_seen){ .sender = -1 };
    for (size_t r = 0; sender && r < s->readers; r++)
        if (s->reader[r].letter == sender->letter) x->sender = (int)r;
    s->seen = x;
    seeing m = { .s = s, .x = x, .texts = t, .sender = x->sender < 0 ? NULL : sender };
    const tn_status status = see_all(&m);
    tn_tokenizer_scratch_free(m.scratch);
    tn_wire_example_free(&m.example);
    tn_wire_tokens_free(&m.tokens);
    return status;
}

int64_t tn_wire_seen_bytes(const tn_wire_store *s, int64_t context, int64_t question, int32_t *to)
{
    const int64_t first = s->byte_at[context], n = s->byte_at[context + 1] - first;
    const bool asks = s->seen && question >= 0;
    const int64_t behind = asks ? s->seen->byte_at[question] : 0,
                  more = asks ? s->seen->byte_at[question + 1] - behind : 0;
    for (int64_t k = 0; to && k < n; k++) to[k] = s->bytes[first + k];
    for (int64_t k = 0; to && k < more; k++) to[n + k] = s->seen->bytes[behind + k];
    return n + more;
}

int64_t tn_wire_seen_ids(const tn_wire_store *s, int64_t context, int64_t question, int32_t *to)
{
    const tn_wire_seen *x = s->seen;
    const tn_wire_ids *own = &s->reader[x->sender];
    tn_wire_sequence row = { .bos = own->bos, .eos = own->eos, .context = own->context + own->context_at[context] };
    row.contexts = (size_t)(own->context_at[context + 1] - own->context_at[context]);
    if (question >= 0) {
        row.asked = x->ids + x->id_at[question];
        row.askeds = (size_t)(x->id_at[question + 1] - x->id_at[question]);
    }
    if (to) tn_wire_lay(&row, to);
    return (int64_t)tn_wire_length(&row);
}
