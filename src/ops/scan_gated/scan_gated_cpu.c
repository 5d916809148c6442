/* scan_gated on the CPU: gates become lambda and gain piece by piece inside the recurrence of scan_core.h, forward and
 * again backward, so that neither rho nor gamma ever exists as a tensor. With u = expm1(l): rho = 1 + u and
 * 1 - rho^2 = -u (2 + u), accurate near rho = 1, from one exponential. */
#include "backend/cpu/vmath.h"
#include "ops/scan/scan_core.h"
#include "ops/scan_gated/scan_gated.h"

tn_kernel tn_scan_gated_forward_cpu, tn_scan_gated_backward_cpu;
size_t tn_scan_gated_work_cpu(const tn_sig *s, bool backward);

enum { W = TN_SCAN_W, BLOCK = TN_V_BLOCK };

static const float floor_under_root = 1e-6f;

/* Buffers of a piece: u = rho - 1 and gain for the core, gamma and slope = -dgamma/dl for the sink. */
enum { U, GAIN, GAMMA, SLOPE };

/* Tables: -8 softplus(nu), (padded K), and powers of e^{i omega}; the first are its cos and sin. */
typedef struct gates {
    int64_t T, K, padded_K;
    tn_scan_tensor ri, dri; /* (B,T,2K); dri may be NULL: not wanted */
    const float *nu;        /* (K) */
    tn_scan_powers turn;
    const float *cs, *sn; /* (padded K) */
    float *rate;
    bool backward;       /* the sink's buffers are filled too */
    float *dnu, *domega; /* NULL: not wanted */
    bool add_ri, add_nu, add_omega;
} gates;

static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }

static void fill_table(gates *s, const float *omega)
{
    for (int64_t k = 0; k < s->padded_K; k++) {
        s->rate[k] = k < s->K ? (float)(-8 * softplus((double)s->nu[k])) : 0;
        s->turn.wide_re[s->padded_K + k] = k < s->K ? cos((double)omega[k]) : 0;
        s->turn.wide_im[s->padded_K + k] = k < s->K ? sin((double)omega[k]) : 0;
    }
    tn_scan_powers_fill(&s->turn, s->padded_K);
    s->cs = s->turn.re + s->padded_K;
    s->sn = s->turn.im + s->padded_K;
}

/* One block of channels of one token, l = rate r: u, gamma = sqrt(v), gain, and slope = rho^2 / gamma. The error of u is
 * relative to u, so that of a memory of 1/u tokens stays at rounding. NaN stays. Results go through local arrays: only
 * then does gcc see that they may be vectors. */
TN_INLINE void open_gates(const float *rate, const float *r, const float *in, tn_scan_coef *q, int64_t o, bool backward)
{
    float u[BLOCK], v[BLOCK], inverse[BLOCK], gamma[BLOCK], out[BLOCK];
    TN_UNROLL
    for (int k = 0; k < BLOCK; k++) u[k] = tn_v_expm1_below(rate[k] * r[k]);
    memcpy(q->buf[U] + o, u, sizeof u);
    TN_UNROLL
    for (int k = 0; k < BLOCK; k++) v[k] = tn_v_at_least(-u[k] * (2.0f + u[k]), floor_under_root);
    TN_UNROLL
    for (int k = 0; k < BLOCK; k++) inverse[k] = tn_v_inverse_sqrt(v[k]);
    TN_UNROLL
    for (int k = 0; k < BLOCK; k++) gamma[k] = v[k] * inverse[k];
    TN_UNROLL
    for (int k = 0; k < BLOCK; k++) out[k] = gamma[k] * in[k];
    memcpy(q->buf[GAIN] + o, out, sizeof out);
    if (!backward) return;
    memcpy(q->buf[GAMMA] + o, gamma, sizeof gamma);
    TN_UNROLL
    for (int k = 0; k < BLOCK; k++) { /* the clamp has none */
        const float rho = 1.0f + u[k];
        out[k] = tn_v_pick(v[k] <= floor_under_root, 0.0f, rho * rho * inverse[k]);
    }
    memcpy(q->buf[SLOPE] + o, out, sizeof out);
}

