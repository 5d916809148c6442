/* collect on the CPU: a tile is a sample, slots in order. The backward pass makes the sums of weights again; then a landing's
 * gradient is a sum over the few cells that it reaches, and only that of M takes the whole surface. */
#include "ops/collect/collect_place.h"
#include "ops/rows.h"

#include <string.h>

tn_kernel tn_collect_forward_cpu, tn_collect_backward_cpu;

typedef struct job {
    const tn_collect_attr *a;
    const float *e, *u, *v, *d;          /* (B,N,E); (B,N) */
    const int32_t *plane, *age, *landed; /* (B,N); landed NULL: all */
    float *O;                            /* (B,cells,E) */
    const float *surface, *dO;           /* backward: O and its gradient */
    float *de, *du, *dv, *dd;            /* NULL: not wanted */
    uint64_t add;                        /* by input */
    float *sum, *most, *score;           /* (B,cells) (B,cells) (B,N) */
    int64_t N, E, cells;
} job;

/* One sample. */
typedef struct sample {
    const job *j;
    int64_t slot; /* its first one */
    float *sum, *most, *score;
    float M;
    int64_t best; /* the slot that has M; -1: none */
} sample;

static bool landed(const job *j, int64_t i) { return !j->landed || j->landed[i] != 0; }

static tn_collect_place place_of(const job *j, int64_t i)
{
    return tn_collect_find(j->a, j->u[i], j->v[i], j->plane[i]);
}

static float factor_of(const job *j, int64_t i) { return tn_collect_factor(j->a, j->age[i], j->d[i]); }

/* exp(s - M) of a landing; in nearest the largest score of its cell stands for M. */
static float weight_of(const sample *s, int64_t i, int32_t cell)
{
    return expf(s->score[i - s->slot] - (s->j->a->nearest ? s->most[cell] : s->M));
}

/* Scores, and the largest of the sample and of every cell; NaN is left out. */
static void find_scores(sample *s)
{
    const job *j = s->j;
    s->best = -1;
    for (int64_t c = 0; c < j->cells; c++) s->most[c] = -INFINITY;
    for (int64_t i = s->slot; i < s->slot + j->N; i++) {
        if (!landed(j, i)) continue;
        const float x = tn_collect_norm(j->e + i * j->E, j->E) * factor_of(j, i);
        s->score[i - s->slot] = x;
        if (s->best < 0 ? !isnan(x) : x > s->M) s->M = x, s->best = i;
        if (!j->a->nearest) continue;
        float *most = &s->most[place_of(j, i).first];
        if (x > *most) *most = x;
    }
    if (s->best < 0) s->M = 0;
}

/* Sums of weights; O too, where it is to be written. */
static void add_weights(const sample *s, float *O)
{
    const job *j = s->j;
    const int reach = tn_collect_reach(j->a);
    for (int64_t c = 0; c < j->cells; c++) s->sum[c] = j->a->nearest ? 0 : j->a->eps;
    for (int64_t i = s->slot; i < s->slot + j->N; i++) {
        if (!landed(j, i)) continue;
        const tn_collect_place p = place_of(j, i);
        for (int n = 0; n < reach; n++) {
            const int32_t c = p.first + tn_collect_offset(j->a, n);
            if (p.k[n] == 0) continue;
            const float w = p.k[n] * weight_of(s, i, c);
            s->sum[c] += w;
            for (int64_t m = 0; O && m < j->E; m++) O[c * j->E + m] += w * j->e[i * j->E + m];
        }
    }
}

static sample begin(const job *j, int64_t b)
{
    sample s = { .j = j,
                 .slot = b * j->N,
                 .sum = j->sum + b * j->cells,
                 .most = j->most + b * j->cells,
                 .score = j->score + b * j->N };
    find_scores(&s);
    return s;
}

static void forward_tile(void *arg, int64_t b)
{
    const job *j = arg;
    const sample s = begin(j, b);
    float *O = j->O + b * j->cells * j->E;
    memset(O, 0, sizeof *O * (size_t)(j->cells * j->E));
    add_weights(&s, O);
    for (int64_t c = 0; c < j->cells; c++)
        for (int64_t m = 0; m < j->E; m++) O[c * j->E + m] = s.sum[c] == 0 ? 0 : O[c * j->E + m] / s.sum[c];
}

static void put(float *to, int64_t i, float x, const job *j, int input)
{
    if (to) to[i] = j->add >> input & 1 ? to[i] + x : x;
}

