/* linear_kl_top on the GPU. Rows go in chunks: the student's logits in f32, whatever the type of x; then a block to a row, which
 * takes the logits of the top out of it (-infinity stands in their place), sums the tail, and turns the row into its KL and,
 * backward, in place into dlogits in the type of x; then the products for dx and dw. The backward pass makes the statistics anew,
 * whether or not a forward call has been there (makes_out): both give the same numbers.
 *
 * An id outside of the classes is passed over: files are checked where they are read. */
#include "ops/head.cuh"
#include "ops/linear_kl_top/linear_kl_top.h"

enum {
    X = TN_LINEAR_KL_TOP_X,
    W = TN_LINEAR_KL_TOP_W,
    IDS = TN_LINEAR_KL_TOP_IDS,
    LOGITS = TN_LINEAR_KL_TOP_LOGITS,
    LSE = TN_LINEAR_KL_TOP_LSE,
    LABELS = TN_LINEAR_KL_TOP_LABELS,
    WEIGHTS = TN_LINEAR_KL_TOP_WEIGHTS
};
enum { ALL, TAIL }; /* logsumexps */
enum { ROW_THREADS = 512 };

/* Logits of a chunk. dw is read and written once per chunk; without it, half as much does. */
static const int64_t CHUNK_BYTES = (int64_t)1 << 30, CHUNK_BYTES_DX = (int64_t)1 << 29;

static int64_t row_count(tn_dims d)
{
    int64_t n = 1;
    for (int i = 0; i < d.rank - 1; i++) n *= d.dim[i];
    return n;
}

static int64_t last_dim(tn_dims d) { return d.dim[d.rank - 1]; }

/* --- workspace ---------------------------------------------------------------------------------------------------------- */

struct space {
    int64_t chunk;
    float *logits; /* (chunk,row); they become dlogits */
    float *top;    /* (chunk,K): the student's logits of the teacher's ids */
    tn_head head;
    double *term;  /* (n): weight KL */
    double *scale; /* 1 / sum of weights; 0 where nothing counts */
    size_t bytes;
};

struct sizes {
    int64_t n, V, d, K, tile;
    tn_dtype w, type; /* of the head, and of x: that of the products */
    bool trains;      /* the head gets a gradient */
};

static space space_of(const sizes &z, void *base)
{
    space s = {};
    const int64_t row = tn_head_row(z.V);
    s.chunk = tn_head_chunk(z.n, row, (int64_t)sizeof(float), z.trains ? CHUNK_BYTES : CHUNK_BYTES_DX, z.tile);
    s.logits = (float *)tn_d_carve(base, &s.bytes, (size_t)(s.chunk * row) * sizeof(float));
    s.top = (float *)tn_d_carve(base, &s.bytes, (size_t)(s.chunk * z.K) * sizeof(float));
    s.head = tn_head_carve(z.V, z.d, z.w, z.type, s.chunk, false, z.trains, base, &s.bytes);
    s.term = (double *)tn_d_carve(base, &s.bytes, (size_t)z.n * sizeof(double));
    s.scale = (double *)tn_d_carve(base, &s.bytes, sizeof(double));
    return s;
}

extern "C" size_t tn_linear_kl_top_work_cuda(const tn_sig *s, bool backward)
{
    sizes z = {};
    z.n = row_count(s->in[X].dims), z.V = s->in[W].dims.dim[0];
    z.d = last_dim(s->in[X].dims), z.K = last_dim(s->in[IDS].dims);
    z.w = s->in[W].dtype, z.type = s->in[X].dtype;
    z.tile = ((const tn_linear_kl_top_attr *)s->attr)->tile;
    z.trains = backward && s->in[W].trainable;
    return space_of(z, NULL).bytes;
}

/* --- rows --------------------------------------------------------------------------------------------------------------- */

