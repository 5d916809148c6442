/* binary on the GPU: the walk of elem.cuh. Sums, differences and products of 8 neighbours have kernels of their own.
 * Gradients of repeated inputs are sums (elem_sum.cuh); where neither input is repeated, both gradients come from one
 * pass. */
#include "ops/binary/binary_value.cuh"
#include "ops/elem_sum.cuh"

enum { ANY = -1 }; /* the kind is looked at for every number */

__device__ __forceinline__ float if_above(float a, float b, float d) { return a > b ? d : a == b ? 0.5f * d : 0.f; }

/* The gradient by in[0] or in[1]. Products are rounded before they are added to anything, so that a gradient does not
 * depend on the loop it is made in. */
__device__ __forceinline__ float slope_of(int kind, int which, float d, float a, float b)
{
    switch (kind) {
    case TN_BINARY_ADD: return d;
    case TN_BINARY_SUB: return which ? -d : d;
    case TN_BINARY_MUL: return __fmul_rn(d, which ? a : b);
    case TN_BINARY_DIV: return which ? -d * (a / b) / b : d / b;
    case TN_BINARY_MAXIMUM: return which ? if_above(b, a, d) : if_above(a, b, d);
    case TN_BINARY_MINIMUM: return which ? if_above(a, b, d) : if_above(b, a, d);
    case TN_BINARY_RSUB: return which ? d : -d;
    default: return which ? d / a : -d * (b / a) / a; /* RDIV */
    }
}

template <int KIND>
struct value_map {
    int kind;
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[2][N], float (&y)[1][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++) y[0][e] = tn_d_binary(KIND == ANY ? kind : KIND, x[0][e], x[1][e]);
    }
};

/* x: dy, a, b. */
template <int KIND>
struct slopes_map {
    int kind;
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[3][N], float (&y)[2][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++) {
            y[0][e] = slope_of(KIND == ANY ? kind : KIND, 0, x[0][e], x[1][e], x[2][e]);
            y[1][e] = slope_of(KIND == ANY ? kind : KIND, 1, x[0][e], x[1][e], x[2][e]);
        }
    }
};

/* Both gradients of kinds that are linear in both inputs, from dy alone. */
struct signs_map {
    int kind;
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[1][N], float (&y)[2][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++) {
            y[0][e] = kind == TN_BINARY_RSUB ? -x[0][e] : x[0][e];
            y[1][e] = kind == TN_BINARY_SUB ? -x[0][e] : x[0][e];
        }
    }
};

/* One gradient, to be summed: of linear kinds, where x is dy ... */
struct sign_sum {
    bool minus;
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[1][N], float (&y)[1][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++) y[0][e] = minus ? -x[0][e] : x[0][e];
    }
};

/* ... of products, where x is dy and the other factor ... */
struct product_sum {
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[2][N], float (&y)[1][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++) y[0][e] = __fmul_rn(x[0][e], x[1][e]);
    }
};

/* ... and of all others. The kind is looked at once for N neighbours. */
struct slope_sum {
    int kind, which;
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[3][N], float (&y)[1][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++) y[0][e] = slope_of(kind, which, x[0][e], x[1][e], x[2][e]);
    }
};

static tn_status forward_eights(const tn_call *c, const tn_d_space &s, int kind)
{
    switch (kind) { /* in[1]: often a vector */
    case TN_BINARY_ADD: return tn_d_run_eights<2, 1, 1 << 1>(c, s, 0, value_map<TN_BINARY_ADD>{ kind });
    case TN_BINARY_SUB: return tn_d_run_eights<2, 1, 1 << 1>(c, s, 0, value_map<TN_BINARY_SUB>{ kind });
    case TN_BINARY_MUL: return tn_d_run_eights<2, 1, 1 << 1, 1 << 1>(c, s, 0, value_map<TN_BINARY_MUL>{ kind });
    default: return tn_d_run_any_eights<2, 1>(c, s, 0, value_map<ANY>{ kind });
    }
}

static bool linear(int kind) { return kind == TN_BINARY_ADD || kind == TN_BINARY_SUB || kind == TN_BINARY_RSUB; }

static tn_status backward_eights(const tn_call *c, const tn_d_space &s, unsigned add, int kind)
{
    if (kind == TN_BINARY_MUL)
        return tn_d_run_eights<3, 2, 1 << 2, 1 << 2>(c, s, add, slopes_map<TN_BINARY_MUL>{ kind });
    return tn_d_run_any_eights<3, 2>(c, s, add, slopes_map<ANY>{ kind });
}

