/* The lattice in double: flows created, moved, spawned, stopped, projected; then all of it backwards. */
#include "flow_oracle.h"

#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t voxels(const fo_net *m) { return (int64_t)m->grid[0] * m->grid[1] * m->grid[2]; }

static fo_flow *flows(const fo_net *m, const fo_run *r, int s, int b) { return r->flow + (s * m->B + b) * r->slots; }

static fo_move *moves(const fo_net *m, const fo_run *r, int s, int b) { return r->move + (s * m->B + b) * r->slots; }

static double *grid(const fo_net *m, const fo_run *r, int s, int b)
{
    return r->grid + (s * m->B + b) * voxels(m) * m->field;
}

/* --- the field ------------------------------------------------------------------------------------------------------------ */

/* A corner of the grid as a place sees it. */
typedef struct corner {
    int64_t at;
    double weight, slope[3];
} corner;

/* The corners around p; nearest: one, without slope. Returns how many. */
static int corners(const fo_net *m, const double *p, bool nearest, corner *c)
{
    double from[3], part[3];
    for (int a = 0; a < 3; a++) {
        const double x = (p[a] + 1) / 2 * (m->grid[a] - 1);
        from[a] = fmin(fmax(nearest ? rint(x) : floor(x), 0), m->grid[a] - (nearest ? 1 : 2));
        part[a] = nearest ? 0 : x - from[a];
    }
    for (int k = 0; k < (nearest ? 1 : 8); k++) {
        double w[3], slope[3];
        for (int a = 0; a < 3; a++) {
            const bool up = k >> a & 1;
            w[a] = up ? part[a] : 1 - part[a];
            slope[a] = nearest ? 0 : (up ? 1 : -1) * (m->grid[a] - 1) / 2.0;
        }
        c[k].at = ((int64_t)(from[2] + (k >> 2 & 1)) * m->grid[1] + (int64_t)(from[1] + (k >> 1 & 1))) * m->grid[0] +
                  (int64_t)(from[0] + (k & 1));
        c[k].weight = w[0] * w[1] * w[2];
        for (int a = 0; a < 3; a++) c[k].slope[a] = slope[a] * w[(a + 1) % 3] * w[(a + 2) % 3];
    }
    return nearest ? 1 : 8;
}

static void read_field(const fo_net *m, const double *field, const double *p, double *read)
{
    corner c[8];
    const int n = corners(m, p, false, c);
    for (int j = 0; j < m->field; j++) {
        read[j] = 0;
        for (int k = 0; k < n; k++) read[j] += c[k].weight * field[c[k].at * m->field + j];
    }
}

static void deposit(const fo_net *m, const double *phi, const double *p, double *field)
{
    corner c[8];
    const int n = corners(m, p, !m->smooth, c);
    for (int k = 0; k < n; k++)
        for (int j = 0; j < m->field; j++) field[c[k].at * m->field + j] += c[k].weight * phi[j];
}

/* Of a read or a deposit: x (field) is the number that the weights multiply on the grid's other side; dp +=. */
static void place_back(const fo_net *m, const corner *c, int n, const double *x, const double *on_grid, double *dp)
{
    for (int k = 0; k < n; k++)
        for (int j = 0; j < m->field; j++)
            for (int a = 0; a < 3; a++) dp[a] += c[k].slope[a] * x[j] * on_grid[c[k].at * m->field + j];
}

/* --- forward -------------------------------------------------------------------------------------------------------------- */

fo_why fo_stops(const fo_stop *rule, fo_watch *w, int s, int64_t done, int64_t created, int64_t active)
{
    if (active == 0) return FO_EMPTY;
    if (rule->never || s < rule->s_min) return FO_GO;
    if ((double)done >= rule->threshold * (double)created) return FO_THRESHOLD;
    w->stale = done > w->last ? 0 : w->stale + 1;
    w->last = done;
    return w->stale >= rule->patience ? FO_STALE : FO_GO;
}

static void create(const fo_net *m, fo_run *r, int b)
{
    const int S = m->W * m->Hs;
    for (int i = 0; i < S; i++) {
        fo_flow *f = flows(m, r, 0, b) + i;
        f->s.p[0] = 2.0 * (i % m->W) / (m->W - 1) - 1;
        f->s.p[1] = 2.0 * (i / m->W) / (m->Hs - 1) - 1;
        f->s.p[2] = m->start;
        memcpy(f->s.e, m->E0 + ((int64_t)b * S + i) * m->E, sizeof *m->E0 * (size_t)m->E);
        f->origin = i;
        f->active = true;
    }
    r->count[b] = (fo_count){ .asked = S, .active = S };
}

