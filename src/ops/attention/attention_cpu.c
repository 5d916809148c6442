/* attention on the CPU, forward, in tiles (Dao et al. 2022, section 3.1, with our own order of loops): one tile of work
 * per (sequence, key head, block of rows). The strips of attention_cpu.h, and for the few rows of decoding the same
 * sums with single rows, where a strip would be mostly padding. */
#include "backend/cpu/level.h"
#include "ops/attention/attention_cpu.h"
#include "base/status.h"
#include "ops/slots.h"

#include <string.h>

typedef tn_attention_job job;
typedef tn_attention_block block;
typedef tn_attention_span span;

enum { FEW = 4, CHAINS = 4, MOST_NR = 64 }; /* sums over keys run in four chains, by the key's number */

/* --- softmax so far ---------------------------------------------------------------------------------------------- */

/* What was summed relative to `before` counts by this relative to `now`. */
static float kept(float before, float now) { return before == now ? 1 : before == -INFINITY ? 0 : expf(before - now); }

TN_INLINE float base_of(float max)
{
    return max == -INFINITY ? 0 : max; /* nothing seen so far: all are exp(-inf) = 0 */
}

TN_INLINE float add_up(float sum, float keep, float a, float b, float c, float d)
{
    return sum * keep + ((a + c) + (b + d));
}

/* Four columns at a time, as a vector: compilers unroll such short rows before they see that they are vectors. */
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint32_t bits __attribute__((vector_size(16), aligned(4)));

/* s (n,nr) times scale; top (nr): the largest of its columns and of what is there. NaN is never largest. */
TN_INLINE void scale_columns(float *restrict s, int64_t n, int nr, float scale, float *restrict top)
{
    quad most[MOST_NR / 4];
    for (int v = 0; v < nr / 4; v++) most[v] = *(const quad *)(top + 4 * v);
    for (int64_t i = 0; i < n; i++)
        for (int v = 0; v < nr / 4; v++, s += 4) {
            const quad x = *(const quad *)s * scale;
            const bits larger = (bits)(x > most[v]);
            *(quad *)s = x;
            most[v] = (quad)(((bits)x & larger) | ((bits)most[v] & ~larger));
        }
    for (int v = 0; v < nr / 4; v++) *(quad *)(top + 4 * v) = most[v];
}

/* lane (CHAINS,nr): sums of every CHAINS-th of n rows of p (n,nr). */
TN_INLINE void sum_columns(const float *restrict p, int64_t n, int nr, float *restrict lane)
{
    quad sum[CHAINS][MOST_NR / 4];
    for (int c = 0; c < CHAINS; c++)
        for (int v = 0; v < nr / 4; v++) sum[c][v] = (quad){ 0 };
    for (int64_t i = 0; i < n; i += CHAINS)
        for (int c = 0; c < CHAINS; c++)
            for (int v = 0; v < nr / 4; v++, p += 4) sum[c][v] += *(const quad *)p;
    for (int c = 0; c < CHAINS; c++)
        for (int v = 0; v < nr / 4; v++) *(quad *)(lane + c * nr + 4 * v) = sum[c][v];
}

/* Raw scores s (n,nr) become weights relative to the new maximum of each column; n is a multiple of CHAINS. keep (nr):
 * what earlier sums count. False: all of them count fully. */
TN_INLINE bool soften_columns(float *restrict s, int64_t n, int nr, float scale, float *restrict max,
                              float *restrict sum, float *restrict keep)
{
    float top[MOST_NR], lane[CHAINS * MOST_NR];
    bool moved = false;
    for (int j = 0; j < nr; j++) top[j] = max[j];
    scale_columns(s, n, nr, scale, top);
    for (int j = 0; j < nr; j++) {
        keep[j] = kept(max[j], top[j]);
        moved |= keep[j] != 1;
        max[j] = top[j];
        top[j] = base_of(top[j]);
    }
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < nr; j++) s[i * nr + j] = tn_v_exp_weight(s[i * nr + j] - top[j]);
    sum_columns(s, n, nr, lane);
    for (int j = 0; j < nr; j++)
        sum[j] = add_up(sum[j], keep[j], lane[j], lane[nr + j], lane[2 * nr + j], lane[3 * nr + j]);
    return moved;
}

/* Widths known when compiling unroll. */
static bool soften_strip(int nr, float *s, int64_t n, float scale, float *max, float *sum, float *keep)
{
    return nr == 12   ? soften_columns(s, n, 12, scale, max, sum, keep)
           : nr == 24 ? soften_columns(s, n, 24, scale, max, sum, keep)
                      : soften_columns(s, n, nr, scale, max, sum, keep);
}

