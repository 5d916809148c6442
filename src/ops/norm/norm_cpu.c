/* norm on the CPU: tiles of rows. Sums over a row go in 16 lanes of float, then pairwise; weight gradients in float
 * over a tile's rows, then over tiles in double. Tiles depend on the shape alone. A row's numbers for the backward pass
 * are its scale and, for layernorm, its mean as m0 + m1: x - m0 is exact for numbers near the mean, so (x - m0) - m1
 * keeps digits that one float of a large mean would lose. */
#include "backend/cpu/level.h"
#include "ops/norm/norm_cpu.h"
#include "ops/norm/norm.h"
#include "ops/rows.h"

#include <math.h>

enum { LANES = 16, BLOCK = 512, COLUMNS = 64 };

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

INLINE float get(vec v, int64_t i)
{
    return v.p[i * v.step];
}

/* --- forward ----------------------------------------------------------------------------------------------------- */

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

INLINE float sum_of_squares(vec x, int64_t d)
{
    float lane[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= d; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += get(x, i + l) * get(x, i + l);
    for (int l = 0; i < d; i++, l++) lane[l] += get(x, i) * get(x, i);
    return fold(lane);
}

/* y = ((x - m0) - m1) scale w + b; the means are those of layernorm. */
INLINE void write_row(vec x, vec w, vec b, vec y, int64_t d, float m0, float m1, float scale, bool layer)
{
    for (int64_t i = 0; i < d; i++) {
        const float t = (layer ? (get(x, i) - m0) - m1 : get(x, i)) * scale * (w.p ? get(w, i) : 1);
        y.p[i * y.step] = b.p ? t + get(b, i) : t;
    }
}

INLINE void row_forward(const job *j, vec x, vec r, vec w, vec b, vec y, vec s, float *stat)
{
    const int64_t d = j->d;
    const float n = (float)d;
    float m0, m1, square;
    if (r.p) {
        for (int64_t i = 0; i < d; i++) s.p[i * s.step] = get(x, i) + get(r, i);
        x = s;
    }
    if (j->kind == TN_NORM_RMS) {
        stat[0] = 1 / sqrtf(sum_of_squares(x, d) / n + j->eps);
        write_row(x, w, b, y, d, 0, 0, stat[0], false);
        return;
    }
    m0 = sum_of(x, d) / n;
    moments(x, d, m0, &m1, &square);
    m1 /= n;
    stat[0] = 1 / sqrtf(square / n - m1 * m1 + j->eps);
    stat[1] = m0, stat[2] = m1;
    write_row(x, w, b, y, d, m0, m1, stat[0], true);
}

/* --- tiles ------------------------------------------------------------------------------------------------------- */

/* A tensor as rows; `even` when they lie at equal distances, as nearly always: then finding one needs no divisions. */
typedef struct rowset {
    const tn_arg *a;
    bool even;
    int64_t distance, step;
} rowset;

static rowset rows_in(const tn_arg *a)
{
    const int rank = a->dims.rank;
    rowset s = { .a = a, .even = true, .distance = rank > 1 ? a->stride[rank - 2] : 0, .step = tn_row_step(a) };
    for (int i = rank - 3; i >= 0; i--) s.even &= a->stride[i] == a->stride[i + 1] * a->dims.dim[i + 1];
    return s;
}

static vec row_of(const rowset *s, int64_t r)
{
    if (!s->a->data) return (vec){ 0 };
    return (vec){ (float *)s->a->data + (s->even ? r * s->distance : tn_row_offset(s->a, r)), s->step };
}

static vec all_of(const tn_arg *a)
{
    return (vec){ a->data, a->data ? a->stride[0] : 0 };
}

static vec unit(vec v)
{
    return (vec){ v.p, 1 };
}

static bool is_unit(const tn_arg *a)
{
    return !a->data || tn_row_step(a) == 1;
}

static const tn_arg none = { .data = NULL };

static void forward_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    const tn_call *c = j->c;
    const rowset xs = rows_in(&c->in[TN_NORM_X]), rs = rows_in(&c->in[TN_NORM_RESIDUAL]),
                 ys = rows_in(&c->out[TN_NORM_Y]);
    const rowset sums = rows_in(c->n_out == 3 ? &c->out[TN_NORM_SUM] : &none), stats = rows_in(&c->out[c->n_out - 1]);
    const vec w = all_of(&c->in[TN_NORM_W]), b = all_of(&c->in[TN_NORM_B]);
    const int64_t end = (tile + 1) * j->per_tile < j->rows ? (tile + 1) * j->per_tile : j->rows;
    for (int64_t i = tile * j->per_tile; i < end; i++) {
        const vec x = row_of(&xs, i), r = row_of(&rs, i), y = row_of(&ys, i), s = row_of(&sums, i);
        float *stat = row_of(&stats, i).p;
        if (j->unit) row_forward(j, unit(x), unit(r), unit(w), unit(b), unit(y), unit(s), stat);
        else row_forward(j, x, r, w, b, y, s, stat);
    }
}

