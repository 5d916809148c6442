/* delta: shape check, gradient rule, cost, row. The kernels are in delta_cpu.c, the plain twin in delta_plain.c. */
#include "ops/delta/delta.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"
#include "ops/delta/delta_cpu.h"
#include "ops/delta/delta_cuda.h"

enum { MOST_CHUNK = 4096 };

tn_status tn_delta_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out);

static tn_status delta_infer(tn_sig *s)
{
    const tn_delta_attr *a = s->attr;
    const tn_type *q = &s->in[TN_DELTA_Q], *v = &s->in[TN_DELTA_V], *alpha = &s->in[TN_DELTA_ALPHA];
    if (q->dims.rank != 4 || v->dims.rank != 4)
        return tn_error(TN_USAGE, "q and v need four axes: (batch, time, heads, size); tn_reshape gives them");
    const int64_t B = q->dims.dim[0], T = q->dims.dim[1], H = q->dims.dim[2], N = q->dims.dim[3], P = v->dims.dim[3];
    TN_RETURN_IF(tn_state_check(&s->in[TN_DELTA_K], "k", "(B,T,H,N)", q->dims));
    TN_RETURN_IF(tn_state_check(v, "v", "(B,T,H,P)", tn_shape(B, T, H, P)));
    if (alpha->dims.rank == 4) TN_RETURN_IF(tn_state_check(alpha, "alpha", "(B,T,H,N)", q->dims));
    else TN_RETURN_IF(tn_state_check(alpha, "alpha", "(B,T,H)", tn_shape(B, T, H)));
    TN_RETURN_IF(tn_state_check(&s->in[TN_DELTA_BETA], "beta", "(B,T,H)", tn_shape(B, T, H)));
    if (!s->in[TN_DELTA_STATE].absent)
        TN_RETURN_IF(tn_state_check(&s->in[TN_DELTA_STATE], "state", "(B,H,N,P)", tn_shape(B, H, N, P)));
    TN_RETURN_IF(tn_state_check_reset(&s->in[TN_DELTA_RESET], tn_shape(B, T)));
    if (a->chunk < 1 || a->chunk > MOST_CHUNK)
        return tn_error(TN_USAGE, "chunk=%lld is outside [1, %d]: %d suits most sizes", (long long)a->chunk, MOST_CHUNK,
                        TN_DELTA_CHUNK);
    s->n_out = 2;
    s->out[0].dims = v->dims;
    s->out[1].dims = tn_shape(B, H, N, P);
    s->out[1].dtype = TN_F32; /* a carried state keeps all its bits, whatever the activations are */
    return TN_OK;
}

/* What a token writes depends on all that came before it, and so does every gradient. */
static void delta_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s, (void)want;
    u->in = (1 << TN_DELTA_INPUTS) - 1;
}

/* Of the recurrence as it is written, token by token: three products with the state, and what chunks pay on top of it
 * depends on the device. Backward: two more for each, and the states once more. */
static void delta_cost(const tn_sig *s, tn_cost *c)
{
    const tn_dims q = s->in[TN_DELTA_Q].dims;
    const double tokens = (double)(q.dim[0] * q.dim[1] * q.dim[2]), N = (double)q.dim[3];
    const double P = (double)s->in[TN_DELTA_V].dims.dim[3];
    c->flops = tokens * 2 * 3 * N * P;
    c->flops_backward = tokens * 2 * 8 * N * P;
}

/* What CUDA's kernels keep of a state in shared memory. */
static bool fits(const tn_sig *s)
{
    return s->in[TN_DELTA_Q].dims.dim[3] <= TN_DELTA_MOST && s->in[TN_DELTA_V].dims.dim[3] <= TN_DELTA_MOST;
}

const tn_op tn_op_delta = {
    .name = "delta",
    .attr_bytes = sizeof(tn_delta_attr),
    .flags = TN_OP_STRIDED,
    .infer = delta_infer,
    .grad = delta_grad,
    .cost = delta_cost,
    .kernel = { [TN_CPU] = { .forward = tn_delta_forward_cpu,
                             .backward = tn_delta_backward_cpu,
                             .work = tn_delta_work_cpu },
                [TN_CUDA] = { .forward = tn_delta_forward_cuda,
                              .backward = tn_delta_backward_cuda,
                              .work = tn_delta_work_cuda,
                              .takes = fits } },
    TN_OP_SWITCH("opt.delta_chunked",
                 "delta rule in chunks of matrix products (off: a loop of plain ops, token by token)"),
    .plain = tn_delta_plain,
};

tn_ref tn_delta_(tn_graph *g, const char *file, int line, tn_ref q, tn_ref k, tn_ref v, tn_ref alpha, tn_ref beta,
                 tn_delta_options o)
{
    const tn_delta_attr a = { .chunk = o.chunk ? o.chunk : TN_DELTA_CHUNK };
    const tn_ref in[TN_DELTA_INPUTS] = { q, k, v, alpha, beta, o.state, o.reset };
    tn_ref out[2] = { TN_NONE, TN_NONE };
    tn_graph_add(g, file, line, &tn_op_delta, &a, in, TN_DELTA_INPUTS, out);
    if (o.final) *o.final = out[1];
    return out[0];
}
