/* Makes a store from texts, or takes it from its file (wire_store_file.c). */
#include "tasks/wire/wire_store.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Arrays grow while texts are read: how many ids a text has is known when it is tokenised. */
typedef struct making {
    tn_wire_store *s;
    const tn_wire_texts *texts;
    const tn_wire_reader *reader;
    tn_tokenizer_scratch *scratch[TN_WIRE_READERS]; /* a cache of words each */
    tn_wire_example example;
    tn_wire_tokens tokens;
    size_t bytes_capacity, question_capacity[TN_WIRE_READERS], answer_capacity[TN_WIRE_READERS];
    size_t context_capacity[TN_WIRE_READERS], asked_capacity[TN_WIRE_READERS];
} making;

void tn_wire_store_free(tn_wire_store *s)
{
    if (!s) return;
    for (size_t r = 0; r < TN_WIRE_READERS; r++) {
        tn_wire_ids *x = &s->reader[r];
        void *const all[] = { x->context_at, x->context, x->asked_at, x->asked, x->answer, x->anchor };
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) tn_free(all[k]);
    }
    tn_free(s->byte_at);
    tn_free(s->bytes);
    tn_free(s->question_at);
    tn_wire_seen_free(s->seen);
    tn_free(s);
}

size_t tn_wire_store_bytes(const tn_wire_store *s)
{
    size_t n = sizeof *s + 2 * sizeof(int64_t) * (size_t)s->contexts + (size_t)s->byte_at[s->contexts];
    for (size_t r = 0; r < s->readers; r++) {
        const tn_wire_ids *x = &s->reader[r];
        n += sizeof(int64_t) * (size_t)(s->contexts + s->questions) + sizeof(int32_t) * (size_t)s->questions +
             sizeof(int32_t) * (size_t)(x->context_at[s->contexts] + x->asked_at[s->questions]);
    }
    if (s->seen) {
        n += 2 * sizeof(int64_t) * (size_t)s->questions + (size_t)s->seen->byte_at[s->questions];
        if (s->seen->id_at) n += sizeof(int32_t) * (size_t)s->seen->id_at[s->questions];
    }
    return n;
}

tn_status tn_wire_store_key(const tn_wire_texts *t, const tn_wire_reader *reader, size_t readers,
                            char key[TN_HASH_BYTES])
{
    tn_hash *h;
    const int64_t numbers[] = { TN_WIRE_LAYOUT, t->kind, t->count[0], t->count[1], t->count[2], (int64_t)readers };
    const char *const words[] = { t->task, t->anchor, t->form, t->hash };
    TN_RETURN_IF(tn_hash_begin(&h));
    tn_hash_add(h, numbers, sizeof numbers);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) tn_hash_add(h, words[i], strlen(words[i]) + 1);
    for (size_t i = 0; i < readers; i++) {
        const uint64_t about[] = { (uint64_t)reader[i].letter, tn_tokenizer_hash(reader[i].tokenizer),
                                   (uint64_t)reader[i].bos, (uint64_t)reader[i].eos };
        tn_hash_add(h, about, sizeof about);
    }
    tn_hash_text(h, key);
    tn_hash_free(h);
    return TN_OK;
}

/* --- making it ------------------------------------------------------------------------------------------------------------------ */

tn_status tn__wire_append(int32_t **to, size_t *capacity, int64_t at, const tn_tokens *ids)
{
    void *p = *to;
    const size_t need = (size_t)at + ids->n + 1;
    if (need > *capacity) TN_RETURN_IF(tn_grow(&p, capacity, need + need / 2, sizeof **to));
    *to = p;
    if (ids->n) memcpy(*to + at, ids->ids, ids->n * sizeof *ids->ids);
    return TN_OK;
}

tn_status tn__wire_append_bytes(unsigned char **to, size_t *capacity, int64_t at, const char *text, size_t bytes)
{
    void *p = *to;
    const size_t need = (size_t)at + bytes + 1;
    if (need > *capacity) TN_RETURN_IF(tn_grow(&p, capacity, need + need / 2, 1));
    *to = p;
    if (bytes) memcpy(*to + at, text, bytes);
    return TN_OK;
}

static tn_status add_bytes(making *m, int64_t c)
{
    tn_wire_store *s = m->s;
    const tn_wire_span span = m->example.context;
    TN_RETURN_IF(
        tn__wire_append_bytes(&s->bytes, &m->bytes_capacity, s->byte_at[c], tn_wire_at(&m->example, span), span.bytes));
    s->byte_at[c + 1] = s->byte_at[c] + (int64_t)span.bytes;
    return TN_OK;
}

