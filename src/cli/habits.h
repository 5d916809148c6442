/* What a command that failed was probably meant to be: misspelt words, and the words of other tools (habits.def). */
#ifndef TN_CLI_HABITS_H
#define TN_CLI_HABITS_H

#include "base/alloc.h"

/* "unknown key lr: did you mean `tenon train train.lr=1`?" with the whole command, or NULL where nothing is near, or the
 * error has another reason. argv as main has it. */
const char *tn_habits_hint(tn_arena *arena, const char *error, int argc, char *const *argv);

/* The command as a shell takes it. */
const char *tn_command_text(tn_arena *arena, size_t n, const char *const *words);

/* A file that `tenon train` is given in place of data=FILE: not a run, a file of settings, weights or a shared object. */
bool tn_is_bare_data(const char *word);

#endif
