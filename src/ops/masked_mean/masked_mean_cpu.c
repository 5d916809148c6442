/* masked_mean on the CPU: a tile is one sequence and up to 256 columns, so that its sums stay in registers and L1. */
#include "ops/masked_mean/masked_mean.h"
#include "ops/rows.h"

#include <string.h>

tn_kernel tn_masked_mean_forward_cpu, tn_masked_mean_backward_cpu;

enum { COLUMNS = 256 };

typedef struct job {
    const tn_arg *mask;  /* (B,T) */
    const float *x, *dy; /* (B,T,d); (B,d) */
    float *y, *dx;       /* (B,d); (B,T,d) */
    bool add;
    int64_t T, d, chunks;
} job;

static float weight(const job *j, int64_t at)
{
    return j->mask->dtype == TN_I32 ? (float)((const int32_t *)j->mask->data)[at] : ((const float *)j->mask->data)[at];
}

/* One over the sum of the weights of sequence b; 0 when that is 0. */
static double inverse_of(const job *j, int64_t b)
{
    double s = 0;
    for (int64_t t = 0; t < j->T; t++) s += (double)weight(j, b * j->T + t);
    return s == 0 ? 0 : 1 / s;
}

static void forward_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    const int64_t b = tile / j->chunks, first = tile % j->chunks * COLUMNS, d = j->d;
    const int64_t n = d - first < COLUMNS ? d - first : COLUMNS;
    const double inverse = inverse_of(j, b);
    double acc[COLUMNS] = { 0 };
    for (int64_t t = 0; t < j->T; t++) {
        const double w = (double)weight(j, b * j->T + t);
        const float *restrict x = j->x + (b * j->T + t) * d + first;
        if (w != 0)
            for (int64_t i = 0; i < n; i++) acc[i] += w * (double)x[i];
    }
    for (int64_t i = 0; i < n; i++) j->y[b * d + first + i] = inverse == 0 ? 0 : (float)(acc[i] * inverse);
}

static void backward_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    const int64_t b = tile / j->chunks, first = tile % j->chunks * COLUMNS, d = j->d;
    const int64_t n = d - first < COLUMNS ? d - first : COLUMNS;
    const double inverse = inverse_of(j, b);
    const float *restrict dy = j->dy + b * d + first;
    for (int64_t t = 0; t < j->T; t++) {
        const float w = (float)((double)weight(j, b * j->T + t) * inverse);
        float *restrict dx = j->dx + (b * j->T + t) * d + first;
        if (j->add && w != 0)
            for (int64_t i = 0; i < n; i++) dx[i] += w * dy[i];
        else if (!j->add && w != 0)
            for (int64_t i = 0; i < n; i++) dx[i] = w * dy[i];
        else if (!j->add) memset(dx, 0, sizeof *dx * (size_t)n);
    }
}

static tn_status run(const tn_call *c, job *j, const tn_arg *x, void (*tile)(void *, int64_t))
{
    const int64_t d = x->dims.dim[2], B = x->dims.dim[0];
    j->T = x->dims.dim[1];
    j->d = d;
    j->chunks = (d + COLUMNS - 1) / COLUMNS;
    const int64_t alive = x->live && *x->live < B ? (*x->live < 0 ? 0 : *x->live) : B;
    tn_pool_run(c->pool, alive * j->chunks, tile, j);
    return TN_OK;
}

tn_status tn_masked_mean_forward_cpu(const tn_call *c)
{
    job j = { .mask = &c->in[1], .x = c->in[0].data, .y = c->out[0].data };
    return run(c, &j, &c->in[0], forward_tile);
}

tn_status tn_masked_mean_backward_cpu(const tn_call *c)
{
    job j = { .mask = &c->in[1], .dy = c->dout[0].data, .dx = c->din[0].data, .add = c->accumulate & 1 };
    return run(c, &j, &c->din[0], backward_tile);
}