/* All blocks of a token; the last is filled up with zeros. */
TN_INLINE void coef_token(const gates *s, const float *r, const float *in, const tn_scan_at *at, tn_scan_coef *q,
                          int64_t o, bool backward)
{
    float last[3][BLOCK] = { { 0 } };
    int64_t k = 0;
    for (; k + BLOCK <= at->w; k += BLOCK) open_gates(s->rate + at->k + k, r + k, in + k, q, o + k, backward);
    if (k == at->w) return;
    const size_t bytes = sizeof(float) * (size_t)(at->w - k);
    memcpy(last[0], s->rate + at->k + k, bytes);
    memcpy(last[1], r + k, bytes);
    memcpy(last[2], in + k, bytes);
    open_gates(last[0], last[1], last[2], q, o + k, backward);
}

static const float *ri_at(const gates *s, const tn_scan_at *at, int64_t i)
{
    return s->ri.at + at->b * s->ri.b + (at->t + i) * s->ri.t + at->k;
}

static void coef(const void *self, const tn_scan_at *at, tn_scan_coef *q)
{
    const gates *s = self;
    tn_scan_powers_use(&s->turn, s->padded_K, at->k, q);
    q->u = q->buf[U];
    q->gain = q->buf[GAIN];
    q->gain_step = W;
    for (int64_t i = 0; i < at->n; i++) {
        const float *r = ri_at(s, at, i);
        if (s->backward) coef_token(s, r, r + s->K, at, q, i * W, true);
        else coef_token(s, r, r + s->K, at, q, i * W, false);
    }
}

/* One token: h = dL/dl, then the gates' gradients, and the sums r h (for nu) and omega's. */
TN_INLINE void sink_token(const gates *s, const tn_scan_at *at, const tn_scan_coef *q, const tn_scan_found *f,
                          int64_t i, float *restrict rh, float *restrict turn, float *restrict dr, bool add)
{
    const float *restrict r = ri_at(s, at, i), *restrict in = r + s->K, *restrict rate = s->rate + at->k;
    const float *restrict mr = f->mr + i * W, *restrict mi = f->mi + i * W, *restrict e = f->e + i * W;
    const float *restrict u = q->buf[U] + i * W, *restrict gamma = q->buf[GAMMA] + i * W,
                          *restrict slope = q->buf[SLOPE] + i * W;
    const float *restrict cs = s->cs + at->k, *restrict sn = s->sn + at->k;
    float h[W];
    for (int64_t k = 0; k < at->w; k++) {
        const float rho = 1.0f + u[k];
        h[k] = (mr[k] * cs[k] + mi[k] * sn[k]) * rho - in[k] * e[k] * slope[k];
        rh[k] += r[k] * h[k];
        turn[k] += rho * (mi[k] * cs[k] - mr[k] * sn[k]);
    }
    if (!dr) return;
    for (int64_t k = 0; k < at->w; k++) {
        dr[k] = add ? dr[k] + rate[k] * h[k] : rate[k] * h[k];
        dr[s->K + k] = add ? dr[s->K + k] + gamma[k] * e[k] : gamma[k] * e[k];
    }
}

static void sink(const void *self, const tn_scan_at *at, const tn_scan_coef *q, const tn_scan_found *f,
                 double *const *sums)
{
    const gates *s = self;
    float rh[W] = { 0 }, turn[W] = { 0 }; /* over the piece in f32, then to the double */
    for (int64_t i = 0; i < at->n; i++) {
        float *dr = s->dri.at ? s->dri.at + at->b * s->dri.b + (at->t + i) * s->dri.t + at->k : NULL;
        if (s->add_ri) sink_token(s, at, q, f, i, rh, turn, dr, true);
        else sink_token(s, at, q, f, i, rh, turn, dr, false);
    }
    for (int64_t k = 0; k < at->w; k++) sums[0][k] += (double)rh[k];
    for (int64_t k = 0; k < at->w; k++) sums[1][k] += (double)turn[k];
}

