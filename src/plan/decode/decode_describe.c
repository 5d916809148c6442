/* Translates calls into steps, one function per op. A vector is contiguous in memory, whatever its shape. */
#include "plan/decode/decode.h"

#include "ops/argmax/argmax.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_mask.h"
#include "ops/binary/binary.h"
#include "ops/cache_write/cache_write.h"
#include "ops/conv_causal/conv_causal.h"
#include "ops/copy/copy.h"
#include "ops/embed/embed.h"
#include "ops/gate/gate.h"
#include "ops/linear/linear.h"
#include "ops/norm/norm.h"
#include "ops/norm/norm_cpu.h"
#include "ops/outer/outer.h"
#include "ops/readout/readout.h"
#include "ops/readout/readout_args.h"
#include "ops/rope/rope.h"
#include "ops/scan_gated/scan_gated.h"
#include "ops/unary/unary.h"

#include <math.h>

typedef struct description {
    const tn_call *c;
    tn_decode_step *step;
    tn_decode_sizes *size;
} description;

static int64_t count_of(const tn_arg *a) { return tn_dims_count(a->dims); }

static bool is_vector(const tn_arg *a)
{
    int64_t step = 1;
    for (int i = a->dims.rank - 1; i >= 0; i--) {
        if (a->dims.dim[i] == 1) continue;
        if (a->stride[i] != step) return false;
        step *= a->dims.dim[i];
    }
    return !a->live;
}

/* Of the types that the kernel computes with. */
static bool is_float(const tn_arg *a) { return a->dtype == TN_F32 || a->dtype == TN_BF16; }

/* n numbers in a row, of a type that the kernel knows. */
static bool is_row(const tn_arg *a, int64_t n)
{
    return is_vector(a) && count_of(a) == n && (is_float(a) || a->dtype == TN_I32);
}

/* Input i of the call as input k of the step; false where it is there and is not n numbers in a row. */
static bool take(const description *d, int i, int k, int64_t n)
{
    const tn_arg *a = &d->c->in[i];
    if (i >= d->c->n_in || !a->data) return true;
    if (!is_row(a, n)) return false;
    d->step->in[k] = a->data;
    d->step->in_type[k] = (uint8_t)a->dtype;
    d->size->in[k] = n;
    return true;
}

/* ... of f32: a state. */
static bool take_state(const description *d, int i, int k, int64_t n)
{
    return take(d, i, k, n) && (!d->step->in[k] || d->step->in_type[k] == TN_F32);
}

static bool give(const description *d, int i, int k, int64_t n, bool keeps)
{
    const tn_arg *a = &d->c->out[i];
    if (i >= d->c->n_out || !a->data) return true;
    if (!is_row(a, n)) return false;
    d->step->out[k] = a->data;
    d->step->out_type[k] = (uint8_t)a->dtype;
    d->size->out[k] = n;
    d->size->keeps[k] = keeps;
    return true;
}

static bool is_given(const tn_call *c, int i) { return i < c->n_in && c->in[i].data; }

/* Blocks may share it; of the others each works through all numbers. */
static bool may_be_long(tn_decode_op op)
{
    static const bool may[TN_DECODE_OPS] = {
        [TN_DECODE_LINEAR] = true,     [TN_DECODE_OUTER] = true, [TN_DECODE_COPY] = true,
        [TN_DECODE_BEST_PARTS] = true, [TN_DECODE_SEEN] = true,
    };
    return may[op];
}

/* False where there are none, or more than every block should work through. */
static bool set(const description *d, tn_decode_op op, int64_t n, int64_t k, int64_t m)
{
    d->step->op = (uint8_t)op;
    d->step->n = (int32_t)n;
    d->step->k = (int32_t)k;
    d->step->m = (int32_t)m;
    const bool sums = op == TN_DECODE_NORM || op == TN_DECODE_READOUT;
    const int64_t most = may_be_long(op) ? INT32_MAX : sums ? TN_DECODE_NORMED : TN_DECODE_LONGEST;
    return n > 0 && n <= most && k >= 0 && k <= INT32_MAX && m >= 0 && m <= INT32_MAX;
}

static int64_t last_of(const tn_arg *a) { return a->dims.rank ? a->dims.dim[a->dims.rank - 1] : 1; }

