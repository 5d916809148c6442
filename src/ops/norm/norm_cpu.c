/* norm on the CPU: tiles of rows. Sums over a row go in 16 lanes of float, then pairwise; weight gradients in float over
 * a tile's rows, then over tiles in double. Tiles depend on the shape alone. A row's numbers for the backward pass are its
 * scale and, for layernorm, its mean as m0 + m1: x - m0 is exact for numbers near the mean, so (x - m0) - m1 keeps
 * digits that one float of a large mean would lose. */
#include "ops/norm/norm.h"
#include "ops/norm/norm_cpu.h"
#include "ops/rows.h"

#include <math.h>

enum { LANES = 16, PARTS = 128, COLUMNS = 64 }; /* PARTS: the most partial sums of weight gradients */

#define INLINE static inline __attribute__((always_inline)) /* so that step 1 becomes a constant */

typedef struct vec {
    float *p; /* NULL: absent */
    int64_t step;
} vec;

typedef struct job {
    const tn_call *c;
    tn_norm_kind kind;
    float eps;
    bool unit; /* all steps along rows are 1 */
    int64_t rows, d, per_tile;
    float *partial; /* (tiles,2,d): weight, bias */
} job;

static float fold(const float *lane)
{
    float s[LANES];
    for (int l = 0; l < LANES; l++) s[l] = lane[l];
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++) s[l] += s[l + half];
    return s[0];
}

INLINE float get(vec v, int64_t i) { return v.p[i * v.step]; }

/* --- forward ---------------------------------------------------------------------------------------------------------------- */

INLINE float sum_of(vec x, int64_t d)
{
    float lane[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= d; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += get(x, i + l);
    for (int l = 0; i < d; i++, l++) lane[l] += get(x, i);
    return fold(lane);
}

/* Sums of x - m and of its square. */
INLINE void moments(vec x, int64_t d, float m, float *first, float *second)
{
    float a[LANES] = { 0 }, b[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= d; i += LANES)
        for (int l = 0; l < LANES; l++) {
            const float t = get(x, i + l) - m;
            a[l] += t;
            b[l] += t * t;
        }
    for (int l = 0; i < d; i++, l++) {
        const float t = get(x, i) - m;
        a[l] += t;
        b[l] += t * t;
    }
    *first = fold(a);
    *second = fold(b);
}

INLINE void row_forward(const job *j, vec x, vec r, vec w, vec b, vec y, vec s, float *stat)
{
    const int64_t d = j->d;
    const float n = (float)d;
    float m0 = 0, m1, square;
    if (r.p) {
        for (int64_t i = 0; i < d; i++) s.p[i * s.step] = get(x, i) + get(r, i);
        x = s;
    }
    if (j->kind == TN_NORM_LAYER) m0 = sum_of(x, d) / n;
    moments(x, d, m0, &m1, &square);
    m1 = j->kind == TN_NORM_LAYER ? m1 / n : 0;
    const float scale = 1 / sqrtf(square / n - m1 * m1 + j->eps);
    for (int64_t i = 0; i < d; i++) {
        const float t = ((get(x, i) - m0) - m1) * scale * (w.p ? get(w, i) : 1);
        y.p[i * y.step] = b.p ? t + get(b, i) : t;
    }
    stat[0] = scale;
    if (j->kind == TN_NORM_LAYER) stat[1] = m0, stat[2] = m1;
}

/* --- tiles ------------------------------------------------------------------------------------------------------------------ */

static vec row_of(const tn_arg *a, int64_t r)
{
    return a->data ? (vec){ (float *)a->data + tn_row_offset(a, r), tn_row_step(a) } : (vec){ 0 };
}

static vec all_of(const tn_arg *a) { return (vec){ a->data, a->data ? a->stride[0] : 0 }; }

static vec unit(vec v) { return (vec){ v.p, 1 }; }

static bool is_unit(const tn_arg *a) { return !a->data || tn_row_step(a) == 1; }

/* The rows' numbers are contiguous along their last axis, whatever the other strides. */
static float *stat_of(const tn_call *c, int64_t r) { return row_of(&c->out[c->n_out - 1], r).p; }

static const tn_arg none = { .data = NULL };

static void forward_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    const tn_call *c = j->c;
    const tn_arg *sum = c->n_out == 3 ? &c->out[TN_NORM_SUM] : &none;
    const vec w = all_of(&c->in[TN_NORM_W]), b = all_of(&c->in[TN_NORM_B]);
    const int64_t end = (tile + 1) * j->per_tile < j->rows ? (tile + 1) * j->per_tile : j->rows;
    for (int64_t i = tile * j->per_tile; i < end; i++) {
        const vec x = row_of(&c->in[TN_NORM_X], i), r = row_of(&c->in[TN_NORM_RESIDUAL], i);
        const vec y = row_of(&c->out[TN_NORM_Y], i), s = row_of(sum, i);
        if (j->unit) row_forward(j, unit(x), unit(r), unit(w), unit(b), unit(y), unit(s), stat_of(c, i));
        else row_forward(j, x, r, w, b, y, s, stat_of(c, i));
    }
}

