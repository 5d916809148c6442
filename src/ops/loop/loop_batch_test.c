/* What a sample of a solve gets does not depend on the batch around it: order, company, padding, compaction, threads,
 * neighbours that never converge. And: memory does not depend on the steps; Anderson on hard maps. */
#include "equilibrium.h"

enum { OUTPUTS = 7, PER_SAMPLE = 6 };

/* Everything a run gives, for comparisons bit by bit. */
typedef struct run {
    float h[EQ_N], da[EQ_N], dW[EQ_M * EQ_H], db[EQ_M], residuals[EQ_B], signal[EQ_B];
    int32_t steps[EQ_B], nudged[EQ_B], adjoint[EQ_B];
} run;

static void take(tn_bound *b, void *to, const char *name, size_t bytes) { memcpy(to, tn_world_data(b, name), bytes); }

static void run_plan(tn_bound *b, run *r)
{
    assert_ok(tn_run(b));
    take(b, r->h, "h", sizeof r->h);
    take(b, r->da, "d.a", sizeof r->da);
    take(b, r->dW, "d.W", sizeof r->dW);
    take(b, r->db, "d.b", sizeof r->db);
    take(b, r->residuals, "residuals", sizeof r->residuals);
    take(b, r->signal, "signal", sizeof r->signal);
    take(b, r->steps, "steps", sizeof r->steps);
    take(b, r->nudged, "nudged", sizeof r->nudged);
    take(b, r->adjoint, "adjoint", sizeof r->adjoint);
}

/* Sample i of a is sample k of b, bit for bit. */
static void same_sample(const run *a, int i, const run *b, int k)
{
    const size_t row = sizeof(float) * EQ_WIDTH;
    assert_memory_equal(a->h + i * EQ_WIDTH, b->h + k * EQ_WIDTH, row);
    assert_memory_equal(a->da + i * EQ_WIDTH, b->da + k * EQ_WIDTH, row);
    assert_memory_equal(&a->residuals[i], &b->residuals[k], sizeof(float));
    assert_memory_equal(&a->signal[i], &b->signal[k], sizeof(float));
    assert_int_equal(a->steps[i], b->steps[k]);
    assert_int_equal(a->nudged[i], b->nudged[k]);
    assert_int_equal(a->adjoint[i], b->adjoint[k]);
}

static const eq_options kinds[] = {
    { .grad = TN_LOOP_EP, .centred = true },
    { .grad = TN_LOOP_EP, .anderson = true },
    { .grad = TN_LOOP_IMPLICIT },
    { .grad = TN_LOOP_IMPLICIT, .anderson = true },
    { .grad = TN_LOOP_ONE_STEP },
    { .grad = TN_LOOP_BPTT },
    { .grad = TN_LOOP_EP, .tol = true, .proxy = true },
};
enum { KINDS = sizeof kinds / sizeof *kinds, BY_RTOL = KINDS - 1 };
static const int in_order[EQ_B] = { 0, 1, 2, 3, 4, 5, 6 }, permuted[EQ_B] = { 4, 2, 6, 0, 5, 3, 1 };

static void any_company(void **state)
{
    (void)state;
    for (int k = 0; k < BY_RTOL; k++) {
        tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
        tn_bound *b = eq_plan(&w, &kinds[k]);
        run whole, other;
        eq_fill(b, in_order, EQ_B);
        run_plan(b, &whole);
        eq_fill(b, permuted, EQ_B);
        run_plan(b, &other);
        for (int s = 0; s < EQ_B; s++) same_sample(&other, s, &whole, permuted[s]);
        for (int s = 0; s < EQ_B; s++) { /* alone */
            const int first[EQ_B] = { s };
            eq_fill(b, first, 1);
            run_plan(b, &other);
            same_sample(&other, 0, &whole, s);
        }
        tn_world_close(&w);
    }
}

/* bptt sums over samples by their steps where they leave, and in order where they stay: other sums, but for rounding. */
static void same_sums(run *a, const run *b)
{
    if (!(tn_world_distance(a->dW, b->dW, EQ_M * EQ_H) < 1e-6 && tn_world_distance(a->db, b->db, EQ_M) < 1e-6))
        fail_msg("the gradients of the weights differ");
    memcpy(a->dW, b->dW, sizeof a->dW);
    memcpy(a->db, b->db, sizeof a->db);
}

