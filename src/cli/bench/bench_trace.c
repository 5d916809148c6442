/* Steps under the device's trace: how much of the time it computed, and in which kernels. */
#include "cli/bench/bench_parts.h"

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "report/trace.h"

enum { TRACED_STEPS = 100, TRACED_KERNELS = 16 };

static tn_status print_trace(tn_cli *c, const char *name, const tn_trace *t, double wall_s)
{
    const double step_ms = 1e3 * wall_s / TRACED_STEPS, kernel = t->kernel_s / wall_s, busy = t->busy_s / wall_s;
    if (c->json)
        return tn_cli_emit(c, json_pack("{s:s, s:s, s:f, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I}",
                                        "name", name, "group", "trace", "value", kernel, "unit",
                                        "kernel time / wall time", "steps", TRACED_STEPS, "wall_s", wall_s, "kernel_s",
                                        t->kernel_s, "busy_s", t->busy_s, "largest_gap_ms", 1e3 * t->gap_s, "step_ms",
                                        step_ms, "kernels", (json_int_t)t->kernels, "copies", (json_int_t)t->copies,
                                        "host_waits", (json_int_t)t->waits, "event_waits", (json_int_t)t->event_waits));
    fprintf(c->out,
            "trace  %-29s %d steps: kernels %.3f s of %.3f s wall, %.1f %% (with copies %.1f %%), %.2f ms a step under "
            "the trace\n",
            name, TRACED_STEPS, t->kernel_s, wall_s, 100 * kernel, 100 * busy, step_ms);
    fprintf(c->out,
            "       %zu kernels and %zu copies a step; longest gap %.3f ms; the host waited for the "
            "device %zu times,\n"
            "       and %zu times for a step queued earlier\n",
            t->kernels / TRACED_STEPS, t->copies / TRACED_STEPS, 1e3 * t->gap_s, t->waits, t->event_waits);
    return TN_OK;
}

/* Where the time went: kernels of one name together. */
static tn_status print_kernels(tn_cli *c, const char *model, const tn_span *spans, size_t n, double kernel_s)
{
    tn_kernel_time rows[TRACED_KERNELS];
    const size_t count = tn_trace_kernels(spans, n, rows, TRACED_KERNELS);
    if (!c->json && count) fprintf(c->out, "\n%-40s %12s %12s %8s\n", "kernel", "runs a step", "ms a step", "share");
    for (size_t i = 0; i < count; i++) {
        const tn_kernel_time *k = &rows[i];
        const double ms = 1e3 * k->seconds / TRACED_STEPS, runs = (double)k->runs / TRACED_STEPS;
        if (c->json)
            TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:f, s:s, s:f, s:f}", "group", "kernel", "model",
                                                  model, "name", k->name, "value", ms, "unit", "ms", "runs", runs,
                                                  "share", k->seconds / kernel_s)));
        else fprintf(c->out, "%-40.40s %12.4g %12.4g %6.1f %%\n", k->name, runs, ms, 100 * k->seconds / kernel_s);
    }
    return TN_OK;
}

tn_status tn_bench_check_trace(const tn_cli *c, tn_device device)
{
    if (device != TN_CPU || !tn_args_flag(&c->args, "trace")) return TN_OK;
    return tn_error(TN_USAGE, "--trace needs a GPU, and the model runs on the CPU: set device=cuda, or use --by-op");
}

tn_status tn_bench_trace(tn_cli *c, const char *name, tn_device device, tn_bench_run *run, void *ctx)
{
    tn_span *spans = NULL;
    size_t n = 0;
    const tn_backend *b = tn_backend_get(device);
    if (!tn_args_flag(&c->args, "trace")) return TN_OK;
    TN_RETURN_IF(b->trace_begin());
    const double start = tn_clock_s();
    const tn_status ran = run(ctx, TRACED_STEPS);
    const double wall_s = tn_clock_s() - start;
    const tn_status ended = b->trace_end(&spans, &n);
    const tn_trace t = tn_trace_sum(spans, n);
    tn_status status = ran != TN_OK ? ran : ended;
    if (status == TN_OK) status = print_trace(c, name, &t, wall_s);
    if (status == TN_OK) status = print_kernels(c, name, spans, n, t.kernel_s);
    tn_free(spans);
    return status;
}
