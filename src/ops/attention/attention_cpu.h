/* Between the two halves of attention on the CPU: what a block of rows is, and how it meets a tile of keys.
 *
 * A block is a few neighbouring tokens with all query heads that share one key head: row = (token, head). Rows stand in
 * strips of nr, the width of the GEMM's micro-kernel, and scores lie as (key, row of the strip): so a strip's scores
 * come out of one product in the very layout in which the next one reads them, and the softmax runs down the columns.
 * Tiles of keys start at multiples of TN_ATT_KEYS, so a row's arithmetic does not depend on the block it is in. Pieces
 * of mr keys that a strip does not see are skipped in every product; other hidden keys add exact zeros. */
#ifndef TN_OPS_ATTENTION_CPU_H
#define TN_OPS_ATTENTION_CPU_H

#include "backend/cpu/gemm_kernel.h"
#include "ops/attention/attention_mask.h"
#include "backend/cpu/vmath.h"

enum { TN_ATT_ROWS = 192, TN_ATT_KEYS = 64 }; /* multiples of the micro-kernel's nr, and of its mr */

typedef struct tn_attention_job {
    const tn_call *c;
    const tn_gemm_ukernel *u;
    tn_attention_mask mask;
    float scale;
    int64_t B, T, H, KV, D, group, tokens, blocks; /* tokens of a block, blocks of a sequence */
    int64_t alive;                                 /* sequences */
    int64_t rows, deep, wide; /* most rows of a block, in whole strips; D in whole panels of mr and of nr */
    size_t slot;              /* bytes */
} tn_attention_job;

typedef struct tn_attention_block {
    const tn_attention_job *w;
    int64_t b, kv, t0, tokens, rows;
    int64_t first, end; /* keys that some row sees */
    float *x;           /* (rows,D) rows on their way in or out */
    float *q;           /* strips (D,nr) */
    float *o;           /* strips (deep,nr); backward: the gradient of q */
    float *s;           /* (KEYS,nr) scores of the strip at hand */
    float *max, *sum;   /* (rows); backward: log-sum-exp, and the sum of gradient times output */
    float *k, *v;       /* the tile: keys in panels (D,mr), values in panels (KEYS,mr); backward: both like the keys */

    float *g;               /* backward: strips (D,nr) of the output's gradient */
    float *q_rows, *g_rows; /* panels (rows,nr) of D */
    float *dp;              /* (KEYS,nr) */
    float *k_cols;          /* keys in panels (KEYS,mr) of D */
    float *p_rows, *s_rows; /* panels (rows,mr) of keys: weights, gradients of the scores */
    float *tile;            /* (KEYS,wide) */
} tn_attention_block;

/* The keys of a tile that a strip sees: [lo,hi) from the tile's first on, in whole panels of mr. */
typedef struct tn_attention_span {
    int64_t lo, hi;
    bool whole; /* every row sees every one of them */
} tn_attention_span;

tn_status tn_attention_job_make(const tn_call *c, const tn_arg *rowwise, bool backward, tn_attention_job *w);
void tn_attention_block_make(tn_attention_block *k, const tn_attention_job *w, void *scratch, bool backward);
void tn_attention_block_move(tn_attention_block *k, int64_t b, int64_t kv, int64_t i);

int64_t tn_attention_row_at(const tn_attention_block *k, const tn_arg *x, int64_t r);
void tn_attention_rows_load(const tn_attention_block *k, const tn_arg *x, float *to);
/* n keys (or values) from s0 on, i along them; `across`: i along D. */
tn_gemm_source tn_attention_keys_at(const tn_attention_block *k, const tn_arg *x, int64_t s0, bool across);

tn_attention_span tn_attention_strip_span(const tn_attention_block *k, int64_t r0, int64_t s0);
/* The scores q k^T of a strip over a span, with what its rows do not see at -infinity once scaled. */
void tn_attention_strip_scores(const tn_attention_block *k, int64_t r0, int64_t s0, tn_attention_span a);

static inline int64_t tn_attention_tile_keys(const tn_attention_block *k, int64_t s0)
{
    return k->end - s0 < TN_ATT_KEYS ? k->end - s0 : TN_ATT_KEYS;
}

/* acc (mr,nr) += a (k,mr)^T b (k,nr), rows of acc `row` apart, in the GEMM's order. */
static inline void tn_attention_multiply(const tn_gemm_ukernel *u, int64_t k, const float *a, const float *b,
                                         float *acc, int64_t row)
{
    for (int64_t p = 0; p < k; p += TN_GEMM_KC)
        u->run[u->mr](k - p < TN_GEMM_KC ? k - p : TN_GEMM_KC, a + p * u->mr, b + p * u->nr, u->nr, acc, row);
}

/* to (+)= factor * from, D numbers `step` apart. */
static inline void tn_attention_row_store(float *restrict to, int64_t step, const float *restrict from, int64_t D,
                                          float factor, bool add)
{
    if (step == 1 && add)
        for (int64_t d = 0; d < D; d++) to[d] += factor * from[d];
    else if (step == 1)
        for (int64_t d = 0; d < D; d++) to[d] = factor * from[d];
    else
        for (int64_t d = 0; d < D; d++) to[d * step] = add ? to[d * step] + factor * from[d] : factor * from[d];
}

/* Asks for a row that is needed soon: rows a whole token apart defeat the hardware's prefetcher. */
static inline void tn_attention_row_fetch(const float *row, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) __builtin_prefetch(row + i);
}

/* A strip (D,nr) as rows (nr,D). */
static inline void tn_attention_strip_turn(const tn_attention_job *w, const float *strip, float *to)
{
    const tn_gemm_source src = { strip, TN_F32, w->u->nr, 1, TN_F32, 0 };
    tn__gemm_pack(to, (int)w->D, src, w->D, w->u->nr);
}

/* Operands of a product, rounded as packing would round them. */
static inline void tn_attention_round(const tn_attention_job *w, float *x, int64_t n)
{
    for (int64_t i = 0; w->c->round == TN_F16 && i < n; i++) x[i] = tn_v_round_f16(x[i]);
    for (int64_t i = 0; w->c->round == TN_BF16 && i < n; i++) x[i] = tn_v_from_bits(tn_v_bf16_bits(x[i]));
}

#endif
