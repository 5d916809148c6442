/* argmax on the CPU: a tile is a few whole rows. A block's largest number first, and its place only where that beats all
 * before it: few blocks do. */
#include "backend/cpu/level.h"
#include "backend/cpu/vec.h"
#include "ops/argmax/argmax.h"
#include "ops/rows.h"

tn_kernel tn_argmax_forward_cpu;

enum { BLOCK = 256 };

typedef struct job {
    const tn_arg *x, *y;
    int64_t rows, n, per_tile;
} job;

/* The largest of n contiguous numbers; NaN where one of them is. */
TN_INLINE float largest(const float *x, int64_t n)
{
    tn_vec lane[TN_VECS], odd[TN_VECS];
    int64_t i = 0;
    for (int k = 0; k < TN_VECS; k++) lane[k] = (tn_vec){ 0 } - INFINITY, odd[k] = (tn_vec){ 0 };
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int k = 0; k < TN_VECS; k++) {
            const tn_vec v = tn_vec_get(x + i + k * TN_VEC);
            lane[k] = tn_vec_max(v, lane[k]);
            odd[k] = tn_vec_pick(v == v, odd[k], v);
        }
    float most = tn_lanes_max(lane);
    const float nan = tn_lanes_fold(odd);
    for (; i < n; i++) most = x[i] > most || x[i] != x[i] ? x[i] : most;
    return nan != nan ? nan : most;
}

static int32_t place_in(const float *x, int64_t n)
{
    float most = -INFINITY;
    int64_t at = 0; /* where a row of -infinity alone has its first largest number */
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t count = n - i < BLOCK ? n - i : BLOCK;
        const float top = largest(x + i, count);
        if (top != top) return -1;
        if (!(top > most)) continue;
        most = top;
        for (at = i; x[at] != top;) at++;
    }
    return (int32_t)at;
}

static int32_t place_strided(const float *x, int64_t n, int64_t step)
{
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        if (x[i * step] != x[i * step]) return -1;
        if (x[i * step] > x[at * step]) at = i;
    }
    return (int32_t)at;
}

/* Row r of x has its place in y, whose axes are x's but for the last. */
static int64_t place_offset(const tn_arg *y, int64_t r)
{
    int64_t off = 0;
    for (int i = y->dims.rank - 1; i >= 0; i--) {
        off += r % y->dims.dim[i] * y->stride[i];
        r /= y->dims.dim[i];
    }
    return off;
}

static void tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = (t + 1) * j->per_tile < j->rows ? (t + 1) * j->per_tile : j->rows, step = tn_row_step(j->x);
    for (int64_t r = t * j->per_tile; r < end; r++) {
        const float *x = (const float *)j->x->data + tn_row_offset(j->x, r);
        ((int32_t *)j->y->data)[place_offset(j->y, r)] = step == 1 ? place_in(x, j->n) : place_strided(x, j->n, step);
    }
}

TN_LEVELED_KERNEL(tn_argmax_forward_cpu)
{
    job j = { .x = &c->in[0], .y = &c->out[0], .rows = tn_arg_rows(&c->in[0]), .n = tn_row_length(&c->in[0]) };
    j.per_tile = tn_tile_rows(j.n);
    tn_pool_run(c->pool, tn_tiles(j.rows, j.per_tile), tile, &j);
    return TN_OK;
}