static int embed_steps(const description *d)
{
    const tn_arg *table = &d->c->in[1];
    const int64_t V = table->dims.dim[0], n = table->dims.dim[1];
    if (count_of(&d->c->in[0]) != 1 || V < 1 || !set(d, TN_DECODE_EMBED, n, V, 0)) return 0;
    return take(d, 0, 0, 1) && take(d, 1, 1, V * n) && give(d, 0, 0, n, true);
}

/* The last output, numbers for a backward pass, is not made: a token's plan has none, and nothing else reads them. */
static int norm_steps(const description *d)
{
    const tn_norm_attr *a = d->c->attr;
    const tn_arg *x = &d->c->in[TN_NORM_X];
    const int64_t n = last_of(x);
    const bool sums = is_given(d->c, TN_NORM_RESIDUAL);
    if (count_of(x) != n || is_given(d->c, TN_NORM_COLUMNS) || !d->c->out[TN_NORM_Y].data ||
        !set(d, TN_DECODE_NORM, n, 0, 0))
        return 0;
    d->step->kind = (uint8_t)a->kind;
    d->step->a = a->eps;
    return take(d, TN_NORM_X, 0, n) && take(d, TN_NORM_RESIDUAL, 1, n) && take(d, TN_NORM_W, 2, n) &&
           take(d, TN_NORM_B, 3, n) && give(d, TN_NORM_Y, 0, n, true) && (!sums || give(d, TN_NORM_SUM, 1, n, true));
}

/* A weight that every block rather reads itself than waits for the others. */
enum { SMALL_ROWS = 8, SMALL_BYTES = 32 << 10, MOST_X = 16384 };

static int linear_steps(const description *d)
{
    const tn_call *c = d->c;
    const tn_arg *w = &c->in[TN_LINEAR_W];
    const int64_t n = w->dims.dim[0], k = w->dims.dim[1], bytes = n * k * (int64_t)tn_dtype_bytes(w->dtype);
    if (count_of(&c->in[TN_LINEAR_X]) != k || is_given(c, TN_LINEAR_SLOPE) || is_given(c, TN_LINEAR_PACKED)) return 0;
    if (c->n_out > 1 && c->out[1].data) return 0;
    if ((w->dtype != TN_F32 && w->dtype != TN_BF16) || k < 8 || k % 8 || k > MOST_X || (uintptr_t)w->data % 16)
        return 0;
    if (!set(d, TN_DECODE_LINEAR, n, k, 0)) return 0;
    const bool small = n <= SMALL_ROWS && bytes <= SMALL_BYTES;
    d->step->kind = (uint8_t)((const tn_linear_attr *)c->attr)->act;
    d->step->flags = small ? 0 : TN_DECODE_SHARED | TN_DECODE_STAGED;
    return take(d, TN_LINEAR_X, 0, k) && take(d, TN_LINEAR_W, 1, n * k) && take(d, TN_LINEAR_BIAS, 2, n) &&
           take(d, TN_LINEAR_RESIDUAL, 3, n) && give(d, 0, 0, n, true);
}

static int conv_steps(const description *d)
{
    const tn_call *c = d->c;
    const int64_t n = last_of(&c->in[TN_CONV_X]), k = c->in[TN_CONV_W].dims.dim[0];
    if (count_of(&c->in[TN_CONV_X]) != n || k > TN_DECODE_TAPS || !set(d, TN_DECODE_CONV, n, k, 0)) return 0;
    d->step->kind = ((const tn_conv_causal_attr *)c->attr)->silu;
    return take(d, TN_CONV_X, 0, n) && take(d, TN_CONV_W, 1, n * k) && take(d, TN_CONV_BIAS, 2, n) &&
           take_state(d, TN_CONV_STATE, 3, n * (k - 1)) && take(d, TN_CONV_RESET, 4, 1) && give(d, 0, 0, n, true) &&
           (k == 1 || give(d, 1, 1, n * (k - 1), false));
}

static int scan_steps(const description *d)
{
    const tn_call *c = d->c;
    const int64_t n = last_of(&c->in[TN_GATED_X]) / 2;
    if (count_of(&c->in[TN_GATED_X]) != 2 * n || 2 * n > TN_DECODE_LONGEST || !set(d, TN_DECODE_SCAN, n, 0, 0))
        return 0;
    return take(d, TN_GATED_X, 0, 2 * n) && take(d, TN_GATED_RI, 1, 2 * n) && take(d, TN_GATED_NU, 2, n) &&
           take(d, TN_GATED_OMEGA, 3, n) && take_state(d, TN_GATED_STATE, 4, 2 * n) && take(d, TN_GATED_RESET, 5, 1) &&
           give(d, 0, 0, 2 * n, true) && give(d, 1, 1, 2 * n, false);
}

