/* The lattice's oracle against itself: its gradients against its differences, and what must hold of any lattice. */
#include "flow_oracle.h"

#include "base/rng.h"
#include "optest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8192 }; /* numbers of a parameter here */

/* A net with room for its parameters, energies and gradients, and the surface that collects it. */
typedef struct world {
    fo_net m;
    fo_surface surface;
    int64_t number[4];
    double p[FO_PARAMS][MOST], dp[FO_PARAMS][MOST], E0[MOST], dE0[MOST];
    double *grads[FO_PARAMS];
    double left; /* weight of the distance that is left, in the loss */
} world;

static double noise(const void *key, int64_t sample, int64_t slot, int64_t step, int axis)
{
    const tn_rng r = { .seed = *(const uint64_t *)key, .stream = (uint64_t)sample };
    return (double)tn_rng_normal(r, (uint64_t)((slot * 64 + step) * 4 + axis));
}

static const uint64_t noise_key = 77;

static double normal(uint64_t stream, int64_t i)
{
    return (double)tn_rng_normal((tn_rng){ .seed = 3, .stream = stream }, (uint64_t)i);
}

/* Takes sizes and rules from `m`; parameters are the start plus `spread` N(0,1) */
static world *new_world(fo_net m, double spread)
{
    world *w = calloc(1, sizeof *w);
    int64_t rows, columns;
    assert_non_null(w);
    m.limit = 0.5, m.kappa = m.kappa > 0 ? m.kappa : 1;
    m.noise = noise, m.key = &noise_key, m.number = w->number, m.E0 = w->E0;
    for (int b = 0; b < m.B; b++) w->number[b] = 100 + 7 * b;
    for (int k = 0; k < FO_PARAMS; k++) {
        const int64_t n = fo_size(&m, k, &rows, &columns);
        assert_true(n <= MOST);
        m.p[k] = w->p[k];
        w->grads[k] = w->dp[k];
        if (n) fo_start(&m, k, 1, w->p[k]);
        for (int64_t i = 0; i < n; i++) w->p[k][i] += spread * normal(1000 + (uint64_t)k, i) / sqrt((double)columns);
    }
    for (int i = 0; i < m.B * m.W * m.Hs * m.E; i++) w->E0[i] = 0.6 * normal(999, i);
    w->m = m;
    const int S = m.W * m.Hs;
    w->surface = (fo_surface){
        .W = m.W, .Hs = m.Hs, .E = m.E, .B = m.B, .slots = S + (m.spawn ? S / 4 : 0), .age = 0.1, .eps = 1e-3
    };
    return w;
}

static int64_t surface_size(const world *w)
{
    return w->surface.B * w->surface.W * w->surface.Hs * w->surface.E * (w->surface.beside ? 2 : 1);
}

/* --- gradients ------------------------------------------------------------------------------------------------------------ */

/* The loss is the squares of O's distance to these numbers, and of what is left. Returns that of two surfaces' difference, from
 * differences: the sums themselves would lose the digits. */
static double difference(const world *w, const fo_run *r, const double *const O[2], const fo_run *other)
{
    double sum = 0;
    for (int64_t i = 0; i < surface_size(w); i++) sum += (O[0][i] - O[1][i]) * (O[0][i] + O[1][i] - 2 * normal(5, i));
    for (int64_t i = 0; i < w->m.B * r->slots; i++) sum += w->left * (r->l.d[i] - other->l.d[i]);
    return sum;
}

static void gradients(world *w, const fo_run *r)
{
    double O[512], dO[512];
    fo_landings g = fo_landings_new(w->m.B, r->slots, w->m.E);
    fo_collect(&w->surface, &r->l, O);
    for (int64_t i = 0; i < surface_size(w); i++) dO[i] = 2 * (O[i] - normal(5, i));
    fo_collect_backward(&w->surface, &r->l, dO, &g);
    for (int64_t i = 0; i < w->m.B * r->slots; i++) g.d[i] += w->left;
    fo_backward(&w->m, r, &g, w->grads, w->dE0);
    fo_landings_free(&g);
}

