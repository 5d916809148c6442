/* Figures. */
#include "report/page/figures.h"

#include <math.h>

/* Those above 0; NaN and 0 are not known, or not there. */
static size_t keep(const tn_figure *from, size_t n, tn_figure *row)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (from[i].value > 0 && isfinite(from[i].value)) row[kept++] = from[i];
    return kept;
}

size_t tn_figures_of_ceilings(const tn_profile *p, tn_figure row[TN_FIGURES])
{
    const tn_ceilings *c = &p->ceilings;
    const tn_figure all[] = { { "fp32", "GFLOP/s", c->fma_gflops },         { "tf32", "GFLOP/s", c->tf32_gflops },
                              { "bf16", "GFLOP/s", c->bf16_gflops },        { "memory", "GB/s", c->memory_gbs },
                              { "last cache", "GB/s", c->shared_gbs },      { "own caches", "GB/s", c->cache_gbs },
                              { "shortest call", "us", 1e3 * p->launch_ms } };
    return keep(all, sizeof all / sizeof *all, row);
}

size_t tn_figures_of_memory(const tn_profile *p, const tn_plan *plan, tn_figure row[TN_FIGURES])
{
    const tn_memory_plan *m = &p->memory;
    const tn_figure all[] = { { "parameters", "MB", 1e-6 * (double)m->parameters },
                              { "gradients", "MB", 1e-6 * (double)m->gradients },
                              { "optimizer", "MB", 1e-6 * (double)m->optimizer },
                              { "frozen", "MB", 1e-6 * (double)m->frozen },
                              { "state", "MB", 1e-6 * (double)m->state },
                              { "samples", "MB", 1e-6 * (double)m->samples },
                              { "activations", "MB", 1e-6 * (double)m->activations },
                              { "workspace", "MB", 1e-6 * (double)m->workspace },
                              { "inputs and tables", "MB", 1e-6 * (double)m->other },
                              { "data", "MB", 1e-6 * (double)m->data },
                              { "all that is planned", "MB", 1e-6 * (double)m->total },
                              { "measured peak", "MB", 1e-6 * p->peak_bytes },
                              { "holes in the arena", "%", 100 * tn_plan_holes(plan) } };
    return keep(all, sizeof all / sizeof *all, row);
}

size_t tn_figures_of_use(const tn_profile *p, tn_figure row[TN_FIGURES])
{
    const tn_figure all[] = { { p->device == TN_CPU ? "threads at work" : "GPU at work", "%", 100 * p->busy },
                              { "arithmetic, of the machine's peak", "%", 100 * tn_profile_reached(p) },
                              { "waiting for data", "%", 100 * p->data_ms / tn_profile_whole(p) } };
    return keep(all, sizeof all / sizeof *all, row);
}
