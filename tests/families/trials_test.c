/* Rehearsal: a campaign of trials. One gradient plan and one optimizer plan are compiled once and shared; every trial has
 * its own store, context and bound plans, and its learning rate is a number in memory. Trials on two threads give the
 * bits of trials one after the other. */
#include "optim/optim.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>
#include <pthread.h>

enum { TRIALS = 8, STEPS = 50, ROWS = 32, IN = 4, HIDDEN = 16, WORKERS = 2 };

typedef struct trial {
    const tn_plan *grad, *apply; /* shared by all */
    tn_store *store;
    tn_context *context;
    tn_bound *step, *update;
    float lr, first, last;
    tn_status status;
} trial;

static tn_ref build(tn_graph *g)
{
    const tn_ref x = tn_input(g, "x", tn_shape(ROWS, IN), TN_F32), y = tn_input(g, "y", tn_shape(ROWS, 1), TN_F32);
    const tn_ref h = tn_linear(g, x, tn_param(g, "w1", tn_shape(HIDDEN, IN), tn_normal(0.7f)),
                               .bias = tn_param(g, "b1", tn_shape(HIDDEN), tn_zeros), .act = TN_ACT_TANH);
    const tn_ref out = tn_linear(g, h, tn_param(g, "w2", tn_shape(1, HIDDEN), tn_normal(0.3f)),
                                 .bias = tn_param(g, "b2", tn_shape(1), tn_zeros));
    const tn_ref loss = tn_mse(g, out, y);
    tn_output(g, "loss", loss);
    return loss;
}

/* All stores are made from one graph: the same tensors at the same places, from other seeds. */
static void open_trials(trial *t, tn_plan **grad, tn_plan **apply)
{
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref loss = build(g);
    for (int i = 0; i < TRIALS; i++) {
        t[i] = (trial){ .lr = 1e-3f * powf(2.f, (float)i) };
        assert_ok(tn_store_new(TN_CPU, 100 + (uint64_t)i, &t[i].store));
        assert_ok(tn_store_adopt(t[i].store, g));
        assert_ok(tn_store_moments(t[i].store, 2));
        assert_ok(tn_context_new(TN_CPU, 1, &t[i].context));
    }
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .loss = loss }, grad));
    assert_ok(tn_optim_plan(t[0].store, &(tn_optim_options){ .kind = TN_ADAMW }, TN_CPU, 1, apply));
    for (int i = 0; i < TRIALS; i++) {
        t[i].grad = *grad;
        t[i].apply = *apply;
        assert_ok(tn_bind(t[i].grad, t[i].context, t[i].store, &t[i].step));
        assert_ok(tn_bind(t[i].apply, t[i].context, t[i].store, &t[i].update));
    }
}

static void close_trials(trial *t, tn_plan *grad, tn_plan *apply)
{
    for (int i = 0; i < TRIALS; i++) {
        tn_bound_free(t[i].step);
        tn_bound_free(t[i].update);
        tn_context_free(t[i].context);
        tn_store_free(t[i].store);
    }
    tn_plan_free(grad);
    tn_plan_free(apply);
}

static tn_status run_trial(trial *t)
{
    float *x = tn_bound_data(t->step, "x"), *y = tn_bound_data(t->step, "y");
    for (int i = 0; i < ROWS * IN; i++) x[i] = sinf(1.3f * (float)i);
    for (int i = 0; i < ROWS; i++) y[i] = x[i * IN] * x[i * IN + 1] - 0.5f * x[i * IN + 2];
    for (int i = 0; i < STEPS; i++) {
        const tn_optim_scalars v = {
            .lr = t->lr, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .scale = 1, .opt_step = i + 1
        };
        TN_RETURN_IF(tn_run(t->step));
        t->last = *(const float *)tn_bound_data(t->step, "loss");
        if (!i) t->first = t->last;
        *(float *)tn_bound_data(t->update, "loss") = t->last;
        TN_RETURN_IF(tn_optim_set(t->update, &v));
        TN_RETURN_IF(tn_run(t->update));
    }
    return TN_OK;
}

typedef struct worker {
    trial *trials;
    int first;
} worker;

static void *work(void *arg)
{
    const worker *w = arg;
    for (int i = w->first; i < TRIALS; i += WORKERS) w->trials[i].status = run_trial(&w->trials[i]);
    return NULL;
}

static void trials(void **state)
{
    (void)state;
    trial alone[TRIALS], together[TRIALS];
    tn_plan *grad[2], *apply[2];
    open_trials(alone, &grad[0], &apply[0]);
    open_trials(together, &grad[1], &apply[1]);
    for (int i = 0; i < TRIALS; i++) assert_ok(run_trial(&alone[i]));
    pthread_t thread[WORKERS];
    worker w[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        w[i] = (worker){ together, i };
        assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    float best = INFINITY;
    for (int i = 0; i < TRIALS; i++) {
        const tn_bucket *a = tn_store_bucket(alone[i].store, 0), *b = tn_store_bucket(together[i].store, 0);
        assert_int_equal(together[i].status, TN_OK);
        assert_ptr_equal(together[i].grad, together[0].grad); /* compiled once */
        assert_ptr_equal(together[i].apply, together[0].apply);
        assert_int_equal(a->count, b->count);
        assert_memory_equal(a->param, b->param, sizeof(float) * (size_t)a->count);
        assert_memory_equal(a->v, b->v, sizeof(float) * (size_t)a->count);
        assert_memory_equal(&alone[i].last, &together[i].last, sizeof alone[i].last);
        assert_true(together[i].last < together[i].first);
        if (i) assert_true(together[i].last != together[i - 1].last); /* the rates and seeds do differ */
        best = fminf(best, together[i].last / together[i].first);
    }
    assert_true(best < 0.1f);
    close_trials(alone, grad[0], apply[0]);
    close_trials(together, grad[1], apply[1]);
}

void tn_tests_trials(tn_test_list *l)
{
    tn_test_add(l, trials, NULL, "families: trials on two threads share one plan");
}
