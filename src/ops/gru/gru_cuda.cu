/* gru on the GPU: two products through cuBLASLt with f32 results (N,3H), then one kernel for gates and h'. Backward one kernel
 * makes the gate gradients of both products, (N,3H) each, and the part of dh that comes through none; then four products
 * and a sum of columns for each bias. Products are in the type of h'; an operand of another type is converted into the
 * workspace first. Dead rows of the gate gradients are 0, and so are those of what they are multiplied with. */
#include "backend/cuda/gemm.h"
#include "ops/act.cuh"
#include "ops/elem_sum.cuh"
#include "ops/gru/gru.h"
#include "ops/linear/linear_passes.cuh"
#include "ops/rows.cuh"

enum { X = TN_GRU_X, HID = TN_GRU_H, WI = TN_GRU_WI, WH = TN_GRU_WH, BI = TN_GRU_BI, BH = TN_GRU_BH };
enum { THREADS = 256, SIDES = 2 }; /* sides: from x, from h */

/* --- workspace ------------------------------------------------------------------------------------------------------ */

typedef struct space {
    void *operand[WH + 1]; /* x, h, w_i, w_h in the type of the products, where they are not */
    void *gates[SIDES];    /* (N,3H): f32 forward, gradients in the type of the products backward */
    void *sum;
    size_t bytes;
} space;

typedef struct sizes {
    int64_t N, I, H;
    tn_dtype type;
    bool converts[WH + 1];
    bool backward;
} sizes;

static space make_space(const sizes &z, void *base)
{
    space s = {};
    const int64_t count[] = { z.N * z.I, z.N * z.H, 3 * z.H * z.I, 3 * z.H * z.H };
    const tn_dims all = { 2, { z.N, 3 * z.H } }, columns = { 1, { 3 * z.H } };
    const size_t item = tn_dtype_bytes(z.type);
    for (int i = X; i <= WH; i++)
        s.operand[i] = tn_d_carve(base, &s.bytes, z.converts[i] ? item * (size_t)count[i] : 0);
    for (int i = 0; i < SIDES; i++)
        s.gates[i] = tn_d_carve(base, &s.bytes, (z.backward ? item : sizeof(float)) * (size_t)(3 * z.N * z.H));
    s.sum = tn_d_carve(base, &s.bytes, z.backward ? tn_d_sum_work(all, columns) : 0);
    return s;
}

extern "C" size_t tn_gru_work_cuda(const tn_sig *s, bool backward)
{
    const bool live = s->in[X].live || s->in[HID].live;
    sizes z = { s->in[X].dims.dim[0], s->in[X].dims.dim[1], s->in[HID].dims.dim[1], s->out[0].dtype };
    z.backward = backward;
    for (int i = X; i <= WH; i++) z.converts[i] = s->in[i].dtype != z.type || (backward && i <= HID && live);
    return make_space(z, NULL).bytes;
}

static sizes sizes_of(const tn_call *c, const tn_arg *y, bool backward)
{
    sizes z = { c->in[X].dims.dim[0], c->in[X].dims.dim[1], c->in[HID].dims.dim[1], y->dtype };
    z.backward = backward;
    for (int i = X; i <= WH; i++) z.converts[i] = c->in[i].dtype != z.type || (backward && i <= HID && y->live);
    return z;
}

/* Input i as an operand of the products; its dead rows are 0 where y has any. */
static tn_status operand(const tn_call *c, const sizes &z, const space &s, int i, const tn_arg *y, tn_arg *out)
{
    tn_arg from = c->in[i];
    *out = from;
    if (!z.converts[i] || tn_all_count(&from) == 0) return TN_OK;
    from.live = i <= HID ? y->live : NULL;
    *out = tn_contiguous_at(&from, s.operand[i], z.type);
    return tn_linear_convert(c, out, &from);
}

