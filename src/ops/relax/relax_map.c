/* The maps of relax on a tile, their gradients by the state, the nudge and the damped step. Everything here is a loop over
 * rows of features whose vectors are samples: sums over features are sums of vectors in the order of the features, so a
 * sample's numbers are the same in every lane and width. */
#include "backend/cpu/level.h"
#include "backend/cpu/vec.h"
#include "ops/relax/relax_cpu.h"
#include "ops/relax/relax_width.h"

static const float EPS = 1e-5f, LEAST_SIZE = 1e-6f, LEAST_MOVE = 1e-3f;

/* Clamps that let NaN pass. */
#if defined(__aarch64__)
TN_INLINE tn_vec at_least(tn_vec x, float lo) { return (tn_vec)vmaxq_f32((float32x4_t)x, vdupq_n_f32(lo)); }
TN_INLINE tn_vec at_most(tn_vec x, float hi) { return (tn_vec)vminq_f32((float32x4_t)x, vdupq_n_f32(hi)); }
#else
TN_INLINE tn_vec at_least(tn_vec x, float lo) { return tn_vec_pick(x < lo, tn_vec_all(lo), x); }
TN_INLINE tn_vec at_most(tn_vec x, float hi) { return tn_vec_pick(x > hi, tn_vec_all(hi), x); }
#endif

/* p / q, q between 1 and 200. A division of sixteen numbers takes as long as sixteen multiply-adds: where there is a reciprocal
 * of 14 bits, a step of Newton's makes 23 of them. */
#if defined(__AVX512F__)
TN_INLINE tn_vec quotient(tn_vec p, tn_vec q)
{
    const tn_vec r = (tn_vec)_mm512_rcp14_ps((__m512)q);
    return p * tn_vec_fma(tn_vec_fma(-q, r, tn_vec_all(1)), r, r);
}
#else
TN_INLINE tn_vec quotient(tn_vec p, tn_vec q) { return p / q; }
#endif

/* --- activations -------------------------------------------------------------------------------------------------- */

/* x Phi(x) = x (1/2 + c P(t) / Q(t)), c = x clamped to +-5.25, where Phi is 0 or 1 within 8e-8, and t = c^2: the quotient is
 * within 6.5e-8 / |c| (fitted at Chebyshev's points), so Phi within 2.5e-7 with rounding, and its slope within 2.5e-6 beyond
 * the edge. tn_v_gelu_erf also keeps the digits of the left tail, at more than twice the price; here the result is added to
 * numbers of size 1.
 * The polynomials are sums of powers: no constant is added to but one, and where a multiply-add overwrites its addend,
 * every such constant costs a move. */
static const float GELU_EDGE = 5.25f;
static const float GELU_P[] = { 0.398941874f, 0.0507933284f, 0.00560618750f, 3.27490217e-4f, 6.04452732e-6f };
static const float GELU_Q[] = { 1, 0.293980086f, 0.0380613921f, 0.00278104407f, 1.17465688e-4f, 5.15230305e-7f };

/* n vectors at once, step by step, so that the chain of one hides behind the others. Where it has a place, slope gets
 * Phi(x) + x e^(-x^2 / 2) / sqrt(2 pi). */
