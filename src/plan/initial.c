/* Fills tensors. Numbers are drawn by their index, so parts can be filled in any order; a model's own function
 * (TN_INIT_CALL) fills a whole tensor. */
#include "plan/store.h"

enum { TILE = 1 << 15 }; /* numbers at a time: a multiple of what one block of random words gives */

typedef struct job {
    float *x;
    int64_t n;
    const tn_init *init;
    tn_rng r;
} job;

static void fill_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    const int64_t from = tile * TILE, n = j->n - from < TILE ? j->n - from : TILE;
    const float a = j->init->a, b = j->init->b;
    float *x = j->x + from;
    switch (j->init->kind) {
    case TN_INIT_CONSTANT:
        for (int64_t i = 0; i < n; i++) x[i] = a;
        break;
    case TN_INIT_NORMAL:
        tn_rng_normals_from(j->r, (uint64_t)from, x, n);
        for (int64_t i = 0; i < n; i++) x[i] *= a;
        break;
    default:
        for (int64_t i = 0; i < n; i++) x[i] = a + (b - a) * tn_rng_uniform(j->r, (uint64_t)(from + i));
        break;
    }
}

static float draw_uniform(const void *ctx, uint64_t i) { return tn_rng_uniform(*(const tn_rng *)ctx, i); }

void tn_initial_fill(tn_pool *pool, float *x, tn_dims dims, const tn_init *init, tn_rng r)
{
    job j = { x, tn_dims_count(dims), init, r };
    if (init->kind == TN_INIT_CALL) init->fill(x, dims, draw_uniform, &r, init->p);
    else tn_pool_run(pool, (j.n + TILE - 1) / TILE, fill_tile, &j);
}
