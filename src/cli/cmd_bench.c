/* tenon bench: the machine's ceilings, and kernels or a model as a part of them, in one run of at most 45 seconds. */
#include "backend/backend.h"
#include "backend/cpu/gemm.h"
#include "cli/bench_lengths.h"
#include "cli/bench_w2.h"
#include "cli/session.h"
#include "report/bench.h"
#include "base/clock.h"
#include "report/timing.h"
#include "train/feed.h"
#include "train/task_setup.h"
#include "train/train_settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_row(void *ctx, const tn_bench_row *r)
{
    tn_cli *c = ctx;
    if (c->json) {
        json_t *row = json_pack("{s:s, s:s, s:f, s:s, s:f}", "name", r->name, "group", r->group, "value", r->ms, "unit", "ms",
                                "spread", r->spread_ms);
        if (row && r->of_ceiling > 0) json_object_set_new(row, "of_ceiling", json_real(r->of_ceiling));
        if (row && r->gflops > 0) json_object_set_new(row, "gflops", json_real(r->gflops));
        if (row && r->gbs > 0) json_object_set_new(row, "gbs", json_real(r->gbs));
        (void)tn_cli_emit(c, row);
        return;
    }
    char bytes[24] = "", part[16] = "", flops[24] = "";
    if (r->gflops > 0) snprintf(flops, sizeof flops, "%8.1f GFLOP/s", r->gflops);
    if (r->of_ceiling > 0) snprintf(part, sizeof part, "  %3.0f %%", 100 * r->of_ceiling);
    if (r->gbs > 0) snprintf(bytes, sizeof bytes, "%8.1f GB/s", r->gbs);
    fprintf(c->out, "%-6s %-21s %9.3f ms +-%-7.3f %-16s %s%s\n", r->group, r->name, r->ms, r->spread_ms, flops,
            bytes[0] ? bytes : "             ", part);
    fflush(c->out);
}

static tn_status print_ceilings(tn_cli *c, const tn_ceilings *m)
{
    if (!c->json) {
        fprintf(c->out, "machine  %d thread%s: %.1f GFLOP/s fp32, ", m->threads, m->threads > 1 ? "s" : "", m->fma_gflops);
        if (tn_gemm_kernel_name_bf16()) fprintf(c->out, "%.1f bf16, ", m->bf16_gflops);
        else fprintf(c->out, "no bf16 instructions, ");
        fprintf(c->out, "copy %.1f GB/s (measured now; %% is of the one that bounds)\n", m->copy_gbs);
        return TN_OK;
    }
    TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:f, s:s}", "name", "fma_peak", "value", m->fma_gflops, "unit", "GFLOP/s")));
    TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:f, s:s}", "name", "bf16_peak", "value", m->bf16_gflops, "unit", "GFLOP/s")));
    return tn_cli_emit(c, json_pack("{s:s, s:f, s:s}", "name", "copy_bandwidth", "value", m->copy_gbs, "unit", "GB/s"));
}

static tn_status measure_ceilings(tn_cli *c, int threads, tn_ceilings *out)
{
    TN_RETURN_IF(tn_ceilings_measure(threads, out));
    return print_ceilings(c, out);
}

/* The model runs on as many threads as its ceilings are measured with: --threads, or what the settings say. */
static tn_status open_session(tn_cli *c, const char *target, int threads, tn_session *s)
{
    enum { MOST_OVERRIDES = 256 };
    const char *list[MOST_OVERRIDES + 1];
    char text[32];
    size_t n = c->args.overrides_n;
    if (n > MOST_OVERRIDES) return tn_error(TN_USAGE, "too many settings");
    for (size_t i = 0; i < n; i++) list[i] = c->args.overrides[i];
    snprintf(text, sizeof text, "threads=%d", threads);
    if (threads) list[n++] = text;
    return tn_session_open(target, list, n, false, s);
}

/* A spread of tokens: all the same would be too kind to caches and to the embedding's gradient. */
static void fill_tokens(tn_session *s)
{
    const tn_feed f = tn_trainer_feed(s->trainer);
    if (s->samples) tn_feed_first(&f, s->samples);
    else if (s->model->features) tn_feed_made_up(&f, tn_settings_classes(s->settings), (tn_rng){ .seed = 1, .stream = 1 });
    if (s->model->features) return;
    const int64_t known = tn_settings_vocab(s->settings), vocab = known < 251 ? known : 251;
    for (int64_t i = 0; i < s->batch * s->length; i++)
        tn_trainer_tokens(s->trainer)[i] = tn_trainer_labels(s->trainer)[i] = (int32_t)(i * 7919 % vocab);
}