TN_INLINE void gelu(int n, float *z, const tn_vec *bias, float *slope)
{
    tn_vec x[TN_VECS], c[TN_VECS], t[TN_VECS], power[TN_VECS], third[TN_VECS], p[TN_VECS], q[TN_VECS];
#define EACH TN_UNROLL for (int k = 0; k < n; k++)
    EACH x[k] = at_least(tn_vec_get(z + k * TN_VEC) + bias[k], -GELU_EDGE);
    EACH c[k] = at_most(x[k], GELU_EDGE);
    EACH t[k] = c[k] * c[k];
    EACH power[k] = t[k] * t[k];
    EACH p[k] = t[k] * GELU_P[1];
    EACH q[k] = t[k] * GELU_Q[1];
    EACH third[k] = power[k] * t[k];
    EACH p[k] = tn_vec_fma(power[k], tn_vec_all(GELU_P[2]), p[k]);
    EACH q[k] = tn_vec_fma(power[k], tn_vec_all(GELU_Q[2]), q[k]);
    EACH power[k] = power[k] * power[k];
    EACH p[k] = tn_vec_fma(third[k], tn_vec_all(GELU_P[3]), p[k]);
    EACH q[k] = tn_vec_fma(third[k], tn_vec_all(GELU_Q[3]), q[k]);
    EACH t[k] = t[k] * power[k];
    EACH p[k] = tn_vec_fma(power[k], tn_vec_all(GELU_P[4]), p[k]);
    EACH q[k] = tn_vec_fma(power[k], tn_vec_all(GELU_Q[4]), q[k]);
    EACH p[k] = p[k] * c[k];
    EACH q[k] = tn_vec_fma(t[k], tn_vec_all(GELU_Q[5]), q[k]);
    EACH p[k] = tn_vec_fma(c[k], tn_vec_all(GELU_P[0]), p[k]);
    EACH q[k] = q[k] + GELU_Q[0];
    EACH p[k] = quotient(p[k], q[k]);
    if (slope) {
        float density[TN_LANES];
        EACH tn_vec_put(density + k * TN_VEC, c[k] * c[k] * -0.5f);
        TN_UNROLL for (int l = 0; l < n * TN_VEC; l++) density[l] = tn_v_exp_weight(density[l]);
        EACH q[k] = p[k] + 0.5f;
        EACH tn_vec_put(slope + k * TN_VEC, tn_vec_fma(tn_vec_get(density + k * TN_VEC) * 0.398942280f, c[k], q[k]));
    }
    EACH c[k] = x[k] * 0.5f;
    EACH tn_vec_put(z + k * TN_VEC, tn_vec_fma(x[k], p[k], c[k]));
#undef EACH
}

/* z = gelu(z + b) over rows, and the slope if it has a place; narrow tiles take several rows at a time. */
TN_INLINE void gelu_rows(int vecs, int64_t f, float *z, const float *b, float *slope)
{
    const int rows = TN_VECS / vecs;
    tn_vec bias[TN_VECS];
    int64_t i = 0;
    for (; i + rows <= f; i += rows) {
        TN_UNROLL for (int k = 0; k < rows * vecs; k++) bias[k] = tn_vec_all(b[i + k / vecs]);
        gelu(rows * vecs, z + i * vecs * TN_VEC, bias, slope ? slope + i * vecs * TN_VEC : NULL);
    }
    for (; i < f; i++) {
        EACH_VEC(k) bias[k] = tn_vec_all(b[i]);
        gelu(vecs, z + i * vecs * TN_VEC, bias, slope ? slope + i * vecs * TN_VEC : NULL);
    }
}

TN_INLINE void add_bias(int vecs, int64_t n, float *z, const float *b)
{
    for (int64_t i = 0; i < n; i++) EACH_VEC(v) PUT(z, i, v, GET(z, i, v) + b[i]);
}

/* --- norms -------------------------------------------------------------------------------------------------------- */

TN_INLINE void put_lanes(int vecs, float *to, const tn_vec *x) { EACH_VEC(v) tn_vec_put(to + v * TN_VEC, x[v]); }

/* Of x (d,width), whose sum over features is given: its mean, and the scale that makes its variance 1. */
TN_INLINE void measure(int vecs, int64_t d, const float *x, const tn_vec *sum, tn_vec *mean, tn_vec *scale)
{
    float lanes[TN_LANES];
    tn_vec square[TN_VECS];
    EACH_VEC(v) mean[v] = sum[v] / (float)d;
    EACH_VEC(v) square[v] = (tn_vec){ 0 };
    for (int64_t i = 0; i < d; i++)
        EACH_VEC(v) {
            const tn_vec apart = GET(x, i, v) - mean[v];
            square[v] = tn_vec_fma(apart, apart, square[v]);
        }
    put_lanes(vecs, lanes, square);
    TN_VECTOR for (int l = 0; l < vecs * TN_VEC; l++) lanes[l] = 1 / sqrtf(lanes[l] / (float)d + EPS);
    EACH_VEC(v) scale[v] = tn_vec_get(lanes + v * TN_VEC);
}

/* y = n gain + bias, n = (x - mean) scale; n is kept where it has a place. y may be x. */
TN_INLINE void normalise(int vecs, int64_t d, const float *x, const tn_vec *mean, const tn_vec *scale,
                         const float *gain, const float *bias, float *n, float *y)
{
    for (int64_t i = 0; i < d; i++)
        EACH_VEC(v) {
            const tn_vec at = (GET(x, i, v) - mean[v]) * scale[v];
            if (n) PUT(n, i, v, at);
            PUT(y, i, v, tn_vec_fma(at, tn_vec_all(gain[i]), tn_vec_all(bias[i])));
        }
}

