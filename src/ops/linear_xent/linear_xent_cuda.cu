/* linear_xent on the GPU. Tokens go in chunks: logits of a chunk in the type of x, then one pass that turns each row into
 * its loss and, backward, in place into its gradient, then the products for dx and dw. The backward pass makes the
 * logits' statistics anew, whether or not a forward call has been there (makes_out): both give the same numbers.
 *
 * A label out of range cannot end the step here: its row counts as NaN. */
#include "ops/head.cuh"
#include "ops/linear_xent/linear_xent.h"
#include "ops/linear_xent/linear_xent_rows.cuh"

enum {
    X = TN_LINEAR_XENT_X,
    W = TN_LINEAR_XENT_W,
    LABELS = TN_LINEAR_XENT_LABELS,
    WEIGHTS = TN_LINEAR_XENT_WEIGHTS,
    BIAS = TN_LINEAR_XENT_BIAS
};
enum { THREADS = 256 };

/* Logits of a chunk. Large: dw is read and written once per chunk, and the tiles of dx then fill the last wave. Where w is frozen
 * there is no dw, and half as much does. */
static const int64_t CHUNK_BYTES = (int64_t)2 << 30, CHUNK_BYTES_DX = (int64_t)1 << 30;

static tn_head_tokens tokens_of(const tn_call *c)
{
    const tn_arg *x = &c->in[X], *labels = &c->in[LABELS];
    tn_head_tokens t = {};
    t.label = (const int32_t *)labels->data;
    t.weight = c->in[WEIGHTS].data;
    t.weight_type = c->in[WEIGHTS].dtype;
    t.n = tn_all_count(labels);
    t.live[0] = x->live, t.live[1] = labels->live;
    t.per_live = labels->dims.rank > 0 && labels->dims.dim[0] > 0 ? t.n / labels->dims.dim[0] : 1;
    t.classes = c->in[W].dims.dim[0];
    t.ignore = ((const tn_linear_xent_attr *)c->attr)->ignore;
    return t;
}

/* --- workspace ---------------------------------------------------------------------------------------------------------- */

struct space {
    int64_t chunk, row; /* tokens at a time; numbers of a row of logits, a multiple of 64 */
    char *logits;       /* (chunk,row), in the type of x */
    tn_head head;
    double *term;  /* (n): weight (nll + z lse^2) */
    double *scale; /* 1 / sum of weights, or 1; 0 where nothing counts */
    size_t bytes;
};

/* w and x: their types. */
static space space_of(const tn_linear_xent_attr *a, int64_t n, int64_t V, int64_t d, tn_dtype w, tn_dtype x,
                      bool dx_alone, void *base)
{
    space s = {};
    const int64_t item = (int64_t)tn_dtype_bytes(x);
    s.row = tn_head_row(V);
    s.chunk = tn_head_chunk(n, s.row, item, dx_alone ? CHUNK_BYTES_DX : CHUNK_BYTES, a->tile);
    s.logits = (char *)tn_d_carve(base, &s.bytes, (size_t)(s.chunk * s.row * item));
    s.head = tn_head_carve(V, d, w, x, s.chunk, false, true, base, &s.bytes);
    s.term = (double *)tn_d_carve(base, &s.bytes, (size_t)n * sizeof(double));
    s.scale = (double *)tn_d_carve(base, &s.bytes, sizeof(double));
    return s;
}

extern "C" size_t tn_linear_xent_work_cuda(const tn_sig *s, bool backward)
{
    const tn_dims w = s->in[W].dims;
    return space_of((const tn_linear_xent_attr *)s->attr, tn_dims_count(s->in[LABELS].dims), w.dim[0], w.dim[1],
                    s->in[W].dtype, s->in[X].dtype, backward && !s->in[W].trainable, NULL)
        .bytes;
}

/* --- kernels ------------------------------------------------------------------------------------------------------------ */

/* db (V) (+)= sum over the rows of a chunk; a thread has one column. */
static __global__ void sum_columns(tn_arg db, const void *logits, tn_dtype type, int64_t rows, int64_t row, int64_t V,
                                   bool add)
{
    const int64_t v = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (v >= V) return;
    float sum = 0;
    for (int64_t r = 0; r < rows; r++) sum += tn_load(logits, type, r * row + v);
    tn_put(db.data, db.dtype, v * db.stride[0], sum, add);
}

static __global__ void grad_weights(tn_arg d, tn_head_tokens t, const double *scale, const float *dy, const float *nll,
                                    const float *lse, const float *loss, bool sum, float z, bool add)
{
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= t.n) return;
    const double s = lse[i], mean = sum ? 0 : (double)*loss;
    const double g =
        tn_head_counts(t, i) ? *scale * (double)(dy ? *dy : 0.f) * ((double)nll[i] + (double)z * s * s - mean) : 0;
    tn_put(d.data, d.dtype, i, (float)g, add);
}

/* --- chunks ----------------------------------------------------------------------------------------------------------------- */

struct pass {
    const tn_call *c;
    space s;
    tn_head_tokens t;
    tn_dtype type;
    int64_t V;
};

