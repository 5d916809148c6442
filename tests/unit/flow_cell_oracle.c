/* One cell of the lattice in double: neuron, GRU, heads; its backward pass; sizes and first values of its parameters. */
#include "flow_oracle.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

static double gelu(double x) { return 0.5 * x * erfc(-x / sqrt(2)); }

static double gelu_slope(double x) { return 0.5 * erfc(-x / sqrt(2)) + x * exp(-0.5 * x * x) / sqrt(2 * acos(-1.0)); }

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* y = w x + b */
static void affine(const double *w, const double *b, const double *x, int rows, int columns, double *y)
{
    for (int i = 0; i < rows; i++) {
        y[i] = b ? b[i] : 0;
        for (int k = 0; k < columns; k++) y[i] += w[i * columns + k] * x[k];
    }
}

/* dx, dw, db += for dy; each may be NULL. */
static void affine_back(const double *w, const double *x, const double *dy, int rows, int columns, double *dx,
                        double *dw, double *db)
{
    for (int i = 0; i < rows; i++) {
        if (db) db[i] += dy[i];
        for (int k = 0; k < columns; k++) {
            if (dx) dx[k] += w[i * columns + k] * dy[i];
            if (dw) dw[i * columns + k] += dy[i] * x[k];
        }
    }
}

/* --- neuron --------------------------------------------------------------------------------------------------------------- */

/* Layer k: a = gelu(norm(V x + b) gain + bias). */
static void neuron_layer(const fo_net *m, int k, const double *x, int columns, fo_cell *t)
{
    const double *const *p = m->p + (k ? FO_V2 : FO_V1);
    const int n = m->neuron;
    double z[FO_N], mean = 0, var = 0;
    affine(p[0], p[1], x, n, columns, z);
    for (int i = 0; i < n; i++) mean += z[i] / n;
    for (int i = 0; i < n; i++) var += (z[i] - mean) * (z[i] - mean) / n;
    t->scale[k] = 1 / sqrt(var + 1e-5);
    for (int i = 0; i < n; i++) {
        t->n[k][i] = (z[i] - mean) * t->scale[k];
        t->y[k][i] = t->n[k][i] * p[2][i] + p[3][i];
        t->a[k][i] = gelu(t->y[k][i]);
    }
}

/* dx += for da */
static void neuron_layer_back(const fo_net *m, int k, const double *x, int columns, const fo_cell *t, const double *da,
                              double *dx, double *const *dp)
{
    const int first = k ? FO_V2 : FO_V1, n = m->neuron;
    double g[FO_N], dz[FO_N], mean = 0, along = 0;
    for (int i = 0; i < n; i++) {
        const double dy = da[i] * gelu_slope(t->y[k][i]);
        if (dp[first + 2]) dp[first + 2][i] += dy * t->n[k][i];
        if (dp[first + 3]) dp[first + 3][i] += dy;
        g[i] = dy * m->p[first + 2][i];
        mean += g[i] / n;
        along += g[i] * t->n[k][i] / n;
    }
    for (int i = 0; i < n; i++) dz[i] = t->scale[k] * (g[i] - mean - t->n[k][i] * along);
    affine_back(m->p[first], x, dz, n, columns, dx, dp[first], dp[first + 1]);
}

/* --- GRU ------------------------------------------------------------------------------------------------------------------ */

static int layer_inputs(const fo_net *m, int l) { return l ? m->H : m->features + m->E; }

static void gru(const fo_net *m, int l, fo_cell *t)
{
    const double *const *p = m->p + FO_GRU + 4 * l;
    const int H = m->H;
    double gx[3 * FO_H], gh[3 * FO_H];
    affine(p[FO_WI], p[FO_BI], t->x[l], 3 * H, layer_inputs(m, l), gx);
    affine(p[FO_WH], p[FO_BH], t->h[l], 3 * H, H, gh);
    for (int i = 0; i < H; i++) {
        t->r[l][i] = sigmoid(gx[i] + gh[i]);
        t->z[l][i] = sigmoid(gx[H + i] + gh[H + i]);
        t->q[l][i] = gh[2 * H + i];
        t->c[l][i] = tanh(gx[2 * H + i] + t->r[l][i] * t->q[l][i]);
        t->o[l][i] = (1 - t->z[l][i]) * t->c[l][i] + t->z[l][i] * t->h[l][i];
    }
}