static tn_status add_context(making *m, size_t r, int64_t c)
{
    tn_wire_ids *x = &m->s->reader[r];
    const tn_wire_span span = m->example.context;
    const tn_wire_parts parts = { .context = tn_wire_at(&m->example, span), .context_bytes = span.bytes };
    TN_RETURN_IF(tn_wire_tokenize(&m->reader[r], m->scratch[r], &parts, &m->tokens));
    TN_RETURN_IF(tn__wire_append(&x->context, &m->context_capacity[r], x->context_at[c], &m->tokens.context));
    x->context_at[c + 1] = x->context_at[c] + (int64_t)m->tokens.context.n;
    return TN_OK;
}

static tn_status add_question(making *m, size_t r, int64_t q, const tn_wire_question *asked)
{
    tn_wire_ids *x = &m->s->reader[r];
    const tn_wire_span question = asked->question, answer = m->example.gold[asked->gold];
    const tn_wire_parts parts = { .question = tn_wire_at(&m->example, question),
                                  .question_bytes = question.bytes,
                                  .answer = tn_wire_at(&m->example, answer),
                                  .answer_bytes = answer.bytes };
    void *at = x->asked_at, *from = x->answer;
    const size_t need = (size_t)q + 2;
    TN_RETURN_IF(tn_wire_tokenize(&m->reader[r], m->scratch[r], &parts, &m->tokens));
    if (need > m->question_capacity[r])
        TN_RETURN_IF(tn_grow(&at, &m->question_capacity[r], need + need / 2, sizeof *x->asked_at));
    x->asked_at = at;
    if (need > m->answer_capacity[r])
        TN_RETURN_IF(tn_grow(&from, &m->answer_capacity[r], need + need / 2, sizeof *x->answer));
    x->answer = from;
    TN_RETURN_IF(tn__wire_append(&x->asked, &m->asked_capacity[r], x->asked_at[q], &m->tokens.asked));
    x->asked_at[q + 1] = x->asked_at[q] + (int64_t)m->tokens.asked.n;
    x->answer[q] = (int32_t)m->tokens.answer;
    return TN_OK;
}

static tn_status add_example(making *m, int split, int64_t i, int64_t c)
{
    tn_wire_store *s = m->s;
    TN_RETURN_IF(tn_wire_read(m->texts, split, i, &m->example));
    TN_RETURN_IF(add_bytes(m, c));
    for (size_t r = 0; r < s->readers; r++) {
        TN_RETURN_IF(add_context(m, r, c));
        for (size_t k = 0; k < m->example.questions; k++)
            TN_RETURN_IF(add_question(m, r, s->questions + (int64_t)k, &m->example.question[k]));
    }
    s->questions += (int64_t)m->example.questions;
    s->question_at[c + 1] = s->questions;
    return TN_OK;
}

/* Of a reader: what does not depend on examples. */
static tn_status begin_reader(making *m, size_t r)
{
    tn_wire_ids *x = &m->s->reader[r];
    const char *anchor = m->texts->anchor;
    size_t capacity = 0;
    *x = (tn_wire_ids){ .letter = m->reader[r].letter, .bos = m->reader[r].bos, .eos = m->reader[r].eos };
    TN_RETURN_IF(tn_tokenizer_scratch_new(&m->scratch[r]));
    const tn_wire_parts parts = { .anchor = anchor, .anchor_bytes = strlen(anchor) };
    TN_RETURN_IF(tn_wire_tokenize(&m->reader[r], m->scratch[r], &parts, &m->tokens));
    TN_RETURN_IF(tn__wire_append(&x->anchor, &capacity, 0, &m->tokens.anchor));
    x->anchors = (int64_t)m->tokens.anchor.n;
    x->context_at = tn_alloc(((size_t)m->s->contexts + 1) * sizeof *x->context_at);
    x->asked_at = tn_alloc(sizeof *x->asked_at);
    m->question_capacity[r] = 1;
    return x->context_at && x->asked_at ? TN_OK : TN_MEMORY;
}

