/* outer: shape check, gradient rule, cost, row. The kernels are in outer_cpu.c. */
#include "ops/outer/outer.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"
#include "ops/outer/outer_cpu.h"
#include "ops/outer/outer_cuda.h"

enum { DEFAULT_CHUNK = 64, MOST_CHUNK = 4096 };

static tn_status check(const tn_type *t, const char *name, const char *want, tn_dims dims)
{
    char have[96], expected[96];
    if (tn_dims_equal(t->dims, dims)) return TN_OK;
    return tn_error(TN_USAGE, "%s has shape %s, it must be %s = %s", name, tn_dims_text(t->dims, have, sizeof have),
                    want, tn_dims_text(dims, expected, sizeof expected));
}

static tn_status outer_infer(tn_sig *s)
{
    const tn_outer_attr *a = s->attr;
    const tn_type *q = &s->in[TN_OUTER_Q], *v = &s->in[TN_OUTER_V], *reset = &s->in[TN_OUTER_RESET];
    if (q->dims.rank != 4 || v->dims.rank != 4)
        return tn_error(TN_USAGE, "q and v need four axes: (batch, time, heads, size); tn_reshape gives them");
    const int64_t B = q->dims.dim[0], T = q->dims.dim[1], H = q->dims.dim[2], N = q->dims.dim[3], P = v->dims.dim[3];
    TN_RETURN_IF(check(&s->in[TN_OUTER_K], "k", "(B,T,H,N)", q->dims));
    TN_RETURN_IF(check(v, "v", "(B,T,H,P)", tn_shape(B, T, H, P)));
    TN_RETURN_IF(check(&s->in[TN_OUTER_ALPHA], "alpha", "(B,T,H)", tn_shape(B, T, H)));
    if (!s->in[TN_OUTER_STATE].absent)
        TN_RETURN_IF(check(&s->in[TN_OUTER_STATE], "state", "(B,H,N,P)", tn_shape(B, H, N, P)));
    if (!reset->absent) {
        TN_RETURN_IF(check(reset, "reset", "(B,T)", tn_shape(B, T)));
        if (reset->dtype != TN_I32)
            return tn_error(TN_USAGE, "reset is %s, it must be i32 (1 where a sequence begins)",
                            tn_dtype_name(reset->dtype));
    }
    if (!s->in[TN_OUTER_WRITE].absent)
        TN_RETURN_IF(check(&s->in[TN_OUTER_WRITE], "write", "(B,T,H,1)", tn_shape(B, T, H, 1)));
    if (a->chunk < 1 || a->chunk > MOST_CHUNK)
        return tn_error(TN_USAGE, "chunk=%lld is outside [1, %d]: 64 suits most sizes", (long long)a->chunk,
                        MOST_CHUNK);
    s->n_out = 2;
    s->out[0].dims = v->dims;
    s->out[1].dims = tn_shape(B, H, N, P);
    s->out[1].dtype = TN_F32; /* a carried state keeps all its bits, whatever the activations are */
    return TN_OK;
}

static void outer_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    const uint64_t q = 1 << TN_OUTER_Q, k = 1 << TN_OUTER_K, v = 1 << TN_OUTER_V, alpha = 1 << TN_OUTER_ALPHA;
    const uint64_t write = 1 << TN_OUTER_WRITE;
    u->in = q | alpha | 1 << TN_OUTER_RESET; /* the cotangent of S */
    if (want & (q | k | v | alpha | write)) u->in |= k | v | write;
    if (want & (q | alpha)) u->in |= 1 << TN_OUTER_STATE; /* S itself */
    if ((want & (q | alpha)) && ((const tn_outer_attr *)s->attr)->keeps) u->out |= 1 << TN_OUTER_KEPT;
}

/* Pairs inside a chunk that causality hides are not counted. */
static void outer_cost(const tn_sig *s, tn_cost *c)
{
    const tn_dims q = s->in[TN_OUTER_Q].dims;
    const double tokens = (double)(q.dim[0] * q.dim[1] * q.dim[2]), N = (double)q.dim[3];
    const double P = (double)s->in[TN_OUTER_V].dims.dim[3];
    const double C = (double)(((const tn_outer_attr *)s->attr)->chunk + 1) / 2;
    c->flops = tokens * 2 * (C * (N + P) + 2 * N * P);
    c->flops_backward = tokens * 2 * (C * (3 * N + 2 * P) + 5 * N * P);
}

bool tn_outer_in_steps(const tn_sig *s)
{
    return ((const tn_outer_attr *)s->attr)->steps || s->in[TN_OUTER_Q].dims.dim[1] <= TN_OUTER_FEW;
}

bool tn_outer_in_tiles(const tn_sig *s)
{
    const tn_type *q = &s->in[TN_OUTER_Q], *v = &s->in[TN_OUTER_V];
    const int64_t T = q->dims.dim[1], N = q->dims.dim[3], P = v->dims.dim[3];
    for (int i = TN_OUTER_Q; i <= TN_OUTER_V; i++)
        if (s->in[i].dtype != TN_BF16) return false;
    return !((const tn_outer_attr *)s->attr)->steps && T > TN_OUTER_FEW && s->out[0].dtype == TN_BF16 && N > 0 &&
           P > 0 && N % 8 == 0 && P % 8 == 0 && N <= DEFAULT_CHUNK && P <= DEFAULT_CHUNK;
}

tn_dims tn_outer_kept_dims(const tn_sig *s)
{
    const tn_dims q = s->in[TN_OUTER_Q].dims;
    return tn_shape(q.dim[0], q.dim[2], (q.dim[1] + DEFAULT_CHUNK - 1) / DEFAULT_CHUNK,
                    q.dim[3] * s->in[TN_OUTER_V].dims.dim[3]);
}

static tn_status outer_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out);

#define OUTER_ROW                                                                                                      \
    .name = "outer", .attr_bytes = sizeof(tn_outer_attr), .flags = TN_OP_STRIDED, .infer = outer_infer,                \
    .grad = outer_grad, .cost = outer_cost,                                                                            \
    .kernel = {                                                                                                        \
        [TN_CPU] = { .forward = tn_outer_forward_cpu, .backward = tn_outer_backward_cpu, .work = tn_outer_work_cpu },  \
        [TN_CUDA] = { tn_outer_forward_cuda, tn_outer_backward_cuda, tn_outer_work_cuda }                              \
    }

const tn_op tn_op_outer = {
    OUTER_ROW,
    TN_OP_SWITCH("opt.outer", "matrix-state recurrence in chunks of matrix products (off: one step per token)"),
    .plain = outer_plain,
};

/* What opt.outer=off builds: a row without a switch, so that adding it does not ask for the twin again. */
static const tn_op outer_steps = { OUTER_ROW };

static tn_status outer_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    tn_outer_attr a = *(const tn_outer_attr *)attr;
    a.steps = true;
    tn_graph_add(g, __FILE__, __LINE__, &outer_steps, &a, in, n_in, out);
    return tn_graph_status(g);
}

tn_ref tn_outer_(tn_graph *g, const char *file, int line, tn_ref q, tn_ref k, tn_ref v, tn_ref alpha,
                 tn_outer_options o)
{
    const tn_outer_attr a = { .chunk = o.chunk ? o.chunk : DEFAULT_CHUNK };
    const tn_ref in[TN_OUTER_INPUTS] = { q, k, v, alpha, o.state, o.reset };
    tn_ref out[2] = { TN_NONE, TN_NONE };
    tn_graph_add(g, file, line, &tn_op_outer, &a, in, TN_OUTER_INPUTS, out);
    if (o.final) *o.final = out[1];
    return out[0];
}