struct rows {
    float *logits; /* (count,row), 256-byte aligned; a row becomes its gradient in `type`, from its first byte on */
    float *top;    /* (count,K) */
    tn_dtype type;
    int64_t row, first, K;
    tn_head_tokens t;
    const int32_t *ids;
    const void *values, *lse_t; /* the teacher's */
    tn_dtype values_type, lse_type;
    float temperature;
    double *term;    /* (n) or NULL: weight KL */
    float *kl, *lse; /* (n), (n,2) or NULL */
    const double *scale;
    const float *dy; /* of the loss */
    bool gradient;   /* false: the logits stay, but for those of the top */
};

/* What a row's threads all know. */
struct stats {
    double all, tail; /* logsumexps */
    double sum, rest; /* of the teacher: of its top, of the others */
    double kl;
};

/* What is below e^-87.3 is 0, as on the CPU. */
__device__ __forceinline__ float weight_of(float x) { return x < -87.3f ? 0.f : expf(x); }

__device__ __forceinline__ float shift_of(float most) { return most == -INFINITY ? 0.f : most; }

__device__ __forceinline__ float teacher_log(const rows &j, int64_t i, int64_t k, float inverse)
{
    return tn_load(j.values, j.values_type, i * j.K + k) * inverse - tn_load(j.lse_t, j.lse_type, i);
}

/* The top's logits leave the row. */
__device__ __forceinline__ void take_top(const rows &j, int64_t i, float *row, float *top)
{
    for (int64_t k = threadIdx.x; k < j.K; k += ROW_THREADS) {
        const int32_t v = j.ids[i * j.K + k];
        const bool in = v >= 0 && v < j.t.classes;
        top[k] = in ? row[v] : -INFINITY;
        if (in) row[v] = -INFINITY;
    }
    __syncthreads();
}

/* The logsumexp of n numbers / T, for every thread. */
__device__ __forceinline__ double lse_of(const float *x, int64_t n, float inverse)
{
    __shared__ float most[33];
    __shared__ double total[33];
    float top = -INFINITY;
    for (int64_t v = threadIdx.x; v < n; v += ROW_THREADS) top = fmaxf(top, x[v]);
    top = shift_of(tn_d_block_max(top, most));
    double sum = 0;
    for (int64_t v = threadIdx.x; v < n; v += ROW_THREADS) sum += (double)weight_of(inverse * (x[v] - top));
    sum = tn_d_block_sum(sum, total);
    __syncthreads(); /* the next call writes to `shared` */
    return (double)top * (double)inverse + log(sum);
}

__device__ __forceinline__ double log_add(double a, double b)
{
    const double most = a > b ? a : b;
    return most == (double)-INFINITY ? most : most + log(exp(a - most) + exp(b - most));
}

__device__ __forceinline__ stats stats_of(const rows &j, int64_t i, const float *row, const float *top, float inverse)
{
    __shared__ double total[2][33];
    stats s = {};
    const double of_top = lse_of(top, j.K, inverse);
    s.tail = lse_of(row, j.t.classes, inverse);
    s.all = log_add(of_top, s.tail);
    double sum = 0, kl = 0;
    for (int64_t k = threadIdx.x; k < j.K; k += ROW_THREADS) {
        const float log_p = teacher_log(j, i, k, inverse), p = expf(log_p);
        sum += (double)p;
        if (p != 0.f) kl += (double)p * ((double)log_p - ((double)top[k] * (double)inverse - s.all));
    }
    s.sum = tn_d_block_sum(sum, total[0]);
    s.kl = tn_d_block_sum(kl, total[1]);
    s.rest = j.K == j.t.classes || s.sum >= 1 ? 0 : 1 - s.sum;
    if (s.rest != 0) s.kl += s.rest * (log(s.rest) - (s.tail - s.all));
    return s;
}

/* Thread 0 writes what token i leaves; a NULL: it does not count. */
__device__ __forceinline__ void write_outputs(const rows &j, int64_t i, const stats *s)
{
    if (j.term) j.term[i] = s ? (double)tn_head_weight(j.t, i) * s->kl : 0;
    if (j.kl) j.kl[i] = s ? (float)s->kl : 0.f;
    if (j.lse) j.lse[2 * i + ALL] = s ? (float)s->all : 0.f, j.lse[2 * i + TAIL] = s ? (float)s->tail : 0.f;
}

