/* outer: shape check, gradient rule, cost, row. The kernels are in outer_cpu.c. */
#include "ops/outer/outer.h"

#include "base/status.h"
#include "ops/absorb.h"
#include "ops/cuda_kernels.h"
#include "ops/outer/outer_cpu.h"
#include "ops/outer/outer_cuda.h"

enum { MOST_CHUNK = 4096 };

static tn_status outer_infer(tn_sig *s)
{
    const tn_outer_attr *a = s->attr;
    const tn_type *q = &s->in[TN_OUTER_Q], *v = &s->in[TN_OUTER_V];
    if (q->dims.rank != 4 || v->dims.rank != 4)
        return tn_error(TN_USAGE, "q and v need four axes: (batch, time, heads, size); tn_reshape gives them");
    const int64_t B = q->dims.dim[0], T = q->dims.dim[1], H = q->dims.dim[2], N = q->dims.dim[3], P = v->dims.dim[3];
    TN_RETURN_IF(tn_state_check(&s->in[TN_OUTER_K], "k", "(B,T,H,N)", q->dims));
    TN_RETURN_IF(tn_state_check(v, "v", "(B,T,H,P)", tn_shape(B, T, H, P)));
    TN_RETURN_IF(tn_state_check(&s->in[TN_OUTER_ALPHA], "alpha", "(B,T,H)", tn_shape(B, T, H)));
    if (!s->in[TN_OUTER_STATE].absent)
        TN_RETURN_IF(tn_state_check(&s->in[TN_OUTER_STATE], "state", "(B,H,N,P)", tn_shape(B, H, N, P)));
    TN_RETURN_IF(tn_state_check_reset(&s->in[TN_OUTER_RESET], tn_shape(B, T)));
    if (!s->in[TN_OUTER_WRITE].absent)
        TN_RETURN_IF(tn_state_check(&s->in[TN_OUTER_WRITE], "write", "(B,T,H,1)", tn_shape(B, T, H, 1)));
    if (a->chunk < 1 || a->chunk > MOST_CHUNK)
        return tn_error(TN_USAGE, "chunk=%lld is outside [1, %d]: %d suits most sizes", (long long)a->chunk, MOST_CHUNK,
                        TN_OUTER_CHUNK);
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

/* Tokens of its chunk that one sees, itself included, on average; the last chunk may be a short one. */
static double seen(int64_t T, int64_t chunk)
{
    const double whole = (double)(T / chunk), rest = (double)(T % chunk), C = (double)chunk;
    return T > 0 ? (whole * C * (C + 1) / 2 + rest * (rest + 1) / 2) / (double)T : 0;
}

/* Pairs inside a chunk that causality hides are not counted; step by step there are none. Nor is the state that the first chunk would read,
 * where none is given. */
static void outer_cost(const tn_sig *s, tn_cost *c)
{
    const tn_outer_attr *a = s->attr;
    const tn_dims q = s->in[TN_OUTER_Q].dims;
    const double tokens = (double)(q.dim[0] * q.dim[1] * q.dim[2]), N = (double)q.dim[3];
    const double P = (double)s->in[TN_OUTER_V].dims.dim[3];
    const double C = a->steps ? 0 : seen(q.dim[1], a->chunk), T = (double)q.dim[1];
    const bool fresh = !a->steps && s->in[TN_OUTER_STATE].absent;
    const double later = !fresh ? 1 : T > (double)a->chunk ? 1 - (double)a->chunk / T : 0; /* tokens behind it */
    c->flops = tokens * 2 * (C * (N + P) + (1 + later) * N * P);
    c->flops_backward = tokens * 2 * (C * (3 * N + 2 * P) + (3 + 2 * later) * N * P);
}

/* --- what CUDA's kernels take in (rules of absorb.c) ------------------------------------------------------------------- */

/* Few tokens go one by one: `write` is taken forwards, whatever the types and shapes are. */
static bool in_steps(const tn_sig *s)
{
    return ((const tn_outer_attr *)s->attr)->steps || s->in[TN_OUTER_Q].dims.dim[1] <= TN_OUTER_FEW;
}

/* Else they take `write`, and keep states, with these types and shapes, where rows of q, k and v begin at 16 bytes. */
static bool in_tiles(const tn_sig *s)
{
    const tn_type *q = &s->in[TN_OUTER_Q], *v = &s->in[TN_OUTER_V];
    const int64_t T = q->dims.dim[1], N = q->dims.dim[3], P = v->dims.dim[3];
    for (int i = TN_OUTER_Q; i <= TN_OUTER_V; i++)
        if (s->in[i].dtype != TN_BF16) return false;
    return !((const tn_outer_attr *)s->attr)->steps && T > TN_OUTER_FEW && s->out[0].dtype == TN_BF16 && N > 0 &&
           P > 0 && N % 8 == 0 && P % 8 == 0 && N <= TN_OUTER_CHUNK && P <= TN_OUTER_CHUNK;
}

static bool in_vectors(const tn_absorbing *a, tn_ref v)
{
    return tn_absorb_aligned(a, a->in[TN_OUTER_Q], 8) && tn_absorb_aligned(a, a->in[TN_OUTER_K], 8) &&
           tn_absorb_aligned(a, v, 8);
}

/* v is a product with one number for each token and head. */
static bool take_write(tn_absorbing *a)
{
    const bool few = !a->trains && in_steps(&a->sig);
    tn_ref by[2];
    if (a->in[TN_OUTER_WRITE].id || (!few && !in_tiles(&a->sig)) ||
        !tn_absorb_maker(a, a->in[TN_OUTER_V], TN_FN_MUL, by))
        return false;
    const tn_dims v = tn_ref_dims(a->g, by[0]), w = tn_ref_dims(a->g, by[1]);
    if (!tn_dims_equal(v, a->sig.in[TN_OUTER_V].dims) || !tn_dims_equal(w, tn_shape(v.dim[0], v.dim[1], v.dim[2], 1)) ||
        a->sig.in[TN_OUTER_V].live || tn_absorb_live(a, by[0]))
        return false;
    if (few ? tn_absorb_live(a, by[1]) : tn_ref_dtype(a->g, by[0]) != TN_BF16 || !in_vectors(a, by[0])) return false;
    a->in[TN_OUTER_V] = by[0];
    a->in[TN_OUTER_WRITE] = by[1];
    return true;
}

/* alpha = -softplus(a) and write = sigmoid(b), b without its last axis. */
static bool take_gates(tn_absorbing *a)
{
    tn_outer_attr *attr = a->attr;
    tn_ref minus[2], decay[2], strength[2];
    const tn_ref write = tn_absorb_base(a, a->in[TN_OUTER_WRITE]);
    if (attr->raw || !write.id || !tn_absorb_maker(a, a->in[TN_OUTER_ALPHA], TN_FN_NEG, minus) ||
        !tn_absorb_maker(a, minus[0], TN_FN_SOFTPLUS, decay) || !tn_absorb_maker(a, write, TN_FN_SIGMOID, strength) ||
        tn_ref_dims(a->g, strength[0]).rank != 3)
        return false;
    attr->raw = true;
    a->in[TN_OUTER_ALPHA] = decay[0];
    a->in[TN_OUTER_WRITE] = tn_absorb_column(a, strength[0]);
    return a->in[TN_OUTER_WRITE].id;
}

/* The states before every chunk, for the backward pass. */
static bool keep_states(tn_absorbing *a)
{
    const tn_dims q = a->sig.in[TN_OUTER_Q].dims, v = a->sig.in[TN_OUTER_V].dims;
    if (a->n_out > TN_OUTER_KEPT || !a->trains || !in_tiles(&a->sig) || !in_vectors(a, a->in[TN_OUTER_V])) return false;
    const int64_t chunks = (q.dim[1] + TN_OUTER_CHUNK - 1) / TN_OUTER_CHUNK;
    ((tn_outer_attr *)a->attr)->keeps = true;
    a->out[TN_OUTER_KEPT] = tn_absorb_result(a, TN_BF16, tn_shape(q.dim[0], q.dim[2], chunks, q.dim[3] * v.dim[3]));
    a->n_out = TN_OUTER_KEPT + 1;
    return a->out[TN_OUTER_KEPT].id;
}

static const tn_absorb_rule rules[] = { { "opt.write_in_outer", take_write },
                                        { "opt.gates_in_outer", take_gates },
                                        { "opt.keep_states", keep_states },
                                        { 0 } };

static tn_status outer_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out);

