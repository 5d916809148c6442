/* linear on the CPU: every matrix product is one tn_product; the sum for the bias runs down columns in double, in the
 * order of the rows, so no bits depend on threads. Vectors are contiguous: views never drop an axis. */
#include "backend/cpu/vmath.h"
#include "ops/linear/linear.h"
#include "ops/product.h"
#include "ops/rows.h"
#include "ops/slots.h"

tn_kernel tn_linear_forward_cpu, tn_linear_backward_cpu;

enum {
    X = TN_LINEAR_X,
    W = TN_LINEAR_W,
    BIAS = TN_LINEAR_BIAS,
    RESIDUAL = TN_LINEAR_RESIDUAL,
    PACKED = TN_LINEAR_PACKED
};
enum { BIAS_COLUMNS = 32 }; /* columns summed by one tile: a few cache lines of every row */

static const tn_gemm_act gemm_act[TN_ACTS] = {
    [TN_ACT_NONE] = TN_GEMM_ACT_NONE, [TN_ACT_GELU] = TN_GEMM_ACT_GELU_TANH, [TN_ACT_GELU_ERF] = TN_GEMM_ACT_GELU_ERF,
    [TN_ACT_SILU] = TN_GEMM_ACT_SILU, [TN_ACT_TANH] = TN_GEMM_ACT_TANH,      [TN_ACT_SIGMOID] = TN_GEMM_ACT_SIGMOID,
    [TN_ACT_RELU] = TN_GEMM_ACT_RELU,
};

/* The leading axes of x, cut to what is alive. A vector is one row. */
static int leading_axes(const tn_arg *x, tn_product_axis *axis)
{
    int n = 0;
    for (; n < x->dims.rank - 1; n++) axis[n] = (tn_product_axis){ .dim = x->dims.dim[n] };
    if (n && x->live && *x->live < axis[0].dim) axis[0].dim = *x->live < 0 ? 0 : *x->live;
    return n;
}

/* Adds rows (or copies them); rows of `to` that are dead in `from` become 0, or stay where they are added to. */
typedef struct rows_job {
    const tn_arg *from, *to;
    bool add;
    int64_t rows, live, n, per_tile;
} rows_job;

static void rows_tile(void *arg, int64_t t)
{
    const rows_job *j = arg;
    const int64_t end = (t + 1) * j->per_tile < j->rows ? (t + 1) * j->per_tile : j->rows;
    const int64_t from = tn_row_step(j->from), to = tn_row_step(j->to);
    for (int64_t r = t * j->per_tile; r < end; r++) {
        const float *x = (const float *)j->from->data + tn_row_offset(j->from, r);
        float *y = (float *)j->to->data + tn_row_offset(j->to, r);
        if (r >= j->live)
            for (int64_t i = 0; i < j->n && !j->add; i++) y[i * to] = 0;
        else if (j->add)
            for (int64_t i = 0; i < j->n; i++) y[i * to] += x[i * from];
        else
            for (int64_t i = 0; i < j->n; i++) y[i * to] = x[i * from];
    }
}

static void move_rows(const tn_call *c, const tn_arg *from, const tn_arg *to, bool add)
{
    rows_job j = { .from = from, .to = to, .add = add, .rows = tn_live_rows(to), .live = tn_live_rows(from) };
    j.n = tn_row_length(to);
    j.per_tile = tn_tile_rows(j.n);
    if (j.n) tn_pool_run(c->pool, tn_tiles(j.rows, j.per_tile), rows_tile, &j);
}

