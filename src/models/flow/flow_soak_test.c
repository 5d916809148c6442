/* A thousand steps of training in which as much varies as can: flows are spawned and refused, leave early and late, samples stop by
 * themselves, batches have other numbers of rows. No step allocates, every number is finite, and every flow is accounted for: those asked
 * for are those that left, were projected or were refused; along the lattice, those that had begun are active or have landed. */
#include "flow_world.h"

#include "base/alloc.h"

enum { SIDE = 6, S = SIDE * SIDE, N = S + S / 4, B = 4, T = 6, STEPS = TN_SANITIZED ? 150 : 1000 };

typedef struct tallies {
    int64_t refused, exited, projected, short_steps;
} tallies;

static void count_step(flow_world *w, int step, int64_t rows, tallies *sum)
{
    const int32_t *counts = tn_bound_data(tn_trainer_bound(w->trainer, true), "counts");
    assert_non_null(counts);
    for (int64_t b = 0; b < B; b++) {
        const int32_t *x = counts + b * TN_ROLLOUT_TALLIES;
        const int32_t begun = x[TN_ROLLOUT_ASKED] - x[TN_ROLLOUT_REFUSED];
        if (b >= rows) {
            for (int k = 0; k < TN_ROLLOUT_TALLIES; k++) assert_int_equal(x[k], 0);
            continue;
        }
        if (begun != x[TN_ROLLOUT_EXITED] + x[TN_ROLLOUT_PROJECTED] || begun < S || begun > N)
            fail_msg("step %d, row %d: %d flows asked for, %d left, %d projected, %d refused", step, (int)b,
                     x[TN_ROLLOUT_ASKED], x[TN_ROLLOUT_EXITED], x[TN_ROLLOUT_PROJECTED], x[TN_ROLLOUT_REFUSED]);
        assert_in_range(x[TN_ROLLOUT_TAKEN], 1, T);
        assert_in_range(x[TN_ROLLOUT_FLOW_STEPS], begun, begun * T);
        sum->refused += x[TN_ROLLOUT_REFUSED];
        sum->exited += x[TN_ROLLOUT_EXITED];
        sum->projected += x[TN_ROLLOUT_PROJECTED];
        sum->short_steps += x[TN_ROLLOUT_TAKEN] < T;
    }
}

/* A path's points: from its first, where it is not NaN before it lands, to its landing. */
static void follow(flow_world *w, int64_t rows)
{
    enum { EACH = 4 };
    int64_t n;
    assert_ok(tn_trainer_run_step(w->trainer, "flows"));
    const float *paths = flow_output(w, "flows", "paths", &n);
    assert_int_equal(n, (T + 1) * B * N * EACH);
    const int32_t *landed = flow_output(w, "flows", "landed", &n), *age = flow_output(w, "flows", "age", &n),
                  *counts = flow_output(w, "flows", "counts", &n);
    for (int64_t b = 0; b < rows; b++) {
        int64_t ended[T + 2] = { 0 }, begun[T + 2] = { 0 }, active[T + 2] = { 0 }, all = 0, gone = 0;
        for (int64_t i = b * N; i < (b + 1) * N; i++) {
            int first = 0;
            if (!landed[i]) continue;
            while (first <= T && isnan(paths[(first * B * N + i) * EACH])) first++;
            assert_true(first + age[i] <= T);
            begun[first]++;
            ended[first + age[i]]++;
            for (int t = first; t < first + age[i]; t++) active[t]++;
            for (int t = first; t <= first + age[i]; t++)
                for (int k = 0; k < EACH; k++) assert_true(isfinite(paths[(t * B * N + i) * EACH + k]));
        }
        for (int t = 0; t <= T; t++) {
            all += begun[t];
            gone += ended[t];
            assert_int_equal(all, active[t] + gone);
        }
        const int32_t *x = counts + b * TN_ROLLOUT_TALLIES;
        assert_int_equal(all, x[TN_ROLLOUT_ASKED] - x[TN_ROLLOUT_REFUSED]);
        assert_int_equal(gone, x[TN_ROLLOUT_EXITED] + x[TN_ROLLOUT_PROJECTED]);
    }
}

static void all_finite(const flow_world *w)
{
    for (size_t i = 0; i < tn_store_count(tn_trainer_store(w->trainer)); i++) {
        const tn_entry *e = tn_store_at(tn_trainer_store(w->trainer), i);
        if (e->role != TN_ROLE_PARAM) continue;
        float *x = tn_memory_floats(tn_trainer_store(w->trainer), e->data, tn_dims_count(e->dims));
        for (int64_t k = 0; k < tn_dims_count(e->dims); k++)
            if (!isfinite(x[k])) fail_msg("%s is not finite", e->name);
        free(x);
    }
}

static void soak(void **state)
{
    tallies sum = { 0 };
    uint64_t before = 0;
    const int warm =
        tn_test_device() == TN_CPU ? 1 : 101; /* a GPU's second run is recorded, that of the step flows too */
    (void)state;
    flow_world w =
        flow_open(SIDE, B, true,
                  FLOW_LIST("dim=16", "layers=1", "depth=12", "noise=0.1", "noise_z=true", "noise_over=0", "spawn=2",
                            "rho=0.25", "s_min=2", "patience=2", "field=2", "drift=0.8", "train.lr=3e-3", "keep=2"));
    for (int step = 0; step < STEPS; step++) {
        tn_update_result a;
        float loss;
        const int64_t rows = 1 + step % B;
        flow_give(&w, 3 * step, rows);
        if (step == warm) before = tn_alloc_count();
        assert_ok(tn_trainer_grad(w.trainer, step, &loss));
        assert_ok(tn_trainer_apply(w.trainer, step, 1, loss, &a));
        assert_true(isfinite(loss) && a.ok && isfinite(a.grad_norm));
        count_step(&w, step, rows, &sum);
        if (step % 50 == 0) follow(&w, rows);
    }
    assert_true(tn_alloc_count() == before);
    all_finite(&w);
    if (!sum.refused || !sum.exited || !sum.projected || !sum.short_steps)
        fail_msg("%lld refused, %lld left, %lld projected, %lld stopped early: none of them may be 0",
                 (long long)sum.refused, (long long)sum.exited, (long long)sum.projected, (long long)sum.short_steps);
    flow_close(&w);
}

void tn_tests_flow_soak(tn_test_list *l) { tn_test_add(l, soak, NULL, "flow: 1,000 steps"); }
