/* The steps of a token's kernel (decode_cuda.cu), as one block runs them. What other blocks wrote is read past the L1 cache, which does not
 * see their writes. All steps are inlined and use no local memory: a barrier empties the L1 cache. */
#ifndef TN_PLAN_DECODE_STEPS_CUH
#define TN_PLAN_DECODE_STEPS_CUH

#include "backend/cuda/device.cuh"
#include "ops/argmax/argmax_best.cuh"
#include "ops/binary/binary_value.cuh"
#include "ops/gate/gate_value.cuh"
#include "ops/norm/norm.h"
#include "plan/decode/decode.h"
#include "ops/unary/unary_value.cuh"

#include <climits>

enum { TN_DECODE_WARPS = TN_DECODE_FRONT / 32 + TN_DECODE_BACK, TN_DECODE_THREADS = TN_DECODE_WARPS * 32 };
enum { TN_DECODE_SUMS = TN_DECODE_WARPS * (256 + 2) /* of attention, 256 wide */ };
enum { TN_DECODE_PATIENCE = 1 << 24 }; /* polls, about ten seconds: a block that waits for ever ends as an error */

/* Threads wait for each other: all, the front, and those that make products. */
__device__ __forceinline__ void tn_decode_sync()
{
    asm volatile("bar.sync 1, %0;\n" ::"n"((int)TN_DECODE_THREADS) : "memory");
}
__device__ __forceinline__ void tn_decode_front_sync()
{
    asm volatile("bar.sync 2, %0;\n" ::"n"((int)TN_DECODE_FRONT) : "memory");
}
__device__ __forceinline__ void tn_decode_back_sync()
{
    asm volatile("bar.sync 3, %0;\n" ::"n"(TN_DECODE_BACK * 32) : "memory");
}

/* A gate of a PLAIN program (decode.h): silu or sigmoid, in less code than all kinds take. */
__device__ __forceinline__ float tn_decode_gate(int kind, float z)
{
    const float s = tn_d_sigmoid(z);
    return kind == TN_GATE_SILU ? tn_d_at_least(z, -FLT_MAX) * s : s;
}

/* What a block knows while it works on a step. */
struct tn_decode_room {
    float *slots;
    float *sums;                 /* (TN_DECODE_SUMS) */
    bool writes;                 /* this block writes to memory */
    uint32_t epoch;              /* of this launch, beside every number that is sent */
    const tn_decode_step *fetch; /* that is joined to this step, or NULL */
    struct tn_decode_known *known;
};

/* What one step leaves for others of its kind (TN_DECODE_SAME). */
struct tn_decode_known {
    float2 angle[TN_DECODE_ANGLES]; /* cosine, sine */
    int place, seen;                /* integers of put and seen */
};

/* An input: numbers in a slot or in memory, f32 or bf16. All that a thread takes is asked for before any of it is looked at, in one load each
 * whatever lies there: memory that other blocks have written is most of a microsecond away. */
struct tn_decode_in {
    const char *at; /* NULL: absent */
    int each;       /* bytes of a number: 4 or 2 */

    __device__ __forceinline__ tn_decode_in() {}
    __device__ __forceinline__ tn_decode_in(const tn_decode_step &s, const tn_decode_room &r, int k)
    {
        const int slot = s.in_slot[k];
        at = slot >= 0 ? (const char *)(r.slots + slot) : (const char *)s.in[k];
        each = slot >= 0 || s.in_type[k] == TN_F32 ? 4 : 2;
    }
    __device__ __forceinline__ uint64_t place(int64_t i) const { return (uint64_t)at + i * each; }

    /* Number i, and with a bf16 the one that shares its four bytes. */
    __device__ __forceinline__ unsigned ask(int64_t i) const
    {
        unsigned bits;
        asm volatile("ld.cg.u32 %0, [%1];\n" : "=r"(bits) : "l"(place(i) & ~(uint64_t)3) : "memory");
        return bits;
    }
    __device__ __forceinline__ float value(unsigned bits, int64_t i) const
    {
        const unsigned high = (unsigned)place(i) & 2 ? bits & 0xffff0000u : bits << 16;
        return __uint_as_float(each == 4 ? bits : high);
    }
    __device__ __forceinline__ float get(int64_t i) const { return value(ask(i), i); }
};

