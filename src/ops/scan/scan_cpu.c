/* scan on the CPU: lambda and gain for the blocked recurrence of scan_core.h, and where its gradients go. Coefficients
 * per channel come from a table made once per call; coefficients per token are made piece by piece. */
#include "ops/scan/scan.h"
#include "ops/scan/scan_core.h"
#include "ops/scan/scan_math.h"

enum { W = TN_SCAN_W, TABLE_ROWS = 4 };

typedef struct coefficients {
    int64_t T, K, padded_K;
    const float *rho, *omega, *gamma; /* (K), or (B,T,K) where per token; gamma may be NULL */
    bool rho_per_token, omega_per_token, gamma_per_token;
    double *cs, *sn, *rho_of;      /* the table: (padded K) each, where per channel */
    float *gamma_of;               /* its last row */
    tn_scan_powers powers;         /* of lambda, where per channel */
    bool brief;                    /* all of them: see TN_SCAN_BRIEF */
    float *drho, *domega, *dgamma; /* of the shape of what they belong to; NULL: not wanted */
    bool add_rho, add_omega, add_gamma;
} coefficients;

static bool fixed_lambda(const coefficients *s) { return !s->rho_per_token && !s->omega_per_token; }

/* lambda = rho e^{i omega} in double, rounded once: its powers are powers of the rounded number. */
static void fill_table(coefficients *s)
{
    s->brief = true;
    for (int64_t k = 0; k < s->padded_K; k++) {
        const bool there = k < s->K;
        s->rho_of[k] = there && !s->rho_per_token ? (double)s->rho[k] : 0;
        s->gamma_of[k] = there && s->gamma && !s->gamma_per_token ? s->gamma[k] : 0;
        const double omega = there && !s->omega_per_token ? (double)s->omega[k] : 0;
        s->cs[k] = cos(omega);
        s->sn[k] = sin(omega);
        s->brief = s->brief && s->rho_of[k] * s->rho_of[k] <= TN_SCAN_BRIEF; /* NaN is not */
        s->powers.wide_re[s->padded_K + k] = (double)(float)(s->rho_of[k] * s->cs[k]);
        s->powers.wide_im[s->padded_K + k] = (double)(float)(s->rho_of[k] * s->sn[k]);
    }
    tn_scan_powers_fill(&s->powers, s->padded_K);
}

/* n tokens of a (B,T,K) tensor as doubles, zeros beyond the last channel. */
static void widen(double *restrict to, const float *from, const coefficients *s, const tn_scan_at *at)
{
    for (int64_t i = 0; i < at->n; i++) {
        const float *row = from + (at->b * s->T + at->t + i) * s->K + at->k;
        for (int64_t k = 0; k < at->w; k++) to[i * W + k] = (double)row[k];
        for (int64_t k = at->w; k < tn_scan_padded(at->w); k++) to[i * W + k] = 0;
    }
}

/* Numbers per token are read where they lie, unless channels have to be filled up. */
static void fill_gain(const coefficients *s, const tn_scan_at *at, tn_scan_coef *q)
{
    q->gain = s->gamma ? s->gamma_of + at->k : NULL;
    q->gain_step = 0;
    if (!s->gamma_per_token) return;
    q->gain = s->gamma + (at->b * s->T + at->t) * s->K + at->k;
    q->gain_step = s->K;
    if (at->w % TN_SCAN_UNIT == 0) return;
    for (int64_t i = 0; i < at->n; i++)
        for (int64_t k = 0; k < tn_scan_padded(at->w); k++)
            q->buf[0][i * W + k] = k < at->w ? q->gain[i * q->gain_step + k] : 0;
    q->gain = q->buf[0];
    q->gain_step = W;
}