#define OUTER_ROW                                                                                                      \
    .name = "outer", .attr_bytes = sizeof(tn_outer_attr), .flags = TN_OP_STRIDED, .infer = outer_infer,                \
    .grad = outer_grad, .cost = outer_cost,                                                                            \
    .kernel = {                                                                                                        \
        [TN_CPU] = { .forward = tn_outer_forward_cpu, .backward = tn_outer_backward_cpu, .work = tn_outer_work_cpu },  \
        [TN_CUDA] = { .forward = tn_outer_forward_cuda,                                                                \
                      .backward = tn_outer_backward_cuda,                                                              \
                      .work = tn_outer_work_cuda }                                                                     \
    }

const tn_op tn_op_outer = {
    OUTER_ROW,
    TN_OP_SWITCH("opt.outer", "matrix-state recurrence in chunks of matrix products (off: one step per token)"),
    .plain = outer_plain,
    .fusion = { .absorbs = rules },
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
    const tn_outer_attr a = { .chunk = o.chunk ? o.chunk : TN_OUTER_CHUNK };
    const tn_ref in[TN_OUTER_INPUTS] = { q, k, v, alpha, o.state, o.reset };
    tn_ref out[2] = { TN_NONE, TN_NONE };
    tn_graph_add(g, file, line, &tn_op_outer, &a, in, TN_OUTER_INPUTS, out);
    if (o.final) *o.final = out[1];
    return out[0];
}
