/* Anderson acceleration of a tile: the method of ops/anderson.h for all columns at once. The pairs of all columns lie in the
 * same ring and are taken by age, the newest first, so that a column's numbers do not depend on when it came; how many of them
 * are its own is counted for each. What is not its own is passed over by choice, never by a factor of 0: it may be anything. */
#include "backend/cpu/level.h"
#include "backend/cpu/vec.h"
#include "ops/relax/relax_cpu.h"
#include "ops/relax/relax_width.h"

#define EACH_LANE TN_VECTOR for (int l = 0; l < W; l++)

/* Where the pair of this age lies. */
static int place(const tn_relax_pairs *p, int age) { return p->newest - age + (age > p->newest ? p->memory : 0); }

/* What each column does with its new pair, before it is kept. Returns the most pairs of any column, the new ones included. */
static int count_pairs(const tn_relax_tile *t, tn_relax_pairs *p)
{
    int most = 0;
    for (int l = 0; l < t->live; l++) {
        const float r = t->distance[l];
        if (t->residual[l] < t->limit) p->kept[l] = 0;
        p->kept[l] = tn_anderson_pairs(p->memory, p->kept[l], (double)r, (double)p->before[l]);
        p->before[l] = r;
        if (p->kept[l] > most) most = p->kept[l];
    }
    for (int l = t->live; l < t->width; l++) p->kept[l] = 0;
    return most;
}

/* The new pair, and its products with the others. */
TN_INLINE void keep(int vecs, const tn_relax_job *j, const tn_relax_tile *t, tn_relax_pairs *p, int most)
{
    const int W = vecs * TN_VEC, at = p->newest;
    const float *h = t->h, *y = t->y;
    double *r = p->r + at * j->d * W;
    memcpy(p->f + at * j->d * W, y, sizeof *y * (size_t)(j->d * W));
    for (int64_t i = 0; i < j->d * W; i += W) EACH_LANE r[i + l] = (double)(y[i + l] - h[i + l]);
    for (int age = 0; age < most; age++) {
        const int other = place(p, age);
        const double *s = p->r + other * j->d * W;
        double sum[TN_LANES] = { 0 };
        for (int64_t i = 0; i < j->d; i++) TN_UNROLL for (int l = 0; l < W; l++) sum[l] += r[i * W + l] * s[i * W + l];
        memcpy(p->gram + (at * p->memory + other) * W, sum, sizeof *sum * (size_t)W);
        memcpy(p->gram + (other * p->memory + at) * W, sum, sizeof *sum * (size_t)W);
    }
}

/* p->system: rows (n,n,W) of R^T R + e tr/n I by age; the identity where a column has no such pairs. Conditions are numbers
 * here and below, so that loops over columns become vector code. */
TN_INLINE void lay_system(int vecs, const tn_relax_pairs *p, int n, const double *kept)
{
    const int W = vecs * TN_VEC;
    double trace[TN_LANES] = { 0 };
    for (int i = 0; i < n; i++) {
        const double *g = p->gram + (place(p, i) * p->memory + place(p, i)) * W;
        EACH_LANE trace[l] += i < kept[l] ? g[l] : 0;
    }
    EACH_LANE trace[l] *= TN_ANDERSON_REGULAR / (kept[l] > 1 ? kept[l] : 1);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++) {
            const double *g = p->gram + (place(p, i) * p->memory + place(p, k)) * W;
            EACH_LANE p->system[(i * n + k) * W + l] = i < kept[l] ? g[l] : 0;
        }
        const double *g = p->gram + (place(p, i) * p->memory + place(p, i)) * W;
        EACH_LANE p->system[(i * n + i) * W + l] = i < kept[l] ? g[l] + trace[l] : 1;
    }
}

/* Its solution for ones, scaled to sum 1, by L D L^T: the weights (n,W) by age. ok: 1 where that could be done, else 0. */
TN_INLINE void weigh(int vecs, const tn_relax_pairs *p, int n, const double *kept, double *weight, double *ok)
{
    const int W = vecs * TN_VEC;
    double *c = p->system, sum[TN_LANES] = { 0 };
    EACH_LANE ok[l] = kept[l] > 1 ? 1 : 0;
    for (int i = 0; i < n; i++) {
        double *row = c + i * n * W, *pivot = row + i * W;
        for (int k = 0; k < i; k++) { /* L D of the row */
            for (int m = 0; m < k; m++) EACH_LANE row[k * W + l] -= row[m * W + l] * c[(k * n + m) * W + l];
        }
        for (int k = 0; k < i; k++) /* becomes L; pivots hold 1 / D */
            EACH_LANE
            {
                const double whole = row[k * W + l], part = whole * c[(k * n + k) * W + l];
                pivot[l] -= whole * part;
                row[k * W + l] = part;
            }
        EACH_LANE
        {
            const double positive = pivot[l] > 0 ? ok[l] : 0;
            ok[l] = pivot[l] < (double)INFINITY ? positive : 0;
            pivot[l] = 1 / pivot[l];
        }
        EACH_LANE weight[i * W + l] = i < kept[l] ? 1 : 0;
        for (int k = 0; k < i; k++) EACH_LANE weight[i * W + l] -= row[k * W + l] * weight[k * W + l];
    }
    for (int i = n - 1; i >= 0; i--) {
        EACH_LANE weight[i * W + l] *= c[(i * n + i) * W + l];
        for (int k = i + 1; k < n; k++) EACH_LANE weight[i * W + l] -= c[(k * n + i) * W + l] * weight[k * W + l];
        EACH_LANE sum[l] += weight[i * W + l];
    }
    EACH_LANE
    {
        const double positive = sum[l] > 0 ? ok[l] : 0;
        ok[l] = sum[l] < (double)INFINITY ? positive : 0;
        sum[l] = 1 / sum[l];
    }
    for (int i = 0; i < n; i++) EACH_LANE weight[i * W + l] *= sum[l];
}

