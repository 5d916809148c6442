/* What the tests of cross-entropy ops share: flags of their rows, labels, the oracle from logits on, and running a
 * graph by hand. Doubles throughout. */
#ifndef TN_TESTS_LOSSES_H
#define TN_TESTS_LOSSES_H

#include "optest.h"
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    L_WEIGHTS = 1,
    L_IGNORE = 2,      /* -100 does not count, and a third of the labels are */
    L_IGNORE_ZERO = 4, /* 0 does not count */
    L_ALL_IGNORED = 8,
    L_Z = 16,
    L_SUM = 32,
    L_NLL = 64,   /* the per-token output is looked at */
    L_LIVE = 128, /* only the first rows count */
    L_BIAS = 256,
    L_HALF = 512, /* frozen bf16 weight matrix */
    L_TILE = 1024 /* small tiles */
};

static inline tn_fill_spec losses_uniform(double lo, double hi)
{
    return (tn_fill_spec){ .kind = TN_FILL_UNIFORM, .lo = lo, .hi = hi };
}

static inline tn_fill_spec losses_int(int64_t lo, int64_t hi)
{
    return (tn_fill_spec){ .kind = TN_FILL_INT, .lo = (double)lo, .hi = (double)hi };
}

static inline int32_t losses_ignored(const tn_case *c)
{
    return c->flags & L_IGNORE_ZERO ? 0 : c->flags & L_IGNORE ? -100 : -1;
}

static inline double losses_z(const tn_case *c) { return c->flags & L_Z ? 0.125 : 0; }

/* Puts the ignored label where the row's flags say. */
static inline void losses_adjust_labels(const tn_case *c, double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (c->flags & L_ALL_IGNORED) x[i] = losses_ignored(c);
        else if ((c->flags & (L_IGNORE | L_IGNORE_ZERO)) && i % 3 == 1) x[i] = losses_ignored(c);
        else if (c->flags & L_IGNORE_ZERO) x[i] = x[i] == 0 ? 1 : x[i];
    }
}

static inline double losses_lse(const double *x, int64_t n)
{
    double m = -INFINITY, s = 0;
    for (int64_t i = 0; i < n; i++) m = x[i] > m ? x[i] : m;
    for (int64_t i = 0; i < n; i++) s += exp(x[i] - m);
    return m + log(s);
}

/* logits (n,V) -> loss and, when not NULL, nll (n, starting as 0). */
static inline double losses_xent(const tn_case *c, const double *logits, const double *labels, const double *weights,
                                 int64_t n, int64_t V, double *nll)
{
    double sum = 0, total = 0;
    for (int64_t t = 0; t < n; t++) {
        if (labels[t] == losses_ignored(c)) continue;
        const double lse = losses_lse(logits + t * V, V), l = lse - logits[t * V + (int64_t)labels[t]];
        const double w = weights ? weights[t] : 1;
        sum += w * (l + losses_z(c) * lse * lse);
        total += w;
        if (nll) nll[t] = l;
    }
    return c->flags & L_SUM ? sum : total == 0 ? 0 : sum / total;
}

/* A named input to set or result to get; bytes 0 ends a list. */
typedef struct losses_io {
    const char *name;
    void *data;
    size_t bytes;
} losses_io;

/* Compiles g (taken over) with the gradients of `loss`, runs it once and returns the run's status. */
static inline tn_status losses_run(tn_graph *g, tn_ref loss, int threads, const losses_io *in, const losses_io *out)
{
    tn_plan *plan = NULL;
    tn_context *context = NULL;
    tn_bound *bound = NULL;
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = threads, .loss = loss }, &plan));
    assert_ok(tn_context_new(TN_CPU, threads, &context));
    assert_ok(tn_bind(plan, context, NULL, &bound));
    for (; in->bytes; in++) memcpy(tn_bound_data(bound, in->name), in->data, in->bytes);
    const tn_status s = tn_run(bound);
    for (; s == TN_OK && out->bytes; out++) memcpy(out->data, tn_bound_data(bound, out->name), out->bytes);
    tn_bound_free(bound);
    tn_context_free(context);
    tn_plan_free(plan);
    return s;
}

static inline void losses_close(const float *a, const float *b, int64_t n, double tolerance)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tolerance))
            fail_msg("element %lld: %.9g against %.9g", (long long)i, (double)a[i], (double)b[i]);
}

#endif