static double side(const fo_net *m, const fo_flow *f)
{
    if (f->s.p[2] != 0) return f->s.p[2] > 0 ? 1 : -1;
    return (f->origin % m->W + f->origin / m->W) % 2 == 0 ? 1 : -1;
}

/* What the flow wants, and how much of it it gets. */
static void decide(const fo_net *m, const fo_flow *f, const double *delta, int b, int64_t slot, int s, fo_move *v)
{
    double square = 0;
    for (int a = 0; a < 3; a++) {
        const double x = m->kappa * delta[a];
        v->inside[a] = fabs(x) < m->limit;
        v->want[a] = isnan(x) ? x : fmin(fmax(x, -m->limit), m->limit);
        if (a == 2) v->want[a] += side(m, f) * m->tau;
        if (m->sigma > 0 && (a < 2 || m->noise_z))
            v->want[a] += m->sigma * m->noise(m->key, m->number ? m->number[b] : b, slot, s, a);
        square += v->want[a] * v->want[a];
    }
    v->length = sqrt(square);
    v->cut = m->spawn && m->shorten && v->length > m->rho ? m->rho / v->length : 1;
    v->moved = true;
}

/* Moves p; the planes hold zeta, x and y are folded back. */
static void walk(fo_move *v, double *p)
{
    for (int a = 0; a < 3; a++) {
        p[a] += v->cut * v->want[a];
        v->sign[a] = 1;
        while (a < 2 && fabs(p[a]) > 1) {
            p[a] = (p[a] > 0 ? 2 : -2) - p[a];
            v->sign[a] = -v->sign[a];
        }
    }
    v->leaves = fabs(p[2]) >= 1;
    if (!v->leaves) return;
    p[2] = p[2] > 0 ? 1 : -1;
    v->sign[2] = 0;
}

/* Children of a flow that was at `from` and is now `after`; `next` are the flows of the step to come. */
static void spawn(const fo_net *m, const fo_run *r, const fo_flow *from, const fo_flow *after, fo_move *v,
                  fo_flow *next, fo_count *n)
{
    const int asked = (int)fmin(fmax(floor(v->length / m->rho) - 1, 0), m->spawn);
    v->child = n->asked - n->refused; /* slots are given in order */
    for (int k = 0; k < asked; k++) {
        const int64_t slot = v->child + v->children;
        n->asked++;
        if (slot >= r->slots) {
            n->refused++;
            continue;
        }
        next[slot] = *after;
        memcpy(next[slot].s.p, from->s.p, sizeof from->s.p);
        next[slot].age = 0;
        next[slot].active = true;
        v->children++;
        n->active++;
    }
}

static void land(const fo_net *m, fo_run *r, int b, int64_t slot, const fo_flow *f, bool projected)
{
    const int64_t i = b * r->slots + slot;
    const double low = fabs(f->s.p[2] + 1), high = fabs(f->s.p[2] - 1);
    const bool up = projected ? high < low : f->s.p[2] > 0;
    r->l.u[i] = f->s.p[0];
    r->l.v[i] = f->s.p[1];
    r->l.d[i] = projected ? fmin(low, high) : 0;
    memcpy(r->l.e + i * m->E, f->s.e, sizeof *f->s.e * (size_t)m->E);
    r->l.plane[i] = up;
    r->l.age[i] = f->age;
    r->l.landed[i] = 1;
    r->zeta[i] = up ? 1 : -1;
    r->projected[i] = projected;
}

/* One step of a sample: from flows of step s to those of s + 1. */
static void step_sample(const fo_net *m, fo_run *r, int b, int s)
{
    fo_flow *now = flows(m, r, s, b), *next = flows(m, r, s + 1, b);
    fo_move *v = moves(m, r, s, b);
    fo_count *n = r->count + (s + 1) * m->B + b;
    fo_cell t;
    for (int64_t i = 0; i < r->slots; i++) {
        if (!now[i].active) continue;
        if (m->field && s > 0) read_field(m, grid(m, r, s - 1, b), now[i].s.p, now[i].s.read);
        fo_cell_forward(m, &now[i].s, &t);
        decide(m, &now[i], t.delta, b, i, s, &v[i]);
        fo_flow *f = &next[i];
        walk(&v[i], f->s.p);
        memcpy(f->s.e, t.e, sizeof t.e);
        memcpy(f->s.h, t.o, sizeof t.o);
        f->age++;
        if (m->field) deposit(m, t.phi, f->s.p, grid(m, r, s, b));
        if (m->spawn) spawn(m, r, &now[i], f, &v[i], next, n);
        if (!v[i].leaves) continue;
        f->active = false;
        n->active--, n->exited++;
        land(m, r, b, i, f, false);
    }
}

