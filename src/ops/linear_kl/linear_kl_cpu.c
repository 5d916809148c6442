/* linear_kl on the CPU, as linear_xent: rows that count are gathered into tiles, the vocabulary is cut into blocks, and only
 * one (tile,block) piece of logits of either side exists at a time. The backward kernel makes the logits again, or, where it
 * also makes the loss (makes_out), keeps a tile's logits for all blocks until the tile is done.
 *
 * One pass makes KL: the sum of e^(t/T) (t - s) goes along with the two logsumexps. Each side is taken from its own largest
 * logit, so that what all of its logits share cancels before it is rounded; where a larger one comes, the sums follow. Both
 * sides are summed by the same instructions, so that equal rows give exactly 0.
 *
 * Invariant: all sums have an order given by the data and the tile size alone. A row's KL and dx do not even depend on the
 * tile; dw is added tile by tile, in order. */
#include "backend/cpu/gemm.h"
#include "ops/linear_kl/linear_kl.h"
#include "ops/logits.h"
#include "ops/rows.h"

size_t tn_linear_kl_work_cpu(const tn_sig *s, bool backward);
tn_kernel tn_linear_kl_forward_cpu, tn_linear_kl_backward_cpu;

enum {
    X = TN_LINEAR_KL_X,
    TEACHER = TN_LINEAR_KL_TEACHER,
    W = TN_LINEAR_KL_W,
    TEACHER_W = TN_LINEAR_KL_TEACHER_W,
    LABELS = TN_LINEAR_KL_LABELS,
    WEIGHTS = TN_LINEAR_KL_WEIGHTS
};
enum { S, T, SIDES };  /* student, teacher */
enum { LSE_T, LSE_S }; /* order of the output */
enum { BLOCK = TN_LOGIT_BLOCK, ROWS_EACH = 4 };
/* Logits kept of both sides for a tile that makes its loss in the backward pass: fewer rows where the vocabulary is larger. */
enum { KEPT_BYTES = 64 << 20 };

/* A row's sums so far. */
typedef struct sums {
    tn_lse side[SIDES];
    double gap; /* of exp((t - max t) / T) ((t - max t) - (s - max s)) */
} sums;

/* Sizes, and the workspace they ask for. */
typedef struct space {
    int64_t tile, block, row;
    float *logits[SIDES]; /* (tile,row): row is block, or V rounded up where a tile's logits are kept */
    float *x[SIDES];      /* (tile,d): the gathered rows */
    float *dx;            /* (tile,d) */
    int64_t *index;       /* (tile): which row of x a row of the tile is */
    sums *sum;            /* (tile) */
    float *lse[SIDES];    /* (tile) */
    float *scale;         /* (tile): of dlogits */
    void *gemm;
    size_t bytes;
} space;

typedef struct job {
    space s;
    tn_labels labels;
    float temperature, inverse;
    const tn_arg *x[SIDES], *w[SIDES];
    int64_t d[SIDES];
    int64_t rows, v0, columns; /* the current piece: rows of the tile, classes v0 .. v0+columns-1 */
    float *piece[SIDES];       /* (rows,columns), rows s.row apart */
} job;

/* --- workspace ---------------------------------------------------------------------------------------------------- */

/* keeps: the logits of a tile, for all of the vocabulary. base NULL: only measures. */
static space make_space(const tn_linear_kl_attr *a, int64_t rows, int64_t V, const int64_t *d, bool backward,
                        bool keeps, void *base)
{
    space s = { .tile = tn_least(tn_logits_tile(a->tile, V, keeps ? KEPT_BYTES / SIDES : 0), rows),
                .block = tn_least(V, BLOCK) };
    const size_t n = (size_t)s.tile, f = sizeof(float);
    s.row = keeps ? (V + 15) / 16 * 16 : s.block;
    for (int i = 0; i < SIDES; i++) {
        s.logits[i] = tn_carve(base, &s.bytes, n * (size_t)s.row * f);
        s.x[i] = tn_carve(base, &s.bytes, n * (size_t)d[i] * f);
        s.lse[i] = tn_carve(base, &s.bytes, n * f);
    }
    s.dx = tn_carve(base, &s.bytes, backward ? n * (size_t)d[S] * f : 0);
    s.index = tn_carve(base, &s.bytes, n * sizeof *s.index);
    s.sum = tn_carve(base, &s.bytes, n * sizeof *s.sum);
    s.scale = tn_carve(base, &s.bytes, n * f);
    s.gemm = tn_carve(base, &s.bytes, 0);
    return s;
}

