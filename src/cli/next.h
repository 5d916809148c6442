/* The last line of a verb: what to type next. Commands have real paths and work when they are pasted. */
#ifndef TN_CLI_NEXT_H
#define TN_CLI_NEXT_H

#include "cli/cli.h"

/* "next    tenon plot runs/ten-1" to standard error; nothing with --json. The text is what stands behind "tenon". */
void tn_next(const tn_cli *c, const char *fmt, ...) TN_PRINTF(2, 3);
/* The same with a run or checkpoint, and with model=... and tokenizer=... where the command line had them: a shared object is named again. */
void tn_next_of(const tn_cli *c, const char *verb, const char *target, const char *more);
/* The word as a shell takes it: itself, or in quotes; cut (and then useless, but harmless) where it does not fit. */
const char *tn_shell_word(const char *word, char *buf, size_t bytes);

#endif
