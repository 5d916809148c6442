/* Perplexity in windows against every token predicted by itself, from the tokens that its window has before it. */
#include "report/perplexity.h"

#include "testlib.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <string.h>

enum { T = 12, N = 43, V = 64 };

typedef struct rig {
    tn_settings *settings;
    const tn_model *model;
    tn_store *store;
    int32_t ids[N];
} rig;

static void open_rig(rig *r)
{
    static const char *const set[] = { "dim=32", "layers=2", "heads=2", "vocab=64", "train.context=16", "threads=1" };
    assert_ok(tn_settings_resolve("gpt", set, sizeof set / sizeof *set, &r->settings, &r->model));
    assert_ok(tn_store_new(TN_CPU, 3, &r->store));
    for (int i = 0; i < N; i++) r->ids[i] = (i * i * 7 + 3 * i + 1) % V;
}

static void close_rig(rig *r)
{
    tn_store_free(r->store);
    tn_settings_free(r->settings);
}

static tn_trainer *trainer_of(const rig *r, int64_t batch, int64_t length)
{
    tn_trainer *t;
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = r->model,
                                                    .settings = r->settings,
                                                    .batch = batch,
                                                    .length = length,
                                                    .nll = true,
                                                    .forward_only = true,
                                                    .store = r->store },
                             &t));
    return t;
}

/* Of ids[label], given those from `first` on. */
static double nll_of(const rig *r, int64_t first, int64_t label)
{
    const int64_t n = label - first;
    tn_trainer *t = trainer_of(r, 1, n);
    int64_t count;
    float loss;
    memcpy(tn_trainer_input(t, "tokens"), r->ids + first, sizeof *r->ids * (size_t)n);
    memcpy(tn_trainer_input(t, "labels"), r->ids + first + 1, sizeof *r->ids * (size_t)n);
    assert_ok(tn_trainer_eval(t, &loss));
    const double nll = (double)tn_trainer_output(t, "nll", &count)[n - 1];
    assert_int_equal(count, n);
    tn_trainer_free(t);
    return nll;
}

static void equals_token_by_token(void **state)
{
    static const struct {
        int64_t n, stride, batch;
    } cases[] = {
        { N, T, 3 }, { N, T / 2, 3 }, { N, 5, 2 }, { N, 1, 4 }, { T + 1, 4, 2 }, { T + 2, T, 1 }, { 2, 6, 1 }
    };
    rig r;
    (void)state;
    open_rig(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t n = cases[i].n, stride = cases[i].stride;
        tn_trainer *t = trainer_of(&r, cases[i].batch, T);
        if (i == 0) { /* so that tokens differ */
            const tn_entry *e = tn_store_find(r.store, "embed");
            for (int64_t k = 0; k < tn_dims_count(e->dims); k++) ((float *)e->data)[k] *= 20;
        }
        tn_perplexity p;
        assert_ok(tn_perplexity_measure(&(tn_perplexity_options){ .trainer = t,
                                                                  .batch = cases[i].batch,
                                                                  .length = T,
                                                                  .stride = stride,
                                                                  .ids = r.ids,
                                                                  .n = n,
                                                                  .bytes = 3 * n },
                                        &p));
        tn_trainer_free(t);
        double sum = 0;
        for (int64_t label = 1; label < n; label++) {
            const int64_t window = label <= T ? 0 : (label - T + stride - 1) / stride;
            sum += nll_of(&r, window * stride, label);
        }
        assert_int_equal(p.tokens, n - 1);
        assert_float_equal(p.nats, sum / (double)(n - 1), 1e-5);
        assert_float_equal(p.bits, sum / log(2) / (double)(3 * n), 1e-5);
    }
    close_rig(&r);
}

void tn_tests_perplexity(tn_test_list *l)
{
    tn_test_add(l, equals_token_by_token, NULL, "perplexity: windows equal every token by itself");
}