size_t tn_linear_kl_work_cpu(const tn_sig *s, bool backward)
{
    const int64_t V = s->in[W].dims.dim[0], d[SIDES] = { tn_last_dim(s->in[X].dims), tn_last_dim(s->in[TEACHER].dims) };
    const space p = make_space(s->attr, tn_row_count(s->in[X].dims), V, d, backward, s->makes_out, NULL);
    return p.bytes + tn_logits_work(p.tile, p.block, d[S], backward, s->threads);
}

static job make_job(const tn_call *c, bool backward)
{
    const tn_linear_kl_attr *a = c->attr;
    const tn_arg *x = &c->in[X], *t = &c->in[TEACHER], *labels = &c->in[LABELS];
    job j = { .temperature = a->temperature,
              .inverse = 1 / a->temperature,
              .x = { x, t },
              .w = { &c->in[W], c->in[TEACHER_W].data ? &c->in[TEACHER_W] : &c->in[W] },
              .d = { tn_last_dim(x->dims), tn_last_dim(t->dims) } };
    j.labels = (tn_labels){ .label = labels->data,
                            .weight = c->in[WEIGHTS].data,
                            .n = tn_least(tn_arg_rows(x), tn_arg_rows(t)),
                            .classes = c->in[W].dims.dim[0],
                            .ignore = a->ignore };
    if (labels->data) j.labels.n = tn_least(j.labels.n, tn_arg_count(labels));
    j.s = make_space(a, tn_row_count(x->dims), j.labels.classes, j.d, backward, c->makes_out, c->work);
    return j;
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

/* Gathers the next rows that count, from *at on, as f32. Returns false when there are none. */
static bool next_tile(job *j, int64_t *at)
{
    const int64_t from = *at;
    for (int i = 0; i < SIDES; i++) {
        *at = from;
        j->rows = tn_labels_gather(&j->labels, j->x[i], j->d[i], j->s.tile, at, j->s.x[i], j->s.index);
    }
    return j->rows > 0;
}

/* Makes the block that starts at class v0 the current one. */
static void move_to(job *j, int64_t v0)
{
    j->v0 = v0;
    j->columns = tn_least(j->s.block, j->labels.classes - v0);
    for (int i = 0; i < SIDES; i++) j->piece[i] = j->s.logits[i] + (j->s.row > j->s.block ? v0 : 0);
}

static tn_logits logits_of(const job *j, int side)
{
    const tn_arg *w = j->w[side];
    return (tn_logits){ .rows = j->rows,
                        .columns = j->columns,
                        .d = j->d[side],
                        .at = j->piece[side],
                        .apart = j->s.row,
                        .x = j->s.x[side],
                        .w = (const char *)w->data + j->v0 * j->d[side] * (int64_t)tn_dtype_bytes(w->dtype),
                        .w_type = w->dtype,
                        .gemm = j->s.gemm };
}

/* Logits of both sides for the block that starts at class v0. */
static void make_logits(job *j, const tn_call *c, int64_t v0)
{
    move_to(j, v0);
    for (int i = 0; i < SIDES; i++) {
        const tn_logits l = logits_of(j, i);
        tn_logits_make(c, &l);
    }
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* Moves the shifts up to the largest of x, and with them what was summed below them. */
static void raise_shifts(sums *a, const float *const x[SIDES], int64_t n, float k)
{
    double factor[SIDES], up[SIDES];
    for (int i = 0; i < SIDES; i++) {
        tn_lse *l = &a->side[i];
        const float m = tn_row_max(x[i], n), before = tn_lse_shift(l);
        factor[i] = m > l->max ? (double)tn_logit_exp(k * (l->max - m)) : 1;
        if (m > l->max) l->max = m;
        up[i] = (double)tn_lse_shift(l) - (double)before;
    }
    a->gap = factor[T] == 0 ? 0 : factor[T] * (a->gap + a->side[T].sum * (up[S] - up[T]));
    for (int i = 0; i < SIDES; i++) a->side[i].sum *= factor[i];
}

/* A class that the teacher excludes adds nothing; the gap may be infinite there. */
static inline float gap_of(float e, float t, float s) { return e == 0 ? 0.f : e * (t - s); }

/* n <= TN_LOGIT_BLOCK classes more. */
static void add_classes(sums *a, const float *restrict s, const float *restrict t, int64_t n, float k)
{
    float lane[SIDES][TN_LANES] = { { 0 } }, gap[TN_LANES] = { 0 }, sum[SIDES] = { 0 }, rest = 0;
    raise_shifts(a, (const float *const[]){ [S] = s, [T] = t }, n, k);
    const float shift_t = tn_lse_shift(&a->side[T]), shift_s = tn_lse_shift(&a->side[S]);
    int64_t i = 0;
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int l = 0; l < TN_LANES; l++) {
            const float below_t = t[i + l] - shift_t, below_s = s[i + l] - shift_s, e = tn_logit_exp(k * below_t);
            lane[T][l] += e;
            lane[S][l] += tn_logit_exp(k * below_s);
            gap[l] += gap_of(e, below_t, below_s);
        }
    for (; i < n; i++) {
        const float below_t = t[i] - shift_t, below_s = s[i] - shift_s, e = tn_logit_exp(k * below_t);
        sum[T] += e;
        sum[S] += tn_logit_exp(k * below_s);
        rest += gap_of(e, below_t, below_s);
    }
    for (int l = 0; l < TN_LANES; l++) {
        sum[T] += lane[T][l];
        sum[S] += lane[S][l];
        rest += gap[l];
    }
    a->side[T].sum += (double)sum[T];
    a->side[S].sum += (double)sum[S];
    a->gap += (double)rest;
}

static void sum_rows(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = tn_least((t + 1) * ROWS_EACH, j->rows);
    for (int64_t r = t * ROWS_EACH; r < end; r++)
        add_classes(&j->s.sum[r], j->piece[S] + r * j->s.row, j->piece[T] + r * j->s.row, j->columns, j->inverse);
}

static void forward_tile(job *j, const tn_call *c)
{
    for (int64_t r = 0; r < j->rows; r++) j->s.sum[r] = (sums){ .side = { { -INFINITY, 0 }, { -INFINITY, 0 } } };
    for (int64_t v0 = 0; v0 < j->labels.classes; v0 += BLOCK) {
        make_logits(j, c, v0);
        tn_pool_run(c->pool, tn_tiles(j->rows, ROWS_EACH), sum_rows, j);
    }
}

/* Sum of weight KL over the tile, whose logsumexps stay in the workspace too. */
static double finish_tile(const job *j, float *kl, float *lse)
{
    double sum = 0;
    for (int64_t r = 0; r < j->rows; r++) {
        const sums *a = &j->s.sum[r];
        const int64_t at = j->s.index[r];
        const float s = tn_lse_value(&a->side[S], j->inverse), t = tn_lse_value(&a->side[T], j->inverse);
        const double d = a->gap / a->side[T].sum * (double)j->inverse - (log(a->side[T].sum) - log(a->side[S].sum));
        sum += (double)tn_label_weight(&j->labels, at) * d;
        j->s.lse[S][r] = s;
        j->s.lse[T][r] = t;
        if (kl) kl[at] = (float)d;
        if (lse) lse[2 * at + LSE_S] = s, lse[2 * at + LSE_T] = t;
    }
    return sum;
}

static void zero_outputs(const tn_call *c)
{
    for (int i = 1; i < 3; i++)
        if (c->out[i].data) tn_zero_from(&c->out[i], 0);
}

tn_status tn_linear_kl_forward_cpu(const tn_call *c)
{
    job j = make_job(c, false);
    double sum = 0;
    zero_outputs(c);
    for (int64_t at = 0; next_tile(&j, &at);) {
        forward_tile(&j, c);
        sum += finish_tile(&j, c->out[1].data, c->out[2].data);
    }
    tn_kl_loss(c, &j.labels, j.temperature, sum);
    return TN_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* The student's logits become dlogits = scale_r (q - p), in place. */
static void differentiate_rows(void *arg, int64_t n)
{
    const job *j = arg;
    const int64_t end = tn_least((n + 1) * ROWS_EACH, j->rows);
    const float k = j->inverse;
    for (int64_t r = n * ROWS_EACH; r < end; r++) {
        float *restrict s = j->piece[S] + r * j->s.row;
        const float *restrict t = j->piece[T] + r * j->s.row;
        const float lse_s = j->s.lse[S][r], lse_t = j->s.lse[T][r], scale = j->s.scale[r];
        for (int64_t i = 0; i < j->columns; i++)
            s[i] = scale * (tn_logit_exp(s[i] * k - lse_s) - tn_logit_exp(t[i] * k - lse_t));
    }
}

/* The logsumexps of the tile's rows are known. scale: dloss T / sum of weights. */
static void backward_tile(job *j, const tn_call *c, double scale, bool first)
{
    for (int64_t r = 0; r < j->rows; r++)
        j->s.scale[r] = (float)(scale * (double)tn_label_weight(&j->labels, j->s.index[r]));
    for (int64_t v0 = 0; v0 < j->labels.classes; v0 += BLOCK) {
        if (c->makes_out) move_to(j, v0);
        else make_logits(j, c, v0);
        tn_pool_run(c->pool, tn_tiles(j->rows, ROWS_EACH), differentiate_rows, j);
        const tn_logits l = logits_of(j, S);
        if (c->din[X].data) tn_logits_dx(c, &l, j->s.dx, v0 > 0);
        if (c->din[W].data)
            tn_logits_dw(c, &l, (float *)c->din[W].data + v0 * j->d[S], !first || (c->accumulate >> W & 1));
    }
    if (c->din[X].data) tn_rows_scatter(c->din[X].data, j->s.dx, j->s.index, j->rows, j->d[S]);
}

tn_status tn_linear_kl_backward_cpu(const tn_call *c)
{
    job j = make_job(c, true);
    const double dy = c->dout[0].data ? (double)*(const float *)c->dout[0].data : 0;
    const float *lse = c->makes_out ? NULL : c->out[2].data;
    if (c->makes_out) zero_outputs(c);
    if (c->din[WEIGHTS].data) tn_kl_weights(c, &j.labels, j.temperature, dy, WEIGHTS);
    if (!c->makes_out && !c->din[X].data && !c->din[W].data) return TN_OK;
    if (c->din[X].data && !(c->accumulate >> X & 1)) tn_zero_from(&c->din[X], 0); /* rows that do not count stay so */
    const double scale = tn_labels_scale(&j.labels, false) * dy * (double)j.temperature;
    bool first = true;
    double sum = 0;
    for (int64_t at = 0; next_tile(&j, &at); first = false) {
        if (c->makes_out) {
            forward_tile(&j, c);
            sum += finish_tile(&j, c->out[1].data, c->out[2].data);
        }
        for (int64_t r = 0; lse && r < j.rows; r++) {
            j.s.lse[S][r] = lse[2 * j.s.index[r] + LSE_S];
            j.s.lse[T][r] = lse[2 * j.s.index[r] + LSE_T];
        }
        backward_tile(&j, c, scale, first);
    }
    if (c->makes_out) tn_kl_loss(c, &j.labels, j.temperature, sum);
    if (first && c->din[W].data && !(c->accumulate >> W & 1)) tn_zero_from(&c->din[W], 0);
    return TN_OK;
}
