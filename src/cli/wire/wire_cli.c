/* Settings and runs for the subcommands of `tenon wire`. */
#include "cli/wire/wire_cli.h"

#include <string.h>

tn_status tn_wire_keys(const tn_setting *rows, size_t n, tn_settings **out)
{
    tn_settings *st = NULL;
    tn_status s = tn_settings_new(&st);
    if (s == TN_OK) s = tn_settings_add(st, rows, n, "wire");
    if (s == TN_OK) *out = st;
    else tn_settings_free(st);
    return s;
}

tn_status tn_wire_find(tn_cli *c, tn_settings *keys, tn_saved_model *out)
{
    const char *target = tn_args_positional(&c->args, 1), *rest[TN_CLI_SETTINGS];
    size_t n = 0;
    tn_saved_model m = { .weights = "" };
    TN_RETURN_IF(tn_cli_sort_overrides(c, keys, rest, &n));
    TN_RETURN_IF(tn_saved_model_find(&c->user, target, rest, n, "best", &m));
    tn_status s = TN_OK;
    if (strcmp(m.model->name, "wire") != 0)
        s = tn_error(TN_USAGE,
                     "%.640s is of the model %s: `tenon wire` needs a run of the model wire (tenon train wire "
                     "a.model=RUN task=recall)",
                     target, m.model->name);
    else if (!m.weights[0])
        s = tn_error(TN_USAGE, "%.640s has no weights: name a run, a checkpoint or a file of weights", target);
    if (s == TN_OK) s = tn_cli_warn(c, m.note);
    if (s == TN_OK) *out = m;
    else tn_saved_model_free(&m);
    return s;
}

tn_wire_options tn_wire_header_of(const tn_wire_about *a, int bits, int64_t group)
{
    tn_wire_options o = { .bits = bits,
                          .group = (uint32_t)group,
                          .scale = TN_F16,
                          .shared_slots = (uint32_t)a->shared,
                          .private_slots = (uint32_t)a->private_slots,
                          .models = a->private_slots ? (uint32_t)a->readers : 0,
                          .width = (uint32_t)a->width };
    memcpy(o.encoder, a->encoder, sizeof o.encoder);
    return o;
}