/* The same for one row of all TN_ATT_KEYS scores. */
static float soften_row(float *restrict s, float scale, float *max, float *sum)
{
    float top[CHAINS], lane[CHAINS] = { 0 }, most = *max;
    for (int c = 0; c < CHAINS; c++) top[c] = *max;
    for (int i = 0; i < TN_ATT_KEYS; i += CHAINS)
        for (int c = 0; c < CHAINS; c++) {
            s[i + c] *= scale;
            top[c] = tn_v_pick(s[i + c] > top[c], s[i + c], top[c]);
        }
    for (int c = 0; c < CHAINS; c++) most = top[c] > most ? top[c] : most;
    const float keep = kept(*max, most), base = base_of(most);
    for (int i = 0; i < TN_ATT_KEYS; i++) s[i] = tn_v_exp_weight(s[i] - base);
    for (int i = 0; i < TN_ATT_KEYS; i += CHAINS)
        for (int c = 0; c < CHAINS; c++) lane[c] += s[i + c];
    *sum = add_up(*sum, keep, lane[0], lane[1], lane[2], lane[3]);
    *max = most;
    return keep;
}

/* --- values ------------------------------------------------------------------------------------------------------ */

static bool all_finite(const float *x, int64_t n)
{
    const uint32_t exponent = 0x7f800000u; /* all ones in what is not finite */
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= (tn_v_bits(x[i]) & exponent) == exponent;
    return !bad;
}

/* The product of weights p (n, `step` apart) and the tile's values, in panels (n,width), without the terms of weight 0,
 * which a NaN or infinity would not leave 0: in the same order and with the same bits, so that a broken token cannot
 * reach those that do not see it. to: D numbers `apart`. */
static void add_seen(const float *p, int64_t step, const float *v, int64_t n, int64_t width, int64_t D, float *to,
                     int64_t apart)
{
    for (int64_t d = 0; d < D; d++) {
        const float *column = v + d / width * width * n + d % width;
        float sum = 0;
        for (int64_t s = 0; s < n; s++)
            if (p[s * step] != 0) sum = fmaf(p[s * step], column[s * width], sum);
        to[d * apart] += sum;
    }
}

static void add_values(const block *k, float *o, span a, int64_t n, bool finite)
{
    const job *w = k->w;
    const int64_t mr = w->u->mr, nr = w->u->nr, end = a.hi < n ? a.hi : n;
    if (a.whole || finite) {
        for (int64_t d = 0; d < w->deep; d += mr)
            tn_attention_multiply(w->u, end - a.lo, k->v + d * n + a.lo * mr, k->s + a.lo * nr, o + d * nr, nr);
        return;
    }
    memset(k->s, 0, sizeof(float) * (size_t)(a.lo * nr));
    memset(k->s + a.hi * nr, 0, sizeof(float) * (size_t)((TN_ATT_KEYS - a.hi) * nr));
    for (int64_t j = 0; j < nr; j++) add_seen(k->s + j, nr, k->v, n, mr, w->D, o + j, nr);
}

/* --- a block ----------------------------------------------------------------------------------------------------- */

static void strip_forward(const block *k, int64_t r0, int64_t s0, int64_t n, bool finite)
{
    const job *w = k->w;
    const int64_t nr = w->u->nr;
    const span a = tn_attention_strip_span(k, r0, s0);
    float keep[MOST_NR], *o = k->o + r0 * w->deep;
    if (a.lo == a.hi) return;
    tn_attention_strip_scores(k, r0, s0, a);
    if (soften_strip(w->u->nr, k->s + a.lo * nr, a.hi - a.lo, w->scale, k->max + r0, k->sum + r0, keep))
        for (int64_t d = 0; d < w->D; d++)
            for (int64_t j = 0; j < nr; j++) o[d * nr + j] *= keep[j];
    tn_attention_round(w, k->s + a.lo * nr, (a.hi - a.lo) * nr);
    add_values(k, o, a, n, finite);
}

static bool all_see(const block *k, int64_t s0)
{
    const tn_attention_mask *m = &k->w->mask;
    int64_t first, end, unused;
    tn_attention_range(m, k->b, k->t0, &unused, &end);
    tn_attention_range(m, k->b, k->t0 + k->tokens - 1, &first, &unused);
    return !m->document && first <= s0 && end >= s0 + TN_ATT_KEYS;
}

static void keys_forward(const block *k, int64_t s0)
{
    const job *w = k->w;
    const int64_t n = tn_attention_tile_keys(k, s0);
    tn__gemm_pack(k->k, w->u->mr, tn_attention_keys_at(k, &w->c->in[TN_ATT_K], s0, false), n, w->D);
    tn__gemm_pack(k->v, w->u->mr, tn_attention_keys_at(k, &w->c->in[TN_ATT_V], s0, true), w->D, n);
    const bool finite = all_see(k, s0) || all_finite(k->v, w->deep * n);
    for (int64_t r0 = 0; r0 < k->rows; r0 += w->u->nr) strip_forward(k, r0, s0, n, finite);
}

