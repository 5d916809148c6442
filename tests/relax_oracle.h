/* The maps, gradients and solves of relax in double, one sample after the other. Plain loops; nothing is clever here. */
#ifndef TN_TESTS_RELAX_ORACLE_H
#define TN_TESTS_RELAX_ORACLE_H

#include "anderson_oracle.h"
#include "testlib.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RO_D = 40, RO_F = 80, RO_C = 12, RO_T = 64, RO_PAIRS = AO_PAIRS }; /* most of each */

enum { RO_A, RO_W1, RO_B1, RO_W2, RO_B2, RO_GAIN2, RO_BIAS2, RO_GAIN, RO_BIAS, RO_PARAMS }; /* as the node's inputs */

typedef struct ro_net {
    bool energy, hopfield;
    int64_t B, count, d, f, C;
    const double *p[RO_PARAMS]; /* what has a gradient; NULL: absent */
    const double *h0, *head_w, *head_b, *labels, *weights;
    double scale, damping, rtol, tol, beta, weight;
    bool absolute, centred, mean, proxy, at_rest;
    double move; /* 0: nudged samples stop as free ones do */
    int64_t steps;
    int memory; /* 0: no acceleration */
    tn_loop_grad grad;
} ro_net;

/* The inside of one evaluation. */
typedef struct ro_trace {
    double u[RO_D], n2[RO_D], s2, x[RO_D], z[RO_F], act[RO_F], n[RO_D], s, y[RO_D];
} ro_trace;

static inline double ro_at(const double *x, int64_t i, double none) { return x ? x[i] : none; }

static inline double ro_gelu(double x) { return 0.5 * x * erfc(-x / sqrt(2)); }

static inline double ro_gelu_slope(double x)
{
    return 0.5 * erfc(-x / sqrt(2)) + x * exp(-0.5 * x * x) / sqrt(2 * acos(-1.0));
}

/* n = (x - mean) s with s = (var + eps)^(-1/2); returns s. */
static inline double ro_norm(const double *x, int64_t d, double *n)
{
    double mean = 0, var = 0;
    for (int64_t i = 0; i < d; i++) mean += x[i] / (double)d;
    for (int64_t i = 0; i < d; i++) var += (x[i] - mean) * (x[i] - mean) / (double)d;
    const double s = 1 / sqrt(var + 1e-5);
    for (int64_t i = 0; i < d; i++) n[i] = (x[i] - mean) * s;
    return s;
}

/* f(h) for an injection a (d). */
static inline void ro_apply(const ro_net *m, const double *a, const double *h, ro_trace *t)
{
    const int64_t d = m->d, f = m->f;
    for (int64_t i = 0; m->hopfield && i < d; i++) {
        t->y[i] = a[i];
        for (int64_t k = 0; k < d; k++) t->y[i] += m->p[RO_W1][i * d + k] * (t->act[k] = tanh(h[k]));
    }
    if (m->hopfield) return;
    for (int64_t i = 0; i < d; i++) t->u[i] = t->x[i] = m->energy ? h[i] : h[i] + a[i];
    if (!m->energy) {
        t->s2 = ro_norm(t->u, d, t->n2);
        for (int64_t i = 0; i < d; i++) t->x[i] = t->n2[i] * ro_at(m->p[RO_GAIN2], i, 1) + ro_at(m->p[RO_BIAS2], i, 0);
    }
    for (int64_t k = 0; k < f; k++) {
        t->z[k] = ro_at(m->p[RO_B1], k, 0);
        for (int64_t i = 0; i < d; i++) t->z[k] += m->p[RO_W1][k * d + i] * t->x[i];
        t->act[k] = m->energy ? tanh(t->z[k]) : ro_gelu(t->z[k]);
    }
    for (int64_t i = 0; i < d; i++) {
        double s = 0;
        for (int64_t k = 0; k < f; k++) s += (m->energy ? m->p[RO_W1][k * d + i] : m->p[RO_W2][i * f + k]) * t->act[k];
        t->y[i] = m->energy ? a[i] + m->scale * s : t->u[i] + s + ro_at(m->p[RO_B2], i, 0);
    }
    if (m->energy) return;
    t->s = ro_norm(t->y, d, t->n);
    for (int64_t i = 0; i < d; i++) t->y[i] = t->n[i] * ro_at(m->p[RO_GAIN], i, 1) + ro_at(m->p[RO_BIAS], i, 0);
}

