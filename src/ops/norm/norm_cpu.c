/* norm on the CPU: tiles of rows. Sums over a row go in 16 lanes of float, then pairwise; weight gradients in float
 * over a tile's rows, then over tiles in double. Tiles depend on the shape alone. A row's numbers for the backward pass
 * are its scale and, for layernorm, its mean as m0 + m1: x - m0 is exact for numbers near the mean, so (x - m0) - m1
 * keeps digits that one float of a large mean would lose.
 *
 * Rows are worked on in stretches of contiguous numbers: the whole row where its numbers lie side by side, else BLOCK of
 * them gathered at a time. Each loop takes 16 numbers a step, the last ones filled up in a buffer. */
#include "backend/cpu/level.h"
#include "backend/cpu/vec.h"
#include "ops/norm/norm.h"
#include "ops/norm/norm_cpu.h"

/* GROUP: rows whose sums are made before the first of them is finished, so that the chain of folding, root and quotient
 * of one row hides behind the sums of the next; as many as stay in the nearest cache. */
enum { BLOCK = 512, COLUMNS = 64, GROUP = 8, GROUP_NUMBERS = 4096 };

typedef struct vec {
    float *p; /* NULL: absent */
    int64_t step;
} vec;

typedef struct job {
    const tn_call *c;
    bool layer;
    float eps;
    int64_t rows, d, per_tile, group;
    int64_t stretch; /* numbers worked on at a time */
    float *partial;  /* (tiles,2,d): weight, bias */
} job;

/* --- stretches ---------------------------------------------------------------------------------------------------- */

/* n numbers of a row from i on: where they lie, or gathered into buf; NULL for an absent row. */
TN_INLINE const float *fetch(vec v, int64_t i, int64_t n, float *buf)
{
    if (!v.p || v.step == 1) return v.p ? v.p + i : NULL;
    for (int64_t k = 0; k < n; k++) buf[k] = v.p[(i + k) * v.step];
    return buf;
}

/* Where to write them; bring puts them back from there. */
TN_INLINE float *place(vec v, int64_t i, float *buf) { return !v.p || v.step == 1 ? (v.p ? v.p + i : NULL) : buf; }

TN_INLINE void bring(vec v, int64_t i, int64_t n, const float *from)
{
    if (!v.p || v.step == 1) return;
    for (int64_t k = 0; k < n; k++) v.p[(i + k) * v.step] = from[k];
}

/* The last, incomplete step of a loop: up to 15 numbers with `fill` behind them; NULL stays NULL. */
TN_INLINE float *fill_up(const float *x, int64_t n, float fill, float *buf)
{
    if (!x) return NULL;
    for (int l = 0; l < TN_LANES; l++) buf[l] = l < n ? x[l] : fill;
    return buf;
}

/* --- forward ----------------------------------------------------------------------------------------------------- */

typedef struct sums {
    tn_vec first[TN_VECS], second[TN_VECS];
} sums;

TN_INLINE void add_16(float *s, const float *x, const float *r)
{
    TN_UNROLL
    for (int k = 0; k < TN_LANES; k += TN_VEC) tn_vec_put(s + k, tn_vec_get(x + k) + tn_vec_get(r + k));
}

/* Sums of x - m, and of its square. */
TN_INLINE void sum_16(sums *t, const float *x, float m, bool first, bool second)
{
    TN_UNROLL
    for (int k = 0; k < TN_VECS; k++) {
        const tn_vec v = tn_vec_get(x + k * TN_VEC) - m;
        if (first) t->first[k] += v;
        if (second) t->second[k] += v * v;
    }
}

TN_INLINE void sum_stretch(sums *t, const float *x, int64_t n, float m, bool first, bool second)
{
    float last[TN_LANES];
    sums local = *t; /* in registers */
    int64_t i = 0;
    for (; i + TN_LANES <= n; i += TN_LANES) sum_16(&local, x + i, m, first, second);
    if (i < n) sum_16(&local, fill_up(x + i, n - i, m, last), m, first, second);
    *t = local;
}

/* Sums over a whole row. */
TN_INLINE sums sum_row(const job *j, vec x, float m, bool first, bool second)
{
    sums t = { 0 };
    float buf[BLOCK];
    for (int64_t i = 0; i < j->d; i += j->stretch) {
        const int64_t n = j->d - i < j->stretch ? j->d - i : j->stretch;
        sum_stretch(&t, fetch(x, i, n, buf), n, m, first, second);
    }
    return t;
}

