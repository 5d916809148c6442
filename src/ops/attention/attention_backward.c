/* attention on the CPU, backward: one tile of work per (sequence, key head), because all its blocks add to the same dk
 * and dv, in order. A block meets a tile of keys twice: strip by strip for the scores' gradients and dq, then key panel
 * by key panel, over all rows of the block, for dv and dk. */
#include "backend/cpu/level.h"
#include "base/status.h"
#include "ops/attention/attention_cpu.h"
#include "ops/slots.h"

#include <string.h>

typedef tn_attention_job job;
typedef tn_attention_block block;
typedef tn_attention_span span;

/* What is wanted: of q or k, which need the scores' gradients, and of each. */
typedef struct wants {
    bool scores, q, k, v;
} wants;

static void clear_keys(const job *w, int64_t b, int64_t kv, int input)
{
    const tn_arg *d = &w->c->din[input];
    if (!d->data || (w->c->accumulate >> input & 1) || (d->live && b >= *d->live)) return;
    for (int64_t s = 0; s < w->mask.S; s++)
        for (int64_t i = 0; i < w->D; i++)
            ((float *)d->data)[b * d->stride[0] + s * d->stride[1] + kv * d->stride[2] + i * d->stride[3]] = 0;
}

/* Rows x (rows,D) as strips (D,nr) and as panels (rows,nr). */
static void pack_rows(const block *k, const float *x, float *strips, float *panels)
{
    const job *w = k->w;
    tn__gemm_pack(strips, w->u->nr, (tn_gemm_source){ x, TN_F32, w->D, 1, w->c->round, 0 }, k->rows, w->D);
    tn__gemm_pack(panels, w->u->nr, (tn_gemm_source){ x, TN_F32, 1, w->D, w->c->round, 0 }, w->D, k->rows);
}

static double dot(const float *restrict x, const float *restrict y, int64_t n)
{
    enum { CHAINS = 4 };
    double sum[CHAINS] = { 0 };
    int64_t i = 0;
    for (; i + CHAINS <= n; i += CHAINS)
        for (int c = 0; c < CHAINS; c++) sum[c] += (double)x[i + c] * (double)y[i + c];
    for (; i < n; i++) sum[0] += (double)x[i] * (double)y[i];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* The rows of q, of the output's gradient, and of what the forward pass left. */
static void load_block(const block *k, wants want)
{
    const job *w = k->w;
    const tn_call *c = w->c;
    const tn_arg *lse = &c->out[1];
    float *y = k->o; /* for a moment: the output; then the gradient of q */
    tn_attention_rows_load(k, &c->in[TN_ATT_Q], k->x);
    pack_rows(k, k->x, k->q, k->q_rows);
    tn_attention_rows_load(k, &c->dout[0], k->x);
    pack_rows(k, k->x, k->g, k->g_rows);
    if (want.scores) tn_attention_rows_load(k, &c->out[0], y);
    for (int64_t r = 0; r < w->rows; r++) k->max[r] = k->sum[r] = 0;
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t t = k->t0 + r / w->group, h = k->kv * w->group + r % w->group;
        const float m = ((const float *)lse->data)[k->b * lse->stride[0] + h * lse->stride[1] + t * lse->stride[2]];
        k->max[r] = m == -INFINITY ? 0 : m; /* nothing seen: all weights are exp(-inf) = 0 */
        if (want.scores) k->sum[r] = (float)dot(k->x + r * w->D, y + r * w->D, w->D);
    }
    memset(k->o, 0, sizeof(float) * (size_t)(w->rows * w->deep));
}

/* --- strips ------------------------------------------------------------------------------------------------------ */

/* Raw scores s (n,nr) become weights. */
TN_INLINE void weigh_columns(float *restrict s, int64_t n, int nr, float scale, const float *restrict lse)
{
    for (int64_t i = 0; i < n * nr; i++) s[i] *= scale; /* a loop of its own: rounded as the forward pass rounds it */
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < nr; j++) s[i * nr + j] = tn_v_exp_weight(s[i * nr + j] - lse[j]);
}

