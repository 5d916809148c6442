/* What scan and scan_gated do alike on the host before a launch: where things lie in the workspace, and the frame of the
 * tiles. The workspace begins with the ticket (64 bytes) and the nodes, which must be zeros. */
#ifndef TN_OPS_SCAN_SETUP_CUH
#define TN_OPS_SCAN_SETUP_CUH

#include "ops/scan/scan_nodes.cuh"
#include "ops/sum_rows.cuh"

#include <initializer_list>

typedef struct tn_tile_layout {
    size_t zeros, table, partial, sums, bytes; /* zeros: how many; the rest: where each begins */
} tn_tile_layout;

/* words: per channel of a node; table: bytes per padded channel of the op's own table; sums: fields summed over tokens. */
static inline tn_tile_layout tn_tile_layout_of(int64_t B, int64_t T, int64_t K, int words, size_t table, int sums,
                                               bool backward)
{
    const int64_t columns = tn_tile_padded(K);
    tn_tile_layout l = {};
    l.zeros = 64 + tn_tile_node_bytes(B, T, K, words);
    l.table = l.zeros;
    l.partial = l.table + table * (size_t)columns;
    l.sums = l.partial + (backward ? sizeof(float) * (size_t)(B * tn_tile_chunks(T) * sums * columns) : 0);
    l.bytes = l.sums + (backward ? tn_sum_bytes(sums, columns) : 0);
    return l;
}

/* x (B,T,2K) */
static inline tn_tile_frame tn_tile_frame_of(const tn_call *c, const tn_arg *x, const tn_arg *reset, bool backward)
{
    const int64_t *d = x->dims.dim;
    tn_tile_frame f = {};
    f.B = d[0], f.T = d[1], f.K = (int)(d[2] / 2);
    f.chunks = tn_tile_chunks(d[1]);
    f.columns = tn_tile_padded(d[2] / 2);
    f.reverse = backward;
    f.reset = (const int32_t *)reset->data;
    f.live = tn_tile_live(c);
    f.ticket = (unsigned *)c->work;
    f.node = (unsigned long long *)((char *)c->work + 64);
    return f;
}

/* Backward also has slices to add up. */
static inline tn_sum_rows tn_tile_sums_of(const tn_call *c, const tn_tile_frame *f, const tn_tile_layout *l, int sums,
                                          bool backward)
{
    tn_sum_rows s = {};
    s.partial = (const float *)((char *)c->work + l->partial);
    s.B = f->B, s.parts = f->chunks, s.columns = f->columns, s.live = f->live;
    if (backward) tn_sum_place(&s, sums, (char *)c->work + l->sums);
    return s;
}

/* How many channels a lane has: two where pairs may be moved in all these tensors, unless `single`. */
static inline int tn_tile_choose(tn_tile_frame *f, bool single, std::initializer_list<const tn_tile_tensor *> all)
{
    int V = single || f->K % 2 ? 1 : 2;
    for (const tn_tile_tensor *p : all) V = tn_tile_pairs(p) ? V : 1;
    f->direct = true;
    for (const tn_tile_tensor *p : all) f->direct = f->direct && tn_tile_direct(p, V, f->K);
    return V;
}

/* The op's table, by its kernel, from two parameters of each channel; and the zeros. */
template <typename Table>
static tn_status tn_tile_prepare(const tn_call *c, const tn_tile_frame *f, const tn_tile_layout *l, const tn_arg *a,
                                 const tn_arg *b,
                                 void (*kernel)(tn_tile_tensor, tn_tile_tensor, int64_t, int64_t, bool, Table *,
                                                uint4 *, int64_t))
{
    enum { THREADS = 256 };
    const int64_t zeros = f->chunks > 1 ? (int64_t)(l->zeros / 16) : 0, most = zeros > f->columns ? zeros : f->columns;
    kernel<<<tn_blocks(c, most, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(tn_tile_of(a, false), tn_tile_of(b, false),
                                                                           f->K, f->columns, f->reverse,
                                                                           (Table *)((char *)c->work + l->table),
                                                                           (uint4 *)c->work, zeros);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* The blocks of a launch whose lanes have V channels. */
static inline unsigned tn_tile_blocks(tn_tile_frame *f, int V)
{
    f->groups = (f->K + TN_TILE_LANES * V - 1) / (TN_TILE_LANES * V);
    return (unsigned)(f->B * f->groups * f->chunks);
}

#endif
