/* adamw: against a double-precision reference over many steps, and what must not move. */
#include "apply.h"
#include "device_memory.h"

#include "ops/adamw/adamw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tn_optim_options options = { .kind = TN_ADAMW }, apart = { .kind = TN_ADAMW, .apart = true };
static const tn_optim_scalars usual = {
    .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f, .clip = 1, .scale = 0.25f, .opt_step = 1
};

typedef struct reference {
    int64_t n;
    double *p, *g, *m, *v, *lr, *decay; /* (n) */
} reference;

static reference reference_of(const tn_apply *a)
{
    reference r = { .n = tn_apply_count(a) };
    double *x = calloc(6 * (size_t)r.n, sizeof *x);
    assert_non_null(x);
    r.p = x, r.g = x + r.n, r.m = x + 2 * r.n, r.v = x + 3 * r.n, r.lr = x + 4 * r.n, r.decay = x + 5 * r.n;
    tn_apply_read(a, TN_APPLY_PARAM, r.p);
    tn_apply_groups(a, r.lr, r.decay);
    return r;
}

/* The textbook form: every correction where the paper has it, everything in double. Returns the norm. */
static double step_reference(reference *r, const tn_optim_scalars *s)
{
    const double b1 = (double)s->beta1, b2 = (double)s->beta2, t = (double)s->opt_step;
    double sum = 0;
    for (int64_t i = 0; i < r->n; i++) sum += r->g[i] * r->g[i];
    const double norm = sqrt(sum) * (double)s->scale;
    const double c = (double)s->scale * (s->clip > 0 ? fmin(1, (double)s->clip / norm) : 1);
    for (int64_t i = 0; i < r->n; i++) {
        const double g = c * r->g[i], lr = (double)s->lr * r->lr[i];
        r->m[i] = b1 * r->m[i] + (1 - b1) * g;
        r->v[i] = b2 * r->v[i] + (1 - b2) * g * g;
        const double m = r->m[i] / (1 - pow(b1, t)), v = r->v[i] / (1 - pow(b2, t));
        r->p[i] = r->p[i] * (1 - lr * (double)s->decay * r->decay[i]) - lr * m / (sqrt(v) + (double)s->eps);
    }
    return norm;
}

/* 24 steps of gradients of very different sizes: some are clipped, some are not. */
static void follows_reference(void **state)
{
    tn_apply a;
    tn_apply_open(&a, *state, 2);
    reference r = reference_of(&a);
    int clipped = 0;
    for (int step = 1; step <= 24; step++) {
        tn_optim_scalars s = usual;
        s.opt_step = step;
        s.lr = 1e-2f * (float)(25 - step) / 24;
        tn_apply_draw(&a, step, step % 3 ? 3e-3f : 2.f);
        tn_apply_read(&a, TN_APPLY_GRAD, r.g);
        assert_true(tn_apply_run(&a, &s, 1));
        const double norm = step_reference(&r, &s);
        clipped += norm > 1;
        assert_true(fabs((double)tn_apply_norm(&a) - norm) <= 1e-6 * norm);
        assert_true(tn_apply_grads_zero(&a));
        tn_apply_compare(&a, TN_APPLY_PARAM, r.p, 1e-6);
        tn_apply_compare(&a, TN_APPLY_M, r.m, 1e-6);
        tn_apply_compare(&a, TN_APPLY_V, r.v, 1e-6);
    }
    assert_int_equal(clipped, 8);
    free(r.p);
    tn_apply_close(&a);
}

static void refused(void **state) { tn_apply_check_refused(*state, &usual); }

static void threads(void **state) { tn_apply_check_threads(*state, &usual); }

/* Nodes and clearing apart: more of them, the same numbers. */
static void same_bits(void **state)
{
    (void)state;
    tn_apply one, each;
    int nodes[2] = { 0 };
    tn_apply_open(&one, &options, 2);
    tn_apply_open(&each, &apart, 2);
    for (int i = 0; i < 2; i++) {
        const tn_graph *g = tn_plan_graph(i ? each.plan : one.plan);
        for (size_t k = 0; k < g->n_nodes; k++) nodes[i] += g->node[k].op == &tn_op_adamw;
    }
    assert_int_equal(nodes[0], 2); /* buckets */
    assert_int_equal(nodes[1], 7); /* tensors */
    for (int step = 1; step <= 3; step++) {
        tn_optim_scalars s = usual;
        s.opt_step = step;
        tn_apply_draw(&one, step, 1);
        tn_apply_draw(&each, step, 1);
        assert_true(tn_apply_run(&one, &s, 1) && tn_apply_run(&each, &s, 1));
        assert_true(tn_apply_same(&each, tn_apply_save(&one)) && tn_apply_grads_zero(&each));
    }
    tn_apply_close(&one);
    tn_apply_close(&each);
}