/* opt.compact=off, and constants not marked at all, give the same bits; so do two threads. */
static void any_way(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        eq_options o[4] = { kinds[k], kinds[k], kinds[k], kinds[k] };
        run first, other;
        o[1].off = "opt.compact";
        o[2].unmarked = true;
        o[3].threads = 2;
        for (int i = 0; i < 4; i++) {
            tn_world w = tn_world_open_on(tn_test_device(), 1, o[i].threads ? o[i].threads : 1);
            tn_bound *b = eq_plan(&w, &o[i]);
            memset(&other, 0, sizeof other);
            eq_fill(b, permuted, EQ_B - 1);
            run_plan(b, i ? &other : &first);
            if (kinds[k].grad == TN_LOOP_BPTT && (i == 1 || i == 2)) same_sums(&other, &first);
            if (i) assert_memory_equal(&first, &other, sizeof first);
            tn_world_close(&w);
        }
    }
}

/* With compaction the body computes a sample as often as it needs it, without it as often as the slowest needs. */
static void no_vain_work(void **state)
{
    (void)state;
    if (tn_test_device() != TN_CPU) return; /* rows keep their places there, and the op that counts is the CPU's */
    for (int k = 0; k < BY_RTOL; k++)
        for (int off = 0; off < 2; off++) {
            tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
            eq_options o = kinds[k];
            const bool bptt =
                o.grad == TN_LOOP_BPTT; /* back through every step, and then there is nothing left at the end */
            int64_t rows[2] = { 0 }, forward = 0, backward = 0, slowest = 0;
            run r;
            o.off = off ? "opt.compact" : NULL;
            o.rows = rows;
            tn_bound *b = eq_plan(&w, &o);
            eq_fill(b, permuted, EQ_B - 1);
            run_plan(b, &r);
            for (int s = 0; s < EQ_B; s++) {
                forward += r.steps[s] + r.nudged[s];
                const int32_t back = bptt ? r.steps[s] : r.adjoint[s];
                backward += back;
                slowest = back > slowest ? back : slowest;
            }
            if (off) {
                assert_true(rows[0] > forward + 3 * (EQ_B - 1));
                backward = slowest * (EQ_B - 1);
            } else { /* the pull back at the end, and each state-VJP, may compute the map once more */
                assert_in_range(rows[0], forward, forward + backward + EQ_B - 1);
            }
            assert_int_equal(rows[1], backward + (bptt ? 0 : EQ_B - 1));
            tn_world_close(&w);
        }
}

/* Rows behind the count hold anything: they come out as they went in, and nothing else notices. */
static void padding(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    for (int k = 0; k < KINDS; k++)
        for (int off = 0; off < 2; off++) {
            tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
            eq_options o = kinds[k];
            o.off = off ? "opt.compact" : NULL;
            tn_bound *b = eq_plan(&w, &o);
            run clean, poisoned;
            eq_fill(b, in_order, COUNT);
            run_plan(b, &clean);
            static const char *const inputs[] = { "a", "y", "g", "h0" };
            for (int i = 0; i < 4; i++)
                for (int j = COUNT * EQ_WIDTH; j < EQ_N; j++)
                    ((float *)tn_world_data(b, inputs[i]))[j] = i == 3 ? 77.f + (float)j : NAN;
            for (int j = EQ_N - 3; j < EQ_N; j++)
                ((float *)tn_world_data(b, "g"))[j] = 5; /* a gradient nobody asked for */
            run_plan(b, &poisoned);
            for (int s = 0; s < COUNT; s++) same_sample(&clean, s, &poisoned, s);
            for (int s = COUNT; s < EQ_B; s++)
                assert_true(!poisoned.steps[s] && !poisoned.nudged[s] && !poisoned.adjoint[s] &&
                            poisoned.signal[s] == 0 && poisoned.residuals[s] == 0);
            for (int j = COUNT * EQ_WIDTH; j < EQ_N; j++)
                assert_true(poisoned.h[j] == 77.f + (float)j && poisoned.da[j] == 0);
            assert_memory_equal(clean.dW, poisoned.dW, sizeof clean.dW);
            assert_memory_equal(clean.db, poisoned.db, sizeof clean.db);
            tn_world_close(&w);
        }
}

