/* collect: rows (dim = W, H, B, N, E), against brute force in double, and properties. Places, distances and ages are what a
 * lattice has; every fifth slot holds nothing; many landings lie on few cells, others on none. */
#include "optest.h"

#include "flow_oracle.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

enum { NEAREST = 1, BESIDE = 2, ALL = 4, CORNER = 8, EVEN = 16, SHARP = 32, TWIN = 64 };

static const tn_case cases[] = {
    { "splat", { 5, 4, 3, 20, 1 }, 0, 1e-5f, 0 },
    { "splat, planes beside, three numbers", { 4, 6, 2, 30, 3 }, BESIDE | TN_FEW, 1e-5f, 0 },
    { "splat, all landed", { 3, 3, 2, 9, 1 }, ALL, 1e-5f, 0 },
    { "splat, in one corner", { 6, 6, 2, 40, 1 }, CORNER | TN_FEW, 1e-5f, 0 },
    { "splat, more slots than cells", { 7, 5, 2, 43, 2 }, TN_FEW, 1e-5f, 0 },
    { "splat, eps 1e-6", { 2, 2, 2, 30, 1 }, SHARP | TN_FEW, 1e-5f, 0 },
    { "nearest", { 5, 4, 3, 20, 1 }, NEAREST, 1e-5f, 0 },
    { "nearest, planes beside, two numbers", { 4, 6, 2, 30, 2 }, NEAREST | BESIDE | TN_FEW, 1e-5f, 0 },
    { "nearest, in one corner", { 6, 6, 2, 40, 1 }, NEAREST | CORNER | TN_FEW, 1e-5f, 0 },
    { "nearest, equal energies", { 3, 2, 2, 40, 1 }, NEAREST | EVEN | TN_FEW | TN_NO_GRAD, 1e-5f, 0 },
    { "twin, splat", { 5, 4, 3, 20, 1 }, TWIN | TN_FEW | TN_NO_NAN, 1e-5f, 0 },
    { "twin, splat, planes beside, three numbers", { 4, 6, 2, 30, 3 }, TWIN | BESIDE | TN_FEW | TN_NO_NAN, 1e-5f, 0 },
    { "twin, splat, all landed", { 3, 9, 2, 9, 1 }, TWIN | ALL | TN_FEW | TN_NO_NAN, 1e-5f, 0 },
    { "twin, nearest", { 5, 4, 3, 20, 1 }, TWIN | NEAREST | TN_FEW | TN_NO_NAN, 1e-5f, 0 },
    { "twin, nearest, planes beside, two numbers",
      { 4, 6, 2, 30, 2 },
      TWIN | NEAREST | BESIDE | TN_FEW | TN_NO_NAN,
      1e-5f,
      0 },
    { "no samples", { 3, 3, 0, 9, 1 }, 0, 1e-6f, 0 },
    { "no slots", { 3, 3, 2, 0, 1 }, 0, 1e-6f, 0 },
};

static tn_collect_options options_of(const tn_case *c)
{
    return (tn_collect_options){ .width = c->dim[0],
                                 .height = c->dim[1],
                                 .nearest = c->flags & NEAREST,
                                 .beside = c->flags & BESIDE,
                                 .eps = c->flags & SHARP ? 1e-6f : 0 };
}

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t B = c->dim[2], N = c->dim[3];
    const double lo = c->flags & CORNER ? 0.7 : -1;
    const tn_fill_spec place = { .kind = TN_FILL_UNIFORM, .lo = lo, .hi = 1, .constant = c->flags & NEAREST };
    tn_ref in[TN_COLLECT_INPUTS];
    in[0] = tn_test_input(io, tn_shape(B, N, c->dim[4]), (tn_fill_spec){ .kind = TN_FILL_NORMAL });
    in[1] = tn_test_input(io, tn_shape(B, N), place);
    in[2] = tn_test_input(io, tn_shape(B, N), place);
    in[3] = tn_test_input(io, tn_shape(B, N), (tn_fill_spec){ .kind = TN_FILL_UNIFORM, .hi = 1 });
    in[4] = tn_test_input(io, tn_shape(B, N), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 2 });
    in[5] = tn_test_input(io, tn_shape(B, N), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 20 });
    in[6] = TN_NONE;
    if (!(c->flags & ALL)) in[6] = tn_test_input(io, tn_shape(B, N), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 5 });
    if (c->flags & TWIN) {
        tn_graph *g = tn_test_graph(io);
        tn_ref y;
        assert_ok(tn_op_collect.plain(g,
                                      &(tn_collect_attr){ (int32_t)c->dim[0], (int32_t)c->dim[1], c->flags & NEAREST,
                                                          c->flags & BESIDE, 0.1f, 1e-3f },
                                      in, TN_COLLECT_INPUTS, &y));
        tn_test_output(io, y);
    } else tn_test_output(io, tn_collect_(tn_test_graph(io), __FILE__, __LINE__, in, options_of(c)));
}

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (input == 0 && c->flags & EVEN) x[i] = 0.5;
        if (input == 0 && fabs(x[i]) < 0.05) x[i] = 0.05; /* away from the kink of |e| */
        if (input == 3 && i % 2) x[i] = 0;
    }
}