tn_status tn_linear_forward_cpu(const tn_call *c)
{
    const tn_linear_attr *attr = c->attr;
    const tn_arg *x = &c->in[X], *w = &c->in[W], *r = &c->in[RESIDUAL], *y = &c->out[0];
    const bool fused = r->data && tn_row_step(r) == 1; /* the GEMM adds contiguous rows only */
    const int64_t n = w->dims.dim[0];
    tn_product p = { .c_col = 1 };
    p.g = (tn_gemm){ .m = 1,
                     .n = n,
                     .k = w->dims.dim[1],
                     .a = x->data,
                     .a_col = tn_row_step(x),
                     .a_type = x->dtype,
                     .b = w->data,
                     .b_row = w->stride[1],
                     .b_col = w->stride[0],
                     .b_type = w->dtype,
                     .packed_b = c->in[PACKED].data,
                     .share_b = true,
                     .c = y->data,
                     .c_row = n,
                     .round = c->round,
                     .bf16x3 = c->bf16x3,
                     .portable_only = c->portable,
                     .alpha = 1,
                     .bias = c->in[BIAS].data,
                     .act = gemm_act[attr->act],
                     .pre = c->n_out > 1 ? c->out[1].data : NULL,
                     .residual = fused ? r->data : NULL,
                     .residual_row = n };
    p.axes = leading_axes(x, p.axis);
    for (int i = 0; i < p.axes; i++) {
        p.axis[i].a = x->stride[i];
        p.axis[i].c = y->stride[i];
        p.axis[i].pre = y->stride[i];
        p.axis[i].residual = fused ? r->stride[i] : 0;
    }
    tn_product_run(c->pool, &p, c->work);
    if (r->data && !fused) {
        tn_arg residual = *r;
        residual.live = y->live;
        move_rows(c, &residual, y, true);
    }
    return TN_OK;
}

/* --- before the activation --------------------------------------------------------------------------------------- */

typedef struct pre_job {
    const float *pre; /* (rows,n) */
    const tn_arg *dy; /* (...,n) */
    float *dpre;      /* (rows,n) */
    int64_t rows, n, per_tile;
    tn_act act;
} pre_job;

#define SLOPE_ROW(name, slope)                                                                                         \
    static void row_##name(float *restrict q, const float *restrict dy, const float *restrict p, int64_t n)            \
    {                                                                                                                  \
        tn_v_map_times(q, dy, p, n, slope);                                                                            \
    }
SLOPE_ROW(gelu, tn_v_gelu_grad)
SLOPE_ROW(gelu_erf, tn_v_gelu_erf_grad)
SLOPE_ROW(silu, tn_v_silu_grad)
SLOPE_ROW(tanh, tn_v_tanh_grad)
SLOPE_ROW(sigmoid, tn_v_sigmoid_grad)
SLOPE_ROW(relu, tn_v_relu_grad)

/* q = dy times the slope at p, each (n). */
static void (*const slope_rows[TN_ACTS])(float *restrict, const float *restrict, const float *restrict, int64_t) = {
    [TN_ACT_GELU] = row_gelu, [TN_ACT_GELU_ERF] = row_gelu_erf, [TN_ACT_SILU] = row_silu,
    [TN_ACT_TANH] = row_tanh, [TN_ACT_SIGMOID] = row_sigmoid,   [TN_ACT_RELU] = row_relu,
};

static void pre_tile(void *arg, int64_t t)
{
    const pre_job *j = arg;
    const int64_t end = (t + 1) * j->per_tile < j->rows ? (t + 1) * j->per_tile : j->rows, step = tn_row_step(j->dy);
    for (int64_t r = t * j->per_tile; r < end; r++) {
        const float *dy = (const float *)j->dy->data + tn_row_offset(j->dy, r), *pre = j->pre + r * j->n;
        float *to = j->dpre + r * j->n, gathered[TN_V_BLOCK];
        if (step == 1) slope_rows[j->act](to, dy, pre, j->n);
        for (int64_t i = 0; step != 1 && i < j->n; i += TN_V_BLOCK) {
            const int64_t n = j->n - i < TN_V_BLOCK ? j->n - i : TN_V_BLOCK;
            for (int64_t k = 0; k < n; k++) gathered[k] = dy[(i + k) * step];
            slope_rows[j->act](to + i, gathered, pre + i, n);
        }
    }
}

/* dy itself without an activation; else dy * act'(pre) in the workspace, whose rest is returned in *work. */
static tn_arg before_act(const tn_call *c, void **work)
{
    const tn_act act = ((const tn_linear_attr *)c->attr)->act;
    tn_arg d = c->dout[0];
    *work = c->work;
    if (act == TN_ACT_NONE || !c->out[1].data) return d;
    const int64_t n = tn_row_length(&d), rows = tn_live_rows(&d);
    pre_job j = { .pre = c->out[1].data,
                  .dy = &c->dout[0],
                  .dpre = c->work,
                  .rows = rows,
                  .n = n,
                  .per_tile = tn_tile_rows(n),
                  .act = act };
    if (rows && n) tn_pool_run(c->pool, tn_tiles(rows, j.per_tile), pre_tile, &j);
    d.data = c->work;
    int64_t count = 1;
    for (int i = d.dims.rank - 1; i >= 0; i--) {
        d.stride[i] = count;
        count *= d.dims.dim[i];
    }
    *work = (char *)c->work + tn_align64(sizeof(float) * (size_t)count);
    return d;
}