static tn_status open_pass(const tn_call *c, bool backward, pass *p)
{
    const tn_linear_xent_attr *a = (const tn_linear_xent_attr *)c->attr;
    const tn_arg *w = &c->in[W];
    *p = (pass){};
    p->c = c;
    p->t = tokens_of(c);
    p->type = c->in[X].dtype;
    p->V = w->dims.dim[0];
    p->s = space_of(a, p->t.n, p->V, w->dims.dim[1], w->dtype, p->type, backward && !c->din[W].data, c->work);
    TN_RETURN_IF(tn_head_scale(c, p->s.scale, &p->t, a->sum));
    return tn_head_open(c, &p->s.head, w);
}

static tn_status make_logits(const pass *p, int64_t first, int64_t count)
{
    return tn_head_logits(p->c, &p->s.head, &p->c->in[X], &p->t, first, count, p->s.logits, p->type);
}

static tn_status pass_rows(const pass *p, int64_t first, int64_t count, bool gradient, bool outputs)
{
    const tn_call *c = p->c;
    tn_xent_rows j = {};
    j.logits = p->s.logits, j.type = p->type, j.rows = count, j.row = p->s.row, j.first = first, j.t = p->t;
    j.bias = c->in[BIAS];
    j.z = ((const tn_linear_xent_attr *)c->attr)->z_loss;
    j.scale = p->s.scale, j.dy = gradient ? (const float *)c->dout[0].data : NULL, j.gradient = gradient;
    if (outputs) j.term = p->s.term, j.nll = (float *)c->out[1].data, j.lse = (float *)c->out[2].data;
    return tn_xent_rows_run(c, &j);
}

static tn_status finish_outputs(const pass *p) { return tn_head_loss(p->c, p->s.term, p->s.scale, 1, p->t.n); }

extern "C" tn_status tn_linear_xent_forward_cuda(const tn_call *c)
{
    pass p;
    TN_RETURN_IF(open_pass(c, false, &p));
    for (int64_t at = 0; at < p.t.n; at += p.s.chunk) {
        const int64_t count = p.t.n - at < p.s.chunk ? p.t.n - at : p.s.chunk;
        TN_RETURN_IF(make_logits(&p, at, count));
        TN_RETURN_IF(pass_rows(&p, at, count, false, true));
    }
    return finish_outputs(&p);
}

/* --- backward ----------------------------------------------------------------------------------------------------------------- */

static tn_status add_bias(const pass *p, int64_t count, bool add)
{
    sum_columns<<<(unsigned)((p->V + 127) / 128), 128, 0, tn_cuda_stream(p->c)>>>(p->c->din[BIAS], p->s.logits, p->type,
                                                                                  count, p->s.row, p->V, add);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status add_weights(const pass *p)
{
    const tn_call *c = p->c;
    const tn_linear_xent_attr *a = (const tn_linear_xent_attr *)c->attr;
    if (p->t.n == 0) return TN_OK;
    grad_weights<<<(unsigned)((p->t.n + THREADS - 1) / THREADS), THREADS, 0, tn_cuda_stream(c)>>>(
        c->din[WEIGHTS], p->t, p->s.scale, (const float *)c->dout[0].data, (const float *)c->out[1].data,
        (const float *)c->out[2].data, (const float *)c->out[0].data, a->sum, a->z_loss, c->accumulate >> WEIGHTS & 1);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_linear_xent_backward_cuda(const tn_call *c)
{
    pass p;
    TN_RETURN_IF(open_pass(c, true, &p));
    const bool gradient = c->dout[0].data && (c->din[X].data || c->din[W].data || c->din[BIAS].data);
    if (c->din[WEIGHTS].data) TN_RETURN_IF(add_weights(&p));
    if (!gradient || p.t.n == 0) {
        TN_RETURN_IF(tn_clear_gradient(c, &c->din[X], c->accumulate >> X & 1));
        TN_RETURN_IF(tn_clear_gradient(c, &c->din[W], c->accumulate >> W & 1));
        TN_RETURN_IF(tn_clear_gradient(c, &c->din[BIAS], c->accumulate >> BIAS & 1));
    }
    for (int64_t at = 0; at < p.t.n && (gradient || c->makes_out); at += p.s.chunk) {
        const int64_t count = p.t.n - at < p.s.chunk ? p.t.n - at : p.s.chunk;
        TN_RETURN_IF(make_logits(&p, at, count));
        TN_RETURN_IF(pass_rows(&p, at, count, gradient, c->makes_out));
        if (!gradient) continue;
        if (c->din[X].data)
            TN_RETURN_IF(tn_head_dx(c, &p.s.head, p.s.logits, p.s.row, &c->din[X], at, count, c->accumulate >> X & 1));
        if (c->din[W].data)
            TN_RETURN_IF(
                tn_head_dw(c, &p.s.head, p.s.logits, p.s.row, &c->din[W], at, count, p.t.n, c->accumulate >> W & 1));
        if (c->din[BIAS].data) TN_RETURN_IF(add_bias(&p, count, at > 0 || (c->accumulate >> BIAS & 1)));
    }
    return c->makes_out ? finish_outputs(&p) : TN_OK;
}