/* Without a gradient only decay moves a parameter, by exactly its own lr factor, and only where it applies. */
static void groups(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double lr, decay;
    } want[] = { { "matrix", 1, 1 }, { "bias", 1, 0 }, { "large", 0.5, 1 },
                 { "table", 1, 0 },  { "gain", 3, 1 }, { "last", 1, 0 } };
    tn_apply a;
    tn_apply_open(&a, &options, 1);
    reference r = reference_of(&a);
    assert_true(tn_apply_run(&a, &usual, 1));
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const tn_entry *e = tn_store_find(a.store, want[i].name);
        const float x = tn_memory_float(a.store, e->data);
        double before = 0;
        int64_t at = 0;
        for (size_t k = 0; tn_store_at(a.store, k) != e; k++)
            if (tn_store_at(a.store, k)->role == TN_ROLE_PARAM) at += tn_dims_count(tn_store_at(a.store, k)->dims);
        before = r.p[at];
        if (want[i].decay == 0) assert_true((double)x == before);
        else assert_true(fabs((double)x / before - (1 - 1e-2 * want[i].lr * 0.1)) < 1e-7);
    }
    free(r.p);
    tn_apply_close(&a);
}

/* The first step of Adam is lr * sign(g) whatever the size of g: bias correction. */
static void first_step(void **state)
{
    (void)state;
    tn_apply a;
    tn_apply_open(&a, &options, 1);
    tn_optim_scalars s = usual;
    s.decay = 0;
    s.clip = 0;
    tn_entry e = *tn_store_find(a.store, "last"); /* -2 everywhere */
    tn_memory_set(a.store, &e.grad[0], -1e-4f);
    assert_true(tn_apply_run(&a, &s, 1));
    assert_float_equal(tn_memory_float(a.store, e.data), -2 + 1e-2f, 1e-5f);
    tn_apply_close(&a);
}

/* Padding lies between tensors: whatever is there stays there. */
static void padding(void **state)
{
    (void)state;
    tn_apply a;
    tn_apply_open(&a, &options, 1);
    const tn_bucket *b = tn_store_bucket(a.store, 0);
    float *const at[] = { &b->param[15], &b->m[15], &b->v[15] }; /* after the matrix of 15 */
    for (int i = 0; i < 3; i++) tn_memory_set(a.store, at[i], 42 + (float)i);
    tn_apply_draw(&a, 1, 1);
    assert_true(tn_apply_run(&a, &usual, 1));
    for (int i = 0; i < 3; i++) assert_true(tn_memory_float(a.store, at[i]) == 42 + (float)i);
    tn_apply_close(&a);
}

void tn_tests_adamw(tn_test_list *l)
{
    tn_test_add(l, follows_reference, &options, "adamw: 24 steps follow the reference");
    tn_test_add(l, refused, &options, "adamw: NaN and Inf change no bit and leave zero gradients");
    tn_test_add(l, threads, &options, "adamw: 1 thread = 2 threads, no allocation");
    tn_test_add(l, follows_reference, &apart, "adamw: 24 steps follow the reference, opt.fused_optimizer=off");
    tn_test_add(l, refused, &apart, "adamw: NaN and Inf change no bit, opt.fused_optimizer=off");
    tn_test_add(l, threads, &apart, "adamw: 1 thread = 2 threads, opt.fused_optimizer=off");
    tn_test_add(l, same_bits, NULL, "adamw: opt.fused_optimizer=off has the same bits from a node for each tensor");
    tn_test_add(l, groups, NULL, "adamw: factors and decay by tensor");
    tn_test_add(l, first_step, NULL, "adamw: the first step has the size of lr");
    tn_test_add(l, padding, NULL, "adamw: padding is not touched");
}
