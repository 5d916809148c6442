/* tenon tasks: what models can be trained on beside text. */
#include "cli/cli.h"
#include "tasks/task.h"

tn_status tn_cmd_tasks(tn_cli *c)
{
    TN_RETURN_IF(tn_args_expect(&c->args, 0, 0));
    for (size_t i = 0; tn_task_at(i); i++) {
        const tn_task *t = tn_task_at(i);
        const char *kind = t->open ? "samples" : t->env ? "environment" : "sequences";
        if (c->json)
            TN_RETURN_IF(
                tn_cli_emit(c, json_pack("{s:s, s:s, s:s}", "name", t->name, "kind", kind, "help", t->summary)));
        else fprintf(c->out, "%-14s %s\n", t->name, t->summary);
    }
    return TN_OK;
}
