/* The maps of relax on a tile, their gradients by the state, the nudge and the damped step. Everything here is a loop over
 * rows of features whose vectors are samples: sums over features are sums of vectors in the order of the features, so a
 * sample's numbers are the same in every lane and width. */
#include "backend/cpu/level.h"
#include "backend/cpu/vec.h"
#include "ops/relax/relax_cpu.h"
#include "ops/relax/relax_gelu.h"
#include "ops/relax/relax_width.h"

static const float EPS = 1e-5f, LEAST_SIZE = 1e-6f, LEAST_MOVE = 1e-3f;

/* --- activations -------------------------------------------------------------------------------------------------- */

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

/* A sum over features runs in so many chains, the features taking turns: where one vector holds all samples, one chain would wait for
 * each addition. A constant of the level, so that the order is that of every width. */
#if defined(__AVX512F__)
enum { CHAINS = 4 };
#else
enum { CHAINS = 1 };
#endif

/* row(vecs, i, sums of the chain, ...) for every feature i < d, and the chains' sums joined in part[0]. */
#define SUM_ROWS(d, part, row, ...)                                                                                    \
    do {                                                                                                               \
        int64_t at_ = 0;                                                                                               \
        TN_UNROLL for (int c_ = 0; c_ < CHAINS; c_++) EACH_VEC(v_) part[c_][v_] = (tn_vec){ 0 };                       \
        for (; at_ + CHAINS <= (d); at_ += CHAINS)                                                                     \
            TN_UNROLL for (int c_ = 0; c_ < CHAINS; c_++) row(vecs, at_ + c_, part[c_], __VA_ARGS__);                  \
        for (; at_ < (d); at_++) row(vecs, at_, part[0], __VA_ARGS__);                                                 \
        TN_UNROLL for (int c_ = 1; c_ < CHAINS; c_++) EACH_VEC(v_) part[0][v_] += part[c_][v_];                        \
    } while (0)

TN_INLINE void square_row(int vecs, int64_t i, tn_vec *square, const float *x, const tn_vec *mean)
{
    EACH_VEC(v)
    {
        const tn_vec apart = GET(x, i, v) - mean[v];
        square[v] = tn_vec_fma(apart, apart, square[v]);
    }
}

/* Of x (d,width), whose sum over features is given: its mean, and the scale that makes its variance 1. */
TN_INLINE void measure(int vecs, int64_t d, const float *x, const tn_vec *sum, tn_vec *mean, tn_vec *scale)
{
    float lanes[TN_LANES];
    tn_vec square[CHAINS][TN_VECS];
    EACH_VEC(v) mean[v] = sum[v] / (float)d;
    SUM_ROWS(d, square, square_row, x, mean);
    put_lanes(vecs, lanes, square[0]);
    TN_VECTOR for (int l = 0; l < vecs * TN_VEC; l++) lanes[l] = 1 / sqrtf(lanes[l] / (float)d + EPS);
    EACH_VEC(v) scale[v] = tn_vec_get(lanes + v * TN_VEC);
}

/* y = n gain + bias, n = (x - mean) scale; n is kept where it has a place. y may be x. */
TN_INLINE void normalise(int vecs, int64_t d, const float *x, const tn_vec *mean, const tn_vec *scale,
                         const float *gain, const float *bias, float *n, float *y)
{
    for (int64_t i = 0; i < d; i++) EACH_VEC(v)
        {
            const tn_vec at = (GET(x, i, v) - mean[v]) * scale[v];
            if (n) PUT(n, i, v, at);
            PUT(y, i, v, tn_vec_fma(at, tn_vec_all(gain[i]), tn_vec_all(bias[i])));
        }
}

TN_INLINE void slope_row(int vecs, int64_t i, tn_vec *sum, const float *dy, const float *gain)
{
    EACH_VEC(v) sum[v] += GET(dy, i, v) * gain[i];
}

TN_INLINE void slope_normal_row(int vecs, int64_t i, tn_vec *sum, const float *dy, const float *gain, const float *n)
{
    EACH_VEC(v) sum[v] = tn_vec_fma(GET(dy, i, v) * gain[i], GET(n, i, v), sum[v]);
}