/* dx += and dh written for dout, the gradient by the new state. */
static void gru_back(const fo_net *m, int l, const fo_cell *t, const double *dout, double *dx, double *dh,
                     double *const *dp)
{
    const int H = m->H, first = FO_GRU + 4 * l;
    double gx[3 * FO_H], gh[3 * FO_H];
    for (int i = 0; i < H; i++) {
        const double r = t->r[l][i], z = t->z[l][i], c = t->c[l][i];
        const double dc = dout[i] * (1 - z) * (1 - c * c);
        gx[i] = gh[i] = dc * t->q[l][i] * r * (1 - r);
        gx[H + i] = gh[H + i] = dout[i] * (t->h[l][i] - c) * z * (1 - z);
        gx[2 * H + i] = dc;
        gh[2 * H + i] = dc * r;
        dh[i] = dout[i] * z;
    }
    affine_back(m->p[first + FO_WI], t->x[l], gx, 3 * H, layer_inputs(m, l), dx, dp[first + FO_WI], dp[first + FO_BI]);
    affine_back(m->p[first + FO_WH], t->h[l], gh, 3 * H, H, dh, dp[first + FO_WH], dp[first + FO_BH]);
}

/* --- all of it ------------------------------------------------------------------------------------------------------------ */

void fo_cell_forward(const fo_net *m, const fo_state *s, fo_cell *t)
{
    const int E = m->E, F = m->field, H = m->H;
    affine(m->p[FO_Q], m->p[FO_QB], s->p, 3, 3, t->in);
    memcpy(t->in + 3, s->e, sizeof *s->e * (size_t)E);
    memcpy(t->in + 3 + E, s->read, sizeof *s->read * (size_t)F);
    neuron_layer(m, 0, t->in, 3 + E + F, t);
    neuron_layer(m, 1, t->a[0], m->neuron, t);
    affine(m->p[FO_V3], m->p[FO_V3B], t->a[1], m->features, m->neuron, t->x[0]);
    memcpy(t->x[0] + m->features, s->e, sizeof *s->e * (size_t)E);
    for (int l = 0; l < m->L; l++) {
        if (l) memcpy(t->x[l], t->o[l - 1], sizeof *t->x[l] * (size_t)H);
        memcpy(t->h[l], s->h[l], sizeof t->h[l]);
        gru(m, l, t);
    }
    const double *o = t->o[m->L - 1];
    affine(m->p[FO_E1], m->p[FO_E1B], o, H / 2, H, t->te);
    for (int i = 0; i < H / 2; i++) t->ge[i] = gelu(t->te[i]);
    affine(m->p[FO_E2], m->p[FO_E2B], t->ge, E, H / 2, t->e);
    for (int i = 0; i < E; i++) t->e[i] = tanh(t->e[i]);
    affine(m->p[FO_D1], m->p[FO_D1B], o, m->hidden, H, t->td);
    for (int i = 0; i < m->hidden; i++) t->gd[i] = gelu(t->td[i]);
    affine(m->p[FO_D2], m->p[FO_D2B], t->gd, 3, m->hidden, t->delta);
    if (F) affine(m->p[FO_F], NULL, o, F, H, t->phi);
}

/* do += for the heads' results */
static void heads_back(const fo_net *m, const fo_cell *t, const fo_result *out, double *d_o, double *const *dp)
{
    const double *o = t->o[m->L - 1];
    const int H = m->H;
    double de[FO_E], g[FO_N] = { 0 };
    for (int i = 0; i < m->E; i++) de[i] = out->e[i] * (1 - t->e[i] * t->e[i]);
    affine_back(m->p[FO_E2], t->ge, de, m->E, H / 2, g, dp[FO_E2], dp[FO_E2B]);
    for (int i = 0; i < H / 2; i++) g[i] *= gelu_slope(t->te[i]);
    affine_back(m->p[FO_E1], o, g, H / 2, H, d_o, dp[FO_E1], dp[FO_E1B]);
    memset(g, 0, sizeof g);
    affine_back(m->p[FO_D2], t->gd, out->delta, 3, m->hidden, g, dp[FO_D2], dp[FO_D2B]);
    for (int i = 0; i < m->hidden; i++) g[i] *= gelu_slope(t->td[i]);
    affine_back(m->p[FO_D1], o, g, m->hidden, H, d_o, dp[FO_D1], dp[FO_D1B]);
    if (m->field) affine_back(m->p[FO_F], o, out->phi, m->field, H, d_o, dp[FO_F], NULL);
}

