/* sgd: against a double-precision reference over many steps, with and without Nesterov, and what must not move. */
#include "apply.h"
#include "device_memory.h"

#include <math.h>
#include <stdlib.h>

static const tn_optim_options plain = { .kind = TN_SGD }, nesterov = { .kind = TN_SGD, .nesterov = true };
static const tn_optim_scalars usual = { .lr = 1e-2f, .momentum = 0.9f, .decay = 0.1f, .clip = 1, .scale = 0.5f };

typedef struct reference {
    int64_t n;
    double *p, *g, *m, *lr, *decay; /* (n) */
} reference;

static void step_reference(reference *r, const tn_optim_scalars *s, bool look_ahead)
{
    const double mu = (double)s->momentum;
    double sum = 0;
    for (int64_t i = 0; i < r->n; i++) sum += r->g[i] * r->g[i];
    const double norm = sqrt(sum) * (double)s->scale;
    const double c = (double)s->scale * (s->clip > 0 ? fmin(1, (double)s->clip / norm) : 1);
    for (int64_t i = 0; i < r->n; i++) {
        const double g = c * r->g[i], lr = (double)s->lr * r->lr[i];
        r->m[i] = mu * r->m[i] + g;
        r->p[i] = r->p[i] * (1 - lr * (double)s->decay * r->decay[i]) - lr * (look_ahead ? g + mu * r->m[i] : r->m[i]);
    }
}

static void follows_reference(void **state)
{
    const tn_optim_options *o = *state;
    tn_apply a;
    tn_apply_open(&a, o, 2);
    reference r = { .n = tn_apply_count(&a) };
    double *x = calloc(5 * (size_t)r.n, sizeof *x);
    assert_non_null(x);
    r.p = x, r.g = x + r.n, r.m = x + 2 * r.n, r.lr = x + 3 * r.n, r.decay = x + 4 * r.n;
    tn_apply_read(&a, TN_APPLY_PARAM, r.p);
    tn_apply_groups(&a, r.lr, r.decay);
    for (int step = 1; step <= 24; step++) {
        tn_apply_draw(&a, step, step % 3 ? 3e-3f : 2.f);
        tn_apply_read(&a, TN_APPLY_GRAD, r.g);
        assert_true(tn_apply_run(&a, &usual, 1));
        step_reference(&r, &usual, o->nesterov);
        assert_true(tn_apply_grads_zero(&a));
        tn_apply_compare(&a, TN_APPLY_PARAM, r.p, 1e-6);
        tn_apply_compare(&a, TN_APPLY_M, r.m, 1e-6);
    }
    free(x);
    tn_apply_close(&a);
}

static void refused(void **state) { tn_apply_check_refused(*state, &usual); }

static void threads(void **state) { tn_apply_check_threads(*state, &usual); }

/* Without momentum and decay a step is p - lr * g, and Nesterov changes nothing. */
static void no_momentum(void **state)
{
    (void)state;
    tn_optim_scalars s = usual;
    s.momentum = s.decay = s.clip = 0;
    s.scale = 1;
    tn_apply a, b;
    tn_apply_open(&a, &plain, 1);
    tn_apply_open(&b, &nesterov, 1);
    for (int step = 1; step <= 3; step++) {
        const tn_entry *e = tn_store_find(a.store, "last");
        const float before = tn_memory_float(a.store, e->data);
        tn_apply_draw(&a, step, 1);
        tn_apply_draw(&b, step, 1);
        const float g = tn_memory_float(a.store, &e->grad[0]);
        assert_true(tn_apply_run(&a, &s, 1) && tn_apply_run(&b, &s, 1));
        assert_float_equal(tn_memory_float(a.store, e->data), before - s.lr * g, 1e-6f);
    }
    assert_true(tn_apply_same(&a, tn_apply_save(&b)));
    tn_apply_close(&a);
    tn_apply_close(&b);
}

void tn_tests_sgd(tn_test_list *l)
{
    const tn_optim_options *const both[] = { &plain, &nesterov };
    for (int i = 0; i < 2; i++) {
        const char *kind = i ? "nesterov" : "plain";
        tn_test_add(l, follows_reference, both[i], "sgd: 24 steps follow the reference, %s", kind);
        tn_test_add(l, refused, both[i], "sgd: NaN and Inf change no bit and leave zero gradients, %s", kind);
        tn_test_add(l, threads, both[i], "sgd: 1 thread = 2 threads, no allocation, %s", kind);
    }
    tn_test_add(l, no_momentum, NULL, "sgd: without momentum it is p - lr g");
}
