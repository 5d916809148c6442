/* attention on the CPU, in tiles (Dao et al. 2022, section 3.1, with our own order of loops).
 *
 * A block is a few neighbouring tokens with all query heads that share one key head: ROWS rows or so, row = (token,
 * head). It meets the keys in tiles of KEYS that always start at multiples of KEYS, so a row's arithmetic does not
 * depend on the block it is in: hidden keys add exact zeros. Forward: one tile of work per (sequence, key head,
 * block). Backward: one per (sequence, key head), because all its blocks add to the same dk and dv, in order. */
#include "backend/cpu/vmath.h"
#include "base/status.h"
#include "ops/attention/attention_mask.h"
#include "ops/product.h"
#include "ops/rows.h"
#include "ops/slots.h"

#include <string.h>

enum { ROWS = 64, KEYS = 64, LANES = 8 };

/* --- workspace --------------------------------------------------------------------------------------------------- */

static int64_t block_tokens(int64_t group)
{
    return group < ROWS ? ROWS / group : 1;
}

static size_t floats(int64_t n)
{
    return tn_align64(sizeof(float) * (size_t)n);
}

typedef struct sizes {
    int64_t rows, D;
    size_t row_tile, key_tile, scores, column, gemm, slot;
} sizes;

static sizes measure(int64_t group, int64_t D)
{
    sizes z = { .rows = block_tokens(group) * group, .D = D };
    const int64_t side = z.rows > KEYS ? z.rows : KEYS;
    z.row_tile = floats(z.rows * D);
    z.key_tile = floats(KEYS * D);
    z.scores = floats(z.rows * KEYS);
    z.column = floats(z.rows);
    z.gemm = tn_product_work(side, D > KEYS ? D : KEYS, 1);
    z.slot = 3 * z.row_tile + z.key_tile + 2 * z.scores + 2 * z.column + z.gemm;
    return z;
}

size_t tn_attention_work_cpu(const tn_sig *s, bool backward)
{
    (void)backward;
    const tn_dims q = s->in[TN_ATT_Q].dims, k = s->in[TN_ATT_K].dims;
    return measure(q.dim[2] / k.dim[2], q.dim[3]).slot * (size_t)s->threads;
}

/* --- what a tile of work sees ------------------------------------------------------------------------------------ */

typedef struct job {
    const tn_call *c;
    tn_attention_mask mask;
    sizes z;
    float scale;
    int64_t B, T, H, KV, D, group, tokens, blocks; /* tokens of a block, blocks of a sequence */
    int64_t alive;                                 /* sequences */
} job;

typedef struct block {
    const job *w;
    int64_t b, kv, t0, tokens, rows;
    int64_t first, end; /* keys that some row sees */
    float *q, *o, *dq;  /* (rows,D); backward: o holds the gradient of the output */
    float *s, *dp;      /* (rows,KEYS) */
    float *max, *sum;   /* (rows); backward: log-sum-exp, and the sum of gradient times output */
    float *tile;        /* (KEYS,D) */
    void *gemm;
} block;

static job make_job(const tn_call *c, const tn_arg *rowwise)
{
    const tn_dims q = c->in[TN_ATT_Q].dims;
    job w = { .c = c,
              .scale = ((const tn_attention_attr *)c->attr)->scale,
              .B = q.dim[0],
              .T = q.dim[1],
              .H = q.dim[2],
              .KV = c->in[TN_ATT_K].dims.dim[2],
              .D = q.dim[3] };
    w.group = w.H / w.KV;
    w.tokens = block_tokens(w.group);
    w.blocks = tn_tiles(w.T, w.tokens);
    w.z = measure(w.group, w.D);
    w.alive = rowwise->live && *rowwise->live < w.B ? *rowwise->live : w.B;
    if (w.alive < 0) w.alive = 0;
    return w;
}

static void *take(unsigned char **at, size_t bytes)
{
    void *p = *at;
    *at += bytes;
    return p;
}

