/* softmax on the CPU: tiles of whole rows. Sums run in sixteen lanes of f32 over pieces of 512 and in double over the
 * pieces: a fixed order, and no error that grows with the row. Weights below e^-87 of the largest are 0. y may be x, and
 * dx may be dy. */
#include "backend/cpu/level.h"
#include "backend/cpu/vec.h"
#include "ops/elem.h"
#include "ops/rows.h"
#include "ops/softmax/softmax.h"

tn_kernel tn_softmax_forward_cpu, tn_softmax_backward_cpu;

enum { LANES = TN_LANES };
_Static_assert((int)TN_LANES == (int)TN_V_BLOCK, "a block fills the lanes once");

typedef struct job {
    const tn_arg *x, *mask, *y, *dy, *dx; /* (rows, n) */
    tn_softmax_attr attr;
    bool add;
    int64_t rows, n, per_tile;
} job;

/* The largest of sign x over n numbers, NaN left out; -inf for none. */
TN_INLINE float largest(const float *x, int64_t n, float sign)
{
    tn_vec lane[TN_VECS];
    for (int k = 0; k < TN_VECS; k++) lane[k] = (tn_vec){ 0 } - INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        TN_UNROLL
        for (int k = 0; k < TN_VECS; k++) {
            const tn_vec v = sign * tn_vec_get(x + i + k * TN_VEC);
            lane[k] = tn_vec_max(v, lane[k]);
        }
    }
    float most = tn_lanes_max(lane);
    for (; i < n; i++) most = sign * x[i] > most ? sign * x[i] : most;
    return most;
}

/* Sum of x, or of x y where y is not NULL. */
TN_INLINE double sum_piece(const float *x, const float *y, int64_t n)
{
    tn_vec lane[TN_VECS] = { 0 };
    float rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        TN_UNROLL
        for (int k = 0; k < LANES; k += TN_VEC) {
            const tn_vec v = tn_vec_get(x + i + k);
            lane[k / TN_VEC] += y ? v * tn_vec_get(y + i + k) : v;
        }
    }
    for (; i < n; i++) rest += y ? x[i] * y[i] : x[i];
    return (double)(tn_lanes_fold(lane) + rest);
}

static double sum(const float *x, const float *y, int64_t n)
{
    double s = 0;
    for (int64_t at = 0; at < n; at += TN_ELEM_PIECE) {
        const int64_t count = n - at < TN_ELEM_PIECE ? n - at : TN_ELEM_PIECE;
        s += y ? sum_piece(x + at, y + at, count) : sum_piece(x + at, NULL, count);
    }
    return s;
}

/* y = e^(scale (sign x - m)): weights relative to the largest, exactly 1 for that. */
typedef struct shape {
    float sign, scale, m; /* scale > 0 */
} shape;

/* One block, added to the lanes. */
TN_INLINE void exp_block(float *y, const float *x, shape f, tn_vec *lane)
{
    float out[LANES];
    TN_UNROLL
    for (int k = 0; k < LANES; k++) out[k] = tn_v_exp_weight(f.scale * (f.sign * x[k] - f.m));
    memcpy(y, out, sizeof out);
    TN_UNROLL
    for (int k = 0; k < TN_VECS; k++) lane[k] += tn_vec_get(out + k * TN_VEC);
}

/* n <= TN_ELEM_PIECE numbers; returns the sum. The last block is filled up with what has the weight 0. */
static double exp_piece(float *y, const float *x, int64_t n, shape f)
{
    tn_vec lane[TN_VECS] = { 0 };
    float last[LANES];
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) exp_block(y + i, x + i, f, lane);
    if (i < n) {
        for (int k = 0; k < LANES; k++) last[k] = i + k < n ? x[i + k] : -f.sign * INFINITY;
        exp_block(last, last, f, lane);
        memcpy(y + i, last, sizeof *y * (size_t)(n - i));
    }
    return (double)tn_lanes_fold(lane);
}

/* The same for a row; y NULL: the sum alone. */
static double exp_row(float *y, const float *x, int64_t n, shape f)
{
    float buf[TN_ELEM_PIECE];
    double s = 0;
    for (int64_t at = 0; at < n; at += TN_ELEM_PIECE)
        s += exp_piece(y ? y + at : buf, x + at, n - at < TN_ELEM_PIECE ? n - at : TN_ELEM_PIECE, f);
    return s;
}

