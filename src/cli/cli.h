/* What the verbs of the command share: the table of verbs, and what each is called with.
 * A verb writes results to `out` and progress to `err`, and returns a status; main alone prints errors and exits. */
#ifndef TN_CLI_CLI_H
#define TN_CLI_CLI_H

#include "base/status.h"
#include "cli/args.h"
#include "models/models.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct tn_cli tn_cli;

typedef struct tn_verb {
    const char *name, *words, *flags, *usage, *summary; /* see verbs.def */
    tn_status (*run)(tn_cli *c);
} tn_verb;

struct tn_cli {
    int argc; /* what stood behind the verb, as typed */
    char *const *argv;
    const tn_verb *verb;
    tn_args args;   /* the same, sorted */
    tn_asked asked; /* its words, which alone can name a shared object */
    bool json;
    FILE *out, *err;
};

extern const tn_verb tn_verbs[];
extern const size_t tn_verbs_n;

/* TN_USAGE with the nearest verb when there is none of that name. */
tn_status tn_verb_find(const char *name, const tn_verb **out);
/* The usage, flags and summary of one verb (NULL: the list of all). */
void tn_verb_help(const tn_verb *v, FILE *f);

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

/* Keys that only these verbs have, with their defaults, for --help. */
void tn_data_keys(FILE *f);
void tn_sample_keys(FILE *f);

#define TN_VERB(name, ...) tn_status tn_cmd_##name(tn_cli *c);
#include "cli/verbs.def"
#undef TN_VERB

#endif
