/* unary: shape check, gradient rule, row. What each function is, and its slope, are in unary_cpu.c. */
#include "ops/unary/unary.h"

#include "base/status.h"
#include "ops/elem.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_unary_forward_cpu, tn_unary_backward_cpu;

/* What the slope is computed from. */
static const enum {
    NOTHING,
    INPUT,
    OUTPUT
} reads[TN_UNARY_KINDS] = {
    [TN_UNARY_GELU] = INPUT,     [TN_UNARY_GELU_ERF] = INPUT,    [TN_UNARY_SILU] = INPUT,
    [TN_UNARY_TANH] = OUTPUT,    [TN_UNARY_SIGMOID] = OUTPUT,    [TN_UNARY_RELU] = OUTPUT,
    [TN_UNARY_EXP] = OUTPUT,     [TN_UNARY_EXPM1] = OUTPUT,      [TN_UNARY_LOG] = INPUT,
    [TN_UNARY_SQRT] = OUTPUT,    [TN_UNARY_SQUARE] = INPUT,      [TN_UNARY_ABS] = INPUT,
    [TN_UNARY_SOFTPLUS] = INPUT, [TN_UNARY_LOGCOSH] = INPUT,     [TN_UNARY_SIN] = INPUT,
    [TN_UNARY_COS] = INPUT,      [TN_UNARY_RECIPROCAL] = OUTPUT, [TN_UNARY_CLAMP_MIN] = OUTPUT,
    [TN_UNARY_SCALE] = NOTHING,  [TN_UNARY_AFFINE] = NOTHING,
};

static tn_status unary_infer(tn_sig *s)
{
    const tn_unary_attr *a = s->attr;
    if ((unsigned)a->kind >= TN_UNARY_KINDS) return tn_error(TN_USAGE, "unknown kind %d: see unary.h", (int)a->kind);
    if (s->in[0].absent || !tn_dtype_is_float(s->in[0].dtype))
        return tn_error(TN_USAGE, "the argument must be a tensor of floats: cast integers first");
    s->n_out = 1;
    s->out[0].dtype = tn_elem_dtype(s);
    s->out[0].dims = s->in[0].dims;
    return TN_OK;
}

static void unary_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)want;
    const int which = reads[((const tn_unary_attr *)s->attr)->kind];
    u->in = which == INPUT;
    u->out = which == OUTPUT;
}

static tn_function unary_function(const void *attr)
{
    const tn_unary_attr *a = attr;
    return a->kind == TN_UNARY_SILU                  ? TN_FN_SILU
           : a->kind == TN_UNARY_SIGMOID             ? TN_FN_SIGMOID
           : a->kind == TN_UNARY_SOFTPLUS            ? TN_FN_SOFTPLUS
           : a->kind == TN_UNARY_SCALE && a->a == -1 ? TN_FN_NEG
                                                     : TN_FN_OTHER;
}

const tn_op tn_op_unary = {
    .name = "unary",
    .attr_bytes = sizeof(tn_unary_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE | TN_OP_INPLACE,
    .infer = unary_infer,
    .grad = unary_grad,
    .kernel = { [TN_CPU] = { .forward = tn_unary_forward_cpu, .backward = tn_unary_backward_cpu },
                [TN_CUDA] = { .forward = tn_unary_forward_cuda, .backward = tn_unary_backward_cuda } },
    .fusion = { .function = unary_function },
};

tn_ref tn_unary_(tn_graph *g, const char *file, int line, tn_unary_kind kind, tn_ref x, float a, float b)
{
    const tn_unary_attr attr = { .kind = kind, .a = a, .b = b };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_unary, &attr, &x, 1, &y);
}
