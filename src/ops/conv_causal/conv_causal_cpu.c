/* conv_causal on the CPU. Forward and backward are the same thing: for one row of the result, a list of taps (a row of
 * weights and a row of numbers each), multiplied and added along the channels. Which rows a token sees, and which
 * tokens see a row, is decided in one place each (see_past, seen_by); what is not seen is never read. Away from the ends
 * and from documents' starts all taps are there, and FOUR tokens are done at once: each row is loaded once for them.
 * Weight gradients are f32 sums over a few tokens, made while those are in the nearest cache, then double sums per tile,
 * then over tiles in order. Both ways add in the same order, so the bits are the same. */
#include "backend/cpu/level.h"
#include "backend/cpu/vec.h"
#include "ops/conv_causal/conv_causal.h"
#include "ops/rows.h"

tn_kernel tn_conv_causal_forward_cpu, tn_conv_causal_backward_cpu;

enum {
    MOST = TN_CONV_MAX_WIDTH,
    STRIP = 64,      /* channels whose sums stay in the L1 cache */
    FEW_TOKENS = 16, /* tokens summed in f32 */
    FOUR = 4,        /* tokens done at once */
    WIDTH = 4        /* the usual number of taps, for which loops are unrolled */
};

typedef struct conv {
    int64_t B, T, C, W, span; /* span: tokens of a tile of outputs */
    int64_t parts;            /* tiles along T */
    const float *x;           /* (B,T,C), rows x_b and tokens x_t apart */
    int64_t x_b, x_t, dx_b, dx_t;
    const float *w;           /* (W,C) */
    const float *bias;        /* (C) or NULL */
    const float *state;       /* (B,W-1,C) or NULL */
    const int32_t *reset;     /* (B,T) or NULL */
    float *y, *final;         /* (B,T,C), (B,W-1,C) */
    const float *dy, *dfinal; /* NULL: zero */
    float *dx, *dstate;       /* NULL: not wanted; dx by dx_b and dx_t */
    bool add_x, add_state;
    double *sums; /* (B, parts, W+1, C): gradients of w, then bias */
} conv;

/* Rows to be multiplied and added: sum over i < n of weight[i] row[i], each (C). */
typedef struct taps {
    int n;
    int tap[MOST]; /* which weight */
    const float *weight[MOST], *row[MOST];
} taps;

static void add_tap(taps *p, const conv *v, int64_t tap, const float *row)
{
    p->tap[p->n] = (int)tap;
    p->weight[p->n] = v->w ? v->w + tap * v->C : NULL;
    p->row[p->n++] = row;
}

static bool starts(const conv *v, int64_t b, int64_t t) { return v->reset && v->reset[b * v->T + t]; }

/* Input at token t >= 1-W of row b: of x, of the state before it, or NULL for zero. */
static const float *input_at(const conv *v, int64_t b, int64_t t)
{
    if (t >= 0) return v->x + b * v->x_b + t * v->x_t;
    return v->state ? v->state + (b * (v->W - 1) + v->W - 1 + t) * v->C : NULL;
}

/* What token t sees: itself and up to W-1 inputs before it, back to its document's start. Oldest first. */
static void see_past(const conv *v, int64_t b, int64_t t, taps *p)
{
    int64_t reach = 0;
    while (reach < v->W - 1 && t - reach >= 0 && !starts(v, b, t - reach)) reach++;
    if (t - reach < 0) reach = v->W - 1; /* past the first token: the state is seen whole */
    p->n = 0;
    for (int64_t lag = reach; lag >= 0; lag--) {
        const float *row = input_at(v, b, t - lag);
        if (row) add_tap(p, v, v->W - 1 - lag, row);
    }
}

/* Who sees the input at token s >= 1-W: itself and up to W-1 later tokens. Returns dfinal's row of it, or NULL. */
static const float *seen_by(const conv *v, int64_t b, int64_t s, taps *p)
{
    p->n = 0;
    for (int64_t lag = 0; lag < v->W && s + lag < v->T; lag++) {
        const int64_t t = s + lag;
        if (t < 0) continue;
        if (lag > 0 && starts(v, b, t)) return NULL;
        if (v->dy) add_tap(p, v, v->W - 1 - lag, v->dy + (b * v->T + t) * v->C);
    }
    const int64_t kept = s - (v->T - v->W + 1);
    return v->dfinal && kept >= 0 ? v->dfinal + (b * (v->W - 1) + kept) * v->C : NULL;
}