/* A matrix (rows,columns), contiguous. */
static tn_arg matrix_at(void *data, tn_dtype type, int64_t rows, int64_t columns)
{
    tn_arg a = {};
    a.data = data, a.dtype = type;
    a.dims.rank = 2, a.dims.dim[0] = rows, a.dims.dim[1] = columns;
    a.stride[0] = columns, a.stride[1] = 1;
    return a;
}

/* to = a b, or added to it. turn_a, turn_b: with that operand transposed. */
static tn_status multiply(const tn_call *c, const tn_arg *a, bool turn_a, const tn_arg *b, bool turn_b,
                          const tn_arg *to, bool add)
{
    tn_cuda_gemm g = {};
    g.m = to->dims.dim[0], g.n = to->dims.dim[1], g.k = a->dims.dim[turn_a ? 0 : 1];
    if (g.m == 0 || g.n == 0) return TN_OK;
    if (g.k == 0) return tn_clear_gradient(c, to, add);
    g.a = a->data, g.a_row = a->stride[turn_a ? 1 : 0], g.a_col = a->stride[turn_a ? 0 : 1];
    g.b = b->data, g.b_row = b->stride[turn_b ? 1 : 0], g.b_col = b->stride[turn_b ? 0 : 1];
    g.c = to->data, g.c_row = to->stride[0];
    g.type = a->dtype, g.c_type = to->dtype, g.alpha = 1, g.beta = add ? 1.f : 0.f, g.tf32 = c->tf32;
    return tn_cuda_gemm_run(tn_cuda_queue_of(c), &g);
}

/* --- forward -------------------------------------------------------------------------------------------------------- */

/* Each thread takes 8 neighbours of a row; n and `eights` are of one gate. */
struct values {
    tn_rowset from[SIDES], bias[SIDES]; /* (N,3H), (3H) */
    tn_rowset h, y, kept;               /* (N,H), (N,H), (N,4H) or without data */
    int n, eights;
};

template <bool FAST>
__device__ __forceinline__ tn_f8 before_gate(const values &s, int side, int64_t row, int gate, int i)
{
    tn_f8 a = tn_row_load8<FAST>(s.from[side], tn_row_at<FAST>(s.from[side], row) + gate * s.n, i, s.n);
    const tn_f8 b = tn_row_load8<FAST>(s.bias[side], gate * s.n * s.bias[side].step, i, s.n);
#pragma unroll
    for (int k = 0; k < 8; k++) a.v[k] += b.v[k];
    return a;
}

template <bool FAST>
static __global__ void __launch_bounds__(THREADS) compute_gates(TN_GRID values s)
{
    const int64_t total = tn_d_rows(s.y.a) * s.eights, step = (int64_t)gridDim.x * THREADS;
    for (int64_t t = (int64_t)blockIdx.x * THREADS + threadIdx.x; t < total; t += step) {
        const int64_t row = t / s.eights;
        const int i = (int)(t - row * s.eights) * 8;
        tn_f8 gate[4]; /* r, z, n, q */
        gate[3] = before_gate<FAST>(s, 1, row, 2, i);
#pragma unroll
        for (int g = 0; g < 2; g++) {
            const tn_f8 a = before_gate<FAST>(s, 0, row, g, i), b = before_gate<FAST>(s, 1, row, g, i);
#pragma unroll
            for (int k = 0; k < 8; k++) gate[g].v[k] = tn_d_sigmoid(a.v[k] + b.v[k]);
        }
        const tn_f8 a = before_gate<FAST>(s, 0, row, 2, i),
                    h = tn_row_load8<FAST>(s.h, tn_row_at<FAST>(s.h, row), i, s.n);
        tn_f8 y;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            gate[2].v[k] = tn_d_tanh(fmaf(gate[0].v[k], gate[3].v[k], a.v[k]));
            y.v[k] = fmaf(gate[1].v[k], h.v[k] - gate[2].v[k], gate[2].v[k]);
        }
        tn_row_put8<FAST>(s.y, tn_row_at<FAST>(s.y, row), i, s.n, y, false);
        if (!s.kept.a.data) continue;
#pragma unroll
        for (int g = 0; g < 4; g++)
            tn_row_put8<FAST>(s.kept, tn_row_at<FAST>(s.kept, row) + g * s.n, i, s.n, gate[g], false);
    }
}