/* A half is half as long as the number that it replaces: what is written lies where this or an earlier round has read, and the
 * barrier lets all threads read first. */
__device__ __forceinline__ void write_gradient(const rows &j, int64_t i, float *row, const float *top, const stats &s,
                                               float scale, float inverse)
{
    const int64_t V = j.t.classes;
    const bool tail = s.rest != 0 && s.tail != (double)-INFINITY;
    const float lse = (float)s.all, lse_tail = tail ? (float)s.tail : 0.f;
    const float sum = scale * (float)(s.sum + s.rest), part = tail ? scale * (float)s.rest : 0.f;
    for (int64_t v0 = 0; v0 < j.row; v0 += ROW_THREADS * 8) {
        const int64_t v = v0 + threadIdx.x * 8;
        tn_f8 y = { { 0 } };
        if (v < V) {
            const tn_f8 x = tn_load8(row, TN_F32, v);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                const float at = x.v[e] * inverse;
                if (v + e < V) y.v[e] = sum * weight_of(at - lse) - (tail ? part * weight_of(at - lse_tail) : 0.f);
            }
        }
        if (j.type != TN_F32) __syncthreads();
        if (v < j.row) tn_store8(row, j.type, v, y);
    }
    __syncthreads();
    for (int64_t k = threadIdx.x; k < j.K; k += ROW_THREADS) {
        const int32_t v = j.ids[i * j.K + k];
        const float p = expf(teacher_log(j, i, k, inverse));
        if (v >= 0 && v < V) tn_store(row, j.type, v, sum * weight_of(top[k] * inverse - lse) - scale * p);
    }
}

__device__ __forceinline__ void clear_gradient(const rows &j, float *row)
{
    const tn_f8 zero = { { 0 } };
    for (int64_t v = threadIdx.x * 8; v < j.row; v += ROW_THREADS * 8) tn_store8(row, j.type, v, zero);
}

/* A block has one row. */
static __global__ void __launch_bounds__(ROW_THREADS) kl_of_rows(const __grid_constant__ rows j)
{
    const int64_t i = j.first + blockIdx.x;
    float *row = j.logits + blockIdx.x * j.row, *top = j.top + blockIdx.x * j.K;
    const float inverse = 1 / j.temperature;
    if (!tn_head_counts(j.t, i)) {
        if (threadIdx.x == 0) write_outputs(j, i, NULL);
        if (j.gradient) clear_gradient(j, row);
        return;
    }
    take_top(j, i, row, top);
    const stats s = stats_of(j, i, row, top, inverse);
    if (threadIdx.x == 0) write_outputs(j, i, &s);
    if (!j.gradient) return;
    const double factor = *j.scale * (double)*j.dy * (double)j.temperature * (double)tn_head_weight(j.t, i);
    write_gradient(j, i, row, top, s, (float)factor, inverse);
}

/* --- chunks ------------------------------------------------------------------------------------------------------------- */

struct pass {
    const tn_call *c;
    space s;
    tn_head_tokens t;
    int64_t K;
    float temperature;
};

static tn_head_tokens tokens_of(const tn_call *c)
{
    const tn_arg *x = &c->in[X], *labels = &c->in[LABELS];
    tn_head_tokens t = {};
    t.label = (const int32_t *)labels->data;
    t.weight = c->in[WEIGHTS].data;
    t.weight_type = c->in[WEIGHTS].dtype;
    t.n = row_count(x->dims);
    t.per_live = x->dims.rank > 1 && x->dims.dim[0] > 0 ? t.n / x->dims.dim[0] : 1;
    if (x->dims.rank > 1) t.live[0] = x->live;
    if (x->dims.rank > 1 && labels->data) t.live[1] = labels->live;
    t.classes = c->in[W].dims.dim[0];
    t.ignore = -1;
    return t;
}

