/* xent on the CPU: rows in parallel, the loss added up from fixed tiles of rows. */
#include "backend/cpu/level.h"
#include "ops/logits.h"
#include "ops/rows.h"
#include "ops/xent/xent.h"

tn_kernel tn_xent_forward_cpu, tn_xent_backward_cpu;

typedef struct job {
    tn_labels labels;
    const float *logits; /* (n,V) */
    float z;
    int64_t per_tile;
    float *nll, *lse; /* (n) or NULL */
    double *partial;  /* (tiles): sum of w (nll + z lse^2) */
    float *dlogits;   /* (n,V) */
    double scale;     /* dloss times the divisor's inverse */
    bool add;
} job;

/* Rows alive: the fewer of the logits' and the labels'. */
static job make_job(const tn_call *c)
{
    const tn_xent_attr *a = c->attr;
    const int64_t V = tn_row_length(&c->in[0]);
    return (job){ .labels = { .label = c->in[1].data,
                              .weight = c->in[2].data,
                              .n = tn_least(tn_arg_rows(&c->in[0]), tn_arg_count(&c->in[1])),
                              .classes = V,
                              .ignore = a->ignore },
                  .logits = c->in[0].data,
                  .z = a->z_loss,
                  .per_tile = tn_tile_rows(V) };
}

static void forward_tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t V = j->labels.classes, end = tn_least((t + 1) * j->per_tile, j->labels.n);
    double sum = 0;
    for (int64_t i = t * j->per_tile; i < end; i++) {
        float nll = 0, lse = 0;
        if (tn_label_counts(&j->labels, i)) {
            const float *row = j->logits + i * V;
            tn_lse s = { -INFINITY, 0 };
            tn_lse_add(&s, row, V, 1);
            lse = tn_lse_value(&s, 1);
            nll = lse - row[j->labels.label[i]];
            sum += (double)tn_label_weight(&j->labels, i) * ((double)nll + (double)j->z * (double)lse * (double)lse);
        }
        if (j->nll) j->nll[i] = nll;
        if (j->lse) j->lse[i] = lse;
    }
    j->partial[t] = sum;
}

TN_LEVELED_KERNEL(tn_xent_forward_cpu)
{
    job j = make_job(c);
    j.nll = c->out[1].data;
    j.lse = c->out[2].data;
    j.partial = c->work;
    TN_RETURN_IF(tn_labels_check(&j.labels));
    const int64_t tiles = tn_tiles(j.labels.n, j.per_tile);
    tn_pool_run(c->pool, tiles, forward_tile, &j);
    if (j.nll) tn_zero_from(&c->out[1], j.labels.n);
    const double scale = tn_labels_scale(&j.labels, ((const tn_xent_attr *)c->attr)->sum);
    double sum = 0;
    for (int64_t t = 0; t < tiles; t++) sum += j.partial[t];
    if (c->out[0].data) *(float *)c->out[0].data = scale == 0 ? 0.f : (float)(sum * scale);
    return TN_OK;
}

/* dlogits = scale w (softmax (1 + 2 z lse) - onehot). */
static void backward_row(const job *j, int64_t i)
{
    const int64_t V = j->labels.classes;
    const float *restrict x = j->logits + i * V;
    float *restrict d = j->dlogits + i * V;
    const float lse = j->lse[i], w = (float)(j->scale * (double)tn_label_weight(&j->labels, i));
    const float p = w * (1 + 2 * j->z * lse);
    if (j->add)
        for (int64_t v = 0; v < V; v++) d[v] += p * tn_logit_exp(x[v] - lse);
    else
        for (int64_t v = 0; v < V; v++) d[v] = p * tn_logit_exp(x[v] - lse);
    d[j->labels.label[i]] -= w;
}

static void backward_tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t V = j->labels.classes, end = tn_least((t + 1) * j->per_tile, j->labels.n);
    for (int64_t i = t * j->per_tile; i < end; i++) {
        if (tn_label_counts(&j->labels, i)) backward_row(j, i);
        else if (!j->add) memset(j->dlogits + i * V, 0, sizeof(float) * (size_t)V);
    }
}

TN_LEVELED_KERNEL(tn_xent_backward_cpu)
{
    const tn_xent_attr *a = c->attr;
    job j = make_job(c);
    const float dy = c->dout[0].data ? *(const float *)c->dout[0].data : 0.f;
    j.lse = c->out[2].data;
    if (c->din[0].data) {
        j.dlogits = c->din[0].data;
        j.add = c->accumulate & 1;
        j.scale = tn_labels_scale(&j.labels, a->sum) * (double)dy;
        tn_pool_run(c->pool, tn_tiles(j.labels.n, j.per_tile), backward_tile, &j);
        if (!j.add) tn_zero_from(&c->din[0], j.labels.n * j.labels.classes);
    }
    if (c->din[2].data) {
        const bool add = c->accumulate & 4;
        tn_labels_backward(&j.labels, a->sum, (double)a->z_loss, c->out[1].data, j.lse, *(const float *)c->out[0].data,
                           dy, c->din[2].data, add);
        if (!add) tn_zero_from(&c->din[2], j.labels.n);
    }
    return TN_OK;
}