__device__ __forceinline__ int tn_decode_integer(const tn_decode_step &s, int k)
{
    return __ldcg((const int *)s.in[k]);
}

/* ... or what the last such step found; a barrier follows. */
__device__ __forceinline__ int tn_decode_integer_known(const tn_decode_step &s, int k, int &known)
{
    if (s.flags & TN_DECODE_SAME) return known;
    const int x = tn_decode_integer(s, k);
    if (threadIdx.x == 0) known = x;
    return x;
}

/* x as it is in memory. */
__device__ __forceinline__ float tn_decode_rounded(int type, float x)
{
    return type == TN_F32 ? x : __bfloat162float(__float2bfloat16_rn(x));
}

__device__ __forceinline__ void tn_decode_store(void *p, int type, int64_t i, float x)
{
    if (type == TN_F32) ((float *)p)[i] = x;
    else ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn(x);
}

/* An output: a slot of the block, and memory where it is the one that writes. */
struct tn_decode_out {
    float *slot; /* NULL: none */
    void *far;
    int type;

    __device__ __forceinline__ tn_decode_out(const tn_decode_step &s, const tn_decode_room &r, int k)
    {
        slot = s.out[k] && s.out_slot[k] >= 0 ? r.slots + s.out_slot[k] : nullptr;
        far = r.writes ? s.out[k] : nullptr;
        type = s.out_type[k];
    }
    __device__ __forceinline__ void put(int64_t i, float x) const
    {
        if (slot) slot[i] = tn_decode_rounded(type, x);
        if (far) tn_decode_store(far, type, i, x);
    }
};

/* --- message: a number and its launch's epoch in one 64-bit word, so that relaxed loads and stores are enough --------- */

__device__ __forceinline__ void tn_decode_post(uint64_t *to, uint32_t epoch, float x)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;\n" ::"l"(to), "l"((uint64_t)epoch << 32 | __float_as_uint(x))
                 : "memory");
}

struct tn_decode_words { /* 16 bytes, aligned */
    uint64_t a, b;
};

__device__ __forceinline__ tn_decode_words tn_decode_peek(const uint64_t *from)
{
    tn_decode_words w;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];\n" : "=l"(w.a), "=l"(w.b) : "l"(from) : "memory");
    return w;
}

/* Number i to where the step messages. */
__device__ __forceinline__ void tn_decode_message(const tn_decode_step &s, const tn_decode_room &r, int i, float x)
{
    if (s.message) tn_decode_post(s.message + i, r.epoch, x);
}

/* Number i of output 0 to where it is sent, as a slot would hold it, and to memory. */
__device__ __forceinline__ void tn_decode_send(const tn_decode_step &s, const tn_decode_room &r, int i, float x)
{
    x = tn_decode_rounded(s.out_type[0], x);
    tn_decode_message(s, r, i, x);
    tn_decode_out(s, r, 0).put(i, x);
}

/* A thread's numbers of a vector: two beside each other, and two more a block's width further. */
template <int PAIRS>
struct tn_decode_pairs {
    float v[PAIRS][2];
};

__device__ __forceinline__ int tn_decode_pair_at(int u) { return 2 * (threadIdx.x + u * TN_DECODE_FRONT); }

