/* Steps under a trace: how much of the time a GPU, or each thread, computed, and in which kernels or ops. */
#include "cli/bench/bench_parts.h"

#include "base/clock.h"
#include "cli/tracing.h"
#include "report/trace/trace.h"

enum { TRACED_KERNELS = 16 };

static tn_status print_trace(tn_cli *c, const char *name, const tn_trace *t, int64_t steps, double wall_s)
{
    const double step_ms = 1e3 * wall_s / (double)steps, kernel = t->kernel_s / wall_s, busy = t->busy_s / wall_s;
    if (c->json)
        return tn_cli_emit(c,
                           json_pack("{s:s, s:s, s:f, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "name",
                                     name, "group", "trace", "value", kernel, "unit", "kernel time / wall time",
                                     "steps", (json_int_t)steps, "wall_s", wall_s, "kernel_s", t->kernel_s, "busy_s",
                                     t->busy_s, "largest_gap_ms", 1e3 * t->gap_s, "step_ms", step_ms, "kernels",
                                     (json_int_t)t->kernels, "copies", (json_int_t)t->copies, "host_waits",
                                     (json_int_t)t->waits, "event_waits", (json_int_t)t->event_waits));
    fprintf(
        c->out,
        "trace  %-29s %lld steps: kernels %.3f s of %.3f s wall, %.1f %% (with copies %.1f %%), %.2f ms a step under "
        "the trace\n",
        name, (long long)steps, t->kernel_s, wall_s, 100 * kernel, 100 * busy, step_ms);
    fprintf(c->out,
            "       %zu kernels and %zu copies a step; longest gap %.3f ms; the host waited for the "
            "device %zu times,\n"
            "       and %zu times for a step queued earlier\n",
            t->kernels / (size_t)steps, t->copies / (size_t)steps, 1e3 * t->gap_s, t->waits, t->event_waits);
    return TN_OK;
}

/* Where the time went: kernels, or ops, of one name together; share: of the time of all, or of the steps. */
static tn_status print_rows(tn_cli *c, const char *model, const char *group, const tn_kernel_time *rows, size_t n,
                            int64_t steps, double all_s)
{
    if (!c->json && n) fprintf(c->out, "\n%-40s %12s %12s %8s\n", group, "runs a step", "ms a step", "share");
    for (size_t i = 0; i < n; i++) {
        const tn_kernel_time *k = &rows[i];
        const double ms = 1e3 * k->seconds / (double)steps, runs = (double)k->runs / (double)steps;
        if (c->json)
            TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:f, s:s, s:f, s:f}", "group", group, "model", model,
                                                  "name", k->name, "value", ms, "unit", "ms", "runs", runs, "share",
                                                  k->seconds / all_s)));
        else fprintf(c->out, "%-40.40s %12.4g %12.4g %6.1f %%\n", k->name, runs, ms, 100 * k->seconds / all_s);
    }
    return TN_OK;
}

/* The part of the time in which each thread computed. */
static tn_status print_threads(tn_cli *c, const char *name, tn_tracer *t, int64_t steps, double wall_s)
{
    char track[TN_TRACK_NAME];
    if (!c->json)
        fprintf(c->out, "trace  %-29s %lld steps, %.2f ms a step under the trace; computing:", name, (long long)steps,
                1e3 * wall_s / (double)steps);
    for (int i = 0; i <= tn_tracer_workers(t); i++) {
        const double share = tn_trace_computing(t, i) / wall_s;
        tn_tracer_track_name(t, i, track);
        if (c->json)
            TN_RETURN_IF(
                tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:f, s:s, s:I, s:f}", "name", name, "group", "thread",
                                         "thread", track, "value", share, "unit", "computing / wall time", "steps",
                                         (json_int_t)steps, "wall_s", wall_s)));
        else fprintf(c->out, "%s %s %.1f %%", i ? "," : "", track, 100 * share);
    }
    if (!c->json) fputc('\n', c->out);
    return TN_OK;
}

static tn_status print(const tn_tracing *x, const char *name, double wall_s)
{
    tn_kernel_time rows[TRACED_KERNELS];
    size_t n;
    if (!x->device) {
        TN_RETURN_IF(print_threads(x->c, name, x->tracer, x->steps, wall_s));
        n = tn_trace_ops(x->tracer, rows, TRACED_KERNELS);
        return print_rows(x->c, name, "op", rows, n, x->steps, wall_s);
    }
    const tn_trace t = tn_trace_sum(x->spans, x->n_spans);
    TN_RETURN_IF(print_trace(x->c, name, &t, x->steps, wall_s));
    n = tn_trace_kernels(x->spans, x->n_spans, rows, TRACED_KERNELS);
    return print_rows(x->c, name, "kernel", rows, n, x->steps, t.kernel_s);
}

/* Where a device goes on by itself, all steps are run at once: they are queued ahead. */
static tn_status run_steps(const tn_tracing *x, tn_bench_run *run, void *ctx)
{
    for (int64_t i = 0; x->device && i < x->steps; i++) (void)tn_tracer_step(x->tracer);
    if (x->device) return run(ctx, x->steps);
    for (int64_t i = 0; i < x->steps; i++) {
        (void)tn_tracer_step(x->tracer);
        const uint64_t begun = tn_tracer_clock(x->tracer);
        TN_RETURN_IF(run(ctx, 1));
        tn_tracer_add(x->tracer, TN_TRACK_MAIN,
                      &(tn_event){ .begin = begun, .name = "step", .number = i + 1, .kind = TN_TRACED_STEP });
        tn_tracer_count_resident(x->tracer);
    }
    return TN_OK;
}

static tn_status trace(tn_tracing *x, tn_trainer *t, tn_bench_run *run, void *ctx, double *wall_s)
{
    if (t) tn_trainer_trace(t, x->tracer);
    TN_RETURN_IF(tn_tracing_switch(x, TN_TRACER_BEGINS));
    const double start = tn_clock_s();
    const tn_status ran = run_steps(x, run, ctx);
    *wall_s = tn_clock_s() - start;
    if (t) tn_tracer_count(x->tracer, TN_COUNTED_PLANNED, (double)tn_trainer_memory(t).total);
    tn_tracing_sample(x);
    tn_tracer_stop(x->tracer);
    if (t) tn_trainer_trace(t, NULL);
    const tn_status ended = tn_tracing_switch(x, TN_TRACER_ENDS);
    return ran == TN_OK ? ended : ran;
}

tn_status tn_bench_trace(tn_cli *c, const char *name, tn_device device, tn_trainer *t, tn_bench_run *run, void *ctx)
{
    tn_tracing x = { 0 };
    double wall_s = 1;
    if (!tn_args_flag(&c->args, "trace")) return TN_OK;
    TN_RETURN_IF(tn_tracing_open(c, device, t, NULL, &x));
    tn_status s = trace(&x, t, run, ctx, &wall_s);
    if (s == TN_OK) s = print(&x, name, wall_s);
    s = tn_tracing_write(&x, name, s);
    tn_tracing_close(&x);
    return s;
}