static void make_block(block *k, const job *w, void *scratch)
{
    unsigned char *at = scratch;
    *k = (block){ .w = w };
    k->q = take(&at, w->z.row_tile);
    k->o = take(&at, w->z.row_tile);
    k->dq = take(&at, w->z.row_tile);
    k->tile = take(&at, w->z.key_tile);
    k->s = take(&at, w->z.scores);
    k->dp = take(&at, w->z.scores);
    k->max = take(&at, w->z.column);
    k->sum = take(&at, w->z.column);
    k->gemm = at;
}

static void move_block(block *k, int64_t b, int64_t kv, int64_t i)
{
    const job *w = k->w;
    int64_t unused;
    k->b = b;
    k->kv = kv;
    k->t0 = i * w->tokens;
    k->tokens = w->T - k->t0 < w->tokens ? w->T - k->t0 : w->tokens;
    k->rows = k->tokens * w->group;
    tn_attention_range(&w->mask, b, k->t0, &k->first, &unused);
    tn_attention_range(&w->mask, b, k->t0 + k->tokens - 1, &unused, &k->end);
    k->first = k->first / KEYS * KEYS;
}

/* --- moving rows ------------------------------------------------------------------------------------------------- */

/* Offset of row r in a tensor (B,T,H,D). */
static int64_t row_at(const block *k, const tn_arg *x, int64_t r)
{
    const int64_t t = k->t0 + r / k->w->group, h = k->kv * k->w->group + r % k->w->group;
    return k->b * x->stride[0] + t * x->stride[1] + h * x->stride[2];
}

static void load_rows(const block *k, const tn_arg *x, float *to)
{
    const int64_t D = k->w->D, step = x->stride[3];
    for (int64_t r = 0; r < k->rows; r++, to += D) {
        const int64_t at = row_at(k, x, r);
        if (x->dtype == TN_F32)
            for (int64_t d = 0; d < D; d++) to[d] = ((const float *)x->data)[at + d * step];
        else
            for (int64_t d = 0; d < D; d++)
                tn_convert(&to[d], TN_F32, (const uint16_t *)x->data + at + d * step, x->dtype, 1);
    }
}

static void store_row(float *to, int64_t step, const float *from, int64_t D, float factor, bool add)
{
    for (int64_t d = 0; d < D; d++) to[d * step] = add ? to[d * step] + factor * from[d] : factor * from[d];
}

/* --- products ---------------------------------------------------------------------------------------------------- */

/* n keys (or values) from s0 on, as a matrix whose rows are `row` apart. */
typedef struct keys {
    const void *data;
    tn_dtype type;
    int64_t row, col, n;
} keys;

static keys keys_at(const block *k, const tn_arg *x, int64_t s0)
{
    const int64_t n = k->end - s0 < KEYS ? k->end - s0 : KEYS;
    const int64_t at = k->b * x->stride[0] + s0 * x->stride[1] + k->kv * x->stride[2];
    return (keys){ (const char *)x->data + at * (int64_t)tn_dtype_bytes(x->dtype), x->dtype, x->stride[1], x->stride[3],
                   n };
}

/* out (rows,KEYS) = scale * x (rows,D) keys^T. */
static void times_keys(const block *k, const float *x, keys y, float scale, float *out)
{
    const tn_gemm g = { .m = k->rows,
                        .n = y.n,
                        .k = k->w->D,
                        .a = x,
                        .a_row = k->w->D,
                        .a_col = 1,
                        .b = y.data,
                        .b_row = y.col,
                        .b_col = y.row,
                        .b_type = y.type,
                        .c = out,
                        .c_row = KEYS,
                        .batch = 1,
                        .round_bf16 = k->w->c->round_bf16,
                        .alpha = scale };
    tn_gemm_run(NULL, &g, k->gemm);
}

/* out (rows,D) += scale * p (rows,KEYS) keys. */
static void add_keys(const block *k, const float *p, keys y, float scale, float *out)
{
    const tn_gemm g = { .m = k->rows,
                        .n = k->w->D,
                        .k = y.n,
                        .a = p,
                        .a_row = KEYS,
                        .a_col = 1,
                        .b = y.data,
                        .b_row = y.row,
                        .b_col = y.col,
                        .b_type = y.type,
                        .c = out,
                        .c_row = k->w->D,
                        .batch = 1,
                        .round_bf16 = k->w->c->round_bf16,
                        .accumulate = true,
                        .alpha = scale };
    tn_gemm_run(NULL, &g, k->gemm);
}

