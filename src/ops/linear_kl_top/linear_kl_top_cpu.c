/* linear_kl_top on the CPU, as linear_xent: rows that count are gathered into tiles, the vocabulary is cut into blocks, and only
 * one (tile,block) piece of logits exists at a time. The backward kernel makes the logits again, or, where it also makes the
 * loss (makes_out), keeps a tile's logits for all blocks until the tile is done.
 *
 * Logits of the top are taken out of their piece, where -infinity stands in their place: what is left is the tail, which is summed and
 * differentiated like any row. The logsumexp of the tail is its own, not that of all classes minus the top: log q_rest has all of
 * its digits where the student is sure of the top.
 *
 * Invariant: all sums have an order given by the data and the tile size alone. A row's KL and dx do not even depend on the
 * tile; dw is added tile by tile, in order. */
#include "backend/cpu/gemm.h"
#include "ops/linear_kl_top/linear_kl_top.h"
#include "ops/logits.h"
#include "ops/rows.h"

size_t tn_linear_kl_top_work_cpu(const tn_sig *s, bool backward);
tn_kernel tn_linear_kl_top_forward_cpu, tn_linear_kl_top_backward_cpu;

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
enum { BLOCK = TN_LOGIT_BLOCK, ROWS_EACH = 4 };
/* Logits kept for a tile that makes its loss in the backward pass: fewer rows where the vocabulary is larger. */
enum { KEPT_BYTES = 32 << 20 };

/* Sizes, and the workspace they ask for. */
typedef struct space {
    int64_t tile, block, row;
    float *logits;  /* (tile,row): row is block, or V rounded up where a tile's logits are kept */
    float *x;       /* (tile,d): the gathered rows */
    float *dx;      /* (tile,d) */
    float *top;     /* (tile,K): the student's logits of the teacher's ids */
    int64_t *index; /* (tile): which row of x a row of the tile is */
    tn_lse *tail;   /* (tile) */
    float *lse[2];  /* (tile) each: of all classes, of the tail */
    float *scale;   /* (tile): of dlogits */
    void *gemm;
    size_t bytes;
} space;

typedef struct job {
    space s;
    const tn_call *c;
    tn_labels labels;
    float temperature, inverse;
    int64_t d, K;
    int64_t rows, v0, columns; /* the current piece: rows of the tile, classes v0 .. v0+columns-1 */
    float *piece;              /* (rows,columns), rows s.row apart */
} job;

/* --- workspace ---------------------------------------------------------------------------------------------------- */

/* keeps: the logits of a tile, for all of the vocabulary. base NULL: only measures. */
static space make_space(const tn_linear_kl_top_attr *a, int64_t rows, int64_t V, int64_t d, int64_t K, bool backward,
                        bool keeps, void *base)
{
    space s = { .tile = tn_least(tn_logits_tile(a->tile, V, keeps ? KEPT_BYTES : 0), rows),
                .block = tn_least(V, BLOCK) };
    const size_t n = (size_t)s.tile, f = sizeof(float);
    s.row = keeps ? (V + 15) / 16 * 16 : s.block;
    s.logits = tn_carve(base, &s.bytes, n * (size_t)s.row * f);
    s.x = tn_carve(base, &s.bytes, n * (size_t)d * f);
    s.dx = tn_carve(base, &s.bytes, backward ? n * (size_t)d * f : 0);
    s.top = tn_carve(base, &s.bytes, n * (size_t)K * f);
    s.index = tn_carve(base, &s.bytes, n * sizeof *s.index);
    s.tail = tn_carve(base, &s.bytes, n * sizeof *s.tail);
    for (int i = 0; i < 2; i++) s.lse[i] = tn_carve(base, &s.bytes, n * f);
    s.scale = tn_carve(base, &s.bytes, n * f);
    s.gemm = tn_carve(base, &s.bytes, 0);
    return s;
}

size_t tn_linear_kl_top_work_cpu(const tn_sig *s, bool backward)
{
    const int64_t V = s->in[W].dims.dim[0], d = tn_last_dim(s->in[X].dims), K = tn_last_dim(s->in[IDS].dims);
    const space p = make_space(s->attr, tn_row_count(s->in[X].dims), V, d, K, backward, s->makes_out, NULL);
    return p.bytes + tn_logits_work(p.tile, p.block, d, backward, s->threads);
}