static int readout_steps(const description *d)
{
    const tn_call *c = d->c;
    const tn_readout_attr *a = c->attr;
    const int64_t n = last_of(&c->in[TN_READOUT_C]);
    if (count_of(&c->in[TN_READOUT_C]) != n || a->group % 32 || !c->out[0].data ||
        !set(d, TN_DECODE_READOUT, n, a->group, 0))
        return 0;
    d->step->kind = (uint8_t)a->act;
    d->step->a = a->scale;
    d->step->b = a->eps;
    return take(d, TN_READOUT_C, 0, n) && take(d, TN_READOUT_Z, 1, n) && take(d, TN_READOUT_X, 2, n) &&
           take(d, TN_READOUT_SKIP, 3, n) && take(d, TN_READOUT_GAIN, 4, n) && give(d, 0, 0, n, true);
}

static int gate_steps(const description *d)
{
    const int64_t n = count_of(&d->c->out[0]);
    if (!set(d, TN_DECODE_GATE, n, 0, 0)) return 0;
    d->step->kind = (uint8_t)((const tn_gate_attr *)d->c->attr)->kind;
    return take(d, 0, 0, n) && take(d, 1, 1, n) && give(d, 0, 0, n, true);
}

static int unary_steps(const description *d)
{
    const tn_unary_attr *a = d->c->attr;
    const int64_t n = count_of(&d->c->out[0]);
    if (!set(d, TN_DECODE_UNARY, n, 0, 0)) return 0;
    d->step->kind = (uint8_t)a->kind;
    d->step->a = a->a;
    d->step->b = a->b;
    return take(d, 0, 0, n) && give(d, 0, 0, n, true);
}

/* Of the result's axes, in[1] may have the last ones only, the first ones only, or those between. */
static int binary_steps(const description *d)
{
    const tn_arg *y = &d->c->out[0], *b = &d->c->in[1];
    const int64_t n = count_of(y), k = count_of(b), shift = y->dims.rank - b->dims.rank;
    int64_t m = 1, seen = 1;
    int last = b->dims.rank - 1;
    if (count_of(&d->c->in[0]) != n || k < 1) return 0;
    for (; last >= 0 && b->dims.dim[last] == 1; last--) m *= y->dims.dim[last + shift];
    for (; last >= 0 && seen < k; last--) {
        if (b->dims.dim[last] != y->dims.dim[last + shift]) return 0;
        seen *= b->dims.dim[last];
    }
    if (!set(d, TN_DECODE_BINARY, n, k, k == 1 ? n : m)) return 0;
    d->step->kind = (uint8_t)((const tn_binary_attr *)d->c->attr)->kind;
    return take(d, 0, 0, n) && take(d, 1, 1, k) && give(d, 0, 0, n, true);
}

static int outer_steps(const description *d)
{
    const tn_call *c = d->c;
    const tn_outer_attr *a = c->attr;
    const tn_dims q = c->in[TN_OUTER_Q].dims, v = c->in[TN_OUTER_V].dims;
    const int64_t H = q.dim[2], N = q.dim[3], P = v.dim[3];
    if (q.dim[0] * q.dim[1] != 1 || N > 1024 || P > 1024 || !set(d, TN_DECODE_OUTER, H, N, P)) return 0;
    if (c->n_out > TN_OUTER_KEPT && c->out[TN_OUTER_KEPT].data) return 0;
    d->step->kind = a->raw;
    d->step->flags = TN_DECODE_SHARED;
    return take(d, TN_OUTER_Q, 0, H * N) && take(d, TN_OUTER_K, 1, H * N) && take(d, TN_OUTER_V, 2, H * P) &&
           take(d, TN_OUTER_ALPHA, 3, H) && take_state(d, TN_OUTER_STATE, 4, H * N * P) &&
           take(d, TN_OUTER_RESET, 5, 1) && take(d, TN_OUTER_WRITE, 6, H) && give(d, TN_OUTER_O, 0, H * P, false) &&
           give(d, TN_OUTER_FINAL, 1, H * N * P, false);
}