/* The difference quotient of the loss along v (n). */
static double quotient(const world *w, double *x, const double *v, int64_t n)
{
    const double h = 1e-6;
    double O[2][512];
    fo_run *r[2];
    for (int k = 0; k < 2; k++) {
        double was[MOST];
        memcpy(was, x, sizeof *x * (size_t)n);
        for (int64_t i = 0; i < n; i++) x[i] += (k ? -h : h) * v[i];
        r[k] = fo_forward(&w->m);
        fo_collect(&w->surface, &r[k]->l, O[k]);
        memcpy(x, was, sizeof *x * (size_t)n);
    }
    const double change = difference(w, r[0], (const double *const[]){ O[0], O[1] }, r[1]);
    fo_free(r[0]);
    fo_free(r[1]);
    return change / (2 * h);
}

/* Some numbers of a tensor, and all of them along one direction, relative to the tensor's largest gradient. */
static void check_tensor(const world *w, const char *name, double *x, const double *g, int64_t n, int some)
{
    double most = 0, v[MOST], along = 0, size = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(g[i]));
    if (!(most > 0)) fail_msg("%s has no gradient", name);
    for (int k = 0; k < some; k++) {
        const int64_t at =
            (int64_t)tn_rng_below((tn_rng){ .seed = 9, .stream = (uint64_t)n }, (uint64_t)k, (uint64_t)n);
        memset(v, 0, sizeof v);
        v[at] = 1;
        const double error = fabs(quotient(w, x, v, n) - g[at]) / most;
        if (!(error < 1e-6)) fail_msg("%s[%d]: relative error %.1e", name, (int)at, error);
    }
    for (int64_t i = 0; i < n; i++) v[i] = normal(11, i), size += v[i] * v[i];
    for (int64_t i = 0; i < n; i++) v[i] /= sqrt(size), along += v[i] * g[i];
    const double error = fabs(quotient(w, x, v, n) - along) / fmax(fabs(along), most / 10);
    if (!(error < 1e-6)) fail_msg("%s along a direction: relative error %.1e", name, error);
}

typedef struct gradient_row {
    const char *name;
    int E, neuron, features, hidden, field, spawn;
    bool nearest, beside, smooth, shorten;
    double rho, sigma, kappa;
    int some;
} gradient_row;

static const gradient_row gradient_rows[] = {
    { "splat", 1, 32, 64, 64, 0, 0, .some = 5 },
    { "clamped", 1, 8, 8, 8, 0, 0, .kappa = 4, .some = 3 },
    { "nearest", 1, 32, 64, 64, 0, 0, .nearest = true, .some = 2 },
    { "two numbers, planes beside", 2, 8, 8, 8, 0, 0, .beside = true, .some = 3 },
    { "two numbers, nearest, planes beside", 2, 8, 8, 8, 0, 0, .nearest = true, .beside = true, .some = 3 },
    { "field", 1, 8, 8, 8, 3, 0, .some = 3 },
    { "smooth field", 1, 8, 8, 8, 3, 0, .smooth = true, .some = 3 },
    { "spawn", 1, 8, 8, 8, 0, 2, .rho = 0.15, .some = 3 },
    { "spawn, shortened, field", 1, 8, 8, 8, 3, 2, .smooth = true, .shorten = true, .rho = 0.2, .sigma = 0.1,
      .some = 3 },
};