static void nobody(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
        tn_bound *b = eq_plan(&w, &kinds[k]);
        run r;
        eq_fill(b, in_order, 0);
        run_plan(b, &r);
        assert_int_equal(*(int32_t *)tn_world_data(b, "taken"), 0);
        assert_memory_equal(r.h, tn_world_data(b, "h0"), sizeof r.h);
        for (int i = 0; i < EQ_N; i++) assert_true(r.da[i] == 0);
        for (int i = 0; i < EQ_M * EQ_H; i++) assert_true(r.dW[i] == 0);
        *(int32_t *)tn_world_data(b, "count") = EQ_B + 1;
        if (tn_test_device() == TN_CPU) assert_fails(tn_run(b), TN_USAGE, "count is 8 and the batch has 7 rows");
        else assert_ok(tn_run(b)); /* the count is cut to the rows there are */
        tn_world_close(&w);
    }
}

/* A sample that is NaN never counts as there, and the others do not notice. */
static void not_a_number(void **state)
{
    (void)state;
    for (int k = 0; k < BY_RTOL; k++) {
        tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
        tn_bound *b = eq_plan(&w, &kinds[k]);
        run clean, bad;
        eq_fill(b, in_order, EQ_B);
        run_plan(b, &clean);
        ((float *)tn_world_data(b, "a"))[2 * EQ_WIDTH + 1] = NAN;
        run_plan(b, &bad);
        for (int s = 0; s < EQ_B; s++)
            if (s != 2) same_sample(&clean, s, &bad, s);
        assert_int_equal(bad.steps[2], 200);
        assert_true(isnan(bad.residuals[2]) && isnan(bad.h[2 * EQ_WIDTH + 1]));
        if (kinds[k].grad == TN_LOOP_EP) assert_int_equal(bad.nudged[2], kinds[k].centred ? 400 : 200);
        if (kinds[k].grad == TN_LOOP_IMPLICIT) assert_int_equal(bad.adjoint[2], 200);
        tn_world_close(&w);
    }
}

static void memory_of_steps(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
        eq_options o = kinds[k];
        size_t arena[2];
        for (int i = 0; i < 2; i++) {
            o.steps = i ? 50 : 5;
            eq_plan(&w, &o);
            arena[i] = tn_plan_memory(w.plan[i]).arena;
        }
        if (o.grad != TN_LOOP_BPTT) assert_int_equal(arena[0], arena[1]);
        else assert_true(arena[1] - arena[0] >= 44 * EQ_N * sizeof(float));
        tn_world_close(&w);
    }
}

/* --- Anderson on hard maps ------------------------------------------------------------------------------------------------- */

enum { HARD = 6, ROWS = 3 };

/* f(h) = d h + a, element by element */
static void diagonal(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->next[0] = tn_add(g, tn_mul(g, io->state[0], io->consts[1]), io->consts[0]);
}

typedef struct hard {
    float h[ROWS * HARD], da[ROWS * HARD];
    int32_t steps[ROWS], adjoint[ROWS];
} hard;

