/* The arithmetic between rollout's products, on rows that are in cache: what the neuron sees, its norms, gelu, tanh, and the move.
 * Rows are taken sixteen at a time, the last ones filled up, so a row's bits do not depend on its neighbours. */
#include "backend/cpu/level.h"
#include "backend/cpu/vmath.h"
#include "ops/rollout/rollout_cpu.h"
#include "ops/rollout/rollout_move.h"

enum { BLOCK = TN_V_BLOCK, LANES = 8, NEURON = TN_ROLLOUT_NEURON };

TN_LEVELED(void, tn_rollout_gelu, (const float *x, float *y, int64_t n), (x, y, n))
{
    tn_v_map(y, x, n, tn_v_gelu_erf);
}

/* gelu and its slope at once: both are made of the same tail. */
TN_INLINE void gelu_slope_block(const float *x, float *y, float *slope)
{
    float out[2][BLOCK];
    TN_UNROLL
    for (int k = 0; k < BLOCK; k++) {
        float density;
        const float low = tn_v_at_least(x[k], -15.0f), c = tn_v_at_most(low, 15.0f);
        const float q = tn_v_normal_tail(fabsf(c), &density), share = tn_v_pick(c < 0.0f, q, 1.0f - q);
        out[0][k] = low * share;
        out[1][k] = share + 0.398942280f * c * density;
    }
    memcpy(y, out[0], sizeof out[0]);
    memcpy(slope, out[1], sizeof out[1]);
}

TN_LEVELED(void, tn_rollout_gelu_slope, (const float *x, float *y, float *slope, int64_t n), (x, y, slope, n))
{
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) gelu_slope_block(x + i, y + i, slope + i);
    if (i == n) return;
    float last[3][BLOCK] = { { 0 } };
    memcpy(last[0], x + i, sizeof *x * (size_t)(n - i));
    gelu_slope_block(last[0], last[1], last[2]);
    memcpy(y + i, last[1], sizeof *y * (size_t)(n - i));
    memcpy(slope + i, last[2], sizeof *slope * (size_t)(n - i));
}

TN_LEVELED(void, tn_rollout_times, (const float *restrict x, float *restrict d, int64_t n), (x, d, n))
{
    for (int64_t i = 0; i < n; i++) d[i] *= x[i];
}

TN_LEVELED(void, tn_rollout_tanh, (float *x, int64_t n), (x, n)) { tn_v_map(x, x, n, tn_v_tanh); }

TN_LEVELED(void, tn_rollout_see,
           (const float *q, const float *qb, const float *places, int64_t rows, int64_t P, int64_t I, float *in),
           (q, qb, places, rows, P, I, in))
{
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict p = places + r * P;
        float *restrict to = in + r * I;
        for (int a = 0; a < 3; a++) to[a] = qb[a] + q[3 * a] * p[0] + q[3 * a + 1] * p[1] + q[3 * a + 2] * p[2];
        for (int64_t k = 3; k < P; k++) to[k] = p[k];
    }
}