static void gradients_are_right(void **state)
{
    const gradient_row *row = *state;
    world *w = new_world((fo_net){ .W = 4,
                                   .Hs = 4,
                                   .D = 4,
                                   .B = 2,
                                   .E = row->E,
                                   .H = 8,
                                   .L = 2,
                                   .neuron = row->neuron,
                                   .features = row->features,
                                   .hidden = row->hidden,
                                   .field = row->field,
                                   .grid = { 3, 4, 5 },
                                   .smooth = row->smooth,
                                   .steps = row->shorten ? 7 : 4,
                                   .tau = 0.3,
                                   .sigma = row->sigma > 0 ? row->sigma : 0.05,
                                   .noise_z = true,
                                   .stop = { .never = true },
                                   .spawn = row->spawn,
                                   .kappa = row->kappa,
                                   .rho = row->rho,
                                   .shorten = row->shorten },
                         0.3);
    static const char *const kinds[] = { "Wi", "Wh", "bi", "bh" };
    int64_t rows, columns, cells[64];
    w->left = 0.3;
    w->surface.nearest = row->nearest, w->surface.beside = row->beside;
    fo_run *r = fo_forward(&w->m);
    int64_t projected = 0, children = 0, clamped = 0, folded = 0, n = w->m.B * r->slots;
    for (int64_t i = 0; i < n; i++) {
        cells[i] = fo_nearest_cell(&w->surface, r->l.u[i], r->l.v[i]);
        projected += r->projected[i];
        children += r->l.landed[i] != 0 && i % r->slots >= 16;
    }
    for (int64_t i = 0; i < n * r->steps; i++) {
        clamped += r->move[i].moved && !(r->move[i].inside[0] && r->move[i].inside[1]);
        folded += r->move[i].sign[0] < 0;
    }
    assert_true(folded > 0 && (clamped > 0 || row->kappa == 0));
    assert_true(projected > 0 && projected < n && (children > 0) == (row->spawn > 0));
    w->surface.cells = cells;
    gradients(w, r);
    fo_free(r);
    for (int k = 0; k < FO_PARAMS; k++) {
        char name[32];
        const int64_t size = fo_size(&w->m, k, &rows, &columns);
        if (!size) continue;
        snprintf(name, sizeof name, k < FO_GRU ? "parameter %d" : "layer %d %s", k < FO_GRU ? k : (k - FO_GRU) / 4,
                 kinds[(k - FO_GRU + 4 * FO_PARAMS) % 4]);
        check_tensor(w, name, w->p[k], w->dp[k], size, row->some);
    }
    check_tensor(w, "E0", w->E0, w->dE0, w->m.B * 16 * w->m.E, 8);
    free(w);
}

/* --- what holds of any lattice -------------------------------------------------------------------------------------------- */

static const fo_net small = { .W = 5,
                              .Hs = 4,
                              .D = 4,
                              .B = 3,
                              .E = 1,
                              .H = 8,
                              .L = 2,
                              .neuron = 8,
                              .features = 8,
                              .hidden = 8,
                              .grid = { 3, 3, 3 },
                              .steps = 6,
                              .tau = 0.3,
                              .sigma = 0.05,
                              .stop = { .never = true } };

static void run_surface(const world *w, double *O)
{
    fo_run *r = fo_forward(&w->m);
    fo_collect(&w->surface, &r->l, O);
    fo_free(r);
}

/* With field, spawn and a stop of its own a sample still feels no other; and the batch's order is that of its results. */
static void samples_are_alone(void **state)
{
    fo_net m = small;
    (void)state;
    m.field = 2, m.spawn = 2, m.rho = 0.15;
    m.stop = (fo_stop){ .per_sample = true, .threshold = 0.5, .s_min = 2, .patience = 2 };
    world *w = new_world(m, 0.3);
    enum { S = 20 };
    double before[3 * S], after[3 * S];
    run_surface(w, before);
    for (int i = 0; i < S; i++) w->E0[S + i] += 0.5;
    run_surface(w, after);
    assert_memory_equal(before, after, sizeof(double) * S);
    assert_memory_equal(before + 2 * S, after + 2 * S, sizeof(double) * S);
    assert_memory_not_equal(before + S, after + S, sizeof(double) * S);
    for (int i = 0; i < S; i++) {
        const double x = w->E0[i];
        w->E0[i] = w->E0[2 * S + i];
        w->E0[2 * S + i] = x;
    }
    w->number[0] = 114, w->number[2] = 100;
    run_surface(w, before);
    assert_memory_equal(before, after + 2 * S, sizeof(double) * S);
    assert_memory_equal(before + S, after + S, sizeof(double) * S);
    assert_memory_equal(before + 2 * S, after, sizeof(double) * S);
    free(w);
}