/* y = ((x - m0) - m1) scale w + b; the means are those of layernorm. w and b may be NULL. */
TN_INLINE void write_16(float *y, const float *x, const float *w, const float *b, float scale, float m0, float m1,
                        bool layer)
{
    TN_UNROLL
    for (int k = 0; k < TN_LANES; k += TN_VEC) {
        tn_vec v = tn_vec_get(x + k);
        if (layer) v = (v - m0) - m1;
        v *= scale;
        if (w && b) v = v * tn_vec_get(w + k) + tn_vec_get(b + k);
        else if (w) v *= tn_vec_get(w + k);
        else if (b) v += tn_vec_get(b + k);
        tn_vec_put(y + k, v);
    }
}

TN_INLINE void write_stretch(float *y, const float *x, const float *w, const float *b, int64_t n, const float *stat,
                             bool layer)
{
    float last[3][TN_LANES];
    const float scale = stat[0], m0 = layer ? stat[1] : 0, m1 = layer ? stat[2] : 0;
    int64_t i = 0;
    if (w && b)
        for (; i + TN_LANES <= n; i += TN_LANES) write_16(y + i, x + i, w + i, b + i, scale, m0, m1, layer);
    else if (w)
        for (; i + TN_LANES <= n; i += TN_LANES) write_16(y + i, x + i, w + i, NULL, scale, m0, m1, layer);
    else
        for (; i + TN_LANES <= n; i += TN_LANES) write_16(y + i, x + i, NULL, b ? b + i : NULL, scale, m0, m1, layer);
    if (i == n) return;
    x = fill_up(x + i, n - i, 0, last[0]);
    w = w ? fill_up(w + i, n - i, 0, last[1]) : NULL;
    b = b ? fill_up(b + i, n - i, 0, last[2]) : NULL;
    write_16(last[0], x, w, b, scale, m0, m1, layer);
    memcpy(y + i, last[0], sizeof *y * (size_t)(n - i));
}

static void add_rows(const job *j, vec s, vec x, vec r)
{
    float buf[3][BLOCK], last[2][TN_LANES];
    for (int64_t i = 0; i < j->d; i += j->stretch) {
        const int64_t n = j->d - i < j->stretch ? j->d - i : j->stretch;
        const float *a = fetch(x, i, n, buf[0]), *b = fetch(r, i, n, buf[1]);
        float *to = place(s, i, buf[2]);
        int64_t k = 0;
        for (; k + TN_LANES <= n; k += TN_LANES) add_16(to + k, a + k, b + k);
        if (k < n) {
            add_16(last[0], fill_up(a + k, n - k, 0, last[0]), fill_up(b + k, n - k, 0, last[1]));
            memcpy(to + k, last[0], sizeof *to * (size_t)(n - k));
        }
        bring(s, i, n, to);
    }
}

TN_INLINE void measure_row(const job *j, vec x, float *stat, bool layer)
{
    const float n = (float)j->d;
    if (!layer) {
        stat[0] = 1 / sqrtf(tn_lanes_fold(sum_row(j, x, 0, false, true).second) / n + j->eps);
        return;
    }
    const float m0 = tn_lanes_fold(sum_row(j, x, 0, true, false).first) / n;
    const sums t = sum_row(j, x, m0, true, true);
    const float m1 = tn_lanes_fold(t.first) / n;
    stat[0] = 1 / sqrtf(tn_lanes_fold(t.second) / n - m1 * m1 + j->eps);
    stat[1] = m0, stat[2] = m1;
}

