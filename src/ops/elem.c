/* Spaces of elementwise loops: merging axes, and walking pieces in tiles of a fixed size. Sums are in elem_sum.c. */
#include "ops/elem.h"

#include "backend/cpu/pool.h"

enum { TILE = 16384 }; /* elements */

/* Stride of argument a along axis i of a shape of `rank` axes. */
static int64_t stride_along(const tn_arg *a, int rank, int i)
{
    const int own = i - (rank - a->dims.rank);
    return !a->data || own < 0 || a->dims.dim[own] == 1 ? 0 : a->stride[own];
}

/* Axis j + 1 of e follows axis j in every argument's memory. */
static bool follows(const tn_elem *e, int j, int64_t inner, const int64_t *inner_stride)
{
    for (int k = 0; k < e->n; k++)
        if (e->stride[k][j] != inner * inner_stride[k]) return false;
    return true;
}

void tn_elem_make(tn_elem *e, tn_dims dims, const int32_t *live, int n, const tn_arg *const *args)
{
    *e = (tn_elem){ .n = n };
    if (live && dims.rank && *live < dims.dim[0]) dims.dim[0] = *live < 0 ? 0 : *live;
    for (int k = 0; k < n; k++) e->data[k] = args[k]->data;
    for (int i = 0; i < dims.rank; i++) {
        int64_t stride[TN_ELEM_ARGS];
        if (dims.dim[i] == 1) continue;
        for (int k = 0; k < n; k++) stride[k] = stride_along(args[k], dims.rank, i);
        if (e->rank && follows(e, e->rank - 1, dims.dim[i], stride)) e->dim[e->rank - 1] *= dims.dim[i];
        else e->dim[e->rank++] = dims.dim[i];
        for (int k = 0; k < n; k++) e->stride[k][e->rank - 1] = stride[k];
    }
    if (e->rank) return;
    e->rank = 1; /* one element */
    e->dim[0] = 1;
    for (int k = 0; k < n; k++) e->stride[k][0] = 1;
}

typedef struct walk {
    const tn_elem *e;
    tn_elem_fn *fn;
    const void *job;
    int64_t length, pieces;  /* of one row */
    int64_t total, per_tile; /* pieces */
} walk;

static void locate(const tn_elem *e, int64_t row, int64_t *index, int64_t *at)
{
    for (int k = 0; k < e->n; k++) at[k] = 0;
    for (int i = e->rank - 2; i >= 0; i--) {
        index[i] = row % e->dim[i];
        row /= e->dim[i];
        for (int k = 0; k < e->n; k++) at[k] += index[i] * e->stride[k][i];
    }
}

/* The next row, as an odometer turns. */
static void advance(const tn_elem *e, int64_t *index, int64_t *at)
{
    for (int i = e->rank - 2; i >= 0; i--) {
        for (int k = 0; k < e->n; k++) at[k] += e->stride[k][i];
        if (++index[i] < e->dim[i]) return;
        for (int k = 0; k < e->n; k++) at[k] -= index[i] * e->stride[k][i];
        index[i] = 0;
    }
}

static void walk_tile(void *arg, int64_t t)
{
    const walk *w = arg;
    const tn_elem *e = w->e;
    int64_t p = t * w->per_tile, row = p / w->pieces, piece = p % w->pieces;
    const int64_t end = p + w->per_tile < w->total ? p + w->per_tile : w->total;
    int64_t index[TN_MAX_RANK] = { 0 }, at[TN_ELEM_ARGS], here[TN_ELEM_ARGS];
    locate(e, row, index, at);
    for (; p < end; p++) {
        const int64_t first = piece * TN_ELEM_PIECE, left = w->length - first;
        for (int k = 0; k < e->n; k++) here[k] = at[k] + first * tn_elem_step(e, k);
        w->fn(w->job, e, here, left < TN_ELEM_PIECE ? left : TN_ELEM_PIECE, row * w->length + first);
        if (++piece < w->pieces) continue;
        piece = 0;
        row++;
        advance(e, index, at);
    }
}

void tn_elem_run(const tn_elem *e, struct tn_pool *pool, tn_elem_fn *fn, const void *job)
{
    walk w = { .e = e, .fn = fn, .job = job, .length = e->dim[e->rank - 1] };
    int64_t rows = 1;
    for (int i = 0; i < e->rank - 1; i++) rows *= e->dim[i];
    if (!rows || !w.length) return;
    w.pieces = (w.length + TN_ELEM_PIECE - 1) / TN_ELEM_PIECE;
    w.total = rows * w.pieces;
    w.per_tile = TILE / (w.length < TN_ELEM_PIECE ? w.length : TN_ELEM_PIECE);
    tn_pool_run(pool, (w.total + w.per_tile - 1) / w.per_tile, walk_tile, &w);
}
