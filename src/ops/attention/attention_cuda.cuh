/* Shared by the CUDA kernels of attention: tensors, masks, tiles in shared memory, the order of blocks.
 *
 * A row is (token, query head of the key head's group), row r of a key head being token r / group, so that all heads
 * that read the same keys sit in the same tile and decoding with grouped heads fills it. Tiles of keys start at
 * multiples of their length: a row's sums do not depend on the block it is in. Lengths outside 0..S, which the
 * device alone can see, count as 0 or S for memory's sake and make the outputs NaN. */
#ifndef TN_OPS_ATTENTION_CUDA_CUH
#define TN_OPS_ATTENTION_CUDA_CUH

#include "backend/cuda/device.cuh"
#include "backend/cuda/mma.cuh"

extern "C" {
#include "ops/attention/attention_mask.h"
}

namespace tn_attention
{

const float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/* (B,N,heads,D), strides in elements. */
struct view {
    void *data;
    int64_t b, n, h, d;
    tn_dtype type;
    bool vectors; /* 16-byte rows of bf16: copied without looking */
    bool eights;  /* rows that tn_load8 can read */
    bool pairs;   /* two neighbours of bf16 in one word */
};

inline view view_of(const tn_arg *a)
{
    view v = { a->data, a->stride[0], a->stride[1], a->stride[2], a->stride[3], a->dtype, false, false, false };
    v.eights = tn_vector_rows(a);
    v.vectors = v.eights && a->dtype == TN_BF16;
    v.pairs = a->dtype == TN_BF16 && v.d == 1 && a->dims.dim[3] % 2 == 0 && (uintptr_t)a->data % 4 == 0 &&
              (v.b | v.n | v.h) % 2 == 0;
    return v;
}

/* What every kernel is told. */
struct problem {
    view q, k, v, y, dy, dq, dk, dv;
    float *lse; /* (B,H,T) with these strides, or NULL */
    int64_t lse_b, lse_h, lse_t;
    int B, T, S, KV, group, D, rows; /* rows = T * group */
    float scale;
    const int32_t *live;                           /* sequences alive, or NULL */
    const int32_t *live_dk, *live_dv;              /* of these gradients */
    const int32_t *kv_length, *lengths, *document; /* or NULL */
    int64_t document_b, document_t;
    int kv_length_b;    /* 1: each sequence has a length, 0: all have one */
    int ahead, back;    /* query at p sees keys p - back .. p + ahead - 1; FAR: no bound */
    uint64_t add;       /* accumulate */
    const int2 *spread; /* (B, tiles of SPREAD tokens) smallest and largest document, or NULL */
    int spreads;
};

enum { FAR = 1 << 30, SPREAD = 64 };

inline int capped(int64_t n) { return n < FAR ? (int)n : FAR; }

inline problem problem_of(const tn_call *c, const tn_arg *rowwise)
{
    const tn_attention_attr *a = (const tn_attention_attr *)c->attr;
    const tn_arg *in = c->in, *doc = &in[TN_ATT_DOCUMENT];
    const tn_dims q = in[TN_ATT_Q].dims, k = in[TN_ATT_K].dims;
    problem p = {};
    p.q = view_of(&in[TN_ATT_Q]), p.k = view_of(&in[TN_ATT_K]), p.v = view_of(&in[TN_ATT_V]);
    p.y = view_of(&c->out[0]);
    p.lse = (float *)c->out[1].data;
    p.lse_b = c->out[1].stride[0], p.lse_h = c->out[1].stride[1], p.lse_t = c->out[1].stride[2];
    p.B = (int)q.dim[0], p.T = (int)q.dim[1], p.S = (int)k.dim[1], p.KV = (int)k.dim[2], p.D = (int)q.dim[3];
    p.group = (int)(q.dim[2] / k.dim[2]), p.rows = p.T * p.group;
    p.scale = a->scale;
    p.live = rowwise->live;
    p.kv_length = (const int32_t *)in[TN_ATT_KV_LENGTH].data;
    p.kv_length_b = p.kv_length && in[TN_ATT_KV_LENGTH].dims.dim[0] > 1;
    p.lengths = (const int32_t *)in[TN_ATT_LENGTHS].data;
    p.document = (const int32_t *)doc->data;
    if (doc->data) p.document_b = doc->stride[0], p.document_t = doc->stride[1];
    p.ahead = a->causal ? 1 : a->window ? capped(a->window) : FAR;
    p.back = a->window ? capped(a->window) - 1 : FAR;
    return p;
}

/* Every query head by itself. */
inline problem per_head(problem p)
{
    p.KV *= p.group, p.group = 1, p.rows = p.T;
    return p;
}

/* --- who sees what ------------------------------------------------------------------------------------------------ */

/* Of one sequence. */
struct sequence {
    int b, keys, position; /* valid keys; position of query 0 */
    bool bad;              /* a length outside 0..S */
};

__device__ __forceinline__ int clamp_to(int x, int lo, int hi) { return x < lo ? lo : x > hi ? hi : x; }

__device__ __forceinline__ sequence sequence_of(const problem &p, int b)
{
    sequence s = { b, p.S, 0, false };
    if (p.kv_length) {
        const int n = p.kv_length[b * p.kv_length_b];
        s.keys = clamp_to(n, 0, p.S);
        s.bad = s.keys != n;
    }
    s.position = s.keys - p.T;
    if (p.lengths) {
        const int n = p.lengths[b];
        s.bad |= n < 0 || n > p.S;
        s.keys = min(s.keys, clamp_to(n, 0, p.S));
    }
    return s;
}

__device__ __forceinline__ bool dead(const int32_t *live, int b) { return live && b >= *live; }

__device__ __forceinline__ int token_of(const problem &p, int r) { return p.group == 1 ? r : r / p.group; }

/* The keys [x,y) for query t; both grow with t. As tn_attention_range. */
__device__ __forceinline__ int2 range_of(const problem &p, const sequence &s, int t)
{
    const int at = s.position + t;
    const int end = max(0, p.ahead < FAR ? min(s.keys, at + p.ahead) : s.keys);
    return make_int2(min(p.back < FAR ? max(0, at - p.back) : 0, end), end);
}

__device__ __forceinline__ int document_at(const problem &p, int b, int t)
{
    return p.document[b * p.document_b + t * p.document_t];
}

/* Smallest and largest document of tokens [t0,t1). */
__device__ __forceinline__ int2 documents_of(const problem &p, int b, int t0, int t1)
{
    const int2 *of = p.spread + (int64_t)b * p.spreads;
    int2 m = of[t0 / SPREAD];
    for (int i = t0 / SPREAD + 1; i * SPREAD < t1; i++) m = make_int2(min(m.x, of[i].x), max(m.y, of[i].y));
    return m;
}

enum meeting { APART, PARTLY, WHOLLY };

/* How the rows [r0,r1) meet the keys [s0,s1), s1 <= S where documents are given. WHOLLY: every row sees every key. */
__device__ __forceinline__ meeting meet(const problem &p, const sequence &s, int r0, int r1, int s0, int s1)
{
    const int t0 = token_of(p, r0), t1 = token_of(p, r1 - 1);
    const int2 early = range_of(p, s, t0), late = range_of(p, s, t1);
    if (s1 <= early.x || s0 >= late.y) return APART;
    const bool whole = late.x <= s0 && early.y >= s1;
    if (!p.document) return whole ? WHOLLY : PARTLY;
    const int2 q = documents_of(p, s.b, t0, t1 + 1), k = documents_of(p, s.b, s0, min(s1, p.S));
    if (q.y < k.x || k.y < q.x) return APART;
    return whole && q.x == q.y && k.x == k.y && q.x == k.x ? WHOLLY : PARTLY;
}

/* What one row sees of a tile. */
struct sight {
    int2 keys;
    int document;
};

__device__ __forceinline__ sight sight_of(const problem &p, const sequence &s, int r)
{
    sight x = { make_int2(0, 0), 0 };
    if (r >= p.rows) return x;
    x.keys = range_of(p, s, token_of(p, r));
    if (p.document) x.document = document_at(p, s.b, token_of(p, r));
    return x;
}

/* documents: of the keys from s0 on, in shared memory, where the problem has documents. */
__device__ __forceinline__ bool sees(const problem &p, const sight &x, int s, int s0, const int *documents)
{
    return s >= x.keys.x && s < x.keys.y && (!p.document || documents[s - s0] == x.document);
}

/* --- the order of blocks ------------------------------------------------------------------------------------------ */

/* Blocks of one head stand near each other as long as the keys of the heads in flight fit the second cache; within
 * such a section the longest come first, so that no long block is left for the end. */
struct order {
    int pieces, heads, section; /* pieces of a head, B * KV, heads of a section */
};

inline order order_of(const problem &p, int pieces)
{
    const int64_t cache = 24 << 20, head = (int64_t)p.S * p.D * 4 + 1, fit = cache / head;
    const int heads = p.B * p.KV;
    return { pieces, heads, fit < 1 ? 1 : fit < heads ? (int)fit : heads };
}

/* x = head, y = piece counted from 0. */
__device__ __forceinline__ int2 place_of(const order &o, int i)
{
    const int first = i / (o.section * o.pieces) * o.section, n = min(o.section, o.heads - first);
    const int rest = i - first * o.pieces;
    return make_int2(first + rest % n, rest / n);
}

/* --- tiles in shared memory --------------------------------------------------------------------------------------- */

/* bf16 rows of WIDTH numbers, PAD apart more, so that fragments meet no bank twice. */
enum { PAD = 8 };

template <int WIDTH>
struct tile_of {
    static const int row = WIDTH + PAD;
    __device__ static __forceinline__ int bytes(int rows) { return rows * row * 2; }
};

__device__ __forceinline__ int64_t row_at(const view &x, const problem &p, int b, int kv, int r)
{
    const int t = token_of(p, r);
    return b * x.b + t * x.n + (int64_t)(kv * p.group + r - t * p.group) * x.h;
}

__device__ __forceinline__ int64_t key_at(const view &x, int b, int kv, int s) { return b * x.b + s * x.n + kv * x.h; }

/* Eight numbers from d on as bf16, zeros beyond D. */
__device__ __forceinline__ uint4 eight_bf16(const view &x, int64_t at, int d, int D)
{
    uint32_t w[4];
    if (x.eights) {
        const tn_f8 v = tn_load8(x.data, x.type, at + d);
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = tn_pack_bf16(v.v[2 * i], v.v[2 * i + 1]);
        return make_uint4(w[0], w[1], w[2], w[3]);
    }
    const auto number = [&](int i) { return i < D ? tn_load(x.data, x.type, at + i * x.d) : 0.f; };
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = tn_pack_bf16(number(d + 2 * i), number(d + 2 * i + 1));
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/* Rows [r0, r0 + N) of x to shared memory, zeros from `end` on and beyond D, by so many threads, of which this is number
 * `me`; is_row: rows of queries, else keys. Whole vectors arrive with the thread's group of copies, other numbers at once
 * (a loop that stays one: its code is long). */
template <int WIDTH, int N, int THREADS, bool is_row>
__device__ __forceinline__ void load_tile(__nv_bfloat16 *to, const view &x, const problem &p, int b, int kv, int r0,
                                          int end, int me = (int)threadIdx.x)
{
    const int per = WIDTH / 8;
    const auto row = [&](int r) { return is_row ? row_at(x, p, b, kv, r) : key_at(x, b, kv, r); };
    if (x.vectors) {
#pragma unroll
        for (int i0 = 0; i0 < N * per; i0 += THREADS) {
            const int i = i0 + me, r = i / per, d = i % per * 8;
            if (N * per % THREADS && i >= N * per) break;
            const bool wanted = r0 + r < end && d < p.D;
            const __nv_bfloat16 *from = (const __nv_bfloat16 *)x.data + (wanted ? row(r0 + r) + d : 0);
            tn_copy16(to + r * tile_of<WIDTH>::row + d, from, wanted);
        }
        return;
    }
#pragma unroll 1
    for (int i = me; i < N * per; i += THREADS) {
        const int r = i / per, d = i % per * 8;
        const bool wanted = r0 + r < end && d < p.D;
        *(uint4 *)(to + r * tile_of<WIDTH>::row + d) =
            wanted ? eight_bf16(x, row(r0 + r), d, p.D) : make_uint4(0, 0, 0, 0);
    }
}

/* --- fragments ---------------------------------------------------------------------------------------------------- */

/* A (16 rows from r0, 16 columns from c0) of a tile. */
template <int WIDTH>
__device__ __forceinline__ void load_a(uint32_t (&a)[4], const __nv_bfloat16 *t, int r0, int c0)
{
    const int lane = threadIdx.x & 31;
    tn_ldmatrix(a, t + (r0 + (lane & 15)) * tile_of<WIDTH>::row + c0 + (lane >> 4) * 8);
}

/* Two B whose columns are 16 rows of the tile from r0 on: b[0] b[1], and b[2] b[3] for the second eight. */
template <int WIDTH>
__device__ __forceinline__ void load_b_rows(uint32_t (&b)[4], const __nv_bfloat16 *t, int r0, int c0)
{
    const int lane = threadIdx.x & 31;
    tn_ldmatrix(b, t + (r0 + (lane & 7) + (lane >> 4) * 8) * tile_of<WIDTH>::row + c0 + (lane >> 3 & 1) * 8);
}

/* Two B whose columns are 16 columns of the tile from c0 on, along 16 of its rows from r0 on. */
template <int WIDTH>
__device__ __forceinline__ void load_b_columns(uint32_t (&b)[4], const __nv_bfloat16 *t, int r0, int c0)
{
    const int lane = threadIdx.x & 31;
    tn_ldmatrix_turned(b, t + (r0 + (lane & 15)) * tile_of<WIDTH>::row + c0 + (lane >> 4) * 8);
}

/* A lane's numbers x[d][at], x[d][at + 1] of a row, d-th neighbours of column 8 d + 2 (lane % 4), times `factor`:
 * overwriting or added. Pairs of bf16 at once; else a loop that stays one, over a copy. */
template <int WIDTH>
__device__ __forceinline__ void store_row(const float (&x)[WIDTH / 8][4], int at, const view &to, int64_t row, int D,
                                          float factor, bool add)
{
    const int c = threadIdx.x % 4 * 2;
    if (to.pairs) {
#pragma unroll
        for (int d = 0; d < WIDTH / 8; d++) {
            float a = factor * x[d][at], b = factor * x[d][at + 1];
            __nv_bfloat162 *p = (__nv_bfloat162 *)((__nv_bfloat16 *)to.data + row + d * 8 + c);
            if (d * 8 + c >= D) continue;
            if (add) {
                const float2 old = __bfloat1622float2(*p);
                a += old.x, b += old.y;
            }
            *p = __floats2bfloat162_rn(a, b);
        }
        return;
    }
    float copy[WIDTH / 4];
#pragma unroll
    for (int d = 0; d < WIDTH / 8; d++) copy[2 * d] = factor * x[d][at], copy[2 * d + 1] = factor * x[d][at + 1];
#pragma unroll 1
    for (int i = 0; i < WIDTH / 4; i++) {
        const int d = i / 2 * 8 + c + i % 2;
        if (d < D) tn_put(to.data, to.type, row + d * to.d, copy[i], add);
    }
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

/* Whether tensor cores take part: by types and sizes alone, never by strides, which must not change a bit. */
inline bool on_tensor_cores(const tn_call *c)
{
    const tn_arg *q = &c->in[TN_ATT_Q];
    return q->dims.dim[3] <= 128 && (q->dtype == TN_BF16 || (q->dtype == TN_F32 && c->round == TN_BF16));
}

inline size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Rows of a head in the backward pass's statistics, in whole tiles. */
inline __host__ __device__ int64_t stat_rows(int64_t rows) { return (rows + 63) / 64 * 64; }
inline size_t stat_bytes(int64_t heads, int64_t rows)
{
    return whole_lines(sizeof(float2) * (size_t)(heads * stat_rows(rows)));
}

/* Bytes of the table of documents. */
inline size_t spread_bytes(int64_t B, int64_t T)
{
    return whole_lines(sizeof(int2) * (size_t)(B * ((T + SPREAD - 1) / SPREAD)));
}

} // namespace tn_attention

/* Fills the table of documents at `memory` and names it in p; nothing where there are none. */
tn_status tn_attention_spread_cuda(const tn_call *c, tn_attention::problem *p, void *memory);
/* Lets a kernel use this much shared memory. */
tn_status tn_attention_room_cuda(const void *kernel, int bytes);
/* The same sums in f32, of any D: attention_general_cuda.cu. stat (heads, stat_rows): log-sum-exp and
 * the sum of gradient times output. */
tn_status tn_attention_general_forward_cuda(const tn_call *c, const tn_attention::problem *p);
tn_status tn_attention_general_backward_cuda(const tn_call *c, const tn_attention::problem *p, const float2 *stat);

/* On Hopper, what the first says yes to: attention_hopper_cuda.cu, attention_backward_hopper_cuda.cu. */
bool tn_attention_hopper_takes(const tn_call *c);
tn_status tn_attention_hopper_forward_cuda(const tn_call *c, const tn_attention::problem *p);
tn_status tn_attention_hopper_backward_cuda(const tn_call *c, const tn_attention::problem *p, const float2 *stat);

/* The backward pass of some of these in one kernel, with so much work memory: attention_backward_once_hopper_cuda.cu. */
size_t tn_attention_once_work_cuda(const tn_sig *s);
bool tn_attention_once_takes(const tn_call *c, const tn_attention::problem *p);
tn_status tn_attention_once_backward_cuda(const tn_call *c, const tn_attention::problem *p, void *work);
/* Its statistics of rows (B * query heads, tiles of 64, 2, 64), of a problem per head: attention_once_stats_cuda.cu. */
tn_status tn_attention_once_stats_cuda(const tn_call *c, const tn_attention::problem *p, float *stat);

#endif