static job make_job(const tn_call *c, bool backward)
{
    const tn_linear_kl_top_attr *a = c->attr;
    const tn_arg *x = &c->in[X], *labels = &c->in[LABELS];
    job j = { .c = c,
              .temperature = a->temperature,
              .inverse = 1 / a->temperature,
              .d = tn_last_dim(x->dims),
              .K = tn_last_dim(c->in[IDS].dims) };
    j.labels = (tn_labels){ .label = labels->data,
                            .weight = c->in[WEIGHTS].data,
                            .n = tn_arg_rows(x),
                            .classes = c->in[W].dims.dim[0],
                            .ignore = -1 };
    if (labels->data) j.labels.n = tn_least(j.labels.n, tn_arg_count(labels));
    j.s = make_space(a, tn_row_count(x->dims), j.labels.classes, j.d, j.K, backward, c->makes_out, c->work);
    return j;
}

/* Ids come from files: one outside of the classes would be read behind a row. */
static tn_status check_ids(const job *j)
{
    const int32_t *ids = j->c->in[IDS].data;
    for (int64_t i = 0; i < j->labels.n; i++)
        for (int64_t k = 0; tn_label_counts(&j->labels, i) && k < j->K; k++) {
            const int32_t id = ids[i * j->K + k];
            if (id < 0 || id >= j->labels.classes)
                return tn_error(TN_USAGE, "id %d of row %lld is not in [0,%lld): take the teacher of the same head",
                                (int)id, (long long)i, (long long)j->labels.classes);
        }
    return TN_OK;
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

/* Gathers the next rows that count, from *at on, as f32. Returns false when there are none. */
static bool next_tile(job *j, int64_t *at)
{
    j->rows = tn_labels_gather(&j->labels, &j->c->in[X], j->d, j->s.tile, at, j->s.x, j->s.index);
    return j->rows > 0;
}

/* Makes the block that starts at class v0 the current one. */
static void move_to(job *j, int64_t v0)
{
    j->v0 = v0;
    j->columns = tn_least(j->s.block, j->labels.classes - v0);
    j->piece = j->s.logits + (j->s.row > j->s.block ? v0 : 0);
}

static tn_logits logits_of(const job *j)
{
    const tn_arg *w = &j->c->in[W];
    return (tn_logits){ .rows = j->rows,
                        .columns = j->columns,
                        .d = j->d,
                        .at = j->piece,
                        .apart = j->s.row,
                        .x = j->s.x,
                        .w = (const char *)w->data + j->v0 * j->d * (int64_t)tn_dtype_bytes(w->dtype),
                        .w_type = w->dtype,
                        .gemm = j->s.gemm };
}

static const int32_t *ids_of(const job *j, int64_t r)
{
    return (const int32_t *)j->c->in[IDS].data + j->s.index[r] * j->K;
}

/* The top's logits leave the piece. */
static void take_top(const job *j, int64_t r)
{
    const int32_t *ids = ids_of(j, r);
    float *s = j->piece + r * j->s.row, *top = j->s.top + r * j->K;
    for (int64_t k = 0; k < j->K; k++) {
        const int64_t v = ids[k] - j->v0;
        if (v < 0 || v >= j->columns) continue;
        top[k] = s[v];
        s[v] = -INFINITY;
    }
}

static void take_tops(void *arg, int64_t n)
{
    const job *j = arg;
    const int64_t end = tn_least((n + 1) * ROWS_EACH, j->rows);
    for (int64_t r = n * ROWS_EACH; r < end; r++) take_top(j, r);
}

static void make_logits(job *j, int64_t v0)
{
    move_to(j, v0);
    const tn_logits l = logits_of(j);
    tn_logits_make(j->c, &l);
    tn_pool_run(j->c->pool, tn_tiles(j->rows, ROWS_EACH), take_tops, j);
}

/* --- the teacher -------------------------------------------------------------------------------------------------- */

static float teacher_log(const job *j, int64_t r, int64_t k)
{
    const int64_t at = j->s.index[r];
    return ((const float *)j->c->in[LOGITS].data)[at * j->K + k] * j->inverse - ((const float *)j->c->in[LSE].data)[at];
}

/* What the teacher gives to all in its top, and *rest to the others. */
static double teacher_sum(const job *j, int64_t r, double *rest)
{
    double sum = 0;
    for (int64_t k = 0; k < j->K; k++) sum += (double)expf(teacher_log(j, r, k));
    *rest = j->K == j->labels.classes || sum >= 1 ? 0 : 1 - sum; /* a NaN stays one */
    return sum;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void sum_rows(void *arg, int64_t n)
{
    const job *j = arg;
    const int64_t end = tn_least((n + 1) * ROWS_EACH, j->rows);
    for (int64_t r = n * ROWS_EACH; r < end; r++)
        tn_lse_add(&j->s.tail[r], j->piece + r * j->s.row, j->columns, j->inverse);
}

static void forward_tile(job *j)
{
    for (int64_t r = 0; r < j->rows; r++) j->s.tail[r] = (tn_lse){ -INFINITY, 0 };
    for (int64_t v0 = 0; v0 < j->labels.classes; v0 += BLOCK) {
        make_logits(j, v0);
        tn_pool_run(j->c->pool, tn_tiles(j->rows, ROWS_EACH), sum_rows, j);
    }
}

/* log(e^a + e^b) */
static double log_add(double a, double b)
{
    const double most = a > b ? a : b;
    return most == (double)-INFINITY ? most : most + log(exp(a - most) + exp(b - most));
}

/* KL of row r of the tile, whose logsumexps go into the workspace. */
static double finish_row(const job *j, int64_t r)
{
    const float *top = j->s.top + r * j->K;
    const tn_lse *t = &j->s.tail[r];
    tn_lse l = { -INFINITY, 0 };
    double rest, kl = 0;
    tn_lse_add(&l, top, j->K, j->inverse);
    const double tail = (double)tn_lse_shift(t) * (double)j->inverse + log(t->sum);
    const double all = log_add((double)tn_lse_shift(&l) * (double)j->inverse + log(l.sum), tail);
    const double sum = teacher_sum(j, r, &rest);
    for (int64_t k = 0; k < j->K; k++) {
        const float log_p = teacher_log(j, r, k), p = expf(log_p);
        if (p != 0) kl += (double)p * ((double)log_p - ((double)top[k] * (double)j->inverse - all));
    }
    if (rest != 0) kl += rest * (log(rest) - (tail - all));
    j->s.lse[ALL][r] = (float)all;
    j->s.lse[TAIL][r] = (float)tail;
    return isnan(sum) ? sum : kl;
}

/* Sum of weight KL over the tile. */
static double finish_tile(const job *j, float *kl, float *lse)
{
    double sum = 0;
    for (int64_t r = 0; r < j->rows; r++) {
        const int64_t at = j->s.index[r];
        const double d = finish_row(j, r);
        sum += (double)tn_label_weight(&j->labels, at) * d;
        if (kl) kl[at] = (float)d;
        for (int i = 0; lse && i < 2; i++) lse[2 * at + i] = j->s.lse[i][r];
    }
    return sum;
}

static void zero_outputs(const tn_call *c)
{
    for (int i = 1; i < 3; i++)
        if (c->out[i].data) tn_zero_from(&c->out[i], 0);
}

tn_status tn_linear_kl_top_forward_cpu(const tn_call *c)
{
    job j = make_job(c, false);
    double sum = 0;
    zero_outputs(c);
    TN_RETURN_IF(check_ids(&j));
    for (int64_t at = 0; next_tile(&j, &at);) {
        forward_tile(&j);
        sum += finish_tile(&j, c->out[1].data, c->out[2].data);
    }
    tn_kl_loss(c, &j.labels, j.temperature, sum);
    return TN_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* The row's logits become scale (P q - p), in place. In the tail p is the rest, divided as the student divides it. */
static void differentiate_row(const job *j, int64_t r)
{
    float *restrict s = j->piece + r * j->s.row;
    const int32_t *ids = ids_of(j, r);
    double rest;
    const double all = teacher_sum(j, r, &rest) + rest;
    const float k = j->inverse, lse = j->s.lse[ALL][r], scale = j->s.scale[r], sum = scale * (float)all;
    const bool tail = rest != 0 && j->s.lse[TAIL][r] != -INFINITY;
    const float lse_tail = tail ? j->s.lse[TAIL][r] : 0, part = tail ? scale * (float)rest : 0;
    if (tail)
        for (int64_t i = 0; i < j->columns; i++)
            s[i] = sum * tn_logit_exp(s[i] * k - lse) - part * tn_logit_exp(s[i] * k - lse_tail);
    else
        for (int64_t i = 0; i < j->columns; i++) s[i] = sum * tn_logit_exp(s[i] * k - lse);
    for (int64_t i = 0; i < j->K; i++) {
        const int64_t v = ids[i] - j->v0;
        if (v < 0 || v >= j->columns) continue;
        s[v] = sum * tn_logit_exp(j->s.top[r * j->K + i] * k - lse) - scale * expf(teacher_log(j, r, i));
    }
}

static void differentiate_rows(void *arg, int64_t n)
{
    const job *j = arg;
    const int64_t end = tn_least((n + 1) * ROWS_EACH, j->rows);
    for (int64_t r = n * ROWS_EACH; r < end; r++) differentiate_row(j, r);
}

/* The logsumexps of the tile's rows are known. scale: dloss T / sum of weights. */
static void backward_tile(job *j, double scale, bool first)
{
    const tn_call *c = j->c;
    for (int64_t r = 0; r < j->rows; r++)
        j->s.scale[r] = (float)(scale * (double)tn_label_weight(&j->labels, j->s.index[r]));
    for (int64_t v0 = 0; v0 < j->labels.classes; v0 += BLOCK) {
        if (c->makes_out) move_to(j, v0);
        else make_logits(j, v0);
        tn_pool_run(c->pool, tn_tiles(j->rows, ROWS_EACH), differentiate_rows, j);
        const tn_logits l = logits_of(j);
        if (c->din[X].data) tn_logits_dx(c, &l, j->s.dx, v0 > 0);
        if (c->din[W].data)
            tn_logits_dw(c, &l, (float *)c->din[W].data + v0 * j->d, !first || (c->accumulate >> W & 1));
    }
    if (c->din[X].data) tn_rows_scatter(c->din[X].data, j->s.dx, j->s.index, j->rows, j->d);
}

tn_status tn_linear_kl_top_backward_cpu(const tn_call *c)
{
    job j = make_job(c, true);
    const double dy = c->dout[0].data ? (double)*(const float *)c->dout[0].data : 0;
    const float *lse = c->makes_out ? NULL : c->out[2].data;
    if (c->makes_out) zero_outputs(c);
    if (c->din[WEIGHTS].data) tn_kl_weights(c, &j.labels, j.temperature, dy, WEIGHTS);
    if (!c->makes_out && !c->din[X].data && !c->din[W].data) return TN_OK;
    TN_RETURN_IF(check_ids(&j));
    if (c->din[X].data && !(c->accumulate >> X & 1)) tn_zero_from(&c->din[X], 0); /* rows that do not count stay so */
    const double scale = tn_labels_scale(&j.labels, false) * dy * (double)j.temperature;
    bool first = true;
    double sum = 0;
    for (int64_t at = 0; next_tile(&j, &at); first = false) {
        if (c->makes_out) {
            forward_tile(&j);
            sum += finish_tile(&j, c->out[1].data, c->out[2].data);
        }
        for (int64_t r = 0; lse && r < j.rows; r++)
            for (int i = 0; i < 2; i++) j.s.lse[i][r] = lse[2 * j.s.index[r] + i];
        backward_tile(&j, scale, first);
    }
    if (c->makes_out) tn_kl_loss(c, &j.labels, j.temperature, sum);
    if (first && c->din[W].data && !(c->accumulate >> W & 1)) tn_zero_from(&c->din[W], 0);
    return TN_OK;
}