/* dx += s (g - mean g - n mean(g n)), g = dy gain */
static inline void ro_norm_back(int64_t d, const double *dy, const double *gain, const double *n, double s, double *dx)
{
    double first = 0, second = 0;
    for (int64_t i = 0; i < d; i++) {
        first += dy[i] * ro_at(gain, i, 1) / (double)d;
        second += dy[i] * ro_at(gain, i, 1) * n[i] / (double)d;
    }
    for (int64_t i = 0; i < d; i++) dx[i] += s * (dy[i] * ro_at(gain, i, 1) - first - n[i] * second);
}

static inline void ro_add(double *const *g, int which, int64_t at, double x)
{
    if (g && g[which]) g[which][at] += x;
}

/* lambda^T df: dh (d) by the state; where g is given, gradients are added to g[RO_A] (d) and the parameters'. */
static inline void ro_pull(const ro_net *m, const ro_trace *t, const double *lambda, double *dh, double *const *g)
{
    const int64_t d = m->d, f = m->f;
    for (int64_t k = 0; m->hopfield && k < d; k++) {
        dh[k] = 0;
        for (int64_t i = 0; i < d; i++) dh[k] += (1 - t->act[k] * t->act[k]) * m->p[RO_W1][i * d + k] * lambda[i];
        for (int64_t i = 0; i < d; i++) ro_add(g, RO_W1, i * d + k, lambda[i] * t->act[k]);
        ro_add(g, RO_A, k, lambda[k]);
    }
    if (m->hopfield) return;
    double w[RO_D] = { 0 }, z[RO_F], q[RO_D] = { 0 };
    if (!m->energy) ro_norm_back(d, lambda, m->p[RO_GAIN], t->n, t->s, w);
    for (int64_t k = 0; k < f; k++) {
        z[k] = 0;
        for (int64_t i = 0; i < d; i++)
            z[k] += m->energy ? m->scale * m->p[RO_W1][k * d + i] * lambda[i] : m->p[RO_W2][i * f + k] * w[i];
        z[k] *= m->energy ? 1 - t->act[k] * t->act[k] : ro_gelu_slope(t->z[k]);
    }
    for (int64_t k = 0; k < f; k++)
        for (int64_t i = 0; i < d; i++) q[i] += m->p[RO_W1][k * d + i] * z[k];
    for (int64_t i = 0; i < d; i++) dh[i] = m->energy ? q[i] : w[i];
    if (!m->energy) ro_norm_back(d, q, m->p[RO_GAIN2], t->n2, t->s2, dh);
    for (int64_t k = 0; k < f; k++) {
        ro_add(g, RO_B1, k, z[k]);
        for (int64_t i = 0; i < d; i++) {
            ro_add(g, RO_W1, k * d + i, z[k] * t->x[i] + (m->energy ? m->scale * t->act[k] * lambda[i] : 0));
            ro_add(g, RO_W2, i * f + k, w[i] * t->act[k]);
        }
    }
    for (int64_t i = 0; i < d; i++) {
        ro_add(g, RO_A, i, m->energy ? lambda[i] : dh[i]);
        ro_add(g, RO_B2, i, w[i]);
        ro_add(g, RO_GAIN2, i, q[i] * t->n2[i]);
        ro_add(g, RO_BIAS2, i, q[i]);
        ro_add(g, RO_GAIN, i, lambda[i] * t->n[i]);
        ro_add(g, RO_BIAS, i, lambda[i]);
    }
}

