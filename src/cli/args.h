/* Arguments of a verb, sorted into positional words, --flags and key=value overrides. Knows nothing of verbs.
 * What flags exist is said by rows of what --help prints. */
#ifndef TN_CLI_ARGS_H
#define TN_CLI_ARGS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tn_flag {
    char name[32];     /* without the dashes */
    const char *value; /* NULL for a flag that has none; borrowed from argv */
} tn_flag;

typedef struct tn_args {
    const char **positional, **overrides; /* borrowed from argv */
    const char **words;                   /* both, as typed */
    tn_flag *flags;
    size_t positional_n, overrides_n, flags_n;
    const char *usage; /* of the verb, for messages; or NULL */
} tn_args;

/* A flag as --help shows it: "--name", "--name=VALUE", or "--name[=VALUE]" where the value may be left out. */
typedef struct tn_flag_row {
    const char *verb, *subs, *text, *help; /* see verbs.def */
} tn_flag_row;

enum { TN_GLOBAL_FLAGS = 2 };
extern const tn_flag_row tn_global_flags[TN_GLOBAL_FLAGS]; /* that every verb takes */

/* After "--" all arguments are positional. *a is zero or the result of a parse; free it in either case. */
tn_status tn_args_parse(tn_args *a, int argc, char *const *argv, const tn_flag_row *rows, size_t n);
void tn_args_free(tn_args *a);

bool tn_args_flag(const tn_args *a, const char *name);
const char *tn_args_value(const tn_args *a, const char *name); /* NULL when not given; the last one wins */
/* The value of a flag as a number; *out stays as it is where the flag is not given. TN_USAGE: it is none, or not from `least` to `most`. */
tn_status tn_args_number(const tn_args *a, const char *name, double least, double most, double *out);
tn_status tn_args_whole(const tn_args *a, const char *name, int64_t least, int64_t most, int64_t *out);
const char *tn_args_positional(const tn_args *a, size_t i);         /* NULL beyond the last */
tn_status tn_args_expect(const tn_args *a, size_t min, size_t max); /* positional arguments */

/* Whole numbers from 1 to 1e9 behind a flag, each larger than the one before it: "1k,4096" or "1024..32768", which doubles. */
enum { TN_SPANS_MOST = 16 };
typedef struct tn_spans {
    int64_t at[TN_SPANS_MOST]; /* (n) */
    size_t n;
} tn_spans;

tn_status tn_spans_read(const char *flag, const char *text, tn_spans *out); /* flag: "--contexts", for messages */

typedef enum tn_flag_kind { TN_FLAG_ALONE, TN_FLAG_MAY, TN_FLAG_VALUE } tn_flag_kind;

tn_flag_kind tn_flag_row_read(const tn_flag_row *r, char name[32]);

#endif
