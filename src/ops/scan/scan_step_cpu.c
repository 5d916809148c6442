/* scan on the CPU, the plain way: one step per token, one channel at a time, straight from the formula. This is what
 * opt.scan=off runs and what the blocked scan is tested against, so it shares nothing with it. Rows of the batch are
 * the only tiles. */
#include "ops/scan/scan.h"
#include "ops/scan/scan_core.h"

#include <math.h>
#include <string.h>

enum { FIELDS = 5 }; /* doubles per row and channel: state or adjoint (re, im), sums for rho, omega and gamma */

typedef struct steps {
    const tn_call *c;
    int64_t T, K;
    double *work; /* (B, FIELDS, K) */
} steps;

static steps steps_of(const tn_call *c)
{
    const int64_t *d = c->in[TN_SCAN_X].dims.dim;
    return (steps){ .c = c, .T = d[1], .K = d[2] / 2, .work = c->work };
}

size_t tn_scan_step_work(int64_t B, int64_t K) { return sizeof(double) * (size_t)(B * FIELDS * K); }

/* Where number (b,t,k) of a coefficient (K) or (B,T,K) lies. */
static int64_t place(const tn_arg *a, const steps *s, int64_t b, int64_t t, int64_t k)
{
    return a->dims.rank == 3 ? (b * s->T + t) * s->K + k : k;
}

static double number(const steps *s, int input, int64_t b, int64_t t, int64_t k)
{
    const tn_arg *a = &s->c->in[input];
    return (double)((const float *)a->data)[place(a, s, b, t, k)];
}

typedef struct eigenvalue {
    double re, im, rho, cs, sn;
} eigenvalue;

static eigenvalue lambda(const steps *s, int64_t b, int64_t t, int64_t k)
{
    const double rho = number(s, TN_SCAN_RHO, b, t, k), omega = number(s, TN_SCAN_OMEGA, b, t, k);
    eigenvalue l = { .rho = rho, .cs = cos(omega), .sn = sin(omega) };
    l.re = rho * l.cs;
    l.im = rho * l.sn;
    if (s->c->in[TN_SCAN_RHO].dims.rank == 1 && s->c->in[TN_SCAN_OMEGA].dims.rank == 1) {
        l.re = (double)(float)l.re; /* per channel: rounded once, see scan.h */
        l.im = (double)(float)l.im;
    }
    return l;
}

static bool starts(const steps *s, int64_t b, int64_t t)
{
    const int32_t *reset = s->c->in[TN_SCAN_RESET].data;
    return reset && reset[b * s->T + t];
}

/* Where token t of row b of x, or of its gradient, begins: they may be parts of wider rows. */
static int64_t token_at(const tn_arg *x, int64_t b, int64_t t) { return b * x->stride[0] + t * x->stride[1]; }