TN_INLINE float sum_of(const float *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* Mean 0 and variance 1; returns the factor. */
TN_INLINE float norm_row(const float *z, float *n)
{
    float sum[LANES] = { 0 }, square[LANES] = { 0 };
    for (int k = 0; k < NEURON; k += LANES)
        for (int i = 0; i < LANES; i++) sum[i] += z[k + i];
    const float mean = sum_of(sum) * (1.0f / NEURON);
    for (int k = 0; k < NEURON; k += LANES)
        for (int i = 0; i < LANES; i++) square[i] += (z[k + i] - mean) * (z[k + i] - mean);
    const float scale = 1.0f / sqrtf(sum_of(square) * (1.0f / NEURON) + 1e-5f);
    for (int k = 0; k < NEURON; k++) n[k] = (z[k] - mean) * scale;
    return scale;
}

TN_LEVELED(void, tn_rollout_norm_gelu,
           (const float *z, const float *gain, const float *bias, float *y, float *slope, int64_t rows),
           (z, gain, bias, y, slope, rows))
{
    for (int64_t r = 0; r < rows * NEURON; r += NEURON) {
        float n[NEURON];
        norm_row(z + r, n);
        for (int k = 0; k < NEURON; k++) n[k] = n[k] * gain[k] + bias[k];
        for (int k = 0; !slope && k < NEURON; k += BLOCK) tn_v_block(y + r + k, n + k, tn_v_gelu_erf);
        for (int k = 0; slope && k < NEURON; k += BLOCK) gelu_slope_block(n + k, y + r + k, slope + r + k);
    }
}

TN_INLINE void norm_row_back(const float *restrict gain, const float *restrict da, float *restrict z,
                             float *restrict dy, float *restrict dn)
{
    float n[NEURON], g[NEURON], sum[LANES] = { 0 }, along[LANES] = { 0 };
    const float scale = norm_row(z, n);
    for (int k = 0; k < NEURON; k++) dy[k] *= da[k];
    for (int k = 0; k < NEURON; k++) g[k] = dy[k] * gain[k];
    for (int k = 0; k < NEURON; k++) dn[k] = dy[k] * n[k];
    for (int k = 0; k < NEURON; k += LANES)
        for (int i = 0; i < LANES; i++) sum[i] += g[k + i], along[i] += g[k + i] * n[k + i];
    const float mean = sum_of(sum) * (1.0f / NEURON), slope = sum_of(along) * (1.0f / NEURON);
    for (int k = 0; k < NEURON; k++) z[k] = scale * (g[k] - mean - n[k] * slope);
}

TN_LEVELED(void, tn_rollout_norm_back,
           (const float *gain, const float *da, float *z, float *dy, float *dn, int64_t rows),
           (gain, da, z, dy, dn, rows))
{
    for (int64_t r = 0; r < rows * NEURON; r += NEURON) norm_row_back(gain, da + r, z + r, dy + r, dn + r);
}

/* --- move ----------------------------------------------------------------------------------------------------------- */

/* Sixteen flows, axis by axis. */
typedef struct lanes {
    float p[3][BLOCK], want[3][BLOCK], length[BLOCK];
    int32_t bits[BLOCK], rises[BLOCK], children[BLOCK];
    uint32_t number[BLOCK], slot[BLOCK];
} lanes;

static void load(const tn_rollout_moves *m, int64_t first, int n, lanes *f)
{
    memset(f, 0, sizeof *f);
    for (int k = 0; k < n; k++) {
        const float *p = m->places + (first + k) * m->P, *delta = m->delta + (first + k) * 3;
        const int32_t slot = m->slot[first + k];
        for (int a = 0; a < 3; a++) f->p[a][k] = p[a], f->want[a][k] = delta[a];
        const int64_t b = slot / m->N;
        f->slot[k] = (uint32_t)(slot - b * m->N);
        f->number[k] = m->number ? (uint32_t)m->number[b] : (uint32_t)b;
        f->rises[k] = m->want ? m->bits[first + k] & TN_ROLLOUT_RISES : p[2] > 0 || (p[2] == 0 && m->even[slot]);
    }
}

static void add_noise(const tn_rollout_moves *m, lanes *f)
{
    float part[3][BLOCK];
    for (int k = 0; k < BLOCK; k++) {
        uint32_t w[4];
        tn_rollout_words(m->seed, f->number[k], f->slot[k], (uint32_t)m->t, w);
        part[0][k] = tn_rollout_share(w[0]);
        part[1][k] = tn_rollout_angle(w[1]);
        part[2][k] = tn_rollout_share(w[2]);
        f->slot[k] = w[3];
    }
    for (int k = 0; k < BLOCK; k++) {
        const float radius = sqrtf(-2.0f * tn_v_log(part[0][k])), angle = part[1][k];
        f->want[0][k] += m->sigma * (radius * tn_v_cos(angle));
        f->want[1][k] += m->sigma * (radius * tn_v_sin(angle));
    }
    for (int k = 0; m->a->noise_z && k < BLOCK; k++)
        f->want[2][k] += m->sigma * (sqrtf(-2.0f * tn_v_log(part[2][k])) * tn_v_cos(tn_rollout_angle(f->slot[k])));
}

/* What a flow wants: clamped, with drift and noise. */
static void decide(const tn_rollout_moves *m, lanes *f)
{
    const float limit = m->a->limit;
    for (int a = 0; a < 3; a++)
        for (int k = 0; k < BLOCK; k++) {
            const float x = m->kappa * f->want[a][k];
            f->bits[k] |= fabsf(x) < limit ? 0 : TN_ROLLOUT_CLAMPED << a;
            f->want[a][k] = tn_v_at_most(tn_v_at_least(x, -limit), limit);
        }
    for (int k = 0; k < BLOCK; k++) {
        f->bits[k] |= f->rises[k] ? TN_ROLLOUT_RISES : 0;
        f->want[2][k] += f->rises[k] ? m->drift : -m->drift;
    }
    if (m->sigma > 0) add_noise(m, f);
    for (int k = 0; k < BLOCK; k++) { /* written out: what a compiler contracts may differ from lane to lane */
        const float x = f->want[0][k], y = f->want[1][k], z = f->want[2][k];
        f->length[k] = sqrtf(fmaf(z, z, fmaf(y, y, x * x)));
    }
}

/* Folds twice, which is enough for moves below 4; what is further out stops at the wall. */
static void fold(lanes *f, int a)
{
    for (int turn = 0; turn < 2; turn++)
        for (int k = 0; k < BLOCK; k++) {
            const float p = f->p[a][k];
            const bool out = fabsf(p) > 1;
            f->p[a][k] = out ? copysignf(2, p) - p : p;
            f->bits[k] ^= out ? TN_ROLLOUT_FOLDED << a : 0;
        }
    for (int k = 0; k < BLOCK; k++) f->p[a][k] = tn_v_at_most(tn_v_at_least(f->p[a][k], -1), 1);
}

static void walk(const tn_rollout_moves *m, lanes *f)
{
    const tn_rollout_attr *t = m->a;
    const float rho = t->spawn && t->shorten ? t->rho : INFINITY, most = (float)t->spawn;
    float cut[BLOCK];
    for (int k = 0; k < BLOCK; k++) {
        const float c = rho / f->length[k];
        cut[k] = c < 1 ? c : 1;
    }
    for (int a = 0; a < 3; a++)
        for (int k = 0; k < BLOCK; k++) f->p[a][k] = fmaf(cut[k], f->want[a][k], f->p[a][k]);
    fold(f, 0);
    fold(f, 1);
    for (int k = 0; k < BLOCK; k++) {
        const float z = f->p[2][k];
        const bool out = fabsf(z) >= 1;
        f->p[2][k] = out ? copysignf(1, z) : z;
        f->bits[k] |= (out ? TN_ROLLOUT_LEFT : 0) | (out && z > 0 ? TN_ROLLOUT_UPPER : 0);
    }
    for (int k = 0; t->spawn && k < BLOCK; k++) {
        const float n = floorf(f->length[k] / t->rho) - 1.0f, some = n > 0 ? n : 0;
        f->children[k] = (int32_t)(some < most ? some : most);
    }
}

static void store(const tn_rollout_moves *m, int64_t first, int n, const lanes *f)
{
    for (int k = 0; k < n; k++) {
        int32_t *bits = &m->bits[first + k];
        float *to = m->after + (first + k) * m->P;
        for (int a = 0; a < 3; a++) to[a] = f->p[a][k];
        for (int64_t i = 0; i < m->E; i++) to[3 + i] = m->e[(first + k) * m->E + i];
        *bits = *bits & TN_ROLLOUT_OFF ? TN_ROLLOUT_OFF : f->bits[k] | f->children[k] * (1 << TN_ROLLOUT_CHILDREN);
    }
}

TN_LEVELED(void, tn_rollout_move, (const tn_rollout_moves *m), (m))
{
    for (int64_t i = 0; i < m->rows; i += BLOCK) {
        const int n = m->rows - i < BLOCK ? (int)(m->rows - i) : BLOCK;
        lanes f;
        load(m, i, n, &f);
        decide(m, &f);
        for (int k = 0; m->want && k < n; k++)
            for (int a = 0; a < 3; a++) m->want[(i + k) * 3 + a] = f.want[a][k];
        if (m->want) continue;
        walk(m, &f);
        store(m, i, n, &f);
    }
}
