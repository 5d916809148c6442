/* Gates of gru and their slopes, block by block: a block of elements goes through the same instructions wherever it lies
 * (the last one is filled up with zeros), so a row's bits do not depend on its neighbours or on the width. */
#include "ops/gru/gru_gates.h"

#include "backend/cpu/level.h"
#include "backend/cpu/vmath.h"

enum { BLOCK = TN_V_BLOCK };

/* r, z, n are in place; q and h are read. */
TN_INLINE void value_block(float *r, float *z, float *n, const float *q, const float *h, float *y)
{
    float out[BLOCK];
    tn_v_block(r, r, tn_v_sigmoid);
    tn_v_block(z, z, tn_v_sigmoid);
    for (int k = 0; k < BLOCK; k++) out[k] = n[k] + r[k] * q[k];
    tn_v_block(n, out, tn_v_tanh);
    for (int k = 0; k < BLOCK; k++) out[k] = n[k] + z[k] * (h[k] - n[k]);
    memcpy(y, out, sizeof out);
}

static void value_row(float *restrict gates, const float *restrict h, float *restrict y, int64_t H)
{
    int64_t i = 0;
    float *r = gates, *z = gates + H, *n = gates + 2 * H, *q = gates + 3 * H;
    for (; i + BLOCK <= H; i += BLOCK) value_block(r + i, z + i, n + i, q + i, h + i, y + i);
    if (i == H) return;
    const size_t bytes = sizeof(float) * (size_t)(H - i);
    float last[6][BLOCK] = { { 0 } };
    for (int k = 0; k < 4; k++) memcpy(last[k], gates + k * H + i, bytes);
    memcpy(last[4], h + i, bytes);
    value_block(last[0], last[1], last[2], last[3], last[4], last[5]);
    for (int k = 0; k < 3; k++) memcpy(gates + k * H + i, last[k], bytes);
    memcpy(y + i, last[5], bytes);
}

TN_LEVELED(void, tn_gru_gates, (float *gates, const float *h, int64_t h_row, float *y, int64_t rows, int64_t H),
           (gates, h, h_row, y, rows, H))
{
    for (int64_t i = 0; i < rows; i++) value_row(gates + 4 * H * i, h + h_row * i, y + H * i, H);
}

/* in: r, z, n, q, h, dy; out: gradients before r, z, n, of q, and h's own. */
typedef struct slope_block {
    const float *in[6];
    float *out[5];
} slope_block;

TN_INLINE void slopes(const slope_block *b)
{
    float out[5][BLOCK];
    for (int k = 0; k < BLOCK; k++) {
        const float r = b->in[0][k], z = b->in[1][k], n = b->in[2][k], q = b->in[3][k], h = b->in[4][k],
                    dy = b->in[5][k];
        const float dn = dy * (1.0f - z) * (1.0f - n * n);
        out[0][k] = dn * q * (r * (1.0f - r));
        out[1][k] = dy * (h - n) * (z * (1.0f - z));
        out[2][k] = dn;
        out[3][k] = dn * r;
        out[4][k] = dy * z;
    }
    for (int f = 0; f < 5; f++) memcpy(b->out[f], out[f], sizeof out[f]);
}

static void slope_row(const float *gates, const float *h, const float *dy, float *d, float *dh, bool add, int64_t H)
{
    for (int64_t i = 0; i < H; i += BLOCK) {
        const int64_t n = H - i < BLOCK ? H - i : BLOCK;
        const size_t bytes = sizeof(float) * (size_t)n;
        float in[6][BLOCK] = { { 0 } }, out[4][BLOCK], own[BLOCK];
        slope_block b = { .in = { gates + i, gates + H + i, gates + 2 * H + i, gates + 3 * H + i, h + i, dy + i },
                          .out = { d + i, d + H + i, d + 2 * H + i, d + 3 * H + i, own } };
        for (int f = 0; n < BLOCK && f < 6; f++) memcpy(in[f], b.in[f], bytes), b.in[f] = in[f];
        for (int f = 0; n < BLOCK && f < 4; f++) b.out[f] = out[f];
        slopes(&b);
        for (int f = 0; n < BLOCK && f < 4; f++) memcpy(d + f * H + i, out[f], bytes);
        if (!dh) continue;
        for (int64_t k = 0; add && k < n; k++) own[k] += dh[i + k];
        memcpy(dh + i, own, bytes);
    }
}

TN_LEVELED(void, tn_gru_gate_slopes, (const tn_gru_slopes *s), (s))
{
    const int64_t H = s->H;
    for (int64_t i = 0; i < s->rows; i++)
        slope_row(s->gates + 4 * H * i, s->h + s->h_row * i, s->dy + H * i, s->d + 4 * H * i,
                  s->dh ? s->dh + s->dh_row * i : NULL, s->add, H);
}
