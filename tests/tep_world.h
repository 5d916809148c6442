/* A tep network in a world of its own, with batches that a formula fills: plans of several settings on one store. Header only. */
#ifndef TN_TEP_WORLD_H
#define TN_TEP_WORLD_H

#include "device_memory.h"
#include "models/models.h"
#include "train/run/train_settings.h"
#include "world.h"

#include <stdio.h>

typedef struct tep_shape {
    int64_t B, S, F, C, L;
    bool count, weights, targets, sample, logits, evaluate; /* evaluate: not a training plan */
    int64_t samples;
    const char *off; /* a switch */
} tep_shape;

static inline tn_settings *tep_settings(const tep_shape *z, const char *const *more, const tn_model **model)
{
    char sizes[3][32];
    const char *list[24] = { sizes[0], sizes[1], sizes[2] };
    size_t n = 3;
    tn_settings *st;
    snprintf(sizes[0], sizeof sizes[0], "inputs=%d", (int)z->F);
    snprintf(sizes[1], sizeof sizes[1], "tokens=%d", (int)z->S);
    snprintf(sizes[2], sizeof sizes[2], "classes=%d", (int)z->C);
    for (int i = 0; more && more[i] && n < 24; i++) list[n++] = more[i];
    assert_ok(tn_settings_resolve("tep", list, n, &st, model));
    return st;
}

/* The inputs of a batch; names are those of the fields. */
static inline tn_batch tep_batch(tn_graph *g, const tep_shape *z)
{
    tn_batch b = { .size = sizeof b,
                   .batch = z->B,
                   .length = z->S,
                   .want = { "logits" },
                   .n_wants = z->logits,
                   .number = { { "samples", (double)z->samples } },
                   .n_numbers = 1 };
    tn_batch_add(&b, "features", tn_input(g, "features", tn_shape(z->B, z->S, z->F), TN_F32));
    tn_batch_add(&b, "labels", tn_input(g, "labels", tn_shape(z->B, z->L), TN_I32));
    if (z->count) tn_batch_add(&b, "count", tn_input(g, "count", tn_shape(1), TN_I32));
    if (z->sample) tn_batch_add(&b, "sample", tn_input(g, "sample", tn_shape(z->B), TN_I32));
    if (z->weights) tn_batch_add(&b, "weights", tn_input(g, "weights", tn_shape(z->B), TN_F32));
    if (z->targets) tn_batch_add(&b, "targets", tn_input(g, "targets", tn_shape(z->B), TN_F32));
    return b;
}

/* Features between -1 and 1, labels of all classes, everything there. */
static inline void tep_fill(tn_bound *b, const tep_shape *z)
{
    float *x = tn_world_data(b, "features"), *w = tn_bound_data(b, "weights"), *v = tn_bound_data(b, "targets");
    int32_t *y = tn_world_data(b, "labels"), *count = tn_bound_data(b, "count"), *sample = tn_bound_data(b, "sample");
    for (int64_t i = 0; i < z->B * z->S * z->F; i++) x[i] = sinf(1.7f * (float)i + 0.3f * (float)(i % 7));
    for (int64_t i = 0; i < z->B * z->L; i++) y[i] = (int32_t)((i * i + 3 * i) % z->C);
    for (int64_t i = 0; w && i < z->B; i++) w[i] = cosf(2.f * (float)i);
    for (int64_t i = 0; v && i < z->B; i++) v[i] = sinf(3.f * (float)i);
    for (int64_t i = 0; sample && i < z->B; i++) sample[i] = (int32_t)i;
    if (count) *count = (int32_t)z->B;
}

/* Adds a plan of these settings ("key=value", NULL at the end) to the world and fills its batch. */
static inline tn_bound *tep_add(tn_world *w, const tep_shape *z, const char *const *more)
{
    const tn_model *model;
    const int threads = tn_context_threads(w->context);
    tn_settings *st = tep_settings(z, more, &model);
    const char *const off[] = { z->off, NULL };
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .training = !z->evaluate, .threads = threads, .off = off });
    const tn_batch b = tep_batch(g, z);
    assert_ok(model->build(g, st, &b));
    const tn_compile_options o = { .threads = threads, .loss = z->evaluate ? TN_NONE : tn_graph_output(g, "loss") };
    tn_bound *bound = tn_world_add(w, g, &o);
    tep_fill(bound, z);
    tn_settings_free(st);
    return bound;
}

/* A run from states that are as new: what a step leaves behind for the next one (directions of power iterations) is cleared. */
static inline void tep_run(const tn_world *w, tn_bound *b)
{
    for (size_t i = 0; i < tn_store_count(w->store); i++) {
        const tn_entry *e = tn_store_at(w->store, i);
        if (e->role == TN_ROLE_STATE)
            assert_ok(tn_store_clear(w->store, e->data, (size_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype)));
    }
    assert_ok(tn_run(b));
}

#define TEP_LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* All gradients of trainable tensors whose name begins with `scope`, one after the other, after a run on cleared ones. */
static inline int64_t tep_gradients(const tn_world *w, tn_bound *b, const char *scope, double *out, int64_t most)
{
    int64_t n = 0;
    tn_store_zero_grad(w->store);
    tep_run(w, b);
    for (size_t i = 0; i < tn_store_count(w->store); i++) {
        const tn_entry *e = tn_store_at(w->store, i);
        if (e->role != TN_ROLE_PARAM || strncmp(e->name, scope, strlen(scope)) != 0) continue;
        float *grad = tn_memory_floats(w->store, e->grad, tn_dims_count(e->dims));
        for (int64_t k = 0; k < tn_dims_count(e->dims); k++) {
            assert_true(n < most);
            out[n++] = (double)grad[k];
        }
        free(grad);
    }
    return n;
}

static inline double tep_dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

static inline double tep_cosine(const double *a, const double *b, int64_t n)
{
    return tep_dot(a, b, n) / sqrt(tep_dot(a, a, n) * tep_dot(b, b, n));
}

/* Adam by hand, on the gradients that are there; moments are two numbers for each element. */
static inline void tep_adam(const tn_world *w, double lr, int step, double *moments, int64_t most)
{
    int64_t n = 0;
    for (size_t i = 0; i < tn_store_count(w->store); i++) {
        const tn_entry *e = tn_store_at(w->store, i);
        if (e->role != TN_ROLE_PARAM) continue;
        float *grad = tn_memory_floats(w->store, e->grad, tn_dims_count(e->dims));
        float *x = tn_memory_floats(w->store, e->data, tn_dims_count(e->dims));
        for (int64_t k = 0; k < tn_dims_count(e->dims); k++, n++) {
            assert_true(n < most);
            const double g = (double)grad[k];
            double *m = moments + 2 * n, *v = m + 1;
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.999 * *v + 0.001 * g * g;
            x[k] -= (float)(lr * (*m / (1 - pow(0.9, step))) / (sqrt(*v / (1 - pow(0.999, step))) + 1e-8));
        }
        tn_memory_put(w->store, e->data, x, sizeof *x * (size_t)tn_dims_count(e->dims));
        free(grad);
        free(x);
    }
}

/* Steps of training on the plan's batch; returns the last loss. */
static inline float tep_train(const tn_world *w, tn_bound *b, double lr, int steps)
{
    enum { MOST = 1 << 16 };
    double *moments = calloc(2 * MOST, sizeof *moments);
    assert_non_null(moments);
    for (int i = 1; i <= steps; i++) {
        tn_store_zero_grad(w->store);
        assert_ok(tn_run(b));
        tep_adam(w, lr, i, moments, MOST);
    }
    free(moments);
    return *(const float *)tn_world_data(b, "loss");
}

#endif
