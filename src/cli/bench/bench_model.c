/* A model's training step. The session is opened before anything is measured: a wrong key should not have to wait. */
#include "cli/bench/bench_print.h"

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "report/bench/timing.h"
#include "report/trace.h"
#include "train/trainer/inputs.h"
#include "train/run/session.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TIMED_STEPS = 5,
    TRACED_STEPS = 100,
    TRACED_KERNELS = 16,
    MOST_ROWS = 512,
    MOST_OVERRIDES = 256,
    MOST_STEPS = 32
};

/* The model runs on as many threads as its ceilings are measured with: --threads, or what the settings say. `more`: settings
 * that count beside the command line's, NULL-terminated. */
static tn_status open_session(tn_cli *c, const char *target, int threads, const char *const *more, tn_session *s)
{
    const char *list[MOST_OVERRIDES + 1];
    char text[32];
    size_t n = 0;
    for (; *more; more++) list[n++] = *more;
    if (n + c->args.overrides_n > MOST_OVERRIDES) return tn_error(TN_USAGE, "too many settings");
    for (size_t i = 0; i < c->args.overrides_n; i++) list[n++] = c->args.overrides[i];
    snprintf(text, sizeof text, "threads=%d", threads);
    if (threads) list[n++] = text;
    return tn_session_open_with(&(tn_session_options){ .user = &c->user, .target = target, .overrides = list, .n = n },
                                s);
}

/* A spread of tokens: all the same would be too kind to caches and to the embedding's gradient. */
static void fill_tokens(tn_session *s)
{
    const tn_feed f = tn_trainer_feed(s->trainer);
    if (s->source.example) s->source.example(s->source.ctx, &f);
    else tn_feed_random(&f, (tn_rng){ .seed = 1, .stream = 1 });
}

/* --- where the time goes ---------------------------------------------------------------------------------------------------- */

/* A part of the model: a region, or all nodes of an op. bytes 0: not known. */
typedef struct part {
    const char *name;
    double forward_ms, backward_ms, flops, bytes;
} part;

static tn_status print_part(tn_cli *c, const char *group, const part *p, double total, const tn_ceilings *m,
                            double peak)
{
    const double ms = (p->forward_ms + p->backward_ms) / TIMED_STEPS, gflops = p->flops / ms * 1e-6,
                 gbs = p->bytes / ms * 1e-6;
    const double of = m->gpu ? fmax(isnan(gflops) ? 0 : gflops / peak, gbs / m->copy_gbs) : 0;
    char rate[24], bytes[48] = "";
    if (c->json) {
        json_t *row = json_pack("{s:s, s:s, s:f, s:s, s:f, s:f, s:f}", "group", group, "name", p->name, "value", ms,
                                "unit", "ms", "forward", p->forward_ms / TIMED_STEPS, "backward",
                                p->backward_ms / TIMED_STEPS, "share", ms * TIMED_STEPS / total);
        if (row && !isnan(gflops)) json_object_set_new(row, "gflops", json_real(gflops));
        if (row && p->bytes > 0) json_object_set_new(row, "gbs", json_real(gbs));
        if (row && of > 0 && p->bytes > 0) json_object_set_new(row, "of_ceiling", json_real(of));
        return tn_cli_emit(c, row);
    }
    if (m->gpu && p->bytes > 0) snprintf(bytes, sizeof bytes, " %8.0f GB/s  %3.0f %%", gbs, 100 * of);
    fprintf(c->out, "%-28s %9.2f ms %9.2f ms %6.1f %% %16s%s\n", p->name, p->forward_ms / TIMED_STEPS,
            p->backward_ms / TIMED_STEPS, 100 * ms * TIMED_STEPS / total, tn_bench_rate_text(gflops, rate), bytes);
    return TN_OK;
}

/* Over a few steps: each region of the model, or each op, forward and backward. */
static tn_status print_parts(tn_cli *c, const char *group, const part *rows, size_t n, const tn_ceilings *m,
                             double peak)
{
    double total = 0;
    for (size_t i = 0; i < n; i++) total += rows[i].forward_ms + rows[i].backward_ms;
    if (!c->json) fprintf(c->out, "\n%-28s %12s %12s %8s %16s\n", group, "forward", "backward", "share", "rate");
    for (size_t i = 0; i < n; i++)
        if (rows[i].forward_ms + rows[i].backward_ms > 0) TN_RETURN_IF(print_part(c, group, &rows[i], total, m, peak));
    return TN_OK;
}

