/* linear_kl on the GPU. Rows go in chunks: logits of both sides in f32, whatever the type of x, as rounded logits would move the
 * divergence more than training does; then one pass that turns each row into its KL and, backward, in place into the
 * student's dlogits in the type of x; then the products for dx and dw. The backward pass makes the logits' statistics
 * anew, whether or not a forward call has been there (makes_out): both give the same numbers. */
#include "ops/head.cuh"
#include "ops/linear_kl/linear_kl.h"
#include "ops/linear_kl/linear_kl_rows.cuh"

enum {
    X = TN_LINEAR_KL_X,
    TEACHER = TN_LINEAR_KL_TEACHER,
    W = TN_LINEAR_KL_W,
    TEACHER_W = TN_LINEAR_KL_TEACHER_W,
    LABELS = TN_LINEAR_KL_LABELS,
    WEIGHTS = TN_LINEAR_KL_WEIGHTS
};
enum { S = TN_KL_STUDENT, T = TN_KL_TEACHER, SIDES = TN_KL_SIDES };

/* Logits of a chunk, of both sides. dw is read and written once per chunk; without it, half as much does. */
static const int64_t CHUNK_BYTES = (int64_t)2 << 30, CHUNK_BYTES_DX = (int64_t)1 << 30;

static int64_t row_count(tn_dims d)
{
    int64_t n = 1;
    for (int i = 0; i < d.rank - 1; i++) n *= d.dim[i];
    return n;
}

static int64_t last_dim(tn_dims d) { return d.dim[d.rank - 1]; }

static tn_head_tokens tokens_of(const tn_call *c)
{
    const tn_arg *x = &c->in[X], *labels = &c->in[LABELS];
    tn_head_tokens t = {};
    t.label = (const int32_t *)labels->data;
    t.weight = c->in[WEIGHTS].data;
    t.weight_type = c->in[WEIGHTS].dtype;
    t.n = row_count(x->dims);
    t.per_live = x->dims.rank > 1 && x->dims.dim[0] > 0 ? t.n / x->dims.dim[0] : 1;
    if (x->dims.rank > 1) t.live[0] = x->live, t.live[1] = c->in[TEACHER].live;
    if (x->dims.rank > 1 && labels->data) t.live[2] = labels->live;
    t.classes = c->in[W].dims.dim[0];
    t.ignore = ((const tn_linear_kl_attr *)c->attr)->ignore;
    return t;
}

/* --- workspace ---------------------------------------------------------------------------------------------------------- */

struct space {
    int64_t chunk, row;   /* rows at a time; numbers of a row of logits, a multiple of 64 */
    float *logits[SIDES]; /* (chunk,row); the student's become dlogits */
    tn_head head[SIDES];
    double *term;  /* (n): weight KL */
    double *scale; /* 1 / sum of weights; 0 where nothing counts */
    size_t bytes;
};

/* What decides the workspace. */
struct sizes {
    int64_t n, V, d[SIDES], tile;
    tn_dtype w[SIDES], type; /* of the heads, and of x: that of the products */
    bool shared, trains;     /* one head; it gets a gradient */
};

static space space_of(const sizes &z, void *base)
{
    space s = {};
    s.row = tn_head_row(z.V);
    s.chunk =
        tn_head_chunk(z.n, s.row, SIDES * (int64_t)sizeof(float), z.trains ? CHUNK_BYTES : CHUNK_BYTES_DX, z.tile);
    for (int i = 0; i < SIDES; i++) {
        s.logits[i] = (float *)tn_d_carve(base, &s.bytes, (size_t)(s.chunk * s.row) * sizeof(float));
        s.head[i] =
            tn_head_carve(z.V, z.d[i], z.w[i], z.type, s.chunk, i == T && z.shared, i == S && z.trains, base, &s.bytes);
    }
    s.term = (double *)tn_d_carve(base, &s.bytes, (size_t)z.n * sizeof(double));
    s.scale = (double *)tn_d_carve(base, &s.bytes, sizeof(double));
    return s;
}

extern "C" size_t tn_linear_kl_work_cuda(const tn_sig *s, bool backward)
{
    const tn_type *u = s->in[TEACHER_W].absent ? &s->in[W] : &s->in[TEACHER_W];
    sizes z = {};
    z.n = row_count(s->in[X].dims), z.V = s->in[W].dims.dim[0];
    z.d[S] = last_dim(s->in[X].dims), z.d[T] = last_dim(s->in[TEACHER].dims);
    z.w[S] = s->in[W].dtype, z.w[T] = u->dtype, z.type = s->in[X].dtype;
    z.tile = ((const tn_linear_kl_attr *)s->attr)->tile;
    z.shared = s->in[TEACHER_W].absent, z.trains = backward && s->in[W].trainable;
    return space_of(z, NULL).bytes;
}

