/* Which settings may change when a run resumes. Those that shape its numbers may not (dim, train.lr, data, seed, ...).
 * Where it runs, what it logs, when it saves and evaluates may; so may opt.*, plan.* and device, which change the last
 * digits at most. A longer train.steps is allowed if it leaves past learning rates as they were. */
#ifndef TN_TRAIN_SAME_SETTINGS_H
#define TN_TRAIN_SAME_SETTINGS_H

#include "base/hash.h"

#include <tenon/settings.h>

/* It does not shape the numbers of a run. */
bool tn_settings_may_change(const char *key);

/* Checksum of the settings that may not change, train.steps aside. */
tn_status tn_settings_same_hash(const tn_settings *st, char hash[TN_HASH_BYTES]);

/* Whether a run with this config.yaml can go on with the settings `now`. TN_USAGE names the key, both values and the
 * remedy. What changes nevertheless is listed in `changed` (bytes long): "threads 2 -> 4, ...". */
tn_status tn_settings_may_continue(const tn_settings *now, const char *config, char *changed, size_t bytes);
/* A run that goes on stays on the rung of the memory ladder that it had (ladder.h), and keeps the dropout that train.dropout=auto
 * chose for it (dropout_auto.h). *lowered: `now` was changed for that. `kept` (bytes
 * long): "stays without loss.kd=1 (train.dropped)" where its loss was, or "". */
tn_status tn_settings_keep_rung(tn_settings *now, const char *config, bool *lowered, char *kept, size_t bytes);
/* All that may not change is equal, and train.steps too; a dropout that train.dropout=auto chose there counts as the one that it
 * chooses here. A file that cannot be read is not. */
bool tn_settings_same_run(const tn_settings *now, const char *config);
/* How the model of a run with this config.yaml differs from that of `now`: "dim=64, not 32; ...", or "" where it does not, or the file
 * cannot be read. */
void tn_settings_other_model(const tn_settings *now, const char *config, char *text, size_t bytes);

#endif