/* Only omega is wanted: no gates, so e does not exist. */
static void sink_turn(const void *self, const tn_scan_at *at, const tn_scan_coef *q, const tn_scan_found *f,
                      double *const *sums)
{
    const gates *s = self;
    const float *cs = s->cs + at->k, *sn = s->sn + at->k;
    for (int64_t i = 0; i < at->n; i++)
        for (int64_t k = 0; k < at->w; k++) {
            const int64_t o = i * W + k;
            sums[1][k] += (double)((1 + q->u[o]) * (f->mi[o] * cs[k] - f->mr[o] * sn[k]));
        }
}

static void finish_sums(const gates *s, const double *sums)
{
    for (int64_t k = 0; k < s->K; k++) {
        const double slope = -8 / (1 + exp(-(double)s->nu[k])); /* of -8 softplus(nu) */
        if (s->dnu) s->dnu[k] = (float)(slope * sums[k]) + (s->add_nu ? s->dnu[k] : 0.f);
        if (s->domega) s->domega[k] = (float)sums[s->padded_K + k] + (s->add_omega ? s->domega[k] : 0.f);
    }
}

/* --- the kernels -------------------------------------------------------------------------------------------------- */

static size_t table_bytes(int64_t padded_K) /* a multiple of 16: K is in units of four */
{
    return tn_scan_powers_bytes(padded_K) + (size_t)padded_K * sizeof(float);
}

size_t tn_scan_gated_work_cpu(const tn_sig *s, bool backward)
{
    const int64_t *d = s->in[TN_GATED_X].dims.dim, K = d[2] / 2;
    (void)backward;
    return table_bytes(tn_scan_padded(K)) +
           tn_scan_core_work(d[0], d[1], K, ((const tn_scan_gated_attr *)s->attr)->chunk);
}

static void set_up(const tn_call *c, gates *s, tn_scan_job *j, bool backward)
{
    const int64_t *d = c->in[TN_GATED_X].dims.dim, padded_K = tn_scan_padded(d[2] / 2);
    *s = (gates){ .T = d[1], .K = d[2] / 2, .padded_K = padded_K, .nu = c->in[TN_GATED_NU].data };
    s->ri = tn_scan_tensor_of(&c->in[TN_GATED_RI]);
    s->turn = tn_scan_powers_in(c->work, padded_K);
    s->rate = s->turn.im + (TN_SCAN_N + 1) * padded_K;
    fill_table(s, c->in[TN_GATED_OMEGA].data);
    *j = tn_scan_job_of(c, backward, ((const tn_scan_gated_attr *)c->attr)->chunk, TN_GATED_STATE, TN_GATED_RESET,
                        table_bytes(padded_K));
    j->self = s;
    j->coef = coef;
}

tn_status tn_scan_gated_forward_cpu(const tn_call *c)
{
    gates s;
    tn_scan_job j;
    set_up(c, &s, &j, false);
    tn_scan_core_forward(c->pool, &j);
    return TN_OK;
}

tn_status tn_scan_gated_backward_cpu(const tn_call *c)
{
    gates s;
    tn_scan_job j;
    set_up(c, &s, &j, true);
    s.backward = true;
    s.dri = tn_scan_tensor_of(&c->din[TN_GATED_RI]);
    s.dnu = c->din[TN_GATED_NU].data;
    s.domega = c->din[TN_GATED_OMEGA].data;
    s.add_ri = c->accumulate >> TN_GATED_RI & 1;
    s.add_nu = c->accumulate >> TN_GATED_NU & 1;
    s.add_omega = c->accumulate >> TN_GATED_OMEGA & 1;
    j.want_e = s.dri.at || s.dnu;
    j.want_m = j.want_e || s.domega;
    j.sink = j.want_e ? sink : j.want_m ? sink_turn : NULL;
    tn_scan_core_backward(c->pool, &j);
    if (j.sink && j.K) finish_sums(&s, j.sums);
    return TN_OK;
}