/* dC/dh of sample b at h; hopfield: dC/dtanh(h). */
static inline void ro_force(const ro_net *m, int64_t b, const double *h, double *force)
{
    double p[RO_C], most = -INFINITY, sum = 0;
    memset(force, 0, sizeof *force * (size_t)m->d);
    if (m->labels[b] < 0) return;
    for (int64_t c = 0; c < m->C; c++) {
        p[c] = ro_at(m->head_b, c, 0);
        for (int64_t i = 0; i < m->d; i++) p[c] += m->head_w[c * m->d + i] * (m->hopfield ? tanh(h[i]) : h[i]);
        most = fmax(most, p[c]);
    }
    for (int64_t c = 0; c < m->C; c++) sum += p[c] = exp(p[c] - most);
    for (int64_t c = 0; c < m->C; c++)
        for (int64_t i = 0; i < m->d; i++)
            force[i] += ro_at(m->weights, b, 1) * (p[c] / sum - (c == (int64_t)m->labels[b])) * m->head_w[c * m->d + i];
}

/* --- solves ------------------------------------------------------------------------------------------------------- */

/* What a phase iterates: the map, nudged by eta, or the adjoint at `at` with g. */
typedef struct ro_phase {
    double eta;
    const ro_trace *at;
    const double *g;
    double rest[RO_D], from[RO_D]; /* nudged: taken off f, and where it began */
} ro_phase;

/* One sample under way. */
typedef struct ro_sample {
    double h[RO_D], residual, moved;
    int64_t steps;
    double f[RO_PAIRS][RO_D], r[RO_PAIRS][RO_D], before;
    int n;
} ro_sample;

static inline double ro_dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

/* Weights of the pairs. */
static inline void ro_weigh(const ro_sample *s, int64_t d, double *w)
{
    double m[AO_PAIRS][AO_PAIRS + 1];
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->n; k++) m[i][k] = ro_dot(s->r[i], s->r[k], d);
    ao_weights(m, s->n, w);
}

/* The accelerated step to `next`; false: a damped one is to be taken. */
static inline bool ro_accelerate(const ro_net *m, ro_sample *s, const double *y, double *next)
{
    double w[RO_PAIRS], r[RO_D];
    for (int64_t i = 0; i < m->d; i++) r[i] = y[i] - s->h[i];
    const double size = sqrt(ro_dot(r, r, m->d));
    if (s->n && size > 2 * s->before) s->n = 0;
    s->before = size;
    if (s->n == m->memory) {
        memmove(s->f[0], s->f[1], sizeof s->f[0] * (size_t)--s->n);
        memmove(s->r[0], s->r[1], sizeof s->r[0] * (size_t)s->n);
    }
    memcpy(s->f[s->n], y, sizeof *y * (size_t)m->d);
    memcpy(s->r[s->n], r, sizeof *r * (size_t)m->d);
    if (++s->n < 2) return false;
    ro_weigh(s, m->d, w);
    memset(next, 0, sizeof *next * (size_t)m->d);
    for (int k = 0; k < s->n; k++)
        for (int64_t i = 0; i < m->d; i++) next[i] += w[k] * s->f[k][i];
    return true;
}

static inline double ro_limit(const ro_net *m, const ro_phase *p)
{
    return p->eta != 0 && m->move > 0 ? m->move : m->rtol;
}

