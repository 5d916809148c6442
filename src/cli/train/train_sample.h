/* Text that a model writes while it trains, for a person to read. */
#ifndef TN_CLI_TRAIN_SAMPLE_H
#define TN_CLI_TRAIN_SAMPLE_H

#include "token/tokenizer.h"
#include "train/run/session.h"

#include <stdio.h>

/* Before a run that samples: TN_USAGE where nobody knows the tokens' text. */
tn_status tn_train_sample_check(const tn_session *on);
/* Writes sample.tokens tokens after sample.prompt to f. Changes nothing of the training. */
tn_status tn_train_sample(const tn_session *on, int64_t step, FILE *f);

/* Appends to *out the prompt and at most `tokens` tokens that follow it, drawn as `tenon sample` does by default, with the session's seed.
 * TN_USAGE: the model cannot be sampled from, or nobody knows the tokens' text. */
tn_status tn_session_sample(const tn_session *on, const char *prompt, size_t bytes, int64_t tokens, tn_text *out);
/* Appends the start of the held-out text to *out: whole words, about so many bytes. Nothing where nothing is held out. Uses the
 * trainer's inputs. */
tn_status tn_session_prompt(tn_session *on, size_t bytes, tn_text *out);

#endif
