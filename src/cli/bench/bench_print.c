/* Printing benchmarks. */
#include "cli/bench/bench_print.h"

#include "backend/cpu/gemm.h"

#include <math.h>
#include <stdio.h>

const char *tn_bench_rate_text(double gflops, char buf[24])
{
    if (isnan(gflops)) snprintf(buf, 24, "-");
    else if (gflops >= 1e5) snprintf(buf, 24, "%.1f TFLOP/s", gflops * 1e-3);
    else snprintf(buf, 24, "%.1f GFLOP/s", gflops);
    return buf;
}

static json_t *row_json(const tn_bench_row *r)
{
    if (r->why) return json_pack("{s:s, s:s, s:s}", "name", r->name, "group", r->group, "why", r->why);
    json_t *row = json_pack("{s:s, s:s, s:f, s:s, s:f}", "name", r->name, "group", r->group, "value", r->ms, "unit",
                            "ms", "spread", r->spread_ms);
    if (row && r->of_ceiling > 0) json_object_set_new(row, "of_ceiling", json_real(r->of_ceiling));
    if (row && r->of_ceiling > 1) json_object_set_new(row, "above_ceiling", json_true());
    if (row && r->gflops > 0) json_object_set_new(row, "gflops", json_real(r->gflops));
    if (row && r->gbs > 0) json_object_set_new(row, "gbs", json_real(r->gbs));
    return row;
}

void tn_bench_print_row(void *cli, const tn_bench_row *r)
{
    tn_cli *c = cli;
    if (c->json) {
        (void)tn_cli_emit(c, row_json(r));
        return;
    }
    char bytes[24] = "", part[24] = "", flops[24] = "";
    if (r->gflops > 0) tn_bench_rate_text(r->gflops, flops);
    if (r->of_ceiling > 0)
        snprintf(part, sizeof part, "  %3.0f %%%s", 100 * r->of_ceiling, r->of_ceiling > 1 ? " !" : "");
    if (r->gbs > 0) snprintf(bytes, sizeof bytes, "%s%.1f GB/s", *flops ? "  " : "", r->gbs);
    if (r->why) fprintf(c->out, "%-6s %-27s %s\n", r->group, r->name, r->why);
    else
        fprintf(c->out, "%-6s %-27s %9.3f ms +-%-7.3f %13s%s%s\n", r->group, r->name, r->ms, r->spread_ms,
                *flops ? flops : bytes, *flops ? bytes : "", part);
    fflush(c->out);
}

static tn_status print_ceilings(tn_cli *c, const tn_ceilings *m, const char *when)
{
    if (c->json) {
        TN_RETURN_IF(tn_cli_number(c, "fma_peak", m->fma_gflops, "GFLOP/s"));
        if (m->gpu) {
            TN_RETURN_IF(tn_cli_number(c, "tf32_peak", m->tf32_gflops, "GFLOP/s"));
            TN_RETURN_IF(tn_cli_number(c, "upload_bandwidth", m->upload_gbs, "GB/s"));
            TN_RETURN_IF(tn_cli_number(c, "upload_bandwidth_pageable", m->upload_pageable_gbs, "GB/s"));
        }
        TN_RETURN_IF(tn_cli_number(c, "bf16_peak", m->bf16_gflops, "GFLOP/s"));
        TN_RETURN_IF(tn_cli_number(c, "copy_bandwidth", m->copy_gbs, "GB/s"));
        return tn_cli_number(c, "memory_bandwidth", m->memory_gbs, "GB/s");
    }
    if (m->gpu)
        fprintf(c->out,
                "gpu      copy %.0f GB/s; uploads %.1f, %.1f from pageable memory; products %.1f TFLOP/s bf16, %.1f "
                "tf32, %.1f f32",
                m->copy_gbs, m->upload_gbs, m->upload_pageable_gbs, m->bf16_gflops * 1e-3, m->tf32_gflops * 1e-3,
                m->fma_gflops * 1e-3);
    else {
        fprintf(c->out, "machine  %d thread%s: %.1f GFLOP/s fp32, ", m->threads, m->threads > 1 ? "s" : "",
                m->fma_gflops);
        if (tn_gemm_kernel_name_bf16()) fprintf(c->out, "%.1f bf16, ", m->bf16_gflops);
        else fprintf(c->out, "no bf16 instructions, ");
        fprintf(c->out, "copy %.1f GB/s, memory %.1f", m->copy_gbs, m->memory_gbs);
        if (m->shared_gbs > 0) fprintf(c->out, ", last cache %.1f", m->shared_gbs);
        if (m->cache_gbs > 0) fprintf(c->out, ", own caches %.1f", m->cache_gbs);
    }
    fprintf(c->out, " (%s)\n", when);
    return TN_OK;
}

tn_status tn_bench_ceilings(tn_cli *c, tn_device device, int threads, double seconds, tn_ceilings *out)
{
    TN_RETURN_IF(device == TN_CPU ? tn_ceilings_measure(threads, seconds, out) : tn_ceilings_gpu(out));
    return print_ceilings(c, out, "measured now; %: of the peak that bounds the row");
}

tn_status tn_bench_ceilings_again(tn_cli *c, tn_device device, const tn_ceilings *before, int above, double highest)
{
    tn_ceilings after;
    TN_RETURN_IF(device == TN_CPU ? tn_ceilings_measure(before->threads, 1, &after) : tn_ceilings_gpu(&after));
    TN_RETURN_IF(print_ceilings(c, &after, "measured again after the rows"));
    if (!above || c->json) return TN_OK;
    fprintf(c->out,
            "! %d row%s exceeded the peak measured before (highest %.0f %%): clocks change with load and power;\n  "
            "take the higher of the two measurements as the peak\n",
            above, above > 1 ? "s" : "", 100 * highest);
    return TN_OK;
}