/* Offset of row r of x in the mask, broadcast; *step is 0 when the mask has one column. */
static int64_t mask_row(const job *j, int64_t r, int64_t *step)
{
    const tn_dims x = j->x->dims, m = j->mask->dims;
    int64_t off = 0;
    *step = m.rank && m.dim[m.rank - 1] != 1;
    for (int i = x.rank - 2; i >= 0; i--) {
        const int own = i - (x.rank - m.rank);
        if (own >= 0 && m.dim[own] != 1) off += r % x.dim[i] * j->mask->stride[own];
        r /= x.dim[i];
    }
    return off;
}

static void mask_out(const job *j, int64_t r, float *y)
{
    int64_t step, at = mask_row(j, r, &step);
    const int32_t *whole = (const int32_t *)j->mask->data + at;
    const float *real = (const float *)j->mask->data + at;
    if (j->mask->dtype == TN_I32)
        for (int64_t i = 0; i < j->n; i++) y[i] = whole[i * step] ? y[i] : -INFINITY;
    else
        for (int64_t i = 0; i < j->n; i++) y[i] = real[i * step] != 0 ? y[i] : -INFINITY;
}

static void forward_row(const job *j, int64_t r)
{
    const int64_t n = j->n;
    const float *x = (const float *)j->x->data + r * n;
    float *y = (float *)j->y->data + r * n, scale = j->attr.scale;
    if (j->mask->data) {
        TN_VECTOR
        for (int64_t i = 0; i < n; i++) y[i] = scale * x[i];
        mask_out(j, r, y);
        x = y, scale = 1;
    }
    shape f = { .sign = scale < 0 ? -1 : 1, .scale = fabsf(scale) };
    f.m = scale < 0 ? largest(x, n, -1) : largest(x, n, 1);
    if (f.m == -INFINITY) f.m = 0; /* nothing left: every weight is 0 */
    if (j->attr.log) {
        const double s = exp_row(NULL, x, n, f);
        const float shift = s == 0 ? 0.0f : (float)log(s);
        TN_VECTOR
        for (int64_t i = 0; i < n; i++) y[i] = f.scale * (f.sign * x[i] - f.m) - shift;
        return;
    }
    const double s = exp_row(y, x, n, f);
    const float inverse = s == 0 ? 0.0f : (float)(1 / s);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        TN_UNROLL
        for (int k = 0; k < LANES; k += TN_VEC) tn_vec_put(y + i + k, tn_vec_get(y + i + k) * inverse);
    }
    for (; i < n; i++) y[i] *= inverse;
}

static void backward_row(const job *j, int64_t r)
{
    const int64_t n = j->n;
    const float *y = (const float *)j->y->data + r * n, *dy = (const float *)j->dy->data + r * n, scale = j->attr.scale;
    float *dx = (float *)j->dx->data + r * n;
    const float s = (float)(sum(dy, j->attr.log ? NULL : y, n));
    if (j->attr.log && j->add)
        for (int64_t i = 0; i < n; i++) dx[i] += scale * (dy[i] - tn_v_exp_weight(y[i]) * s);
    else if (j->attr.log) {
        TN_VECTOR
        for (int64_t i = 0; i < n; i++) dx[i] = scale * (dy[i] - tn_v_exp_weight(y[i]) * s);
    } else if (j->add)
        for (int64_t i = 0; i < n; i++) dx[i] += scale * y[i] * (dy[i] - s);
    else {
        TN_VECTOR
        for (int64_t i = 0; i < n; i++) dx[i] = scale * y[i] * (dy[i] - s);
    }
}

static void tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = (t + 1) * j->per_tile < j->rows ? (t + 1) * j->per_tile : j->rows;
    for (int64_t r = t * j->per_tile; r < end; r++) {
        if (j->dx) backward_row(j, r);
        else forward_row(j, r);
    }
}

static tn_status run(const tn_call *c, job *j, const tn_arg *like)
{
    j->attr = *(const tn_softmax_attr *)c->attr;
    j->rows = tn_live_rows(like);
    j->n = tn_live_length(like);
    j->per_tile = tn_tile_rows(j->n);
    if (j->n) tn_pool_run(c->pool, tn_tiles(j->rows, j->per_tile), tile, j);
    return TN_OK;
}

TN_LEVELED_KERNEL(tn_softmax_forward_cpu)
{
    job j = { .x = &c->in[0], .mask = &c->in[1], .y = &c->out[0] };
    return run(c, &j, &c->in[0]);
}

TN_LEVELED_KERNEL(tn_softmax_backward_cpu)
{
    job j = { .y = &c->out[0], .dy = &c->dout[0], .dx = &c->din[0], .add = c->accumulate & 1 };
    return run(c, &j, &c->dout[0]);
}
