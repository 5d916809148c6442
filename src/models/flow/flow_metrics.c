/* Metrics of surfaces: psnr, and how much of the ink lands where it should. */
#include "models/flow/flow.h"

#include <math.h>

/* Of values 0..1; at most 100 dB, so that a perfect surface has a number too. */
double flow_psnr(const double *sums, const tn_settings *st)
{
    (void)st;
    return -10 * log10(fmax(sums[0] / sums[1], 1e-10));
}

static int64_t along(double u, int64_t cells)
{
    const double x = nearbyint((u + 1) / 2 * (double)(cells - 1)); /* half goes to the even cell */
    return x > 0 ? x < (double)(cells - 1) ? (int64_t)x : cells - 1 : 0;
}

int64_t flow_cell(double u, double v, int64_t width, int64_t height)
{
    return along(v, height) * width + along(u, width);
}

void flow_landing_add(const tn_metric_view *v, double *sums)
{
    flow_config c;
    int64_t n = 0, all = 0, slots = 0;
    const float *ink = v->input(v->ctx, "features", &n), *x = v->output(v->ctx, "u", &slots),
                *y = v->output(v->ctx, "v", &slots);
    const int32_t *goal = v->input(v->ctx, "goal", &all);
    if (flow_config_read(v->settings, NULL, NULL, &c) != TN_OK) return;
    const int64_t S = c.width * c.height, B = n / S, N = slots / (B > 0 ? B : 1);
    if (!ink || !goal || !x || !y || n != all || n != B * S || N < S) return;
    for (int64_t b = 0; b < v->rows; b++)
        for (int64_t i = 0; i < S; i++) {
            const int64_t at = b * S + i, flow = b * N + i;
            if (goal[at] < 0) continue;
            sums[0] += flow_cell((double)x[flow], (double)y[flow], c.width, c.height) == goal[at] ? (double)ink[at] : 0;
            sums[1] += (double)ink[at];
        }
}