/* Words of a message (n), asked for at once, and again where they have not come. They may be read one beyond n. */
template <int PAIRS>
__device__ __forceinline__ tn_decode_pairs<PAIRS> tn_decode_poll(const uint64_t *message, int n, uint32_t epoch)
{
    tn_decode_pairs<PAIRS> p;
    tn_decode_words w[PAIRS] = {};
    bool waits[PAIRS], any;
    int looks = 0;
#pragma unroll
    for (int u = 0; u < PAIRS; u++) waits[u] = tn_decode_pair_at(u) < n;
    do {
#pragma unroll
        for (int u = 0; u < PAIRS; u++)
            if (waits[u]) w[u] = tn_decode_peek(message + tn_decode_pair_at(u));
        if (++looks == TN_DECODE_PATIENCE) __trap();
        any = false;
#pragma unroll
        for (int u = 0; u < PAIRS; u++) {
            waits[u] &= ((uint32_t)(w[u].a >> 32) != epoch) |
                        ((tn_decode_pair_at(u) + 1 < n) & ((uint32_t)(w[u].b >> 32) != epoch));
            any |= waits[u];
        }
    } while (any);
#pragma unroll
    for (int u = 0; u < PAIRS; u++)
        p.v[u][0] = __uint_as_float((unsigned)w[u].a), p.v[u][1] = __uint_as_float((unsigned)w[u].b);
    return p;
}

/* To a slot of n numbers, which has room for one more where n is odd. */
template <int PAIRS>
__device__ __forceinline__ void tn_decode_keep(float *slot, int n, const tn_decode_pairs<PAIRS> &x)
{
#pragma unroll
    for (int u = 0; u < PAIRS; u++)
        if (tn_decode_pair_at(u) < n) *(float2 *)(slot + tn_decode_pair_at(u)) = make_float2(x.v[u][0], x.v[u][1]);
}

/* A round of so many pairs for each thread, from number `first` on. */
template <int PAIRS>
__device__ __forceinline__ void tn_decode_fetch_round(const tn_decode_step &s, const tn_decode_room &r, int first)
{
    tn_decode_keep(r.slots + s.out_slot[0] + first, s.n - first,
                   tn_decode_poll<PAIRS>(s.message + first, s.n - first, r.epoch));
}

/* Each round takes a round trip to L2: of long vectors MANY pairs come at once, where there are registers for them. */
template <int MANY>
__device__ __forceinline__ void tn_decode_fetch(const tn_decode_step &s, const tn_decode_room &r)
{
    enum { FEW = TN_DECODE_PAIRS };
    int first = 0;
#pragma unroll 1
    for (; MANY > FEW && s.n - first > 2 * FEW * TN_DECODE_FRONT; first += 2 * MANY * TN_DECODE_FRONT)
        tn_decode_fetch_round<MANY>(s, r, first);
#pragma unroll 1
    for (; first < s.n; first += 2 * FEW * TN_DECODE_FRONT) tn_decode_fetch_round<FEW>(s, r, first);
}

/* The words of number i and number j, when they have come. */
__device__ __forceinline__ float2 tn_decode_poll_two(const uint64_t *message, int i, int j, uint32_t epoch)
{
    uint64_t a, b;
    int looks = 0;
    do {
        if (++looks == TN_DECODE_PATIENCE) __trap();
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];\n" : "=l"(a) : "l"(message + i) : "memory");
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];\n" : "=l"(b) : "l"(message + j) : "memory");
    } while ((uint32_t)(a >> 32) != epoch || (uint32_t)(b >> 32) != epoch);
    return make_float2(__uint_as_float((unsigned)a), __uint_as_float((unsigned)b));
}

