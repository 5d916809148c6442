/* Anderson acceleration: small dense systems in double, everything as wide as the state in float. Sums run in eight lanes
 * that are added in a fixed order. */
#include "ops/anderson.h"

#include "ops/slots.h"

#include <string.h>

enum { LANES = 8 };

/* --- sums over a state ---------------------------------------------------------------------------------------------------- */

static double add_lanes(const double *s) { return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7])); }

static double dot(const float *a, const float *b, int64_t n)
{
    double s[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) s[k] += (double)a[i + k] * (double)b[i + k];
    for (int k = 0; i < n; i++, k++) s[k] += (double)a[i] * (double)b[i];
    return add_lanes(s);
}

void tn_residual_norms(int64_t width, const float *x, const float *f, double *distance, double *size)
{
    double s[LANES] = { 0 }, q[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const double d = (double)f[i + k] - (double)x[i + k];
            s[k] += d * d;
            q[k] += (double)f[i + k] * (double)f[i + k];
        }
    for (int k = 0; i < width; i++, k++) {
        const double d = (double)f[i] - (double)x[i];
        s[k] += d * d;
        q[k] += (double)f[i] * (double)f[i];
    }
    *distance = add_lanes(s);
    *size = add_lanes(q);
}

/* x becomes y; returns |y - x|^2. */
static inline void advance(float *x, float y, double *sum)
{
    const double d = (double)y - (double)*x;
    *sum += d * d;
    *x = y;
}

double tn_damped_step(int64_t width, float damping, float *x, const float *f)
{
    double s[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int k = 0; k < LANES; k++) advance(&x[i + k], (1 - damping) * x[i + k] + damping * f[i + k], &s[k]);
    for (int k = 0; i < width; i++, k++) advance(&x[i], (1 - damping) * x[i] + damping * f[i], &s[k]);
    return add_lanes(s);
}

/* --- memory ----------------------------------------------------------------------------------------------------------------- */

static tn_anderson lay_out(char *base, int memory, int64_t samples, int64_t width, size_t *used)
{
    const size_t m = (size_t)memory, n = (size_t)samples;
    tn_anderson a = { .memory = memory, .samples = samples, .width = width };
    *used = 0;
    a.r = tn_carve(base, used, sizeof *a.r * n * m * (size_t)width);
    a.f = tn_carve(base, used, sizeof *a.f * n * m * (size_t)width);
    a.gram = tn_carve(base, used, sizeof *a.gram * n * m * m);
    a.before = tn_carve(base, used, sizeof *a.before * n);
    a.kept = tn_carve(base, used, sizeof *a.kept * n);
    a.newest = tn_carve(base, used, sizeof *a.newest * n);
    return a;
}

size_t tn_anderson_bytes(int memory, int64_t samples, int64_t width)
{
    size_t used;
    lay_out(NULL, memory, samples, width, &used);
    return used;
}

tn_anderson tn_anderson_at(void *memory_64, int memory, int64_t samples, int64_t width)
{
    size_t used;
    return lay_out(memory_64, memory, samples, width, &used);
}

void tn_anderson_restart(const tn_anderson *a, int64_t sample)
{
    a->kept[sample] = 0;
    a->newest[sample] = 0;
}

/* --- a step --------------------------------------------------------------------------------------------------------------- */

typedef struct pairs {
    float *r, *f; /* (m,width) */
    double *gram; /* (m,m) */
} pairs;

static pairs pairs_of(const tn_anderson *a, int64_t sample)
{
    const int64_t m = a->memory;
    return (pairs){ a->r + sample * m * a->width, a->f + sample * m * a->width, a->gram + sample * m * m };
}

/* Keeps the pair, the n-th, and its products with the others; the oldest gives way. Returns its place. */
static int keep(const tn_anderson *a, int64_t sample, const pairs *p, int n, const float *x, const float *f)
{
    const int m = a->memory, at = n > 1 ? (a->newest[sample] + 1) % m : 0;
    float *r = p->r + at * a->width;
    memcpy(p->f + at * a->width, f, sizeof *f * (size_t)a->width);
    for (int64_t i = 0; i < a->width; i++) r[i] = f[i] - x[i];
    a->newest[sample] = at;
    a->kept[sample] = n;
    for (int k = 0; k < n; k++) p->gram[at * m + k] = p->gram[k * m + at] = dot(r, p->r + k * a->width, a->width);
    return at;
}

/* x = f_at + sum_k weight_k (f_k - f_at): with a sum of 1 the same as sum weight_k f_k, and exact where all f agree. */
static double combine(const tn_anderson *a, const pairs *p, int n, int at, const double *weight, float *x)
{
    const float *newest = p->f + at * a->width;
    double moved[LANES] = { 0 };
    for (int64_t i = 0; i < a->width; i += LANES) {
        const int lanes = a->width - i < LANES ? (int)(a->width - i) : LANES;
        float y[LANES] = { 0 };
        for (int k = 0; k < n; k++) {
            const float *f = p->f + k * a->width + i, w = (float)weight[k];
            if (lanes == LANES) /* a fixed length is done in one instruction */
                for (int j = 0; j < LANES; j++) y[j] += w * (f[j] - newest[i + j]);
            else
                for (int j = 0; j < lanes; j++) y[j] += w * (f[j] - newest[i + j]);
        }
        for (int j = 0; j < lanes; j++) advance(&x[i + j], newest[i + j] + y[j], &moved[j]);
    }
    return add_lanes(moved);
}

/* Back to the damped step from the last pair: x - (1-d) r with x + r = f. */
static double step_back(const tn_anderson *a, const pairs *p, int at, float damping, float *x)
{
    double moved = 0;
    for (int64_t i = 0; i < a->width; i++)
        advance(&x[i], p->f[at * a->width + i] - (1 - damping) * p->r[at * a->width + i], &moved);
    return moved;
}

double tn_anderson_step(const tn_anderson *a, int64_t sample, float damping, float *x, const float *f)
{
    const pairs p = pairs_of(a, sample);
    double distance, size, weight[TN_ANDERSON_MOST], factor[TN_ANDERSON_MOST * TN_ANDERSON_MOST];
    tn_residual_norms(a->width, x, f, &distance, &size);
    if (!isfinite(distance)) {
        const bool extrapolated = a->kept[sample] > 1;
        const int at = a->newest[sample];
        tn_anderson_restart(a, sample);
        return extrapolated ? step_back(a, &p, at, damping, x) : tn_damped_step(a->width, damping, x, f);
    }
    const double r = sqrt(distance);
    const int n = tn_anderson_pairs(a->memory, a->kept[sample], r, a->before[sample]);
    const int at = keep(a, sample, &p, n, x, f);
    a->before[sample] = r;
    if (n > 1 && tn_anderson_weigh(p.gram, a->memory, n, factor, TN_ANDERSON_MOST, weight))
        return combine(a, &p, n, at, weight, x);
    if (n > 1) tn_anderson_restart(a, sample);
    return tn_damped_step(a->width, damping, x, f);
}
