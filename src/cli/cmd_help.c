/* tenon help [VERB] and tenon version: texts from the table of verbs, with --json one object each. */
#include "cli/cli.h"

static tn_status emit_verb(tn_cli *c, const tn_verb *v)
{
    return tn_cli_emit(c, json_pack("{s:s, s:s, s:s}", "verb", v->name, "usage", v->usage, "summary", v->summary));
}

tn_status tn_cmd_help(tn_cli *c)
{
    const char *name = tn_args_positional(&c->args, 0);
    const tn_verb *v = NULL;
    TN_RETURN_IF(tn_args_expect(&c->args, 0, 1));
    if (name) TN_RETURN_IF(tn_verb_find(name, &v));
    if (!c->json) tn_verb_help(v, c->out);
    for (size_t i = 0; c->json && i < tn_verbs_n; i++)
        if (!v || v == &tn_verbs[i]) TN_RETURN_IF(emit_verb(c, &tn_verbs[i]));
    return TN_OK;
}

tn_status tn_cmd_version(tn_cli *c)
{
    TN_RETURN_IF(tn_args_expect(&c->args, 0, 0));
    if (c->json) return tn_cli_emit(c, json_pack("{s:s, s:s}", "name", "tenon", "version", TN_VERSION));
    fprintf(c->out, "tenon %s\n", TN_VERSION);
    return TN_OK;
}
