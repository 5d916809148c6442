/* l2norm on the CPU: tiles of whole rows; sums of products in eight double lanes. y may be x, and dx may be dy. */
#include "backend/cpu/level.h"
#include "backend/cpu/vmath.h"
#include "ops/l2norm/l2norm.h"
#include "ops/rows.h"

tn_kernel tn_l2norm_forward_cpu, tn_l2norm_backward_cpu;

enum { LANES = 8 };

typedef struct job {
    const float *x, *dy; /* (rows, n) */
    float *y;            /* (rows, n): y forward, dx backward */
    double eps;
    bool add;
    int64_t rows, n, per_tile;
} job;

static double dot(const float *x, const float *y, int64_t n)
{
    double lane[LANES] = { 0 }, s = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (double)x[i + k] * (double)y[i + k];
    for (; i < n; i++) lane[0] += (double)x[i] * (double)y[i];
    for (int k = 0; k < LANES; k++) s += lane[k];
    return s;
}

static void tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t n = j->n, end = (t + 1) * j->per_tile < j->rows ? (t + 1) * j->per_tile : j->rows;
    for (int64_t r = t * j->per_tile; r < end; r++) {
        const float *x = j->x + r * n, *dy = j->dy ? j->dy + r * n : NULL;
        float *y = j->y + r * n;
        const double norm = sqrt(dot(x, x, n)), inverse = 1 / (norm < j->eps ? j->eps : norm);
        /* forward: a x. backward: a dy - b x, with b = 0 in short rows */
        const bool turns = dy && !(norm < j->eps);
        const float a = (float)inverse, b = turns ? (float)(dot(x, dy, n) * inverse * inverse * inverse) : 0;
        if (!dy) {
            TN_VECTOR
            for (int64_t i = 0; i < n; i++) y[i] = a * x[i];
        } else if (j->add) {
            for (int64_t i = 0; i < n; i++) y[i] += a * dy[i] - b * x[i];
        } else {
            TN_VECTOR
            for (int64_t i = 0; i < n; i++) y[i] = a * dy[i] - b * x[i];
        }
    }
}

static tn_status run(const tn_call *c, job *j, const tn_arg *shape)
{
    j->eps = (double)((const tn_l2norm_attr *)c->attr)->eps;
    j->rows = tn_live_rows(shape);
    j->n = tn_live_length(shape);
    j->per_tile = tn_tile_rows(j->n);
    if (j->n) tn_pool_run(c->pool, tn_tiles(j->rows, j->per_tile), tile, j);
    return TN_OK;
}

TN_LEVELED_KERNEL(tn_l2norm_forward_cpu)
{
    job j = { .x = c->in[0].data, .y = c->out[0].data };
    return run(c, &j, &c->in[0]);
}

TN_LEVELED_KERNEL(tn_l2norm_backward_cpu)
{
    job j = { .x = c->in[0].data, .dy = c->dout[0].data, .y = c->din[0].data, .add = c->accumulate & 1 };
    return run(c, &j, &c->dout[0]);
}