static tn_status open_pass(const tn_call *c, bool backward, pass *p)
{
    const tn_linear_kl_top_attr *a = (const tn_linear_kl_top_attr *)c->attr;
    sizes z = {};
    *p = (pass){};
    p->c = c;
    p->t = tokens_of(c);
    p->temperature = a->temperature;
    p->K = last_dim(c->in[IDS].dims);
    z.n = p->t.n, z.V = p->t.classes, z.d = last_dim(c->in[X].dims), z.K = p->K;
    z.trains = backward && c->din[W].data;
    z.w = c->in[W].dtype, z.type = c->in[X].dtype;
    z.tile = a->tile;
    p->s = space_of(z, c->work);
    TN_RETURN_IF(tn_head_scale(c, p->s.scale, &p->t, false));
    return tn_head_open(c, &p->s.head, &c->in[W]);
}

static tn_status run_chunk(const pass *p, int64_t first, int64_t count, bool gradient, bool outputs)
{
    const tn_call *c = p->c;
    TN_RETURN_IF(tn_head_logits(c, &p->s.head, &c->in[X], &p->t, first, count, p->s.logits, TN_F32));
    rows j = {};
    j.logits = p->s.logits, j.top = p->s.top, j.type = p->s.head.type, j.row = p->s.head.row;
    j.first = first, j.K = p->K, j.t = p->t, j.temperature = p->temperature;
    j.ids = (const int32_t *)c->in[IDS].data;
    j.values = c->in[LOGITS].data, j.values_type = c->in[LOGITS].dtype;
    j.lse_t = c->in[LSE].data, j.lse_type = c->in[LSE].dtype;
    j.scale = p->s.scale, j.dy = gradient ? (const float *)c->dout[0].data : NULL, j.gradient = gradient;
    if (outputs) j.term = p->s.term, j.kl = (float *)c->out[1].data, j.lse = (float *)c->out[2].data;
    kl_of_rows<<<(unsigned)count, ROW_THREADS, 0, tn_cuda_stream(c)>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status finish_outputs(const pass *p)
{
    const double square = (double)p->temperature * (double)p->temperature;
    return tn_head_loss(p->c, p->s.term, p->s.scale, square, p->t.n);
}

extern "C" tn_status tn_linear_kl_top_forward_cuda(const tn_call *c)
{
    pass p;
    TN_RETURN_IF(open_pass(c, false, &p));
    for (int64_t at = 0; at < p.t.n; at += p.s.chunk) {
        const int64_t count = p.t.n - at < p.s.chunk ? p.t.n - at : p.s.chunk;
        TN_RETURN_IF(run_chunk(&p, at, count, false, true));
    }
    return finish_outputs(&p);
}

/* --- backward ----------------------------------------------------------------------------------------------------------- */

extern "C" tn_status tn_linear_kl_top_backward_cuda(const tn_call *c)
{
    pass p;
    TN_RETURN_IF(open_pass(c, true, &p));
    const bool gradient = c->dout[0].data && (c->din[X].data || c->din[W].data);
    const tn_head *h = &p.s.head;
    const int64_t apart = h->row * (int64_t)(sizeof(float) / tn_dtype_bytes(h->type)); /* rows stay where they were */
    if (c->din[WEIGHTS].data) TN_RETURN_IF(tn_head_kl_weights(c, WEIGHTS, &p.t, p.s.scale, p.temperature));
    if (!gradient || p.t.n == 0) {
        TN_RETURN_IF(tn_clear_gradient(c, &c->din[X], c->accumulate >> X & 1));
        TN_RETURN_IF(tn_clear_gradient(c, &c->din[W], c->accumulate >> W & 1));
    }
    for (int64_t at = 0; at < p.t.n && (gradient || c->makes_out); at += p.s.chunk) {
        const int64_t count = p.t.n - at < p.s.chunk ? p.t.n - at : p.s.chunk;
        TN_RETURN_IF(run_chunk(&p, at, count, gradient, c->makes_out));
        if (!gradient) continue;
        if (c->din[X].data)
            TN_RETURN_IF(tn_head_dx(c, h, p.s.logits, apart, &c->din[X], at, count, c->accumulate >> X & 1));
        if (c->din[W].data)
            TN_RETURN_IF(tn_head_dw(c, h, p.s.logits, apart, &c->din[W], at, count, p.t.n, c->accumulate >> W & 1));
    }
    return c->makes_out ? finish_outputs(&p) : TN_OK;
}