static void add_or_set(const tn_call *c, int input, int64_t i, double x)
{
    float *d = c->din[input].data;
    if (d) d[i] = (float)x + (c->accumulate >> input & 1 ? d[i] : 0.f);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void forward_step(const steps *s, int64_t b, int64_t t, double *re, double *im)
{
    const float *x = (const float *)s->c->in[TN_SCAN_X].data + token_at(&s->c->in[TN_SCAN_X], b, t);
    float *c = (float *)s->c->out[0].data + (b * s->T + t) * 2 * s->K;
    for (int64_t k = 0; k < s->K; k++) {
        const eigenvalue l = lambda(s, b, t, k);
        const double gamma = s->c->in[TN_SCAN_GAMMA].data ? number(s, TN_SCAN_GAMMA, b, t, k) : 1;
        if (starts(s, b, t)) re[k] = im[k] = 0;
        const double r = l.re * re[k] - l.im * im[k] + gamma * (double)x[k];
        im[k] = l.re * im[k] + l.im * re[k] + gamma * (double)x[s->K + k];
        re[k] = r;
        c[k] = (float)re[k];
        c[s->K + k] = (float)im[k];
    }
}

static void forward_row(void *arg, int64_t b)
{
    const steps *s = arg;
    const float *state = s->c->in[TN_SCAN_STATE].data;
    float *final = (float *)s->c->out[1].data + b * 2 * s->K;
    double *now = s->work + b * FIELDS * s->K; /* re (K), im (K) */
    for (int64_t k = 0; k < 2 * s->K; k++) now[k] = state ? (double)state[b * 2 * s->K + k] : 0;
    for (int64_t t = 0; t < s->T; t++) forward_step(s, b, t, now, now + s->K);
    for (int64_t k = 0; k < 2 * s->K; k++) final[k] = (float)now[k];
}

tn_status tn_scan_step_forward_cpu(const tn_call *c)
{
    steps s = steps_of(c);
    tn_pool_run(c->pool, tn_scan_rows(c), forward_row, &s);
    return TN_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* A gradient per token is written, one per channel is summed. */
static void keep(const steps *s, int input, int64_t b, int64_t t, int64_t k, double x, double *sum)
{
    if (s->c->in[input].dims.rank == 3) add_or_set(s->c, input, (b * s->T + t) * s->K + k, x);
    else sum[k] += x;
}

/* c before token t: re and im of channel k, zero at the start of a document. */
static void previous(const steps *s, int64_t b, int64_t t, int64_t k, double *re, double *im)
{
    const float *c = s->c->out[0].data, *state = s->c->in[TN_SCAN_STATE].data, *row = NULL;
    if (!starts(s, b, t)) row = t > 0 ? c + (b * s->T + t - 1) * 2 * s->K : state ? state + b * 2 * s->K : NULL;
    *re = row ? (double)row[k] : 0;
    *im = row ? (double)row[s->K + k] : 0;
}

/* On entry (gr, gi) is what later tokens give to c_t, on return what c_{t-1} gets. */
static void backward_step(const steps *s, int64_t b, int64_t t, double *gr, double *gi, double *sums)
{
    const int64_t row = (b * s->T + t) * 2 * s->K, K = s->K;
    const int64_t at = token_at(&s->c->in[TN_SCAN_X], b, t), to = token_at(&s->c->din[TN_SCAN_X], b, t);
    const float *dc = s->c->dout[0].data, *x = s->c->in[TN_SCAN_X].data;
    const bool want_lambda = s->c->din[TN_SCAN_RHO].data || s->c->din[TN_SCAN_OMEGA].data;
    for (int64_t k = 0; k < K; k++) {
        const eigenvalue l = lambda(s, b, t, k);
        const double gamma = s->c->in[TN_SCAN_GAMMA].data ? number(s, TN_SCAN_GAMMA, b, t, k) : 1;
        const double ar = gr[k] + (dc ? (double)dc[row + k] : 0), ai = gi[k] + (dc ? (double)dc[row + K + k] : 0);
        add_or_set(s->c, TN_SCAN_X, to + k, gamma * ar);
        add_or_set(s->c, TN_SCAN_X, to + K + k, gamma * ai);
        if (s->c->din[TN_SCAN_GAMMA].data)
            keep(s, TN_SCAN_GAMMA, b, t, k, ar * (double)x[at + k] + ai * (double)x[at + K + k], sums + 2 * K);
        if (want_lambda) {
            double cr, ci;
            previous(s, b, t, k, &cr, &ci);
            const double mr = ar * cr + ai * ci, mi = ai * cr - ar * ci;
            keep(s, TN_SCAN_RHO, b, t, k, mr * l.cs + mi * l.sn, sums);
            keep(s, TN_SCAN_OMEGA, b, t, k, l.rho * (mi * l.cs - mr * l.sn), sums + K);
        }
        gr[k] = starts(s, b, t) ? 0 : l.re * ar + l.im * ai;
        gi[k] = starts(s, b, t) ? 0 : l.re * ai - l.im * ar;
    }
}

static void backward_row(void *arg, int64_t b)
{
    const steps *s = arg;
    const float *dfinal = s->c->dout[1].data;
    double *g = s->work + b * FIELDS * s->K;
    for (int64_t k = 0; k < 2 * s->K; k++) g[k] = dfinal ? (double)dfinal[b * 2 * s->K + k] : 0;
    memset(g + 2 * s->K, 0, sizeof(double) * (size_t)(3 * s->K));
    for (int64_t t = s->T - 1; t >= 0; t--) backward_step(s, b, t, g, g + s->K, g + 2 * s->K);
    for (int64_t k = 0; k < 2 * s->K; k++) add_or_set(s->c, TN_SCAN_STATE, b * 2 * s->K + k, g[k]);
}

tn_status tn_scan_step_backward_cpu(const tn_call *c)
{
    static const int input[3] = { TN_SCAN_RHO, TN_SCAN_OMEGA, TN_SCAN_GAMMA };
    steps s = steps_of(c);
    const int64_t rows = tn_scan_rows(c);
    tn_pool_run(c->pool, rows, backward_row, &s);
    for (int f = 0; f < 3; f++)
        for (int64_t k = 0; c->din[input[f]].data && c->in[input[f]].dims.rank == 1 && k < s.K; k++) {
            double sum = 0;
            for (int64_t b = 0; b < rows; b++) sum += s.work[(b * FIELDS + 2 + f) * s.K + k];
            add_or_set(c, input[f], k, sum);
        }
    return TN_OK;
}
