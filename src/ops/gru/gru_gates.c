/* Gates of gru and their slopes, block by block: a block of elements goes through the same instructions wherever it lies
 * (the last one is filled up with zeros), so a row's bits do not depend on its neighbours or on the width. */
#include "ops/gru/gru_gates.h"

#include "backend/cpu/level.h"
#include "backend/cpu/vmath.h"

enum { BLOCK = TN_V_BLOCK };

/* r, z, n, q are in place; their biases and h are read. */
typedef struct value_block {
    float *r, *z, *n, *q, *y;
    const float *b_i[3], *b_h[3], *h;
} value_block;

TN_INLINE void values(const value_block *b)
{
    float r[BLOCK], z[BLOCK], n[BLOCK], q[BLOCK];
    for (int k = 0; k < BLOCK; k++) r[k] = b->r[k] + (b->b_i[0][k] + b->b_h[0][k]);
    for (int k = 0; k < BLOCK; k++) z[k] = b->z[k] + (b->b_i[1][k] + b->b_h[1][k]);
    for (int k = 0; k < BLOCK; k++) q[k] = b->q[k] + b->b_h[2][k];
    tn_v_block(r, r, tn_v_sigmoid);
    tn_v_block(z, z, tn_v_sigmoid);
    for (int k = 0; k < BLOCK; k++) n[k] = b->n[k] + b->b_i[2][k] + r[k] * q[k];
    tn_v_block(n, n, tn_v_tanh);
    memcpy(b->r, r, sizeof r);
    memcpy(b->z, z, sizeof z);
    memcpy(b->n, n, sizeof n);
    memcpy(b->q, q, sizeof q);
    for (int k = 0; k < BLOCK; k++) r[k] = n[k] + z[k] * (b->h[k] - n[k]);
    memcpy(b->y, r, sizeof r);
}

static void value_row(float *gates, const float *b_i, const float *b_h, const float *h, float *y, int64_t H)
{
    int64_t i = 0;
    for (; i + BLOCK <= H; i += BLOCK) {
        float *g = gates + i;
        values(&(value_block){ .r = g,
                               .z = g + H,
                               .n = g + 2 * H,
                               .q = g + 3 * H,
                               .y = y + i,
                               .b_i = { b_i + i, b_i + H + i, b_i + 2 * H + i },
                               .b_h = { b_h + i, b_h + H + i, b_h + 2 * H + i },
                               .h = h + i });
    }
    if (i == H) return;
    const size_t bytes = sizeof(float) * (size_t)(H - i);
    float last[12][BLOCK] = { { 0 } };
    for (int k = 0; k < 4; k++) memcpy(last[k], gates + k * H + i, bytes);
    for (int k = 0; k < 3; k++) memcpy(last[4 + k], b_i + k * H + i, bytes);
    for (int k = 0; k < 3; k++) memcpy(last[7 + k], b_h + k * H + i, bytes);
    memcpy(last[10], h + i, bytes);
    values(&(value_block){ .r = last[0],
                           .z = last[1],
                           .n = last[2],
                           .q = last[3],
                           .y = last[11],
                           .b_i = { last[4], last[5], last[6] },
                           .b_h = { last[7], last[8], last[9] },
                           .h = last[10] });
    for (int k = 0; k < 4; k++) memcpy(gates + k * H + i, last[k], bytes);
    memcpy(y + i, last[11], bytes);
}

TN_LEVELED(void, tn_gru_gates,
           (float *gates, const float *b_i, const float *b_h, const float *h, int64_t h_row, float *y, int64_t rows,
            int64_t H),
           (gates, b_i, b_h, h, h_row, y, rows, H))
{
    for (int64_t i = 0; i < rows; i++) value_row(gates + 4 * H * i, b_i, b_h, h + h_row * i, y + H * i, H);
}

/* r, z, n, q, h, dy of a block: gradients before r, z, n, of q, and h's own. */
TN_INLINE void slopes(const float *const in[6], float out[5][BLOCK])
{
    for (int k = 0; k < BLOCK; k++) {
        const float r = in[0][k], z = in[1][k], n = in[2][k], q = in[3][k], h = in[4][k], dy = in[5][k];
        const float dn = dy * (1.0f - z) * (1.0f - n * n);
        out[0][k] = dn * q * (r * (1.0f - r));
        out[1][k] = dy * (h - n) * (z * (1.0f - z));
        out[2][k] = dn;
        out[3][k] = dn * r;
        out[4][k] = dy * z;
    }
}