static fo_run *new_run(const fo_net *m)
{
    const int S = m->W * m->Hs;
    fo_run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->slots = S + (m->spawn ? S / 4 : 0);
    const size_t n = (size_t)(m->B * r->slots);
    r->flow = calloc(n * (size_t)(m->steps + 1), sizeof *r->flow);
    r->move = calloc(n * (size_t)m->steps + 1, sizeof *r->move);
    r->grid = calloc((size_t)(m->steps * m->B * voxels(m) * m->field) + 1, sizeof *r->grid);
    r->count = calloc((size_t)((m->steps + 1) * m->B), sizeof *r->count);
    r->stopped = calloc((size_t)m->B, sizeof *r->stopped);
    r->zeta = calloc(n, sizeof *r->zeta);
    r->projected = calloc(n, sizeof *r->projected);
    r->l = fo_landings_new(m->B, r->slots, m->E);
    assert_true(r->flow && r->move && r->grid && r->count && r->stopped && r->zeta && r->projected);
    return r;
}

void fo_free(fo_run *r)
{
    void *const all[] = { r->flow, r->move, r->grid, r->count, r->stopped, r->zeta, r->projected };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    fo_landings_free(&r->l);
    free(r);
}

/* Marks the samples that stop at the top of step s: stopped[b] = s. Those that go on have -1. Returns whether any goes on. */
static bool any_goes_on(const fo_net *m, fo_run *r, int s, fo_watch *w)
{
    fo_count all = { 0 }, *n = r->count + s * m->B;
    bool on = false;
    for (int b = 0; b < m->B; b++) {
        all.asked += n[b].asked - n[b].refused;
        all.exited += n[b].exited;
        all.active += n[b].active;
    }
    const bool stop = !m->stop.per_sample && fo_stops(&m->stop, &w[0], s, all.exited, all.asked, all.active) != FO_GO;
    for (int b = 0; b < m->B; b++) {
        if (r->stopped[b] >= 0) continue;
        const bool own = m->stop.per_sample &&
                         fo_stops(&m->stop, &w[b], s, n[b].exited, n[b].asked - n[b].refused, n[b].active) != FO_GO;
        if (stop || own || s == m->steps) r->stopped[b] = s;
        else on = true;
    }
    return on;
}

fo_run *fo_forward(const fo_net *m)
{
    fo_run *r = new_run(m);
    fo_watch *w = calloc((size_t)m->B, sizeof *w);
    assert_non_null(w);
    for (int b = 0; b < m->B; b++) {
        create(m, r, b);
        w[b].last = r->stopped[b] = -1;
    }
    const size_t B = (size_t)m->B;
    int s = 0;
    for (; any_goes_on(m, r, s, w); s++) {
        memcpy(r->count + (s + 1) * m->B, r->count + s * m->B, sizeof *r->count * B);
        memcpy(flows(m, r, s + 1, 0), flows(m, r, s, 0), sizeof *r->flow * B * (size_t)r->slots);
        for (int b = 0; b < m->B; b++)
            if (r->stopped[b] < 0) step_sample(m, r, b, s);
    }
    r->steps = s;
    for (int b = 0; b < m->B; b++)
        for (int64_t i = 0; i < r->slots; i++) {
            const fo_flow *f = flows(m, r, s, b) + i;
            if (!f->active) continue;
            land(m, r, b, i, f, true);
            r->count[s * m->B + b].active--, r->count[s * m->B + b].projected++;
        }
    free(w);
    return r;
}

/* --- backward ------------------------------------------------------------------------------------------------------------- */

/* Gradient by the wanted move, from that by the place after it. */
static void move_back(const fo_move *v, const double *after, double *want)
{
    double dot = 0;
    for (int a = 0; a < 3; a++) want[a] = v->cut * v->sign[a] * after[a];
    if (v->cut == 1) return;
    for (int a = 0; a < 3; a++) dot += want[a] * v->want[a];
    for (int a = 0; a < 3; a++) want[a] -= dot * v->want[a] / (v->length * v->length);
}