/* to (keys s0..s0+n-1 of dk or dv) += scale * p^T (n,rows) x (rows,D). */
static void add_transposed(const block *k, const float *p, const float *x, int64_t s0, int64_t n, float scale,
                           const tn_arg *to)
{
    const int64_t D = k->w->D, at = k->b * to->stride[0] + s0 * to->stride[1] + k->kv * to->stride[2];
    const tn_gemm g = { .m = n,
                        .n = D,
                        .k = k->rows,
                        .a = p,
                        .a_row = 1,
                        .a_col = KEYS,
                        .b = x,
                        .b_row = D,
                        .b_col = 1,
                        .c = k->tile,
                        .c_row = D,
                        .batch = 1,
                        .round_bf16 = k->w->c->round_bf16,
                        .alpha = scale };
    tn_gemm_run(NULL, &g, k->gemm);
    for (int64_t s = 0; s < n; s++)
        store_row((float *)to->data + at + s * to->stride[1], to->stride[3], k->tile + s * D, D, 1, true);
}

/* --- masks ------------------------------------------------------------------------------------------------------- */

/* Hides what row r does not see of the tile at s0; the columns past its keys too. True when something was hidden. */
static bool hide(const block *k, int64_t r, int64_t s0, float *s)
{
    const tn_attention_mask *m = &k->w->mask;
    const int64_t t = k->t0 + r / k->w->group;
    int64_t first, end;
    tn_attention_range(m, k->b, t, &first, &end);
    first = first < s0 ? 0 : first - s0 < KEYS ? first - s0 : KEYS;
    end = end < s0 ? 0 : end - s0 < KEYS ? end - s0 : KEYS;
    for (int64_t j = 0; j < first; j++) s[j] = -INFINITY;
    for (int64_t j = end; j < KEYS; j++) s[j] = -INFINITY;
    if (m->document)
        for (int64_t j = first; j < end; j++)
            if (!tn_attention_same(m, k->b, t, s0 + j)) s[j] = -INFINITY;
    return first > 0 || end < KEYS || m->document;
}

static bool score(const block *k, keys y, int64_t s0)
{
    bool hidden = false;
    times_keys(k, k->q, y, k->w->scale, k->s);
    for (int64_t r = 0; r < k->rows; r++) hidden |= hide(k, r, s0, k->s + r * KEYS);
    return hidden;
}

/* --- forward ----------------------------------------------------------------------------------------------------- */

static float row_max(const float *s, float m)
{
    float lane[LANES];
    for (int l = 0; l < LANES; l++) lane[l] = m;
    for (int j = 0; j < KEYS; j += LANES)
        for (int l = 0; l < LANES; l++) lane[l] = s[j + l] > lane[l] ? s[j + l] : lane[l];
    for (int l = 0; l < LANES; l++) m = lane[l] > m ? lane[l] : m;
    return m;
}