static tn_status time_parts(tn_cli *c, tn_session *s, const tn_ceilings *m, double peak)
{
    const bool regions = tn_args_flag(&c->args, "regions"), by_op = tn_args_flag(&c->args, "by-op");
    tn_region_time region[MOST_ROWS];
    tn_op_time op[MOST_ROWS];
    part rows[MOST_ROWS];
    float loss;
    if (!regions && !by_op) return TN_OK;
    tn_trainer_timers(s->trainer, true);
    for (int i = 0; i < TIMED_STEPS; i++) TN_RETURN_IF(tn_trainer_grad(s->trainer, i, &loss));
    size_t n = tn_trainer_times(s->trainer, region, MOST_ROWS);
    const size_t n_ops = tn_trainer_op_times(s->trainer, op, MOST_ROWS);
    tn_trainer_timers(s->trainer, false);
    tn_store_zero_grad(tn_trainer_store(s->trainer));
    if (n > MOST_ROWS) n = MOST_ROWS;
    for (size_t i = 0; i < n; i++)
        rows[i] = (part){ region[i].region[0] ? region[i].region : "(other)", region[i].forward_ms,
                          region[i].backward_ms, region[i].flops, 0 };
    if (regions) TN_RETURN_IF(print_parts(c, "region", rows, n, m, peak));
    for (size_t i = 0; i < n_ops; i++)
        rows[i] = (part){ op[i].op, op[i].forward_ms, op[i].backward_ms, op[i].flops, op[i].bytes };
    return by_op ? print_parts(c, "op", rows, n_ops, m, peak) : TN_OK;
}

/* --- steps ----------------------------------------------------------------------------------------------------------------- */

static tn_status print_rate(tn_cli *c, const char *name, double rate, const char *unit)
{
    if (c->json)
        return tn_cli_emit(c, json_pack("{s:s, s:s, s:f, s:s}", "name", name, "group", "rate", "value", rate, "unit",
                                        unit));
    fprintf(c->out, "%-6s %-29s %9.0f %s\n", "rate", name, rate, unit);
    return TN_OK;
}

/* Bytes of the GPU's memory that are taken, by whomever; 0: there is none. */
static size_t gpu_taken(void)
{
    size_t left, all;
    const tn_backend *gpu = tn_backend_get(TN_CUDA);
    return gpu && gpu->memory(&left, &all) == TN_OK ? all - left : 0;
}

/* The plan, and what the run took beyond `idle`: the libraries' own scratch memory comes on top. */
static tn_status print_memory(tn_cli *c, const char *name, const tn_session *s, size_t idle)
{
    const double plan = (double)tn_trainer_memory(s->trainer).total, took = (double)gpu_taken() - (double)idle;
    if (c->json)
        return tn_cli_emit(c, json_pack("{s:s, s:s, s:f, s:s, s:f}", "name", name, "group", "memory", "value", plan,
                                        "unit", "bytes", "measured", took));
    fprintf(c->out, "%-6s %-29s %9.2f GB planned, %.2f GB used\n", "memory", name, plan / 1e9, took / 1e9);
    return TN_OK;
}

static tn_status queue_step(tn_session *s, int64_t step)
{
    const int64_t batches = tn_settings_int(s->settings, "train.accumulate");
    for (int64_t i = 0; i < batches; i++) TN_RETURN_IF(tn_trainer_queue_grad(s->trainer, step * batches + i, 1, false));
    return tn_trainer_queue_apply(s->trainer, step);
}

/* Queued ahead as in training: a step's time is that from the end of the one before it to its own. Those behind the last one
 * that counts are finished too. */
static tn_status time_steps(tn_session *s, double seconds, double *times, size_t *runs)
{
    tn_trainer *t = s->trainer;
    const double start = tn_clock_s();
    double last = start;
    tn_step_result x;
    *runs = 0;
    for (int64_t queued = 0; *runs < MOST_STEPS && (*runs < 4 || tn_clock_s() - start < seconds); queued++) {
        TN_RETURN_IF(queue_step(s, queued));
        if (tn_trainer_queued(t) < tn_trainer_queue_depth(t)) continue;
        TN_RETURN_IF(tn_trainer_collect(t, &x));
        const double now = tn_clock_s();
        times[(*runs)++] = now - last;
        last = now;
    }
    while (tn_trainer_queued(t)) TN_RETURN_IF(tn_trainer_collect(t, &x));
    return TN_OK;
}

/* --- traces ---------------------------------------------------------------------------------------------------------------- */

static tn_status traced_steps(tn_session *s, double *wall_s)
{
    tn_step_result x;
    const double start = tn_clock_s();
    for (int64_t i = 0; i < TRACED_STEPS; i++) {
        TN_RETURN_IF(queue_step(s, i));
        if (tn_trainer_queued(s->trainer) == tn_trainer_queue_depth(s->trainer))
            TN_RETURN_IF(tn_trainer_collect(s->trainer, &x));
    }
    while (tn_trainer_queued(s->trainer)) TN_RETURN_IF(tn_trainer_collect(s->trainer, &x));
    *wall_s = tn_clock_s() - start;
    return TN_OK;
}

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

