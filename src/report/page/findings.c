/* What a profile says, in sentences. */
#include "report/page/report.h"

#include <math.h>
#include <stdio.h>

enum { SENTENCE = 320, LONGEST = 3 };

static void say_step(const tn_profile *p, char *buf)
{
    double flops = 0;
    for (size_t i = 0; i < p->n; i++) flops += p->row[i].varies ? NAN : p->row[i].flops;
    const double gflops = flops / p->step_ms * 1e-6, peak = tn_ceilings_of_compute(&p->ceilings, p->compute);
    int n = snprintf(buf, SENTENCE, "A step takes %.4g ms (+- %.2g, %d steps): %.4g %s/s", p->step_ms, p->spread_ms,
                     p->steps, 1e3 * p->items / p->step_ms, p->unit);
    if (!isnan(gflops) && n > 0 && n < SENTENCE)
        snprintf(buf + n, SENTENCE - (size_t)n, ", %.4g GFLOP/s, %.0f %% of the %.4g that this machine reaches", gflops,
                 100 * gflops / peak, peak);
}

static void say_part(const tn_profile_part *x, char *buf)
{
    int n = snprintf(buf, SENTENCE, "%s%s%s: %.1f %% of the step, %.3g ms", x->name, x->pass[0] ? ", " : "", x->pass,
                     100 * x->share, x->ms);
    if (x->bound_ms > 0 && n > 0 && n < SENTENCE)
        snprintf(buf + n, SENTENCE - (size_t)n, "; bound by %s, which would allow %.3g ms (%.0f %% is reached)",
                 x->bound, x->bound_ms, 100 * x->bound_ms / x->ms);
}

static void say_memory(const tn_profile *p, char *buf)
{
    int n = snprintf(buf, SENTENCE, "Memory: %.4g MB planned", (double)p->memory.total * 1e-6);
    if (!isnan(p->peak_bytes) && n > 0 && n < SENTENCE)
        snprintf(buf + n, SENTENCE - (size_t)n, ", %.4g MB the most that the %s has taken", p->peak_bytes * 1e-6,
                 p->device == TN_CPU ? "process" : "device");
}

void tn_report_findings(const tn_report *r, void (*put)(void *ctx, const char *sentence), void *ctx)
{
    const tn_profile *p = r->profile;
    tn_profile_part part[TN_PROFILE_PARTS];
    const size_t n = tn_profile_parts(p, part);
    char text[SENTENCE];
    say_step(p, text);
    put(ctx, text);
    for (size_t i = 0; i < n && i < LONGEST; i++) {
        say_part(&part[i], text);
        put(ctx, text);
    }
    if (p->data_ms > 0.05 * p->timed_ms) {
        snprintf(text, sizeof text, "It waits for data %.0f %% of the time", 100 * p->data_ms / p->timed_ms);
        put(ctx, text);
    }
    say_memory(p, text);
    put(ctx, text);
}
