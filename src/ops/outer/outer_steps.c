/* outer, token by token: the plain form of a chunk, as the recurrence is written. For single tokens (decoding) and for
 * opt.outer=off. Keeps to the same contract as the chunks of matrix products in outer_cpu.c. */
#include "ops/outer/outer_cpu.h"

#include <math.h>
#include <string.h>

/* to = decay from + k_t v_t^T; to may be from; from NULL is zero. (N,P) */
static void advance(const tn_outer_seq *s, int64_t t, const float *from, float *to)
{
    const float decay = from ? expf(tn_strided_at(s->alpha, t, 0)) : 0;
    tn_strided_load(s->v, t, s->P, s->clean);
    for (int64_t n = 0; n < s->N; n++) {
        const float k = tn_strided_at(s->k, t, n);
        const float *v = s->clean, *f = from ? from + n * s->P : NULL;
        float *y = to + n * s->P;
        if (f)
            for (int64_t p = 0; p < s->P; p++) y[p] = decay * f[p] + k * v[p];
        else
            for (int64_t p = 0; p < s->P; p++) y[p] = k * v[p];
    }
}

void tn_outer_steps_forward(const tn_outer_seq *s, const tn_outer_chunk *k)
{
    for (int64_t i = 0; i < k->c; i++) {
        const int64_t t = k->t0 + i;
        advance(s, t, i || !k->fresh ? s->s : NULL, s->s);
        if (!s->o.data) continue; /* only the state is asked for */
        memset(s->x, 0, sizeof *s->x * (size_t)s->P);
        for (int64_t n = 0; n < s->N; n++) {
            const float q = tn_strided_at(s->q, t, n);
            for (int64_t p = 0; p < s->P; p++) s->x[p] += q * s->s[n * s->P + p];
        }
        tn_strided_store(s->o, t, s->P, s->x);
    }
}

/* Gradients of q_t, k_t, v_t. g is dL/dS_t without what flows through o_t, which is added. now: S_t, or NULL. (N,P) */
static void token_backward(const tn_outer_seq *s, int64_t t, const float *now)
{
    const int64_t N = s->N, P = s->P;
    float *v = s->clean, *d = s->x, *dv = s->token, *dq = dv + P, *dk = dq + N;
    tn_strided_load(s->d_o, t, P, d);
    tn_strided_load(s->v, t, P, v);
    memset(s->token, 0, sizeof *s->token * (size_t)(P + 2 * N));
    for (int64_t n = 0; n < N; n++) {
        const float q = tn_strided_at(s->q, t, n), k = s->k.data ? tn_strided_at(s->k, t, n) : 0;
        float *g = s->g + n * P;
        double q_sum = 0, k_sum = 0;
        for (int64_t p = 0; p < P; p++) {
            g[p] += q * d[p];
            dv[p] += k * g[p];
        }
        for (int64_t p = 0; now && p < P; p++) q_sum += (double)now[n * P + p] * (double)d[p];
        for (int64_t p = 0; p < P; p++) k_sum += (double)g[p] * (double)v[p];
        dq[n] = (float)q_sum;
        dk[n] = (float)k_sum;
    }
    if (s->dq.data) tn_strided_store(s->dq, t, N, dq);
    if (s->dk.data) tn_strided_store(s->dk, t, N, dk);
    if (s->dv.data) tn_strided_store(s->dv, t, P, dv);
}

void tn_outer_steps_backward(const tn_outer_seq *s, const tn_outer_chunk *k)
{
    const int64_t size = s->N * s->P;
    const bool states = s->dq.data || s->dalpha.data;
    for (int64_t i = 0; states && i < k->c; i++)
        advance(s, k->t0 + i, i ? s->history + (i - 1) * size : k->s0, s->history + i * size);
    for (int64_t i = k->c; i-- > 0;) {
        const int64_t t = k->t0 + i;
        const float *before = i ? s->history + (i - 1) * size : k->s0;
        const bool fresh = !i && k->fresh; /* nothing flows into this token */
        const float decay = fresh ? 0 : expf(tn_strided_at(s->alpha, t, 0));
        token_backward(s, t, states ? s->history + i * size : NULL);
        if (s->dalpha.data) {
            double d = 0;
            for (int64_t j = 0; !fresh && j < size; j++) d += (double)before[j] * (double)s->g[j];
            tn_strided_store(s->dalpha, t, 1, &(float){ (float)((double)decay * d) });
        }
        for (int64_t j = 0; j < size; j++) s->g[j] = fresh ? 0 : decay * s->g[j];
    }
}
