/* softmax on the CPU: tiles of whole rows. Sums run in eight lanes of f32 over pieces of 512 and in double over the
 * pieces: a fixed order, and no error that grows with the row. y may be x, and dx may be dy. */
#include "backend/cpu/level.h"
#include "ops/elem.h"
#include "ops/rows.h"
#include "ops/softmax/softmax.h"

tn_kernel tn_softmax_forward_cpu, tn_softmax_backward_cpu;

enum { LANES = 8 };

typedef struct job {
    const tn_arg *x, *mask, *y, *dy, *dx; /* (rows, n) */
    tn_softmax_attr attr;
    bool add;
    int64_t rows, n, per_tile;
} job;

/* The largest of n numbers, NaN left out; -inf for none. */
static float largest(const float *x, int64_t n)
{
    float lane[LANES];
    for (int k = 0; k < LANES; k++) lane[k] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] = tn_v_pick(x[i + k] > lane[k], x[i + k], lane[k]);
    for (; i < n; i++) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    for (int k = 1; k < LANES; k++) lane[0] = lane[k] > lane[0] ? lane[k] : lane[0];
    return lane[0];
}

static double add_lanes(const float *lane)
{
    double s = 0;
    for (int k = 0; k < LANES; k++) s += (double)lane[k];
    return s;
}

static double sum(const float *x, int64_t n)
{
    double s = 0;
    for (int64_t at = 0; at < n; at += TN_ELEM_PIECE) {
        const int64_t end = at + TN_ELEM_PIECE < n ? at + TN_ELEM_PIECE : n;
        float lane[LANES] = { 0 };
        int64_t i = at;
        for (; i + LANES <= end; i += LANES)
            for (int k = 0; k < LANES; k++) lane[k] += x[i + k];
        for (; i < end; i++) lane[0] += x[i];
        s += add_lanes(lane);
    }
    return s;
}

static double dot(const float *x, const float *y, int64_t n)
{
    double s = 0;
    for (int64_t at = 0; at < n; at += TN_ELEM_PIECE) {
        const int64_t end = at + TN_ELEM_PIECE < n ? at + TN_ELEM_PIECE : n;
        float lane[LANES] = { 0 };
        int64_t i = at;
        for (; i + LANES <= end; i += LANES)
            for (int k = 0; k < LANES; k++) lane[k] += x[i + k] * y[i + k];
        for (; i < end; i++) lane[0] += x[i] * y[i];
        s += add_lanes(lane);
    }
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
    const float *x = (const float *)j->x->data + r * n, scale = j->attr.scale;
    float *y = (float *)j->y->data + r * n, m, buf[TN_ELEM_PIECE];
    TN_VECTOR
    for (int64_t i = 0; i < n; i++) y[i] = scale * x[i];
    if (j->mask->data) mask_out(j, r, y);
    m = largest(y, n);
    if (m == -INFINITY) m = 0; /* nothing left: every e^(y - m) is 0 */
    if (!j->attr.log) {
        TN_VECTOR
        for (int64_t i = 0; i < n; i++) y[i] -= m;
        tn_v_map(y, y, n, tn_v_exp_below);
        const double s = sum(y, n);
        const float inverse = s == 0 ? 0.0f : (float)(1 / s);
        for (int64_t i = 0; i < n; i++) y[i] *= inverse;
        return;
    }
    double s = 0;
    for (int64_t at = 0; at < n; at += TN_ELEM_PIECE) {
        const int64_t count = n - at < TN_ELEM_PIECE ? n - at : TN_ELEM_PIECE;
        for (int64_t i = 0; i < count; i++) buf[i] = y[at + i] - m;
        tn_v_map(buf, buf, count, tn_v_exp_below);
        s += sum(buf, count);
    }
    const float shift = s == 0 ? 0.0f : (float)log(s);
    for (int64_t i = 0; i < n; i++) y[i] = (y[i] - m) - shift;
}

static void backward_row(const job *j, int64_t r)
{
    const int64_t n = j->n;
    const float *y = (const float *)j->y->data + r * n, *dy = (const float *)j->dy->data + r * n, scale = j->attr.scale;
    float *dx = (float *)j->dx->data + r * n;
    const float s = (float)(j->attr.log ? sum(dy, n) : dot(dy, y, n));
    if (j->attr.log && j->add)
        for (int64_t i = 0; i < n; i++) dx[i] += scale * (dy[i] - tn_v_exp_below(y[i]) * s);
    else if (j->attr.log) {
        TN_VECTOR
        for (int64_t i = 0; i < n; i++) dx[i] = scale * (dy[i] - tn_v_exp_below(y[i]) * s);
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

static tn_status run(const tn_call *c, job *j, const tn_arg *shape)
{
    j->attr = *(const tn_softmax_attr *)c->attr;
    j->rows = tn_live_rows(shape);
    j->n = tn_live_length(shape);
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