/* --- few rows ---------------------------------------------------------------------------------------------------- */

static void hide_row(const block *k, int64_t r, int64_t s0, float *s)
{
    const tn_attention_mask *m = &k->w->mask;
    const int64_t t = k->t0 + r / k->w->group;
    int64_t first, end;
    tn_attention_range(m, k->b, t, &first, &end);
    for (int64_t i = 0; i < TN_ATT_KEYS; i++)
        if (s0 + i < first || s0 + i >= end || (m->document && !tn_attention_same(m, k->b, t, s0 + i)))
            s[i] = copysignf(INFINITY, -k->w->scale);
}

static void row_product(const tn_gemm_ukernel *u, int64_t k, const float *a, const float *b, float *acc)
{
    for (int64_t p = 0; p < k; p += TN_GEMM_KC)
        u->run[1](k - p < TN_GEMM_KC ? k - p : TN_GEMM_KC, a + p, b + p * u->nr, u->nr, acc, u->nr);
}

/* Where all rows see all of a tile, keys and values are read as they lie: a cache is read once, by nobody else, so that packing
 * it would be most of the work. The kernels add in the order of the packed ones: the same bits. */
typedef struct direct {
    int rows; /* of a panel of q: 1, 2 or 4; 0: keys and values have to be packed */
    const tn_gemm_direct *keys, *values;
    const float *q; /* (D,rows) */
} direct;

static direct direct_of(const block *k)
{
    const job *w = k->w;
    const tn_arg *key = &w->c->in[TN_ATT_K], *value = &w->c->in[TN_ATT_V];
    const int way = tn__gemm_way(key->dtype, w->c->round);
    const direct none = { 0 };
    if (way < 0 || key->stride[3] != 1 || value->stride[3] != 1 || w->rows < 2 * FEW) return none;
    for (int r = 1; r <= FEW; r *= 2) {
        const direct d = { r, &w->u->along_k[way][r], &w->u->along_n[r], r == 1 ? k->q : k->q + FEW * w->D };
        if (r >= k->rows && d.keys->run && TN_ATT_KEYS % d.keys->columns == 0 && d.values->run &&
            w->D % d.values->columns == 0)
            return d;
    }
    return none;
}

/* s (rows,KEYS): scores of all keys of the tile. */
static void scores_direct(const block *k, const direct *x, int64_t s0, float *s)
{
    const job *w = k->w;
    const tn_gemm_source key = tn_attention_keys_at(k, &w->c->in[TN_ATT_K], s0, false);
    const int64_t bytes = (int64_t)tn_dtype_bytes(key.type);
    memset(s, 0, sizeof(float) * (size_t)(x->rows * TN_ATT_KEYS));
    for (int64_t i = 0; i < TN_ATT_KEYS; i += x->keys->columns)
        for (int64_t p = 0; p < w->D; p += TN_GEMM_KC)
            x->keys->run(w->D - p < TN_GEMM_KC ? w->D - p : TN_GEMM_KC, x->q + p * x->rows,
                         (const char *)key.data + (i * key.outer + p) * bytes, key.outer, s + i, TN_ATT_KEYS);
}

/* o (rows,wide) += weights s (rows,KEYS) times the values of the tile. Half precision is widened on its way, and f32 rounded where
 * the graph rounds: rows that stay in L1. */
static void values_direct(const block *k, const direct *x, int64_t s0, const float *s)
{
    const job *w = k->w;
    const tn_gemm_source value = tn_attention_keys_at(k, &w->c->in[TN_ATT_V], s0, true);
    const float *v = value.data;
    int64_t step = value.inner;
    float turned[FEW * TN_ATT_KEYS]; /* (KEYS,rows) */
    for (int64_t i = 0; x->rows > 1 && i < TN_ATT_KEYS; i++)
        for (int r = 0; r < x->rows; r++) turned[i * x->rows + r] = s[r * TN_ATT_KEYS + i];
    if (value.type != TN_F32 || value.round != TN_F32) {
        tn__gemm_pack(k->v, (int)w->D, value, w->D, TN_ATT_KEYS);
        v = k->v;
        step = w->D;
    }
    for (int64_t d = 0; d < w->D; d += x->values->columns)
        x->values->run(TN_ATT_KEYS, x->rows > 1 ? turned : s, v + d, step, k->o + d, w->wide);
}

static void keys_forward_direct(const block *k, const direct *x, int64_t s0)
{
    const job *w = k->w;
    float *s = k->s;
    scores_direct(k, x, s0, s);
    for (int64_t r = 0; r < k->rows; r++) {
        float *o = k->o + r * w->wide;
        const float keep = soften_row(s + r * TN_ATT_KEYS, w->scale, &k->max[r], &k->sum[r]);
        for (int64_t d = 0; keep != 1 && d < w->D; d++) o[d] *= keep;
        tn_attention_round(w, s + r * TN_ATT_KEYS, TN_ATT_KEYS);
    }
    values_direct(k, x, s0, s);
}

