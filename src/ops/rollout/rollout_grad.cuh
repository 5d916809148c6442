/* rollout on the GPU, backward: what its files share. Gradients by states are in the type of states, all others f32. */
#ifndef TN_OPS_ROLLOUT_GRAD_CUH
#define TN_OPS_ROLLOUT_GRAD_CUH

#include "ops/rollout/rollout_cuda.cuh"

namespace tn_rollout
{

enum { CHUNK = 64 }; /* rows whose sums are one partial sum */

/* Partial sums of a chunk: the heads' biases, E2, D2, their biases, F. */
struct head_sums {
    int b1, e2, d2, e2b, d2b, f, all; /* where they begin */
};

static inline head_sums head_sums_of(const net &m)
{
    head_sums s;
    s.b1 = 0, s.e2 = m.W1, s.d2 = s.e2 + m.E * (m.H / 2), s.e2b = s.d2 + 3 * HIDDEN;
    s.d2b = s.e2b + m.E, s.f = s.d2b + 3, s.all = s.f + m.F * m.H;
    return s;
}

/* Of a block of the neuron's backward pass: weights as (outputs,inputs). */
enum {
    SUM_V2 = 0,
    SUM_V3 = SUM_V2 + NEURON * NEURON,
    SUM_V3B = SUM_V3 + FEATURES * NEURON,
    SUM_V1B = SUM_V3B + FEATURES,
    SUM_N1G = SUM_V1B + NEURON,
    SUM_N1B = SUM_N1G + NEURON,
    SUM_V2B = SUM_N1B + NEURON,
    SUM_N2G = SUM_V2B + NEURON,
    SUM_N2B = SUM_N2G + NEURON,
    SUM_Q = SUM_N2B + NEURON,
    SUM_QB = SUM_Q + 9,
    SUM_V1 = SUM_QB + 3,
    SUM_MOST = SUM_V1 + NEURON * (3 + TN_ROLLOUT_ENERGY + TN_ROLLOUT_FIELD)
};

struct grads {
    const float *de, *du, *dv, *dd; /* by landings; NULL: 0 */
    int32_t *next, *kid,
        *kid_slot;       /* (T,C): row of a flow in the next step, of its first child; slot of its first child */
    float *dplace;       /* (2,C,P): by place and energy before a step */
    void *dh;            /* (2,L,C,H): by states before a step */
    void *dpre;          /* (C,W1) */
    float *small;        /* (C,E+3): by what tanh takes, by delta */
    float *dphi, *dread; /* (C,F) */
    float *dgrid;        /* (B,voxels,F): by the field after the step */
    void *above;         /* (C,H): what a layer's new state gets from above */
    void *dx;            /* (C,X_ROOM) */
    void *gates;         /* (L,C,4H): before r, z, n, and of q */
    float *head_part, *gate_part, *neuron_part; /* (chunks,head_sums) (L,chunks,4H) (blocks,SUM_MOST) */
    int32_t chunks, blocks;
    void *de0; /* gradient by E0; NULL: not wanted */
    tn_dtype de0_type;
    bool de0_add;
};

__host__ __device__ __forceinline__ float *dplace_of(const net &m, const grads &g, int t)
{
    return g.dplace + (int64_t)(t & 1) * m.C * m.P;
}
__host__ __device__ __forceinline__ void *dh_of(const net &m, const grads &g, int t, int l)
{
    return item(g.dh, m.type, ((int64_t)(t & 1) * m.L + l) * m.C * m.H);
}

/* What a row's flow is after step t. */
struct successor {
    int32_t bits, next, kids, kid, kid_slot;
    bool landed, kids_landed;
};

__device__ __forceinline__ successor successor_of(const net &m, const grads &g, int t, int32_t row)
{
    const int64_t i = (int64_t)t * m.C + row;
    successor s = {};
    s.bits = bits_of(m, t)[row];
    s.landed = s.bits & (TN_ROLLOUT_LEFT | TN_ROLLOUT_LAST | TN_ROLLOUT_OFF);
    s.kids = s.bits & TN_ROLLOUT_OFF ? 0 : s.bits >> TN_ROLLOUT_CHILDREN;
    if (!s.landed) s.next = g.next[i];
    if (s.kids == 0) return s;
    const int32_t b = slots_of(m, t)[row] / m.N;
    s.kid_slot = g.kid_slot[i];
    s.kids_landed = t + 1 == m.T || live_of(m, t + 1)[b] == live_of(m, t + 1)[b + 1] ||
                    (!m.a.compact && (bits_of(m, t + 1)[s.kid_slot] & TN_ROLLOUT_OFF));
    if (!s.kids_landed) s.kid = g.kid[i];
    return s;
}

/* rollout_links_cuda.cu: next, kid, kid_slot of all steps. */
tn_status link_rows(const tn_call *c, const net &m, const grads &g);

/* rollout_heads_grad_cuda.cu: through moves and heads of step t; of these rollout_move_grad_cuda.cu: by rows. */
tn_status heads_back(const tn_call *c, const net &m, const grads &g, const cell &s);
tn_status moves_back(const tn_call *c, const net &m, const grads &g, const cell &s);
/* rollout_cell_grad_cuda.cu: through the gates of a layer. rollout_neuron_grad_cuda.cu: through the neuron, and
 * the features again, to x (C,X_ROOM). */
tn_status gates_back(const tn_call *c, const net &m, const grads &g, const cell &s, int l);
tn_status neuron_back(const tn_call *c, const net &m, const grads &g, int t, void *x);

/* rollout_field_cuda.cu: to (B,voxels,F) = sums of what rows at these places (C,P) leave there. */
tn_status add_to_field(const tn_call *c, const net &m, int t, const float *place, bool nearest, const float *x,
                       float *to);

} // namespace tn_rollout

#endif