static int copy_steps(const description *d)
{
    const tn_call *c = d->c;
    if (((const tn_copy_attr *)c->attr)->accumulate || c->n_in > TN_DECODE_MOST) return 0;
    for (int i = 0; i < c->n_in; i++) {
        const description one = { c, d->step + i, d->size + i };
        const int64_t n = count_of(&c->in[i]);
        if (!is_float(&c->in[i]) || !set(&one, TN_DECODE_COPY, n, 0, 0) || !take(&one, i, 0, n) ||
            !give(&one, i, 0, n, false))
            return 0;
        one.step->flags = TN_DECODE_SHARED;
    }
    return c->n_in;
}

/* Where the step has room for all digits. Yarn's bounds are whole pairs, but for a second one that makes sure that they differ. */
static bool scale_rope(const tn_rope_attr *a, tn_decode_step *s)
{
    const bool yarn = a->scaling == TN_ROPE_YARN;
    const double second = yarn ? a->amplitude : a->stretch_context;
    if (a->stretch <= 1) return a->amplitude == 1;
    s->kind = 2 * (yarn ? TN_DECODE_YARN : a->scaling == TN_ROPE_LINEAR ? TN_DECODE_LINEARLY : TN_DECODE_LLAMA3);
    s->c = (float)a->stretch;
    s->d = (float)second;
    s->m = yarn ? (int32_t)a->low : 0;
    s->j = yarn ? (int32_t)ceil(a->high) : 0;
    return (double)s->c == a->stretch && (yarn || (a->amplitude == 1 && (double)s->d == second));
}

static int rope_steps(const description *d)
{
    const tn_rope_attr *a = d->c->attr;
    const tn_dims x = d->c->in[0].dims;
    if (x.dim[0] * x.dim[1] != 1 || x.dim[3] > 2 * TN_DECODE_ANGLES || !set(d, TN_DECODE_ROPE, x.dim[2], x.dim[3], 0))
        return 0;
    const int64_t n = x.dim[2] * x.dim[3];
    d->step->a = (float)log2(a->base);
    d->step->b = (float)(log2(a->base) - (double)d->step->a);
    if (!scale_rope(a, d->step)) return 0;
    d->step->kind = (uint8_t)(d->step->kind | a->interleaved);
    return n <= TN_DECODE_SENT && take(d, 0, 0, n) && take(d, 1, 1, 1) && give(d, 0, 0, n, true);
}

/* A cache (1,S,KV,D) whose heads lie one after the other, each with its rows in a row: as a vector. */
static bool as_heads(const tn_arg *a, tn_arg *out)
{
    const int64_t S = a->dims.dim[1], KV = a->dims.dim[2], D = a->dims.dim[3];
    if (a->dims.dim[0] != 1 || (KV > 1 && a->stride[2] != S * D) || (S > 1 && a->stride[1] != D) ||
        (D > 1 && a->stride[3] != 1))
        return false;
    *out = *a;
    out->dims = tn_shape(KV * S * D);
    out->stride[0] = 1;
    return true;
}

/* Of the (1,rows,...) that a cache is, or of the (1,rows,heads,m) that is seen of a (1,heads,rows,m), how many numbers of a row lie beside
 * each other; 0: neither. */
static int64_t beside(const tn_arg *cache)
{
    const tn_dims c = cache->dims;
    const int64_t rows = c.dim[1];
    if (c.dim[0] != 1 || rows < 1) return 0;
    if (is_vector(cache)) return count_of(cache) / rows;
    if (cache->live || c.rank != 4 || cache->stride[1] != c.dim[3] || cache->stride[2] != rows * c.dim[3]) return 0;
    return c.dim[3] == 1 || cache->stride[3] == 1 ? c.dim[3] : 0;
}

static int put_steps(const description *d)
{
    const tn_arg *cache = &d->c->out[0], *x = &d->c->in[1];
    const int64_t n = count_of(x), rows = cache->dims.dim[1], m = beside(cache);
    if (!m || x->dims.dim[1] != 1 || count_of(cache) != n * rows || !is_float(cache) ||
        !set(d, TN_DECODE_PUT, n, rows, m))
        return 0;
    d->step->out[0] = cache->data;
    d->step->out_type[0] = (uint8_t)cache->dtype;
    d->size->out[0] = n * rows;
    return take(d, 1, 0, n) && take(d, 2, 1, 1);
}