/* --- gradients --------------------------------------------------------------------------------------------------- */

static void grad_x(const tn_call *c, const tn_arg *d, void *work)
{
    const tn_arg *w = &c->in[W], *dx = &c->din[X];
    tn_product p = { .c_col = tn_row_step(dx) };
    p.g = (tn_gemm){ .m = 1,
                     .n = w->dims.dim[1],
                     .k = w->dims.dim[0],
                     .a = d->data,
                     .a_col = tn_row_step(d),
                     .a_type = TN_F32,
                     .b = w->data,
                     .b_row = w->stride[0],
                     .b_col = w->stride[1],
                     .b_type = w->dtype,
                     .packed_b = c->in[PACKED].data,
                     .share_b = true,
                     .c = dx->data,
                     .c_row = w->dims.dim[1],
                     .round = c->round,
                     .bf16x3 = c->bf16x3,
                     .portable_only = c->portable,
                     .accumulate = c->accumulate >> X & 1,
                     .alpha = 1 };
    p.axes = leading_axes(dx, p.axis);
    for (int i = 0; i < p.axes; i++) {
        p.axis[i].a = d->stride[i];
        p.axis[i].c = dx->stride[i];
    }
    tn_product_run(c->pool, &p, work);
}

static void grad_w(const tn_call *c, const tn_arg *d, void *work)
{
    const tn_arg *x = &c->in[X], *dw = &c->din[W];
    tn_product p = { .c_col = dw->stride[1] };
    p.g = (tn_gemm){ .m = dw->dims.dim[0],
                     .n = dw->dims.dim[1],
                     .k = 1,
                     .a = d->data,
                     .a_row = tn_row_step(d),
                     .a_type = TN_F32,
                     .b = x->data,
                     .b_col = tn_row_step(x),
                     .b_type = x->dtype,
                     .share_b = true,
                     .c = dw->data,
                     .c_row = dw->stride[0],
                     .round = c->round,
                     .bf16x3 = c->bf16x3,
                     .portable_only = c->portable,
                     .accumulate = c->accumulate >> W & 1,
                     .alpha = 1 };
    p.axes = leading_axes(d, p.axis);
    for (int i = 0; i < p.axes; i++) {
        p.axis[i].a = d->stride[i];
        p.axis[i].b = x->stride[i];
    }
    tn_product_run(c->pool, &p, work);
}

typedef struct column_job {
    const tn_arg *d, *db;
    bool add;
} column_job;

static void column_tile(void *arg, int64_t t)
{
    const column_job *j = arg;
    const int64_t n = tn_row_length(j->d), first = t * BIAS_COLUMNS, step = tn_row_step(j->d),
                  rows = tn_live_rows(j->d);
    const int64_t count = n - first < BIAS_COLUMNS ? n - first : BIAS_COLUMNS;
    double sum[BIAS_COLUMNS] = { 0 };
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)j->d->data + tn_row_offset(j->d, r) + first * step;
        for (int64_t i = 0; i < count; i++) sum[i] += (double)x[i * step];
    }
    for (int64_t i = 0; i < count; i++) {
        float *y = (float *)j->db->data + (first + i) * j->db->stride[0];
        *y = j->add ? *y + (float)sum[i] : (float)sum[i];
    }
}

static void grad_bias(const tn_call *c, const tn_arg *d)
{
    column_job j = { .d = d, .db = &c->din[BIAS], .add = c->accumulate >> BIAS & 1 };
    tn_pool_run(c->pool, tn_tiles(tn_row_length(d), BIAS_COLUMNS), column_tile, &j);
}

tn_status tn_linear_backward_cpu(const tn_call *c)
{
    void *work;
    const tn_arg d = before_act(c, &work);
    if (c->din[X].data) grad_x(c, &d, work);
    if (c->din[W].data) grad_w(c, &d, work);
    if (c->din[BIAS].data) grad_bias(c, &d);
    if (c->din[RESIDUAL].data) move_rows(c, &c->dout[0], &c->din[RESIDUAL], c->accumulate >> RESIDUAL & 1);
    return TN_OK;
}