/* Keys in panels (D,nr), values in panels (n,nr), rows of q and o (wide) as they are. */
static void keys_forward_few(const block *k, int64_t s0)
{
    const job *w = k->w;
    const int64_t n = tn_attention_tile_keys(k, s0), nr = w->u->nr;
    tn__gemm_pack(k->k, w->u->nr, tn_attention_keys_at(k, &w->c->in[TN_ATT_K], s0, false), n, w->D);
    tn__gemm_pack(k->v, w->u->nr, tn_attention_keys_at(k, &w->c->in[TN_ATT_V], s0, true), w->D, n);
    const bool seen = all_see(k, s0), finite = seen || all_finite(k->v, w->wide * n);
    for (int64_t r = 0; r < k->rows; r++) {
        float *s = k->s, *o = k->o + r * w->wide;
        memset(s, 0, sizeof(float) * (size_t)(TN_ATT_KEYS + nr));
        for (int64_t i = 0; i < n; i += nr) row_product(w->u, w->D, k->q + r * w->D, k->k + i * w->D, s + i);
        if (!seen) hide_row(k, r, s0, s);
        const float keep = soften_row(s, w->scale, &k->max[r], &k->sum[r]);
        for (int64_t d = 0; keep != 1 && d < w->D; d++) o[d] *= keep;
        tn_attention_round(w, s, n);
        if (finite)
            for (int64_t d = 0; d < w->wide; d += nr) row_product(w->u, n, s, k->v + d * n, o + d);
        else add_seen(s, 1, k->v, n, nr, w->D, o, 1);
    }
}

/* --- forward ----------------------------------------------------------------------------------------------------- */

static void finish_row(const block *k, int64_t r, const float *o)
{
    const tn_arg *y = &k->w->c->out[0], *lse = &k->w->c->out[1];
    const int64_t t = k->t0 + r / k->w->group, h = k->kv * k->w->group + r % k->w->group;
    tn_attention_row_store((float *)y->data + tn_attention_row_at(k, y, r), y->stride[3], o, k->w->D,
                           k->sum[r] == 0 ? 0 : 1 / k->sum[r], false);
    if (lse->data)
        ((float *)lse->data)[k->b * lse->stride[0] + h * lse->stride[1] + t * lse->stride[2]] =
            k->sum[r] == 0 ? -INFINITY : k->max[r] + logf(k->sum[r]);
}

static void finish(const block *k, bool few)
{
    const job *w = k->w;
    const int64_t nr = w->u->nr;
    for (int64_t r = 0; r < k->rows; r++) {
        if (!few && r % nr == 0) tn_attention_strip_turn(w, k->o + r * w->deep, k->x);
        finish_row(k, r, few ? k->o + r * w->wide : k->x + r % nr * w->D);
    }
}

static void forward_tile(void *arg, void *scratch, int64_t i)
{
    const job *w = arg;
    block k;
    tn_attention_block_make(&k, w, scratch, false);
    tn_attention_block_move(&k, i / (w->KV * w->blocks), i / w->blocks % w->KV, i % w->blocks);
    const bool few = k.rows <= FEW && w->u->run[1];
    tn_attention_rows_load(&k, &w->c->in[TN_ATT_Q], k.x);
    const tn_gemm_source rows = { k.x, TN_F32, w->D, 1, w->c->round, 0 };
    tn__gemm_pack(k.q, few ? 1 : w->u->nr, rows, k.rows, w->D);
    const direct as_it_lies = few ? direct_of(&k) : (direct){ 0 };
    if (as_it_lies.rows > 1) tn__gemm_pack(k.q + FEW * w->D, as_it_lies.rows, rows, k.rows, w->D);
    memset(k.o, 0, sizeof(float) * (size_t)(w->rows * (few ? w->wide : w->deep)));
    for (int64_t r = 0; r < w->rows; r++) k.max[r] = -INFINITY, k.sum[r] = 0;
    for (int64_t s0 = k.first; s0 < k.end; s0 += TN_ATT_KEYS)
        if (as_it_lies.rows && all_see(&k, s0)) keys_forward_direct(&k, &as_it_lies, s0);
        else if (few) keys_forward_few(&k, s0);
        else keys_forward(&k, s0);
    finish(&k, few);
}

TN_LEVELED_KERNEL(tn_attention_forward_cpu)
{
    job w;
    TN_RETURN_IF(tn_attention_job_make(c, &c->in[TN_ATT_Q], false, &w));
    tn_slots_run(c->pool, w.alive * w.KV * w.blocks, forward_tile, &w, c->work, w.slot);
    return TN_OK;
}
