/* What tenon tune remembers, for the verbs that use it: where it lies, and its settings for a configuration. */
#ifndef TN_CLI_TUNED_H
#define TN_CLI_TUNED_H

#include "base/alloc.h"
#include "cli/cli.h"
#include "report/tune/remember.h"

/* $TENON_CACHE, $XDG_CACHE_HOME/tenon or ~/.cache/tenon, and in it "tune"; "" where there is no such place. */
const char *tn_tuned_dir(char buf[TN_PATH_BYTES]);
/* The key of a configuration on this machine, with this version. */
tn_status tn_tuned_key_here(const tn_settings *st, tn_tuned_key *out);

/* The command's overrides, and behind them what is remembered for just this target and these overrides; says so. TN_USAGE: nothing is. */
tn_status tn_tuned_apply(tn_cli *c, tn_arena *arena, const char *target, const char *const **word, size_t *n);

#endif