/* The gradient of a norm: dx = scale (g - mean g - n mean(g n)), g = dy gain; added to `base` if there is one. */
TN_INLINE void norm_back(int vecs, int64_t d, const float *dy, const float *gain, const float *n, const float *scale,
                         const float *base, float *dx)
{
    tn_vec first[TN_VECS], second[TN_VECS];
    EACH_VEC(v) first[v] = second[v] = (tn_vec){ 0 };
    for (int64_t i = 0; i < d; i++)
        EACH_VEC(v) {
            const tn_vec g = GET(dy, i, v) * gain[i];
            first[v] += g;
            second[v] = tn_vec_fma(g, GET(n, i, v), second[v]);
        }
    EACH_VEC(v) first[v] /= (float)d;
    EACH_VEC(v) second[v] /= (float)d;
    for (int64_t i = 0; i < d; i++)
        EACH_VEC(v) {
            const tn_vec g = tn_vec_fma(GET(dy, i, v), tn_vec_all(gain[i]), -first[v]);
            const tn_vec s = tn_vec_get(scale + v * TN_VEC);
            const tn_vec turned = tn_vec_fma(GET(n, i, v), -second[v], g);
            PUT(dx, i, v, base ? tn_vec_fma(turned, s, GET(base, i, v)) : turned * s);
        }
}

/* --- the block ---------------------------------------------------------------------------------------------------- */

/* u = h + a; x = LN2(u) */
TN_INLINE void block_in(int vecs, const tn_relax_job *j, tn_relax_tile *t, bool keep)
{
    tn_vec sum[TN_VECS], mean[TN_VECS], scale[TN_VECS];
    EACH_VEC(v) sum[v] = (tn_vec){ 0 };
    for (int64_t i = 0; i < j->d; i++)
        EACH_VEC(v) {
            const tn_vec u = GET(t->h, i, v) + GET(t->a, i, v);
            PUT(t->u, i, v, u);
            sum[v] += u;
        }
    measure(vecs, j->d, t->u, sum, mean, scale);
    if (keep) put_lanes(vecs, t->s2, scale);
    normalise(vecs, j->d, t->u, mean, scale, j->gain2, j->bias2, keep ? t->n2 : NULL, t->x);
}

/* y = LN(y + b2 + u) */
TN_INLINE void block_out(int vecs, const tn_relax_job *j, tn_relax_tile *t, bool keep)
{
    tn_vec sum[TN_VECS], mean[TN_VECS], scale[TN_VECS];
    EACH_VEC(v) sum[v] = (tn_vec){ 0 };
    for (int64_t i = 0; i < j->d; i++)
        EACH_VEC(v) {
            const tn_vec y = GET(t->y, i, v) + j->b2[i] + GET(t->u, i, v);
            PUT(t->y, i, v, y);
            sum[v] += y;
        }
    measure(vecs, j->d, t->y, sum, mean, scale);
    if (keep) put_lanes(vecs, t->s, scale);
    normalise(vecs, j->d, t->y, mean, scale, j->gain, j->bias, keep ? t->n : NULL, t->y);
}

static void apply_block(const tn_relax_job *j, tn_relax_tile *t, bool keep)
{
    BY_WIDTH(t->width, block_in, j, t, keep);
    tn_relax_multiply(j, &j->up, t, t->x, t->z);
    if (keep) BY_WIDTH(t->width, gelu_rows, j->f, t->z, j->b1, t->slope);
    else BY_WIDTH(t->width, gelu_rows, j->f, t->z, j->b1, NULL);
    tn_relax_multiply(j, &j->down, t, t->z, t->y);
    BY_WIDTH(t->width, block_out, j, t, keep);
}

TN_INLINE void times(int vecs, int64_t n, float *z, const float *by)
{
    for (int64_t i = 0; i < n; i++) EACH_VEC(v) PUT(z, i, v, GET(z, i, v) * GET(by, i, v));
}

