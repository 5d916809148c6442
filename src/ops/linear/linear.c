/* linear: shapes, gradient rule, cost, registration. */
#include "ops/linear/linear.h"

#include "base/status.h"
#include "ops/binary/binary.h"
#include "ops/matmul/matmul.h"
#include "ops/cuda_kernels.h"
#include "ops/product.h"
#include "ops/slots.h"
#include "ops/unary/unary.h"

tn_kernel tn_linear_forward_cpu, tn_linear_backward_cpu;

enum { X = TN_LINEAR_X, W = TN_LINEAR_W, BIAS = TN_LINEAR_BIAS, RESIDUAL = TN_LINEAR_RESIDUAL };

static tn_status linear_infer(tn_sig *s)
{
    const tn_linear_attr *a = s->attr;
    const tn_dims x = s->in[X].dims, w = s->in[W].dims, b = s->in[BIAS].dims;
    if (s->in[X].absent || s->in[W].absent) return tn_error(TN_USAGE, "x and w are needed");
    if (x.rank < 1 || w.rank != 2) return tn_error(TN_USAGE, "x must be (...,k) and w (n,k)");
    if (x.dim[x.rank - 1] != w.dim[1])
        return tn_error(TN_USAGE, "the last axis of x is %lld, of w (n,k) %lld", (long long)x.dim[x.rank - 1],
                        (long long)w.dim[1]);
    for (int i = 0; i < 4; i++)
        if (!s->in[i].absent && (!tn_dtype_is_float(s->in[i].dtype) || s->in[i].dtype == TN_F64))
            return tn_error(TN_USAGE, "input %d is %s: use f32, bf16 or f16", i, tn_dtype_name(s->in[i].dtype));
    if (!s->in[BIAS].absent && (b.rank != 1 || b.dim[0] != w.dim[0]))
        return tn_error(TN_USAGE, "the bias must be (%lld)", (long long)w.dim[0]);
    if (a->act < 0 || a->act >= TN_ACTS) return tn_error(TN_USAGE, "no activation has the number %d", (int)a->act);
    tn_dims y = x;
    y.dim[y.rank - 1] = w.dim[0];
    if (!s->in[RESIDUAL].absent && !tn_dims_equal(s->in[RESIDUAL].dims, y))
        return tn_error(TN_USAGE, "the residual must have the shape of the result");
    s->n_out = a->act == TN_ACT_NONE ? 1 : 2;
    s->out[0].dims = s->out[1].dims = y;
    return TN_OK;
}

static void linear_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    const tn_linear_attr *a = s->attr;
    u->passes = 1 << RESIDUAL;
    if (want >> X & 1) u->in |= 1 << W;
    if (want >> W & 1) u->in |= 1 << X;
    if (a->act != TN_ACT_NONE && (want & (1 << X | 1 << W | 1 << BIAS))) u->out |= 1 << 1;
}

static double rows_of(const tn_sig *s)
{
    const double n = (double)s->in[W].dims.dim[0];
    return n > 0 ? (double)tn_dims_count(s->out[0].dims) / n : 0;
}

static void linear_cost(const tn_sig *s, tn_cost *c)
{
    const double product = 2 * rows_of(s) * (double)tn_dims_count(s->in[W].dims);
    c->flops = product;
    c->flops_backward = product * ((s->in[X].trainable ? 1 : 0) + (s->in[W].trainable ? 1 : 0));
}

/* A product of these sizes, as the kernels will ask for it. */
static tn_gemm product_of(const tn_sig *s, int64_t m, int64_t n, int64_t k)
{
    return (tn_gemm){
        .m = m, .n = n, .k = k, .batch = 1, .round = s->round, .bf16x3 = s->bf16x3, .portable_only = s->portable
    };
}

/* Would the product with w (forward: x w^T, backward: dy w) be faster with a packed w? */
static bool linear_packs(const tn_sig *s, bool backward)
{
    const int64_t n = s->in[W].dims.dim[0], k = s->in[W].dims.dim[1];
    tn_gemm g = backward ? product_of(s, (int64_t)rows_of(s), k, n) : product_of(s, (int64_t)rows_of(s), n, k);
    g.b_type = s->in[W].dtype;
    g.b_row = backward ? k : 1;
    g.b_col = backward ? 1 : k;
    return tn_gemm_pack_pays(&g);
}

