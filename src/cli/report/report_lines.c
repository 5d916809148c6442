/* tenon report --json: what a profile and a comparison say, as lines. */
#include "cli/report/report_lines.h"

#include <math.h>

static tn_status emit_part(tn_cli *c, const tn_profile_part *x)
{
    return tn_cli_emit(c,
                       json_pack("{s:s, s:s, s:s, s:f, s:f, s:s, s:f, s:f, s:o, s:f, s:f, s:s}", "group", "component",
                                 "name", x->name, "pass", x->pass, "calls", x->calls, "value", x->ms, "unit", "ms",
                                 "spread", x->spread_ms, "share", x->share, "flops", tn_number_or_null(x->flops),
                                 "bytes", x->bytes, "bound_ms", x->bound_ms, "bound", x->bound));
}

static tn_status emit_row(tn_cli *c, const tn_profile *p, const tn_profile_row *x)
{
    const tn_bound_by b = tn_profile_bound(p, x);
    const char *const folder = tn_report_folder(x->op);
    json_t *const where = folder[0] ? json_sprintf("%s%s", folder, x->op) : json_null();
    return tn_cli_emit(c, json_pack("{s:s, s:s, s:o, s:s, s:s, s:s, s:f, s:s, s:f, s:f, s:f, s:o, s:f, s:f, s:s}",
                                    "group", "op", "name", x->op, "folder", where, "region", x->region, "component",
                                    x->component, "pass", x->backward ? "backward" : "forward", "value", x->ms, "unit",
                                    "ms", "spread", x->spread_ms, "share", x->ms / tn_profile_whole(p), "calls",
                                    x->calls, "flops", tn_number_or_null(x->varies ? NAN : x->flops), "bytes", x->bytes,
                                    "bound_ms", b.ms, "bound", b.what));
}

/* The undisturbed step; timed_ms: of steps with timers, which the components add up to. */
static tn_status emit_step(tn_cli *c, const tn_profile *p)
{
    return tn_cli_emit(c, json_pack("{s:s, s:f, s:s, s:f, s:i, s:f, s:f, s:f, s:f, s:b}", "name", "step", "value",
                                    p->step_ms, "unit", "ms", "spread", p->spread_ms, "steps", p->steps, "step_ms",
                                    p->step_ms, "timed_ms", p->timed_ms, "parts_ms", tn_profile_whole(p), "per_second",
                                    1e3 * p->items / p->step_ms, "replayed", p->replayed));
}

tn_status tn_report_emit(tn_cli *c, const tn_profile *p)
{
    tn_profile_part part[TN_PROFILE_PARTS];
    const size_t n = tn_profile_parts(p, part);
    TN_RETURN_IF(emit_step(c, p));
    for (size_t i = 0; i < n; i++) TN_RETURN_IF(emit_part(c, &part[i]));
    for (size_t i = 0; i < p->n; i++) TN_RETURN_IF(emit_row(c, p, &p->row[i]));
    return tn_cli_emit(c, json_pack("{s:s, s:f, s:s, s:o}", "name", "memory", "value", (double)p->memory.total, "unit",
                                    "bytes", "peak", tn_number_or_null(p->peak_bytes)));
}

static tn_status emit_rows(tn_cli *c, const char *group, const tn_figure *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:f, s:s}", "group", group, "name", row[i].name, "value",
                                              row[i].value, "unit", row[i].unit)));
    return TN_OK;
}

tn_status tn_report_emit_figures(tn_cli *c, const tn_report *r)
{
    tn_figure row[TN_FIGURES];
    TN_RETURN_IF(emit_rows(c, "memory", row, tn_figures_of_memory(r->profile, r->plan, row)));
    TN_RETURN_IF(emit_rows(c, "ceiling", row, tn_figures_of_ceilings(r->profile, row)));
    TN_RETURN_IF(emit_rows(c, "use", row, tn_figures_of_use(r->profile, row)));
    for (size_t i = 0; i < r->n_figures; i++) {
        const tn_run_figure *x = &r->figure[i];
        TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:s, s:I}", "group", "recorded", "name",
                                              x->what, "key", x->key, "value", x->mean, "least", x->least, "most",
                                              x->most, "unit", x->unit, "lines", (json_int_t)x->lines)));
    }
    return TN_OK;
}

tn_status tn_report_emit_run(tn_cli *c, const tn_run_time *t)
{
    for (int i = 0; t && i < TN_RUN_TIMES; i++)
        TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:o, s:s, s:o, s:I}", "group", "run", "name",
                                              t->part[i].name, "label", tn_run_time_label(i), "value",
                                              tn_number_or_null(t->part[i].seconds), "unit", "s", "share",
                                              tn_number_or_null(t->part[i].share), "steps", (json_int_t)t->step)));
    return TN_OK;
}

tn_status tn_report_emit_advice(tn_cli *c, const tn_advice *advice, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const tn_advice *a = &advice[i];
        char words[TN_ADVICE_WORDS * TN_ADVICE_WORD];
        TN_RETURN_IF(
            tn_cli_emit(c,
                        json_pack("{s:s, s:s, s:s, s:f, s:s, s:f, s:f, s:b, s:o, s:s, s:s}", "group", "advice", "name",
                                  a->about, "set", tn_advice_words(a, words, sizeof words), "value", a->gain.median,
                                  "unit", "times", "low", a->gain.low, "high", a->gain.high, "computed", a->computed,
                                  "more_bytes", tn_number_or_null(a->more_bytes), "why", a->why, "price", a->price)));
    }
    return TN_OK;
}

tn_status tn_report_emit_changes(tn_cli *c, const tn_comparison *x)
{
    tn_profile_change change[TN_PROFILE_CHANGES + 1];
    const size_t n = tn_profile_changes(x->before, x->after, change);
    for (size_t i = 0; i < n; i++)
        TN_RETURN_IF(
            tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:f, s:s, s:f, s:f, s:b}", "group", "change", "name",
                                     change[i].name, "pass", change[i].pass, "value",
                                     change[i].after_ms - change[i].before_ms, "unit", "ms", "before",
                                     change[i].before_ms, "after", change[i].after_ms, "seen", change[i].seen)));
    return TN_OK;
}