static void pull_block(const tn_relax_job *j, tn_relax_tile *t, const float *lambda)
{
    BY_WIDTH(t->width, norm_back, j->d, lambda, j->gain, t->n, t->s, NULL, t->u);
    tn_relax_multiply(j, &j->up_back, t, t->u, t->z);
    BY_WIDTH(t->width, times, j->f, t->z, t->slope);
    tn_relax_multiply(j, &j->down_back, t, t->z, t->x);
    BY_WIDTH(t->width, norm_back, j->d, t->x, j->gain2, t->n2, t->s2, t->u, t->y);
}

/* --- the energy --------------------------------------------------------------------------------------------------- */

/* y = base + scale y; base NULL: 0 */
TN_INLINE void scale_rows(int vecs, const tn_relax_job *j, float *y, const float *base)
{
    const tn_vec s = tn_vec_all(j->scale);
    for (int64_t i = 0; i < j->d; i++)
        EACH_VEC(v) PUT(y, i, v, base ? tn_vec_fma(GET(y, i, v), s, GET(base, i, v)) : GET(y, i, v) * s);
}

/* 1 - t^2, exact where t is near 1. */
TN_INLINE float slope_of_tanh(float t) { return (1 - t) * (1 + t); }

static void apply_energy(const tn_relax_job *j, tn_relax_tile *t, bool keep)
{
    tn_relax_multiply(j, &j->up, t, t->h, t->z);
    BY_WIDTH(t->width, add_bias, j->f, t->z, j->b1);
    tn_v_map(t->z, t->z, j->f * t->width, tn_v_tanh);
    if (keep) {
        tn_v_map(t->slope, t->z, j->f * t->width, slope_of_tanh);
        memcpy(t->x, t->h, sizeof *t->x * (size_t)(j->d * t->width));
    }
    tn_relax_multiply(j, &j->down, t, t->z, t->y);
    BY_WIDTH(t->width, scale_rows, j, t->y, t->a);
}

static void pull_energy(const tn_relax_job *j, tn_relax_tile *t, const float *lambda)
{
    tn_relax_multiply(j, &j->up_back, t, lambda, t->z);
    BY_WIDTH(t->width, times, j->f, t->z, t->slope);
    tn_relax_multiply(j, &j->down_back, t, t->z, t->y);
    BY_WIDTH(t->width, scale_rows, j, t->y, NULL);
}

/* --- both --------------------------------------------------------------------------------------------------------- */

TN_LEVELED(void, tn_relax_apply, (const tn_relax_job *j, tn_relax_tile *t, bool keep), (j, t, keep))
{
    if (j->block) apply_block(j, t, keep);
    else apply_energy(j, t, keep);
}

TN_LEVELED(void, tn_relax_pull, (const tn_relax_job *j, tn_relax_tile *t, const float *lambda), (j, t, lambda))
{
    if (j->block) pull_block(j, t, lambda);
    else pull_energy(j, t, lambda);
}

/* logits become weight (softmax - onehot), or 0 where there is no label. */
TN_INLINE void soften(int vecs, const tn_relax_job *j, tn_relax_tile *t)
{
    tn_vec most[TN_VECS], sum[TN_VECS];
    EACH_VEC(v) most[v] = GET(t->logits, 0, v) + j->head_b[0];
    for (int64_t i = 0; i < j->C; i++)
        EACH_VEC(v) {
            const tn_vec x = GET(t->logits, i, v) + j->head_b[i];
            PUT(t->logits, i, v, x);
            most[v] = tn_vec_max(x, most[v]);
        }
    for (int64_t i = 0; i < j->C; i++) EACH_VEC(v) PUT(t->logits, i, v, GET(t->logits, i, v) - most[v]);
    tn_v_map(t->logits, t->logits, j->C * t->width, tn_v_exp_weight);
    EACH_VEC(v) sum[v] = (tn_vec){ 0 };
    for (int64_t i = 0; i < j->C; i++) EACH_VEC(v) sum[v] += GET(t->logits, i, v);
    EACH_VEC(v) sum[v] = tn_vec_get(t->weight + v * TN_VEC) / sum[v];
    for (int64_t i = 0; i < j->C; i++) EACH_VEC(v) PUT(t->logits, i, v, GET(t->logits, i, v) * sum[v]);
    for (int l = 0; l < t->live; l++) {
        if (t->label[l] >= 0) t->logits[t->label[l] * t->width + l] -= t->weight[l];
        for (int64_t i = 0; t->label[l] < 0 && i < j->C; i++) t->logits[i * t->width + l] = 0;
    }
}

