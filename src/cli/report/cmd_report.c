/* tenon report: where the time and memory of a training go, as text, as a page, and as lines of JSON; of two configurations, what
 * changed between them. Runs that cannot be measured here say what they recorded. */
#include "base/text.h"
#include "cli/cli.h"
#include "cli/next.h"
#include "cli/report/report_lines.h"
#include "cli/report/report_recorded.h"
#include "cli/table_file.h"
#include "cli/target.h"
#include "cli/tracing.h"
#include "cli/view.h"
#include "train/run/parts.h"
#include "train/run/run_info.h"

#include <math.h>
#include <stdio.h>

enum { SIDES = 2 };

typedef struct side {
    const char *word; /* as it was typed */
    tn_target target;
    tn_session session;
    tn_profile *profile[TN_PROFILE_ROUNDS]; /* the second only where there are two sides */
} side;

typedef struct reporting {
    tn_cli *c;
    tn_arena arena;
    side side[SIDES];
    size_t n;
    double seconds; /* of the measurement */
    tn_curves curves;
    tn_run_time time;
    tn_run_figure figure[TN_RUN_FIGURES];
    tn_comparison against;
    tn_advice advice[TN_ADVICE_MOST];
    tn_report report;
    tn_tracing tracing;
} reporting;

/* A run is reported on with its own settings and data; nothing is written into it. */
static tn_status open_side(reporting *r, side *x)
{
    TN_RETURN_IF(
        tn_target_read(&r->arena, &r->c->user, x->word, r->c->args.overrides, r->c->args.overrides_n, &x->target));
    const char *target = x->target.target;
    const bool run = tn_is_run(target);
    bool changed;
    if (run && !(target = tn_arena_printf(&r->arena, "%s/config.yaml", target))) return TN_MEMORY;
    TN_RETURN_IF(tn_session_open_with(&(tn_session_options){ .user = &r->c->user,
                                                             .target = target,
                                                             .overrides = x->target.overrides,
                                                             .n = x->target.n },
                                      &x->session));
    tn_store *store = tn_trainer_store(x->session.trainer);
    TN_RETURN_IF(tn_parts_load(x->session.settings, x->session.model, store));
    TN_RETURN_IF(tn_parts_hash(x->session.settings, x->session.model, store, false, &changed));
    return tn_source_make_ready(&x->session.source, &(tn_source_prepare){ .trainer = x->session.trainer,
                                                                          .settings = x->session.settings,
                                                                          .dir = run ? x->target.target : NULL });
}

/* A run without a checkpoint has none. */
static void read_time(reporting *r)
{
    const char *target = r->side[0].target.target;
    if (r->n > 1 || !tn_is_run(target)) return;
    if (tn_run_time_read(target, &r->time) == TN_OK) r->report.run = &r->time;
    r->report.n_figures = tn_run_figures_read(target, r->figure);
    r->report.figure = r->figure;
}

/* A step for the page's timeline, behind all that is measured. */
static tn_status record(reporting *r)
{
    tn_profile *p = r->side[0].profile[0];
    if (r->n > 1 || p->replayed || !tn_args_value(&r->c->args, "html")) return TN_OK;
    return tn_record_step(&r->side[0].session, &p->recorded);
}

/* Learning curves of those that are runs. */
static void read_curves(reporting *r)
{
    const char *run[SIDES];
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        if (tn_is_run(r->side[i].target.target)) run[n++] = r->side[i].target.target;
    if (!n) return;
    bool none = true;
    if (tn_curves_read(run, n, NULL, &r->arena, &r->curves) == TN_OK)
        r->report.missing = tn_curves_trouble(&r->curves, &r->arena, &none);
    else r->report.missing = tn_arena_printf(&r->arena, "There is no learning curve: %s", tn_error_text());
    if (!none) r->report.curves = &r->curves;
}

