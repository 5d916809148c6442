/* Where the time of a model goes, by region and by op over a few steps with timers; rates and memory. */
#include "cli/bench/bench_parts.h"

#include "backend/backend.h"
#include "cli/view.h"

#include <math.h>
#include <stdio.h>

/* A part of the model: a region, or all nodes of an op. bytes 0: not known. */
typedef struct part {
    const char *name;
    double forward_ms, backward_ms, flops, bytes;
} part;

static tn_status print_part(tn_cli *c, const char *group, const part *p, double total, const tn_ceilings *m,
                            double peak)
{
    const double ms = (p->forward_ms + p->backward_ms) / TN_BENCH_TIMED, gflops = p->flops / ms * 1e-6,
                 gbs = p->bytes / ms * 1e-6;
    const double of = m->gpu ? fmax(isnan(gflops) ? 0 : gflops / peak, gbs / m->copy_gbs) : 0;
    char rate[24], bytes[48] = "";
    if (c->json) {
        json_t *row = json_pack("{s:s, s:s, s:f, s:s, s:f, s:f, s:f}", "group", group, "name", p->name, "value", ms,
                                "unit", "ms", "forward", p->forward_ms / TN_BENCH_TIMED, "backward",
                                p->backward_ms / TN_BENCH_TIMED, "share", ms * TN_BENCH_TIMED / total);
        if (row && !isnan(gflops)) json_object_set_new(row, "gflops", json_real(gflops));
        if (row && p->bytes > 0) json_object_set_new(row, "gbs", json_real(gbs));
        if (row && of > 0 && p->bytes > 0) json_object_set_new(row, "of_ceiling", json_real(of));
        return tn_cli_emit(c, row);
    }
    if (m->gpu && p->bytes > 0) snprintf(bytes, sizeof bytes, " %8.0f GB/s  %3.0f %%", gbs, 100 * of);
    fprintf(c->out, "%-28s %9.2f ms %9.2f ms %6.1f %% %16s%s\n", p->name, p->forward_ms / TN_BENCH_TIMED,
            p->backward_ms / TN_BENCH_TIMED, 100 * ms * TN_BENCH_TIMED / total, tn_bench_rate_text(gflops, rate),
            bytes);
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

tn_status tn_bench_print_parts(tn_cli *c, const tn_bench_parts *p, const tn_ceilings *m, double peak)
{
    part rows[TN_BENCH_ROWS];
    for (size_t i = 0; i < p->n_regions; i++)
        rows[i] = (part){ p->region[i].region[0] ? p->region[i].region : "(other)", p->region[i].forward_ms,
                          p->region[i].backward_ms, p->region[i].flops, 0 };
    if (tn_args_flag(&c->args, "regions")) TN_RETURN_IF(print_parts(c, "region", rows, p->n_regions, m, peak));
    for (size_t i = 0; i < p->n_ops; i++)
        rows[i] = (part){ p->op[i].op, p->op[i].forward_ms, p->op[i].backward_ms, p->op[i].flops, p->op[i].bytes };
    return tn_args_flag(&c->args, "by-op") ? print_parts(c, "op", rows, p->n_ops, m, peak) : TN_OK;
}

/* --- rates and memory -------------------------------------------------------------------------------------------------- */

tn_status tn_bench_print_rate(tn_cli *c, const char *name, double rate, const char *unit)
{
    if (c->json)
        return tn_cli_emit(c, json_pack("{s:s, s:s, s:f, s:s}", "name", name, "group", "rate", "value", rate, "unit",
                                        unit));
    fprintf(c->out, "%-6s %-29s %9.0f %s\n", "rate", name, rate, unit);
    return TN_OK;
}

tn_status tn_bench_print_loss(tn_cli *c, const char *name, const tn_step_result *begun)
{
    const double norm = (double)begun->update.grad_norm;
    if (c->json)
        return tn_cli_emit(c,
                           json_pack("{s:s, s:s, s:o, s:s, s:o}", "name", name, "group", "loss", "value",
                                     tn_number_or_null(begun->loss), "unit", "", "grad_norm", tn_number_or_null(norm)));
    fprintf(c->out, "%-6s %-29s %9.5f in the first step, |g| %.4g\n", "loss", name, begun->loss, norm);
    return TN_OK;
}

size_t tn_bench_gpu_taken(void)
{
    size_t left, all;
    const tn_backend *gpu = tn_backend_get(TN_CUDA);
    return gpu && gpu->memory(&left, &all) == TN_OK ? all - left : 0;
}

tn_status tn_bench_print_memory(tn_cli *c, const char *name, const tn_trainer *t, size_t idle)
{
    const double plan = (double)tn_trainer_memory(t).total,
                 took = idle ? (double)tn_bench_gpu_taken() - (double)idle : 0;
    char used[40] = "", bytes[24];
    if (c->json) {
        json_t *row =
            json_pack("{s:s, s:s, s:f, s:s}", "name", name, "group", "memory", "value", plan, "unit", "bytes");
        if (row && idle) json_object_set_new(row, "measured", json_real(took));
        return tn_cli_emit(c, row);
    }
    if (idle) snprintf(used, sizeof used, ", %.2f GB used", took / 1e9);
    if (idle) snprintf(bytes, sizeof bytes, "%.2f GB", plan / 1e9);
    else tn_bytes_text(plan, bytes);
    fprintf(c->out, "%-6s %-29s %12s planned%s\n", "memory", name, bytes, used);
    return TN_OK;
}