/* Over the front; `sums` is free again after the next barrier. */
__device__ __forceinline__ float tn_decode_sum(float x, float *sums)
{
    enum { WARPS = TN_DECODE_FRONT / 32 };
    const int lane = threadIdx.x & 31;
    x = tn_warp_sum(x);
    if (lane == 0) sums[threadIdx.x >> 5] = x;
    tn_decode_front_sync();
    x = sums[lane & (WARPS - 1)];
#pragma unroll
    for (int d = WARPS / 2; d; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* What is a block's of n rows or numbers: the same for all steps, so that one may go on with what it made itself. */
struct tn_decode_rows {
    int first, end;

    __device__ __forceinline__ tn_decode_rows(unsigned n)
    {
        const unsigned b = blockIdx.x, each = n / gridDim.x, more = n - each * gridDim.x;
        first = (int)(each * b + min(b, more));
        end = first + (int)each + (b < more);
    }
};

__device__ __forceinline__ void tn_decode_embed(const tn_decode_step &s, const tn_decode_room &r)
{
    const int token = tn_decode_integer(s, 0);
    const bool in = token >= 0 && token < s.k;
    const tn_decode_in table(s, r, 1);
    const tn_decode_out y(s, r, 0);
    for (int i = threadIdx.x; i < s.n; i += TN_DECODE_FRONT) y.put(i, in ? table.get((int64_t)token * s.n + i) : NAN);
}

/* --- vectors that are summed over ------------------------------------------------------------------------------------------------ */

/* A parameter at number i, or what stands for an absent one: asked for early at a thread's first number, at the others when it is wanted. */
struct tn_decode_param {
    tn_decode_in from;
    unsigned first;
    float otherwise;

    __device__ __forceinline__ tn_decode_param(const tn_decode_step &s, const tn_decode_room &r, int k, float absent)
        : from(s, r, k), otherwise(absent)
    {
        first = from.at && threadIdx.x < s.n ? from.ask(threadIdx.x) : 0;
    }
    __device__ __forceinline__ float operator[](int i) const
    {
        return from.at ? from.value(i < TN_DECODE_FRONT ? first : from.ask(i), i) : otherwise;
    }
};

/* Fetches what the step was joined to, to its slot. */
__device__ __forceinline__ void tn_decode_bring(const tn_decode_room &r)
{
    if (!r.fetch) return;
    tn_decode_fetch<TN_DECODE_PAIRS>(*r.fetch, r);
    tn_decode_front_sync();
}

__device__ __forceinline__ void tn_decode_norm(const tn_decode_step &s, const tn_decode_room &r)
{
    const int n = s.n;
    const tn_decode_param gain(s, r, 2, 1.f), bias(s, r, 3, 0.f);
    const tn_decode_in x(s, r, 0), residual(s, r, 1);
    const tn_decode_out y(s, r, 0), total(s, r, 1);
    float sum = 0, squares = 0, mean = 0;
    tn_decode_bring(r);
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += TN_DECODE_FRONT) {
        float v = x.get(i);
        if (residual.at) v += residual.get(i);
        total.put(i, v);
        y.slot[i] = v;
        sum += v;
        squares += v * v;
    }
    if (s.kind == TN_NORM_LAYER) {
        mean = tn_decode_sum(sum, r.sums + 32) / (float)n;
        squares = 0;
#pragma unroll 1
        for (int i = threadIdx.x; i < n; i += TN_DECODE_FRONT) squares += (y.slot[i] - mean) * (y.slot[i] - mean);
    }
    const float scale = rsqrtf(tn_decode_sum(squares, r.sums) / (float)n + s.a);
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += TN_DECODE_FRONT) y.put(i, (y.slot[i] - mean) * scale * gain[i] + bias[i]);
}

/* Squares are summed 32 by 32, then the sums of a group. */
__device__ __forceinline__ void tn_decode_readout(const tn_decode_step &s, const tn_decode_room &r)
{
    const int n = s.n, group = s.k;
    const tn_decode_param gain(s, r, 4, 1.f), skip(s, r, 3, 0.f);
    const tn_decode_in c(s, r, 0), z(s, r, 1), x(s, r, 2);
    const tn_decode_out y(s, r, 0);
    tn_decode_bring(r);
#pragma unroll 1
    for (int i = threadIdx.x; (i & ~31) < n; i += TN_DECODE_FRONT) { /* all of the warp */
        float v = 0;
        if (i < n) {
            v = s.a * c.get(i);
            if (x.at) v += skip[i] * x.get(i);
            y.slot[i] = v;
        }
        v = tn_warp_sum(v * v);
        if ((i & 31) == 0) r.sums[i >> 5] = v;
    }
    tn_decode_front_sync();
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += TN_DECODE_FRONT) {
        float v = y.slot[i], sum = 0;
        const float gate = tn_d_gate(s.kind, z.get(i));
        if (group) {
            const int from = i / group * (group >> 5);
#pragma unroll 1
            for (int j = from; j < from + (group >> 5); j++) sum += r.sums[j];
            v *= rsqrtf(sum / (float)group + s.b) * gain[i];
        }
        y.put(i, v * gate);
    }
}

