/* tenon help [VERB [SUBCOMMAND]] and tenon version: texts from the table of verbs, with --json one object each. */
#include "cli/cli.h"

#include <stdlib.h>

static tn_status emit_verb(tn_cli *c, const tn_verb *v, const tn_sub *sub)
{
    char *usage = NULL;
    size_t n;
    FILE *f = open_memstream(&usage, &n);
    if (!f) return tn_error(TN_MEMORY, "out of memory");
    tn_usage_print(v, sub, "", "\n", f);
    fclose(f);
    json_t *row = usage ? json_pack("{s:s, s:s, s:s}", "verb", v->name, "usage", usage, "summary",
                                    sub ? sub->summary : v->summary)
                        : NULL;
    if (row && sub) json_object_set_new(row, "subcommand", json_string(sub->name));
    free(usage);
    return tn_cli_emit(c, row);
}

tn_status tn_cmd_help(tn_cli *c)
{
    const char *name = tn_args_positional(&c->args, 0), *word = tn_args_positional(&c->args, 1);
    const tn_verb *v = NULL;
    const tn_sub *sub = NULL;
    TN_RETURN_IF(tn_args_expect(&c->args, 0, 2));
    if (name) TN_RETURN_IF(tn_verb_find(name, &v));
    if (word) TN_RETURN_IF(tn_sub_find(v, word, &sub));
    if (word && !sub) return tn_args_expect(&c->args, 0, 1);
    if (!c->json) tn_verb_help(v, sub, NULL, c->out);
    for (size_t i = 0; c->json && i < tn_verbs_n; i++)
        if (!v || v == &tn_verbs[i]) TN_RETURN_IF(emit_verb(c, &tn_verbs[i], sub));
    return TN_OK;
}

tn_status tn_cmd_version(tn_cli *c)
{
    TN_RETURN_IF(tn_args_expect(&c->args, 0, 0));
    if (c->json) return tn_cli_emit(c, json_pack("{s:s, s:s}", "name", "tenon", "version", TN_VERSION));
    fprintf(c->out, "tenon %s\n", TN_VERSION);
    return TN_OK;
}