/* d = slope for each element; all samples start at 0, with a = 1, 2, 3, ... */
static hard solve_hard(tn_loop_solver solver, const float *slope, float damping)
{
    tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
    tn_graph *g = tn_world_graph_on(tn_test_device(), NULL);
    const tn_ref a = tn_want_gradient(g, tn_input(g, "a", tn_shape(ROWS, HARD), TN_F32));
    const tn_ref consts[] = { a, tn_input(g, "d", tn_shape(HARD), TN_F32) },
                 h0 = tn_fill(g, tn_shape(ROWS, HARD), TN_F32, 0.f);
    tn_ref steps, adjoint;
    const tn_ref h = tn_loop(g, ((tn_body){ diagonal, NULL }), .state = &h0, .n_state = 1, .consts = consts,
                             .n_consts = 2, .steps = 3000, .grad = TN_LOOP_IMPLICIT,
                             .rtol = tn_scalar(g, "rtol", 1e-6f), .damping = tn_scalar(g, "damping", damping),
                             .solver = solver, .sample_consts = 1, .free_steps = &steps, .adjoint_steps = &adjoint);
    tn_output(g, "h", h);
    tn_output(g, "steps", steps);
    tn_output(g, "adjoint", adjoint);
    tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .loss = tn_sum_all(g, h) });
    hard r;
    for (int i = 0; i < ROWS * HARD; i++) ((float *)tn_world_data(b, "a"))[i] = (float)(1 + i % 5);
    memcpy(tn_world_data(b, "d"), slope, sizeof *slope * HARD);
    assert_ok(tn_run(b));
    take(b, r.h, "h", sizeof r.h);
    take(b, r.da, "d.a", sizeof r.da);
    take(b, r.steps, "steps", sizeof r.steps);
    take(b, r.adjoint, "adjoint", sizeof r.adjoint);
    tn_world_close(&w);
    return r;
}

/* The answer is a / (1-d), and the gradient of its sum 1 / (1-d). */
static void check_hard(const hard *r, const float *slope, double tolerance)
{
    for (int i = 0; i < ROWS * HARD; i++) {
        const double gap = 1 - (double)slope[i % HARD], h = (1 + i % 5) / gap, da = 1 / gap;
        if (!(fabs((double)r->h[i] - h) <= tolerance * h)) fail_msg("h %d is %g, not %g", i, (double)r->h[i], h);
        if (!(fabs((double)r->da[i] - da) <= tolerance * da))
            fail_msg("gradient %d is %g, not %g", i, (double)r->da[i], da);
    }
}

static void anderson_is_faster(void **state)
{
    (void)state;
    static const float slope[HARD] = { 0.995f, 0.9f, 0.5f, 0, -0.3f, -0.8f };
    const hard picard = solve_hard(TN_SOLVE_PICARD, slope, 1), anderson = solve_hard(TN_SOLVE_ANDERSON, slope, 1);
    check_hard(&anderson, slope, 1e-3);
    for (int s = 0; s < ROWS; s++) {
        assert_true(picard.steps[s] >
                    800); /* 0.995^n = 1e-6 is 2755, less for the other directions' share of the norm */
        if (anderson.steps[s] > 60 || anderson.adjoint[s] > 60)
            fail_msg("sample %d: %d and %d steps, picard %d", s, anderson.steps[s], anderson.adjoint[s],
                     picard.steps[s]);
    }
}

/* Maps whose residuals are all parallel, or 0: the system of weights is singular but for its regular part. */
static void anderson_is_safe(void **state)
{
    (void)state;
    static const float same[HARD] = { 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f }, none[HARD] = { 0 };
    for (int k = 0; k < 2; k++) {
        const float *slope = k ? none : same;
        for (int damped = 0; damped < 2; damped++) {
            const hard r = solve_hard(TN_SOLVE_ANDERSON, slope, damped ? 0.3f : 1);
            check_hard(&r, slope, 1e-5);
            for (int s = 0; s < ROWS; s++) assert_in_range(r.steps[s], 2, 8);
        }
    }
}

void tn_tests_loop_batch(tn_test_list *l)
{
    tn_test_add(l, any_company, NULL, "loop: a sample's solve does not depend on its batch");
    tn_test_add(l, any_way, NULL, "loop: compaction, masks and threads give the same bits");
    tn_test_add(l, no_vain_work, NULL, "loop: the body computes no sample in vain");
    tn_test_add(l, padding, NULL, "loop: rows behind the count are left alone");
    tn_test_add(l, nobody, NULL, "loop: a solve of nobody, and of too many");
    tn_test_add(l, not_a_number, NULL, "loop: NaN never converges, and harms no other sample");
    tn_test_add(l, memory_of_steps, NULL, "loop: memory does not depend on the steps, but for bptt");
    tn_test_add(l, anderson_is_faster, NULL, "loop: Anderson takes few steps where the damped iteration takes many");
    tn_test_add(l, anderson_is_safe, NULL, "loop: Anderson on residuals that are all parallel, or none");
}