/* --- states ---------------------------------------------------------------------------------------------------------------------------- */

/* The number that says whether a state begins anew; asked for early. */
__device__ __forceinline__ int tn_decode_reset(const tn_decode_step &s, int state)
{
    return !s.in[state] ? 1 : s.in[state + 1] ? tn_decode_integer(s, state + 1) : 0;
}

/* Conv at a channel: what it reads besides its input. */
struct tn_decode_taps {
    tn_decode_in weight, bias;
    unsigned w[TN_DECODE_TAPS], b;
    float old[TN_DECODE_TAPS];

    __device__ __forceinline__ tn_decode_taps() {}
    __device__ __forceinline__ tn_decode_taps(const tn_decode_step &s, const tn_decode_room &r, int i)
        : weight(s, r, 1), bias(s, r, 2)
    {
        const float *state = (const float *)s.in[3] + i;
        const int n = s.n, k = s.k;
        b = bias.at ? bias.ask(i) : 0;
#pragma unroll
        for (int j = 0; j < TN_DECODE_TAPS; j++) {
            old[j] = 0.f;
            if (j < k) w[j] = weight.ask(j * n + i);
            if (j < k - 1 && s.in[3]) old[j] = __ldcg(state + j * n);
        }
    }

    /* Of input x; the state goes on. */
    __device__ __forceinline__ float make(const tn_decode_step &s, int i, float x, bool fresh, bool writes) const
    {
        float sum = bias.at ? bias.value(b, i) : 0.f;
        const int n = s.n, k = s.k;
#pragma unroll
        for (int j = 0; j < TN_DECODE_TAPS; j++) {
            if (j >= k) break;
            const float v = j == k - 1 ? x : fresh ? 0.f : old[j];
            sum = fmaf(weight.value(w[j], j * n + i), v, sum);
            if (j && writes && s.out[1]) tn_decode_store(s.out[1], s.out_type[1], (j - 1) * n + i, v);
        }
        return s.kind ? tn_d_silu(sum) : sum;
    }
};

__device__ __forceinline__ void tn_decode_conv(const tn_decode_step &s, const tn_decode_room &r)
{
    const bool fresh = tn_decode_reset(s, 3);
    const tn_decode_in x(s, r, 0);
    const tn_decode_out y(s, r, 0);
#pragma unroll 1
    for (int i = threadIdx.x; i < s.n; i += TN_DECODE_FRONT) {
        const tn_decode_taps t(s, r, i);
        y.put(i, t.make(s, i, x.get(i), fresh, r.writes));
    }
}

/* What does not depend on the token is worked out before its gates have come. */
__device__ __forceinline__ void tn_decode_scan(const tn_decode_step &s, const tn_decode_room &r)
{
    const int n = s.n, reset = tn_decode_reset(s, 4);
    const tn_decode_in x(s, r, 0), gates(s, r, 1), nu(s, r, 2), omega(s, r, 3), state(s, r, 4);
    const tn_decode_out y(s, r, 0), next(s, r, 1);
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += TN_DECODE_FRONT) {
        const unsigned nu_bits = nu.ask(i), omega_bits = omega.ask(i), re = state.at ? state.ask(i) : 0,
                       im = state.at ? state.ask(n + i) : 0;
        const unsigned x_re = x.ask(i), x_im = x.ask(n + i);
        const float rate = -8.f * tn_d_softplus(nu.value(nu_bits, i));
        float sn, cs;
        sincosf(omega.value(omega_bits, i), &sn, &cs);
        const float u = state.value(re, i), v = state.value(im, n + i), turned_re = reset ? 0.f : cs * u - sn * v,
                    turned_im = reset ? 0.f : cs * v + sn * u;
        float2 gate;
        if (r.fetch) {
            gate = tn_decode_poll_two(r.fetch->message, i, n + i, r.epoch);
            float *slot = r.slots + r.fetch->out_slot[0];
            slot[i] = gate.x, slot[n + i] = gate.y;
        } else {
            gate = make_float2(gates.get(i), gates.get(n + i));
        }
        const float l = rate * gate.x, rho = expf(l);
        const float gain = sqrtf(tn_d_at_least(-expm1f(2.f * l), 1e-6f)) * gate.y;
        const float a = gain * x.value(x_re, i) + rho * turned_re, b = gain * x.value(x_im, n + i) + rho * turned_im;
        y.put(i, a);
        y.put(n + i, b);
        next.put(i, a);
        next.put(n + i, b);
    }
}

