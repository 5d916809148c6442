/* What runs recorded, as text, files and lines of JSON. No session is opened. */
#include "cli/report/report_recorded.h"

#include "cli/next.h"
#include "cli/table_file.h"
#include "report/recorded/recorded.h"

#include <math.h>
#include <stdio.h>

static tn_status emit_run(tn_cli *c, const tn_recorded_run *x)
{
    const tn_run_info *i = &x->info;
    TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:s?}", "group", "run", "name",
                                          "state", "run", x->name, "model", i->model, "preset", i->preset, "step",
                                          (json_int_t)i->step, "steps", (json_int_t)i->steps, "state",
                                          tn_run_state_name(i->state), "version", x->version)));
    for (int k = 0; x->timed && k < TN_RUN_TIMES; k++)
        TN_RETURN_IF(
            tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:o, s:s, s:o}", "group", "run", "name", x->time.part[k].name,
                                     "run", x->name, "value", tn_number_or_null(x->time.part[k].seconds), "unit", "s",
                                     "share", tn_number_or_null(x->time.part[k].share))));
    for (size_t k = 0; k < x->n_parts; k++)
        TN_RETURN_IF(
            tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:o, s:o, s:s}", "group", "logged", "name", x->part[k].name,
                                     "run", x->name, "forward", tn_number_or_null(x->part[k].forward_ms), "backward",
                                     tn_number_or_null(x->part[k].backward_ms), "unit", "ms")));
    return TN_OK;
}

static tn_status emit(tn_cli *c, const tn_recorded *r)
{
    for (size_t k = 0; k < r->n_missing; k++)
        TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:s}", "group", "missing", "name", r->missing[k].what, "why",
                                              r->missing[k].why)));
    for (size_t i = 0; i < r->n; i++) {
        TN_RETURN_IF(emit_run(c, &r->run[i]));
        for (size_t k = 0; k < r->n_numbers; k++)
            if (!isnan(r->number[k].value[i]))
                TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:f, s:s}", "group", "recorded", "name",
                                                      r->number[k].name, "run", r->run[i].name, "value",
                                                      r->number[k].value[i], "unit", r->number[k].unit)));
        for (size_t k = 0; k < r->n_settings; k++)
            TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:s}", "group", "setting", "name", r->setting[k].key,
                                                  "run", r->run[i].name, "value", r->setting[k].value[i])));
    }
    return TN_OK;
}

static tn_status write_file(tn_cli *c, const tn_recorded *r, const char *flag,
                            tn_status (*write)(const tn_recorded *r, FILE *out))
{
    FILE *f;
    const char *path = tn_args_value(&c->args, flag);
    if (!path) return TN_OK;
    TN_RETURN_IF(tn_table_open(path, &f));
    TN_RETURN_IF(tn_table_close(path, f, write(r, f)));
    if (!c->json) fprintf(c->err, "wrote   %s\n", path);
    return TN_OK;
}

static tn_status check(const tn_cli *c, const char *const *runs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!tn_is_run(runs[i]))
            return tn_error(TN_USAGE,
                            "%.300s is not the folder of a run, so it has recorded nothing: `tenon runs` lists runs; "
                            "without --recorded it is measured",
                            runs[i]);
    if (c->args.overrides_n)
        return tn_error(TN_USAGE, "--recorded takes no settings, because nothing is measured: remove %.64s",
                        c->args.overrides[0]);
    return TN_OK;
}

tn_status tn_report_recorded(tn_cli *c, const char *const *runs, size_t n, const char *why)
{
    tn_status s = TN_OK;
    tn_arena arena = { 0 };
    tn_recorded r;
    char word[TN_PATH_BYTES];
    TN_TRY(check(c, runs, n));
    TN_TRY(tn_recorded_read(runs, n, why, &arena, &r));
    if (c->json) TN_TRY(emit(c, &r));
    else TN_TRY(tn_recorded_text(&r, c->out));
    TN_TRY(write_file(c, &r, "md", tn_recorded_text));
    TN_TRY(write_file(c, &r, "html", tn_recorded_page));
    if (!tn_args_value(&c->args, "html") && n == 1)
        tn_next(c, "report %s --recorded --html=report.html", tn_shell_word(runs[0], word, sizeof word));
done:
    tn_arena_free(&arena);
    return s;
}