TN_INLINE void write_row(const job *j, vec x, vec w, vec b, vec y, const float *stat, bool layer)
{
    float buf[4][BLOCK];
    for (int64_t i = 0; i < j->d; i += j->stretch) {
        const int64_t n = j->d - i < j->stretch ? j->d - i : j->stretch;
        float *to = place(y, i, buf[3]);
        write_stretch(to, fetch(x, i, n, buf[0]), fetch(w, i, n, buf[1]), fetch(b, i, n, buf[2]), n, stat, layer);
        bring(y, i, n, to);
    }
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

static vec all_of(const tn_arg *a) { return (vec){ a->data, a->data ? a->stride[0] : 0 }; }

static bool is_unit(const tn_arg *a) { return !a->data || tn_row_step(a) == 1; }

static const tn_arg none = { .data = NULL };

static void forward_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    const tn_call *c = j->c;
    const rowset rs = rows_in(&c->in[TN_NORM_RESIDUAL]), ys = rows_in(&c->out[TN_NORM_Y]),
                 xs = rows_in(&c->in[TN_NORM_X]);
    const rowset added = rows_in(c->n_out == 3 ? &c->out[TN_NORM_SUM] : &none), stats = rows_in(&c->out[c->n_out - 1]);
    const rowset *from = rs.a->data ? &added : &xs;
    const vec w = all_of(&c->in[TN_NORM_W]), b = all_of(&c->in[TN_NORM_B]);
    const int64_t end = (tile + 1) * j->per_tile < j->rows ? (tile + 1) * j->per_tile : j->rows;
    for (int64_t i = tile * j->per_tile; i < end; i += j->group) {
        const int64_t last = i + j->group < end ? i + j->group : end;
        for (int64_t k = i; k < last; k++) {
            if (rs.a->data) add_rows(j, row_of(&added, k), row_of(&xs, k), row_of(&rs, k));
            if (j->layer) measure_row(j, row_of(from, k), row_of(&stats, k).p, true);
            else measure_row(j, row_of(from, k), row_of(&stats, k).p, false);
        }
        for (int64_t k = i; k < last; k++) {
            if (j->layer) write_row(j, row_of(from, k), w, b, row_of(&ys, k), row_of(&stats, k).p, true);
            else write_row(j, row_of(from, k), w, b, row_of(&ys, k), row_of(&stats, k).p, false);
        }
    }
}