/* to = (add ? to : 0) + base + sum of taps; base may be NULL. */
static void mix(float *to, const float *base, const taps *p, int64_t C, bool add)
{
    for (int64_t c0 = 0; c0 < C; c0 += STRIP) {
        float acc[STRIP];
        const int64_t n = C - c0 < STRIP ? C - c0 : STRIP;
        for (int64_t c = 0; c < n; c++) acc[c] = base ? base[c0 + c] : 0;
        for (int i = 0; i < p->n; i++) {
            const float *restrict w = p->weight[i] + c0, *restrict x = p->row[i] + c0;
            for (int64_t c = 0; c < n; c++) acc[c] += w[c] * x[c];
        }
        if (add)
            for (int64_t c = 0; c < n; c++) to[c0 + c] += acc[c];
        else memcpy(to + c0, acc, sizeof(float) * (size_t)n);
    }
}

/* Four results at once: to[t] = (add ? to[t] : 0) + base + sum over i < W of weight[i] row[t + i], each (C). */
TN_INLINE void mix_four(float *const *to, const float *base, const float *const *weight, const float *const *row, int W,
                        int64_t C, bool add)
{
    int64_t c = 0;
    for (; c + TN_VEC <= C; c += TN_VEC) {
        tn_vec acc[FOUR];
        TN_UNROLL
        for (int t = 0; t < FOUR; t++) acc[t] = base ? tn_vec_get(base + c) : (tn_vec){ 0 };
        TN_UNROLL
        for (int i = 0; i < W; i++) {
            const tn_vec w = tn_vec_get(weight[i] + c);
            TN_UNROLL
            for (int t = 0; t < FOUR; t++) acc[t] += w * tn_vec_get(row[t + i] + c);
        }
        TN_UNROLL
        for (int t = 0; t < FOUR; t++) tn_vec_put(to[t] + c, add ? tn_vec_get(to[t] + c) + acc[t] : acc[t]);
    }
    for (; c < C; c++)
        for (int t = 0; t < FOUR; t++) {
            float acc = base ? base[c] : 0;
            for (int i = 0; i < W; i++) acc += weight[i][c] * row[t + i][c];
            to[t][c] = add ? to[t][c] + acc : acc;
        }
}

static void mix_rows(float *const *to, const float *base, const float *const *weight, const float *const *row,
                     const conv *v, bool add)
{
    if (v->W == WIDTH && !add && !base) mix_four(to, NULL, weight, row, WIDTH, v->C, false);
    else if (v->W == WIDTH) mix_four(to, base, weight, row, WIDTH, v->C, add);
    else mix_four(to, base, weight, row, (int)v->W, v->C, add);
}

/* No document starts at tokens first .. last-1. */
static bool unbroken(const conv *v, int64_t b, int64_t first, int64_t last)
{
    bool none = true;
    for (int64_t t = first; v->reset && t < last; t++) none = none && !starts(v, b, t);
    return none;
}

/* Tokens t .. t+n-1 see W inputs each, all of them in x. */
static bool whole_past(const conv *v, int64_t b, int64_t t, int64_t n)
{
    return t >= v->W - 1 && t + n <= v->T && unbroken(v, b, t - v->W + 2, t + n);
}

