/* The fixture of apply.h: a store with odd tensors, and checks every optimizer must pass. */
#include "apply.h"

#include "base/rng.h"
#include "device_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void adopt(tn_store *st, int part)
{
    tn_graph *g;
    assert_ok(tn_graph_new(NULL, &g));
    if (part == 0) {
        tn_param(g, "matrix", tn_shape(3, 5), tn_normal(0.5f));
        tn_param(g, "bias", tn_shape(7), tn_normal(0.5f));
        tn_param(g, "large", tn_shape(203, 197), tn_normal(0.1f), .lr = 0.5f);
        tn_param(g, "table", tn_shape(11, 3), tn_normal(1), .no_decay = true);
    } else {
        tn_param(g, "gain", tn_shape(33), tn_constant(1), .decay = true, .lr = 3);
        tn_param(g, "empty", tn_shape(0, 4), tn_zeros);
        tn_param(g, "last", tn_shape(6), tn_constant(-2));
        tn_state(g, "carried", tn_shape(2, 3), TN_F32);
    }
    assert_ok(tn_store_adopt(st, g));
    tn_graph_free(g);
}

void tn_apply_open(tn_apply *a, const tn_optim_options *o, int threads)
{
    *a = (tn_apply){ 0 };
    assert_ok(tn_store_new(tn_test_device(), 5, &a->store));
    adopt(a->store, 0);
    adopt(a->store, 1);
    assert_int_equal(tn_store_buckets(a->store), 2);
    assert_ok(tn_optim_plan(a->store, o, tn_test_device(), threads, &a->plan));
    assert_ok(tn_context_new(tn_test_device(), threads, &a->context));
    assert_ok(tn_bind(a->plan, a->context, a->store, &a->bound));
}

void tn_apply_close(tn_apply *a)
{
    tn_bound_free(a->bound);
    tn_context_free(a->context);
    tn_plan_free(a->plan);
    tn_store_free(a->store);
}

/* The i-th trainable tensor, or NULL past the last. */
static const tn_entry *trainable(const tn_apply *a, size_t i)
{
    for (size_t k = 0; k < tn_store_count(a->store); k++)
        if (tn_store_at(a->store, k)->role == TN_ROLE_PARAM && i-- == 0) return tn_store_at(a->store, k);
    return NULL;
}

/* A copy of one tensor's array, to be freed. */
static float *array(const tn_apply *a, const tn_entry *e, tn_apply_array which)
{
    const tn_bucket *b = tn_store_bucket(a->store, e->bucket);
    const float *const base[] = { b->param, b->grad, b->m, b->v };
    const size_t n = (size_t)tn_dims_count(e->dims);
    float *x = calloc(n + 1, sizeof *x);
    assert_non_null(x);
    tn_memory_get(a->store, base[which] + e->offset, x, sizeof *x * n);
    return x;
}

void tn_apply_draw(tn_apply *a, int step, float size)
{
    const tn_entry *e;
    for (size_t i = 0; (e = trainable(a, i)); i++) {
        const size_t n = (size_t)tn_dims_count(e->dims);
        float *x = calloc(n + 1, sizeof *x);
        assert_non_null(x);
        for (size_t k = 0; k < n; k++) x[k] = size * tn_rng_normal((tn_rng){ (uint64_t)step, i }, k);
        tn_memory_put(a->store, e->grad, x, sizeof *x * n);
        free(x);
    }
}

bool tn_apply_run(tn_apply *a, const tn_optim_scalars *v, float loss)
{
    assert_ok(tn_optim_set(a->bound, v));
    *(float *)tn_bound_data(a->bound, "loss") = loss;
    assert_ok(tn_run(a->bound));
    const int32_t ok = *(const int32_t *)tn_bound_data(a->bound, "ok");
    assert_true(ok == 0 || ok == 1);
    return ok;
}

float tn_apply_norm(tn_apply *a) { return *(const float *)tn_bound_data(a->bound, "grad_norm"); }

int64_t tn_apply_count(const tn_apply *a)
{
    int64_t n = 0;
    const tn_entry *e;
    for (size_t i = 0; (e = trainable(a, i)); i++) n += tn_dims_count(e->dims);
    return n;
}

void tn_apply_read(const tn_apply *a, tn_apply_array which, double *x)
{
    const tn_entry *e;
    for (size_t i = 0; (e = trainable(a, i)); i++) {
        float *y = array(a, e, which);
        for (int64_t k = 0; k < tn_dims_count(e->dims); k++) *x++ = (double)y[k];
        free(y);
    }
}

void tn_apply_groups(const tn_apply *a, double *lr, double *decay)
{
    const tn_entry *e;
    for (size_t i = 0; (e = trainable(a, i)); i++)
        for (int64_t k = 0; k < tn_dims_count(e->dims); k++) {
            *lr++ = (double)e->lr;
            *decay++ = e->decay;
        }
}

