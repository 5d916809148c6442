/* Text that a model writes while it trains, for a person to read. */
#ifndef TN_CLI_TRAIN_SAMPLE_H
#define TN_CLI_TRAIN_SAMPLE_H

#include "cli/session.h"

/* Before a run that samples: TN_USAGE where nobody knows the tokens' text. */
tn_status tn_train_sample_check(const tn_session *on);
/* Writes sample.tokens tokens after sample.prompt to f. Changes nothing of the training. */
tn_status tn_train_sample(const tn_session *on, int64_t step, FILE *f);

#endif