/* --- chunks ------------------------------------------------------------------------------------------------------------- */

struct pass {
    const tn_call *c;
    space s;
    tn_head_tokens t;
    float temperature;
};

static tn_status open_pass(const tn_call *c, bool backward, pass *p)
{
    const tn_linear_kl_attr *a = (const tn_linear_kl_attr *)c->attr;
    const tn_arg *w = &c->in[W], *u = &c->in[TEACHER_W];
    sizes z = {};
    *p = (pass){};
    p->c = c;
    p->t = tokens_of(c);
    p->temperature = a->temperature;
    z.n = p->t.n, z.V = p->t.classes;
    z.d[S] = last_dim(c->in[X].dims), z.d[T] = last_dim(c->in[TEACHER].dims);
    z.shared = !u->data, z.trains = backward && c->din[W].data;
    z.w[S] = w->dtype, z.w[T] = z.shared ? w->dtype : u->dtype, z.type = c->in[X].dtype;
    z.tile = a->tile;
    p->s = space_of(z, c->work);
    TN_RETURN_IF(tn_head_scale(c, p->s.scale, &p->t, false));
    TN_RETURN_IF(tn_head_open(c, &p->s.head[S], w));
    if (!z.shared) return tn_head_open(c, &p->s.head[T], u);
    p->s.head[T].w = p->s.head[S].w;
    return TN_OK;
}

static tn_status make_logits(const pass *p, int64_t first, int64_t count)
{
    for (int i = 0; i < SIDES; i++)
        TN_RETURN_IF(tn_head_logits(p->c, &p->s.head[i], &p->c->in[i == S ? X : TEACHER], &p->t, first, count,
                                    p->s.logits[i], TN_F32));
    return TN_OK;
}

static tn_status pass_rows(const pass *p, int64_t first, int64_t count, bool gradient, bool outputs)
{
    const tn_call *c = p->c;
    tn_kl_rows j = {};
    for (int i = 0; i < SIDES; i++) j.logits[i] = p->s.logits[i];
    j.type = p->s.head[S].type, j.rows = count, j.row = p->s.row, j.first = first, j.t = p->t;
    j.temperature = p->temperature;
    j.scale = p->s.scale, j.dy = gradient ? (const float *)c->dout[0].data : NULL, j.gradient = gradient;
    if (outputs) j.term = p->s.term, j.kl = (float *)c->out[1].data, j.lse = (float *)c->out[2].data;
    return tn_kl_rows_run(c, &j);
}

static tn_status finish_outputs(const pass *p)
{
    const double square = (double)p->temperature * (double)p->temperature;
    return tn_head_loss(p->c, p->s.term, p->s.scale, square, p->t.n);
}

extern "C" tn_status tn_linear_kl_forward_cuda(const tn_call *c)
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

/* --- backward ----------------------------------------------------------------------------------------------------------- */

extern "C" tn_status tn_linear_kl_backward_cuda(const tn_call *c)
{
    pass p;
    TN_RETURN_IF(open_pass(c, true, &p));
    const bool gradient = c->dout[0].data && (c->din[X].data || c->din[W].data);
    const tn_head *h = &p.s.head[S];
    const float *dlogits = p.s.logits[S];
    const int64_t apart = p.s.row * (int64_t)(sizeof(float) / tn_dtype_bytes(h->type)); /* rows stay where they were */
    if (c->din[WEIGHTS].data) TN_RETURN_IF(tn_head_kl_weights(c, WEIGHTS, &p.t, p.s.scale, p.temperature));
    if (!gradient || p.t.n == 0) {
        TN_RETURN_IF(tn_clear_gradient(c, &c->din[X], c->accumulate >> X & 1));
        TN_RETURN_IF(tn_clear_gradient(c, &c->din[W], c->accumulate >> W & 1));
    }
    for (int64_t at = 0; at < p.t.n && (gradient || c->makes_out); at += p.s.chunk) {
        const int64_t count = p.t.n - at < p.s.chunk ? p.t.n - at : p.s.chunk;
        TN_RETURN_IF(make_logits(&p, at, count));
        TN_RETURN_IF(pass_rows(&p, at, count, gradient, c->makes_out));
        if (!gradient) continue;
        if (c->din[X].data)
            TN_RETURN_IF(tn_head_dx(c, h, dlogits, apart, &c->din[X], at, count, c->accumulate >> X & 1));
        if (c->din[W].data)
            TN_RETURN_IF(tn_head_dw(c, h, dlogits, apart, &c->din[W], at, count, p.t.n, c->accumulate >> W & 1));
    }
    return c->makes_out ? finish_outputs(&p) : TN_OK;
}
