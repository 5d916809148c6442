/* linear_xent on the CPU. Tokens that count are gathered into tiles, the vocabulary is cut into blocks; a tile meets
 * the blocks one after the other, and only one (tile,block) piece of logits exists at a time. The backward kernel makes
 * the logits again, or, where it also makes the loss (makes_out), keeps a tile's logits for all blocks until the tile is
 * done: both go through the same pieces, in the same order and bits.
 *
 * Invariant: all sums have an order given by the data and the tile size alone. A token's loss and dx do not even depend
 * on the tile, because a row of tn_gemm depends on that row only; dw and dbias are added tile by tile, in order. */
#include "backend/cpu/gemm.h"
#include "ops/linear_xent/linear_xent.h"
#include "ops/logits.h"
#include "ops/rows.h"

size_t tn_linear_xent_work_cpu(const tn_sig *s, bool backward);
tn_kernel tn_linear_xent_forward_cpu, tn_linear_xent_backward_cpu;

enum {
    X = TN_LINEAR_XENT_X,
    W = TN_LINEAR_XENT_W,
    LABELS = TN_LINEAR_XENT_LABELS,
    WEIGHTS = TN_LINEAR_XENT_WEIGHTS,
    BIAS = TN_LINEAR_XENT_BIAS
};
/* 256 tokens fill the matrix product's own tile, so that packing a block of w is paid once per 256 rows. Rows and
 * columns of a piece of logits are handed to threads in the shares below. */
enum { BLOCK = TN_LOGIT_BLOCK, ROWS_EACH = 4, COLUMNS_EACH = 256 };
/* Logits kept for a tile that makes its loss in the backward pass: fewer tokens where the vocabulary is larger. */
enum { KEPT_BYTES = 64 << 20 };

/* Sizes, and the workspace they ask for. */
typedef struct space {
    int64_t tile, block, row;
    float *logits;  /* (tile,row): row is block, or V rounded up where a tile's logits are kept */
    float *x, *dx;  /* (tile,d): the gathered rows, and their gradients */
    int64_t *token; /* (tile): which token a row of the tile is */
    tn_lse *sum;    /* (tile) */
    float *target;  /* (tile): the label's logit */
    float *lse;     /* (tile) */
    float *onehot;  /* (tile): coefficient of -onehot in dlogits */
    void *gemm;
    size_t bytes;
} space;

typedef struct job {
    space s;
    tn_labels labels;
    float z;
    int64_t d;
    int64_t rows, v0, columns; /* the current piece: rows of the tile, classes v0 .. v0+columns-1 */
    float *piece;              /* (rows,columns), rows s.row apart */
    float *dbias;              /* (V) or NULL */
    bool dbias_adds;
} job;

/* --- workspace ---------------------------------------------------------------------------------------------------- */

/* keeps: the logits of a tile, for all of the vocabulary. base NULL: only measures. */
static space make_space(const tn_linear_xent_attr *a, int64_t tokens, int64_t V, int64_t d, bool backward, bool keeps,
                        void *base)
{
    space s = { .tile = tn_least(tn_logits_tile(a->tile, V, keeps ? KEPT_BYTES : 0), tokens),
                .block = tn_least(V, BLOCK) };
    const size_t n = (size_t)s.tile, f = sizeof(float);
    s.row = keeps ? (V + 15) / 16 * 16 : s.block;
    s.logits = tn_carve(base, &s.bytes, n * (size_t)s.row * f);
    s.x = tn_carve(base, &s.bytes, n * (size_t)d * f);
    s.dx = tn_carve(base, &s.bytes, backward ? n * (size_t)d * f : 0);
    s.token = tn_carve(base, &s.bytes, n * sizeof *s.token);
    s.sum = tn_carve(base, &s.bytes, n * sizeof *s.sum);
    s.target = tn_carve(base, &s.bytes, n * f);
    s.lse = tn_carve(base, &s.bytes, n * f);
    s.onehot = tn_carve(base, &s.bytes, n * f);
    s.gemm = tn_carve(base, &s.bytes, 0);
    return s;
}

size_t tn_linear_xent_work_cpu(const tn_sig *s, bool backward)
{
    const int64_t V = s->in[W].dims.dim[0], d = s->in[W].dims.dim[1];
    const space p = make_space(s->attr, tn_dims_count(s->in[LABELS].dims), V, d, backward, s->makes_out, NULL);
    return p.bytes + tn_logits_work(p.tile, p.block, d, backward, s->threads);
}