/* h = f + sum_k weight_k (f_k - f) where weights are given, else the damped step; and how far that is. */
TN_INLINE void combine(int vecs, const tn_relax_job *j, tn_relax_tile *t, const tn_relax_pairs *p, int n,
                       const float *weight, const float *own)
{
    const tn_vec new = tn_vec_all(j->damping), old = tn_vec_all(1 - j->damping), none = { 0 };
    const int W = vecs * TN_VEC;
    const float *f[TN_ANDERSON_MOST];
    tn_vec moved[TN_VECS];
    EACH_VEC(v) moved[v] = none;
    for (int age = 0; age < n; age++) f[age] = p->f + place(p, age) * j->d * W;
    for (int64_t i = 0; i < j->d; i++) EACH_VEC(v)
        {
            const tn_vec h = GET(t->h, i, v), y = GET(t->y, i, v), damped = tn_vec_fma(new, y, old * h);
            tn_vec x = y;
            for (int age = 1; age < n; age++) {
                const tn_vec mine = tn_vec_get(own + (age * vecs + v) * TN_VEC);
                const tn_vec apart = tn_vec_pick(mine > 0, GET(f[age], i, v) - y, none);
                x = tn_vec_fma(tn_vec_get(weight + (age * vecs + v) * TN_VEC), apart, x);
            }
            const tn_vec next = tn_vec_pick(tn_vec_get(own + v * TN_VEC) > 0, x, damped), step = next - h;
            moved[v] = tn_vec_fma(step, step, moved[v]);
            PUT(t->h, i, v, next);
        }
    EACH_VEC(v) tn_vec_put(t->moved + v * TN_VEC, moved[v]);
}

TN_INLINE void accelerate(int vecs, const tn_relax_job *j, tn_relax_tile *t, tn_relax_pairs *p, int n, const bool *back)
{
    const int W = vecs * TN_VEC;
    double weight[TN_ANDERSON_MOST * TN_LANES], kept[TN_LANES], ok[TN_LANES] = { 0 };
    float w[TN_ANDERSON_MOST * TN_LANES], own[TN_ANDERSON_MOST * TN_LANES] = { 0 };
    EACH_LANE kept[l] = p->kept[l];
    keep(vecs, j, t, p, n);
    if (n > 1) {
        lay_system(vecs, p, n, kept);
        weigh(vecs, p, n, kept, weight, ok);
    }
    for (int i = 0; n > 1 && i < n; i++) EACH_LANE
        {
            own[i * W + l] = (float)(i < kept[l] ? ok[l] : 0);
            w[i * W + l] = own[i * W + l] > 0 ? (float)weight[i * W + l] : 0;
        }
    EACH_LANE
    if (p->kept[l] > 1 && !(ok[l] > 0)) p->kept[l] = 0;
    for (int l = 0; l < t->live; l++)
        if (back[l]) own[l] = 1; /* as y is */
    combine(vecs, j, t, p, n, w, own);
}

/* A step led to numbers that are not finite: back to the damped step from the pair before. */
static void step_back(const tn_relax_job *j, tn_relax_tile *t, const tn_relax_pairs *p, int lane)
{
    const int64_t at = (int64_t)p->newest * j->d;
    for (int64_t i = 0; i < j->d; i++)
        t->y[i * t->width + lane] =
            p->f[(at + i) * t->width + lane] - (1 - j->damping) * (float)p->r[(at + i) * t->width + lane];
}

TN_LEVELED(void, tn_relax_accelerate, (const tn_relax_job *j, tn_relax_tile *t), (j, t))
{
    tn_relax_pairs *p = &t->pairs;
    bool back[TN_RELAX_LANES];
    for (int l = 0; l < t->live; l++) {
        back[l] = !isfinite(t->distance[l]) && p->kept[l] > 1;
        if (back[l]) step_back(j, t, p, l); /* y is where it goes */
    }
    const int n = count_pairs(t, p);
    p->newest = (p->newest + 1) % p->memory;
    BY_WIDTH(t->width, accelerate, j, t, p, n, back);
}