static void fill_lambda(const coefficients *s, const tn_scan_at *at, tn_scan_coef *q)
{
    double *restrict lr = q->wide[0], *restrict li = q->wide[1];
    const int64_t width = tn_scan_padded(at->w);
    if (s->omega_per_token) {
        widen(lr, s->omega, s, at);
        for (int64_t i = 0; i < at->n; i++) tn_sincos_rows(width, lr + i * W, q->wide[3] + i * W, q->wide[2] + i * W);
        q->cs = q->wide[2];
        q->sn = q->wide[3];
        q->turn_step = W;
    }
    if (s->rho_per_token) widen(li, s->rho, s, at);
    for (int64_t i = 0; i < at->n; i++)
        for (int64_t k = 0; k < width; k++) {
            const double rho = s->rho_per_token ? li[i * W + k] : s->rho_of[at->k + k];
            lr[i * W + k] = rho * q->cs[i * q->turn_step + k];
            li[i * W + k] = rho * q->sn[i * q->turn_step + k];
        }
    q->lr = lr;
    q->li = li;
    q->power_re = NULL;
}

static void coef(const void *self, const tn_scan_at *at, tn_scan_coef *q)
{
    const coefficients *s = self;
    q->cs = s->cs + at->k;
    q->sn = s->sn + at->k;
    q->u = NULL;
    q->turn_step = 0;
    if (fixed_lambda(s)) {
        tn_scan_powers_use(&s->powers, s->padded_K, at->k, q);
        q->brief = s->brief && !s->gamma_per_token;
    } else fill_lambda(s, at, q);
    fill_gain(s, at, q);
}

/* A piece's tokens in f32, then to the double. */
static void add_rows(double *restrict sum, const float *restrict x, const tn_scan_at *at)
{
    float piece[W];
    memcpy(piece, x, sizeof *x * (size_t)at->w);
    for (int64_t i = 1; i < at->n; i++)
        for (int64_t k = 0; k < at->w; k++) piece[k] += x[i * W + k];
    for (int64_t k = 0; k < at->w; k++) sum[k] += (double)piece[k];
}

static void write_rows(float *to, const float *x, const coefficients *s, const tn_scan_at *at, bool add)
{
    for (int64_t i = 0; i < at->n; i++) {
        float *row = to + (at->b * s->T + at->t + i) * s->K + at->k;
        for (int64_t k = 0; k < at->w; k++) row[k] = x[i * W + k] + (add ? row[k] : 0.f);
    }
}

/* Sums kept: with lambda per channel, its gradient (re, im); else the gradients of rho and omega. Then gamma's. */
static void sink(const void *self, const tn_scan_at *at, const tn_scan_coef *q, const tn_scan_found *f,
                 double *const *sums)
{
    const coefficients *s = self;
    if (at->n < 1 || at->w < 1) return; /* never: it tells the compiler that the rows below are filled */
    if (fixed_lambda(s) && (s->drho || s->domega)) {
        add_rows(sums[0], f->mr, at);
        add_rows(sums[1], f->mi, at);
    } else if (s->drho || s->domega) {
        float drho[TN_SCAN_N * W], domega[TN_SCAN_N * W];
        for (int64_t i = 0; i < at->n; i++)
            for (int64_t k = 0; k < at->w; k++) {
                const int64_t o = i * W + k, turn = i * q->turn_step + k;
                const double mr = (double)f->mr[o], mi = (double)f->mi[o];
                drho[o] = (float)(mr * q->cs[turn] + mi * q->sn[turn]);
                domega[o] = (float)(mi * q->lr[o] - mr * q->li[o]);
            }
        if (s->drho && s->rho_per_token) write_rows(s->drho, drho, s, at, s->add_rho);
        else if (s->drho) add_rows(sums[0], drho, at);
        if (s->domega && s->omega_per_token) write_rows(s->domega, domega, s, at, s->add_omega);
        else if (s->domega) add_rows(sums[1], domega, at);
    }
    if (s->dgamma && s->gamma_per_token) write_rows(s->dgamma, f->e, s, at, s->add_gamma);
    else if (s->dgamma) add_rows(sums[2], f->e, at);
}