void tn_apply_compare(const tn_apply *a, tn_apply_array which, const double *ref, double tolerance)
{
    const tn_entry *e;
    for (size_t i = 0; (e = trainable(a, i)); i++) {
        const int64_t n = tn_dims_count(e->dims);
        float *x = array(a, e, which);
        double scale = 1e-30;
        for (int64_t k = 0; k < n; k++) scale = fmax(scale, fabs(ref[k]));
        for (int64_t k = 0; k < n; k++)
            if (!(fabs((double)x[k] - ref[k]) <= tolerance * scale))
                fail_msg("%s, array %d, element %lld: %.9g instead of %.9g (error %.2e)", e->name, (int)which,
                         (long long)k, (double)x[k], ref[k], fabs((double)x[k] - ref[k]) / scale);
        free(x);
        ref += n;
    }
}

tn_apply_copy tn_apply_save(const tn_apply *a)
{
    size_t bytes = 0, at = 0;
    for (int i = 0; i < tn_store_buckets(a->store); i++)
        bytes += 3 * sizeof(float) * (size_t)tn_store_bucket(a->store, i)->count;
    tn_apply_copy c = { .bytes = bytes, .data = calloc(1, bytes) };
    assert_non_null(c.data);
    for (int i = 0; i < tn_store_buckets(a->store); i++) {
        const tn_bucket *b = tn_store_bucket(a->store, i);
        const float *const part[] = { b->param, b->m, b->v };
        for (int k = 0; k < 3; k++, at += sizeof(float) * (size_t)b->count)
            if (part[k]) tn_memory_get(a->store, part[k], c.data + at, sizeof(float) * (size_t)b->count);
    }
    return c;
}

bool tn_apply_same(const tn_apply *a, tn_apply_copy c)
{
    tn_apply_copy now = tn_apply_save(a);
    const bool same = now.bytes == c.bytes && memcmp(now.data, c.data, c.bytes) == 0;
    free(now.data);
    free(c.data);
    return same;
}

bool tn_apply_grads_zero(const tn_apply *a)
{
    bool zero = true;
    for (int i = 0; i < tn_store_buckets(a->store); i++) {
        const tn_bucket *b = tn_store_bucket(a->store, i);
        const size_t bytes = sizeof(float) * (size_t)b->count;
        unsigned char *x = calloc(1, bytes + 1);
        assert_non_null(x);
        tn_memory_get(a->store, b->grad, x, bytes);
        for (size_t k = 0; k < bytes; k++) zero = zero && !x[k];
        free(x);
    }
    return zero;
}

/* --- checks -------------------------------------------------------------------------------------------------------------- */

/* One step with `bad` in `place`: the loss, or the first or last gradient of a tensor. */
static void refuse(tn_apply *a, const tn_optim_scalars *v, float bad, size_t place)
{
    tn_apply_draw(a, 3, 1);
    const tn_entry *e = place ? trainable(a, (place - 1) / 2) : NULL;
    const int64_t n = e ? tn_dims_count(e->dims) : 0;
    if (e && !n) return;
    if (e) tn_memory_set(a->store, &e->grad[(place - 1) % 2 ? n - 1 : 0], bad);
    tn_apply_copy before = tn_apply_save(a);
    assert_false(tn_apply_run(a, v, e ? 1 : bad));
    assert_true(tn_apply_same(a, before));
    assert_true(tn_apply_grads_zero(a));
    assert_true(e ? !isfinite(tn_apply_norm(a)) : isfinite(tn_apply_norm(a)));
}

void tn_apply_check_refused(const tn_optim_options *o, const tn_optim_scalars *v)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    tn_apply a;
    tn_apply_open(&a, o, 1);
    tn_apply_draw(&a, 1, 1);
    assert_true(tn_apply_run(&a, v, 1)); /* moments that are not zero */
    for (size_t place = 0; place == 0 || trainable(&a, (place - 1) / 2); place++)
        for (int i = 0; i < 3; i++) refuse(&a, v, bad[i], place);
    tn_apply_draw(&a, 4, 1);
    tn_apply_copy before = tn_apply_save(&a);
    assert_true(tn_apply_run(&a, v, 1)); /* and on it goes */
    assert_false(tn_apply_same(&a, before));
    tn_apply_close(&a);
}

void tn_apply_check_threads(const tn_optim_options *o, const tn_optim_scalars *v)
{
    tn_apply a[2];
    for (int k = 0; k < 2; k++) tn_apply_open(&a[k], o, k + 1);
    for (int step = 1; step <= 5; step++) {
        tn_optim_scalars now = *v;
        now.opt_step = step;
        for (int k = 0; k < 2; k++) {
            tn_apply_draw(&a[k], step, 1);
            const uint64_t count = tn_alloc_count();
            assert_true(tn_apply_run(&a[k], &now, 1));
            if (tn_test_device() == TN_CPU || step > 2)
                assert_int_equal(tn_alloc_count(), count); /* a GPU's second run is recorded */
        }
        assert_true(tn_apply_same(&a[0], tn_apply_save(&a[1])));
        const float norm[] = { tn_apply_norm(&a[0]), tn_apply_norm(&a[1]) };
        assert_memory_equal(&norm[0], &norm[1], sizeof(float));
    }
    for (int k = 0; k < 2; k++) tn_apply_close(&a[k]);
}