extern "C" tn_status tn_binary_forward_cuda(const tn_call *c)
{
    const int kind = ((const tn_binary_attr *)c->attr)->kind;
    const tn_arg *args[] = { &c->in[0], &c->in[1], &c->out[0] };
    const tn_d_space s = tn_d_space_make(c->out[0].dims, c->out[0].live, 3, args);
    if (tn_d_space_empty(s)) return TN_OK;
    return s.eights ? forward_eights(c, s, kind) : tn_d_run_ones<2, 1>(c, s, 0, value_map<ANY>{ kind });
}

/* da is dy, in its memory: nothing to do. */
static bool in_place(const tn_arg *d, const tn_arg *dy)
{
    bool same = d->data == dy->data && d->dtype == dy->dtype && d->dims.rank == dy->dims.rank;
    for (int i = 0; same && i < dy->dims.rank; i++) same = dy->dims.dim[i] == 1 || d->stride[i] == dy->stride[i];
    return same;
}

/* `spread` for kinds that are linear in both inputs, from dy alone. */
static tn_status spread_signs(const tn_call *c, int kind, tn_arg first, const tn_arg *second)
{
    const tn_arg *dy = &c->dout[0], *args[] = { dy, &first, second };
    if (kind != TN_BINARY_RSUB && !(c->accumulate & 1) && in_place(&first, dy)) first.data = NULL;
    if (!first.data && !second->data) return TN_OK;
    return tn_d_map<1, 2>(c, tn_d_space_make(dy->dims, dy->live, 3, args), c->accumulate & 3, signs_map{ kind });
}

/* Gradients of inputs that are not repeated; `first` and `second` have no data where they are not wanted here. */
static tn_status spread(const tn_call *c, const tn_arg *first, const tn_arg *second)
{
    const int kind = ((const tn_binary_attr *)c->attr)->kind;
    tn_arg a = c->in[0], b = c->in[1];
    const tn_arg *dy = &c->dout[0], *args[] = { dy, &a, &b, first, second };
    if (kind == TN_BINARY_MUL && !second->data) a.data = NULL; /* each is read for the other's gradient */
    if (kind == TN_BINARY_MUL && !first->data) b.data = NULL;
    const tn_d_space s = tn_d_space_make(dy->dims, dy->live, 5, args);
    const unsigned add = c->accumulate & 3;
    if (linear(kind)) return spread_signs(c, kind, *first, second);
    if (tn_d_space_empty(s)) return TN_OK;
    return s.eights ? backward_eights(c, s, add, kind) : tn_d_run_ones<3, 2>(c, s, add, slopes_map<ANY>{ kind });
}

static tn_status gather(const tn_call *c, int which)
{
    const int kind = ((const tn_binary_attr *)c->attr)->kind;
    const tn_arg *dy = &c->dout[0], *d = &c->din[which];
    const bool add = c->accumulate >> which & 1;
    if (linear(kind)) {
        const tn_arg *args[] = { dy, d };
        const bool minus = kind == (which ? TN_BINARY_SUB : TN_BINARY_RSUB);
        return tn_d_sum_run<1>(c, tn_d_sum_make(dy->dims, dy->live, 1, args, add, false, c->work), sign_sum{ minus });
    }
    if (kind == TN_BINARY_MUL) {
        const tn_arg *args[] = { dy, &c->in[!which], d };
        return tn_d_sum_run<2>(c, tn_d_sum_make(dy->dims, dy->live, 2, args, add, false, c->work), product_sum{});
    }
    const tn_arg *args[] = { dy, &c->in[0], &c->in[1], d };
    const tn_d_sum m = tn_d_sum_make(dy->dims, dy->live, 3, args, add, false, c->work);
    return tn_d_sum_run<3>(c, m, slope_sum{ kind, which });
}

static bool repeated(tn_dims in, tn_dims out) { return tn_dims_count(in) != tn_dims_count(out); }

/* Sums first: the other gradient may take dy's place. */
extern "C" tn_status tn_binary_backward_cuda(const tn_call *c)
{
    tn_arg d[2] = { c->din[0], c->din[1] };
    for (int i = 0; i < 2; i++) {
        if (!d[i].data || !repeated(d[i].dims, c->dout[0].dims)) continue;
        const tn_status s = gather(c, i);
        if (s != TN_OK) return s;
        d[i].data = NULL;
    }
    return d[0].data || d[1].data ? spread(c, &d[0], &d[1]) : TN_OK;
}

/* The two sums come one after the other. */
extern "C" size_t tn_binary_work_cuda(const tn_sig *s, bool backward)
{
    size_t most = 0;
    for (int i = 0; backward && i < 2; i++) {
        if (!repeated(s->in[i].dims, s->out[0].dims)) continue;
        const size_t bytes = tn_d_sum_work(s->out[0].dims, s->in[i].dims);
        if (bytes > most) most = bytes;
    }
    return most;
}