static const char *machine_in_words(tn_arena *a, const tn_ceilings *m)
{
    if (m->gpu)
        return tn_arena_printf(a, "GPU: %s GFLOP/s bf16, %s tf32, %s fp32, memory %s GB/s; measured now",
                               TN_NUMBER(m->bf16_gflops), TN_NUMBER(m->tf32_gflops), TN_NUMBER(m->fma_gflops),
                               TN_NUMBER(m->memory_gbs));
    return tn_arena_printf(
        a, "%d thread%s: %s GFLOP/s fp32, %s bf16; memory %s GB/s, last cache %s, own caches %s; measured now",
        m->threads, m->threads > 1 ? "s" : "", TN_NUMBER(m->fma_gflops), TN_NUMBER(m->bf16_gflops),
        TN_NUMBER(m->memory_gbs), TN_NUMBER(m->shared_gbs), TN_NUMBER(m->cache_gbs));
}

/* Seconds for advice: twice the time of the profile, ten at most unless steps are long. */
static double advice_s(const reporting *r)
{
    return r->n > 1 || tn_args_flag(&r->c->args, "no-advice") ? 0 : fmin(2 * r->seconds, 10);
}

/* Two sides in turn, so that both see the same machine. */
static tn_status measure(reporting *r)
{
    const int rounds = r->n > 1 ? TN_PROFILE_ROUNDS : 1;
    const double about = (double)r->n * (r->seconds + 1) + advice_s(r);
    if (!r->c->json)
        fprintf(r->c->err, "report  measuring for about %.3g s, longer where a step takes seconds\n", about);
    for (int k = 0; k < rounds; k++)
        for (size_t i = 0; i < r->n; i++) {
            const bool same = r->side[0].profile[0] && tn_trainer_device(r->side[0].session.trainer) ==
                                                           tn_trainer_device(r->side[i].session.trainer);
            const tn_profile_options o = { .seconds = r->seconds / rounds,
                                           .ceilings = same ? &r->side[0].profile[0]->ceilings : NULL };
            TN_RETURN_IF(tn_profile_take(&r->side[i].session, &o, &r->side[i].profile[k]));
        }
    return TN_OK;
}

/* A machine without room for a second session beside gets none. */
static tn_status advise(reporting *r)
{
    const side *x = &r->side[0];
    if (!(advice_s(r) > 0)) return TN_OK;
    const tn_advice_options o = { .user = &r->c->user,
                                  .dir = tn_is_run(x->target.target) ? x->target.target : NULL,
                                  .seconds = advice_s(r) };
    const tn_status s =
        tn_advice_find(&x->session, x->profile[0], &o, r->advice, &r->report.n_advice, &r->report.untried);
    r->report.advised = s == TN_OK;
    r->report.advice = r->advice;
    if (s != TN_MEMORY) return s;
    fprintf(r->c->err, "note    no advice: not enough memory for a second configuration; use a smaller train.batch\n");
    return TN_OK;
}

