/* attention the plain way, the twin of the tiled kernels when opt.flash is off: for each head the whole matrix of
 * scores, a softmax over its rows, and two products. The probabilities (B,H,T,S) are kept for the backward pass. */
#include "backend/cpu/vmath.h"
#include "base/status.h"
#include "ops/attention/attention_mask.h"
#include "ops/product.h"
#include "ops/rows.h"
#include "ops/slots.h"

typedef struct head {
    const tn_call *c;
    const tn_attention_mask *mask;
    int64_t b, h, kv, T, S, D;
    float *p, *dp; /* (T,S) */
    void *gemm;
} head;

size_t tn_attention_plain_work_cpu(const tn_sig *s, bool backward)
{
    const tn_dims q = s->in[TN_ATT_Q].dims;
    const int64_t T = q.dim[1], S = s->in[TN_ATT_K].dims.dim[1], side = T > S ? T : S;
    (void)backward; /* the probabilities when nobody keeps them, or their gradient */
    return tn_align64(sizeof(float) * (size_t)(T * S)) +
           tn_product_work(side, side > q.dim[3] ? side : q.dim[3], s->threads);
}

/* A head of a (B,N,heads,D) tensor. */
typedef struct matrix {
    void *data;
    tn_dtype type;
    int64_t row, col;
} matrix;

static matrix head_of(const tn_arg *x, int64_t b, int64_t h)
{
    const int64_t at = b * x->stride[0] + h * x->stride[2];
    return (matrix){ (char *)x->data + at * (int64_t)tn_dtype_bytes(x->dtype), x->dtype, x->stride[1], x->stride[3] };
}

static matrix turned(matrix x) { return (matrix){ x.data, x.type, x.col, x.row }; }

static matrix dense(float *x, int64_t row) { return (matrix){ x, TN_F32, row, 1 }; }

static void multiply(const head *w, int64_t m, int64_t n, int64_t k, matrix a, matrix b, matrix y, float alpha,
                     bool add)
{
    tn_product p = { .c_col = y.col };
    p.g = (tn_gemm){ .m = m,
                     .n = n,
                     .k = k,
                     .a = a.data,
                     .a_row = a.row,
                     .a_col = a.col,
                     .a_type = a.type,
                     .b = b.data,
                     .b_row = b.row,
                     .b_col = b.col,
                     .b_type = b.type,
                     .c = y.data,
                     .c_row = y.row,
                     .round = w->c->round,
                     .bf16x3 = w->c->bf16x3,
                     .portable_only = w->c->portable,
                     .accumulate = add,
                     .alpha = alpha };
    tn_product_run(w->c->pool, &p, w->gemm);
}

static bool sees(const head *w, int64_t t, int64_t s, int64_t first, int64_t end)
{
    return s >= first && s < end && (!w->mask->document || tn_attention_same(w->mask, w->b, t, s));
}

static void softmax_row(void *arg, int64_t t)
{
    const head *w = arg;
    float *p = w->p + t * w->S, max = -INFINITY;
    int64_t first, end;
    double sum = 0;
    tn_attention_range(w->mask, w->b, t, &first, &end);
    for (int64_t s = 0; s < w->S; s++) {
        if (!sees(w, t, s, first, end)) p[s] = -INFINITY;
        if (p[s] > max) max = p[s];
    }
    for (int64_t s = 0; s < w->S; s++) p[s] = p[s] == -INFINITY ? 0 : tn_v_exp(p[s] - max);
    for (int64_t s = 0; s < w->S; s++) sum += (double)p[s];
    for (int64_t s = 0; s < w->S && sum != 0; s++) p[s] = (float)((double)p[s] / sum);
}

static void softmax_grad_row(void *arg, int64_t t)
{
    const head *w = arg;
    const float *p = w->p + t * w->S;
    float *dp = w->dp + t * w->S;
    double delta = 0;
    for (int64_t s = 0; s < w->S; s++) delta += p[s] == 0 ? 0 : (double)p[s] * (double)dp[s];
    for (int64_t s = 0; s < w->S; s++) dp[s] = p[s] == 0 ? 0 : p[s] * (dp[s] - (float)delta);
}

static int64_t sequences(const tn_arg *x)
{
    const int64_t n = x->live && *x->live < x->dims.dim[0] ? *x->live : x->dims.dim[0];
    return n < 0 ? 0 : n;
}