/* --- the others ---------------------------------------------------------------------------------------------------------------------- */

/* Functions of all kinds are long: once. */
__device__ __forceinline__ void tn_decode_elementwise(const tn_decode_step &s, const tn_decode_room &r)
{
    const tn_decode_in a(s, r, 0), b(s, r, 1);
    const tn_decode_out y(s, r, 0);
#pragma unroll 1
    for (int i = threadIdx.x; i < s.n; i += TN_DECODE_FRONT) {
        const int j = s.op == TN_DECODE_BINARY ? i / s.m % s.k : i;
        const unsigned x = a.ask(i), z = s.op == TN_DECODE_UNARY ? 0 : b.ask(j);
        float v = a.value(x, i);
        if (s.op == TN_DECODE_UNARY) v = tn_d_unary(s.kind, v, s.a, s.b);
        else if (s.op == TN_DECODE_GATE) v *= tn_d_gate(s.kind, b.value(z, j));
        else v = tn_d_binary(s.kind, v, b.value(z, j));
        y.put(i, v);
    }
}

/* By the warps that make products: 8 columns of a head at a time, 8 lanes its columns, the others and the warps its rows. The state is on its way
 * before the vectors are there. */
__device__ __forceinline__ void tn_decode_outer(const tn_decode_step &s, const tn_decode_room &r)
{
    enum { COLUMNS = 8, ROWS = TN_DECODE_BACK * 32 / COLUMNS, READY = 2 };
    const int t = threadIdx.x - TN_DECODE_FRONT, column = t % COLUMNS, row = t / COLUMNS, N = s.k, P = s.m,
              parts = (P + COLUMNS - 1) / COLUMNS;
    const int reset = tn_decode_reset(s, 4);
    const tn_decode_in q(s, r, 0), k(s, r, 1), v(s, r, 2), alpha(s, r, 3), strength(s, r, 6);
    const float *state = (const float *)s.in[4];
    bool ready = false;
#pragma unroll 1
    for (int u = blockIdx.x; u < s.n * parts; u += gridDim.x) {
        const int h = u / parts, p = u % parts * COLUMNS + column;
        const int64_t at = ((int64_t)h * N + row) * P + p;
        float old[READY], sum = 0;
#pragma unroll
        for (int c = 0; c < READY; c++)
            old[c] = state && p < P && row + c * ROWS < N ? __ldcg(state + at + (int64_t)c * ROWS * P) : 0.f;
        if (!ready) tn_decode_sync(); /* vectors are there */
        ready = true;
        float decay = alpha.get(h), write = strength.at ? strength.get(h) : 1.f;
        if (s.kind) {
            decay = -tn_d_softplus(decay);
            if (strength.at) write = tn_d_sigmoid(write);
        }
        decay = reset ? 0.f : expf(decay);
        if (p < P) {
            write *= v.get(h * P + p);
#pragma unroll 1
            for (int n = row, c = 0; n < N; n += ROWS, c++) {
                const int64_t here = at + (int64_t)(n - row) * P;
                const float before = c == 0 ? old[0] : c == 1 ? old[1] : state ? __ldcg(state + here) : 0.f;
                const float kv = k.get(h * N + n) * write, now = reset ? kv : fmaf(decay, before, kv);
                sum = fmaf(q.get(h * N + n), now, sum);
                if (s.out[1]) tn_decode_store(s.out[1], s.out_type[1], here, now);
            }
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 8);
        sum += __shfl_xor_sync(0xffffffffu, sum, 16);
        if ((threadIdx.x & 31) < COLUMNS) r.sums[(t >> 5) * COLUMNS + column] = sum;
        tn_decode_back_sync();
        if (t < COLUMNS && p < P && s.out[0]) {
            float o = 0;
#pragma unroll
            for (int w = 0; w < TN_DECODE_BACK; w++) o += r.sums[w * COLUMNS + column];
            tn_decode_send(s, r, h * P + p, o);
        }
        tn_decode_back_sync();
    }
    if (!ready) tn_decode_sync();
    tn_decode_sync();
}

