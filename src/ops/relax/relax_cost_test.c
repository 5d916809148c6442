/* FLOPs of a solve, counted from the steps that its samples took: those of the products alone, and no more than can be. */
#include "relax_case.h"

#include "world.h"

enum { B = 21, D = 12, F = 20, C = 5, T = 9, N = 19 /* samples; the other rows are empty */ };

typedef struct way {
    const char *name;
    int flags;
    double samples, nudged, free; /* back: maps of every sample, of every nudged or adjoint step, of every free one */
    bool cost;                    /* nudged steps take the cost and its gradient too */
} way;

/* At the equilibrium the map and both of its gradients, unless a nudge's first step had that map already. */
static const way ways[] = {
    { "block by nudges", RC_EP, 2, 1, 0, true },
    { "block by centred nudges from rest", RC_EP | RC_CENTRED | RC_REST, 1, 1, 0, true },
    { "energy by centred nudges", RC_ENERGY | RC_EP | RC_CENTRED, 1, 1, 0, true },
    { "block by nudges, all together", RC_EP | RC_TOL, 3, 1, 0, true },
    { "hopfield by nudges, Anderson", RC_HOPFIELD | RC_EP | RC_ANDERSON, 3, 1, 0, true },
    { "block, implicit", RC_IMPLICIT, 3, 1, 0, false },
    { "energy, one step", RC_ENERGY | RC_ONE_STEP, 3, 0, 0, false },
    { "block through time", 0, 0, 0, 2.5, false },
    { "hopfield through time", RC_HOPFIELD, 0, 0, 2, false },
};

static double sum(tn_bound *b, const char *name)
{
    const int32_t *n = tn_bound_data(b, name);
    double all = 0;
    for (int i = 0; n && i < B; i++) all += n[i];
    return all;
}

static void fill(tn_bound *b, const tn_case *c)
{
    for (int i = 0; i < RC_INPUTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        const tn_fill_spec s = rc_fill(c, i);
        void *to = rc_has(c, i) ? tn_bound_data(b, name) : NULL;
        const int64_t n = to ? tn_dims_count(rc_dims(c, i)) : 0;
        for (int64_t k = 0; k < n; k++) {
            const double u = (double)tn_rng_uniform((tn_rng){ 31, (uint64_t)i }, (uint64_t)k);
            if (s.kind == TN_FILL_INT) ((int32_t *)to)[k] = (int32_t)floor(s.lo + (s.hi - s.lo) * u);
            else ((float *)to)[k] = (float)(s.kind == TN_FILL_UNIFORM ? s.lo + (s.hi - s.lo) * u : 4 * u - 2);
        }
    }
}

static void counts_flops(void **state)
{
    const way *w = *state;
    if (tn_test_device() != TN_CPU) return; /* a GPU's counts are the GPU's */
    const bool hopfield = w->flags & RC_HOPFIELD;
    const tn_case c = { "", { B, D, hopfield ? D : F, C, T, N }, w->flags, 0, 0 };
    tn_world world = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(NULL);
    tn_ref in[RC_INPUTS];
    rc_inputs(g, &c, true, in);
    const rc_outputs out = rc_node(g, &c, in);
    tn_output(g, "free", out.free_steps);
    if (w->flags & RC_EP) tn_output(g, "nudged", out.nudged_steps);
    if (w->flags & RC_IMPLICIT) tn_output(g, "nudged", out.adjoint_steps);
    tn_bound *b = tn_world_add(&world, g, &(tn_compile_options){ .loss = tn_sum_all(g, out.h), .threads = 1 });
    fill(b, &c);
    tn_bound_timers(b, true);
    for (int i = 0; i < 2; i++) assert_ok(tn_run(b));
    tn_node_time row[32];
    const size_t n = tn_bound_node_times(b, row, 0, 32);
    const double map = hopfield ? 2 * D * D : 4 * D * F, cost = w->cost ? 4 * D * C : 0;
    const double forward = map * sum(b, "free"), backward = map * (w->samples * N + w->free * sum(b, "free")) +
                                                            (w->nudged * map + cost) * sum(b, "nudged");
    int seen = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(row[i].op, "relax") != 0) continue;
        const double expected = 2 * (row[i].backward ? backward : forward);
        if (row[i].varies || fabs(row[i].flops - expected) > 1e-9 * expected)
            fail_msg("%s, %s: %.0f FLOPs, expected %.0f", w->name, row[i].backward ? "backward" : "forward",
                     row[i].flops, expected);
        seen++;
    }
    assert_int_equal(seen, 2);
    assert_true(sum(b, "free") >= N && (w->flags & RC_TOL || sum(b, "free") < N * T)); /* some stop early */
    tn_world_close(&world);
}

/* What can be at most is what it is, where every sample takes all of its steps. */
static void most_is_reached(void **state)
{
    (void)state;
    if (tn_test_device() != TN_CPU) return;
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        const bool hopfield = ways[k].flags & RC_HOPFIELD;
        const tn_case c = { "", { B, D, hopfield ? D : F, C, T, B }, ways[k].flags | RC_FIXED, 0, 0 };
        tn_world world = tn_world_open(1, 1);
        tn_graph *g = tn_world_graph(NULL);
        tn_ref in[RC_INPUTS];
        rc_inputs(g, &c, true, in);
        const rc_outputs out = rc_node(g, &c, in);
        tn_output(g, "free", out.free_steps);
        if (ways[k].flags & RC_EP) tn_output(g, "nudged", out.nudged_steps);
        if (ways[k].flags & RC_IMPLICIT) tn_output(g, "nudged", out.adjoint_steps);
        tn_bound *b = tn_world_add(&world, g, &(tn_compile_options){ .loss = tn_sum_all(g, out.h), .threads = 1 });
        fill(b, &c);
        tn_bound_timers(b, true);
        assert_ok(tn_run(b));
        tn_node_time row[32];
        double counted = 0;
        const size_t n = tn_bound_node_times(b, row, 0, 32);
        for (size_t i = 0; i < n; i++) counted += row[i].flops;
        if (fabs(counted / tn_plan_flops(world.plan[0]) - 1) > 1e-9)
            fail_msg("%s: %.0f FLOPs of at most %.0f", ways[k].name, counted, tn_plan_flops(world.plan[0]));
        tn_world_close(&world);
    }
}

void tn_tests_relax_cost(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        tn_test_add(l, counts_flops, &ways[i], "relax cost: %s", ways[i].name);
    tn_test_add(l, most_is_reached, NULL, "relax cost: the most there can be");
}