static int64_t rows_of(tn_dims d)
{
    int64_t n = 1;
    for (int i = 0; i + 1 < d.rank; i++) n *= d.dim[i];
    return n;
}

/* Rows per tile: cache-sized, but no more than PARTS tiles where weight gradients need a sum for each. */
static int64_t tile_rows(int64_t rows, int64_t d, bool backward)
{
    const int64_t few = (rows + PARTS - 1) / PARTS, fit = tn_tile_rows(d);
    return backward && few > fit ? few : fit;
}

static job job_of(const tn_call *c, const tn_arg *live, bool backward)
{
    const tn_norm_attr *a = c->attr;
    const tn_dims dims = c->in[TN_NORM_X].dims;
    job j = { .c = c, .kind = a->kind, .eps = a->eps, .rows = rows_of(dims), .d = dims.dim[dims.rank - 1] };
    j.per_tile = tile_rows(j.rows, j.d, backward);
    if (dims.rank > 1) j.rows = tn_arg_rows(live);
    j.unit = true;
    for (int i = 0; i < c->n_in; i++) j.unit &= is_unit(&c->in[i]) && (!backward || is_unit(&c->din[i]));
    for (int i = 0; i < c->n_out; i++) j.unit &= is_unit(&c->out[i]) && (!backward || is_unit(&c->dout[i]));
    return j;
}

tn_status tn_norm_forward_cpu(const tn_call *c)
{
    job j = job_of(c, &c->in[TN_NORM_X], false);
    if (j.rows && j.d) tn_pool_run(c->pool, tn_tiles(j.rows, j.per_tile), forward_tile, &j);
    return TN_OK;
}

/* --- backward ------------------------------------------------------------------------------------------------------------- */

/* One row's tensors in the backward pass. */
typedef struct row {
    vec s, w, dy, dsum, dx, dr;
    bool add_x, add_r;
    float scale, m0, m1;
} row;

INLINE float normal(const row *k, int64_t i) { return ((get(k->s, i) - k->m0) - k->m1) * k->scale; }

/* dL/d(normalised s) */
INLINE float inner(const row *k, int64_t i) { return k->w.p ? get(k->dy, i) * get(k->w, i) : get(k->dy, i); }

/* Means of dn and of dn n. */
INLINE void dot(const row *k, int64_t d, float *mean, float *along)
{
    float a[LANES] = { 0 }, b[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= d; i += LANES)
        for (int l = 0; l < LANES; l++) {
            const float dn = inner(k, i + l);
            a[l] += dn;
            b[l] += dn * normal(k, i + l);
        }
    for (int l = 0; i < d; i++, l++) {
        const float dn = inner(k, i);
        a[l] += dn;
        b[l] += dn * normal(k, i);
    }
    *mean = fold(a) / (float)d;
    *along = fold(b) / (float)d;
}

INLINE void put(vec v, int64_t i, float x, bool add)
{
    float *p = &v.p[i * v.step];
    *p = add ? *p + x : x;
}

/* ds = scale (dn - mean dn - n mean(dn n)) + dsum, the first mean for layernorm only; dx = dr = ds. */
INLINE void row_backward(const job *j, row k)
{
    float mean = 0, along = 0;
    if (k.dy.p) dot(&k, j->d, &mean, &along);
    if (j->kind == TN_NORM_RMS) mean = 0;
    for (int64_t i = 0; i < j->d; i++) {
        float ds = k.dy.p ? k.scale * (inner(&k, i) - mean - normal(&k, i) * along) : 0;
        if (k.dsum.p) ds += get(k.dsum, i);
        if (k.dx.p) put(k.dx, i, ds, k.add_x);
        if (k.dr.p) put(k.dr, i, ds, k.add_r);
    }
}