static size_t product_work(const tn_sig *s, int64_t m, int64_t n, int64_t k)
{
    const tn_gemm g = product_of(s, m, n, k);
    return tn_product_work(m, n, s->threads) + tn_gemm_share_bytes(&g);
}

/* Backward: the gradient before the activation (rows,n), then the products. */
static size_t linear_work(const tn_sig *s, bool backward)
{
    const tn_linear_attr *a = s->attr;
    const int64_t n = s->in[W].dims.dim[0], k = s->in[W].dims.dim[1], y = tn_dims_count(s->out[0].dims);
    const int64_t rows = n ? y / n : 0;
    if (!backward) return product_work(s, rows, n, k);
    const size_t dx = product_work(s, rows, k, n), dw = product_work(s, n, k, rows);
    const size_t pre = a->act == TN_ACT_NONE ? 0 : tn_align64(sizeof(float) * (size_t)y);
    return pre + (dx > dw ? dx : dw);
}

static const tn_unary_kind unary_of[TN_ACTS] = {
    [TN_ACT_GELU] = TN_UNARY_GELU, [TN_ACT_GELU_ERF] = TN_UNARY_GELU_ERF, [TN_ACT_SILU] = TN_UNARY_SILU,
    [TN_ACT_TANH] = TN_UNARY_TANH, [TN_ACT_SIGMOID] = TN_UNARY_SIGMOID,   [TN_ACT_RELU] = TN_UNARY_RELU,
};

/* One op for each step; a product takes matrices only, so a vector becomes one row for as long. */
static tn_status linear_as_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    const tn_act act = ((const tn_linear_attr *)attr)->act;
    const bool vector = in[X].id && tn_ref_dims(g, in[X]).rank == 1;
    (void)n_in;
    tn_ref y = vector ? tn_reshape(g, in[X], tn_shape(1, tn_ref_dim(g, in[X], 0))) : in[X];
    y = tn_matmul(g, y, in[W], .transpose_b = true);
    if (vector && y.id) y = tn_reshape(g, y, tn_shape(tn_ref_dim(g, y, 1)));
    if (in[BIAS].id) y = tn_add(g, y, in[BIAS]);
    if (act > TN_ACT_NONE && act < TN_ACTS) y = tn_unary(g, unary_of[act], y, 0, 0);
    if (in[RESIDUAL].id) y = tn_add(g, y, in[RESIDUAL]);
    out[0] = y;
    out[1] = TN_NONE;
    return tn_graph_status(g);
}

static bool linear_is_gelu(const void *attr) { return ((const tn_linear_attr *)attr)->act == TN_ACT_GELU; }

const tn_op tn_op_linear = {
    .name = "linear",
    .attr_bytes = sizeof(tn_linear_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE | TN_OP_AUX_FROM_1,
    .half_in = 1 << X | 1 << W,
    .infer = linear_infer,
    .grad = linear_grad,
    .cost = linear_cost,
    .kernel = { [TN_CPU] = { .forward = tn_linear_forward_cpu,
                             .backward = tn_linear_backward_cpu,
                             .work = linear_work },
                [TN_CUDA] = { .forward = tn_linear_forward_cuda,
                              .backward = tn_linear_backward_cuda,
                              .work = tn_linear_work_cuda,
                              .layout = TN_LAYOUT_ROWS } },
    TN_OP_SWITCH("opt.epilogue",
                 "bias, activation and residual inside the matrix product (off: one pass over memory for each)"),
    .plain = linear_as_plain,
    .fusion = { .bias_in = BIAS,
                .pre_out = 1,
                .after_in = RESIDUAL,
                .is_gelu = linear_is_gelu,
                .slope_in = TN_LINEAR_SLOPE,
                .weight_in = W,
                .packed_in = TN_LINEAR_PACKED,
                .packs = linear_packs,
                .rounded_in = 1 << W | 1 << BIAS },
};

tn_ref tn_linear_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, tn_linear_options o)
{
    const tn_linear_attr a = { .act = o.act };
    const tn_ref in[TN_LINEAR_INPUTS] = { x, w, o.bias, o.residual, TN_NONE };
    tn_ref out[2];
    return tn_graph_add(g, file, line, &tn_op_linear, &a, in, TN_LINEAR_INPUTS, out);
}
