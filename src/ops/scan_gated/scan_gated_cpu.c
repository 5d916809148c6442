/* scan_gated on the CPU: gates become lambda and gain piece by piece inside the recurrence of scan_core.h, forward and
 * again backward, so that neither rho nor gamma ever exists as a tensor. With u = expm1(l): rho = 1 + u and
 * 1 - rho^2 = -u (2 + u), accurate near rho = 1, from one exponential. */
#include "ops/scan_gated/scan_gated_cpu.h"

#include "backend/cpu/vmath.h"
#include "ops/scan/scan_core.h"
#include "ops/scan/scan_math.h"
#include "ops/scan_gated/scan_gated.h"

enum { W = TN_SCAN_W, TABLE_ROWS = 3 };

static const float floor_under_root = 1e-6f;

/* Buffers of a piece: lambda and gain for the core, the rest for the sink. SLOPE is -dgamma/dl. */
enum { LAMBDA_RE, LAMBDA_IM, GAIN, RHO, GAMMA, SLOPE };

typedef struct gates {
    int64_t T, K, padded_K;
    const float *ri;           /* (B,T,2K) */
    const float *nu;           /* (K) */
    float *rate;               /* (padded K): -8 softplus(nu) */
    double *cs, *sn;           /* (padded K): cos and sin of omega */
    bool backward;             /* the sink's buffers are filled too */
    float *dri, *dnu, *domega; /* NULL: not wanted */
    bool add_ri, add_nu, add_omega;
} gates;

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static void fill_table(gates *s, const float *omega)
{
    for (int64_t k = 0; k < s->padded_K; k++) {
        s->rate[k] = k < s->K ? (float)(-8 * softplus((double)s->nu[k])) : 0;
        s->cs[k] = k < s->K ? cos((double)omega[k]) : 0;
        s->sn[k] = k < s->K ? sin((double)omega[k]) : 0;
    }
}

/* Gates of one token in f32: u = rho - 1 and gamma. The error of u is relative to u, so that of a memory of 1/u tokens
 * stays at rounding. Two short loops: the processor overlaps their iterations, of one long chain it would not. */
static void open_gates(const float *restrict rate, const float *restrict r, int64_t w, float *restrict u,
                       float *restrict gamma)
{
    for (int64_t k = 0; k < w; k++) u[k] = tn_v_expm1(rate[k] * r[k]);
    for (int64_t k = 0; k < w; k++) {
        const float v = -u[k] * (2 + u[k]);
        gamma[k] = sqrtf(v < floor_under_root ? floor_under_root : v); /* NaN stays */
    }
}

static void coef_token(const gates *s, const float *restrict r, const float *restrict i, int64_t k0, int64_t w,
                       tn_scan_coef *q, int64_t o)
{
    const double *restrict cs = s->cs + k0, *restrict sn = s->sn + k0;
    double *restrict lr = q->buf[LAMBDA_RE] + o, *restrict li = q->buf[LAMBDA_IM] + o,
                     *restrict gain = q->buf[GAIN] + o;
    double *restrict rho = q->buf[RHO] + o, *restrict gamma = q->buf[GAMMA] + o, *restrict slope = q->buf[SLOPE] + o;
    float u[W], root[W];
    open_gates(s->rate + k0, r, w, u, root);
    for (int64_t k = 0; k < w; k++) {
        const double p = 1 + (double)u[k];
        lr[k] = p * cs[k];
        li[k] = p * sn[k];
        gain[k] = (double)root[k] * (double)i[k];
    }
    for (int64_t k = 0; s->backward && k < w; k++) {
        const float v = -u[k] * (2 + u[k]), p = 1 + u[k];
        rho[k] = 1 + (double)u[k];
        gamma[k] = (double)root[k];
        slope[k] = (double)(v < floor_under_root ? 0 : p * p / root[k]); /* the clamp has none */
    }
    for (int64_t k = w; k < tn_scan_padded(w); k++) lr[k] = li[k] = gain[k] = 0;
}

static void coef(const void *self, const tn_scan_at *at, tn_scan_coef *q)
{
    const gates *s = self;
    q->lr = q->buf[LAMBDA_RE];
    q->li = q->buf[LAMBDA_IM];
    q->cs = s->cs + at->k;
    q->sn = s->sn + at->k;
    q->gain = q->buf[GAIN];
    q->step = q->gain_step = W;
    q->turn_step = 0;
    for (int64_t i = 0; i < at->n; i++) {
        const float *r = s->ri + (at->b * s->T + at->t + i) * 2 * s->K + at->k;
        coef_token(s, r, r + s->K, at->k, at->w, q, i * W);
    }
}