static inline void ro_step(const ro_net *m, int64_t b, const ro_phase *p, ro_sample *s)
{
    double y[RO_D], force[RO_D], next[RO_D], far = 0;
    ro_trace t;
    if (p->at) {
        ro_pull(m, p->at, s->h, y, NULL);
        for (int64_t i = 0; i < m->d; i++) y[i] += p->g[i];
    } else {
        ro_apply(m, m->p[RO_A] + b * m->d, s->h, &t);
        memcpy(y, t.y, sizeof y);
    }
    if (p->eta != 0) {
        for (int64_t i = 0; i < m->d; i++) y[i] -= p->rest[i];
        ro_force(m, b, y, force);
        for (int64_t i = 0; i < m->d; i++) y[i] -= p->eta * force[i];
    }
    for (int64_t i = 0; i < m->d; i++) far += (y[i] - s->h[i]) * (y[i] - s->h[i]);
    double size = sqrt(ro_dot(y, y, m->d)), gone = 0;
    for (int64_t i = 0; i < m->d; i++) gone += (y[i] - p->from[i]) * (y[i] - p->from[i]);
    if (p->eta != 0 && m->move > 0) size = fmax(sqrt(gone), 1e-3 * size);
    s->residual = sqrt(far) / fmax(size, 1e-6);
    s->steps++;
    if (!m->memory || (!m->absolute && s->residual < ro_limit(m, p)) || !ro_accelerate(m, s, y, next))
        for (int64_t i = 0; i < m->d; i++) next[i] = (1 - m->damping) * s->h[i] + m->damping * y[i];
    s->moved = 0;
    for (int64_t i = 0; i < m->d; i++) s->moved += (next[i] - s->h[i]) * (next[i] - s->h[i]);
    memcpy(s->h, next, sizeof *next * (size_t)m->d);
}

/* Solves all samples; phases[b] is sample b's. s[b].h is where it begins and ends. history: (steps,B,d) or NULL. */
static inline void ro_solve(const ro_net *m, const ro_phase *phases, ro_sample *s, double *history)
{
    for (int64_t b = 0; b < m->count; b++) s[b].steps = s[b].n = 0;
    for (int64_t b = 0; !m->absolute && b < m->count; b++) do {
            if (history) memcpy(history + (s[b].steps * m->B + b) * m->d, s[b].h, sizeof *history * (size_t)m->d);
            ro_step(m, b, &phases[b], &s[b]);
        } while (s[b].steps < m->steps && !(s[b].residual < ro_limit(m, &phases[b])));
    bool done = !m->absolute;
    for (int64_t t = 0; !done && t < m->steps; t++) {
        double moved = 0;
        for (int64_t b = 0; b < m->count; b++) {
            if (history) memcpy(history + (t * m->B + b) * m->d, s[b].h, sizeof *history * (size_t)m->d);
            ro_step(m, b, &phases[b], &s[b]);
            moved += s[b].moved;
        }
        done = sqrt(moved) < m->tol;
    }
}

static inline ro_sample *ro_samples(const ro_net *m)
{
    ro_sample *s = calloc((size_t)m->B + 1, sizeof *s);
    assert_non_null(s);
    for (int64_t b = 0; b < m->B; b++)
        for (int64_t i = 0; i < m->d; i++) s[b].h[i] = m->h0 ? m->h0[b * m->d + i] : 0;
    return s;
}