static job job_of(const tn_call *c, const tn_arg *live, bool backward)
{
    const tn_norm_attr *a = c->attr;
    const tn_dims dims = c->in[TN_NORM_X].dims;
    job j = { .c = c,
              .layer = a->kind == TN_NORM_LAYER,
              .eps = a->eps,
              .rows = tn_norm_rows(dims),
              .d = dims.dim[dims.rank - 1] };
    j.per_tile = tn_norm_tile(j.rows, j.d, backward);
    if (dims.rank > 1) j.rows = tn_arg_rows(live);
    bool unit = true;
    for (int i = 0; i < c->n_in; i++) unit &= is_unit(&c->in[i]) && (!backward || is_unit(&c->din[i]));
    for (int i = 0; i < c->n_out; i++) unit &= is_unit(&c->out[i]) && (!backward || is_unit(&c->dout[i]));
    j.stretch = unit ? j.d : BLOCK;
    j.group = GROUP_NUMBERS / (j.d + 1) + 1;
    if (j.group > GROUP) j.group = GROUP;
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

/* A stretch of a row: n numbers of each, NULL where absent. */
typedef struct stretch {
    const float *s, *w, *dy, *dsum;
    float *dx, *dr, *dw, *db;
    int64_t n;
} stretch;

/* What a row's sums become: ds = scale dn - c0 - c1 (s - mean) + dsum. */
typedef struct slope {
    float c0, c1;
} slope;

/* Sums of dn = dL/dn and of dn n, n the normalised s; dw and db get this row's part. */
TN_INLINE void learn_16(sums *t, const row *k, const float *s, const float *w, const float *dy, float *dw, float *db,
                        bool layer)
{
    TN_UNROLL
    for (int v = 0; v < TN_VECS; v++) {
        const int at = v * TN_VEC;
        const tn_vec x = tn_vec_get(s + at), d = tn_vec_get(dy + at), dn = w ? d * tn_vec_get(w + at) : d;
        const tn_vec n = (layer ? (x - k->m0) - k->m1 : x) * k->scale;
        if (layer) t->first[v] += dn;
        t->second[v] += dn * n;
        if (dw) tn_vec_put(dw + at, tn_vec_get(dw + at) + d * n);
        if (db) tn_vec_put(db + at, tn_vec_get(db + at) + d);
    }
}

TN_INLINE void learn_stretch(sums *t, const row *k, const stretch *e, bool layer)
{
    float last[5][TN_LANES];
    sums local = *t;
    int64_t i = 0;
    if (e->w && e->dw && !e->db)
        for (; i + TN_LANES <= e->n; i += TN_LANES)
            learn_16(&local, k, e->s + i, e->w + i, e->dy + i, e->dw + i, NULL, layer);
    else if (e->w && e->dw)
        for (; i + TN_LANES <= e->n; i += TN_LANES)
            learn_16(&local, k, e->s + i, e->w + i, e->dy + i, e->dw + i, e->db + i, layer);
    else
        for (; i + TN_LANES <= e->n; i += TN_LANES)
            learn_16(&local, k, e->s + i, e->w ? e->w + i : NULL, e->dy + i, e->dw ? e->dw + i : NULL,
                     e->db ? e->db + i : NULL, layer);
    if (i < e->n) {
        const int64_t left = e->n - i;
        float *dw = e->dw ? fill_up(e->dw + i, left, 0, last[3]) : NULL,
              *db = e->db ? fill_up(e->db + i, left, 0, last[4]) : NULL;
        learn_16(&local, k, fill_up(e->s + i, left, 0, last[0]), e->w ? fill_up(e->w + i, left, 0, last[1]) : NULL,
                 fill_up(e->dy + i, left, 0, last[2]), dw, db, layer);
        if (dw) memcpy(e->dw + i, dw, sizeof *dw * (size_t)left);
        if (db) memcpy(e->db + i, db, sizeof *db * (size_t)left);
    }
    *t = local;
}

/* ds = scale (dn - mean - n along), written scale dn - c0 - c1 ((s - m0) - m1). `weighted` is whether w is there: said
 * with a constant, as compilers do not see that a pointer into an array cannot be NULL. */
TN_INLINE void turn_16(float *ds, const row *k, const float *s, const float *w, const float *dy, slope c, bool weighted,
                       bool layer)
{
    TN_UNROLL
    for (int at = 0; at < TN_LANES; at += TN_VEC) {
        const tn_vec x = tn_vec_get(s + at), d = tn_vec_get(dy + at);
        const tn_vec dn = weighted ? d * tn_vec_get(w + at) : d, scale = tn_vec_all(k->scale), c1 = tn_vec_all(-c.c1);
        const tn_vec moved = layer ? tn_vec_fma(dn, scale, tn_vec_all(-c.c0)) : dn * scale;
        tn_vec_put(ds + at, tn_vec_fma(layer ? (x - k->m0) - k->m1 : x, c1, moved));
    }
}

/* dx and dr of n <= TN_LANES numbers from ds. */
TN_INLINE void finish(float *ds, const row *k, const stretch *e, int64_t i, int64_t n)
{
    for (int64_t l = 0; e->dsum && l < n; l++) ds[l] += e->dsum[i + l];
    if (e->dx && k->add_x)
        for (int64_t l = 0; l < n; l++) e->dx[i + l] += ds[l];
    else if (e->dx) memcpy(e->dx + i, ds, sizeof *ds * (size_t)n);
    if (e->dr && k->add_r)
        for (int64_t l = 0; l < n; l++) e->dr[i + l] += ds[l];
    else if (e->dr) memcpy(e->dr + i, ds, sizeof *ds * (size_t)n);
}

/* The common case first: one gradient, overwritten. */
TN_INLINE void turn_stretch(const row *k, const stretch *e, slope c, bool layer)
{
    float last[3][TN_LANES];
    int64_t i = 0;
    const bool simple = e->dy && e->w && e->dx && !e->dsum && !e->dr && !k->add_x;
    for (; simple && i + TN_LANES <= e->n; i += TN_LANES)
        turn_16(e->dx + i, k, e->s + i, e->w + i, e->dy + i, c, true, layer);
    for (; i + TN_LANES <= e->n; i += TN_LANES) {
        float ds[TN_LANES] = { 0 };
        if (e->dy && e->w) turn_16(ds, k, e->s + i, e->w + i, e->dy + i, c, true, layer);
        else if (e->dy) turn_16(ds, k, e->s + i, NULL, e->dy + i, c, false, layer);
        finish(ds, k, e, i, TN_LANES);
    }
    if (i == e->n) return;
    float ds[TN_LANES] = { 0 };
    const int64_t left = e->n - i;
    const float *s = e->dy ? fill_up(e->s + i, left, 0, last[0]) : NULL,
                *dy = e->dy ? fill_up(e->dy + i, left, 0, last[1]) : NULL;
    if (dy && e->w) turn_16(ds, k, s, fill_up(e->w + i, left, 0, last[2]), dy, c, true, layer);
    else if (dy) turn_16(ds, k, s, NULL, dy, c, false, layer);
    finish(ds, k, e, i, left);
}

typedef struct buffers {
    float s[BLOCK], w[BLOCK], dy[BLOCK], dsum[BLOCK], dx[BLOCK], dr[BLOCK];
} buffers;

TN_INLINE stretch stretch_of(const job *j, const row *k, int64_t i, buffers *b, float *dw, float *db)
{
    stretch e = { .n = j->d - i < j->stretch ? j->d - i : j->stretch };
    e.s = fetch(k->s, i, e.n, b->s), e.w = fetch(k->w, i, e.n, b->w), e.dy = fetch(k->dy, i, e.n, b->dy);
    e.dsum = fetch(k->dsum, i, e.n, b->dsum);
    e.dx = place(k->dx, i, b->dx), e.dr = place(k->dr, i, b->dr);
    if (e.dx && k->add_x) (void)fetch(k->dx, i, e.n, b->dx);
    if (e.dr && k->add_r) (void)fetch(k->dr, i, e.n, b->dr);
    e.dw = dw ? dw + i : NULL, e.db = db ? db + i : NULL;
    return e;
}

TN_INLINE slope learn_row(const job *j, const row *k, buffers *b, float *dw, float *db, bool layer)
{
    const float d = (float)j->d;
    sums t = { 0 };
    for (int64_t i = 0; k->dy.p && i < j->d; i += j->stretch) {
        const stretch e = stretch_of(j, k, i, b, dw, db);
        if (e.s) learn_stretch(&t, k, &e, layer);
        else
            for (int64_t l = 0; l < e.n; l++) e.db[l] += e.dy[l]; /* the bias alone is wanted: nothing else is kept */
    }
    const float mean = layer ? tn_lanes_fold(t.first) / d : 0, along = tn_lanes_fold(t.second) / d;
    return (slope){ k->scale * mean, k->scale * k->scale * along };
}

TN_INLINE void turn_row(const job *j, const row *k, buffers *b, slope c, bool layer)
{
    for (int64_t i = 0; i < j->d; i += j->stretch) {
        const stretch e = stretch_of(j, k, i, b, NULL, NULL);
        turn_stretch(k, &e, c, layer);
        bring(k->dx, i, e.n, e.dx);
        bring(k->dr, i, e.n, e.dr);
    }
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

TN_INLINE row load_row(const job *j, const tensors *t, int64_t i)
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
    if (stat && j->layer) k.m0 = stat[1], k.m1 = stat[2];
    return k;
}

static void backward_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    const tn_call *c = j->c;
    const tensors t = tensors_of(c);
    const bool turns = c->din[TN_NORM_X].data || c->din[TN_NORM_RESIDUAL].data;
    buffers b;
    float *dw = c->din[TN_NORM_W].data ? j->partial + tile * 2 * j->d : NULL;
    float *db = c->din[TN_NORM_B].data ? j->partial + (tile * 2 + 1) * j->d : NULL;
    const int64_t end = (tile + 1) * j->per_tile < j->rows ? (tile + 1) * j->per_tile : j->rows;
    for (int64_t i = 0; dw && i < j->d; i++) dw[i] = 0;
    for (int64_t i = 0; db && i < j->d; i++) db[i] = 0;
    for (int64_t i = tile * j->per_tile; i < end; i += j->group) {
        const int64_t n = end - i < j->group ? end - i : j->group;
        slope slopes[GROUP];
        for (int64_t r = 0; r < n; r++) {
            const row k = load_row(j, &t, i + r);
            slopes[r] = j->layer ? learn_row(j, &k, &b, dw, db, true) : learn_row(j, &k, &b, dw, db, false);
        }
        for (int64_t r = 0; turns && r < n; r++) {
            const row k = load_row(j, &t, i + r);
            if (j->layer) turn_row(j, &k, &b, slopes[r], true);
            else turn_row(j, &k, &b, slopes[r], false);
        }
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
            to.p[i * to.step] = (float)s + (j->c->accumulate >> input & 1 ? to.p[i * to.step] : 0);
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