TN_INLINE void move_by(int vecs, int64_t d, float *y, const float *force, const float *eta)
{
    for (int64_t i = 0; i < d; i++)
        EACH_VEC(v) PUT(y, i, v, tn_vec_fma(-tn_vec_get(eta + v * TN_VEC), GET(force, i, v), GET(y, i, v)));
}

TN_INLINE void take_off(int vecs, int64_t d, float *y, const float *rest)
{
    for (int64_t i = 0; i < d; i++) EACH_VEC(v) PUT(y, i, v, GET(y, i, v) - GET(rest, i, v));
}

TN_LEVELED(void, tn_relax_nudge, (const tn_relax_job *j, tn_relax_tile *t), (j, t))
{
    if (t->rest) BY_WIDTH(t->width, take_off, j->d, t->y, t->rest);
    tn_relax_multiply(j, &j->head, t, t->y, t->logits);
    BY_WIDTH(t->width, soften, j, t);
    tn_relax_multiply(j, &j->head_back, t, t->logits, t->u);
    BY_WIDTH(t->width, move_by, j->d, t->y, t->u, t->eta);
}

TN_INLINE void advance(int vecs, const tn_relax_job *j, tn_relax_tile *t, bool looks)
{
    const tn_vec new = tn_vec_all(j->damping), old = tn_vec_all(1 - j->damping);
    tn_vec apart[TN_VECS], size[TN_VECS], moved[TN_VECS];
    float far[TN_LANES], large[TN_LANES];
    EACH_VEC(v) apart[v] = size[v] = moved[v] = (tn_vec){ 0 };
    for (int64_t i = 0; i < j->d; i++)
        EACH_VEC(v) {
            const tn_vec h = GET(t->h, i, v), y = GET(t->y, i, v), next = tn_vec_fma(new, y, old * h);
            const tn_vec r = y - h, step = next - h;
            apart[v] = tn_vec_fma(r, r, apart[v]);
            size[v] = tn_vec_fma(y, y, size[v]);
            moved[v] = tn_vec_fma(step, step, moved[v]);
            if (!looks) PUT(t->h, i, v, next);
        }
    put_lanes(vecs, far, apart);
    put_lanes(vecs, large, size);
    put_lanes(vecs, t->moved, moved);
    TN_VECTOR for (int l = 0; l < vecs * TN_VEC; l++) {
        const float f = sqrtf(large[l]);
        t->distance[l] = sqrtf(far[l]);
        t->residual[l] = t->distance[l] / (f > LEAST_SIZE ? f : LEAST_SIZE);
    }
}

/* The residuals again, as parts of the move. */
TN_INLINE void by_move(int vecs, int64_t d, tn_relax_tile *t)
{
    tn_vec gone[TN_VECS], size[TN_VECS];
    float far[TN_LANES], large[TN_LANES];
    EACH_VEC(v) gone[v] = size[v] = (tn_vec){ 0 };
    for (int64_t i = 0; i < d; i++)
        EACH_VEC(v) {
            const tn_vec y = GET(t->y, i, v), off = y - GET(t->origin, i, v);
            gone[v] = tn_vec_fma(off, off, gone[v]);
            size[v] = tn_vec_fma(y, y, size[v]);
        }
    put_lanes(vecs, far, gone);
    put_lanes(vecs, large, size);
    for (int l = 0; l < vecs * TN_VEC; l++) {
        const float least = LEAST_MOVE * sqrtf(large[l]), f = sqrtf(far[l]) > least ? sqrtf(far[l]) : least;
        t->residual[l] = t->distance[l] / (f > LEAST_SIZE ? f : LEAST_SIZE);
    }
}

TN_LEVELED(void, tn_relax_advance, (const tn_relax_job *j, tn_relax_tile *t, bool looks), (j, t, looks))
{
    BY_WIDTH(t->width, advance, j, t, looks);
    if (t->origin) BY_WIDTH(t->width, by_move, j->d, t);
}

TN_INLINE void add_rows(int vecs, int64_t d, float *y, const float *a)
{
    for (int64_t i = 0; i < d; i++) EACH_VEC(v) PUT(y, i, v, GET(y, i, v) + GET(a, i, v));
}

TN_LEVELED(void, tn_relax_add, (const tn_relax_job *j, tn_relax_tile *t), (j, t))
{
    BY_WIDTH(t->width, add_rows, j->d, t->y, t->a);
}
