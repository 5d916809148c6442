/* kl on the CPU: rows in parallel, the loss added up from fixed tiles of rows.
 *
 * The log ratio is formed as (t - s)/T - (lse_t - lse_s), so that equal rows give exactly 0 and near-equal ones do not
 * cancel after the sum. */
#include "ops/kl/kl.h"
#include "ops/logits.h"
#include "ops/rows.h"

tn_kernel tn_kl_forward_cpu, tn_kl_backward_cpu;
size_t tn_kl_work_cpu(const tn_sig *s, bool backward);

enum { LSE_T, LSE_S, KL, STATS };

typedef struct job {
    const float *teacher, *student; /* (n,V) */
    const float *weight;            /* (n) or NULL */
    int64_t n, V, per_tile;
    float temperature, inverse; /* T, 1/T */
    float *stats;               /* (n,3) or NULL */
    double *partial;            /* (tiles): sum of w KL */
    float *dteacher, *dstudent; /* (n,V) or NULL */
    double scale;               /* dloss T^2 / sum w */
    uint64_t add;
} job;

static job make_job(const tn_call *c)
{
    const float T = ((const tn_kl_attr *)c->attr)->temperature;
    const int64_t V = tn_row_length(&c->in[0]);
    return (job){ .teacher = c->in[0].data,
                  .student = c->in[1].data,
                  .weight = c->in[2].data,
                  .V = V,
                  .n = tn_least(tn_arg_rows(&c->in[0]), tn_arg_rows(&c->in[1])),
                  .per_tile = tn_tile_rows(V),
                  .temperature = T,
                  .inverse = 1 / T,
                  .stats = c->out[1].data };
}

static double inverse_total(const job *j)
{
    const double total = tn_weights_sum(j->weight, j->n);
    return total == 0 ? 0 : 1 / total;
}

size_t tn_kl_work_cpu(const tn_sig *s, bool backward)
{
    const tn_dims d = s->in[0].dims;
    int64_t rows = 1;
    for (int i = 0; i < d.rank - 1; i++) rows *= d.dim[i];
    return backward ? 0 : sizeof(double) * (size_t)(tn_tiles(rows, tn_tile_rows(d.dim[d.rank - 1])) + 1);
}

/* p_v (log p_v - log q_v), 0 where p_v is. */
static inline float term(float t, float s, float inverse, float lse_t, float shift)
{
    const float p = tn_logit_exp(t * inverse - lse_t);
    return p == 0 ? 0.f : p * ((t - s) * inverse - shift);
}

static double row_kl(const job *j, int64_t r, float lse_t, float lse_s)
{
    const float *restrict t = j->teacher + r * j->V, *restrict s = j->student + r * j->V;
    double sum = 0;
    for (int64_t i0 = 0; i0 < j->V; i0 += TN_LOGIT_BLOCK) {
        const int64_t end = tn_least(i0 + TN_LOGIT_BLOCK, j->V);
        float lane[TN_LANES] = { 0 }, rest = 0;
        int64_t i = i0;
        for (; i + TN_LANES <= end; i += TN_LANES)
            for (int l = 0; l < TN_LANES; l++) lane[l] += term(t[i + l], s[i + l], j->inverse, lse_t, lse_t - lse_s);
        for (; i < end; i++) rest += term(t[i], s[i], j->inverse, lse_t, lse_t - lse_s);
        for (int l = 0; l < TN_LANES; l++) rest += lane[l];
        sum += (double)rest;
    }
    return sum;
}

static float row_lse(const float *x, int64_t n, float inverse)
{
    tn_lse s = { -INFINITY, 0 };
    tn_lse_add(&s, x, n, inverse);
    return tn_lse_value(&s, inverse);
}

static void forward_tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = tn_least((t + 1) * j->per_tile, j->n);
    double sum = 0;
    for (int64_t r = t * j->per_tile; r < end; r++) {
        const float lse_t = row_lse(j->teacher + r * j->V, j->V, j->inverse);
        const float lse_s = row_lse(j->student + r * j->V, j->V, j->inverse);
        const double kl = row_kl(j, r, lse_t, lse_s);
        sum += (j->weight ? (double)j->weight[r] : 1.0) * kl;
        if (!j->stats) continue;
        j->stats[r * STATS + LSE_T] = lse_t;
        j->stats[r * STATS + LSE_S] = lse_s;
        j->stats[r * STATS + KL] = (float)kl;
    }
    j->partial[t] = sum;
}

