/* Blocks of attention on the CPU: workspace, rows in and keys in, masks and scores of one strip. What is done with the
 * scores is in attention_cpu.c (forward) and attention_backward.c. */
#include "base/status.h"
#include "ops/attention/attention_cpu.h"
#include "ops/rows.h"
#include "ops/slots.h"

#include <string.h>

/* --- workspace --------------------------------------------------------------------------------------------------- */

static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* The best fp32 micro-kernel whose panels divide the tiles of keys and the blocks of rows. */
static const tn_gemm_ukernel *fitting_kernel(bool portable)
{
    const tn_gemm_ukernel *best = &tn__gemm_portable, *u;
    for (int i = 0; !portable && (u = tn__gemm_kernel_at(i)); i++)
        if (u->type == TN_F32 && TN_ATT_KEYS % u->mr == 0 && TN_ATT_ROWS % u->nr == 0) best = u;
    return best;
}

static void set_sizes(tn_attention_job *w, tn_dims q, tn_dims k, bool portable)
{
    w->u = fitting_kernel(portable);
    w->B = q.dim[0], w->T = q.dim[1], w->H = q.dim[2], w->D = q.dim[3];
    w->KV = k.dim[2];
    w->group = w->H / w->KV;
    w->tokens = w->group < TN_ATT_ROWS ? TN_ATT_ROWS / w->group : 1;
    if (w->tokens > w->T && w->T > 0) w->tokens = w->T;
    w->blocks = tn_tiles(w->T, w->tokens);
    w->rows = round_up(w->tokens * w->group, w->u->nr);
    w->deep = round_up(w->D, w->u->mr);
    w->wide = round_up(w->D, w->u->nr);
}

static float *take(uintptr_t *at, int64_t n)
{
    float *p = (float *)*at;
    *at += tn_align64(sizeof(float) * (size_t)n);
    return p;
}

/* Returns the first byte behind. Where there are few rows keys lie in panels of nr, and o is (rows,wide). */
static uintptr_t lay_out(tn_attention_block *k, const tn_attention_job *w, uintptr_t at, bool backward)
{
    const int64_t R = w->rows, D = w->D, nr = w->u->nr, most = w->deep > w->wide ? w->deep : w->wide;
    *k = (tn_attention_block){ .w = w };
    k->x = take(&at, R * D);
    k->q = take(&at, R * D);
    k->o = take(&at, R * most);
    k->s = take(&at, TN_ATT_KEYS * nr);
    k->max = take(&at, R);
    k->sum = take(&at, R);
    k->k = take(&at, round_up(TN_ATT_KEYS, nr) * D);
    k->v = take(&at, TN_ATT_KEYS * most);
    if (!backward) return at;
    k->g = take(&at, R * D);
    k->q_rows = take(&at, R * w->wide);
    k->g_rows = take(&at, R * w->wide);
    k->dp = take(&at, TN_ATT_KEYS * nr);
    k->k_cols = take(&at, TN_ATT_KEYS * w->deep);
    k->p_rows = take(&at, R * TN_ATT_KEYS);
    k->s_rows = take(&at, R * TN_ATT_KEYS);
    k->tile = take(&at, TN_ATT_KEYS * w->wide);
    return at;
}

static size_t slot_bytes(const tn_attention_job *w, bool backward)
{
    tn_attention_block k;
    return lay_out(&k, w, 0, backward);
}

size_t tn_attention_work_cpu(const tn_sig *s, bool backward)
{
    tn_attention_job w;
    set_sizes(&w, s->in[TN_ATT_Q].dims, s->in[TN_ATT_K].dims, s->portable);
    return slot_bytes(&w, backward) * (size_t)s->threads;
}

tn_status tn_attention_job_make(const tn_call *c, const tn_arg *rowwise, bool backward, tn_attention_job *w)
{
    *w = (tn_attention_job){ .c = c, .scale = ((const tn_attention_attr *)c->attr)->scale };
    set_sizes(w, c->in[TN_ATT_Q].dims, c->in[TN_ATT_K].dims, c->portable);
    w->slot = slot_bytes(w, backward);
    w->alive = rowwise->live && *rowwise->live < w->B ? *rowwise->live : w->B;
    if (w->alive < 0) w->alive = 0;
    return tn_attention_mask_make(c, &w->mask);
}

void tn_attention_block_make(tn_attention_block *k, const tn_attention_job *w, void *scratch, bool backward)
{
    lay_out(k, w, (uintptr_t)scratch, backward);
}

void tn_attention_block_move(tn_attention_block *k, int64_t b, int64_t kv, int64_t i)
{
    const tn_attention_job *w = k->w;
    int64_t unused;
    k->b = b;
    k->kv = kv;
    k->t0 = i * w->tokens;
    k->tokens = w->T - k->t0 < w->tokens ? w->T - k->t0 : w->tokens;
    k->rows = k->tokens * w->group;
    tn_attention_range(&w->mask, b, k->t0, &k->first, &unused);
    tn_attention_range(&w->mask, b, k->t0 + k->tokens - 1, &unused, &k->end);
    k->first = k->first / TN_ATT_KEYS * TN_ATT_KEYS;
}

