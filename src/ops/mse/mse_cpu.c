/* mse on the CPU. Elements lie in runs of `run` that share a weight (all of them without weights); fixed tiles of
 * elements are added up in order. */
#include "ops/logits.h"
#include "ops/mse/mse.h"
#include "ops/rows.h"

tn_kernel tn_mse_forward_cpu, tn_mse_backward_cpu;
size_t tn_mse_work_cpu(const tn_sig *s, bool backward);

enum { TILE = 16384, CHUNK = 512 };

typedef struct job {
    const float *a, *b, *w; /* (n), (n) or NULL, (n/run) or NULL */
    int64_t n, run;
    double *partial; /* (tiles) */
    float *d;        /* gradient by a or b (n), or by w (n/run) */
    double scale;    /* of the weighted differences; for w: of the deviations from the mean */
    double mean;     /* the loss, for w */
    bool add;
} job;

static job make_job(const tn_call *c)
{
    const int64_t one = tn_arg_count(&c->in[0]), n = c->in[1].data ? tn_least(one, tn_arg_count(&c->in[1])) : one;
    const int64_t all = tn_dims_count(c->in[0].dims), weights = c->in[2].data ? tn_dims_count(c->in[2].dims) : 1;
    return (job){
        .a = c->in[0].data, .b = c->in[1].data, .w = c->in[2].data, .n = n, .run = weights && all ? all / weights : 1
    };
}

/* 1 / (run * sum of the weights alive), 0 when that sum is 0. A run is longer than what is alive only where one weight
 * is for the whole. */
static double inverse_total(const job *j)
{
    const double total =
        j->w ? (double)tn_least(j->run, j->n) * tn_weights_sum(j->w, (j->n + j->run - 1) / j->run) : (double)j->n;
    return total == 0 ? 0 : 1 / total;
}

size_t tn_mse_work_cpu(const tn_sig *s, bool backward)
{
    return backward ? 0 : sizeof(double) * (size_t)(tn_tiles(tn_dims_count(s->in[0].dims), TILE) + 1);
}

/* Sum of (a - b)^2, or a^2: f32 in 16 lanes within a chunk, double across chunks. */
static inline double sum_squares(const float *restrict a, const float *restrict b, int64_t n, bool two)
{
#define SQUARE(i) (two ? (a[i] - b[i]) * (a[i] - b[i]) : a[i] * a[i])
    double sum = 0;
    for (int64_t i0 = 0; i0 < n; i0 += CHUNK) {
        const int64_t end = tn_least(i0 + CHUNK, n);
        float lane[TN_LANES] = { 0 }, rest = 0;
        int64_t i = i0;
        for (; i + TN_LANES <= end; i += TN_LANES)
            for (int l = 0; l < TN_LANES; l++) lane[l] += SQUARE(i + l);
        for (; i < end; i++) rest += SQUARE(i);
        for (int l = 0; l < TN_LANES; l++) rest += lane[l];
        sum += (double)rest;
    }
    return sum;
#undef SQUARE
}

static double square_sum(const job *j, int64_t i, int64_t n)
{
    return j->b ? sum_squares(j->a + i, j->b + i, n, true) : sum_squares(j->a + i, NULL, n, false);
}

static void forward_tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = tn_least((t + 1) * TILE, j->n);
    double sum = 0;
    for (int64_t i = t * TILE, k; i < end; i = k) {
        const int64_t run = i / j->run;
        k = tn_least((run + 1) * j->run, end);
        sum += (j->w ? (double)j->w[run] : 1.0) * square_sum(j, i, k - i);
    }
    j->partial[t] = sum;
}

tn_status tn_mse_forward_cpu(const tn_call *c)
{
    job j = make_job(c);
    const int64_t tiles = tn_tiles(j.n, TILE);
    double sum = 0;
    j.partial = c->work;
    tn_pool_run(c->pool, tiles, forward_tile, &j);
    for (int64_t t = 0; t < tiles; t++) sum += j.partial[t];
    const double scale = inverse_total(&j);
    *(float *)c->out[0].data = scale == 0 ? 0.f : (float)(sum * scale);
    return TN_OK;
}

static inline void differences(const job *j, float s, int64_t i, int64_t end, bool two)
{
    const float *restrict a = j->a, *restrict b = j->b;
    float *restrict d = j->d;
    if (j->add)
        for (; i < end; i++) d[i] += s * (two ? a[i] - b[i] : a[i]);
    else
        for (; i < end; i++) d[i] = s * (two ? a[i] - b[i] : a[i]);
}

static void difference_tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = tn_least((t + 1) * TILE, j->n);
    for (int64_t i = t * TILE, k; i < end; i = k) {
        const int64_t run = i / j->run;
        const float s = (float)(j->scale * (j->w ? (double)j->w[run] : 1.0));
        k = tn_least((run + 1) * j->run, end);
        if (j->b) differences(j, s, i, k, true);
        else differences(j, s, i, k, false);
    }
}

/* dloss/dw_r = scale (sum over the run of (a-b)^2 - length * loss). */
static void weight_tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t each = tn_tile_rows(j->run), runs = (j->n + j->run - 1) / j->run,
                  end = tn_least((t + 1) * each, runs);
    for (int64_t r = t * each; r < end; r++) {
        const int64_t i = r * j->run, n = tn_least(j->run, j->n - i);
        const float g = (float)(j->scale * (square_sum(j, i, n) - j->mean * (double)n));
        j->d[r] = j->add ? j->d[r] + g : g;
    }
}

tn_status tn_mse_backward_cpu(const tn_call *c)
{
    job j = make_job(c);
    const double dy = c->dout[0].data ? (double)*(const float *)c->dout[0].data : 0, scale = dy * inverse_total(&j);
    for (int i = 0; i < 2; i++) {
        if (!c->din[i].data) continue;
        j.d = c->din[i].data;
        j.add = c->accumulate >> i & 1;
        j.scale = i ? -2 * scale : 2 * scale;
        tn_pool_run(c->pool, tn_tiles(j.n, TILE), difference_tile, &j);
        if (!j.add) tn_zero_from(&c->din[i], j.n);
    }
    if (c->din[2].data) {
        const int64_t runs = (j.n + j.run - 1) / j.run;
        j.d = c->din[2].data;
        j.add = c->accumulate >> 2 & 1;
        j.scale = scale;
        j.mean = (double)*(const float *)c->out[0].data;
        tn_pool_run(c->pool, tn_tiles(runs, tn_tile_rows(j.run)), weight_tile, &j);
        if (!j.add) tn_zero_from(&c->din[2], runs);
    }
    return TN_OK;
}