INLINE void weights_backward(const job *j, row k, float *dw, float *db)
{
    for (int64_t i = 0; dw && i < j->d; i++) dw[i] += get(k.dy, i) * normal(&k, i);
    for (int64_t i = 0; db && i < j->d; i++) db[i] += get(k.dy, i);
}

static row load_row(const job *j, int64_t i)
{
    const tn_call *c = j->c;
    const float *stat = stat_of(c, i);
    const bool two = c->n_out == 3;
    row k = { .s = row_of(two ? &c->out[TN_NORM_SUM] : &c->in[TN_NORM_X], i),
              .w = all_of(&c->in[TN_NORM_W]),
              .dy = row_of(&c->dout[TN_NORM_Y], i),
              .dsum = two ? row_of(&c->dout[TN_NORM_SUM], i) : (vec){ 0 },
              .dx = row_of(&c->din[TN_NORM_X], i),
              .dr = row_of(&c->din[TN_NORM_RESIDUAL], i),
              .add_x = c->accumulate >> TN_NORM_X & 1,
              .add_r = c->accumulate >> TN_NORM_RESIDUAL & 1 };
    if (stat) k.scale = stat[0];
    if (stat && j->kind == TN_NORM_LAYER) k.m0 = stat[1], k.m1 = stat[2];
    return k;
}

static row unit_row(row k)
{
    k.s = unit(k.s), k.w = unit(k.w), k.dy = unit(k.dy), k.dsum = unit(k.dsum), k.dx = unit(k.dx), k.dr = unit(k.dr);
    return k;
}

static void backward_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    const tn_call *c = j->c;
    const bool inputs = c->din[TN_NORM_X].data || c->din[TN_NORM_RESIDUAL].data;
    float *dw = c->din[TN_NORM_W].data ? j->partial + tile * 2 * j->d : NULL;
    float *db = c->din[TN_NORM_B].data ? j->partial + (tile * 2 + 1) * j->d : NULL;
    const int64_t end = (tile + 1) * j->per_tile < j->rows ? (tile + 1) * j->per_tile : j->rows;
    for (int64_t i = 0; i < j->d; i++) {
        if (dw) dw[i] = 0;
        if (db) db[i] = 0;
    }
    for (int64_t i = tile * j->per_tile; i < end; i++) {
        const row k = load_row(j, i);
        if (inputs && j->unit) row_backward(j, unit_row(k));
        else if (inputs) row_backward(j, k);
        if (k.dy.p && j->unit) weights_backward(j, unit_row(k), dw, db);
        else if (k.dy.p) weights_backward(j, k, dw, db);
    }
}

/* Column i of dw and db: the tiles in order. */
static void reduce_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    const int64_t end = (tile + 1) * COLUMNS < j->d ? (tile + 1) * COLUMNS : j->d, tiles = tn_tiles(j->rows, j->per_tile);
    for (int which = 0; which < 2; which++) {
        const int input = which ? TN_NORM_B : TN_NORM_W;
        const vec to = all_of(&j->c->din[input]);
        for (int64_t i = tile * COLUMNS; to.p && i < end; i++) {
            double s = 0;
            for (int64_t t = 0; t < tiles; t++) s += (double)j->partial[(t * 2 + which) * j->d + i];
            put(to, i, (float)s, j->c->accumulate >> input & 1);
        }
    }
}

tn_status tn_norm_backward_cpu(const tn_call *c)
{
    const tn_arg *dy = &c->dout[TN_NORM_Y];
    job j = job_of(c, dy->data || c->n_out == 2 ? dy : &c->dout[TN_NORM_SUM], true);
    j.partial = c->work;
    if (!j.d) return TN_OK;
    if (j.rows) tn_pool_run(c->pool, tn_tiles(j.rows, j.per_tile), backward_tile, &j);
    if (c->din[TN_NORM_W].data || c->din[TN_NORM_B].data) tn_pool_run(c->pool, tn_tiles(j.d, COLUMNS), reduce_tile, &j);
    return TN_OK;
}

size_t tn_norm_work_cpu(const tn_sig *s, bool backward)
{
    const tn_dims dims = s->in[TN_NORM_X].dims;
    const int64_t rows = rows_of(dims), d = dims.dim[dims.rank - 1];
    if (!backward) return 0;
    return (size_t)(tn_tiles(rows, tile_rows(rows, d, true)) * 2 * d) * sizeof(float);
}