/* After the steps that were timed: everything is recorded by then. */
static tn_status trace_steps(tn_cli *c, const char *name, tn_session *s)
{
    tn_span *spans = NULL;
    size_t n = 0;
    double wall_s = 0;
    const tn_backend *b = tn_backend_get(tn_trainer_device(s->trainer));
    if (!tn_args_flag(&c->args, "trace")) return TN_OK;
    TN_RETURN_IF(b->trace_begin());
    const tn_status stepped = traced_steps(s, &wall_s), ended = b->trace_end(&spans, &n);
    const tn_trace t = tn_trace_sum(spans, n);
    tn_status status = stepped != TN_OK ? stepped : ended;
    if (status == TN_OK) status = print_trace(c, name, &t, wall_s);
    if (status == TN_OK) status = print_kernels(c, name, spans, n, t.kernel_s);
    tn_free(spans);
    return status;
}

/* m: filled by the first row; idle: of the GPU's memory before the session. */
static tn_status bench_session(tn_cli *c, const char *name, tn_session *s, tn_ceilings *m, size_t idle)
{
    double times[MOST_STEPS], seconds = 20;
    size_t runs;
    const bool gpu = tn_trainer_device(s->trainer) != TN_CPU;
    TN_RETURN_IF(tn_args_number(&c->args, "seconds", 0.001, 3600, &seconds));
    if (!gpu && tn_args_flag(&c->args, "trace"))
        return tn_error(TN_USAGE,
                        "--trace needs a GPU, and the model runs on the CPU: set device=cuda, or use --by-op");
    if (!m->threads)
        TN_RETURN_IF(tn_bench_ceilings(c, tn_trainer_device(s->trainer), tn_trainer_threads(s->trainer), m));
    fill_tokens(s);
    TN_RETURN_IF(time_steps(s, seconds, times, &runs));
    tn_bench_row r = { .group = "model", .name = name };
    r.ms = 1e3 * tn_median(times + 1, runs - 1, &r.spread_ms); /* the first touches the memory */
    r.spread_ms *= 1e3;
    const double batches = (double)tn_settings_int(s->settings, "train.accumulate");
    const double flops = batches * tn_trainer_flops(s->trainer),
                 peak = tn_ceilings_of_compute(m, tn_settings_text(s->settings, "compute"));
    if (!isnan(flops)) r.gflops = flops / r.ms * 1e-6;
    r.of_ceiling = r.gflops / peak;
    tn_bench_print_row(c, &r);
    if (!tn_model_reads_sequences(s->model))
        TN_RETURN_IF(print_rate(c, name, batches * (double)s->batch / r.ms * 1e3, "samples/s"));
    else if (gpu) TN_RETURN_IF(print_rate(c, name, batches * (double)(s->batch * s->length) / r.ms * 1e3, "tokens/s"));
    if (gpu && idle) TN_RETURN_IF(print_memory(c, name, s, idle));
    TN_RETURN_IF(trace_steps(c, name, s));
    return time_parts(c, s, m, peak);
}

/* The size the first TEN was hoped to train at: a row of its own beside whatever was asked for. */
static tn_status bench_prototype(tn_cli *c, int threads, tn_ceilings *m)
{
    static const char *const sizes[] = { "preset=ten_b",      "vocab=50257",    "dim=1024",    "layers=8", "k=128",
                                         "train.context=512", "train.batch=16", "device=cuda", NULL };
    tn_session s = { 0 };
    tn_cli plain = *c;
    plain.args.overrides_n = 0;
    TN_RETURN_IF(open_session(&plain, "ten", threads, sizes, &s));
    const tn_status st = bench_session(&plain, "ten_b d1024 L8 K128 16x512", &s, m, 0);
    tn_session_close(&s);
    return st;
}

tn_status tn_bench_model(tn_cli *c)
{
    static const char *const none[] = { NULL };
    const char *target = tn_args_positional(&c->args, 0), *lengths = tn_args_value(&c->args, "lengths");
    int threads;
    TN_RETURN_IF(tn_args_expect(&c->args, 1, 1));
    TN_RETURN_IF(tn_bench_threads(c, &threads));
    if (lengths) return tn_bench_lengths(c, target, lengths);
    tn_session s = { 0 };
    tn_ceilings m = { 0 };
    const size_t idle = gpu_taken();
    TN_RETURN_IF(open_session(c, target, threads, none, &s));
    tn_status st = bench_session(c, target, &s, &m, idle);
    const bool prototype = st == TN_OK && m.gpu && strcmp(target, "ten") == 0;
    tn_session_close(&s);
    return prototype ? bench_prototype(c, threads, &m) : st;
}
