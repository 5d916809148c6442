/* A talk with a model that was trained for it: a system text, then person and model in turn. The talk is its texts: before every
 * answer the whole is written in the model's template anew, and what the model has read already is not read again. Where the
 * model wrote tokens that its tokenizer would not have, or the template changes an answer (Llama's are trimmed), it is all read
 * again, so that the model always sees what apply_chat_template would show it.
 *
 * When the context is full, the oldest turns are forgotten, person's and model's together; the system text stays. A quarter of
 * the context, or max_tokens where that is less, is kept for the answer. */
#ifndef TN_SAMPLE_TALK_H
#define TN_SAMPLE_TALK_H

#include "sample/sample.h"
#include "token/chat_template.h"

typedef struct tn_talk tn_talk;

/* system: NULL, none (or the template's own). The sampler (of one row), template and tokenizer stay the caller's. */
tn_status tn_talk_new(tn_sampler *sampler, const tn_tokenizer *tokenizer, const tn_chat_template *form,
                      const char *system, tn_talk **out);
void tn_talk_free(tn_talk *t);  /* takes NULL */
void tn_talk_clear(tn_talk *t); /* forgets all but the system text */

typedef struct tn_talk_report {
    int64_t prompt, read; /* tokens of the prompt, and those of them that the model had not read yet */
    int64_t forgotten;    /* turns, for want of room */
    double prompt_s;      /* to read it */
    tn_sample_report drawn;
    tn_sample_end end;
} tn_talk_report;

/* One turn. Where the answer is interrupted (TN_INTERRUPTED, also by o->text), what there is of it is part of the talk; on any
 * other failure the talk is as before. */
tn_status tn_talk_turn(tn_talk *t, const char *text, size_t bytes, const tn_sample_options *o, tn_talk_report *out);

#endif
