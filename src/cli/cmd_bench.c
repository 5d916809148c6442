/* tenon bench: the machine's ceilings, and kernels or a model as a part of them, in one run of at most 45 seconds. */
#include "cli/session.h"
#include "report/bench.h"
#include "base/clock.h"
#include "report/timing.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_row(void *ctx, const tn_bench_row *r)
{
    tn_cli *c = ctx;
    if (c->json) {
        json_t *row = json_pack("{s:s, s:s, s:f, s:s, s:f, s:f}", "name", r->name, "group", r->group, "value", r->ms, "unit", "ms",
                                "spread", r->spread_ms, "of_ceiling", r->of_ceiling);
        if (row && r->gflops > 0) json_object_set_new(row, "gflops", json_real(r->gflops));
        if (row && r->gbs > 0) json_object_set_new(row, "gbs", json_real(r->gbs));
        (void)tn_cli_emit(c, row);
        return;
    }
    char bytes[24] = "";
    if (r->gbs > 0) snprintf(bytes, sizeof bytes, "%8.1f GB/s", r->gbs);
    fprintf(c->out, "%-6s %-18s %9.3f ms +-%-7.3f %8.1f GFLOP/s %s  %3.0f %%\n", r->group, r->name, r->ms, r->spread_ms, r->gflops,
            bytes[0] ? bytes : "             ", 100 * r->of_ceiling);
    fflush(c->out);
}

static tn_status print_ceilings(tn_cli *c, const tn_ceilings *m)
{
    if (!c->json) {
        fprintf(c->out, "machine  %d thread%s: %.1f GFLOP/s fp32, copy %.1f GB/s (both measured now; %% is of the one that bounds)\n",
                m->threads, m->threads > 1 ? "s" : "", m->fma_gflops, m->copy_gbs);
        return TN_OK;
    }
    TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:f, s:s}", "name", "fma_peak", "value", m->fma_gflops, "unit", "GFLOP/s")));
    return tn_cli_emit(c, json_pack("{s:s, s:f, s:s}", "name", "copy_bandwidth", "value", m->copy_gbs, "unit", "GB/s"));
}

static tn_status measure_ceilings(tn_cli *c, int threads, tn_ceilings *out)
{
    TN_RETURN_IF(tn_ceilings_measure(threads, out));
    return print_ceilings(c, out);
}

/* The session is opened before anything is measured: a wrong key should not have to wait. */
static tn_status bench_model(tn_cli *c, const char *target, tn_bench *b, int threads)
{
    enum { MOST = 32 };
    tn_session s = { 0 };
    double times[MOST];
    size_t runs = 0;
    tn_status st = tn_session_open(target, c->args.overrides, c->args.overrides_n, false, &s);
    if (st == TN_OK) st = measure_ceilings(c, threads, &b->ceilings);
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
        r.gflops = tn_plan_flops(tn_trainer_plan(s.trainer, true)) / r.ms * 1e-6;
        r.of_ceiling = r.gflops / b->ceilings.fma_gflops;
        print_row(c, &r);
    }
    tn_session_close(&s);
    return st;
}

tn_status tn_cmd_bench(tn_cli *c)
{
    const char *what = tn_args_positional(&c->args, 0), *threads = tn_args_value(&c->args, "threads");
    tn_bench b = { .budget_s = 0.4, .ctx = c, .row = print_row };
    TN_RETURN_IF(tn_args_expect(&c->args, 0, 1));
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    if (threads) n = strtol(threads, NULL, 10);
    if (n < 1 || n > 256) return tn_error(TN_USAGE, "--threads takes a number from 1 to 256");
    const bool gemm = !what || strcmp(what, "gemm") == 0, ops = !what || strcmp(what, "ops") == 0, gru = !what || strcmp(what, "gru") == 0;
    if (!gemm && !ops && !gru) return bench_model(c, what, &b, (int)n);
    if (c->args.overrides_n) return tn_error(TN_USAGE, "%s: settings go with a model, `tenon bench MODEL key=value`", c->args.overrides[0]);
    TN_RETURN_IF(measure_ceilings(c, (int)n, &b.ceilings));
    if (gemm) TN_RETURN_IF(tn_bench_gemm(&b));
    if (ops) TN_RETURN_IF(tn_bench_ops(&b));
    return gru ? tn_bench_gru(&b) : TN_OK;
}
