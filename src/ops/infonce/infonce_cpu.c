/* infonce on the CPU: tiles of 256 rows of the similarities <a_i, b_j>, one at a time. Logsumexps of rows are complete
 * within a tile, those of columns grow from tile to tile. The tile is fixed, so all sums have a fixed order. */
#include "backend/cpu/gemm.h"
#include "ops/infonce/infonce.h"
#include "ops/logits.h"
#include "ops/rows.h"

tn_kernel tn_infonce_forward_cpu, tn_infonce_backward_cpu;
size_t tn_infonce_work_cpu(const tn_sig *s, bool backward);

enum { TILE = 256, ROWS_EACH = 4, COLUMNS_EACH = 64 };

typedef struct job {
    const float *a, *b;          /* (n,d) */
    int64_t n, d, N;             /* rows alive, features, capacity */
    float inverse;               /* 1/T */
    float *dots;                 /* (TILE,N): similarities of the tile without 1/T, then their gradients */
    float *row_lse, *column_lse; /* (n) */
    float *diagonal;             /* (n): l_ii, rounded as the logsumexps are, so that a sure pair costs 0 */
    float *column_max;           /* (n) */
    double *column_sum;          /* (n) */
    double *moment;              /* (n): sum_j of gradient times similarity */
    void *gemm;
    size_t bytes;
    int64_t i0, rows; /* the current tile */
    float scale;      /* dloss / (2 n T) */
} job;

static void carve(job *j, void *base)
{
    const size_t n = (size_t)j->N;
    j->dots = tn_carve(base, &j->bytes, sizeof(float) * (size_t)tn_least(TILE, j->N) * n);
    j->row_lse = tn_carve(base, &j->bytes, sizeof(float) * n);
    j->column_lse = tn_carve(base, &j->bytes, sizeof(float) * n);
    j->diagonal = tn_carve(base, &j->bytes, sizeof(float) * n);
    j->column_max = tn_carve(base, &j->bytes, sizeof(float) * n);
    j->column_sum = tn_carve(base, &j->bytes, sizeof(double) * n);
    j->moment = tn_carve(base, &j->bytes, sizeof(double) * n);
    j->gemm = tn_carve(base, &j->bytes, 0);
}

size_t tn_infonce_work_cpu(const tn_sig *s, bool backward)
{
    job j = { .N = s->in[0].dims.dim[0], .d = s->in[0].dims.dim[1] };
    const int64_t tile = tn_least(TILE, j.N);
    carve(&j, NULL);
    const size_t forward = tn_gemm_work_most(tile, j.N, s->threads), back = tn_gemm_work_most(j.N, j.d, s->threads);
    return j.bytes + (backward && back > forward ? back : forward);
}

static tn_status make_job(const tn_call *c, job *j)
{
    const float T = c->in[2].data ? *(const float *)c->in[2].data : ((const tn_infonce_attr *)c->attr)->temperature;
    if (T <= 0) return tn_error(TN_USAGE, "the temperature is %g: it must stay positive", (double)T);
    *j = (job){ .a = c->in[0].data,
                .b = c->in[1].data,
                .n = tn_least(tn_arg_rows(&c->in[0]), tn_arg_rows(&c->in[1])),
                .d = c->in[0].dims.dim[1],
                .N = c->in[0].dims.dim[0],
                .inverse = 1 / T };
    carve(j, c->work);
    if (c->out[1].data) {
        j->row_lse = c->out[1].data;
        j->column_lse = j->row_lse + j->N;
    }
    return TN_OK;
}

/* The current tile. */
static tn_logits dots_of(const job *j)
{
    return (tn_logits){ .rows = j->rows,
                        .columns = j->n,
                        .d = j->d,
                        .at = j->dots,
                        .apart = j->N,
                        .x = j->a + j->i0 * j->d,
                        .w = j->b,
                        .gemm = j->gemm };
}