enum { TIMED_STEPS = 5, MOST_ROWS = 512 };

/* "-" where nobody knows how many operations it took. */
static const char *rate_text(double gflops, char buf[24])
{
    snprintf(buf, 24, "%.1f", gflops);
    return isnan(gflops) ? "-" : buf;
}

/* Where the time of a step goes, over a few of them: each region of the model, or each op, forward and backward. */
static tn_status print_times(tn_cli *c, const char *group, const tn_region_time *rows, size_t n)
{
    double total = 0;
    char rate[24];
    for (size_t i = 0; i < n; i++) total += rows[i].forward_ms + rows[i].backward_ms;
    if (!c->json) fprintf(c->out, "\n%-28s %12s %12s %8s %12s\n", group, "forward", "backward", "share", "GFLOP/s");
    for (size_t i = 0; i < n; i++) {
        const double ms = rows[i].forward_ms + rows[i].backward_ms;
        const char *name = rows[i].region[0] ? rows[i].region : "(the rest)";
        if (ms <= 0) continue;
        if (c->json)
            TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:f, s:s, s:f, s:f, s:f}", "group", group, "name", name, "value",
                                                  ms / TIMED_STEPS, "unit", "ms", "forward", rows[i].forward_ms / TIMED_STEPS,
                                                  "backward", rows[i].backward_ms / TIMED_STEPS, "share", ms / total)));
        else
            fprintf(c->out, "%-28s %9.2f ms %9.2f ms %6.1f %% %12s\n", name, rows[i].forward_ms / TIMED_STEPS,
                    rows[i].backward_ms / TIMED_STEPS, 100 * ms / total, rate_text(rows[i].flops * TIMED_STEPS / ms * 1e-6, rate));
    }
    return TN_OK;
}

static tn_status time_parts(tn_cli *c, tn_session *s)
{
    const bool regions = tn_args_flag(&c->args, "regions"), by_op = tn_args_flag(&c->args, "by-op");
    tn_region_time rows[MOST_ROWS];
    tn_op_time ops[MOST_ROWS];
    float loss;
    if (!regions && !by_op) return TN_OK;
    tn_trainer_timers(s->trainer, true);
    for (int i = 0; i < TIMED_STEPS; i++) TN_RETURN_IF(tn_trainer_grad(s->trainer, i, &loss));
    size_t n = tn_trainer_times(s->trainer, rows, MOST_ROWS);
    const size_t n_ops = tn_trainer_op_times(s->trainer, ops, MOST_ROWS);
    tn_trainer_timers(s->trainer, false);
    tn_store_zero_grad(tn_trainer_store(s->trainer));
    if (n > MOST_ROWS) n = MOST_ROWS;
    if (regions) TN_RETURN_IF(print_times(c, "region", rows, n));
    for (size_t i = 0; i < n_ops; i++)
        rows[i] = (tn_region_time){ .region = ops[i].op, .forward_ms = ops[i].forward_ms, .backward_ms = ops[i].backward_ms,
                                    .flops = ops[i].flops };
    return by_op ? print_times(c, "op", rows, n_ops) : TN_OK;
}

static tn_status print_samples(tn_cli *c, const char *target, double rate)
{
    if (c->json)
        return tn_cli_emit(c, json_pack("{s:s, s:s, s:f, s:s}", "name", target, "group", "rate", "value", rate, "unit", "samples/s"));
    fprintf(c->out, "%-6s %-21s %9.0f samples/s\n", "rate", target, rate);
    return TN_OK;
}

