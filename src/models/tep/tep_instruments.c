/* What a training step's solve did, from its outputs. Padding rows take no iterations, which identifies them. */
#include "models/tep/tep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_STEPS = 4096 }; /* counted one by one; more are counted as this many */

static void report(const tn_instruments *in, const char *phase, const char *what, double value, const char *unit)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", phase, what);
    in->report(in->ctx, name, value, unit);
}

/* Mean, 90th percentile and maximum of the evaluations of each sample in one phase, and their sum. */
static void report_steps(const tn_instruments *in, const char *output, const char *phase)
{
    int64_t n = 0, counted = 0, below = 0;
    const float *steps = in->output(in->ctx, output, &n);
    int32_t histogram[MOST_STEPS + 1] = { 0 };
    double sum = 0;
    int most = 0, p90 = 0;
    for (int64_t i = 0; steps && i < n; i++) {
        if (!(steps[i] > 0)) continue;
        const int k = steps[i] < (float)MOST_STEPS ? (int)steps[i] : MOST_STEPS;
        histogram[k]++;
        counted++;
        sum += (double)steps[i];
        if (k > most) most = k;
    }
    if (!counted) return;
    while (p90 <= MOST_STEPS && (below += histogram[p90]) < (9 * counted + 9) / 10) p90++;
    report(in, phase, "steps", sum / (double)counted, "");
    report(in, phase, "steps_p90", p90, "");
    report(in, phase, "steps_max", most, "");
    report(in, phase, "evaluations", sum, "");
}

/* How far the free phase came, and how fast: q = r^(1/(n-1)) is the mean factor of a step, since a solve that starts at zero has
 * the residual 1 at its first evaluation; undamped, the factor is (q - 1 + damping) / damping. */
static void report_residuals(const tn_instruments *in, const tep_config *c)
{
    int64_t n = 0, m = 0, counted = 0, late = 0, timed = 0;
    const float *residual = in->output(in->ctx, "residuals", &n), *steps = in->output(in->ctx, "steps", &m);
    const double damping = c->mode == TEP_TOROIDAL ? 1 : (double)c->damping;
    double sum = 0, worst = 0, factor = 0;
    for (int64_t i = 0; residual && steps && i < n && i < m; i++) {
        if (!(steps[i] > 0)) continue;
        counted++;
        late += !(residual[i] < c->rtol);
        sum += (double)residual[i];
        worst = fmax(worst, (double)residual[i]);
        if (!(steps[i] > 1) || !(residual[i] > 0)) continue;
        timed++;
        factor += pow((double)residual[i], 1 / ((double)steps[i] - 1));
    }
    if (!counted) return;
    in->report(in->ctx, "residual", sum / (double)counted, "");
    in->report(in->ctx, "residual_max", worst, "");
    if (!c->faithful) in->report(in->ctx, "unconverged", (double)late / (double)counted, "");
    if (timed && !c->cache && !c->anderson)
        in->report(in->ctx, "contraction", (factor / (double)timed - 1 + damping) / damping, "");
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The median of what the nudge moved over what the free phase left: below about 1, the gradient is noise. */
static void report_signal(const tn_instruments *in)
{
    enum { MOST = 1024 };
    float some[MOST];
    int64_t n = 0, kept = 0;
    const float *signal = in->output(in->ctx, "signal", &n);
    const int64_t stride = n > MOST ? (n + MOST - 1) / MOST : 1;
    for (int64_t i = 0; signal && i < n && kept < MOST; i += stride)
        if (signal[i] > 0) some[kept++] = signal[i];
    if (!kept) return;
    qsort(some, (size_t)kept, sizeof *some, ascending);
    in->report(in->ctx, "nudge_signal", (double)some[kept / 2], "");
}

/* Root mean square over the numbers of the states that are there. */
static void report_size(const tn_instruments *in)
{
    int64_t n = 0, B = 0, counted = 0;
    const float *steps = in->output(in->ctx, "steps", &B), *h = in->output(in->ctx, "state", &n);
    double sum = 0;
    for (int64_t i = 0; h && steps && B && i < n; i++) {
        if (!(steps[i / (n / B)] > 0)) continue;
        sum += (double)h[i] * (double)h[i];
        counted++;
    }
    if (counted) in->report(in->ctx, "state_rms", sqrt(sum / (double)counted), "");
}

void tep_instruments(const tn_settings *st, const tn_instruments *in)
{
    tep_config c;
    if (!in->output || tep_config_read(st, NULL, NULL, &c) != TN_OK) return;
    report_steps(in, "steps", "");
    report_steps(in, "nudged_steps", "nudged_");
    report_steps(in, "adjoint_steps", "adjoint_");
    report_residuals(in, &c);
    report_signal(in);
    report_size(in);
}
