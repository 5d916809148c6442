/* The tokenizer of a run's reader: how its texts begin and end, and what its tokens spell. */
#ifndef TN_REPORT_WIRE_READER_WORDS_H
#define TN_REPORT_WIRE_READER_WORDS_H

#include "report/wire/speaker.h" /* tn_wire_said */
#include "tasks/wire/wire_layout.h"
#include "train/run/saved_model.h"

enum { TN_WIRE_KEY = 32 };
/* "x.name", a setting or an input of reader x. */
const char *tn_wire_key(char x, const char *name, char buf[TN_WIRE_KEY]);

typedef struct tn_wire_words {
    char letter;
    tn_tokenizer *tokenizer;
    tn_model_tokens ends;
    tn_tokenizer_scratch *scratch;
    int32_t bos, eos;
} tn_wire_words;

/* TN_USAGE: the run has no such reader, or its file is another one than when the run was trained. */
tn_status tn_wire_words_open(const tn_user_args *user, const tn_settings *st, char letter, tn_wire_words *out);
void tn_wire_words_free(tn_wire_words *w); /* takes a zeroed one */
tn_wire_reader tn_wire_words_reader(const tn_wire_words *w);
/* Whether a token (words: a tn_wire_words) ends an answer: an end token of the model, or none of the tokenizer's. */
bool tn_wire_words_end(const void *words, int32_t id);
/* s->text from its ids. */
tn_status tn_wire_words_spell(const tn_wire_words *w, tn_wire_said *s);

#endif