static job job_of(const tn_call *c, const tn_arg *live, bool backward)
{
    const tn_norm_attr *a = c->attr;
    const tn_dims dims = c->in[TN_NORM_X].dims;
    job j = { .c = c, .kind = a->kind, .eps = a->eps, .rows = tn_norm_rows(dims), .d = dims.dim[dims.rank - 1] };
    j.per_tile = tn_norm_tile(j.rows, j.d, backward);
    if (dims.rank > 1) j.rows = tn_arg_rows(live);
    j.unit = true;
    for (int i = 0; i < c->n_in; i++) j.unit &= is_unit(&c->in[i]) && (!backward || is_unit(&c->din[i]));
    for (int i = 0; i < c->n_out; i++) j.unit &= is_unit(&c->out[i]) && (!backward || is_unit(&c->dout[i]));
    return j;
}

TN_LEVELED_KERNEL(tn_norm_forward_cpu)
{
    job j = job_of(c, &c->in[TN_NORM_X], false);
    if (j.rows && j.d) tn_pool_run(c->pool, tn_tiles(j.rows, j.per_tile), forward_tile, &j);
    return TN_OK;
}

/* --- backward ---------------------------------------------------------------------------------------------------- */

/* One row's tensors in the backward pass. */
typedef struct row {
    vec s, w, dy, dsum, dx, dr;
    bool add_x, add_r;
    float scale, m0, m1;
} row;

/* Up to BLOCK elements of a row from i0 on, dense: n = normalised s, dn = dL/dn. */
typedef struct block {
    int64_t i0, count;
    float n[BLOCK], dn[BLOCK];
} block;

INLINE void load_block(const row *k, block *b, int64_t i0, int64_t d)
{
    b->i0 = i0;
    b->count = d - i0 < BLOCK ? d - i0 : BLOCK;
    for (int64_t i = 0; i < b->count; i++) b->n[i] = ((get(k->s, i0 + i) - k->m0) - k->m1) * k->scale;
    if (k->w.p)
        for (int64_t i = 0; i < b->count; i++) b->dn[i] = get(k->dy, i0 + i) * get(k->w, i0 + i);
    else
        for (int64_t i = 0; i < b->count; i++) b->dn[i] = get(k->dy, i0 + i);
}

/* Adds dn and dn n to the lanes. */
static void sum_block(const block *b, float *restrict first, float *restrict second)
{
    int64_t i = 0;
    for (; i + LANES <= b->count; i += LANES)
        for (int l = 0; l < LANES; l++) {
            first[l] += b->dn[i + l];
            second[l] += b->dn[i + l] * b->n[i + l];
        }
    for (int l = 0; i < b->count; i++, l++) {
        first[l] += b->dn[i];
        second[l] += b->dn[i] * b->n[i];
    }
}

INLINE void put(vec v, int64_t i, float x, bool add)
{
    float *p = &v.p[i * v.step];
    *p = add ? *p + x : x;
}

INLINE void put_block(vec v, int64_t i0, int64_t count, const float *x, bool add)
{
    if (!v.p) return;
    if (add)
        for (int64_t i = 0; i < count; i++) v.p[(i0 + i) * v.step] += x[i];
    else
        for (int64_t i = 0; i < count; i++) v.p[(i0 + i) * v.step] = x[i];
}

/* ds = scale (dn - mean dn - n mean(dn n)) + dsum, the first mean for layernorm only; dx = dr = ds. */
INLINE void row_backward(const job *j, const row *k, block *b)
{
    const int64_t d = j->d;
    float first[LANES] = { 0 }, second[LANES] = { 0 };
    for (int64_t i0 = 0; k->dy.p && i0 < d; i0 += BLOCK) {
        load_block(k, b, i0, d);
        sum_block(b, first, second);
    }
    const float mean = j->kind == TN_NORM_RMS ? 0 : fold(first) / (float)d, along = fold(second) / (float)d;
    for (int64_t i0 = 0; i0 < d; i0 += BLOCK) {
        float ds[BLOCK];
        const int64_t count = d - i0 < BLOCK ? d - i0 : BLOCK;
        if (k->dy.p && d > BLOCK) load_block(k, b, i0, d); /* else it is still there */
        for (int64_t i = 0; k->dy.p && i < count; i++) ds[i] = k->scale * (b->dn[i] - mean - b->n[i] * along);
        for (int64_t i = 0; !k->dy.p && i < count; i++) ds[i] = 0;
        for (int64_t i = 0; k->dsum.p && i < count; i++) ds[i] += get(k->dsum, i0 + i);
        put_block(k->dx, i0, count, ds, k->add_x);
        put_block(k->dr, i0, count, ds, k->add_r);
    }
}