/* The inputs at tokens s .. s+n-1 are seen by W tokens each. */
static bool whole_future(const conv *v, int64_t b, int64_t s, int64_t n)
{
    return v->dy && s + n - 1 + v->W <= v->T - (v->dfinal ? v->W - 1 : 0) && unbroken(v, b, s + 1, s + n + v->W - 1);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void forward_four(const conv *v, int64_t b, int64_t t)
{
    const float *weight[MOST], *row[MOST + FOUR];
    float *to[FOUR];
    for (int i = 0; i < v->W; i++) weight[i] = v->w + i * v->C;
    for (int i = 0; i < v->W + FOUR - 1; i++) row[i] = v->x + b * v->x_b + (t - v->W + 1 + i) * v->x_t;
    for (int i = 0; i < FOUR; i++) to[i] = v->y + (b * v->T + t + i) * v->C;
    mix_rows(to, v->bias, weight, row, v, false);
}

static void forward_tile(void *arg, int64_t i)
{
    const conv *v = arg;
    const int64_t b = i / v->parts, first = i % v->parts * v->span;
    const int64_t last = first + v->span < v->T ? first + v->span : v->T;
    taps p;
    for (int64_t t = first; t < last; t++) {
        if (t + FOUR <= last && whole_past(v, b, t, FOUR)) {
            forward_four(v, b, t);
            t += FOUR - 1;
            continue;
        }
        see_past(v, b, t, &p);
        mix(v->y + (b * v->T + t) * v->C, v->bias, &p, v->C, false);
    }
}

/* The last W-1 inputs of a row, zeros before the start of the document that the row ends in. */
static void keep_last(const conv *v, int64_t b)
{
    bool hidden = false;
    for (int64_t i = v->W - 2; i >= 0; i--) {
        const int64_t t = v->T - (v->W - 1) + i;
        float *to = v->final + (b * (v->W - 1) + i) * v->C;
        const float *row = hidden ? NULL : input_at(v, b, t);
        if (row) memcpy(to, row, sizeof(float) * (size_t)v->C);
        else memset(to, 0, sizeof(float) * (size_t)v->C);
        hidden = hidden || (t >= 0 && starts(v, b, t));
    }
}

static void set_up(const tn_call *c, conv *v)
{
    const int64_t *d = c->in[TN_CONV_X].dims.dim;
    *v = (conv){ .T = d[1], .C = d[2], .W = c->in[TN_CONV_W].dims.dim[0] };
    const int32_t *live = c->in[TN_CONV_X].live;
    for (int k = 0; !live && c->dout && k < c->n_out; k++) live = c->dout[k].live;
    v->B = live && *live < d[0] ? (*live < 0 ? 0 : *live) : d[0];
    v->span = tn_tile_rows(v->C);
    v->parts = tn_tiles(v->T, v->span);
    v->x = c->in[TN_CONV_X].data;
    v->x_b = c->in[TN_CONV_X].stride[0];
    v->x_t = c->in[TN_CONV_X].stride[1];
    v->w = c->in[TN_CONV_W].data;
    v->bias = c->in[TN_CONV_BIAS].data;
    v->state = c->in[TN_CONV_STATE].data;
    v->reset = c->in[TN_CONV_RESET].data;
}

TN_LEVELED_KERNEL(tn_conv_causal_forward_cpu)
{
    conv v;
    set_up(c, &v);
    if (!v.C) return TN_OK;
    v.y = c->out[0].data;
    v.final = c->out[1].data;
    tn_pool_run(c->pool, v.B * v.parts, forward_tile, &v);
    for (int64_t b = 0; b < v.B; b++) keep_last(&v, b);
    return TN_OK;
}

/* --- gradients of x and of the state ------------------------------------------------------------------------------ */

static void dx_four(const conv *v, int64_t b, int64_t s)
{
    const float *weight[MOST], *row[MOST + FOUR];
    float *to[FOUR];
    for (int i = 0; i < v->W; i++) weight[i] = v->w + (v->W - 1 - i) * v->C;
    for (int i = 0; i < v->W + FOUR - 1; i++) row[i] = v->dy + (b * v->T + s + i) * v->C;
    for (int i = 0; i < FOUR; i++) to[i] = v->dx + b * v->dx_b + (s + i) * v->dx_t;
    mix_rows(to, NULL, weight, row, v, v->add_x);
}

static void dx_tokens(const conv *v, int64_t b, int64_t first, int64_t last)
{
    taps p;
    for (int64_t s = first; s < last; s++) {
        if (s + FOUR <= last && whole_future(v, b, s, FOUR)) {
            dx_four(v, b, s);
            s += FOUR - 1;
            continue;
        }
        const float *kept = seen_by(v, b, s, &p);
        mix(v->dx + b * v->dx_b + s * v->dx_t, kept, &p, v->C, v->add_x);
    }
}

static void dstate_row(void *arg, int64_t b)
{
    const conv *v = arg;
    taps p;
    for (int64_t i = 0; i < v->W - 1; i++) {
        const float *kept = seen_by(v, b, i - (v->W - 1), &p);
        mix(v->dstate + (b * (v->W - 1) + i) * v->C, kept, &p, v->C, v->add_state);
    }
}

/* --- gradients of w and bias -------------------------------------------------------------------------------------- */

/* A few tokens, one strip of channels: f32 sums of dy times each tap, then of dy alone, added to the doubles. */
static void sum_strip(const conv *v, const taps *p, const float *dy, int64_t n, int64_t c0, double *to)
{
    float acc[MOST + 1][STRIP];
    const int64_t width = v->C - c0 < STRIP ? v->C - c0 : STRIP;
    memset(acc, 0, sizeof acc[0] * (size_t)(v->W + 1));
    for (int64_t t = 0; t < n; t++) {
        const float *restrict d = dy + t * v->C + c0;
        for (int i = 0; i < p[t].n; i++) {
            const float *restrict x = p[t].row[i] + c0;
            float *restrict a = acc[p[t].tap[i]];
            for (int64_t c = 0; c < width; c++) a[c] += d[c] * x[c];
        }
        for (int64_t c = 0; c < width; c++) acc[v->W][c] += d[c];
    }
    for (int64_t j = 0; j <= v->W; j++)
        for (int64_t c = 0; c < width; c++) to[j * v->C + c0 + c] += (double)acc[j][c];
}

/* The same for n <= FEW_TOKENS tokens that see WIDTH inputs each, PAIR vectors of channels: sums stay in registers, and
 * are enough not to wait for one another. */
enum { PAIR = 2, CHANNELS = PAIR * TN_VEC };

TN_INLINE void sum_pair(const float *x, int64_t x_t, const float *dy, int64_t C, int64_t n, tn_vec acc[WIDTH + 1][PAIR])
{
    tn_vec past[WIDTH][PAIR];
    for (int p = 0; p < PAIR; p++) {
        TN_UNROLL
        for (int j = 0; j <= WIDTH; j++) acc[j][p] = (tn_vec){ 0 };
        TN_UNROLL
        for (int j = 0; j < WIDTH - 1; j++) past[j][p] = tn_vec_get(x + (j - WIDTH + 1) * x_t + p * TN_VEC);
    }
    for (int64_t t = 0; t < n; t++) {
        TN_UNROLL
        for (int p = 0; p < PAIR; p++) {
            const tn_vec d = tn_vec_get(dy + t * C + p * TN_VEC);
            past[WIDTH - 1][p] = tn_vec_get(x + t * x_t + p * TN_VEC);
            TN_UNROLL
            for (int j = 0; j < WIDTH; j++) acc[j][p] += d * past[j][p];
            acc[WIDTH][p] += d;
            TN_UNROLL
            for (int j = 0; j < WIDTH - 1; j++) past[j][p] = past[j + 1][p];
        }
    }
}

/* Channels [0, result) are done. */
static int64_t sum_whole(const conv *v, int64_t b, int64_t t, int64_t n, double *to)
{
    const float *x = v->x + b * v->x_b + t * v->x_t, *dy = v->dy + (b * v->T + t) * v->C;
    int64_t c = 0;
    for (; c + CHANNELS <= v->C; c += CHANNELS) {
        tn_vec acc[WIDTH + 1][PAIR];
        float sum[WIDTH + 1][CHANNELS];
        sum_pair(x + c, v->x_t, dy + c, v->C, n, acc);
        for (int j = 0; j <= WIDTH; j++) {
            for (int p = 0; p < PAIR; p++) tn_vec_put(sum[j] + p * TN_VEC, acc[j][p]);
            double *restrict field = to + j * v->C + c;
            for (int k = 0; k < CHANNELS; k++) field[k] += (double)sum[j][k];
        }
    }
    return c;
}

static void sum_tokens(const conv *v, int64_t b, int64_t t, int64_t n, double *to)
{
    taps p[FEW_TOKENS];
    int64_t done = 0;
    if (v->x && v->W == WIDTH && whole_past(v, b, t, n)) done = sum_whole(v, b, t, n, to);
    if (done == v->C) return;
    for (int64_t k = 0; k < n; k++) {
        p[k].n = 0; /* for bias alone there is no x */
        if (v->x) see_past(v, b, t + k, &p[k]);
    }
    for (int64_t c0 = done; c0 < v->C; c0 += STRIP) sum_strip(v, p, v->dy + (b * v->T + t) * v->C, n, c0, to);
}

/* A few tokens at a time: dx, then the sums, which find dy in the nearest cache. */
static void backward_tile(void *arg, int64_t i)
{
    const conv *v = arg;
    const int64_t parts = tn_tiles(v->T, TN_CONV_SUM_TOKENS), b = i / parts, first = i % parts * TN_CONV_SUM_TOKENS;
    const int64_t last = first + TN_CONV_SUM_TOKENS < v->T ? first + TN_CONV_SUM_TOKENS : v->T;
    double *to = v->sums ? v->sums + i * (v->W + 1) * v->C : NULL;
    if (to) memset(to, 0, sizeof(double) * (size_t)((v->W + 1) * v->C));
    for (int64_t t = first; t < last; t += FEW_TOKENS) {
        const int64_t n = last - t < FEW_TOKENS ? last - t : FEW_TOKENS;
        if (v->dx) dx_tokens(v, b, t, t + n);
        if (to) sum_tokens(v, b, t, n, to);
    }
}

/* Sums over tiles of the fields first..last-1 (W for bias), into d; a strip at a time, tiles in order. */
static void add_tiles(const conv *v, int64_t first, int64_t last, float *d, bool add)
{
    const int64_t tiles = v->dy ? v->B * tn_tiles(v->T, TN_CONV_SUM_TOKENS) : 0, end = last * v->C;
    for (int64_t k0 = first * v->C; k0 < end; k0 += STRIP) {
        double sum[STRIP] = { 0 };
        const int64_t n = end - k0 < STRIP ? end - k0 : STRIP;
        for (int64_t i = 0; i < tiles; i++)
            for (int64_t k = 0; k < n; k++) sum[k] += v->sums[i * (v->W + 1) * v->C + k0 + k];
        float *to = d + k0 - first * v->C;
        for (int64_t k = 0; k < n; k++) to[k] = (float)sum[k] + (add ? to[k] : 0.f);
    }
}

TN_LEVELED_KERNEL(tn_conv_causal_backward_cpu)
{
    conv v;
    set_up(c, &v);
    if (!v.C) return TN_OK;
    float *dw = c->din[TN_CONV_W].data, *dbias = c->din[TN_CONV_BIAS].data;
    v.dy = c->dout[0].data;
    v.dfinal = c->dout[1].data;
    v.dx = c->din[TN_CONV_X].data;
    v.dx_b = c->din[TN_CONV_X].stride[0];
    v.dx_t = c->din[TN_CONV_X].stride[1];
    v.dstate = c->din[TN_CONV_STATE].data;
    v.add_x = c->accumulate >> TN_CONV_X & 1;
    v.add_state = c->accumulate >> TN_CONV_STATE & 1;
    v.sums = (dw || dbias) && v.dy ? c->work : NULL;
    if (v.dx || v.sums) tn_pool_run(c->pool, v.B * tn_tiles(v.T, TN_CONV_SUM_TOKENS), backward_tile, &v);
    if (v.dstate) tn_pool_run(c->pool, v.B, dstate_row, &v);
    if (dw) add_tiles(&v, 0, v.W, dw, c->accumulate >> TN_CONV_W & 1);
    if (dbias) add_tiles(&v, v.W, v.W + 1, dbias, c->accumulate >> TN_CONV_BIAS & 1);
    return TN_OK;
}