/* --- rows and keys ----------------------------------------------------------------------------------------------- */

/* Offset of row r in a tensor (B,T,H,D). */
int64_t tn_attention_row_at(const tn_attention_block *k, const tn_arg *x, int64_t r)
{
    const int64_t t = k->t0 + r / k->w->group, h = k->kv * k->w->group + r % k->w->group;
    return k->b * x->stride[0] + t * x->stride[1] + h * x->stride[2];
}

void tn_attention_rows_load(const tn_attention_block *k, const tn_arg *x, float *to)
{
    enum { AHEAD = 6 }; /* rows */
    const int64_t D = k->w->D, step = x->stride[3];
    for (int64_t r = 0; r < k->rows; r++, to += D) {
        const int64_t at = tn_attention_row_at(k, x, r);
        const float *from = (const float *)x->data + at;
        if (x->dtype == TN_F32 && step == 1) {
            if (r + AHEAD < k->rows)
                tn_attention_row_fetch((const float *)x->data + tn_attention_row_at(k, x, r + AHEAD), D);
            memcpy(to, from, sizeof(float) * (size_t)D);
        } else if (x->dtype == TN_F32)
            for (int64_t d = 0; d < D; d++) to[d] = from[d * step];
        else
            for (int64_t d = 0; d < D; d++)
                tn_convert(&to[d], TN_F32, (const uint16_t *)x->data + at + d * step, x->dtype, 1);
    }
}

tn_gemm_source tn_attention_keys_at(const tn_attention_block *k, const tn_arg *x, int64_t s0, bool across)
{
    const int64_t at = k->b * x->stride[0] + s0 * x->stride[1] + k->kv * x->stride[2];
    return (tn_gemm_source){ .data = (const char *)x->data + at * (int64_t)tn_dtype_bytes(x->dtype),
                             .type = x->dtype,
                             .outer = across ? x->stride[3] : x->stride[1],
                             .inner = across ? x->stride[1] : x->stride[3],
                             .round = k->w->c->round,
                             0 };
}

/* --- scores of a strip ------------------------------------------------------------------------------------------- */

static int64_t clamp(int64_t x, int64_t most) { return x < 0 ? 0 : x < most ? x : most; }

static int64_t strip_rows(const tn_attention_block *k, int64_t r0)
{
    return k->rows - r0 < k->w->u->nr ? k->rows - r0 : k->w->u->nr;
}

tn_attention_span tn_attention_strip_span(const tn_attention_block *k, int64_t r0, int64_t s0)
{
    const tn_attention_job *w = k->w;
    const int64_t ta = k->t0 + r0 / w->group, tb = k->t0 + (r0 + strip_rows(k, r0) - 1) / w->group, mr = w->u->mr;
    int64_t first[2], end[2]; /* of the first and the last row: both grow, the others lie between */
    tn_attention_range(&w->mask, k->b, ta, &first[0], &end[0]);
    tn_attention_range(&w->mask, k->b, tb, &first[1], &end[1]);
    tn_attention_span a = { .lo = clamp(first[0] - s0, TN_ATT_KEYS) / mr * mr,
                            .hi = round_up(clamp(end[1] - s0, TN_ATT_KEYS), mr) };
    if (a.hi < a.lo) a.hi = a.lo;
    a.whole = !w->mask.document && first[1] <= s0 + a.lo && end[0] >= s0 + a.hi;
    return a;
}

/* Scores of the keys that row j of the strip does not see become `hidden`. */
static void hide(const tn_attention_block *k, int64_t t, int64_t j, int64_t s0, tn_attention_span a, float hidden)
{
    const tn_attention_mask *m = &k->w->mask;
    const int64_t nr = k->w->u->nr;
    int64_t first, end;
    tn_attention_range(m, k->b, t, &first, &end);
    first = first - s0 < a.lo ? a.lo : clamp(first - s0, a.hi);
    end = end - s0 < first ? first : clamp(end - s0, a.hi);
    for (int64_t s = a.lo; s < first; s++) k->s[s * nr + j] = hidden;
    for (int64_t s = end; s < a.hi; s++) k->s[s * nr + j] = hidden;
    for (int64_t s = first; m->document && s < end; s++)
        if (!tn_attention_same(m, k->b, t, s0 + s)) k->s[s * nr + j] = hidden;
}

void tn_attention_strip_scores(const tn_attention_block *k, int64_t r0, int64_t s0, tn_attention_span a)
{
    const tn_attention_job *w = k->w;
    const int64_t mr = w->u->mr, nr = w->u->nr, rows = strip_rows(k, r0);
    memset(k->s + a.lo * nr, 0, sizeof(float) * (size_t)((a.hi - a.lo) * nr));
    for (int64_t s = a.lo; s < a.hi; s += mr)
        tn_attention_multiply(w->u, w->D, k->k + s * w->D, k->q + r0 * w->D, k->s + s * nr, nr);
    for (int64_t j = 0; !a.whole && j < rows; j++)
        hide(k, k->t0 + (r0 + j) / w->group, j, s0, a, copysignf(INFINITY, -w->scale));
}