INLINE void weights_backward(const job *j, const row *k, float *restrict dw, float *restrict db)
{
    for (int64_t i = 0; dw && i < j->d; i++) dw[i] += get(k->dy, i) * (((get(k->s, i) - k->m0) - k->m1) * k->scale);
    for (int64_t i = 0; db && i < j->d; i++) db[i] += get(k->dy, i);
}

/* The tensors of all rows; loads row i from them. */
typedef struct tensors {
    rowset s, dy, dsum, dx, dr, stat;
} tensors;

static tensors tensors_of(const tn_call *c)
{
    const bool two = c->n_out == 3;
    return (tensors){ .s = rows_in(two ? &c->out[TN_NORM_SUM] : &c->in[TN_NORM_X]),
                      .dy = rows_in(&c->dout[TN_NORM_Y]),
                      .dsum = rows_in(two ? &c->dout[TN_NORM_SUM] : &none),
                      .dx = rows_in(&c->din[TN_NORM_X]),
                      .dr = rows_in(&c->din[TN_NORM_RESIDUAL]),
                      .stat = rows_in(&c->out[c->n_out - 1]) };
}

INLINE row load_row(const job *j, const tensors *t, int64_t i)
{
    const float *stat = row_of(&t->stat, i).p;
    row k = { .s = row_of(&t->s, i),
              .w = all_of(&j->c->in[TN_NORM_W]),
              .dy = row_of(&t->dy, i),
              .dsum = row_of(&t->dsum, i),
              .dx = row_of(&t->dx, i),
              .dr = row_of(&t->dr, i),
              .add_x = j->c->accumulate >> TN_NORM_X & 1,
              .add_r = j->c->accumulate >> TN_NORM_RESIDUAL & 1 };
    if (stat) k.scale = stat[0];
    if (stat && j->kind == TN_NORM_LAYER) k.m0 = stat[1], k.m1 = stat[2];
    return k;
}

INLINE row unit_row(row k)
{
    k.s = unit(k.s), k.w = unit(k.w), k.dy = unit(k.dy), k.dsum = unit(k.dsum), k.dx = unit(k.dx), k.dr = unit(k.dr);
    return k;
}

INLINE void one_row(const job *j, row k, block *b, float *dw, float *db)
{
    if (k.dx.p || k.dr.p) row_backward(j, &k, b);
    if (k.dy.p) weights_backward(j, &k, dw, db);
}

static void backward_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    const tn_call *c = j->c;
    const tensors t = tensors_of(c);
    block b;
    float *dw = c->din[TN_NORM_W].data ? j->partial + tile * 2 * j->d : NULL;
    float *db = c->din[TN_NORM_B].data ? j->partial + (tile * 2 + 1) * j->d : NULL;
    const int64_t end = (tile + 1) * j->per_tile < j->rows ? (tile + 1) * j->per_tile : j->rows;
    for (int64_t i = 0; dw && i < j->d; i++) dw[i] = 0;
    for (int64_t i = 0; db && i < j->d; i++) db[i] = 0;
    for (int64_t i = tile * j->per_tile; i < end; i++) {
        const row k = load_row(j, &t, i);
        if (j->unit) one_row(j, unit_row(k), &b, dw, db);
        else one_row(j, k, &b, dw, db);
    }
}

/* Column i of dw and db: the tiles in order. */
static void reduce_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    const int64_t end = (tile + 1) * COLUMNS < j->d ? (tile + 1) * COLUMNS : j->d,
                  tiles = tn_tiles(j->rows, j->per_tile);
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

TN_LEVELED_KERNEL(tn_norm_backward_cpu)
{
    const tn_arg *dy = &c->dout[TN_NORM_Y];
    job j = job_of(c, dy->data || c->n_out == 2 ? dy : &c->dout[TN_NORM_SUM], true);
    j.partial = c->work;
    if (!j.d) return TN_OK;
    if (j.rows) tn_pool_run(c->pool, tn_tiles(j.rows, j.per_tile), backward_tile, &j);
    if (c->din[TN_NORM_W].data || c->din[TN_NORM_B].data) tn_pool_run(c->pool, tn_tiles(j.d, COLUMNS), reduce_tile, &j);
    return TN_OK;
}
