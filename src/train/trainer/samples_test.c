/* A trainer on samples: padding changes neither the loss nor the gradients, evaluation sees what training sees, and
 * instruments see the outputs of the last training step whatever ran since. */
#include "mlp.h"

#include "base/rng.h"

#include <math.h>

enum { T = 2, F = 3, C = 4, MOST = 8 };

typedef struct rig {
    tn_settings *settings;
    tn_trainer *trainer;
    tn_feed feed;
    float *features;
    int32_t *labels, *sample, *count;
    int64_t each; /* labels of a sample */
} rig;

static int64_t items_of(const tn_feed *f, const char *name)
{
    for (size_t i = 0; i < f->inputs->n; i++)
        if (strcmp(f->inputs->slot[i].row->name, name) == 0) return tn_input_items(&f->inputs->slot[i], 1, 1);
    return 0;
}

static void find_feed(rig *r)
{
    r->feed = tn_trainer_feed(r->trainer);
    r->features = tn_feed_at(&r->feed, "features");
    r->labels = tn_feed_at(&r->feed, "labels");
    r->sample = tn_feed_at(&r->feed, "sample");
    r->count = tn_feed_at(&r->feed, "count");
    r->each = items_of(&r->feed, "labels");
}

static rig open_rig(int64_t batch, int64_t labels, bool weighted)
{
    const char *const set[] = { "inputs=3", "tokens=2", "classes=4", "threads=1", "train.warmup=0" };
    rig r = { .settings = tn_mlp_settings(set, 5) };
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = &tn_mlp,
                                                    .settings = r.settings,
                                                    .batch = batch,
                                                    .length = T,
                                                    .input_spec = TN_MLP_SUPPLY(labels, 100, .optional = weighted),
                                                    .logits = true },
                             &r.trainer));
    find_feed(&r);
    return r;
}