/* One flow of step s; g: gradients by its state after the step, then before it. on_grid, before: by the field after s, s - 1. */
static void flow_back(const fo_net *m, const fo_run *r, int b, int64_t i, int s, fo_state *g, const double *on_grid,
                      double *before, double *const *dp)
{
    const fo_flow *f = flows(m, r, s, b) + i, *after = flows(m, r, s + 1, b) + i;
    const fo_move *v = moves(m, r, s, b) + i;
    fo_result out = { .e = { 0 } };
    fo_state in;
    fo_cell t;
    corner c[8];
    double place[3], want[3], start[3] = { 0 };
    memcpy(place, g[i].p, sizeof place);
    memcpy(out.e, g[i].e, sizeof out.e);
    memcpy(out.h, g[i].h, sizeof out.h);
    for (int64_t k = v->child; k < v->child + v->children; k++) {
        for (int a = 0; a < 3; a++) start[a] += g[k].p[a];
        for (int j = 0; j < m->E; j++) out.e[j] += g[k].e[j];
        for (int j = 0; j < m->L * FO_H; j++) out.h[j / FO_H][j % FO_H] += g[k].h[j / FO_H][j % FO_H];
    }
    fo_cell_forward(m, &f->s, &t);
    if (m->field) {
        const int n = corners(m, after->s.p, !m->smooth, c);
        for (int k = 0; k < n; k++)
            for (int j = 0; j < m->field; j++) out.phi[j] += c[k].weight * on_grid[c[k].at * m->field + j];
        place_back(m, c, n, t.phi, on_grid, place);
    }
    move_back(v, place, want);
    for (int a = 0; a < 3; a++) out.delta[a] = v->inside[a] ? m->kappa * want[a] : 0;
    fo_cell_backward(m, &f->s, &t, &out, &in, dp);
    for (int a = 0; a < 3; a++) in.p[a] += start[a] + v->sign[a] * place[a];
    if (m->field && s > 0) {
        const int n = corners(m, f->s.p, false, c);
        for (int k = 0; k < n; k++)
            for (int j = 0; j < m->field; j++) before[c[k].at * m->field + j] += c[k].weight * in.read[j];
        place_back(m, c, n, in.read, grid(m, r, s - 1, b), in.p);
    }
    g[i] = in;
}

static void sample_back(const fo_net *m, const fo_run *r, int b, const fo_landings *l, fo_state *g, double *dgrid[2],
                        double *const *dp)
{
    const size_t bytes = sizeof(double) * (size_t)(voxels(m) * m->field);
    memset(dgrid[0], 0, bytes);
    for (int64_t i = 0; i < r->slots; i++) {
        const int64_t at = b * r->slots + i;
        g[i] = (fo_state){ .p = { l->u[at], l->v[at], r->projected[at] ? -r->zeta[at] * l->d[at] : 0 } };
        memcpy(g[i].e, l->e + at * m->E, sizeof *l->e * (size_t)m->E);
    }
    for (int s = r->steps - 1; s >= 0; s--) {
        memset(dgrid[1], 0, bytes);
        for (int64_t i = 0; i < r->slots; i++)
            if (moves(m, r, s, b)[i].moved) flow_back(m, r, b, i, s, g, dgrid[0], dgrid[1], dp);
        double *const old = dgrid[0];
        dgrid[0] = dgrid[1];
        dgrid[1] = old;
    }
}

void fo_backward(const fo_net *m, const fo_run *r, const fo_landings *l, double *const *dp, double *dE0)
{
    const int S = m->W * m->Hs;
    const size_t n = (size_t)(voxels(m) * m->field) + 1;
    fo_state *g = calloc((size_t)r->slots, sizeof *g);
    double *field[2] = { calloc(n, sizeof(double)), calloc(n, sizeof(double)) }, *dgrid[2] = { field[0], field[1] };
    assert_true(g && field[0] && field[1]);
    for (int b = 0; b < m->B; b++) {
        sample_back(m, r, b, l, g, dgrid, dp);
        for (int i = 0; dE0 && i < S * m->E; i++) dE0[(int64_t)b * S * m->E + i] += g[i / m->E].e[i % m->E];
    }
    free(g);
    free(field[0]);
    free(field[1]);
}