/* Counts at every step, places inside, planes exact; with spawn the budget is the sample's and is used up. */
static void flows_are_conserved(void **state)
{
    (void)state;
    for (int spawns = 0; spawns < 2; spawns++) {
        fo_net m = small;
        m.spawn = spawns * 2, m.rho = 0.1, m.sigma = 0.2, m.noise_z = true;
        world *w = new_world(m, 0.6);
        fo_run *r = fo_forward(&w->m);
        assert_int_equal(r->slots, spawns ? 25 : 20);
        for (int s = 0; s <= r->steps; s++)
            for (int b = 0; b < m.B; b++) {
                const fo_count n = r->count[s * m.B + b];
                int64_t active = 0, left = 0;
                for (int64_t i = 0; i < r->slots; i++) {
                    const fo_flow *f = &r->flow[(s * m.B + b) * r->slots + i];
                    active += f->active;
                    left += !f->active && fabs(f->s.p[2]) == 1;
                    assert_true(fabs(f->s.p[0]) <= 1 && fabs(f->s.p[1]) <= 1 && fabs(f->s.p[2]) <= 1);
                    assert_true(!f->active || fabs(f->s.p[2]) < 1);
                }
                assert_int_equal(n.asked, n.active + n.exited + n.projected + n.refused);
                assert_int_equal(active, n.active + n.projected);
                assert_int_equal(left, n.exited);
                assert_true(s < r->steps ? n.projected == 0 : n.active == 0);
            }
        for (int b = 0; b < m.B; b++) {
            const fo_count n = r->count[r->steps * m.B + b];
            assert_int_equal(n.asked - n.refused, spawns ? 25 : 20);
            assert_true((n.refused > 0) == (spawns > 0) && n.exited > 0);
        }
        for (int64_t i = 0; i < m.B * r->slots; i++)
            assert_true(r->l.landed[i] == 1 && fabs(r->zeta[i]) == 1 && (r->projected[i] || r->l.d[i] == 0));
        fo_free(r);
        free(w);
    }
}

/* From the centre nothing leaves in the first step, and with large displacements something in the second. */
static void no_exit_before_step_2(void **state)
{
    fo_net m = small;
    (void)state;
    m.sigma = 0;
    world *w = new_world(m, 0.3);
    for (int i = 0; i < 3 * m.hidden; i++) w->p[FO_D2][i] *= 100;
    fo_run *r = fo_forward(&w->m);
    int64_t first = 0, second = 0;
    for (int b = 0; b < m.B; b++) {
        first += r->count[m.B + b].exited;
        second += r->count[2 * m.B + b].exited;
    }
    assert_int_equal(first, 0);
    assert_true(second > 0);
    fo_free(r);
    free(w);
}

/* Without displacement a flow drifts straight: to +1 from even cells, to -1 from odd ones, in ceil(1 / tau) steps. */
static void drift_alone(void **state)
{
    fo_net m = small;
    (void)state;
    m.sigma = 0;
    world *w = new_world(m, 0);
    memset(w->p[FO_D2], 0, sizeof w->p[FO_D2]);
    fo_run *r = fo_forward(&w->m);
    for (int64_t i = 0; i < m.B * r->slots; i++) {
        const int cell = (int)(i % r->slots), odd = (cell % m.W + cell / m.W) % 2;
        assert_int_equal((int)r->l.plane[i], !odd);
        assert_int_equal((int)r->l.age[i], 4);
        assert_int_equal(fo_nearest_cell(&w->surface, r->l.u[i], r->l.v[i]), cell);
        assert_false(r->projected[i]);
    }
    fo_free(r);
    w->m.steps = 3; /* and stands at 0.9 where the steps end before */
    r = fo_forward(&w->m);
    for (int64_t i = 0; i < m.B * r->slots; i++) {
        assert_true(r->projected[i] && fabs(r->l.d[i] - 0.1) < 1e-12);
        assert_int_equal((int)r->l.age[i], 3);
    }
    fo_free(r);
    free(w);
}