static tn_status compose(reporting *r)
{
    const side *first = &r->side[0], *second = &r->side[1];
    r->report.title = first->word;
    r->report.profile = first->profile[0];
    r->report.plan = tn_trainer_plan(first->session.trainer, true);
    r->report.machine = machine_in_words(&r->arena, &first->profile[0]->ceilings);
    if (r->n > 1) {
        for (int k = 0; k < TN_PROFILE_ROUNDS; k++)
            r->against.before[k] = first->profile[k], r->against.after[k] = second->profile[k];
        r->against.name[0] = first->word, r->against.name[1] = second->word;
        r->report.against = &r->against;
        r->report.title = tn_arena_printf(&r->arena, "%s, then %s", first->word, second->word);
    }
    return r->report.machine && r->report.title ? TN_OK : TN_MEMORY;
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

/* Behind all that is measured: a trace costs a little. */
static tn_status trace(reporting *r)
{
    tn_session *s = &r->side[0].session;
    TN_RETURN_IF(tn_tracing_open(r->c, tn_trainer_device(s->trainer), s->trainer, s->settings, &r->tracing));
    if (!r->tracing.tracer) return TN_OK;
    tn_tracer_restart(r->tracing.tracer, 0);
    TN_RETURN_IF(tn_tracing_switch(&r->tracing, TN_TRACER_BEGINS));
    const tn_status ran = tn_trace_session(s, r->tracing.tracer, r->tracing.steps),
                    ended = tn_tracing_switch(&r->tracing, TN_TRACER_ENDS);
    return tn_tracing_write(&r->tracing, r->side[0].word, ran == TN_OK ? ended : ran);
}

static tn_status emit(const reporting *r)
{
    if (r->n > 1) return tn_report_emit_changes(r->c, &r->against);
    TN_RETURN_IF(tn_report_emit(r->c, r->side[0].profile[0]));
    TN_RETURN_IF(tn_report_emit_figures(r->c, &r->report));
    TN_RETURN_IF(tn_report_emit_run(r->c, r->report.run));
    return tn_report_emit_advice(r->c, r->advice, r->report.n_advice);
}

static tn_status open_and_measure(reporting *r)
{
    for (size_t i = 0; i < r->n; i++) TN_RETURN_IF(open_side(r, &r->side[i]));
    return measure(r);
}

static void close_sides(reporting *r)
{
    for (size_t i = 0; i < r->n; i++) {
        for (int k = 0; k < TN_PROFILE_ROUNDS; k++) tn_profile_free(r->side[i].profile[k]);
        tn_session_close(&r->side[i].session);
        r->side[i] = (side){ .word = r->side[i].word };
    }
}

static tn_status recorded(reporting *r, const char *why)
{
    const char *runs[SIDES];
    for (size_t i = 0; i < r->n; i++) runs[i] = r->side[i].word;
    return tn_report_recorded(r->c, runs, r->n, why);
}

/* Of runs alone, as they are: who says settings or wants a trace is told what is wrong. */
static bool falls_back(const reporting *r, tn_status s)
{
    bool runs = s == TN_USAGE || s == TN_BAD_FILE || s == TN_MEMORY || s == TN_DISK || s == TN_DIVERGED;
    for (size_t i = 0; i < r->n; i++) runs = runs && tn_is_run(r->side[i].word);
    return runs && !r->c->args.overrides_n && !tn_args_flag(&r->c->args, "trace");
}

static tn_status fall_back(reporting *r)
{
    char why[1024];
    snprintf(why, sizeof why, "%s", tn_error_text());
    close_sides(r);
    fprintf(r->c->err, "note    nothing could be measured (%s): this is what was recorded during training\n", why);
    return recorded(r, why);
}

static tn_status report(reporting *r)
{
    const tn_status s = open_and_measure(r);
    if (falls_back(r, s)) return fall_back(r);
    TN_RETURN_IF(s);
    TN_RETURN_IF(advise(r));
    TN_RETURN_IF(record(r));
    read_time(r);
    read_curves(r); /* behind what measures the memory */
    TN_RETURN_IF(compose(r));
    if (r->c->json) TN_RETURN_IF(emit(r));
    else TN_RETURN_IF(tn_report_text(&r->report, r->c->out));
    TN_RETURN_IF(write_file(r, "md", tn_report_text));
    TN_RETURN_IF(write_file(r, "html", tn_report_page));
    TN_RETURN_IF(trace(r));
    char word[TN_PATH_BYTES];
    if (!tn_args_value(&r->c->args, "html") && !r->c->args.overrides_n && r->n == 1)
        tn_next(r->c, "report %s --html=report.html", tn_shell_word(r->side[0].word, word, sizeof word));
    return TN_OK;
}

tn_status tn_cmd_report(tn_cli *c)
{
    reporting r = { .c = c, .seconds = 5 };
    TN_RETURN_IF(tn_args_expect(&c->args, 1, SIDES));
    TN_RETURN_IF(tn_args_number(&c->args, "seconds", 0.001, 3600, &r.seconds));
    for (r.n = 0; r.n < SIDES && tn_args_positional(&c->args, r.n); r.n++)
        r.side[r.n].word = tn_args_positional(&c->args, r.n);
    const bool reads = tn_args_flag(&c->args, "recorded");
    if (r.n > 1 && tn_args_flag(&c->args, "trace"))
        return tn_error(TN_USAGE, "--trace is of one configuration: leave out the second, or --trace");
    if (reads && tn_args_flag(&c->args, "trace"))
        return tn_error(TN_USAGE, "--recorded runs no step that could be traced: leave out --trace, or --recorded");
    const tn_status s = reads ? recorded(&r, NULL) : report(&r);
    close_sides(&r);
    tn_tracing_close(&r.tracing);
    tn_arena_free(&r.arena);
    return s;
}