static head make_head(const tn_call *c, const tn_attention_mask *mask, int64_t b, int64_t h)
{
    const tn_dims q = c->in[TN_ATT_Q].dims, k = c->in[TN_ATT_K].dims;
    head w = { .c = c,
               .mask = mask,
               .b = b,
               .h = h,
               .kv = h / (q.dim[2] / k.dim[2]),
               .T = q.dim[1],
               .S = k.dim[1],
               .D = q.dim[3],
               .dp = c->work };
    w.p = c->out[1].data ? (float *)c->out[1].data + b * c->out[1].stride[0] + h * c->out[1].stride[1] : c->work;
    w.gemm = (char *)c->work + tn_align64(sizeof(float) * (size_t)(w.T * w.S));
    return w;
}

tn_status tn_attention_plain_forward_cpu(const tn_call *c)
{
    tn_attention_mask mask;
    TN_RETURN_IF(tn_attention_mask_make(c, &mask));
    for (int64_t b = 0; b < sequences(&c->in[TN_ATT_Q]); b++)
        for (int64_t h = 0; h < c->in[TN_ATT_Q].dims.dim[2]; h++) {
            head w = make_head(c, &mask, b, h);
            multiply(&w, w.T, w.S, w.D, head_of(&c->in[TN_ATT_Q], b, h), turned(head_of(&c->in[TN_ATT_K], b, w.kv)),
                     dense(w.p, w.S), ((const tn_attention_attr *)c->attr)->scale, false);
            tn_pool_run(c->pool, w.T, softmax_row, &w);
            multiply(&w, w.T, w.D, w.S, dense(w.p, w.S), head_of(&c->in[TN_ATT_V], b, w.kv), head_of(&c->out[0], b, h),
                     1, false);
        }
    return TN_OK;
}

static void backward_head(head *w)
{
    const tn_call *c = w->c;
    const float scale = ((const tn_attention_attr *)c->attr)->scale;
    const tn_arg *din = c->din;
    const bool first = w->h % (c->in[TN_ATT_Q].dims.dim[2] / c->in[TN_ATT_K].dims.dim[2]) == 0; /* of its key head */
    const matrix dy = head_of(&c->dout[0], w->b, w->h);
    if (din[TN_ATT_V].data)
        multiply(w, w->S, w->D, w->T, turned(dense(w->p, w->S)), dy, head_of(&din[TN_ATT_V], w->b, w->kv), 1,
                 !first || (c->accumulate >> TN_ATT_V & 1));
    if (!din[TN_ATT_Q].data && !din[TN_ATT_K].data) return;
    multiply(w, w->T, w->S, w->D, dy, turned(head_of(&c->in[TN_ATT_V], w->b, w->kv)), dense(w->dp, w->S), 1, false);
    tn_pool_run(c->pool, w->T, softmax_grad_row, w);
    if (din[TN_ATT_Q].data)
        multiply(w, w->T, w->D, w->S, dense(w->dp, w->S), head_of(&c->in[TN_ATT_K], w->b, w->kv),
                 head_of(&din[TN_ATT_Q], w->b, w->h), scale, c->accumulate >> TN_ATT_Q & 1);
    if (din[TN_ATT_K].data)
        multiply(w, w->S, w->D, w->T, turned(dense(w->dp, w->S)), head_of(&c->in[TN_ATT_Q], w->b, w->h),
                 head_of(&din[TN_ATT_K], w->b, w->kv), scale, !first || (c->accumulate >> TN_ATT_K & 1));
}

/* Sequences that are dead in q have no gradient; k and v may not know they are dead. */
static void clear_dead(const tn_arg *d, int64_t alive)
{
    for (int64_t b = alive; d->data && b < sequences(d); b++)
        for (int64_t r = 0; r < d->dims.dim[1] * d->dims.dim[2] * d->dims.dim[3]; r++) {
            const int64_t i = r % d->dims.dim[3], h = r / d->dims.dim[3] % d->dims.dim[2];
            const int64_t s = r / d->dims.dim[3] / d->dims.dim[2];
            ((float *)d->data)[b * d->stride[0] + s * d->stride[1] + h * d->stride[2] + i * d->stride[3]] = 0;
        }
}

tn_status tn_attention_plain_backward_cpu(const tn_call *c)
{
    const int64_t alive = sequences(&c->dout[0]);
    for (int64_t b = 0; b < alive; b++)
        for (int64_t h = 0; h < c->in[TN_ATT_Q].dims.dim[2]; h++) {
            head w = make_head(c, NULL, b, h);
            backward_head(&w);
        }
    for (int i = TN_ATT_K; i <= TN_ATT_V; i++)
        if (!(c->accumulate >> i & 1)) clear_dead(&c->din[i], alive);
    return TN_OK;
}