/* Gradients of one landing; more: that of its score by way of M. de gets what comes by O directly, then by the score. */
static void flow_back(const sample *s, int64_t i, const float *O, const float *dO, float more)
{
    const job *j = s->j;
    const tn_collect_place p = place_of(j, i);
    const int reach = tn_collect_reach(j->a);
    const float *e = j->e + i * j->E;
    float w[TN_COLLECT_REACH], ds = more, du = 0, dv = 0;
    for (int n = 0; n < reach; n++) {
        const int32_t c = p.first + tn_collect_offset(j->a, n);
        float dw = 0;
        w[n] = weight_of(s, i, c) / s->sum[c];
        for (int64_t m = 0; m < j->E; m++) dw += dO[c * j->E + m] * (e[m] - O[c * j->E + m]);
        ds += dw * w[n] * p.k[n];
        du += dw * w[n] * p.k_u[n];
        dv += dw * w[n] * p.k_v[n];
    }
    const float factor = factor_of(j, i), size = tn_collect_norm(e, j->E);
    put(j->du, i, du, j, TN_COLLECT_U);
    put(j->dv, i, dv, j, TN_COLLECT_V);
    put(j->dd, i, -ds * size * factor / (1 + j->d[i]), j, TN_COLLECT_D);
    for (int64_t m = 0; j->de && m < j->E; m++) {
        float x = size > 0 ? ds * factor * e[m] / size : 0;
        for (int n = 0; n < reach; n++) x += dO[(p.first + tn_collect_offset(j->a, n)) * j->E + m] * p.k[n] * w[n];
        put(j->de, i * j->E + m, x, j, TN_COLLECT_E);
    }
}

static void nothing_back(const job *j, int64_t i)
{
    put(j->du, i, 0, j, TN_COLLECT_U);
    put(j->dv, i, 0, j, TN_COLLECT_V);
    put(j->dd, i, 0, j, TN_COLLECT_D);
    for (int64_t m = 0; m < j->E; m++) put(j->de, i * j->E + m, 0, j, TN_COLLECT_E);
}

static void backward_tile(void *arg, int64_t b)
{
    const job *j = arg;
    const float *O = j->surface + b * j->cells * j->E, *dO = j->dO ? j->dO + b * j->cells * j->E : NULL;
    sample s = { .j = j, .slot = b * j->N };
    float of_M = 0; /* dO_c/dM = -O_c eps / (eps + sum) */
    if (dO) {
        s = begin(j, b);
        add_weights(&s, NULL);
        for (int64_t c = 0; !j->a->nearest && c < j->cells; c++)
            for (int64_t m = 0; m < j->E; m++) of_M -= dO[c * j->E + m] * O[c * j->E + m] * j->a->eps / s.sum[c];
    }
    for (int64_t i = s.slot; i < s.slot + j->N; i++) {
        if (dO && landed(j, i)) flow_back(&s, i, O, dO, i == s.best ? of_M : 0);
        else nothing_back(j, i);
    }
}

static job make_job(const tn_call *c)
{
    const tn_arg *in = c->in;
    job j = { .a = c->attr,
              .e = in[TN_COLLECT_E].data,
              .u = in[TN_COLLECT_U].data,
              .v = in[TN_COLLECT_V].data,
              .d = in[TN_COLLECT_D].data,
              .plane = in[TN_COLLECT_PLANE].data,
              .age = in[TN_COLLECT_AGE].data,
              .landed = in[TN_COLLECT_LANDED].data,
              .N = in[TN_COLLECT_E].dims.dim[1],
              .E = in[TN_COLLECT_E].dims.dim[2],
              .cells = tn_collect_cells(c->attr) };
    const int64_t B = in[TN_COLLECT_E].dims.dim[0];
    j.sum = c->work;
    j.most = j.sum + B * j.cells;
    j.score = j.most + B * j.cells;
    return j;
}

static int64_t alive(const tn_arg *a)
{
    const int64_t B = a->dims.dim[0];
    return a->live && *a->live < B ? (*a->live < 0 ? 0 : *a->live) : B;
}

tn_status tn_collect_forward_cpu(const tn_call *c)
{
    job j = make_job(c);
    j.O = c->out[0].data;
    tn_pool_run(c->pool, alive(&c->in[TN_COLLECT_E]), forward_tile, &j);
    return TN_OK;
}

tn_status tn_collect_backward_cpu(const tn_call *c)
{
    job j = make_job(c);
    j.surface = c->out[0].data;
    j.dO = c->dout[0].data;
    j.de = c->din[TN_COLLECT_E].data;
    j.du = c->din[TN_COLLECT_U].data;
    j.dv = c->din[TN_COLLECT_V].data;
    j.dd = c->din[TN_COLLECT_D].data;
    j.add = c->accumulate;
    tn_pool_run(c->pool, alive(&c->in[TN_COLLECT_E]), backward_tile, &j);
    return TN_OK;
}
