/* linear_top on the CPU, as linear_xent: rows that count are gathered into tiles, the vocabulary is cut into blocks, and one
 * (tile,block) piece of logits exists at a time. A row keeps its K best so far in a heap whose root is the worst of them: most
 * classes are compared with the root alone.
 *
 * Invariant: classes come in ascending order, so that of equal logits the first stays. */
#include "backend/cpu/gemm.h"
#include "ops/linear_top/linear_top.h"
#include "ops/logits.h"
#include "ops/rows.h"

size_t tn_linear_top_work_cpu(const tn_sig *s, bool backward);
tn_kernel tn_linear_top_forward_cpu;

enum { X = TN_LINEAR_TOP_X, W = TN_LINEAR_TOP_W, LABELS = TN_LINEAR_TOP_LABELS };
enum { IDS, LOGITS, LSE };
enum { TILE = 256, BLOCK = TN_LOGIT_BLOCK, ROWS_EACH = 4, IGNORE = -1 };

typedef struct item {
    float logit;
    int32_t id;
} item;

typedef struct space {
    int64_t tile, block;
    float *logits;  /* (tile,block) */
    float *x;       /* (tile,d): the gathered rows */
    int64_t *index; /* (tile): which row of x a row of the tile is */
    tn_lse *lse;    /* (tile) */
    item *best;     /* (tile,K): heaps */
    void *gemm;
    size_t bytes;
} space;

typedef struct job {
    space s;
    const tn_call *c;
    tn_labels labels;
    int64_t d, k;
    float inverse;
    int64_t rows, v0, columns; /* the current piece */
} job;

static space make_space(int64_t rows, int64_t V, int64_t d, int64_t k, void *base)
{
    space s = { .tile = tn_least(TILE, rows), .block = tn_least(V, BLOCK) };
    const size_t n = (size_t)s.tile;
    s.logits = tn_carve(base, &s.bytes, n * (size_t)s.block * sizeof *s.logits);
    s.x = tn_carve(base, &s.bytes, n * (size_t)d * sizeof *s.x);
    s.index = tn_carve(base, &s.bytes, n * sizeof *s.index);
    s.lse = tn_carve(base, &s.bytes, n * sizeof *s.lse);
    s.best = tn_carve(base, &s.bytes, n * (size_t)k * sizeof *s.best);
    s.gemm = tn_carve(base, &s.bytes, 0);
    return s;
}

size_t tn_linear_top_work_cpu(const tn_sig *s, bool backward)
{
    const tn_linear_top_attr *a = s->attr;
    const tn_dims *w = &s->in[W].dims;
    const space p = make_space(tn_row_count(s->in[X].dims), w->dim[0], w->dim[1], a->k, NULL);
    (void)backward;
    return p.bytes + tn_logits_work(p.tile, p.block, w->dim[1], false, s->threads);
}

/* --- the K best ----------------------------------------------------------------------------------------------------- */

/* a stands before b in the result. */
static bool before(item a, item b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

/* Puts x at `at` of a heap of n, or below it: a parent stands behind its children in the result. */
static void sink(item *heap, int64_t n, int64_t at, item x)
{
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n) break;
        if (child + 1 < n && before(heap[child], heap[child + 1])) child++;
        if (!before(x, heap[child])) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = x;
}

/* Classes v0 .. v0+n-1 with these logits. */
static void offer(item *heap, int64_t k, const float *s, int64_t v0, int64_t n)
{
    int64_t i = 0;
    for (; i < n && v0 + i < k; i++) {
        heap[v0 + i] = (item){ s[i], (int32_t)(v0 + i) };
        if (v0 + i + 1 < k) continue;
        for (int64_t at = k / 2; at-- > 0;) sink(heap, k, at, heap[at]);
    }
    for (; i < n; i++)
        if (s[i] > heap[0].logit) sink(heap, k, 0, (item){ s[i], (int32_t)(v0 + i) });
}