/* dp (n,nr) becomes the gradient of the scores: p (dp - delta). */
TN_INLINE void bend_columns(float *restrict dp, const float *restrict p, int64_t n, int nr, const float *restrict delta)
{
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < nr; j++) {
            const float x = p[i * nr + j], d = x * (dp[i * nr + j] - delta[j]);
            dp[i * nr + j] = tn_v_pick(x == 0, 0, d);
        }
}

/* Widths known when compiling unroll. */
static void weigh(int nr, float *s, int64_t n, float scale, const float *lse)
{
    if (nr == 12) weigh_columns(s, n, 12, scale, lse);
    else if (nr == 24) weigh_columns(s, n, 24, scale, lse);
    else weigh_columns(s, n, nr, scale, lse);
}

static void bend(int nr, float *dp, const float *p, int64_t n, const float *delta)
{
    if (nr == 12) bend_columns(dp, p, n, 12, delta);
    else if (nr == 24) bend_columns(dp, p, n, 24, delta);
    else bend_columns(dp, p, n, nr, delta);
}

/* A strip's (KEYS,nr) numbers to its rows of the panels (rows,mr) of keys. */
static void keep_rows(const block *k, const float *strip, int64_t r0, span a, float *panels)
{
    const job *w = k->w;
    const int64_t mr = w->u->mr, nr = w->u->nr;
    for (int64_t s = a.lo; s < a.hi; s += mr)
        tn__gemm_pack(panels + s * w->rows + r0 * mr, w->u->mr,
                      (tn_gemm_source){ strip + s * nr, TN_F32, nr, 1, w->c->round, 0 }, mr, nr);
}

static void strip_backward(const block *k, int64_t r0, int64_t s0, int64_t n, span a, wants want)
{
    const job *w = k->w;
    const tn_gemm_ukernel *u = w->u;
    const int64_t mr = u->mr, nr = u->nr, at = a.lo * nr, end = a.hi < n ? a.hi : n;
    tn_attention_strip_scores(k, r0, s0, a);
    weigh(u->nr, k->s + at, a.hi - a.lo, w->scale, k->max + r0);
    if (want.v) keep_rows(k, k->s, r0, a, k->p_rows);
    if (!want.scores) return;
    memset(k->dp + at, 0, sizeof(float) * (size_t)((a.hi - a.lo) * nr));
    for (int64_t s = a.lo; s < a.hi; s += mr)
        tn_attention_multiply(u, w->D, k->v + s * w->D, k->g + r0 * w->D, k->dp + s * nr, nr);
    bend(u->nr, k->dp + at, k->s + at, a.hi - a.lo, k->sum + r0);
    if (want.k) keep_rows(k, k->dp, r0, a, k->s_rows);
    if (!want.q) return;
    tn_attention_round(w, k->dp + at, (a.hi - a.lo) * nr);
    for (int64_t d = 0; d < w->deep; d += mr)
        tn_attention_multiply(u, end - a.lo, k->k_cols + d * n + a.lo * mr, k->dp + at, k->o + r0 * w->deep + d * nr,
                              nr);
}

/* --- a tile of keys ---------------------------------------------------------------------------------------------- */

/* Rows [from,to) of the block whose strips have met the panel of keys at s of the tile. Both ends grow with s. */
typedef struct seen {
    int64_t from, to;
} seen;

/* to (keys s0..s0+n-1 of dk or dv) += scale * p^T (n,rows) x (rows,D), p and x in panels. */
static void add_keys(const block *k, const float *p, const float *x, const seen *by, int64_t s0, int64_t n, float scale,
                     const tn_arg *to)
{
    const job *w = k->w;
    const int64_t mr = w->u->mr, nr = w->u->nr;
    const int64_t at = k->b * to->stride[0] + s0 * to->stride[1] + k->kv * to->stride[2];
    for (int64_t s = 0; s < n; s++)
        tn_attention_row_fetch((const float *)to->data + at + s * to->stride[1], w->D * to->stride[3]);
    memset(k->tile, 0, sizeof(float) * (size_t)(TN_ATT_KEYS * w->wide));
    for (int64_t d = 0; d < w->wide; d += nr)
        for (int64_t s = 0; s < n; s += mr) {
            const seen r = by[s / mr];
            tn_attention_multiply(w->u, r.to - r.from, p + s * w->rows + r.from * mr, x + d * k->rows + r.from * nr,
                                  k->tile + s * w->wide + d, w->wide);
        }
    for (int64_t s = 0; s < n; s++)
        tn_attention_row_store((float *)to->data + at + s * to->stride[1], to->stride[3], k->tile + s * w->wide, w->D,
                               scale, true);
}

