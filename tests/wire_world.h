/* Tokenizers and texts for tests of src/tasks/wire and its source. Header only. */
#ifndef TN_WIRE_WORLD_H
#define TN_WIRE_WORLD_H

#include "task_sets.h"
#include "tasks/wire/wire_store.h"

typedef struct tn_wire_once {
    const char *text;
    bool done;
} tn_wire_once;

static inline tn_status tn_wire_once_next(void *user, const char **text, size_t *bytes)
{
    tn_wire_once *o = user;
    *text = o->done ? NULL : o->text;
    *bytes = o->done ? 0 : strlen(o->text);
    o->done = true;
    return TN_OK;
}

/* Byte-level BPE of a text that has "Answer:" and " Paris" often; another vocab, other ids. */
static inline tn_tokenizer *tn_wire_bpe(int64_t vocab)
{
    tn_tokenizer *t = NULL;
    tn_wire_once once = {
        "Answer: Paris\nAnswer: Paris\nAnswer: Paris\nthe cat: sat the dog: ran the cat sat on the mat "
        "and the dog ran to the cat. Question: where is the cat? Answer: on the mat\n",
        false
    };
    assert_ok(tn_bpe_train(tn_wire_once_next, &once, &(tn_bpe_options){ .vocab = vocab }, &t));
    return t;
}

static inline tn_wire_reader tn_wire_reader_of(char letter, const tn_tokenizer *t)
{
    const int32_t end = tn_tokenizer_special(t, TN_TOKEN_END), bos = tn_tokenizer_special(t, TN_TOKEN_BOS);
    return (tn_wire_reader){ letter, t, bos >= 0 ? bos : end >= 0 ? end : 0, end >= 0 ? end : 0 };
}

static inline tn_status tn_wire_try(const char *words, tn_wire_texts **out)
{
    const tn_task *t;
    tn_settings *st = tn_task_settings_of(words);
    assert_ok(tn_task_find(tn_settings_text(st, "task.name"), &t));
    assert_non_null(t->texts);
    const tn_status s = t->texts(st, out);
    tn_settings_free(st);
    return s;
}

static inline tn_wire_texts *tn_wire_open(const char *words)
{
    tn_wire_texts *t = NULL;
    assert_ok(tn_wire_try(words, &t));
    return t;
}

static inline bool tn_wire_is(const tn_wire_example *e, tn_wire_span s, const char *text)
{
    return s.bytes == strlen(text) && memcmp(tn_wire_at(e, s), text, s.bytes) == 0;
}

#endif
