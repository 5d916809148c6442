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

static tn_status add_question(seeing *m, tn_wire_span span, int64_t q)
{
    tn_wire_seen *x = m->x;
    const char *anchor = m->texts->anchor, *question = tn_wire_at(&m->example, span);
    const tn_wire_parts parts = { .question = question, .question_bytes = span.bytes };
    const int64_t at = x->byte_at[q], behind = at + (int64_t)strlen(anchor);
    TN_RETURN_IF(tn__wire_append_bytes(&x->bytes, &m->bytes_capacity, at, anchor, strlen(anchor)));
    TN_RETURN_IF(tn__wire_append_bytes(&x->bytes, &m->bytes_capacity, behind, question, span.bytes));
    x->byte_at[q + 1] = behind + (int64_t)span.bytes;
    if (!m->sender) return TN_OK;
    TN_RETURN_IF(tn_wire_tokenize(m->sender, m->scratch, &parts, &m->tokens));
    TN_RETURN_IF(tn__wire_append(&x->ids, &m->ids_capacity, x->id_at[q], &m->tokens.asked));
    x->id_at[q + 1] = x->id_at[q] + (int64_t)m->tokens.asked.n;
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
        TN_RETURN_IF(add_question(m, q, first + k));
        const int64_t bytes = tn_wire_seen_bytes(s, c, first + k, NULL),
                      ids = m->sender ? tn_wire_seen_ids(s, c, first + k, NULL) : 0;
        if (bytes > s->most_bytes) s->most_bytes = bytes;
        if (ids > m->x->most_ids) m->x->most_ids = ids;
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
    if (strcmp(t->anchor, TN_WIRE_BETWEEN) != 0)
        return tn_error(TN_INTERNAL, "task %s has another anchor than messages are made with", t->task);
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

bool tn_wire_sees_question(const tn_settings *st)
{
    const size_t at = tn_settings_find(st, "encoder_sees");
    return at < tn_settings_count(st) && strcmp(tn_settings_text(st, "encoder_sees"), "both") == 0;
}

int64_t tn_wire_seen_question(const tn_wire_store *s, int64_t context, const int32_t *picked, int64_t n)
{
    return s->seen && n > 0 ? s->question_at[context] + picked[0] : -1;
}

int64_t tn_wire_seen_bytes(const tn_wire_store *s, int64_t context, int64_t question, int32_t *to)
{
    const int64_t first = s->byte_at[context], n = s->byte_at[context + 1] - first;
    const int64_t behind = question < 0 ? 0 : s->seen->byte_at[question],
                  more = question < 0 ? 0 : s->seen->byte_at[question + 1] - behind;
    for (int64_t k = 0; to && k < n; k++) to[k] = s->bytes[first + k];
    for (int64_t k = 0; to && k < more; k++) to[n + k] = s->seen->bytes[behind + k];
    return n + more;
}

int64_t tn_wire_seen_ids(const tn_wire_store *s, int64_t context, int64_t question, int32_t *to)
{
    const tn_wire_seen *x = s->seen;
    const tn_wire_ids *own = &s->reader[x->sender];
    tn_wire_sequence row = tn_wire_store_sequence(s, (size_t)x->sender, context, -1, true);
    if (question >= 0) {
        row.anchor = own->anchor, row.anchors = (size_t)own->anchors;
        row.asked = x->ids + x->id_at[question];
        row.askeds = (size_t)(x->id_at[question + 1] - x->id_at[question]);
    }
    if (to) tn_wire_lay(&row, to);
    return (int64_t)tn_wire_length(&row);
}