/* --- when it stops -------------------------------------------------------------------------------------------------------- */

typedef struct curve {
    const char *name;
    int64_t done[12]; /* of 100, at the top of each step */
    int step;         /* where it stops; 12: never */
    fo_why why;
} curve;

static const curve curves[] = {
    { "threshold", { 0, 20, 50, 96, 96, 97, 98 }, 5, FO_THRESHOLD },
    { "threshold later", { 0, 0, 0, 0, 0, 10, 30, 94, 95 }, 8, FO_THRESHOLD },
    { "stagnation", { 0, 1, 2, 3, 4, 5, 6, 6, 7, 7, 7, 7 }, 11, FO_STALE },
    { "nothing ever leaves", { 0 }, 8, FO_STALE },
    { "all left early", { 0, 0, 100, 100 }, 2, FO_EMPTY },
    { "never", { 0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 9 }, 12, FO_GO },
};

static void stops_by_its_curve(void **state)
{
    const curve *c = *state;
    const fo_stop rule = { .threshold = 0.95, .s_min = 5, .patience = 3 }, never = { .never = true };
    fo_watch w = { -1, 0 };
    fo_why why = FO_GO;
    int s = 0;
    while (s < 12 && (why = fo_stops(&rule, &w, s, c->done[s], 100, 100 - c->done[s])) == FO_GO) s++;
    assert_int_equal(s, c->step);
    assert_int_equal(why, c->why);
    for (s = 0; s < 12; s++)
        assert_int_equal(fo_stops(&never, &w, s, c->done[s], 100, 100 - c->done[s]),
                         c->done[s] == 100 ? FO_EMPTY : FO_GO);
}

/* The rollout obeys: a threshold that step 3 reaches ends it there, of the batch or of each sample. */
static void rollout_stops(void **state)
{
    fo_net m = small;
    (void)state;
    m.sigma = 0;
    m.stop = (fo_stop){ .threshold = 0.01, .s_min = 2, .patience = 9 };
    for (int own = 0; own < 2; own++) {
        m.stop.per_sample = own;
        world *w = new_world(m, 0.5);
        fo_run *r = fo_forward(&w->m);
        int most = 0;
        for (int b = 0; b < m.B; b++) {
            const int s = r->stopped[b];
            assert_true(s >= 2 && s < m.steps);
            assert_true(!own || (r->count[s * m.B + b].exited > 0 && (s == 2 || !r->count[(s - 1) * m.B + b].exited)));
            assert_true(r->count[r->steps * m.B + b].projected > 0);
            most = s > most ? s : most;
            assert_true(own || s == r->stopped[0]);
        }
        assert_int_equal(most, r->steps);
        fo_free(r);
        free(w);
    }
}

/* --- the start ------------------------------------------------------------------------------------------------------------ */

/* Cells that a landing's kernel reaches. */
static int covered(const world *w, const fo_run *r)
{
    double O[196];
    int n = 0;
    fo_landings l = r->l;
    l.e = calloc((size_t)r->slots, sizeof *l.e);
    assert_non_null(l.e);
    for (int64_t i = 0; i < r->slots; i++) l.e[i] = 1;
    fo_collect(&w->surface, &l, O);
    for (int i = 0; i < 196; i++) n += O[i] > 0;
    free(l.e);
    return n;
}