void fo_cell_backward(const fo_net *m, const fo_state *s, const fo_cell *t, const fo_result *out, fo_state *in,
                      double *const *dp)
{
    const int E = m->E;
    double above[FO_H] = { 0 }; /* what the layer above, or the heads, add to a layer's gradient */
    memset(in, 0, sizeof *in);
    heads_back(m, t, out, above, dp);
    double x[FO_N + FO_E];
    for (int l = m->L - 1; l >= 0; l--) {
        memset(x, 0, sizeof x);
        for (int i = 0; i < m->H; i++) above[i] += out->h[l][i];
        gru_back(m, l, t, above, x, in->h[l], dp);
        if (l) memcpy(above, x, sizeof above);
    }
    double a1[FO_N] = { 0 }, a0[FO_N] = { 0 }, first[3 + FO_E + FO_FIELD] = { 0 };
    affine_back(m->p[FO_V3], t->a[1], x, m->features, m->neuron, a1, dp[FO_V3], dp[FO_V3B]);
    neuron_layer_back(m, 1, t->a[0], m->neuron, t, a1, a0, dp);
    neuron_layer_back(m, 0, t->in, 3 + E + m->field, t, a0, first, dp);
    affine_back(m->p[FO_Q], s->p, first, 3, 3, in->p, dp[FO_Q], dp[FO_QB]);
    for (int i = 0; i < E; i++) in->e[i] = first[3 + i] + x[m->features + i];
    for (int i = 0; i < m->field; i++) in->read[i] = first[3 + E + i];
}

/* --- parameters ----------------------------------------------------------------------------------------------------------- */

int64_t fo_size(const fo_net *m, int which, int64_t *rows, int64_t *columns)
{
    const int n = m->neuron, H = m->H,
              shape[FO_GRU][2] = {
                  [FO_Q] = { 3, 3 },          [FO_QB] = { 3, 1 },           [FO_V1] = { n, 3 + m->E + m->field },
                  [FO_V1B] = { n, 1 },        [FO_N1G] = { n, 1 },          [FO_N1B] = { n, 1 },
                  [FO_V2] = { n, n },         [FO_V2B] = { n, 1 },          [FO_N2G] = { n, 1 },
                  [FO_N2B] = { n, 1 },        [FO_V3] = { m->features, n }, [FO_V3B] = { m->features, 1 },
                  [FO_E1] = { H / 2, H },     [FO_E1B] = { H / 2, 1 },      [FO_E2] = { m->E, H / 2 },
                  [FO_E2B] = { m->E, 1 },     [FO_D1] = { m->hidden, H },   [FO_D1B] = { m->hidden, 1 },
                  [FO_D2] = { 3, m->hidden }, [FO_D2B] = { 3, 1 },          [FO_F] = { m->field, H },
              };
    if (which < FO_GRU) {
        *rows = shape[which][0], *columns = shape[which][1];
    } else {
        const int l = (which - FO_GRU) / 4, kind = (which - FO_GRU) % 4;
        *rows = l < m->L ? 3 * H : 0;
        *columns = kind == FO_WI ? layer_inputs(m, l) : kind == FO_WH ? H : 1;
    }
    return *rows * *columns;
}

/* Rows of x (n,n) made orthonormal. */
static void orthonormal(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double size = 0;
        for (int64_t k = 0; k < i; k++) {
            double dot = 0;
            for (int64_t j = 0; j < n; j++) dot += x[i * n + j] * x[k * n + j];
            for (int64_t j = 0; j < n; j++) x[i * n + j] -= dot * x[k * n + j];
        }
        for (int64_t j = 0; j < n; j++) size += x[i * n + j] * x[i * n + j];
        for (int64_t j = 0; j < n; j++) x[i * n + j] /= sqrt(size);
    }
}

void fo_start(const fo_net *m, int which, uint64_t seed, double *x)
{
    const tn_rng rng = { .seed = seed, .stream = (uint64_t)which };
    int64_t rows, columns;
    const int64_t n = fo_size(m, which, &rows, &columns);
    const int kind = which < FO_GRU ? -1 : (which - FO_GRU) % 4;
    for (int64_t i = 0; i < n; i++) {
        if (which == FO_N1G || which == FO_N2G) x[i] = 1;
        else if (columns == 1) x[i] = 0;
        else if (kind == FO_WI)
            x[i] = (2.0 * (double)tn_rng_uniform(rng, (uint64_t)i) - 1) * sqrt(6.0 / (double)(columns + m->H));
        else {
            const bool head = which >= FO_E1 && which < FO_GRU;
            const double std = head ? sqrt(2.0 / (double)(rows + columns)) : sqrt(2.0 / (double)rows);
            x[i] = (double)tn_rng_normal(rng, (uint64_t)i) * std * (which == FO_D2 || which == FO_F ? 0.1 : 1);
        }
    }
    for (int gate = 0; kind == FO_WH && gate < 3; gate++) orthonormal(x + gate * m->H * m->H, m->H);
}