extern "C" tn_status tn_gru_forward_cuda(const tn_call *c)
{
    const tn_arg *y = &c->out[0];
    const sizes z = sizes_of(c, y, false);
    const space s = make_space(z, c->work);
    values v = {};
    if (z.N * z.H == 0) return TN_OK;
    for (int side = 0; side < SIDES; side++) {
        const tn_arg to = matrix_at(s.gates[side], TN_F32, z.N, 3 * z.H);
        tn_arg a, w;
        TN_RETURN_IF(operand(c, z, s, side ? HID : X, y, &a));
        TN_RETURN_IF(operand(c, z, s, side ? WH : WI, y, &w));
        TN_RETURN_IF(multiply(c, &a, false, &w, true, &to, false));
        v.from[side] = tn_rows_of(&to);
        v.bias[side] = tn_rows_of(&c->in[side ? BH : BI]);
    }
    v.h = tn_rows_of(&c->in[HID]), v.y = tn_rows_of(y), v.kept = tn_rows_of(&c->out[1]);
    v.n = (int)z.H, v.eights = (int)((z.H + 7) / 8);
    const bool fast = z.H % 8 == 0 && v.from[0].fast && v.from[1].fast && v.bias[0].fast && v.bias[1].fast &&
                      v.h.fast && v.y.fast && v.kept.fast;
    (fast ? compute_gates<true>
          : compute_gates<false>)<<<tn_blocks(c, z.N * v.eights, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(v);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- backward ------------------------------------------------------------------------------------------------------- */

struct slopes {
    tn_rowset kept, h, dy; /* (N,4H), (N,H), (N,H) */
    tn_rowset to[SIDES];   /* (N,3H): gradients before the gates, as either product sees them */
    tn_rowset dh;          /* (N,H) or without data */
    bool add;              /* to dh */
    int n, eights;
};

/* What the gates' gradients are of 8 neighbours: before r, z, n, of q, and h's own. */
template <bool FAST>
__device__ __forceinline__ void slopes_of(const slopes &s, int64_t row, int i, tn_f8 (&d)[5])
{
    const int64_t kept = tn_row_at<FAST>(s.kept, row);
    const tn_f8 r = tn_row_load8<FAST>(s.kept, kept, i, s.n), z = tn_row_load8<FAST>(s.kept, kept + s.n, i, s.n),
                n = tn_row_load8<FAST>(s.kept, kept + 2 * s.n, i, s.n),
                q = tn_row_load8<FAST>(s.kept, kept + 3 * s.n, i, s.n),
                h = tn_row_load8<FAST>(s.h, tn_row_at<FAST>(s.h, row), i, s.n),
                dy = tn_row_load8<FAST>(s.dy, tn_row_at<FAST>(s.dy, row), i, s.n);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const float dn = dy.v[k] * (1.f - z.v[k]) * (1.f - n.v[k] * n.v[k]);
        d[0].v[k] = dn * q.v[k] * (r.v[k] * (1.f - r.v[k]));
        d[1].v[k] = dy.v[k] * (h.v[k] - n.v[k]) * (z.v[k] * (1.f - z.v[k]));
        d[2].v[k] = dn;
        d[3].v[k] = dn * r.v[k];
        d[4].v[k] = __fmul_rn(dy.v[k], z.v[k]);
    }
}

template <bool FAST>
static __global__ void __launch_bounds__(THREADS) compute_slopes(TN_GRID slopes s)
{
    const int64_t alive = tn_d_rows(s.dy.a), total = s.dy.a.dims.dim[0] * s.eights, step = (int64_t)gridDim.x * THREADS;
    for (int64_t t = (int64_t)blockIdx.x * THREADS + threadIdx.x; t < total; t += step) {
        const int64_t row = t / s.eights;
        const int i = (int)(t - row * s.eights) * 8;
        tn_f8 d[5] = {};
        if (row < alive) slopes_of<FAST>(s, row, i, d);
#pragma unroll
        for (int side = 0; side < SIDES; side++) {
            const int64_t to = tn_row_at<FAST>(s.to[side], row);
            tn_row_put8<FAST>(s.to[side], to, i, s.n, d[0], false);
            tn_row_put8<FAST>(s.to[side], to + s.n, i, s.n, d[1], false);
            tn_row_put8<FAST>(s.to[side], to + 2 * s.n, i, s.n, d[2 + side], false);
        }
        if (s.dh.a.data) tn_row_put8<FAST>(s.dh, tn_row_at<FAST>(s.dh, row), i, s.n, d[4], s.add);
    }
}

static tn_status make_slopes(const tn_call *c, const sizes &z, const tn_arg *gates)
{
    slopes v = {};
    v.kept = tn_rows_of(&c->out[1]), v.h = tn_rows_of(&c->in[HID]), v.dy = tn_rows_of(&c->dout[0]);
    for (int side = 0; side < SIDES; side++) v.to[side] = tn_rows_of(&gates[side]);
    v.dh = tn_rows_of(&c->din[HID]), v.add = c->accumulate >> HID & 1;
    v.n = (int)z.H, v.eights = (int)((z.H + 7) / 8);
    const bool fast = z.H % 8 == 0 && v.kept.fast && v.h.fast && v.dy.fast && v.to[0].fast && v.to[1].fast && v.dh.fast;
    (fast ? compute_slopes<true>
          : compute_slopes<false>)<<<tn_blocks(c, z.N * v.eights, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(v);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

struct pass_map {
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[1][N], float (&y)[1][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++) y[0][e] = x[0][e];
    }
};

/* The gradients that one product passes on: of its input, its weight and its bias. */
static tn_status grad_side(const tn_call *c, const sizes &z, const space &s, int side, const tn_arg *d)
{
    const int input = side ? HID : X, weight = side ? WH : WI, bias = side ? BH : BI;
    const tn_arg *args[] = { d, &c->din[bias] };
    tn_arg a, w;
    if (c->din[input].data) {
        TN_RETURN_IF(operand(c, z, s, weight, &c->dout[0], &w));
        TN_RETURN_IF(multiply(c, d, false, &w, false, &c->din[input], side || (c->accumulate >> input & 1)));
    }
    if (c->din[weight].data) {
        TN_RETURN_IF(operand(c, z, s, input, &c->dout[0], &a));
        TN_RETURN_IF(multiply(c, d, true, &a, false, &c->din[weight], c->accumulate >> weight & 1));
    }
    if (!c->din[bias].data) return TN_OK;
    return tn_d_sum_run<1>(c, tn_d_sum_make(d->dims, NULL, 1, args, c->accumulate >> bias & 1, false, s.sum),
                           pass_map{});
}

extern "C" tn_status tn_gru_backward_cuda(const tn_call *c)
{
    const sizes z = sizes_of(c, &c->dout[0], true);
    const space s = make_space(z, c->work);
    if (z.N * z.H == 0) {
        for (int i = 0; i < TN_GRU_INPUTS; i++) TN_RETURN_IF(tn_clear_gradient(c, &c->din[i], c->accumulate >> i & 1));
        return TN_OK;
    }
    const tn_arg gates[SIDES] = { matrix_at(s.gates[0], z.type, z.N, 3 * z.H),
                                  matrix_at(s.gates[1], z.type, z.N, 3 * z.H) };
    TN_RETURN_IF(make_slopes(c, z, gates));
    for (int side = 0; side < SIDES; side++) TN_RETURN_IF(grad_side(c, z, s, side, &gates[side]));
    return TN_OK;
}
