/* sumsq on the CPU: one double per tile, each from sixteen running sums so that the loop vectorises; then the tiles
 * are added in their order. Which thread ran a tile leaves no trace in the bits. */
#include "backend/cpu/level.h"
#include "ops/rows.h"
#include "ops/sumsq/sumsq.h"

tn_kernel tn_sumsq_forward_cpu;

enum { LANES = 16 };

typedef struct job {
    const float *x; /* (n) */
    int64_t n;
    double *partial; /* (tiles) */
} job;

static double sum_tile(const float *restrict x, int64_t n)
{
    double lane[LANES] = { 0 }, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
    for (int k = 0; k < LANES; k++) sum += lane[k];
    for (; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

static void tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t at = t * TN_SUMSQ_TILE, rest = j->n - at;
    j->partial[t] = sum_tile(j->x + at, rest < TN_SUMSQ_TILE ? rest : TN_SUMSQ_TILE);
}

TN_LEVELED_KERNEL(tn_sumsq_forward_cpu)
{
    double *partial = c->work, sum = 0;
    int64_t tiles = 0;
    for (int i = 0; i < c->n_in; i++) {
        job j = { .x = c->in[i].data, .n = tn_arg_count(&c->in[i]), .partial = partial + tiles };
        const int64_t n = tn_sumsq_tiles(j.n);
        if (n) tn_pool_run(c->pool, n, tile, &j);
        tiles += n;
    }
    for (int64_t t = 0; t < tiles; t++) sum += partial[t];
    *(float *)c->out[0].data = (float)sum;
    return TN_OK;
}