/* One token: h = dL/dl, then the gates' gradients, and the sums r h (for nu) and omega's. */
static void sink_token(const gates *s, const tn_scan_at *at, const tn_scan_coef *q, const tn_scan_found *f, int64_t i,
                       double *restrict rh, double *restrict turn)
{
    const int64_t row = (at->b * s->T + at->t + i) * 2 * s->K + at->k, o = i * W;
    const float *restrict r = s->ri + row, *restrict in = r + s->K;
    const double *restrict mr = f->mr + o, *restrict mi = f->mi + o, *restrict e = f->e + o;
    const double *restrict rho = q->buf[RHO] + o, *restrict gamma = q->buf[GAMMA] + o,
                           *restrict slope = q->buf[SLOPE] + o;
    const double *restrict cs = q->cs, *restrict sn = q->sn;
    const float *restrict rate = s->rate + at->k;
    double dr[W], di[W];
    for (int64_t k = 0; k < at->w; k++) {
        const double h = (mr[k] * cs[k] + mi[k] * sn[k]) * rho[k] - (double)in[k] * e[k] * slope[k];
        rh[k] += (double)r[k] * h;
        turn[k] += rho[k] * (mi[k] * cs[k] - mr[k] * sn[k]);
        dr[k] = (double)rate[k] * h;
        di[k] = gamma[k] * e[k];
    }
    for (int64_t k = 0; s->dri && k < at->w; k++) {
        s->dri[row + k] = (float)dr[k] + (s->add_ri ? s->dri[row + k] : 0.f);
        s->dri[row + s->K + k] = (float)di[k] + (s->add_ri ? s->dri[row + s->K + k] : 0.f);
    }
}

static void sink(const void *self, const tn_scan_at *at, const tn_scan_coef *q, const tn_scan_found *f,
                 double *const *sums)
{
    for (int64_t i = 0; i < at->n; i++) sink_token(self, at, q, f, i, sums[0], sums[1]);
}

/* Only omega is wanted: no gates, so e does not exist. */
static void sink_turn(const void *self, const tn_scan_at *at, const tn_scan_coef *q, const tn_scan_found *f,
                      double *const *sums)
{
    (void)self;
    for (int64_t i = 0; i < at->n; i++)
        for (int64_t k = 0; k < at->w; k++) {
            const int64_t o = i * W + k;
            sums[1][k] += q->buf[RHO][o] * (f->mi[o] * q->cs[k] - f->mr[o] * q->sn[k]);
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

size_t tn_scan_gated_cpu_work(int64_t B, int64_t T, int64_t K, int64_t chunk)
{
    return (size_t)(TABLE_ROWS * tn_scan_padded(K)) * sizeof(double) + tn_scan_core_work(B, T, K, chunk);
}

static void set_up(const tn_call *c, gates *s, tn_scan_job *j)
{
    const int64_t *d = c->in[TN_GATED_X].dims.dim, padded_K = tn_scan_padded(d[2] / 2);
    double *table = c->work;
    *s = (gates){ .T = d[1],
                  .K = d[2] / 2,
                  .padded_K = padded_K,
                  .ri = c->in[TN_GATED_RI].data,
                  .nu = c->in[TN_GATED_NU].data,
                  .cs = table,
                  .sn = table + padded_K };
    s->rate = (float *)(void *)(table + 2 * padded_K);
    fill_table(s, c->in[TN_GATED_OMEGA].data);
    *j = (tn_scan_job){ .B = d[0], .T = d[1], .K = d[2] / 2, .chunk = ((const tn_scan_gated_attr *)c->attr)->chunk };
    j->rows = tn_scan_rows(c);
    j->x = c->in[TN_GATED_X].data;
    j->state = c->in[TN_GATED_STATE].data;
    j->reset = c->in[TN_GATED_RESET].data;
    j->c = c->out[0].data;
    j->self = s;
    j->coef = coef;
    j->work = table + TABLE_ROWS * padded_K;
}

tn_status tn_scan_gated_forward_cpu(const tn_call *c)
{
    gates s;
    tn_scan_job j;
    set_up(c, &s, &j);
    j.final = c->out[1].data;
    tn_scan_core_forward(c->pool, &j);
    return TN_OK;
}

tn_status tn_scan_gated_backward_cpu(const tn_call *c)
{
    gates s;
    tn_scan_job j;
    set_up(c, &s, &j);
    s.backward = true;
    s.dri = c->din[TN_GATED_RI].data;
    s.dnu = c->din[TN_GATED_NU].data;
    s.domega = c->din[TN_GATED_OMEGA].data;
    s.add_ri = c->accumulate >> TN_GATED_RI & 1;
    s.add_nu = c->accumulate >> TN_GATED_NU & 1;
    s.add_omega = c->accumulate >> TN_GATED_OMEGA & 1;
    j.dc = c->dout[0].data;
    j.dfinal = c->dout[1].data;
    j.dx = c->din[TN_GATED_X].data;
    j.dstate = c->din[TN_GATED_STATE].data;
    j.add_x = c->accumulate >> TN_GATED_X & 1;
    j.add_state = c->accumulate >> TN_GATED_STATE & 1;
    j.want_e = s.dri || s.dnu;
    j.want_m = j.want_e || s.domega;
    j.sink = j.want_e ? sink : j.want_m ? sink_turn : NULL;
    tn_scan_core_backward(c->pool, &j);
    if (j.sink && j.K) finish_sums(&s, j.sums);
    return TN_OK;
}
