/* The spectrum's first values. `uniform(ctx, i)` draws; where an init needs numbers
 * of the configuration they come in p. */
#include "models/ten/ten.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

typedef float draw(const void *ctx, uint64_t i);

#define CALL(f) ((tn_init){ .kind = TN_INIT_CALL, .fill = (f) })

/* nu such that a gate of 1 gives |lambda| = a, a^2 uniform in [0.9^2, 0.999^2]. */
static void fill_nu(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    (void)p;
    for (int64_t i = 0; i < tn_dims_count(dims); i++) {
        const double a = sqrt((double)uniform(ctx, (uint64_t)i) * (0.999 * 0.999 - 0.81) + 0.81);
        x[i] = (float)log(expm1(-log(a) / 8));
    }
}

/* Half of the eigenstates turn slowly (up to pi/10 a token), half at any speed up to pi. */
static void fill_omega(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    const int64_t n = tn_dims_count(dims);
    (void)p;
    for (int64_t i = 0; i < n; i++) x[i] = uniform(ctx, (uint64_t)i) * 3.14159265f * (i < n / 2 ? 0.1f : 1.f);
}

/* Phases 2 pi k/K over each cell's states. */
static void fill_circle(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    const int64_t K = (int64_t)p[0];
    (void)uniform, (void)ctx;
    for (int64_t i = 0; i < tn_dims_count(dims); i++) x[i] = (float)(2 * pi * (double)(i % K) / (double)K);
}

/* Decays with time constants log-spaced from 4 to 1024 tokens over the heads; write strengths start at 1/2. */
static void fill_decay(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    const int64_t heads = tn_dims_count(dims) / 2;
    (void)uniform, (void)ctx, (void)p;
    for (int64_t h = 0; h < heads; h++) {
        const double at = heads > 1 ? (double)h / (double)(heads - 1) : 0;
        const double tau = exp(log(4.0) + at * (log(1024.0) - log(4.0)));
        x[h] = (float)log(expm1(1 / tau));
        x[heads + h] = 0;
    }
}

/* p: lo, hi of rho. alpha = logit of where rho lies between them; lo = hi stands for rho = exp(-exp(nu)). */
static float unconstrained(double rho, const float *p)
{
    if (p[0] == p[1]) return (float)log(-log(rho));
    double at = (rho - (double)p[0]) / ((double)p[1] - (double)p[0]);
    at = fmin(fmax(at, 1e-4), 1 - 1e-4);
    return (float)log(at / (1 - at));
}

static void fill_log(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    for (int64_t i = 0; i < tn_dims_count(dims); i++)
        x[i] = unconstrained(exp(-exp(-log(4.0) - (double)uniform(ctx, (uint64_t)i) * log(1024.0))), p);
}

static void fill_ring(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    for (int64_t i = 0; i < tn_dims_count(dims); i++)
        x[i] = unconstrained(sqrt((double)uniform(ctx, (uint64_t)i) * (0.999 * 0.999 - 0.81) + 0.81), p);
}

/* p[2], p[3]: alpha from, to. */
static void fill_uniform(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    for (int64_t i = 0; i < tn_dims_count(dims); i++) {
        const double a = (double)p[2] + (double)uniform(ctx, (uint64_t)i) * ((double)p[3] - (double)p[2]);
        x[i] = p[0] == p[1] ? (float)log(log1p(exp(-a))) : (float)a;
    }
}

/* (groups, k, k): I + 0.01 N(0,1)/sqrt(k), normals from pairs of draws. */
static void fill_blocks(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    const int64_t k = dims.dim[2];
    (void)p;
    for (int64_t i = 0; i < tn_dims_count(dims); i++) {
        const double u = 1 - (double)uniform(ctx, (uint64_t)(2 * i)), v = (double)uniform(ctx, (uint64_t)(2 * i + 1));
        const double normal = sqrt(-2 * log(u)) * cos(2 * pi * v);
        x[i] = (float)((i / k % k == i % k ? 1 : 0) + 0.01 * normal / sqrt((double)k));
    }
}

static void fill_identity(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    (void)uniform, (void)ctx, (void)p;
    for (int64_t i = 0; i < tn_dims_count(dims); i++) x[i] = i / dims.dim[1] == i % dims.dim[1] ? 1.f : 0.f;
}

/* (context, d): sin(t w), cos(t w) beside each other, w = 10000^(-2i/d). */
static void fill_sinusoids(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    const int64_t d = dims.dim[1];
    (void)uniform, (void)ctx, (void)p;
    for (int64_t i = 0; i < tn_dims_count(dims); i++) {
        const double angle = (double)(i / d) * pow(10000, -2 * (double)(i % d / 2) / (double)d);
        x[i] = (float)(i % d % 2 ? cos(angle) : sin(angle));
    }
}

tn_init ten_init_nu(void) { return CALL(fill_nu); }
tn_init ten_init_omega(void) { return CALL(fill_omega); }
tn_init ten_init_decay(void) { return CALL(fill_decay); }
tn_init ten_init_blocks(void) { return CALL(fill_blocks); }
tn_init ten_init_identity(void) { return CALL(fill_identity); }
tn_init ten_init_sinusoids(void) { return CALL(fill_sinusoids); }

tn_init ten_init_radius(const ten_config *c)
{
    tn_init i = CALL(c->start == TEN_START_LOG ? fill_log : c->start == TEN_START_RING ? fill_ring : fill_uniform);
    i.p[0] = c->rho_min;
    i.p[1] = c->expexp ? c->rho_min : c->rho_max;
    i.p[2] = c->alpha_min;
    i.p[3] = c->alpha_max;
    return i;
}

tn_init ten_init_phase(const ten_config *c)
{
    tn_init i = CALL(c->start == TEN_START_UNIFORM ? fill_circle : fill_omega);
    i.p[0] = (float)c->k;
    return i;
}