static void make_dots(job *j, const tn_call *c, int64_t i0)
{
    j->i0 = i0;
    j->rows = tn_least(TILE, j->n - i0);
    const tn_logits l = dots_of(j);
    tn_logits_make(c, &l);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void sum_rows(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = tn_least((t + 1) * ROWS_EACH, j->rows);
    for (int64_t r = t * ROWS_EACH; r < end; r++) {
        const float *row = j->dots + r * j->N;
        tn_lse s = { -INFINITY, 0 };
        tn_lse_add(&s, row, j->n, j->inverse);
        j->row_lse[j->i0 + r] = tn_lse_value(&s, j->inverse);
        j->diagonal[j->i0 + r] = j->inverse * row[j->i0 + r];
    }
}

/* Adds the tile's rows to the logsumexps of some columns (see tn_lse for the shift). */
static void sum_columns(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t k0 = t * COLUMNS_EACH, n = tn_least(COLUMNS_EACH, j->n - k0);
    float max[COLUMNS_EACH], shift[COLUMNS_EACH], sum[COLUMNS_EACH] = { 0 };
    memcpy(max, j->column_max + k0, sizeof(float) * (size_t)n);
    for (int64_t r = 0; r < j->rows; r++) {
        const float *restrict row = j->dots + r * j->N + k0;
        for (int64_t k = 0; k < n; k++) max[k] = row[k] > max[k] ? row[k] : max[k];
    }
    for (int64_t k = 0; k < n; k++) shift[k] = max[k] == -INFINITY ? 0.f : max[k];
    for (int64_t r = 0; r < j->rows; r++) {
        const float *restrict row = j->dots + r * j->N + k0;
        for (int64_t k = 0; k < n; k++) sum[k] += tn_logit_exp(j->inverse * (row[k] - shift[k]));
    }
    for (int64_t k = 0; k < n; k++) {
        double *s = &j->column_sum[k0 + k];
        if (max[k] > j->column_max[k0 + k]) *s *= (double)tn_logit_exp(j->inverse * (j->column_max[k0 + k] - max[k]));
        *s += (double)sum[k];
        j->column_max[k0 + k] = max[k];
    }
}

tn_status tn_infonce_forward_cpu(const tn_call *c)
{
    job j;
    double sum = 0;
    TN_RETURN_IF(make_job(c, &j));
    for (int64_t i = 0; i < j.n; i++) {
        j.column_max[i] = -INFINITY;
        j.column_sum[i] = 0;
    }
    for (int64_t i0 = 0; i0 < j.n; i0 += TILE) {
        make_dots(&j, c, i0);
        tn_pool_run(c->pool, tn_tiles(j.rows, ROWS_EACH), sum_rows, &j);
        tn_pool_run(c->pool, tn_tiles(j.n, COLUMNS_EACH), sum_columns, &j);
    }
    for (int64_t i = 0; i < j.n; i++) {
        const tn_lse s = { j.column_max[i], j.column_sum[i] };
        j.column_lse[i] = tn_lse_value(&s, j.inverse);
        sum += (double)(j.row_lse[i] - j.diagonal[i]) + (double)(j.column_lse[i] - j.diagonal[i]);
    }
    if (c->out[0].data) *(float *)c->out[0].data = j.n ? (float)(sum / (2 * (double)j.n)) : 0.f;
    return TN_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* dots become their gradients scale (softmax over the row + softmax over the column - 2 on the diagonal), in place. */
static void differentiate_rows(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = tn_least((t + 1) * ROWS_EACH, j->rows);
    const float k = j->inverse, scale = j->scale;
    for (int64_t r = t * ROWS_EACH; r < end; r++) {
        const int64_t i = j->i0 + r;
        const float lse = j->row_lse[i], *restrict columns = j->column_lse;
        float *restrict row = j->dots + r * j->N;
        double moment = -(double)(2 * scale * row[i]);
        for (int64_t v0 = 0; v0 < j->n; v0 += TN_LANES) {
            const int64_t n = tn_least(TN_LANES, j->n - v0);
            float part[TN_LANES] = { 0 }, sum = 0;
            for (int64_t l = 0; l < n; l++) {
                const float x = row[v0 + l];
                row[v0 + l] = scale * (tn_logit_exp(k * x - lse) + tn_logit_exp(k * x - columns[v0 + l]));
                part[l] = row[v0 + l] * x;
            }
            for (int l = 0; l < TN_LANES; l++) sum += part[l];
            moment += (double)sum;
        }
        row[i] -= 2 * scale;
        j->moment[i] = moment;
    }
}

tn_status tn_infonce_backward_cpu(const tn_call *c)
{
    const float dy = c->dout[0].data ? *(const float *)c->dout[0].data : 0.f;
    job j;
    TN_RETURN_IF(make_job(c, &j));
    j.scale = j.n ? dy * j.inverse / (2 * (float)j.n) : 0.f;
    for (int64_t i0 = 0; i0 < j.n; i0 += TILE) {
        make_dots(&j, c, i0);
        tn_pool_run(c->pool, tn_tiles(j.rows, ROWS_EACH), differentiate_rows, &j);
        const tn_logits l = dots_of(&j);
        if (c->din[0].data) tn_logits_dx(c, &l, (float *)c->din[0].data + i0 * j.d, c->accumulate & 1);
        if (c->din[1].data) tn_logits_dw(c, &l, c->din[1].data, i0 > 0 || (c->accumulate & 2));
    }
    for (int i = 0; i < 2; i++)
        if (c->din[i].data && !(c->accumulate >> i & 1)) tn_zero_from(&c->din[i], j.n * j.d);
    if (c->din[2].data) { /* l = dot/T, so dloss/dT = -1/T sum of (dloss/ddot) dot */
        double sum = 0;
        float *d = c->din[2].data;
        for (int64_t i = 0; i < j.n; i++) sum += j.moment[i];
        *d = (c->accumulate & 4 ? *d : 0.f) - (float)((double)j.inverse * sum);
    }
    return TN_OK;
}