/* The gradient of a norm: dx = scale (g - mean g - n mean(g n)), g = dy gain; added to `base` if there is one. */
TN_INLINE void norm_back(int vecs, int64_t d, const float *dy, const float *gain, const float *n, const float *scale,
                         const float *base, float *dx)
{
    tn_vec firsts[CHAINS][TN_VECS], seconds[CHAINS][TN_VECS], first[TN_VECS], second[TN_VECS];
    SUM_ROWS(d, firsts, slope_row, dy, gain);
    SUM_ROWS(d, seconds, slope_normal_row, dy, gain, n);
    EACH_VEC(v) first[v] = firsts[0][v] / (float)d;
    EACH_VEC(v) second[v] = seconds[0][v] / (float)d;
    for (int64_t i = 0; i < d; i++) EACH_VEC(v)
        {
            const tn_vec g = tn_vec_fma(GET(dy, i, v), tn_vec_all(gain[i]), -first[v]);
            const tn_vec s = tn_vec_get(scale + v * TN_VEC);
            const tn_vec turned = tn_vec_fma(GET(n, i, v), -second[v], g);
            PUT(dx, i, v, base ? tn_vec_fma(turned, s, GET(base, i, v)) : turned * s);
        }
}

/* --- the block ---------------------------------------------------------------------------------------------------- */

TN_INLINE void in_row(int vecs, int64_t i, tn_vec *sum, const tn_relax_tile *t)
{
    EACH_VEC(v)
    {
        const tn_vec u = GET(t->h, i, v) + GET(t->a, i, v);
        PUT(t->u, i, v, u);
        sum[v] += u;
    }
}

TN_INLINE void out_row(int vecs, int64_t i, tn_vec *sum, const tn_relax_tile *t, const float *b2)
{
    EACH_VEC(v)
    {
        const tn_vec y = GET(t->y, i, v) + b2[i] + GET(t->u, i, v);
        PUT(t->y, i, v, y);
        sum[v] += y;
    }
}

/* u = h + a; x = LN2(u) */
TN_INLINE void block_in(int vecs, const tn_relax_job *j, tn_relax_tile *t, bool keep)
{
    tn_vec sum[CHAINS][TN_VECS], mean[TN_VECS], scale[TN_VECS];
    SUM_ROWS(j->d, sum, in_row, t);
    measure(vecs, j->d, t->u, sum[0], mean, scale);
    if (keep) put_lanes(vecs, t->s2, scale);
    normalise(vecs, j->d, t->u, mean, scale, j->gain2, j->bias2, keep ? t->n2 : NULL, t->x);
}

/* y = LN(y + b2 + u) */
TN_INLINE void block_out(int vecs, const tn_relax_job *j, tn_relax_tile *t, bool keep)
{
    tn_vec sum[CHAINS][TN_VECS], mean[TN_VECS], scale[TN_VECS];
    SUM_ROWS(j->d, sum, out_row, t, j->b2);
    measure(vecs, j->d, t->y, sum[0], mean, scale);
    if (keep) put_lanes(vecs, t->s, scale);
    normalise(vecs, j->d, t->y, mean, scale, j->gain, j->bias, keep ? t->n : NULL, t->y);
}

static void enter_block(const tn_relax_job *j, tn_relax_tile *t, bool keep)
{
    BY_WIDTH(t->width, block_in, j, t, keep);
    tn_relax_multiply(j, &j->up, t, t->x, t->z);
    if (keep) BY_WIDTH(t->width, gelu_rows, j->f, t->z, j->b1, t->slope);
    else BY_WIDTH(t->width, gelu_rows, j->f, t->z, j->b1, NULL);
}