static tn_status make(making *m)
{
    tn_wire_store *s = m->s;
    int64_t c = 0;
    for (int k = 0; k < TN_SPLITS; k++) {
        s->count[k] = m->texts->count[k];
        s->first[k] = s->contexts;
        s->contexts += s->count[k];
    }
    s->byte_at = tn_alloc(((size_t)s->contexts + 1) * sizeof *s->byte_at);
    s->question_at = tn_alloc(((size_t)s->contexts + 1) * sizeof *s->question_at);
    if (!s->byte_at || !s->question_at) return TN_MEMORY;
    for (size_t r = 0; r < s->readers; r++) TN_RETURN_IF(begin_reader(m, r));
    for (int k = 0; k < TN_SPLITS; k++)
        for (int64_t i = 0; i < s->count[k]; i++) TN_RETURN_IF(add_example(m, k, i, c++));
    return TN_OK;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

void tn__wire_store_measure(tn_wire_store *s)
{
    s->most_bytes = s->most_questions = 1; /* a size of 0 is none */
    for (int64_t c = 0; c < s->contexts; c++) {
        s->most_bytes = larger(s->most_bytes, s->byte_at[c + 1] - s->byte_at[c]);
        s->most_questions = larger(s->most_questions, s->question_at[c + 1] - s->question_at[c]);
    }
    for (size_t r = 0; r < s->readers; r++) {
        tn_wire_ids *x = &s->reader[r];
        x->length = x->text = 2;
        x->before = 1;
        for (int64_t q = 0; q < s->questions; q++) {
            x->length = larger(x->length, 2 + x->asked_at[q + 1] - x->asked_at[q]);
            x->before = larger(x->before, 1 + x->answer[q]);
        }
        for (int64_t c = 0; c < s->contexts; c++)
            x->text = larger(x->text, 2 + x->context_at[c + 1] - x->context_at[c]);
        x->told = x->text - 1 + x->anchors + x->length - 1;
    }
}

/* --- opening it ----------------------------------------------------------------------------------------------------------------- */

static tn_status make_all(const tn_wire_texts *t, const tn_wire_reader *reader, tn_wire_store *s)
{
    tn_status status;
    making *m = tn_alloc(sizeof *m);
    if (!m) return TN_MEMORY;
    *m = (making){ .s = s, .texts = t, .reader = reader };
    status = make(m);
    for (size_t r = 0; r < TN_WIRE_READERS; r++) tn_tokenizer_scratch_free(m->scratch[r]);
    tn_wire_example_free(&m->example);
    tn_wire_tokens_free(&m->tokens);
    tn_free(m);
    return status;
}

static tn_status take_or_make(const tn_wire_texts *t, const tn_wire_reader *reader, const char *folder,
                              tn_wire_store *s)
{
    char name[64], path[TN_PATH_BYTES];
    struct stat st;
    if (!folder || !folder[0]) return make_all(t, reader, s);
    TN_RETURN_IF(tn_dir_make(folder));
    snprintf(name, sizeof name, "wire-%s.tokens", s->key);
    TN_RETURN_IF(tn_path_join(folder, name, path, sizeof path));
    if (stat(path, &st) == 0) return tn__wire_store_load(path, s->key, s);
    if (errno != ENOENT) return tn_fs_error(TN_BAD_FILE, errno, "open", path);
    TN_RETURN_IF(make_all(t, reader, s));
    return tn__wire_store_save(s, path);
}

tn_status tn_wire_store_open(const tn_wire_texts *t, const tn_wire_reader *reader, size_t readers, const char *folder,
                             tn_wire_store **out)
{
    tn_status status = TN_OK;
    if (readers > TN_WIRE_READERS)
        return tn_error(TN_USAGE, "%zu models read one text: at most %d can", readers, TN_WIRE_READERS);
    tn_wire_store *s = tn_alloc(sizeof *s);
    if (!s) return TN_MEMORY;
    s->readers = readers;
    s->kind = t->kind;
    if ((status = tn_wire_store_key(t, reader, readers, s->key)) == TN_OK) status = take_or_make(t, reader, folder, s);
    if (status != TN_OK) {
        tn_wire_store_free(s);
        return status;
    }
    tn__wire_store_measure(s);
    *out = s;
    return TN_OK;
}

tn_wire_sequence tn_wire_store_sequence(const tn_wire_store *s, size_t reader, int64_t context, int64_t question,
                                        bool with_context)
{
    const tn_wire_ids *x = &s->reader[reader];
    tn_wire_sequence q = { .bos = x->bos, .eos = x->eos };
    if (with_context) {
        q.context = x->context + x->context_at[context];
        q.contexts = (size_t)(x->context_at[context + 1] - x->context_at[context]);
    }
    if (question < 0) return q;
    if (with_context) q.anchor = x->anchor, q.anchors = (size_t)x->anchors;
    q.asked = x->asked + x->asked_at[question];
    q.askeds = (size_t)(x->asked_at[question + 1] - x->asked_at[question]);
    q.answer = (size_t)x->answer[question];
    return q;
}
