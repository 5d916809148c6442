/* Fills tensors. Numbers are drawn by their index, so parts can be filled in any order; a model's own function
 * (TN_INIT_CALL) fills a whole tensor. */
#include "plan/store.h"

enum {
    TILE = 1 << 13
}; /* numbers at a time: a multiple of what one block of random words gives, and little on a stack */

typedef struct job {
    void *out;
    tn_dtype dtype;
    int64_t first, n; /* of the tensor's numbers */
    const tn_init *init;
    tn_rng r;
} job;

static void draw(const job *j, int64_t from, float *x, int64_t n)
{
    const float a = j->init->a, b = j->init->b;
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

static void fill_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    float x[TILE];
    const int64_t at = tile * TILE, n = j->n - at < TILE ? j->n - at : TILE;
    draw(j, j->first + at, x, n);
    tn_convert((char *)j->out + (size_t)at * tn_dtype_bytes(j->dtype), j->dtype, x, TN_F32, n);
}

void tn_initial_part(tn_pool *pool, void *out, tn_dtype dtype, int64_t first, int64_t n, const tn_init *init, tn_rng r)
{
    job j = { out, dtype, first, n, init, r };
    tn_pool_run(pool, (n + TILE - 1) / TILE, fill_tile, &j);
}

static float draw_uniform(const void *ctx, uint64_t i) { return tn_rng_uniform(*(const tn_rng *)ctx, i); }

void tn_initial_whole(float *x, tn_dims dims, const tn_init *init, tn_rng r)
{
    init->fill(x, dims, draw_uniform, &r, init->p);
}