static void apply_block(const tn_relax_job *j, tn_relax_tile *t, unsigned keep)
{
    enter_block(j, t, keep & TN_RELAX_KEEP_IN);
    tn_relax_multiply(j, &j->down, t, t->z, t->y);
    BY_WIDTH(t->width, block_out, j, t, keep & TN_RELAX_KEEP_OUT);
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

static void enter_energy(const tn_relax_job *j, tn_relax_tile *t, bool keep)
{
    tn_relax_multiply(j, &j->up, t, t->h, t->z);
    BY_WIDTH(t->width, add_bias, j->f, t->z, j->b1);
    tn_v_map(t->z, t->z, j->f * t->width, tn_v_tanh);
    if (keep) {
        tn_v_map(t->slope, t->z, j->f * t->width, slope_of_tanh);
        memcpy(t->x, t->h, sizeof *t->x * (size_t)(j->d * t->width));
    }
}

static void apply_energy(const tn_relax_job *j, tn_relax_tile *t, unsigned keep)
{
    enter_energy(j, t, keep & TN_RELAX_KEEP_IN);
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

TN_INLINE void add_rows(int vecs, int64_t d, float *y, const float *a)
{
    for (int64_t i = 0; i < d; i++) EACH_VEC(v) PUT(y, i, v, GET(y, i, v) + GET(a, i, v));
}

/* --- hopfield ----------------------------------------------------------------------------------------------------- */

static void enter_hopfield(const tn_relax_job *j, tn_relax_tile *t, bool keep)
{
    tn_v_map(t->z, t->h, j->d * t->width, tn_v_tanh);
    if (keep) tn_v_map(t->slope, t->z, j->d * t->width, slope_of_tanh);
}

static void apply_hopfield(const tn_relax_job *j, tn_relax_tile *t, unsigned keep)
{
    enter_hopfield(j, t, keep & TN_RELAX_KEEP_IN);
    tn_relax_multiply(j, &j->down, t, t->z, t->y);
    BY_WIDTH(t->width, add_rows, j->d, t->y, t->a);
}

static void pull_hopfield(const tn_relax_job *j, tn_relax_tile *t, const float *lambda)
{
    tn_relax_multiply(j, &j->up_back, t, lambda, t->y);
    BY_WIDTH(t->width, times, j->d, t->y, t->slope);
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

/* What a map's row has (relax_plain.c). */
#define MAP(name)                                                                                                      \
    TN_LEVELED(void, tn_relax_apply_##name, (const tn_relax_job *j, tn_relax_tile *t, unsigned keep), (j, t, keep))    \
    {                                                                                                                  \
        apply_##name(j, t, keep);                                                                                      \
    }                                                                                                                  \
    TN_LEVELED(void, tn_relax_enter_##name, (const tn_relax_job *j, tn_relax_tile *t), (j, t))                         \
    {                                                                                                                  \
        enter_##name(j, t, true);                                                                                      \
    }                                                                                                                  \
    TN_LEVELED(void, tn_relax_pull_##name, (const tn_relax_job *j, tn_relax_tile *t, const float *lambda),             \
               (j, t, lambda))                                                                                         \
    {                                                                                                                  \
        pull_##name(j, t, lambda);                                                                                     \
    }

MAP(block)
MAP(energy)
MAP(hopfield)

/* logits become weight (softmax - onehot), or 0 where there is no label. */
TN_INLINE void soften(int vecs, const tn_relax_job *j, tn_relax_tile *t)
{
    tn_vec most[TN_VECS], sum[TN_VECS];
    EACH_VEC(v) most[v] = GET(t->logits, 0, v) + j->head_b[0];
    for (int64_t i = 0; i < j->C; i++) EACH_VEC(v)
        {
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
    if (j->hopfield) tn_v_map(t->x, t->y, j->d * t->width, tn_v_tanh);
    tn_relax_multiply(j, &j->head, t, j->hopfield ? t->x : t->y, t->logits);
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
    for (int64_t i = 0; i < j->d; i++) EACH_VEC(v)
        {
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
    TN_VECTOR for (int l = 0; l < vecs * TN_VEC; l++)
    {
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
    for (int64_t i = 0; i < d; i++) EACH_VEC(v)
        {
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

TN_LEVELED(void, tn_relax_add, (const tn_relax_job *j, tn_relax_tile *t), (j, t))
{
    BY_WIDTH(t->width, add_rows, j->d, t->y, t->a);
}