static void close_rig(rig *r)
{
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

/* Samples 0..n-1 of an endless supply, then padding. */
static void give(const rig *r, int64_t n)
{
    for (int64_t b = 0; b < r->feed.batch; b++) {
        for (int64_t i = 0; i < T * F; i++)
            r->features[b * T * F + i] = b < n ? tn_rng_normal((tn_rng){ 3, 1 }, (uint64_t)(b * T * F + i)) : 0;
        for (int64_t i = 0; i < r->each; i++)
            r->labels[b * r->each + i] =
                b < n ? (int32_t)tn_rng_below((tn_rng){ 3, 2 }, (uint64_t)(b * r->each + i), C) : -1;
        r->sample[b] = b < n ? (int32_t)(7 + b) : 0;
    }
    r->count[0] = (int32_t)n;
}

static void padding(void **state)
{
    const int64_t labels = *(const int64_t *)*state;
    rig whole = open_rig(5, labels, false), padded = open_rig(MOST, labels, false);
    float a, b, c;
    give(&whole, 5);
    give(&padded, 5);
    assert_int_equal(items_of(&padded.feed, "features"), F);
    assert_int_equal(padded.each, labels);
    assert_ok(tn_trainer_grad(whole.trainer, 0, &a));
    assert_ok(tn_trainer_grad(padded.trainer, 0, &b));
    assert_true(isfinite(a) && fabsf(a - b) < 1e-6f * a);
    const tn_bucket *x = tn_store_bucket(tn_trainer_store(whole.trainer), 0),
                    *y = tn_store_bucket(tn_trainer_store(padded.trainer), 0);
    double size = 0;
    assert_true(x->count == y->count);
    for (int64_t i = 0; i < x->count; i++) {
        assert_true(fabs((double)x->grad[i] - (double)y->grad[i]) < 1e-6);
        size += fabs((double)x->grad[i]);
    }
    assert_true(size > 0.01);
    assert_ok(tn_trainer_eval(padded.trainer, &c));
    assert_true(c == b);
    padded.labels[0] = (padded.labels[0] + 1) % C; /* evaluation is given what stands there now */
    assert_ok(tn_trainer_eval(padded.trainer, &c));
    assert_true(c != b);
    close_rig(&whole);
    close_rig(&padded);
}

typedef struct report {
    double rows, first;
    int n;
} report;

static void take(void *ctx, const char *name, double value, const char *unit)
{
    report *r = ctx;
    (void)unit;
    *(strcmp(name, "rows") == 0 ? &r->rows : &r->first) = value;
    r->n++;
}

static void instruments(void **state)
{
    (void)state;
    rig r = open_rig(MOST, 1, false);
    report before = { 0 }, after = { 0 };
    double first = 0;
    float loss;
    tn_update_result a;
    tn_trainer_instruments(r.trainer, take, NULL, &before);
    assert_int_equal(before.n, 0); /* no step yet */
    give(&r, 5);
    for (int b = 0; b < MOST; b++) first += (double)r.features[b * T * F];
    assert_ok(tn_trainer_grad(r.trainer, 0, &loss));
    assert_ok(tn_trainer_apply(r.trainer, 0, 1, loss, &a));
    give(&r, 3);
    assert_ok(tn_trainer_eval(r.trainer, &loss));
    tn_trainer_instruments(r.trainer, take, NULL, &after);
    assert_int_equal(after.n, 2);
    assert_true(after.rows == 5 && fabs(after.first - first) < 1e-6);
    close_rig(&r);
}

static tn_status build_weighted(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const tn_ref w = tn_param(g, "w", tn_shape(1, tn_settings_int(st, "inputs") * b->length), tn_ones);
    const tn_ref x = tn_reshape(g, tn_in(b, "features"), tn_shape(b->batch, tn_settings_int(st, "inputs") * b->length));
    const tn_ref apart = tn_sub(g, tn_reshape(g, tn_linear(g, x, w), tn_shape(b->batch)), tn_in(b, "targets"));
    tn_output(g, "loss", tn_mean_all(g, tn_mul(g, tn_in(b, "weights"), tn_square(g, apart))));
    return (int64_t)tn_number(b, "samples") == 100 ? tn_graph_status(g) : TN_INTERNAL;
}

static void weights(void **state)
{
    (void)state;
    const char *const set[] = { "inputs=3", "tokens=2", "classes=4", "threads=1" };
    static const tn_model model = { TN_MODEL_HEAD, .name = "weighted", .build = build_weighted, TN_MLP_ROWS };
    rig r = { .settings = tn_mlp_settings(set, 4) };
    float loss, again;
    double want = 0;
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = &model,
                                                    .settings = r.settings,
                                                    .batch = 3,
                                                    .length = T,
                                                    .input_spec = TN_MLP_SUPPLY(1, 100, .optional = true) },
                             &r.trainer));
    find_feed(&r);
    float *weight = tn_feed_at(&r.feed, "weights"), *target = tn_feed_at(&r.feed, "targets");
    assert_null(r.sample); /* which this model has no use for */
    for (int i = 0; i < 3 * T * F; i++) r.features[i] = (float)(i % 7) - 3;
    for (int b = 0; b < 3; b++) {
        double y = 0;
        for (int i = 0; i < T * F; i++) y += (double)r.features[b * T * F + i];
        weight[b] = (float)b - 0.5f;
        target[b] = (float)b;
        want += (b - 0.5) * (y - b) * (y - b) / 3;
    }
    assert_ok(tn_trainer_grad(r.trainer, 0, &loss));
    assert_ok(tn_trainer_eval(r.trainer, &again));
    assert_true(fabs((double)loss - want) < 1e-5 * fabs(want) && again == loss);
    close_rig(&r);
}

static void mistakes(void **state)
{
    (void)state;
    const char *const set[] = { "inputs=3", "tokens=2", "classes=4", "plan.recompute=chunk" };
    tn_settings *st = tn_mlp_settings(set, 4);
    tn_trainer *t;
    tn_trainer_options o = { .model = &tn_mlp, .settings = st, .batch = 2, .length = T };
    assert_fails(tn_trainer_new(&o, &t), TN_USAGE, "mlp learns from samples: use none or layer");
    assert_ok(tn_settings_override(st, "plan.recompute=none"));
    o.batch = (int64_t)1 << 40;
    assert_fails(tn_trainer_new(&o, &t), TN_MEMORY, "use a smaller batch");
    o.batch = 2;
    assert_ok(tn_settings_override(st, "inputs=auto"));
    assert_fails(tn_trainer_new(&o, &t), TN_USAGE, "name them with task=NAME");
    tn_settings_free(st);
}

void tn_tests_samples(tn_test_list *l)
{
    static const int64_t one = 1, each = T;
    tn_test_add(l, padding, &one, "samples: padding changes nothing");
    tn_test_add(l, padding, &each, "samples: padding changes nothing, a label for each token");
    tn_test_add(l, instruments, NULL, "samples: instruments see the last training step");
    tn_test_add(l, weights, NULL, "samples: weights and targets");
    tn_test_add(l, mistakes, NULL, "samples: mistakes");
}