static void keys_backward(const block *k, int64_t s0, wants want)
{
    const job *w = k->w;
    const tn_call *c = w->c;
    const int64_t n = tn_attention_tile_keys(k, s0), mr = w->u->mr, nr = w->u->nr;
    seen by[TN_ATT_KEYS] = { 0 };
    tn__gemm_pack(k->k, w->u->mr, tn_attention_keys_at(k, &c->in[TN_ATT_K], s0, false), n, w->D);
    if (want.scores) tn__gemm_pack(k->v, w->u->mr, tn_attention_keys_at(k, &c->in[TN_ATT_V], s0, false), n, w->D);
    if (want.q) tn__gemm_pack(k->k_cols, w->u->mr, tn_attention_keys_at(k, &c->in[TN_ATT_K], s0, true), w->D, n);
    for (int64_t r0 = 0; r0 < k->rows; r0 += nr) {
        const span a = tn_attention_strip_span(k, r0, s0);
        if (a.lo == a.hi) continue;
        strip_backward(k, r0, s0, n, a, want);
        for (int64_t s = a.lo / mr; s < a.hi / mr; s++) {
            if (by[s].to == 0) by[s].from = r0;
            by[s].to = r0 + nr < k->rows ? r0 + nr : k->rows;
        }
    }
    if (want.v) add_keys(k, k->p_rows, k->g_rows, by, s0, n, 1, &c->din[TN_ATT_V]);
    if (want.k) add_keys(k, k->s_rows, k->q_rows, by, s0, n, w->scale, &c->din[TN_ATT_K]);
}

/* --- backward ---------------------------------------------------------------------------------------------------- */

static void store_dq(const block *k)
{
    const job *w = k->w;
    const tn_arg *dq = &w->c->din[TN_ATT_Q];
    for (int64_t r = 0; r < k->rows; r++) {
        if (r % w->u->nr == 0) tn_attention_strip_turn(w, k->o + r * w->deep, k->x);
        tn_attention_row_store((float *)dq->data + tn_attention_row_at(k, dq, r), dq->stride[3],
                               k->x + r % w->u->nr * w->D, w->D, w->scale, w->c->accumulate >> TN_ATT_Q & 1);
    }
}

static void backward_tile(void *arg, void *scratch, int64_t i)
{
    const job *w = arg;
    const int64_t b = i / w->KV, kv = i % w->KV;
    wants want = { .q = w->c->din[TN_ATT_Q].data, .k = w->c->din[TN_ATT_K].data, .v = w->c->din[TN_ATT_V].data };
    block k;
    want.scores = want.q || want.k;
    clear_keys(w, b, kv, TN_ATT_K);
    clear_keys(w, b, kv, TN_ATT_V);
    if (b >= w->alive) return;
    tn_attention_block_make(&k, w, scratch, true);
    for (int64_t n = 0; n < w->blocks; n++) {
        tn_attention_block_move(&k, b, kv, n);
        load_block(&k, want);
        for (int64_t s0 = k.first; s0 < k.end; s0 += TN_ATT_KEYS) keys_backward(&k, s0, want);
        if (want.q) store_dq(&k);
    }
}

TN_LEVELED_KERNEL(tn_attention_backward_cpu)
{
    job w;
    TN_RETURN_IF(tn_attention_job_make(c, &c->dout[0], true, &w));
    tn_slots_run(c->pool, w.B * w.KV, backward_tile, &w, c->work, w.slot);
    return TN_OK;
}