/* n of a block's numbers into a row of d, from column `at` on. */
TN_INLINE void put(void *row, int64_t at, const float x[BLOCK], int64_t n, bool half)
{
    uint16_t h[BLOCK];
    for (int k = 0; half && k < BLOCK; k++) h[k] = (uint16_t)(tn_v_bf16_bits(x[k]) >> 16);
    if (half) memcpy((uint16_t *)row + at, h, sizeof *h * (size_t)n);
    else memcpy((float *)row + at, x, sizeof *x * (size_t)n);
}

/* One row of a job; base pointers of that row. */
typedef struct slope_row {
    const float *gates, *h, *dy;
    void *d;
    float *dh, *sums;
    bool add, fresh; /* to dh; the first of sums' rows */
} slope_row;

/* n elements from i on; a block that is not whole is filled up with zeros. */
TN_INLINE void slopes_at(const slope_row *s, int64_t H, int64_t i, int64_t n, bool half)
{
    float last[6][BLOCK], out[5][BLOCK];
    const float *in[6] = { s->gates + i,         s->gates + H + i, s->gates + 2 * H + i,
                           s->gates + 3 * H + i, s->h + i,         s->dy + i };
    if (n < BLOCK) {
        memset(last, 0, sizeof last);
        for (int f = 0; f < 6; f++) memcpy(last[f], in[f], sizeof(float) * (size_t)n), in[f] = last[f];
    }
    slopes(in, out);
    for (int f = 0; f < 4; f++) {
        float *sum = s->sums ? s->sums + f * H + i : NULL;
        put(s->d, f * H + i, out[f], n, half);
        for (int64_t k = 0; sum && k < n; k++) sum[k] = s->fresh ? out[f][k] : sum[k] + out[f][k];
    }
    for (int64_t k = 0; s->dh && k < n; k++) s->dh[i + k] = s->add ? s->dh[i + k] + out[4][k] : out[4][k];
}

TN_INLINE void slopes_of(const slope_row *s, int64_t H, bool half)
{
    int64_t i = 0;
    for (; i + BLOCK <= H; i += BLOCK) slopes_at(s, H, i, BLOCK, half);
    if (i < H) slopes_at(s, H, i, H - i, half);
}

static void slopes_f32(const slope_row *s, int64_t H) { slopes_of(s, H, false); }

static void slopes_bf16(const slope_row *s, int64_t H) { slopes_of(s, H, true); }

TN_LEVELED(void, tn_gru_gate_slopes, (const tn_gru_slopes *s), (s))
{
    const int64_t H = s->H;
    for (int64_t i = 0; i < s->rows; i++) {
        const slope_row row = { .gates = s->gates + 4 * H * i,
                                .h = s->h + s->h_row * i,
                                .dy = s->dy + H * i,
                                .d = s->half ? (void *)((uint16_t *)s->d + s->d_row * i)
                                             : (void *)((float *)s->d + s->d_row * i),
                                .dh = s->dh ? s->dh + s->dh_row * i : NULL,
                                .sums = s->sums ? s->sums + 4 * H * (i / TN_GRU_CHUNK) : NULL,
                                .add = s->add,
                                .fresh = i % TN_GRU_CHUNK == 0 };
        (s->half ? slopes_bf16 : slopes_f32)(&row, H);
    }
}

TN_LEVELED(void, tn_gru_sum_rows, (const float *d, int64_t d_row, int64_t rows, int64_t count, double *sum),
           (d, d_row, rows, count, sum))
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4, d += 4 * d_row) /* four rows to a load of the sums */
        for (int64_t i = 0; i < count; i++)
            sum[i] = sum[i] + (double)d[i] + (double)d[d_row + i] + (double)d[2 * d_row + i] + (double)d[3 * d_row + i];
    for (; r < rows; r++, d += d_row)
        for (int64_t i = 0; i < count; i++) sum[i] += (double)d[i];
}