static void finish_sums(const coefficients *s, const double *sums)
{
    for (int64_t k = 0; k < s->K; k++) {
        double r = sums[k], w = sums[s->padded_K + k];
        if (fixed_lambda(s)) { /* from (re, im) to modulus and phase */
            r = sums[k] * s->cs[k] + sums[s->padded_K + k] * s->sn[k];
            w = s->rho_of[k] * (sums[s->padded_K + k] * s->cs[k] - sums[k] * s->sn[k]);
        }
        if (s->drho && !s->rho_per_token) s->drho[k] = (float)r + (s->add_rho ? s->drho[k] : 0.f);
        if (s->domega && !s->omega_per_token) s->domega[k] = (float)w + (s->add_omega ? s->domega[k] : 0.f);
        if (s->dgamma && !s->gamma_per_token)
            s->dgamma[k] = (float)sums[2 * s->padded_K + k] + (s->add_gamma ? s->dgamma[k] : 0.f);
    }
}

/* --- the kernels -------------------------------------------------------------------------------------------------- */

static size_t table_bytes(int64_t padded_K)
{
    return (size_t)(TABLE_ROWS * padded_K) * sizeof(double) + tn_scan_powers_bytes(padded_K);
}

size_t tn_scan_cpu_work(int64_t B, int64_t T, int64_t K, int64_t chunk)
{
    return table_bytes(tn_scan_padded(K)) + tn_scan_core_work(B, T, K, chunk);
}

static void set_up(const tn_call *c, coefficients *s, tn_scan_job *j, bool backward)
{
    const int64_t *d = c->in[TN_SCAN_X].dims.dim, padded_K = tn_scan_padded(d[2] / 2);
    double *table = c->work;
    *s = (coefficients){ .T = d[1], .K = d[2] / 2, .padded_K = padded_K };
    s->rho = c->in[TN_SCAN_RHO].data;
    s->omega = c->in[TN_SCAN_OMEGA].data;
    s->gamma = c->in[TN_SCAN_GAMMA].data;
    s->rho_per_token = c->in[TN_SCAN_RHO].dims.rank == 3;
    s->omega_per_token = c->in[TN_SCAN_OMEGA].dims.rank == 3;
    s->gamma_per_token = s->gamma && c->in[TN_SCAN_GAMMA].dims.rank == 3;
    double **row[] = { &s->cs, &s->sn, &s->rho_of };
    for (int i = 0; i < TABLE_ROWS - 1; i++) *row[i] = table + i * padded_K;
    s->gamma_of = (float *)(void *)(table + (TABLE_ROWS - 1) * padded_K);
    s->powers = tn_scan_powers_in(table + TABLE_ROWS * padded_K, padded_K);
    fill_table(s);
    *j = tn_scan_job_of(c, backward, ((const tn_scan_attr *)c->attr)->chunk, TN_SCAN_STATE, TN_SCAN_RESET,
                        table_bytes(padded_K));
    j->self = s;
    j->coef = coef;
    j->fixed = fixed_lambda(s) && !s->gamma_per_token;
}

tn_status tn_scan_blocked_forward_cpu(const tn_call *c)
{
    coefficients s;
    tn_scan_job j;
    set_up(c, &s, &j, false);
    tn_scan_core_forward(c->pool, &j);
    return TN_OK;
}

tn_status tn_scan_blocked_backward_cpu(const tn_call *c)
{
    coefficients s;
    tn_scan_job j;
    set_up(c, &s, &j, true);
    s.drho = c->din[TN_SCAN_RHO].data;
    s.domega = c->din[TN_SCAN_OMEGA].data;
    s.dgamma = c->din[TN_SCAN_GAMMA].data;
    s.add_rho = c->accumulate >> TN_SCAN_RHO & 1;
    s.add_omega = c->accumulate >> TN_SCAN_OMEGA & 1;
    s.add_gamma = c->accumulate >> TN_SCAN_GAMMA & 1;
    j.want_m = s.drho || s.domega;
    j.want_e = s.dgamma;
    if ((j.want_m || j.want_e) && !j.fixed) j.sink = sink;
    tn_scan_core_backward(c->pool, &j);
    if ((j.want_m || j.want_e) && j.K) finish_sums(&s, j.sums);
    return TN_OK;
}
