/* tenon presets: the models and their presets. tenon tasks: what models can be trained on besides text. */
#include "cli/cli.h"
#include "models/models.h"
#include "tasks/task.h"

static tn_status emit(tn_cli *c, const char *kind, const char *name, const char *model, const char *help)
{
    return tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:s}", "kind", kind, "name", name, "model", model, "help", help));
}

tn_status tn_cmd_presets(tn_cli *c)
{
    TN_RETURN_IF(tn_args_expect(&c->args, 0, 0));
    for (size_t i = 0; tn_model_at(i); i++) {
        const tn_model *m = tn_model_at(i);
        if (c->json) TN_RETURN_IF(emit(c, "model", m->name, m->name, m->summary));
        else fprintf(c->out, "%-14s %s\n", m->name, m->summary);
        for (size_t k = 0; k < m->n_presets; k++) {
            const tn_preset *p = &m->presets[k];
            if (c->json) {
                TN_RETURN_IF(emit(c, "preset", p->name, m->name, p->help));
                continue;
            }
            fprintf(c->out, "  %-12s %s (", p->name, p->help);
            for (const char *const *v = p->values; *v; v++) fprintf(c->out, "%s%s", v == p->values ? "" : " ", *v);
            fprintf(c->out, ")\n");
        }
    }
    return TN_OK;
}

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