static float row_sum(const float *s)
{
    float lane[LANES] = { 0 };
    for (int j = 0; j < KEYS; j += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += s[j + l];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* s becomes exp(s - base), for all KEYS columns: no remainder loop, so no column is computed differently. */
static void row_exp(float *restrict s, float base)
{
    base = base == -INFINITY ? 0 : base; /* nothing seen so far: all are exp(-inf) = 0 */
    for (int j = 0; j < KEYS; j++) s[j] = tn_v_exp(s[j] - base);
}

/* Scores become weights relative to the new maximum; what was summed before is brought to it. */
static void soften(const block *k)
{
    const int64_t D = k->w->D;
    for (int64_t r = 0; r < k->rows; r++) {
        float *s = k->s + r * KEYS, *o = k->o + r * D;
        const float m = row_max(s, k->max[r]), keep = k->max[r] == m           ? 1
                                                      : k->max[r] == -INFINITY ? 0
                                                                               : expf(k->max[r] - m);
        row_exp(s, m);
        k->sum[r] = k->sum[r] * keep + row_sum(s);
        k->max[r] = m;
        if (keep != 1)
            for (int64_t d = 0; d < D; d++) o[d] *= keep;
    }
}

static float key_number(keys y, int64_t s, int64_t d)
{
    const int64_t at = s * y.row + d * y.col;
    if (y.type == TN_F32) return ((const float *)y.data)[at];
    const uint16_t h = ((const uint16_t *)y.data)[at];
    return y.type == TN_BF16 ? tn_bf16_to_f32(h) : tn_f16_to_f32(h);
}

static bool all_finite(const block *k, keys y)
{
    const uint32_t exponent = 0x7f800000u; /* all ones in what is not finite */
    uint32_t bad = 0;
    for (int64_t s = 0; s < y.n; s++) {
        const float *v = (const float *)y.data + s * y.row;
        if (y.type == TN_F32 && y.col == 1)
            for (int64_t d = 0; d < k->w->D; d++) bad |= (tn_v_bits(v[d]) & exponent) == exponent;
        else
            for (int64_t d = 0; d < k->w->D; d++) bad |= (tn_v_bits(key_number(y, s, d)) & exponent) == exponent;
    }
    return !bad;
}

/* The product of add_keys without the terms of weight 0, which a NaN or infinity would not leave 0: in the same order
 * and with the same bits, so that a broken token cannot reach those that do not see it. */
static void add_seen(const block *k, keys y)
{
    for (int64_t r = 0; r < k->rows; r++)
        for (int64_t d = 0; d < k->w->D; d++) {
            float sum = 0;
            for (int64_t s = 0; s < y.n; s++) {
                const float p = k->s[r * KEYS + s];
                if (p != 0) sum = fmaf(p, key_number(y, s, d), sum);
            }
            k->o[r * k->w->D + d] += sum;
        }
}

static void finish(const block *k)
{
    const tn_arg *y = &k->w->c->out[0], *lse = &k->w->c->out[1];
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t t = k->t0 + r / k->w->group, h = k->kv * k->w->group + r % k->w->group;
        store_row((float *)y->data + row_at(k, y, r), y->stride[3], k->o + r * k->w->D, k->w->D,
                  k->sum[r] == 0 ? 0 : 1 / k->sum[r], false);
        if (lse->data)
            ((float *)lse->data)[k->b * lse->stride[0] + h * lse->stride[1] + t * lse->stride[2]] =
                k->sum[r] == 0 ? -INFINITY : k->max[r] + logf(k->sum[r]);
    }
}

static void forward_tile(void *arg, void *scratch, int64_t i)
{
    const job *w = arg;
    block k;
    make_block(&k, w, scratch);
    move_block(&k, i / (w->KV * w->blocks), i / w->blocks % w->KV, i % w->blocks);
    load_rows(&k, &w->c->in[TN_ATT_Q], k.q);
    memset(k.o, 0, sizeof(float) * (size_t)(k.rows * w->D));
    for (int64_t r = 0; r < k.rows; r++) k.max[r] = -INFINITY, k.sum[r] = 0;
    for (int64_t s0 = k.first; s0 < k.end; s0 += KEYS) {
        const keys v = keys_at(&k, &w->c->in[TN_ATT_V], s0);
        const bool hidden = score(&k, keys_at(&k, &w->c->in[TN_ATT_K], s0), s0);
        soften(&k);
        if (hidden && !all_finite(&k, v)) add_seen(&k, v);
        else add_keys(&k, k.s, v, 1, k.o);
    }
    finish(&k);
}

tn_status tn_attention_forward_cpu(const tn_call *c)
{
    job w = make_job(c, &c->in[TN_ATT_Q]);
    TN_RETURN_IF(tn_attention_mask_make(c, &w.mask));
    tn_slots_run(c->pool, w.alive * w.KV * w.blocks, forward_tile, &w, c->work, w.z.slot);
    return TN_OK;
}

/* --- backward ---------------------------------------------------------------------------------------------------- */

static void clear_keys(const job *w, int64_t b, int64_t kv, int input)
{
    const tn_arg *d = &w->c->din[input];
    if (!d->data || (w->c->accumulate >> input & 1) || (d->live && b >= *d->live)) return;
    for (int64_t s = 0; s < w->mask.S; s++)
        for (int64_t i = 0; i < w->D; i++)
            ((float *)d->data)[b * d->stride[0] + s * d->stride[1] + kv * d->stride[2] + i * d->stride[3]] = 0;
}

/* The rows of q, of the output's gradient, and of what the forward pass left. */
static void load_block(const block *k, bool scores)
{
    const tn_call *c = k->w->c;
    const tn_arg *lse = &c->out[1];
    load_rows(k, &c->in[TN_ATT_Q], k->q);
    load_rows(k, &c->dout[0], k->o);
    if (scores) load_rows(k, &c->out[0], k->dq); /* for a moment: the output */
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t t = k->t0 + r / k->w->group, h = k->kv * k->w->group + r % k->w->group;
        double delta = 0;
        for (int64_t d = 0; scores && d < k->w->D; d++)
            delta += (double)k->o[r * k->w->D + d] * (double)k->dq[r * k->w->D + d];
        k->sum[r] = (float)delta;
        k->max[r] = ((const float *)lse->data)[k->b * lse->stride[0] + h * lse->stride[1] + t * lse->stride[2]];
    }
    memset(k->dq, 0, sizeof(float) * (size_t)(k->rows * k->w->D));
}