static void sort(item *heap, int64_t k)
{
    for (int64_t n = k - 1; n > 0; n--) { /* the worst of those left goes behind them */
        const item last = heap[n];
        heap[n] = heap[0];
        sink(heap, n, 0, last);
    }
}

/* --- rows ----------------------------------------------------------------------------------------------------------- */

static bool next_tile(job *j, int64_t *at)
{
    j->rows = tn_labels_gather(&j->labels, &j->c->in[X], j->d, j->s.tile, at, j->s.x, j->s.index);
    for (int64_t r = 0; r < j->rows; r++) j->s.lse[r] = (tn_lse){ -INFINITY, 0 };
    return j->rows > 0;
}

static void look_at_rows(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = tn_least((t + 1) * ROWS_EACH, j->rows);
    for (int64_t r = t * ROWS_EACH; r < end; r++) {
        const float *s = j->s.logits + r * j->s.block;
        tn_lse_add(&j->s.lse[r], s, j->columns, j->inverse);
        offer(j->s.best + r * j->k, j->k, s, j->v0, j->columns);
    }
}

/* A NaN anywhere is in the sum. */
static void write_rows(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = tn_least((t + 1) * ROWS_EACH, j->rows);
    for (int64_t r = t * ROWS_EACH; r < end; r++) {
        const int64_t at = j->s.index[r];
        item *best = j->s.best + r * j->k;
        const tn_lse *l = &j->s.lse[r];
        int32_t *ids = (int32_t *)j->c->out[IDS].data + at * j->k;
        float *logits = (float *)j->c->out[LOGITS].data + at * j->k;
        const bool odd = isnan(l->sum);
        if (!odd) sort(best, j->k);
        for (int64_t i = 0; i < j->k; i++) {
            ids[i] = odd ? (int32_t)i : best[i].id;
            logits[i] = odd ? NAN : best[i].logit - tn_lse_shift(l);
        }
        ((float *)j->c->out[LSE].data)[at] = (float)log(l->sum);
    }
}

static void make_logits(const job *j)
{
    const tn_arg *w = &j->c->in[W];
    const tn_logits l = { .rows = j->rows,
                          .columns = j->columns,
                          .d = j->d,
                          .at = j->s.logits,
                          .apart = j->s.block,
                          .x = j->s.x,
                          .w = (const char *)w->data + j->v0 * j->d * (int64_t)tn_dtype_bytes(w->dtype),
                          .w_type = w->dtype,
                          .gemm = j->s.gemm };
    tn_logits_make(j->c, &l);
}

tn_status tn_linear_top_forward_cpu(const tn_call *c)
{
    const tn_linear_top_attr *a = c->attr;
    const tn_arg *x = &c->in[X], *labels = &c->in[LABELS];
    const int64_t V = c->in[W].dims.dim[0];
    job j = { .c = c, .d = c->in[W].dims.dim[1], .k = a->k, .inverse = 1 / a->temperature };
    j.labels = (tn_labels){ .label = labels->data, .n = tn_arg_rows(x), .classes = V, .ignore = IGNORE };
    if (labels->data) j.labels.n = tn_least(j.labels.n, tn_arg_count(labels));
    j.s = make_space(tn_row_count(x->dims), V, j.d, j.k, c->work);
    for (int i = 0; i < 3; i++) tn_zero_from(&c->out[i], 0);
    for (int64_t at = 0; next_tile(&j, &at);) {
        for (j.v0 = 0; j.v0 < V; j.v0 += BLOCK) {
            j.columns = tn_least(j.s.block, V - j.v0);
            make_logits(&j);
            tn_pool_run(c->pool, tn_tiles(j.rows, ROWS_EACH), look_at_rows, &j);
        }
        tn_pool_run(c->pool, tn_tiles(j.rows, ROWS_EACH), write_rows, &j);
    }
    return TN_OK;
}
