/* scan: shape checks, gradient rule, costs, the row and its plain twin. The twin is the same op with a flag, in a row
 * of its own that has no switch, so that building it cannot ask for the twin again. */
#include "ops/scan/scan.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"
#include "ops/scan/scan_core.h"
#include "ops/scan/scan_cuda.h"

/* A coefficient is one number per channel, or one per token and channel. */
static tn_status check_coefficient(const tn_sig *s, int i, const char *name)
{
    const tn_dims d = s->in[i].dims, x = s->in[TN_SCAN_X].dims;
    const int64_t K = x.dim[2] / 2;
    if (s->in[i].absent && i == TN_SCAN_GAMMA) return TN_OK;
    if (!tn_dtype_is_float(s->in[i].dtype)) return tn_error(TN_USAGE, "%s must be floating point", name);
    if (d.rank == 1 && d.dim[0] == K) return TN_OK;
    if (d.rank == 3 && d.dim[0] == x.dim[0] && d.dim[1] == x.dim[1] && d.dim[2] == K) return TN_OK;
    return tn_error(TN_USAGE, "%s must be (K) or (B,T,K), with x (B,T,2K): K = %lld", name, (long long)K);
}

tn_status tn_scan_infer_frame(tn_sig *s, int64_t chunk, int state, int reset)
{
    const tn_dims x = s->in[0].dims;
    if (x.rank != 3 || x.dim[2] % 2 || !tn_dtype_is_float(s->in[0].dtype))
        return tn_error(TN_USAGE, "x must be (B,T,2K), real and imaginary planes: floating point, an even last axis");
    if (!s->in[state].absent && !tn_dims_equal(s->in[state].dims, tn_shape(x.dim[0], x.dim[2])))
        return tn_error(TN_USAGE, "state must be (B,2K) = (%lld,%lld)", (long long)x.dim[0], (long long)x.dim[2]);
    if (!s->in[reset].absent &&
        (s->in[reset].dtype != TN_I32 || !tn_dims_equal(s->in[reset].dims, tn_shape(x.dim[0], x.dim[1]))))
        return tn_error(TN_USAGE, "reset must be i32 (B,T) = (%lld,%lld)", (long long)x.dim[0], (long long)x.dim[1]);
    if (chunk < 1) return tn_error(TN_USAGE, "chunk = %lld tokens: give 1 or more", (long long)chunk);
    s->n_out = 2;
    s->out[0].dims = x;
    s->out[1].dims = tn_shape(x.dim[0], x.dim[2]);
    s->out[1].dtype = TN_F32; /* a carried state keeps all its bits, whatever the activations are */
    return TN_OK;
}

static tn_status scan_infer(tn_sig *s)
{
    TN_RETURN_IF(tn_scan_infer_frame(s, ((const tn_scan_attr *)s->attr)->chunk, TN_SCAN_STATE, TN_SCAN_RESET));
    TN_RETURN_IF(check_coefficient(s, TN_SCAN_RHO, "rho"));
    TN_RETURN_IF(check_coefficient(s, TN_SCAN_OMEGA, "omega"));
    return check_coefficient(s, TN_SCAN_GAMMA, "gamma");
}

/* Every gradient comes from the reverse scan, which reads lambda and the resets. */
static void scan_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    const uint64_t lambda = 1u << TN_SCAN_RHO | 1u << TN_SCAN_OMEGA;
    u->in |= lambda;
    if (!s->in[TN_SCAN_RESET].absent) u->in |= 1u << TN_SCAN_RESET;
    if ((want >> TN_SCAN_X & 1) && !s->in[TN_SCAN_GAMMA].absent) u->in |= 1u << TN_SCAN_GAMMA;
    if (want >> TN_SCAN_GAMMA & 1) u->in |= 1u << TN_SCAN_X;
    if (want & lambda) {
        u->out |= 1;
        if (!s->in[TN_SCAN_STATE].absent) u->in |= 1u << TN_SCAN_STATE;
    }
}

static void scan_cost(const tn_sig *s, tn_cost *c)
{
    const double n = (double)tn_dims_count(s->in[TN_SCAN_X].dims) / 2; /* complex numbers */
    const double gain = s->in[TN_SCAN_GAMMA].absent ? 0 : 2;
    c->flops = n * (8 + gain);
    c->flops_backward = n * (8 + 8 + 2.5 * gain);
}

static size_t scan_work(const tn_sig *s, bool backward)
{
    const tn_scan_attr *a = s->attr;
    const int64_t *d = s->in[TN_SCAN_X].dims.dim;
    (void)backward;
    return a->plain ? tn_scan_step_work(d[0], d[2] / 2) : tn_scan_cpu_work(d[0], d[1], d[2] / 2, a->chunk);
}

static tn_status scan_forward_cpu(const tn_call *c)
{
    return ((const tn_scan_attr *)c->attr)->plain ? tn_scan_step_forward_cpu(c) : tn_scan_blocked_forward_cpu(c);
}

static tn_status scan_backward_cpu(const tn_call *c)
{
    return ((const tn_scan_attr *)c->attr)->plain ? tn_scan_step_backward_cpu(c) : tn_scan_blocked_backward_cpu(c);
}

#define SCAN_ROW                                                                                                       \
    .name = "scan", .attr_bytes = sizeof(tn_scan_attr), .flags = TN_OP_ROWWISE, .strided_in = 1u << TN_SCAN_X,         \
    .infer = scan_infer, .grad = scan_grad, .cost = scan_cost,                                                         \
    .kernel = { [TN_CPU] = { .forward = scan_forward_cpu, .backward = scan_backward_cpu, .work = scan_work },          \
                [TN_CUDA] = {                                                                                          \
                    .forward = tn_scan_forward_cuda, .backward = tn_scan_backward_cuda, .work = tn_scan_work_cuda } }

static const tn_op step_op = { SCAN_ROW };

static tn_status scan_as_steps(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    tn_scan_attr a = *(const tn_scan_attr *)attr;
    a.plain = true;
    tn_graph_add(g, __FILE__, __LINE__, &step_op, &a, in, n_in, out);
    return tn_graph_status(g);
}

const tn_op tn_op_scan = {
    SCAN_ROW,
    TN_OP_SWITCH("opt.scan", "blocked parallel scan (off: one step per token)"),
    .plain = scan_as_steps,
};

tn_ref tn_scan_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref rho, tn_ref omega, tn_scan_options o)
{
    const tn_scan_attr a = { .chunk = o.chunk ? o.chunk : TN_SCAN_CHUNK, .plain = o.plain };
    const tn_ref in[TN_SCAN_INPUTS] = { x, rho, omega, o.gamma, o.state, o.reset };
    tn_ref out[2] = { TN_NONE, TN_NONE };
    tn_graph_add(g, file, line, o.plain ? &step_op : &tn_op_scan, &a, in, TN_SCAN_INPUTS, out);
    if (o.final) *o.final = out[1];
    return out[0];
}
