/* Parzen estimators. Numbers have normal kernels truncated to [0,1], with widths by Scott's rule; stepped values get
 * the mass of the kernel over their cell; choices mix the point's own choice with a uniform share. */
#include "lab/search/parzen.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

static double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

/* Scott's rule, with the prior as one more point (mean 1/2, variance 1/12), so that few points do not look certain. */
static double kernel_width(const double *u, size_t n, size_t stride, size_t dims, double least)
{
    double mean = 0.5, count = 1, var = 1.0 / 12;
    for (size_t i = 0; i < n; i++)
        if (!isnan(u[i * stride])) mean += u[i * stride], count++;
    mean /= count;
    var += (0.5 - mean) * (0.5 - mean);
    for (size_t i = 0; i < n; i++)
        if (!isnan(u[i * stride])) var += (u[i * stride] - mean) * (u[i * stride] - mean);
    return fmin(fmax(sqrt(var / count) * pow(count, -1 / ((double)dims + 4)), least), 1);
}

static void prepare(tn_parzen *p, const double *x, double least)
{
    const size_t dims = p->s->n;
    for (size_t d = 0; d < dims; d++) {
        const tn_dim *dim = &p->s->dims[d];
        for (size_t i = 0; i < p->n; i++) {
            const double v = x[i * dims + d];
            p->u[i * dims + d] = isnan(v) || dim->kind == TN_DIM_CHOICE ? v : tn_dim_place(dim, v);
        }
        if (dim->kind == TN_DIM_CHOICE) continue;
        const double sigma = p->sigma[d] = kernel_width(p->u + d, p->n, dims, dims, least);
        for (size_t i = 0; i < p->n; i++) {
            const double mu = p->u[i * dims + d], inside = normal_cdf((1 - mu) / sigma) - normal_cdf(-mu / sigma);
            p->log_k[i * dims + d] = -log(inside); /* NaN where off: never read */
        }
    }
}

tn_status tn_parzen_make(const tn_space *s, const double *x, const double *weight, size_t n, double least,
                         tn_arena *arena, tn_parzen *out)
{
    tn_parzen p = { .s = s, .n = n };
    size_t cells;
    if (!tn_mul_ok(n, s->n, &cells) || cells > SIZE_MAX / 16 - 1)
        return tn_error(TN_MEMORY, "%zu trials are too many", n);
    p.u = tn_arena_alloc(arena, (cells + 1) * sizeof *p.u);
    p.log_k = tn_arena_alloc(arena, (cells + 1) * sizeof *p.log_k);
    p.weight = tn_arena_alloc(arena, (n + 1) * sizeof *p.weight);
    p.sigma = tn_arena_alloc(arena, (s->n + 1) * sizeof *p.sigma);
    p.terms = tn_arena_alloc(arena, (n + 1) * sizeof *p.terms);
    if (!p.u || !p.log_k || !p.weight || !p.sigma || !p.terms) return TN_MEMORY;
    double sum = 1;
    for (size_t i = 0; i < n; i++) sum += weight[i];
    for (size_t i = 0; i < n; i++) p.weight[i] = weight[i] / sum;
    p.weight[n] = 1 / sum;
    prepare(&p, x, least);
    *out = p;
    return TN_OK;
}

/* The probability that a choice's kernel draws uniformly; it falls with the number of points. */
static double uniform_share(const tn_parzen *p, const tn_dim *d)
{
    const double share = 1 / ((double)p->n + 1);
    return (double)d->n_choices * share / (1 + (double)d->n_choices * share);
}

static double draw_normal(double mu, double sigma, tn_draws *draws)
{
    for (;;) { /* mu lies inside, so about half or more of the draws do */
        const double r = sqrt(-2 * log(1 - tn_draws_uniform(draws))),
                     u = mu + sigma * r * cos(2 * PI * tn_draws_uniform(draws));
        if (u >= 0 && u < 1) return u;
    }
}

void tn_parzen_draw(const tn_parzen *p, tn_draws *draws, double *x)
{
    const size_t dims = p->s->n;
    double left = tn_draws_uniform(draws);
    size_t i = 0;
    while (i < p->n && left >= p->weight[i]) left -= p->weight[i++];
    for (size_t d = 0; d < dims; d++) {
        const tn_dim *dim = &p->s->dims[d];
        x[d] = NAN;
        if (!tn_space_has(p->s, x, d)) continue;
        const double at = i < p->n ? p->u[i * dims + d] : NAN;
        if (isnan(at)) x[d] = tn_dim_at(dim, tn_draws_uniform(draws));
        else if (dim->kind != TN_DIM_CHOICE) x[d] = tn_dim_at(dim, draw_normal(at, p->sigma[d], draws));
        else if (tn_draws_uniform(draws) < uniform_share(p, dim)) x[d] = tn_dim_at(dim, tn_draws_uniform(draws));
        else x[d] = at;
    }
}

/* What of a kernel does not depend on the point: the cell, or the place, of x. */
typedef struct cell {
    double lo, hi;
} cell;

static double log_kernel(const tn_parzen *p, size_t d, double at, double log_k, double x, cell c)
{
    const tn_dim *dim = &p->s->dims[d];
    if (dim->kind == TN_DIM_CHOICE) {
        const double f = uniform_share(p, dim);
        return log(f + (x == at ? (1 - f) * (double)dim->n_choices : 0));
    }
    const double sigma = p->sigma[d];
    if (c.hi > c.lo)
        return log_k + log((normal_cdf((c.hi - at) / sigma) - normal_cdf((c.lo - at) / sigma)) / (c.hi - c.lo));
    const double z = (c.lo - at) / sigma;
    return log_k - 0.5 * z * z - log(sigma * sqrt(2 * PI));
}

double tn_parzen_log(const tn_parzen *p, const double *x)
{
    const size_t dims = p->s->n;
    double top = log(p->weight[p->n]);
    for (size_t i = 0; i < p->n; i++) p->terms[i] = log(p->weight[i]);
    for (size_t d = 0; d < dims; d++) {
        cell c = { 0, 0 };
        if (isnan(x[d])) continue;
        if (p->s->dims[d].kind != TN_DIM_CHOICE) tn_dim_cell(&p->s->dims[d], x[d], &c.lo, &c.hi);
        for (size_t i = 0; i < p->n; i++) {
            const size_t k = i * dims + d;
            if (!isnan(p->u[k])) p->terms[i] += log_kernel(p, d, p->u[k], p->log_k[k], x[d], c);
        }
    }
    p->terms[p->n] = top;
    for (size_t i = 0; i < p->n; i++) top = fmax(top, p->terms[i]);
    double sum = 0;
    for (size_t i = 0; i <= p->n; i++) sum += exp(p->terms[i] - top);
    return top + log(sum);
}
