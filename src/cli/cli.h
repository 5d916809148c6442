/* What the verbs of the command share: the table of verbs, and what each is called with.
 * A verb writes results to `out` and progress to `err`, and returns a status; main alone prints errors and exits. */
#ifndef TN_CLI_CLI_H
#define TN_CLI_CLI_H

#include "base/fs.h"
#include "base/status.h"
#include "cli/args.h"
#include "models/models.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct tn_cli tn_cli;

/* Rows of verbs.def. */
typedef struct tn_verb {
    const char *name, *usage, *summary; /* usage "": only its subcommands' */
    tn_status (*run)(tn_cli *c);        /* NULL: a subcommand is needed */
} tn_verb;

typedef struct tn_sub {
    const char *verb, *name, *usage, *summary;
    tn_status (*run)(tn_cli *c);
} tn_sub;

struct tn_cli {
    const char *program; /* as it was called: a path, or "tenon" */
    int argc;            /* what stood behind the verb, as typed */
    char *const *argv;
    const tn_verb *verb;
    const tn_sub *sub; /* or NULL */
    tn_args args;      /* the same, sorted */
    tn_user_args user; /* its words, which alone can name a shared object */
    bool json;
    FILE *out, *err;
};

extern const tn_verb tn_verbs[];
extern const tn_sub tn_subs[];
extern const size_t tn_verbs_n, tn_subs_n;

/* TN_USAGE with the nearest verb when there is none of that name. */
tn_status tn_verb_find(const char *name, const tn_verb **out);
/* The subcommand that a verb's first argument (or NULL) names; NULL where the verb runs without one. TN_USAGE: names the choices. */
tn_status tn_sub_find(const tn_verb *v, const char *word, const tn_sub **out);
/* Flags of a verb, one after the other. */
const tn_flag_row *tn_verb_flags(const tn_verb *v, size_t *n);
/* Whether the subcommand (NULL: none) takes the flag. */
bool tn_sub_takes(const tn_sub *sub, const tn_flag_row *f);
/* TN_USAGE: a flag of another subcommand was given. */
tn_status tn_cli_check_flags(const tn_cli *c);
/* Usage lines of a verb and its subcommands, or of one of them, each behind "lead". */
void tn_usage_print(const tn_verb *v, const tn_sub *sub, const char *lead, const char *next, FILE *f);
/* The usage, flags and summary of one verb or subcommand (NULL: the list of all verbs). named: the model or preset whose settings are
 * shown, or NULL. */
void tn_verb_help(const tn_verb *v, const tn_sub *sub, const char *named, FILE *f);

/* Writes one JSON Lines object and drops it; NULL (jansson had no memory) is TN_MEMORY. */
tn_status tn_cli_emit(tn_cli *c, json_t *row);
/* "warning: TEXT" to err, and with --json an object {"name":"warning","text":TEXT} too; nothing where the text is empty. */
tn_status tn_cli_warn(tn_cli *c, const char *text);
json_t *tn_number_or_null(double x);                                                  /* null where it is not finite */
tn_status tn_cli_number(tn_cli *c, const char *name, double value, const char *unit); /* a line of --json */

/* Flags that name a file to be written: whether all of them can be, before the verb begins its work. */
tn_status tn_cli_check_outputs(const tn_cli *c);
/* The last value that the command line itself gives a key, or NULL. */
const char *tn_cli_override(const tn_cli *c, const char *key);
/* The command line's settings: those that `keys` has are set there, the others are put into rest. */
enum { TN_CLI_SETTINGS = 256 };
tn_status tn_cli_sort_overrides(const tn_cli *c, tn_settings *keys, const char *rest[TN_CLI_SETTINGS], size_t *n);

/* The keys of `tenon eval` on a whole text: window, stride, tokenizer. */
tn_status tn_eval_text_settings(tn_settings **out);

/* The data sets of `tenon data get` whose names begin so, as lines of completion. */
void tn_data_sets_offer(const char *typed, FILE *f);

/* Where the headers for models of one's own are, for `tenon new` (which writes it down) and `tenon doctor`. */
typedef struct tn_headers {
    char command[TN_PATH_BYTES]; /* the running binary; "tenon" where nobody knows */
    char dir[2][TN_PATH_BYTES];  /* folders with tenon/ in them; "" where there is none. A build tree needs two: */
} tn_headers;                    /* include/, and build/include/ with the ops.h made there */

/* `given` (may be NULL) must hold tenon/model.h and tenon/ops.h. Else looks beside the running binary: ../include where
 * it is installed, include and ../include in a build tree. Finding nothing leaves both folders "" and is no error. */
tn_status tn_headers_find(const char *given, tn_headers *out);

#define TN_VERB(name, ...) tn_status tn_cmd_##name(tn_cli *c);
#define TN_GROUP(...)
#define TN_SUB(verb, name, run, ...) tn_status run(tn_cli *c);
#define TN_FLAG(...)
#include "cli/verbs.def"
#undef TN_VERB
#undef TN_GROUP
#undef TN_SUB
#undef TN_FLAG

#endif