/* With first values alone the flows reach nearly all cells, and every parameter has a gradient. */
static void start_covers_the_surface(void **state)
{
    (void)state;
    world *w = new_world((fo_net){ .W = 14,
                                   .Hs = 14,
                                   .D = 16,
                                   .B = 1,
                                   .E = 1,
                                   .H = 32,
                                   .L = 2,
                                   .neuron = 32,
                                   .features = 64,
                                   .hidden = 64,
                                   .steps = 8,
                                   .tau = 1.2 / 8,
                                   .stop = { .threshold = 0.95, .s_min = 5, .patience = 3 } },
                         0);
    int64_t rows, columns;
    for (uint64_t seed = 1; seed < 4; seed++) {
        for (int k = 0; k < FO_PARAMS; k++)
            if (fo_size(&w->m, k, &rows, &columns)) fo_start(&w->m, k, seed, w->p[k]);
        memset(w->dp, 0, sizeof w->dp);
        fo_run *r = fo_forward(&w->m);
        const int cells = covered(w, r);
        if (cells < 177) fail_msg("flows reach %d of 196 cells", cells);
        gradients(w, r);
        for (int k = 0; k < FO_PARAMS; k++) {
            double most = 0;
            const int64_t n = fo_size(&w->m, k, &rows, &columns);
            for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(w->dp[k][i]));
            if (n && !(most > 1e-9)) fail_msg("parameter %d has no gradient", k);
        }
        fo_free(r);
    }
    free(w);
}

/* One GRU number by hand: r = 1/2, z = 1/4, c = tanh(1/2 + 1/2 (3 h + 1/4)); the reset gate is behind the product. */
static void gru_by_hand(void **state)
{
    (void)state;
    world *w = new_world((fo_net){ .W = 2,
                                   .Hs = 2,
                                   .D = 2,
                                   .B = 1,
                                   .E = 1,
                                   .H = 2,
                                   .L = 1,
                                   .neuron = 2,
                                   .features = 2,
                                   .hidden = 2,
                                   .steps = 1 },
                         0);
    double *const *p = (double *[]){ w->p[FO_GRU], w->p[FO_GRU + 1], w->p[FO_GRU + 2], w->p[FO_GRU + 3] };
    const double h = 0.5;
    memset(p[FO_WI], 0, sizeof w->p[0]);
    memset(p[FO_WH], 0, sizeof w->p[0]);
    p[FO_BI][2] = -log(3) - 1, p[FO_BH][2] = 1; /* z */
    p[FO_BI][4] = 0.5, p[FO_BH][4] = 0.25, p[FO_WH][4 * 2] = 3;
    fo_cell t;
    fo_cell_forward(&w->m, &(fo_state){ .h = { { h } } }, &t);
    assert_true(fabs(t.o[0][0] - (0.75 * tanh(0.5 + 0.5 * (3 * h + 0.25)) + 0.25 * h)) < 1e-15);
    free(w);
}

void tn_tests_flow_oracle(tn_test_list *l)
{
    for (size_t i = 0; i < TN_COUNT(gradient_rows); i++)
        tn_test_add(l, gradients_are_right, &gradient_rows[i], "flow oracle: gradients, %s", gradient_rows[i].name);
    tn_test_add(l, samples_are_alone, NULL, "flow oracle: samples are alone and in order");
    tn_test_add(l, flows_are_conserved, NULL, "flow oracle: flows are conserved");
    tn_test_add(l, no_exit_before_step_2, NULL, "flow oracle: no exit before step 2");
    tn_test_add(l, drift_alone, NULL, "flow oracle: drift alone");
    for (size_t i = 0; i < TN_COUNT(curves); i++)
        tn_test_add(l, stops_by_its_curve, &curves[i], "flow oracle: stop, %s", curves[i].name);
    tn_test_add(l, rollout_stops, NULL, "flow oracle: a rollout stops");
    tn_test_add(l, start_covers_the_surface, NULL, "flow oracle: the start covers the surface");
    tn_test_add(l, gru_by_hand, NULL, "flow oracle: a GRU by hand");
}