/* n copies: one by the whole block, or a warp each. */
__device__ __forceinline__ void tn_decode_copy(const tn_decode_step *step, const tn_decode_room &r, int n)
{
    const int threads = n > 1 ? 32 : TN_DECODE_THREADS, group = threadIdx.x / threads,
              groups = TN_DECODE_THREADS / threads;
#pragma unroll 1
    for (int k = group; k < n; k += groups) {
        const tn_decode_step &s = step[k];
        const tn_decode_in x(s, r, 0);
        const tn_decode_rows mine(s.n);
#pragma unroll 1
        for (int first = mine.first + threadIdx.x % threads; first < mine.end; first += 4 * threads) {
            unsigned bits[4];
#pragma unroll
            for (int u = 0; u < 4; u++)
                if (first + u * threads < mine.end) bits[u] = x.ask(first + u * threads);
#pragma unroll
            for (int u = 0; u < 4; u++) {
                const int i = first + u * threads;
                if (i < mine.end) tn_decode_store(s.out[0], s.out_type[0], i, x.value(bits[u], i));
            }
        }
    }
}

/* --- the largest ----------------------------------------------------------------------------------------------------------- */

/* Of the block, for its first warp. */
__device__ __forceinline__ tn_d_best tn_decode_best_of_all(tn_d_best a, float *sums)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    a = tn_d_best_of_warp(a);
    if (lane == 0) sums[2 * warp] = a.x, sums[2 * warp + 1] = __int_as_float(a.at);
    tn_decode_sync();
    const int w = lane < TN_DECODE_WARPS ? lane : 0;
    const tn_d_best b = { sums[2 * w], __float_as_int(sums[2 * w + 1]) };
    return tn_d_best_of_warp(b);
}

__device__ __forceinline__ void tn_decode_best_parts(const tn_decode_step &s, const tn_decode_room &r, float *scratch)
{
    const tn_decode_rows rows(s.n);
    const tn_decode_in from(s, r, 0);
    tn_d_best mine = { -INFINITY, INT_MAX };
#pragma unroll 1
    for (int i = rows.first + threadIdx.x; i < rows.end; i += TN_DECODE_THREADS) {
        const float x = from.get(i);
        const tn_d_best b = { x, x == x ? i : -1 };
        mine = tn_d_better(mine, b);
    }
    mine = tn_decode_best_of_all(mine, r.sums);
    if (threadIdx.x == 0) scratch[2 * blockIdx.x] = mine.x, scratch[2 * blockIdx.x + 1] = __int_as_float(mine.at);
}

__device__ __forceinline__ void tn_decode_best_whole(const tn_decode_step &s, const tn_decode_room &r,
                                                     const float *scratch)
{
    tn_d_best mine = { -INFINITY, INT_MAX };
#pragma unroll 1
    for (int i = threadIdx.x; i < gridDim.x; i += TN_DECODE_THREADS) {
        const tn_d_best b = { __ldcg(scratch + 2 * i), __float_as_int(__ldcg(scratch + 2 * i + 1)) };
        mine = tn_d_better(mine, b);
    }
    mine = tn_decode_best_of_all(mine, r.sums);
    if (threadIdx.x == 0 && r.writes) *(int *)s.out[0] = mine.at;
}

#endif
