/* tenon report: where the time and memory of a training go, as text, as a page, and as lines of JSON. */
#include "cli/cli.h"
#include "cli/next.h"
#include "cli/table_file.h"
#include "cli/view.h"
#include "report/page/report.h"
#include "train/run/parts.h"
#include "train/run/run_info.h"

#include <math.h>
#include <stdio.h>

typedef struct reporting {
    tn_cli *c;
    tn_arena arena;
    const char *target; /* as it was typed */
    tn_session session;
    tn_profile *profile;
    tn_curves curves;
    tn_report report;
} reporting;

/* A run is reported on with its own settings and data; nothing is written into it. */
static tn_status open_session(reporting *r)
{
    const char *target = r->target;
    const bool run = tn_is_run(target);
    bool changed;
    if (run && !(target = tn_arena_printf(&r->arena, "%s/config.yaml", target))) return TN_MEMORY;
    TN_RETURN_IF(tn_session_open_with(&(tn_session_options){ .user = &r->c->user,
                                                             .target = target,
                                                             .overrides = r->c->args.overrides,
                                                             .n = r->c->args.overrides_n },
                                      &r->session));
    TN_RETURN_IF(tn_parts_load(r->session.settings, r->session.model, tn_trainer_store(r->session.trainer)));
    TN_RETURN_IF(
        tn_parts_hash(r->session.settings, r->session.model, tn_trainer_store(r->session.trainer), false, &changed));
    TN_RETURN_IF(tn_source_make_ready(&r->session.source, &(tn_source_prepare){ .trainer = r->session.trainer,
                                                                                .settings = r->session.settings,
                                                                                .dir = run ? r->target : NULL }));
    if (!run) return TN_OK;
    const tn_status s = tn_curves_read(&r->target, 1, NULL, &r->arena, &r->curves);
    if (s == TN_OK) r->report.curves = &r->curves;
    else fprintf(r->c->err, "note    no learning curve: %s\n", tn_error_text());
    return TN_OK;
}

static tn_status measure(reporting *r)
{
    double seconds = 5;
    TN_RETURN_IF(tn_args_number(&r->c->args, "seconds", 0.001, 3600, &seconds));
    if (!r->c->json) fprintf(r->c->err, "report  measuring for about %.3g s\n", seconds + 1);
    TN_RETURN_IF(tn_profile_take(&r->session, &(tn_profile_options){ .seconds = seconds }, &r->profile));
    const tn_ceilings *m = &r->profile->ceilings;
    r->report.title = r->target;
    r->report.profile = r->profile;
    r->report.plan = tn_trainer_plan(r->session.trainer, true);
    r->report.machine =
        m->gpu
            ? tn_arena_printf(&r->arena, "GPU: %.4g GFLOP/s bf16, %.4g tf32, %.4g fp32, memory %.4g GB/s; measured now",
                              m->bf16_gflops, m->tf32_gflops, m->fma_gflops, m->copy_gbs)
            : tn_arena_printf(
                  &r->arena,
                  "%d thread%s: %.4g GFLOP/s fp32, %.4g bf16, memory %.4g GB/s, cache %.4g GB/s; measured now",
                  m->threads, m->threads > 1 ? "s" : "", m->fma_gflops, m->bf16_gflops, m->copy_gbs, m->cache_gbs);
    return r->report.machine ? TN_OK : TN_MEMORY;
}

/* --- lines of JSON ------------------------------------------------------------------------------------------------------------ */

static tn_status emit_part(tn_cli *c, const tn_profile_part *x)
{
    return tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:f, s:s, s:f, s:f, s:o, s:f, s:f, s:s}", "group", "component",
                                    "name", x->name, "pass", x->pass, "value", x->ms, "unit", "ms", "spread",
                                    x->spread_ms, "share", x->share, "flops", tn_number_or_null(x->flops), "bytes",
                                    x->bytes, "bound_ms", x->bound_ms, "bound", x->bound));
}

static tn_status emit_row(tn_cli *c, const tn_profile *p, const tn_profile_row *x)
{
    const tn_bound_by b = tn_profile_bound(p, x);
    return tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:s, s:f, s:f, s:o, s:f, s:f, s:s}", "group", "op",
                                    "name", x->op, "region", x->region, "component", x->component, "pass",
                                    x->backward ? "backward" : "forward", "value", x->ms, "unit", "ms", "spread",
                                    x->spread_ms, "calls", x->calls, "flops",
                                    tn_number_or_null(x->varies ? NAN : x->flops), "bytes", x->bytes, "bound_ms", b.ms,
                                    "bound", b.what));
}

static tn_status emit(tn_cli *c, const tn_profile *p)
{
    tn_profile_part part[TN_PROFILE_PARTS];
    const size_t n = tn_profile_parts(p, part);
    TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:f, s:s, s:f, s:i, s:f, s:f}", "name", "step", "value", p->step_ms,
                                          "unit", "ms", "spread", p->spread_ms, "steps", p->steps, "timed", p->timed_ms,
                                          "per_second", 1e3 * p->items / p->step_ms)));
    for (size_t i = 0; i < n; i++) TN_RETURN_IF(emit_part(c, &part[i]));
    for (size_t i = 0; i < p->n; i++) TN_RETURN_IF(emit_row(c, p, &p->row[i]));
    return tn_cli_emit(c, json_pack("{s:s, s:f, s:s, s:o}", "name", "memory", "value", (double)p->memory.total, "unit",
                                    "bytes", "peak", tn_number_or_null(p->peak_bytes)));
}

/* --- files -------------------------------------------------------------------------------------------------------------------- */

static tn_status write_file(reporting *r, const char *flag, tn_status (*write)(const tn_report *r, FILE *out))
{
    FILE *f;
    const char *path = tn_args_value(&r->c->args, flag);
    if (!path) return TN_OK;
    TN_RETURN_IF(tn_table_open(path, &f));
    TN_RETURN_IF(tn_table_close(path, f, write(&r->report, f)));
    if (!r->c->json) fprintf(r->c->err, "wrote   %s\n", path);
    return TN_OK;
}

static tn_status report(reporting *r)
{
    TN_RETURN_IF(open_session(r));
    TN_RETURN_IF(measure(r));
    if (r->c->json) TN_RETURN_IF(emit(r->c, r->profile));
    else TN_RETURN_IF(tn_report_text(&r->report, r->c->out));
    TN_RETURN_IF(write_file(r, "md", tn_report_text));
    TN_RETURN_IF(write_file(r, "html", tn_report_page));
    char word[TN_PATH_BYTES];
    if (!tn_args_value(&r->c->args, "html") && !r->c->args.overrides_n)
        tn_next(r->c, "report %s --html=report.html", tn_shell_word(r->target, word, sizeof word));
    return TN_OK;
}

tn_status tn_cmd_report(tn_cli *c)
{
    reporting r = { .c = c };
    TN_RETURN_IF(tn_args_expect(&c->args, 1, 1));
    r.target = tn_args_positional(&c->args, 0);
    const tn_status s = report(&r);
    tn_profile_free(r.profile);
    tn_session_close(&r.session);
    tn_arena_free(&r.arena);
    return s;
}