tn_status tn_kl_forward_cpu(const tn_call *c)
{
    job j = make_job(c);
    const int64_t tiles = tn_tiles(j.n, j.per_tile);
    double sum = 0;
    j.partial = c->work;
    tn_pool_run(c->pool, tiles, forward_tile, &j);
    for (int64_t t = 0; t < tiles; t++) sum += j.partial[t];
    const double scale = inverse_total(&j) * (double)j.temperature * (double)j.temperature;
    if (c->out[0].data) *(float *)c->out[0].data = scale == 0 ? 0.f : (float)(sum * scale);
    return TN_OK;
}

/* dstudent = w/T (q - p) */
static void student_row(const job *j, int64_t r, float w)
{
    const float *restrict t = j->teacher + r * j->V, *restrict s = j->student + r * j->V;
    const float lse_t = j->stats[r * STATS + LSE_T], lse_s = j->stats[r * STATS + LSE_S], k = j->inverse;
    float *restrict d = j->dstudent + r * j->V;
    if (j->add & 2)
        for (int64_t v = 0; v < j->V; v++)
            d[v] += w * k * (tn_logit_exp(s[v] * k - lse_s) - tn_logit_exp(t[v] * k - lse_t));
    else
        for (int64_t v = 0; v < j->V; v++)
            d[v] = w * k * (tn_logit_exp(s[v] * k - lse_s) - tn_logit_exp(t[v] * k - lse_t));
}

/* dteacher = w/T p (log p - log q - KL) */
static void teacher_row(const job *j, int64_t r, float w)
{
    const float *restrict t = j->teacher + r * j->V, *restrict s = j->student + r * j->V, *stats = j->stats + r * STATS;
    const float lse_t = stats[LSE_T], shift = stats[LSE_T] - stats[LSE_S] + stats[KL], k = j->inverse;
    float *restrict d = j->dteacher + r * j->V;
    if (j->add & 1)
        for (int64_t v = 0; v < j->V; v++) d[v] += w * k * term(t[v], s[v], k, lse_t, shift);
    else
        for (int64_t v = 0; v < j->V; v++) d[v] = w * k * term(t[v], s[v], k, lse_t, shift);
}

static void backward_tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = tn_least((t + 1) * j->per_tile, j->n);
    for (int64_t r = t * j->per_tile; r < end; r++) {
        const float w = (float)(j->scale * (j->weight ? (double)j->weight[r] : 1.0));
        if (j->dteacher) teacher_row(j, r, w);
        if (j->dstudent) student_row(j, r, w);
    }
}

/* dloss/dw_r = (T^2 KL_r - loss) / sum w */
static void weights_backward(const job *j, const tn_call *c, double dy)
{
    const double T2 = (double)j->temperature * (double)j->temperature, loss = (double)*(const float *)c->out[0].data;
    const double scale = dy * inverse_total(j);
    float *d = c->din[2].data;
    const bool add = j->add & 4;
    for (int64_t r = 0; r < j->n; r++) {
        const float g = (float)(scale * (T2 * (double)j->stats[r * STATS + KL] - loss));
        d[r] = add ? d[r] + g : g;
    }
}

tn_status tn_kl_backward_cpu(const tn_call *c)
{
    const double dy = c->dout[0].data ? (double)*(const float *)c->dout[0].data : 0;
    job j = make_job(c);
    j.dteacher = c->din[0].data;
    j.dstudent = c->din[1].data;
    j.add = c->accumulate;
    j.scale = dy * inverse_total(&j) * (double)j.temperature * (double)j.temperature;
    if (j.dteacher || j.dstudent) tn_pool_run(c->pool, tn_tiles(j.n, j.per_tile), backward_tile, &j);
    if (c->din[2].data) weights_backward(&j, c, dy);
    for (int i = 0; i < 3; i++)
        if (c->din[i].data && !(j.add >> i & 1)) tn_zero_from(&c->din[i], i < 2 ? j.n * j.V : j.n);
    return TN_OK;
}