/* The session is opened before anything is measured: a wrong key should not have to wait. */
static tn_status bench_model(tn_cli *c, const char *target, tn_bench *b, int threads)
{
    enum { MOST = 32 };
    tn_session s = { 0 };
    double times[MOST];
    size_t runs = 0;
    tn_status st = open_session(c, target, threads, &s);
    const bool gpu = st == TN_OK && tn_trainer_device(s.trainer) != TN_CPU; /* the ceilings are those of the processor */
    if (st == TN_OK && !gpu) st = measure_ceilings(c, tn_trainer_threads(s.trainer), &b->ceilings);
    if (st == TN_OK) fill_tokens(&s);
    const double start = tn_clock_s();
    while (st == TN_OK && runs < MOST && (runs < 4 || tn_clock_s() - start < 20)) {
        float loss;
        tn_applied a;
        const double t = tn_clock_s();
        st = tn_trainer_grad(s.trainer, (int64_t)runs, &loss);
        if (st == TN_OK) st = tn_trainer_apply(s.trainer, (int64_t)runs, 1, loss, &a);
        times[runs++] = tn_clock_s() - t;
    }
    if (st == TN_OK) {
        tn_bench_row r = { .group = "model", .name = target };
        r.ms = 1e3 * tn_median(times + 1, runs - 1, &r.spread_ms); /* the first touches the memory */
        r.spread_ms *= 1e3;
        const double flops = tn_trainer_flops(s.trainer);
        const bool bf16 = strcmp(tn_settings_text(s.settings, "compute"), "bf16") == 0;
        if (!isnan(flops)) r.gflops = flops / r.ms * 1e-6;
        if (!gpu) r.of_ceiling = r.gflops / (bf16 ? b->ceilings.bf16_gflops : b->ceilings.fma_gflops);
        print_row(c, &r);
        if (s.model->features) st = print_samples(c, target, (double)s.batch / r.ms * 1e3);
        if (st == TN_OK) st = time_parts(c, &s);
    }
    tn_session_close(&s);
    return st;
}

static tn_status read_dim(const char *text, int64_t *dim)
{
    char *end;
    const long v = strtol(text, &end, 10);
    if (end == text || *end || v < 1 || v > 4096) return tn_error(TN_USAGE, "dim=%.40s: relax takes a width from 1 to 4096", text);
    *dim = v;
    return TN_OK;
}

/* dim=N, device=cuda and compute=bf16 of `tenon bench relax`. */
static tn_status read_relax(const tn_cli *c, tn_bench *b)
{
    for (size_t i = 0; i < c->args.overrides_n; i++) {
        const char *o = c->args.overrides[i];
        if (strncmp(o, "dim=", 4) == 0) TN_RETURN_IF(read_dim(o + 4, &b->dim));
        else if (strcmp(o, "device=cuda") == 0) b->device = TN_CUDA;
        else if (strcmp(o, "compute=bf16") == 0) b->bf16 = true;
        else return tn_error(TN_USAGE, "%s: relax takes dim=N, device=cuda and compute=bf16", o);
    }
    return b->device == TN_CPU || tn_backend_get(b->device) ? TN_OK : TN_USAGE;
}

tn_status tn_cmd_bench(tn_cli *c)
{
    const char *what = tn_args_positional(&c->args, 0), *threads = tn_args_value(&c->args, "threads");
    tn_bench b = { .budget_s = 0.4, .ctx = c, .row = print_row };
    TN_RETURN_IF(tn_args_expect(&c->args, 0, 1));
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    if (threads) n = strtol(threads, NULL, 10);
    if (n < 1 || n > 256) return tn_error(TN_USAGE, "--threads takes a number from 1 to 256");
    if (tn_args_value(&c->args, "lengths")) {
        if (!what) return tn_error(TN_USAGE, "--lengths goes with a model, `tenon bench MODEL --lengths=2048,131072`");
        return tn_bench_lengths(c, what, tn_args_value(&c->args, "lengths"));
    }
    if (what && strcmp(what, "w2") == 0) return tn_bench_w2(c, threads ? (int)n : 1);
    if (tn_args_value(&c->args, "only")) return tn_error(TN_USAGE, "--only goes with w2, `tenon bench w2 --only=full,early`");
    const bool gemm = !what || strcmp(what, "gemm") == 0, ops = !what || strcmp(what, "ops") == 0;
    const bool gru = !what || strcmp(what, "gru") == 0, relax = what && strcmp(what, "relax") == 0;
    if (!gemm && !ops && !gru && !relax) return bench_model(c, what, &b, threads ? (int)n : 0);
    if (gru && what && c->args.overrides_n == 1 && strcmp(c->args.overrides[0], "compute=bf16") == 0) b.bf16 = true;
    else if (relax) TN_RETURN_IF(read_relax(c, &b));
    else if (c->args.overrides_n) return tn_error(TN_USAGE, "%s: settings go with a model, `tenon bench MODEL key=value`", c->args.overrides[0]);
    if (b.device == TN_CPU) TN_RETURN_IF(measure_ceilings(c, (int)n, &b.ceilings)); /* those of the processor */
    else b.ceilings.threads = 1;
    if (gemm) TN_RETURN_IF(tn_bench_gemm(&b));
    if (ops) TN_RETURN_IF(tn_bench_ops(&b));
    if (relax) TN_RETURN_IF(tn_bench_relax(&b));
    return gru ? tn_bench_gru(&b) : TN_OK;
}