static inline ro_phase *ro_phases(const ro_net *m)
{
    ro_phase *p = calloc((size_t)m->B + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

/* The free phase; free() the result. */
static inline ro_sample *ro_free(const ro_net *m, double *history)
{
    ro_sample *s = ro_samples(m);
    ro_phase *p = ro_phases(m);
    ro_solve(m, p, s, history);
    free(p);
    return s;
}

/* The nudged phase with one sign, from the states of `s`; free() the result. */
static inline ro_sample *ro_nudged(const ro_net *m, const ro_sample *s, double sign)
{
    ro_sample *n = ro_samples(m);
    ro_phase *p = ro_phases(m);
    for (int64_t b = 0; b < m->count; b++) {
        ro_trace t;
        memcpy(n[b].h, s[b].h, sizeof n[b].h);
        memcpy(p[b].from, s[b].h, sizeof p[b].from);
        ro_apply(m, m->p[RO_A] + b * m->d, s[b].h, &t);
        for (int64_t i = 0; m->at_rest && i < m->d; i++) p[b].rest[i] = t.y[i] - s[b].h[i];
        p[b].eta = sign * (m->proxy ? m->beta / (double)m->count : m->beta);
    }
    ro_solve(m, p, n, NULL);
    free(p);
    return n;
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* g[RO_A] (B,d) and the parameters' gradients, added to, with lambda (d) of sample b at state h. */
static inline void ro_pull_at(const ro_net *m, int64_t b, const double *h, const double *lambda, double *dh,
                              double *const *g)
{
    double *of_sample[RO_PARAMS];
    ro_trace t;
    memcpy(of_sample, g, sizeof of_sample);
    if (g[RO_A]) of_sample[RO_A] = g[RO_A] + b * m->d;
    ro_apply(m, m->p[RO_A] + b * m->d, h, &t);
    ro_pull(m, &t, lambda, dh, of_sample);
}

static inline void ro_grad_ep(const ro_net *m, const ro_sample *s, double *const *g)
{
    const double n = (double)m->count, weight = m->mean ? 1 / n : m->weight;
    ro_sample *up = ro_nudged(m, s, 1), *down = m->centred ? ro_nudged(m, s, -1) : NULL;
    double lambda[RO_D], dh[RO_D];
    ro_trace t;
    for (int64_t b = 0; b < m->count; b++) {
        ro_apply(m, m->p[RO_A] + b * m->d, s[b].h, &t);
        for (int64_t i = 0; i < m->d; i++)
            lambda[i] = (m->hopfield ? 1 - t.act[i] * t.act[i] : 1) *
                        (m->proxy     ? 2 / (m->beta * n * (double)m->d) * (t.y[i] - up[b].h[i])
                         : m->centred ? weight * (down[b].h[i] - up[b].h[i]) / (2 * m->beta)
                                      : weight * (s[b].h[i] - up[b].h[i]) / m->beta);
        ro_pull_at(m, b, s[b].h, lambda, dh, g);
    }
    free(up);
    free(down);
}

static inline void ro_grad_bptt(const ro_net *m, const double *dout, double *const *g)
{
    double *history = calloc((size_t)(m->steps * m->B * m->d) + 1, sizeof *history), carried[RO_D], lambda[RO_D],
           dh[RO_D];
    assert_non_null(history);
    ro_sample *s = ro_free(m, history);
    for (int64_t b = 0; b < m->count; b++) {
        memcpy(carried, dout + b * m->d, sizeof *carried * (size_t)m->d);
        for (int64_t t = s[b].steps - 1; t >= 0; t--) {
            for (int64_t i = 0; i < m->d; i++) lambda[i] = m->damping * carried[i];
            ro_pull_at(m, b, history + (t * m->B + b) * m->d, lambda, dh, g);
            for (int64_t i = 0; i < m->d; i++) carried[i] = (1 - m->damping) * carried[i] + dh[i];
        }
    }
    free(history);
    free(s);
}

/* The adjoint phase; free() the result. */
static inline ro_sample *ro_adjoint(const ro_net *m, const ro_sample *s, const double *dout)
{
    ro_trace *at = calloc((size_t)m->B + 1, sizeof *at);
    ro_sample *l = ro_samples(m);
    ro_phase *p = ro_phases(m);
    assert_non_null(at);
    for (int64_t b = 0; b < m->count; b++) {
        ro_apply(m, m->p[RO_A] + b * m->d, s[b].h, &at[b]);
        memcpy(l[b].h, dout + b * m->d, sizeof *dout * (size_t)m->d);
        p[b] = (ro_phase){ .at = &at[b], .g = dout + b * m->d };
    }
    ro_solve(m, p, l, NULL);
    free(p);
    free(at);
    return l;
}

/* All gradients by m->grad, added to g, for dL/dh = dout (B,d). */
static inline void ro_gradients(const ro_net *m, const double *dout, double *const *g)
{
    double dh[RO_D];
    if (m->grad == TN_LOOP_BPTT) {
        ro_grad_bptt(m, dout, g);
        return;
    }
    ro_sample *s = ro_free(m, NULL), *l = m->grad == TN_LOOP_IMPLICIT ? ro_adjoint(m, s, dout) : NULL;
    if (m->grad == TN_LOOP_EP) ro_grad_ep(m, s, g);
    for (int64_t b = 0; m->grad != TN_LOOP_EP && b < m->count; b++)
        ro_pull_at(m, b, s[b].h, l ? l[b].h : dout + b * m->d, dh, g);
    free(s);
    free(l);
}

#endif
