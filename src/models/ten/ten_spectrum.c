/* Initial values of the spectrum. `uniform(ctx, i)` draws; p holds numbers of the configuration. */
#include "models/ten/ten.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

typedef float draw(const void *ctx, uint64_t i);

#define CALL(f) ((tn_init){ .kind = TN_INIT_CALL, .fill = (f) })

/* sqrt of a number between the squares of p's two, as decimals (0.999, not the float next to it). */
static double on_ring(double at, const float *p)
{
    const double lo = round((double)p[0] * 1e6) / 1e6, hi = round((double)p[1] * 1e6) / 1e6;
    return sqrt(at * (hi * hi - lo * lo) + lo * lo);
}

/* p: lo, hi. nu such that a gate of 1 gives |lambda| = a, a^2 uniform in [lo^2, hi^2]. */
static void fill_nu(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    for (int64_t i = 0; i < tn_dims_count(dims); i++)
        x[i] = (float)log(expm1(-log(on_ring((double)uniform(ctx, (uint64_t)i), p)) / 8));
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

/* p[0] decays with time constants log-spaced from 4 to 1024 tokens over the heads; write strengths start at 1/2. */
static void fill_decay(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    const int64_t decays = (int64_t)p[0];
    (void)uniform, (void)ctx;
    for (int64_t i = 0; i < tn_dims_count(dims); i++) {
        const double at = decays > 1 ? (double)i / (double)(decays - 1) : 0;
        const double tau = exp(log(4.0) + at * (log(1024.0) - log(4.0)));
        x[i] = i < decays ? (float)log(expm1(1 / tau)) : 0;
    }
}

/* (H, pairs): logarithms of speeds, evenly from 0 to p[0] in every head. */
static void fill_turn(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    const int64_t pairs = dims.dim[1];
    (void)uniform, (void)ctx;
    for (int64_t i = 0; i < tn_dims_count(dims); i++)
        x[i] = pairs > 1 ? (float)((double)p[0] * (double)(i % pairs) / (double)(pairs - 1)) : 0;
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

/* p[2], p[3]: smallest and largest rho. */
static void fill_ring(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    for (int64_t i = 0; i < tn_dims_count(dims); i++)
        x[i] = unconstrained(on_ring((double)uniform(ctx, (uint64_t)i), p + 2), p);
}

/* p[2], p[3]: alpha from, to. */
static void fill_uniform(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    for (int64_t i = 0; i < tn_dims_count(dims); i++) {
        const double a = (double)p[2] + (double)uniform(ctx, (uint64_t)i) * ((double)p[3] - (double)p[2]);
        x[i] = p[0] == p[1] ? (float)log(log1p(exp(-a))) : (float)a;
    }
}

/* x: what one of the three above gave; becomes log sqrt(1 - rho^2). */
static void to_gamma(float *x, tn_dims dims, const float *p)
{
    for (int64_t i = 0; i < tn_dims_count(dims); i++) {
        const double lo = (double)p[0], hi = (double)p[1], a = (double)x[i];
        const double log_rho = p[0] == p[1] ? -exp(a) : log(lo + (hi - lo) / (1 + exp(-a)));
        x[i] = (float)(0.5 * log(-expm1(2 * log_rho)));
    }
}

/* Where a second tensor starts from the first moduli (gamma_norm=free) they cannot be drawn, for each tensor draws its own numbers:
 * they follow the multiples of the golden ratio instead, evenly spread over any run of states. */
static float spread(const void *ctx, uint64_t i)
{
    const double x = ((double)i + 0.5) * 0.61803398874989485;
    (void)ctx;
    return (float)(x - floor(x));
}

#define SPREAD(fill)                                                                                                   \
    static void fill##_spread(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)                  \
    {                                                                                                                  \
        (void)uniform;                                                                                                 \
        fill(x, dims, spread, ctx, p);                                                                                 \
    }                                                                                                                  \
    static void fill##_gamma(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)                   \
    {                                                                                                                  \
        fill##_spread(x, dims, uniform, ctx, p);                                                                       \
        to_gamma(x, dims, p);                                                                                          \
    }

SPREAD(fill_log)
SPREAD(fill_ring)
SPREAD(fill_uniform)

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

tn_init ten_init_nu(const ten_config *c)
{
    tn_init i = CALL(fill_nu);
    i.p[0] = c->ring_min;
    i.p[1] = c->ring_max;
    return i;
}

tn_init ten_init_omega(void) { return CALL(fill_omega); }
tn_init ten_init_decay(int64_t decays)
{
    tn_init i = CALL(fill_decay);
    i.p[0] = (float)decays;
    return i;
}

/* The slowest pair turns once in 2 pi 10,000 tokens; where half of the pairs turn, in 2 pi 1,000. */
tn_init ten_init_turn(const ten_config *c)
{
    tn_init i = CALL(fill_turn);
    i.p[0] = (float)log(c->rotate_half ? 1e-3 : 1e-4);
    return i;
}

tn_init ten_init_blocks(void) { return CALL(fill_blocks); }
tn_init ten_init_identity(void) { return CALL(fill_identity); }
tn_init ten_init_sinusoids(void) { return CALL(fill_sinusoids); }

static tn_init from_start(const ten_config *c, int column)
{
    static void (*const fills[][3])(float *, tn_dims, draw *, const void *, const float *) = {
        [TEN_START_LOG] = { fill_log, fill_log_spread, fill_log_gamma },
        [TEN_START_RING] = { fill_ring, fill_ring_spread, fill_ring_gamma },
        [TEN_START_UNIFORM] = { fill_uniform, fill_uniform_spread, fill_uniform_gamma },
    };
    tn_init i = CALL(fills[c->start][column]);
    i.p[0] = c->rho_min;
    i.p[1] = c->expexp ? c->rho_min : c->rho_max;
    i.p[2] = c->start == TEN_START_RING ? c->ring_min : c->alpha_min;
    i.p[3] = c->start == TEN_START_RING ? c->ring_max : c->alpha_max;
    return i;
}

tn_init ten_init_radius(const ten_config *c) { return from_start(c, c->gamma == TEN_GAMMA_FREE ? 1 : 0); }
tn_init ten_init_gamma(const ten_config *c) { return from_start(c, 2); }

tn_init ten_init_phase(const ten_config *c)
{
    tn_init i = CALL(c->start == TEN_START_UNIFORM ? fill_circle : fill_omega);
    i.p[0] = (float)c->k;
    return i;
}
