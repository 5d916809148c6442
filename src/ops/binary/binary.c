/* binary: broadcasting, order of the inputs, gradient rule, row. */
#include "ops/binary/binary.h"

#include "base/status.h"
#include "ops/elem.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_binary_forward_cpu, tn_binary_backward_cpu;

/* The common shape of a and b; false when some axis fits neither way. */
static bool broadcast(tn_dims a, tn_dims b, tn_dims *y)
{
    y->rank = a.rank > b.rank ? a.rank : b.rank;
    for (int i = 1; i <= y->rank; i++) {
        const int64_t p = i <= a.rank ? a.dim[a.rank - i] : 1, q = i <= b.rank ? b.dim[b.rank - i] : 1;
        if (p != q && p != 1 && q != 1) return false;
        y->dim[y->rank - i] = p == 1 ? q : p;
    }
    return true;
}

static tn_status binary_infer(tn_sig *s)
{
    const tn_binary_attr *a = s->attr;
    if ((unsigned)a->kind >= TN_BINARY_KINDS) return tn_error(TN_USAGE, "unknown kind %d: see binary.h", (int)a->kind);
    for (int i = 0; i < 2; i++)
        if (s->in[i].absent || !tn_dtype_is_float(s->in[i].dtype))
            return tn_error(TN_USAGE, "both arguments must be tensors of floats: cast integers first");
    if (!broadcast(s->in[0].dims, s->in[1].dims, &s->out[0].dims))
        return tn_error(TN_USAGE, "the shapes do not broadcast: each axis, counted from the last, must be equal or 1");
    s->n_out = 1;
    s->out[0].dtype = tn_elem_dtype(s);
    return TN_OK;
}

static void binary_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    const bool first = want & 1, second = want & 2;
    switch (((const tn_binary_attr *)s->attr)->kind) {
    case TN_BINARY_MUL: u->in = (uint64_t)(second ? 1 : 0) | (first ? 2 : 0); break;
    case TN_BINARY_DIV: u->in = second ? 3 : 2; break;
    case TN_BINARY_RDIV: u->in = first ? 3 : 1; break;
    case TN_BINARY_MAXIMUM:
    case TN_BINARY_MINIMUM: u->in = 3; break;
    case TN_BINARY_ADD: u->passes = tn_dims_equal(s->in[0].dims, s->in[1].dims) ? 3 : 1; break;
    case TN_BINARY_SUB: u->passes = 1; break;
    case TN_BINARY_RSUB: u->passes = 2; break;
    default: break;
    }
}

static bool repeated(const tn_type *in, const tn_type *out)
{
    return tn_dims_count(in->dims) != tn_dims_count(out->dims);
}

static size_t binary_work(const tn_sig *s, bool backward)
{
    return backward && (repeated(&s->in[0], &s->out[0]) || repeated(&s->in[1], &s->out[0])) ? TN_ELEM_SUM_WORK : 0;
}

static tn_function binary_function(const void *attr)
{
    const tn_binary_kind kind = ((const tn_binary_attr *)attr)->kind;
    return kind == TN_BINARY_ADD ? TN_FN_ADD : kind == TN_BINARY_MUL ? TN_FN_MUL : TN_FN_OTHER;
}

const tn_op tn_op_binary = {
    .name = "binary",
    .attr_bytes = sizeof(tn_binary_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE | TN_OP_INPLACE,
    .infer = binary_infer,
    .grad = binary_grad,
    .kernel = { [TN_CPU] = { .forward = tn_binary_forward_cpu,
                             .backward = tn_binary_backward_cpu,
                             .work = binary_work },
                [TN_CUDA] = { .forward = tn_binary_forward_cuda,
                              .backward = tn_binary_backward_cuda,
                              .work = tn_binary_work_cuda } },
    .fusion = { .function = binary_function },
};

/* Input 0 must have the rows of the result: prefer the input that is not repeated, then the one with its axis 0. */
static bool swap_inputs(tn_dims a, tn_dims b)
{
    tn_dims y;
    if (!broadcast(a, b, &y) || tn_dims_equal(a, y)) return false;
    if (tn_dims_equal(b, y)) return true;
    return y.rank && !(a.rank == y.rank && a.dim[0] == y.dim[0]);
}

tn_ref tn_binary_(tn_graph *g, const char *file, int line, tn_binary_kind kind, tn_ref a, tn_ref b)
{
    static const tn_binary_kind reversed[TN_BINARY_KINDS] = {
        [TN_BINARY_ADD] = TN_BINARY_ADD,         [TN_BINARY_SUB] = TN_BINARY_RSUB,
        [TN_BINARY_MUL] = TN_BINARY_MUL,         [TN_BINARY_DIV] = TN_BINARY_RDIV,
        [TN_BINARY_MAXIMUM] = TN_BINARY_MAXIMUM, [TN_BINARY_MINIMUM] = TN_BINARY_MINIMUM,
        [TN_BINARY_RSUB] = TN_BINARY_SUB,        [TN_BINARY_RDIV] = TN_BINARY_DIV,
    };
    const bool known = a.id && b.id && (unsigned)kind < TN_BINARY_KINDS;
    const bool swap = known && swap_inputs(tn_ref_dims(g, a), tn_ref_dims(g, b));
    const tn_binary_attr attr = { .kind = swap ? reversed[kind] : kind };
    const tn_ref in[2] = { swap ? b : a, swap ? a : b };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_binary, &attr, in, 2, &y);
}

tn_ref tn_add_scaled_(tn_graph *g, const char *file, int line, tn_ref a, tn_ref w, tn_ref x)
{
    return tn_binary_(g, file, line, TN_BINARY_ADD, a, tn_binary_(g, file, line, TN_BINARY_MUL, x, w));
}