static job make_job(const tn_call *c, bool backward)
{
    const tn_linear_xent_attr *a = c->attr;
    const int64_t V = c->in[W].dims.dim[0], d = c->in[W].dims.dim[1];
    job j = { .s = make_space(a, tn_dims_count(c->in[LABELS].dims), V, d, backward, c->makes_out, c->work),
              .z = a->z_loss,
              .d = d };
    j.labels = (tn_labels){ .label = c->in[LABELS].data,
                            .weight = c->in[WEIGHTS].data,
                            .n = tn_least(tn_arg_rows(&c->in[X]), tn_arg_count(&c->in[LABELS])),
                            .classes = V,
                            .ignore = a->ignore };
    return j;
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

/* Gathers the next tokens that count, from *at on, as f32 rows. Returns false when there are none. */
static bool next_tile(job *j, const tn_arg *x, int64_t *at)
{
    j->rows = tn_labels_gather(&j->labels, x, j->d, j->s.tile, at, j->s.x, j->s.token);
    return j->rows > 0;
}

/* Makes the block that starts at class v0 the current one. */
static void move_to(job *j, int64_t v0)
{
    j->v0 = v0;
    j->columns = tn_least(j->s.block, j->labels.classes - v0);
    j->piece = j->s.logits + (j->s.row > j->s.block ? v0 : 0);
}

static tn_logits logits_of(const job *j, const tn_call *c)
{
    const tn_arg *w = &c->in[W];
    const float *bias = c->in[BIAS].data;
    return (tn_logits){ .rows = j->rows,
                        .columns = j->columns,
                        .d = j->d,
                        .at = j->piece,
                        .apart = j->s.row,
                        .x = j->s.x,
                        .w = (const char *)w->data + j->v0 * j->d * (int64_t)tn_dtype_bytes(w->dtype),
                        .w_type = w->dtype,
                        .bias = bias ? bias + j->v0 : NULL,
                        .gemm = j->s.gemm };
}

/* Logits of the tile for the block that starts at class v0. */
static void make_logits(job *j, const tn_call *c, int64_t v0)
{
    move_to(j, v0);
    const tn_logits l = logits_of(j, c);
    tn_logits_make(c, &l);
}

/* The column of row r's label in the current piece, or -1. */
static int64_t label_column(const job *j, int64_t r)
{
    const int64_t v = j->labels.label[j->s.token[r]] - j->v0;
    return v >= 0 && v < j->columns ? v : -1;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void sum_rows(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = tn_least((t + 1) * ROWS_EACH, j->rows);
    for (int64_t r = t * ROWS_EACH; r < end; r++) {
        const float *row = j->piece + r * j->s.row;
        const int64_t v = label_column(j, r);
        tn_lse_add(&j->s.sum[r], row, j->columns, 1);
        if (v >= 0) j->s.target[r] = row[v];
    }
}

static void forward_tile(job *j, const tn_call *c)
{
    for (int64_t r = 0; r < j->rows; r++) j->s.sum[r] = (tn_lse){ -INFINITY, 0 };
    for (int64_t v0 = 0; v0 < j->labels.classes; v0 += BLOCK) {
        make_logits(j, c, v0);
        tn_pool_run(c->pool, tn_tiles(j->rows, ROWS_EACH), sum_rows, j);
    }
}

/* Sum of weight (nll + z lse^2) over the tile, whose lse stays in the workspace too. */
static double finish_tile(const job *j, float *nll, float *lse)
{
    double sum = 0;
    for (int64_t r = 0; r < j->rows; r++) {
        const int64_t t = j->s.token[r];
        const float l = tn_lse_value(&j->s.sum[r], 1), n = l - j->s.target[r];
        sum += (double)tn_label_weight(&j->labels, t) * ((double)n + (double)j->z * (double)l * (double)l);
        j->s.lse[r] = l;
        if (nll) nll[t] = n;
        if (lse) lse[t] = l;
    }
    return sum;
}

static void give_loss(const tn_call *c, const tn_labels *labels, double sum)
{
    const double scale = tn_labels_scale(labels, ((const tn_linear_xent_attr *)c->attr)->sum);
    if (c->out[0].data) *(float *)c->out[0].data = scale == 0 ? 0.f : (float)(sum * scale);
}

tn_status tn_linear_xent_forward_cpu(const tn_call *c)
{
    job j = make_job(c, false);
    float *nll = c->out[1].data, *lse = c->out[2].data;
    double sum = 0;
    TN_RETURN_IF(tn_labels_check(&j.labels));
    if (nll) tn_zero_from(&c->out[1], 0);
    if (lse) tn_zero_from(&c->out[2], 0);
    for (int64_t at = 0; next_tile(&j, &c->in[X], &at);) {
        forward_tile(&j, c);
        sum += finish_tile(&j, nll, lse);
    }
    give_loss(c, &j.labels, sum);
    return TN_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* logits become dlogits = onehot_r (softmax (1 + 2 z lse) - onehot), in place. */
static void differentiate_rows(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = tn_least((t + 1) * ROWS_EACH, j->rows);
    for (int64_t r = t * ROWS_EACH; r < end; r++) {
        float *row = j->piece + r * j->s.row;
        const float lse = j->s.lse[r], w = j->s.onehot[r], p = w * (1 + 2 * j->z * lse);
        const int64_t v = label_column(j, r);
        for (int64_t i = 0; i < j->columns; i++) row[i] = p * tn_logit_exp(row[i] - lse);
        if (v >= 0) row[v] -= w;
    }
}

static void sum_columns(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t i0 = t * COLUMNS_EACH, n = tn_least(COLUMNS_EACH, j->columns - i0);
    float sum[COLUMNS_EACH] = { 0 }, *restrict d = j->dbias + j->v0 + i0;
    for (int64_t r = 0; r < j->rows; r++) {
        const float *restrict row = j->piece + r * j->s.row + i0;
        for (int64_t i = 0; i < n; i++) sum[i] += row[i];
    }
    for (int64_t i = 0; i < n; i++) d[i] = j->dbias_adds ? d[i] + sum[i] : sum[i];
}

/* The lse of the tile's rows is known. */
static void backward_tile(job *j, const tn_call *c, double scale, bool first)
{
    for (int64_t r = 0; r < j->rows; r++)
        j->s.onehot[r] = (float)(scale * (double)tn_label_weight(&j->labels, j->s.token[r]));
    j->dbias_adds = !first || (c->accumulate >> BIAS & 1);
    for (int64_t v0 = 0; v0 < j->labels.classes; v0 += BLOCK) {
        if (c->makes_out) move_to(j, v0);
        else make_logits(j, c, v0);
        tn_pool_run(c->pool, tn_tiles(j->rows, ROWS_EACH), differentiate_rows, j);
        const tn_logits l = logits_of(j, c);
        if (c->din[X].data) tn_logits_dx(c, &l, j->s.dx, v0 > 0);
        if (c->din[W].data)
            tn_logits_dw(c, &l, (float *)c->din[W].data + v0 * j->d, !first || (c->accumulate >> W & 1));
        if (j->dbias) tn_pool_run(c->pool, tn_tiles(j->columns, COLUMNS_EACH), sum_columns, j);
    }
    if (c->din[X].data) tn_rows_scatter(c->din[X].data, j->s.dx, j->s.token, j->rows, j->d);
}

tn_status tn_linear_xent_backward_cpu(const tn_call *c)
{
    const tn_linear_xent_attr *a = c->attr;
    const float dy = c->dout[0].data ? *(const float *)c->dout[0].data : 0.f;
    const float *lse = c->makes_out ? NULL : c->out[2].data;
    job j = make_job(c, true);
    j.dbias = c->din[BIAS].data;
    if (c->makes_out) {
        TN_RETURN_IF(tn_labels_check(&j.labels));
        if (c->out[1].data) tn_zero_from(&c->out[1], 0);
        if (c->out[2].data) tn_zero_from(&c->out[2], 0);
    }
    if (c->din[WEIGHTS].data) {
        const bool add = c->accumulate >> WEIGHTS & 1;
        tn_labels_backward(&j.labels, a->sum, (double)a->z_loss, c->out[1].data, c->out[2].data,
                           *(const float *)c->out[0].data, dy, c->din[WEIGHTS].data, add);
        if (!add) tn_zero_from(&c->din[WEIGHTS], j.labels.n);
    }
    if (!c->makes_out && !c->din[X].data && !c->din[W].data && !j.dbias) return TN_OK;
    if (c->din[X].data && !(c->accumulate & 1)) tn_zero_from(&c->din[X], 0); /* rows that do not count stay so */
    const double scale = tn_labels_scale(&j.labels, a->sum) * (double)dy;
    bool first = true;
    double sum = 0;
    for (int64_t at = 0; next_tile(&j, &c->in[X], &at); first = false) {
        if (c->makes_out) {
            forward_tile(&j, c);
            sum += finish_tile(&j, c->out[1].data, c->out[2].data);
        }
        for (int64_t r = 0; lse && r < j.rows; r++) j.s.lse[r] = lse[j.s.token[r]];
        backward_tile(&j, c, scale, first);
    }
    if (c->makes_out) give_loss(c, &j.labels, sum);
    if (!first) return TN_OK;
    if (c->din[W].data && !(c->accumulate >> W & 1)) tn_zero_from(&c->din[W], 0);
    if (j.dbias && !(c->accumulate >> BIAS & 1)) tn_zero_from(&c->din[BIAS], 0);
    return TN_OK;
}