enum { MOST_WIDE = 256, MOST_WINDOW = 1 << 24 /* a float has it exactly */ };

/* Two steps: parts of the keys, then all of them together. The second waits for the first. */
static int attention_steps(const description *d)
{
    const tn_call *c = d->c;
    const tn_attention_attr *a = c->attr;
    const tn_dims q = c->in[TN_ATT_Q].dims, k = c->in[TN_ATT_K].dims;
    const int64_t H = q.dim[2], D = q.dim[3], S = k.dim[1], KV = k.dim[2];
    tn_arg in[4] = { c->in[TN_ATT_Q], { 0 }, { 0 }, { 0 } };
    if (q.dim[0] * q.dim[1] != 1 || is_given(c, TN_ATT_LENGTHS) || is_given(c, TN_ATT_DOCUMENT) ||
        (c->n_out > 1 && c->out[1].data))
        return 0;
    if (D > MOST_WIDE || D < 8 || (D & (D - 1)) || a->window >= MOST_WINDOW ||
        c->in[TN_ATT_K].dtype != c->in[TN_ATT_V].dtype)
        return 0;
    if (!as_heads(&c->in[TN_ATT_K], &in[1]) || !as_heads(&c->in[TN_ATT_V], &in[2])) return 0;
    if ((uintptr_t)in[1].data % 16 || (uintptr_t)in[2].data % 16) return 0;
    if (is_given(c, TN_ATT_KV_LENGTH)) in[3] = c->in[TN_ATT_KV_LENGTH];
    const tn_call parts = { .n_in = 4, .in = in };
    const description e = { &parts, d->step, d->size }, all = { c, d->step + 1, d->size + 1 };
    if (H > TN_DECODE_HEADS || H * D > TN_DECODE_LONGEST || !set(&e, TN_DECODE_SEEN, H, S, D) ||
        !set(&all, TN_DECODE_SEEN_ALL, H, S, D))
        return 0;
    e.step->flags = TN_DECODE_SHARED;
    e.step->j = (int32_t)KV;
    e.step->a = a->scale;
    e.step->b = (float)a->window;
    all.step->flags = TN_DECODE_BARRIER;
    return take(&e, 0, 0, H * D) && take(&e, 1, 1, KV * S * D) && take(&e, 2, 2, KV * S * D) && take(&e, 3, 3, 1) &&
                   give(&all, 0, 0, H * D, true)
               ? 2
               : 0;
}

/* Two steps: of each block's part, then of all. The second waits for the first. */
static int argmax_steps(const description *d)
{
    const int64_t n = count_of(&d->c->in[0]);
    const description all = { d->c, d->step + 1, d->size + 1 };
    if (last_of(&d->c->in[0]) != n || !set(d, TN_DECODE_BEST_PARTS, n, 0, 0) || !set(&all, TN_DECODE_BEST, 1, 0, 0))
        return 0;
    d->step->flags = TN_DECODE_SHARED;
    all.step->flags = TN_DECODE_BARRIER;
    return take(d, 0, 0, n) && give(&all, 0, 0, 1, false) ? 2 : 0;
}

static const struct {
    const tn_op *op;
    int (*steps)(const description *d);
} table[] = {
    { &tn_op_embed, embed_steps },      { &tn_op_norm, norm_steps },       { &tn_op_linear, linear_steps },
    { &tn_op_conv_causal, conv_steps }, { &tn_op_scan_gated, scan_steps }, { &tn_op_readout, readout_steps },
    { &tn_op_gate, gate_steps },        { &tn_op_unary, unary_steps },     { &tn_op_binary, binary_steps },
    { &tn_op_outer, outer_steps },      { &tn_op_copy, copy_steps },       { &tn_op_rope, rope_steps },
    { &tn_op_cache_write, put_steps },  { &tn_op_argmax, argmax_steps },   { &tn_op_attention, attention_steps },
};

int tn_decode_describe(const tn_op *op, const tn_call *c, tn_decode_step *step, tn_decode_sizes *size)
{
    for (int i = 0; i < TN_DECODE_MOST; i++) {
        step[i] = (tn_decode_step){ 0 };
        size[i] = (tn_decode_sizes){ 0 };
    }
    if (c->dout) return 0; /* of a backward pass */
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].op == op) return table[i].steps(&(description){ c, step, size });
    return 0;
}