/* dp becomes the gradient of the scores: p (dp - delta). */
static void score_gradient(const block *k)
{
    for (int64_t r = 0; r < k->rows; r++) {
        const float *restrict p = k->s + r * KEYS, delta = k->sum[r];
        float *restrict dp = k->dp + r * KEYS;
        for (int j = 0; j < KEYS; j++) dp[j] = p[j] == 0 ? 0 : p[j] * (dp[j] - delta);
    }
}

static void backward_keys(const block *k, int64_t s0, bool scores)
{
    const tn_call *c = k->w->c;
    const keys y = keys_at(k, &c->in[TN_ATT_K], s0);
    score(k, y, s0);
    for (int64_t r = 0; r < k->rows; r++) row_exp(k->s + r * KEYS, k->max[r]);
    if (c->din[TN_ATT_V].data) add_transposed(k, k->s, k->o, s0, y.n, 1, &c->din[TN_ATT_V]);
    if (!scores) return;
    times_keys(k, k->o, keys_at(k, &c->in[TN_ATT_V], s0), 1, k->dp);
    score_gradient(k);
    if (c->din[TN_ATT_Q].data) add_keys(k, k->dp, y, k->w->scale, k->dq);
    if (c->din[TN_ATT_K].data) add_transposed(k, k->dp, k->q, s0, y.n, k->w->scale, &c->din[TN_ATT_K]);
}

static void backward_tile(void *arg, void *scratch, int64_t i)
{
    const job *w = arg;
    const int64_t b = i / w->KV, kv = i % w->KV;
    const tn_arg *dq = &w->c->din[TN_ATT_Q];
    const bool scores = dq->data || w->c->din[TN_ATT_K].data;
    block k;
    clear_keys(w, b, kv, TN_ATT_K);
    clear_keys(w, b, kv, TN_ATT_V);
    if (b >= w->alive) return;
    make_block(&k, w, scratch);
    for (int64_t n = 0; n < w->blocks; n++) {
        move_block(&k, b, kv, n);
        load_block(&k, scores);
        for (int64_t s0 = k.first; s0 < k.end; s0 += KEYS) backward_keys(&k, s0, scores);
        for (int64_t r = 0; dq->data && r < k.rows; r++)
            store_row((float *)dq->data + row_at(&k, dq, r), dq->stride[3], k.dq + r * w->D, w->D, 1,
                      w->c->accumulate >> TN_ATT_Q & 1);
    }
}

tn_status tn_attention_backward_cpu(const tn_call *c)
{
    job w = make_job(c, &c->dout[0]);
    TN_RETURN_IF(tn_attention_mask_make(c, &w.mask));
    tn_slots_run(c->pool, w.B * w.KV, backward_tile, &w, c->work, w.z.slot);
    return TN_OK;
}