static fo_surface surface_of(const tn_case *c)
{
    return (fo_surface){ .W = (int)c->dim[0],
                         .Hs = (int)c->dim[1],
                         .E = (int)c->dim[4],
                         .B = c->dim[2],
                         .slots = c->dim[3],
                         .nearest = c->flags & NEAREST,
                         .beside = c->flags & BESIDE,
                         .age = (double)0.1f,
                         .eps = c->flags & SHARP ? (double)1e-6f : (double)1e-3f };
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const fo_surface s = surface_of(c);
    const int64_t n = s.B * s.slots;
    fo_landings l = fo_landings_new(s.B, s.slots, s.E);
    double *const to[] = { l.e, l.u, l.v, l.d, l.plane, l.age, l.landed };
    for (int64_t i = 0; i < n; i++) l.landed[i] = 1;
    for (int k = 0; k < (c->flags & ALL ? 6 : 7); k++) memcpy(to[k], o->in[k], sizeof(double) * (size_t)o->n_in[k]);
    fo_collect(&s, &l, o->out[0]);
    fo_landings_free(&l);
}

static const tn_op_test test;

/* --- properties ----------------------------------------------------------------------------------------------------------- */

enum { W = 4, H = 3, S = W * H, B = 2, N = 5 };

/* Slots of two samples; nothing has landed. */
typedef struct landings {
    float e[B * N], u[B * N], v[B * N], d[B * N];
    int32_t plane[B * N], age[B * N], landed[B * N];
} landings;

static void land(landings *l, int slot, float e, int x, int y)
{
    l->e[slot] = e;
    l->u[slot] = 2.f * (float)x / (W - 1) - 1;
    l->v[slot] = 2.f * (float)y / (H - 1) - 1;
    l->landed[slot] = 1;
}

static void collect(const landings *l, uint32_t flags, float *O, float *const *grads)
{
    const tn_case c = { "property", { W, H, B, N, 1 }, flags, 1, 0 };
    const void *in[] = { l->e, l->u, l->v, l->d, l->plane, l->age, l->landed };
    void *out[] = { O }, *all[7] = { 0 };
    for (int i = 0; grads && i < 4; i++) all[i] = grads[i];
    tn_optest_run(&test, &c, 2, in, out, grads ? all : NULL, NULL);
}

/* One flow on a cell, or several equal ones, give that cell their energy, whatever their ages; other cells stay empty. */
static void equal_flows(void)
{
    for (uint32_t flags = SHARP; flags <= (SHARP | NEAREST); flags++) {
        landings l = { 0 };
        float O[B * S];
        land(&l, 0, 0.75f, 2, 1);
        land(&l, N + 1, -0.5f, 3, 2);
        land(&l, N + 3, -0.5f, 3, 2);
        l.age[N + 1] = 7, l.d[N + 3] = 0.5f, l.plane[N + 3] = 1;
        collect(&l, flags, O, NULL);
        for (int i = 0; i < B * S; i++) {
            const float want = i == 1 * W + 2 ? 0.75f : i == S + 2 * W + 3 ? -0.5f : 0;
            assert_true(fabsf(O[i] - want) <= 2e-6f * fabsf(want));
        }
    }
}

