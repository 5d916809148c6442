/* Collection of landings in double, cell by cell over all flows of a sample. */
#include "flow_oracle.h"

#include "testlib.h"

#include <math.h>
#include <stdlib.h>

fo_landings fo_landings_new(int64_t B, int64_t slots, int E)
{
    const size_t n = (size_t)(B * slots) + 1;
    fo_landings l = { calloc(n, sizeof(double)), calloc(n, sizeof(double)),
                      calloc(n, sizeof(double)), calloc(n * (size_t)E, sizeof(double)),
                      calloc(n, sizeof(double)), calloc(n, sizeof(double)),
                      calloc(n, sizeof(double)) };
    assert_true(l.u && l.v && l.d && l.e && l.plane && l.age && l.landed);
    return l;
}

void fo_landings_free(fo_landings *l)
{
    double *const all[] = { l->u, l->v, l->d, l->e, l->plane, l->age, l->landed };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static double along(double u, int W) { return (u + 1) / 2 * (W - 1); }

static int nearest(double u, int W) { return (int)fmin(fmax(rint(along(u, W)), 0), W - 1); }

int64_t fo_nearest_cell(const fo_surface *s, double u, double v)
{
    return (int64_t)nearest(v, s->Hs) * s->W + nearest(u, s->W);
}

/* Weight of coordinate u at place x along an axis of W, and its slope by u. */
static double tent(double u, int W, int x, double *slope)
{
    const double from = fmin(fmax(floor(along(u, W)), 0), W - 2), part = along(u, W) - from;
    *slope = x == from ? -(W - 1) / 2.0 : x == from + 1 ? (W - 1) / 2.0 : 0;
    return x == from ? 1 - part : x == from + 1 ? part : 0;
}

/* One flow seen from one cell. */
typedef struct share {
    double k, k_u, k_v; /* kernel and slopes */
} share;

static share share_of(const fo_surface *s, const fo_landings *l, int64_t i, int64_t cell)
{
    const int64_t S = (int64_t)s->W * s->Hs, c = cell % S;
    share x = { 0, 0, 0 };
    if (l->landed[i] == 0 || (s->beside && cell / S != (int64_t)l->plane[i])) return x;
    if (s->nearest) {
        const bool here = (s->cells ? s->cells[i] : fo_nearest_cell(s, l->u[i], l->v[i])) == c;
        x.k = here ? (isnan(l->u[i] + l->v[i]) ? NAN : 1) : 0;
        return x;
    }
    double du, dv;
    const double ku = tent(l->u[i], s->W, (int)(c % s->W), &du), kv = tent(l->v[i], s->Hs, (int)(c / s->W), &dv);
    return (share){ ku * kv, du * kv, ku * dv };
}

static double size_of(const fo_surface *s, const fo_landings *l, int64_t i)
{
    double sum = 0;
    for (int j = 0; j < s->E; j++) sum += l->e[i * s->E + j] * l->e[i * s->E + j];
    return s->E == 1 ? fabs(l->e[i]) : sqrt(sum);
}

static double score(const fo_surface *s, const fo_landings *l, int64_t i)
{
    return size_of(s, l, i) * (1 + s->age * l->age[i]) / (1 + l->d[i]);
}

/* The largest score among flows [first, first + slots), of those that reach `cell` where it is given; -1: of all. NaN is left out. */
static int64_t best_of(const fo_surface *s, const fo_landings *l, int64_t first, int64_t cell)
{
    int64_t best = -1;
    for (int64_t i = first; i < first + s->slots; i++) {
        if (l->landed[i] == 0 || (cell >= 0 && share_of(s, l, i, cell).k == 0)) continue;
        if (!isnan(score(s, l, i)) && (best < 0 || score(s, l, i) > score(s, l, best))) best = i;
    }
    return best;
}

/* Sum of weights of a cell, and O (E). */
static double collect_cell(const fo_surface *s, const fo_landings *l, int64_t first, int64_t cell, int64_t best,
                           double *O)
{
    double sum = s->nearest ? 0 : s->eps;
    const double most = best < 0 ? 0 : score(s, l, best);
    for (int j = 0; j < s->E; j++) O[j] = 0;
    for (int64_t i = first; i < first + s->slots; i++) {
        const double k = share_of(s, l, i, cell).k, w = k * exp(score(s, l, i) - most);
        if (k == 0) continue;
        sum += w;
        for (int j = 0; j < s->E; j++) O[j] += w * l->e[i * s->E + j];
    }
    for (int j = 0; j < s->E; j++) O[j] = sum != 0 ? O[j] / sum : 0;
    return sum;
}

static int64_t cells_of(const fo_surface *s) { return (int64_t)s->W * s->Hs * (s->beside ? 2 : 1); }

void fo_collect(const fo_surface *s, const fo_landings *l, double *O)
{
    const int64_t cells = cells_of(s);
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t c = 0; c < cells; c++)
            collect_cell(s, l, b * s->slots, c, best_of(s, l, b * s->slots, s->nearest ? c : -1),
                         O + (b * cells + c) * s->E);
}

/* Gradient ds by the score of flow i, passed to e and d. */
static void score_back(const fo_surface *s, const fo_landings *l, int64_t i, double ds, fo_landings *g)
{
    const double size = size_of(s, l, i), factor = (1 + s->age * l->age[i]) / (1 + l->d[i]);
    g->d[i] -= ds * size * factor / (1 + l->d[i]);
    for (int j = 0; size > 0 && j < s->E; j++) g->e[i * s->E + j] += ds * factor * l->e[i * s->E + j] / size;
}

static void cell_back(const fo_surface *s, const fo_landings *l, int64_t first, int64_t cell, const double *dO,
                      fo_landings *g)
{
    const int64_t best = best_of(s, l, first, s->nearest ? cell : -1);
    double O[FO_E], all = 0;
    const double sum = collect_cell(s, l, first, cell, best, O);
    if (best < 0 || sum == 0) return;
    for (int64_t i = first; i < first + s->slots; i++) {
        const share x = share_of(s, l, i, cell);
        if (x.k == 0 && x.k_u == 0 && x.k_v == 0) continue;
        const double w = exp(score(s, l, i) - score(s, l, best)) / sum;
        double dw = 0; /* by k exp(...) / sum */
        for (int j = 0; j < s->E; j++) {
            dw += dO[j] * (l->e[i * s->E + j] - O[j]);
            g->e[i * s->E + j] += dO[j] * x.k * w;
        }
        score_back(s, l, i, dw * x.k * w, g);
        g->u[i] += dw * w * x.k_u;
        g->v[i] += dw * w * x.k_v;
    }
    for (int j = 0; j < s->E; j++) all += dO[j] * O[j];
    if (!s->nearest && best >= 0) score_back(s, l, best, -all * s->eps / sum, g);
}

void fo_collect_backward(const fo_surface *s, const fo_landings *l, const double *dO, fo_landings *g)
{
    const int64_t cells = cells_of(s);
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t c = 0; c < cells; c++) cell_back(s, l, b * s->slots, c, dO + (b * cells + c) * s->E, g);
}