/* Half between two cells: nearest takes the even one, splat gives it to both. */
static void ties(void)
{
    for (uint32_t flags = SHARP; flags <= (SHARP | NEAREST); flags++) {
        landings l = { 0 };
        float O[B * S];
        land(&l, 0, 1, 0, 0);
        l.v[0] = -0.5f; /* y = 0.5 of 0..2 */
        land(&l, N, 1, 0, 0);
        l.v[N] = 0.5f; /* y = 1.5 */
        collect(&l, flags, O, NULL);
        const bool nearest = flags & NEAREST;
        assert_true(fabsf(O[0] - 1) < 1e-5f && fabsf(O[W] - (nearest ? 0 : 1)) < 1e-5f && O[2 * W] == 0);
        assert_true(O[S] == 0 && fabsf(O[S + W] - (nearest ? 0 : 1)) < 1e-5f && fabsf(O[S + 2 * W] - 1) < 1e-5f);
    }
}

/* Two flows of one cell: the weights are the softmax of their scores. The planes are apart where they are asked to be. */
static void weights_and_planes(void)
{
    landings l = { 0 };
    float O[2 * B * S];
    land(&l, 0, 1, 1, 1);
    land(&l, 2, -0.5f, 1, 1);
    l.age[0] = 5, l.d[2] = 1, l.plane[2] = 1;
    collect(&l, NEAREST, O, NULL);
    const double a = exp(1.5), b = exp(0.25);
    assert_true(fabs((double)O[W + 1] - (a - 0.5 * b) / (a + b)) < 1e-6);
    collect(&l, NEAREST | BESIDE, O, NULL);
    assert_true(O[W + 1] == 1 && O[S + W + 1] == -0.5f);
    for (int i = 2 * S; i < 4 * S; i++) assert_true(O[i] == 0);
}

/* Scores beyond the range of exp: the largest one of a cell, or of the sample, is taken off first. */
static void large_scores(void)
{
    for (uint32_t flags = 0; flags <= NEAREST; flags++) {
        landings l = { 0 };
        float O[B * S];
        land(&l, 0, 300, 1, 1);
        land(&l, 1, 1, 1, 1);
        land(&l, 2, 2, 3, 2);
        collect(&l, flags, O, NULL);
        assert_true(fabsf(O[W + 1] - 300) < 1 && O[2 * W + 3] == (flags & NEAREST ? 2.f : 0.f));
    }
}

/* A sample's surface and gradients have the same bits whatever the other sample is; slots that hold nothing are not read. */
static void samples_are_alone(void)
{
    for (uint32_t flags = 0; flags <= NEAREST; flags++) {
        landings l = { 0 };
        float O[2][B * S], g[2][4][B * N];
        for (int i = 0; i < N; i++) land(&l, i, 0.3f * (float)(i - 2) + 0.1f, i % W, i % H), l.u[i] *= 0.9f;
        l.landed[3] = 0, l.e[3] = l.u[3] = NAN;
        for (int k = 0; k < 2; k++) {
            for (int i = N; k && i < B * N; i++) land(&l, i, 0.9f, 1, i % H);
            collect(&l, flags, O[k], (float *[]){ g[k][0], g[k][1], g[k][2], g[k][3] });
        }
        assert_memory_equal(O[0], O[1], sizeof(float) * S);
        for (int i = 0; i < 4; i++) {
            assert_memory_equal(g[0][i], g[1][i], sizeof(float) * N);
            assert_true(g[0][i][3] == 0);
        }
        assert_true(O[0][S] == 0 && O[1][S + 1] > 0.8f);
    }
}

static const tn_property properties[] = {
    { "equal flows", equal_flows },
    { "ties", ties },
    { "weights and planes", weights_and_planes },
    { "large scores", large_scores },
    { "samples are alone", samples_are_alone },
};

static const tn_op_test test = {
    .op = "collect",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_collect(tn_test_list *l) { tn_optest_add(l, &test); }
