/* Choosing a token: against a plain oracle that sorts everything, against the exact distribution, and at the edges. */
#include "testlib.h"
#include "sample/sample_pick.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 300 };

static const tn_pick_options plain = { .temperature = 1, .top_p = 1 };

static int32_t pick(const float *logits, int64_t vocab, tn_pick_options o, double u)
{
    tn_picker *p = NULL;
    int32_t id = -1;
    assert_ok(tn_picker_new(vocab, &p));
    assert_ok(tn_pick(p, &o, logits, u, &id));
    assert_true(id >= 0 && id < vocab);
    tn_picker_free(p);
    return id;
}

/* --- the oracle: sort all, cut, walk ---------------------------------------------------------------------------------- */

static const float *sorted_by;

static int by_logit(const void *a, const void *b)
{
    const int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    return sorted_by[i] != sorted_by[k] ? (sorted_by[i] > sorted_by[k] ? -1 : 1) : (i > k) - (i < k);
}

static int32_t oracle(const float *logits, int64_t vocab, tn_pick_options o, double u)
{
    int32_t order[MOST];
    double weight[MOST], sum = 0, kept = 0;
    for (int32_t i = 0; i < vocab; i++) order[i] = i;
    sorted_by = logits;
    qsort(order, (size_t)vocab, sizeof *order, by_logit);
    int64_t n = o.top_k && o.top_k < vocab ? o.top_k : vocab, keep = 0;
    for (int64_t i = 0; i < n; i++)
        sum += weight[i] = exp(((double)logits[order[i]] - (double)logits[order[0]]) / o.temperature);
    while (keep < n && (keep == 0 || kept < o.top_p * sum)) kept += weight[keep++];
    double walked = 0;
    for (int64_t i = 0; i < keep; i++)
        if ((walked += weight[i]) > u * kept) return order[i];
    return order[keep - 1];
}

static void equals_oracle(void **state)
{
    (void)state;
    static const int64_t top_k[] = { 0, 1, 2, 7, 40, 299, 300, 1000 };
    static const double top_p[] = { 1, 0.99, 0.9, 0.5, 0.1, 1e-9 }, temperature[] = { 1, 0.7, 0.05, 30 };
    float logits[MOST];
    uint64_t draw = 0;
    for (uint64_t round = 0; round < 3; round++) {
        for (int i = 0; i < MOST; i++) logits[i] = 3 * tn_rng_normal((tn_rng){ 1, round }, (uint64_t)i);
        for (int i = 10; i < 60; i++) logits[i] = 2; /* many alike, across the cuts */
        for (size_t k = 0; k < sizeof top_k / sizeof *top_k; k++)
            for (size_t p = 0; p < sizeof top_p / sizeof *top_p; p++)
                for (size_t t = 0; t < sizeof temperature / sizeof *temperature; t++) {
                    const tn_pick_options o = { temperature[t], top_k[k], top_p[p] };
                    if ((!o.top_k || o.top_k >= MOST) && o.top_p == 1)
                        continue; /* walked in another order: see below */
                    for (int i = 0; i < 4; i++) {
                        const double u = tn_pick_uniform((tn_rng){ 2, 0 }, draw++);
                        assert_int_equal(pick(logits, MOST, o, u), oracle(logits, MOST, o, u));
                    }
                }
    }
}

/* Pearson's statistic of 40,000 draws; 35 is beyond 1 in 10^6 for 5 degrees of freedom, 28 for 2. */
static void distribution(void **state)
{
    (void)state;
    enum { V = 6, N = 40000 };
    const float logits[V] = { 1, 0.5f, -1, 2, 0, -2 };
    static const struct {
        tn_pick_options o;
        int kept;
        double most;
    } rows[] = { { { 1, 0, 1 }, 6, 35 }, { { 0.6, 0, 1 }, 6, 35 }, { { 1, 3, 1 }, 3, 28 }, { { 1, 0, 0.8 }, 3, 28 } };
    tn_picker *p = NULL;
    assert_ok(tn_picker_new(V, &p));
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        double want[V] = { 0 }, sum = 0, chi = 0;
        int64_t count[V] = { 0 };
        for (int i = 0; i < V; i++) {
            int above = 0;
            for (int k = 0; k < V; k++) above += logits[k] > logits[i];
            want[i] = above < rows[r].kept ? exp((double)logits[i] / rows[r].o.temperature) : 0;
            sum += want[i];
        }
        for (uint64_t i = 0; i < N; i++) {
            int32_t id;
            assert_ok(tn_pick(p, &rows[r].o, logits, tn_pick_uniform((tn_rng){ 3, r }, i), &id));
            count[id]++;
        }
        for (int i = 0; i < V; i++) {
            const double expected = N * want[i] / sum;
            if (expected == 0) assert_int_equal(count[i], 0);
            else chi += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
        }
        if (!(chi < rows[r].most)) fail_msg("row %zu: chi-square %g", r, chi);
    }
    tn_picker_free(p);
}

static void greedy_and_ties(void **state)
{
    (void)state;
    const float logits[] = { 1, 3, 3, -INFINITY, 2 }, equal[] = { 4, 4, 4, 4, 4 };
    bool seen[5] = { false };
    assert_int_equal(pick(logits, 5, (tn_pick_options){ 0, 0, 1 }, 0.99), 1);
    assert_int_equal(pick(logits, 5, (tn_pick_options){ 1, 1, 1 }, 0.99), 1);
    assert_int_equal(pick(logits, 5, (tn_pick_options){ 1, 0, 1e-12 }, 0.99), 1);
    assert_int_equal(pick(logits, 5, (tn_pick_options){ 1e-300, 0, 1 }, 0.999), 2); /* both largest stay */
    assert_int_equal(pick(logits, 1, plain, 0.5), 0);
    for (int i = 0; i < 1000; i++) {
        assert_true(pick(equal, 5, (tn_pick_options){ 1, 3, 1 }, i / 1000.) < 3); /* exactly three, the lowest ids */
        const int32_t id = pick(logits, 5, plain, i / 1000.);
        assert_int_not_equal(id, 3);
        seen[id] = true;
    }
    assert_true(seen[0] && seen[1] && seen[2] && seen[4]);
}

/* Probabilities 1/2, 1/4, 1/4 are exact, and so is where top_p cuts. */
static void cut_at_the_edge(void **state)
{
    (void)state;
    const float logits[] = { logf(0.25f), logf(0.5f), logf(0.25f) }, half[] = { 0, 0 };
    for (int i = 0; i < 100; i++) {
        const double u = i / 100.;
        assert_int_equal(pick(logits, 3, (tn_pick_options){ 1, 0, 0.4999 }, u), 1);
        assert_true(pick(logits, 3, (tn_pick_options){ 1, 0, 0.7 }, u) != 2);
        assert_int_equal(pick(half, 2, (tn_pick_options){ 1, 0, 0.5 }, u), 0);
        assert_int_equal(pick(half, 2, (tn_pick_options){ 1, 0, 0.51 }, u), u >= 0.5);
    }
    const double last = nextafter(1, 0);
    assert_int_equal(pick(logits, 3, plain, last), 2);
    assert_int_equal(pick(logits, 3, (tn_pick_options){ 1, 2, 1 }, last), 0);
}

static void refusals(void **state)
{
    (void)state;
    float logits[] = { 1, NAN, 2 };
    const float none[] = { -INFINITY, -INFINITY, -INFINITY };
    tn_picker *p = NULL;
    int32_t id = 77;
    assert_ok(tn_picker_new(3, &p));
    assert_fails(tn_pick(p, &plain, logits, 0, &id), TN_DIVERGED, "token 1 is NaN");
    assert_fails(tn_pick(p, &(tn_pick_options){ 0, 1, 1 }, logits, 0, &id), TN_DIVERGED, "token 1 is NaN");
    logits[1] = INFINITY;
    assert_fails(tn_pick(p, &plain, logits, 0, &id), TN_DIVERGED, "infinite");
    assert_fails(tn_pick(p, &plain, none, 0, &id), TN_DIVERGED, "no token");
    logits[1] = 0;
    assert_fails(tn_pick(p, &(tn_pick_options){ -1, 0, 1 }, logits, 0, &id), TN_USAGE, "temperature");
    assert_fails(tn_pick(p, &(tn_pick_options){ NAN, 0, 1 }, logits, 0, &id), TN_USAGE, "temperature");
    assert_fails(tn_pick(p, &(tn_pick_options){ 1, -1, 1 }, logits, 0, &id), TN_USAGE, "top_k");
    assert_fails(tn_pick(p, &(tn_pick_options){ 1, 0, 0 }, logits, 0, &id), TN_USAGE, "top_p");
    assert_fails(tn_pick(p, &(tn_pick_options){ 1, 0, 1.5 }, logits, 0, &id), TN_USAGE, "top_p");
    assert_int_equal(id, 77);
    tn_picker_free(p);
}

static void uniform_numbers(void **state)
{
    (void)state;
    double sum = 0, least = 1, most = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        const double u = tn_pick_uniform((tn_rng){ 5, 6 }, i);
        sum += u;
        least = u < least ? u : least;
        most = u > most ? u : most;
    }
    assert_true(least >= 0 && least < 1e-4 && most < 1 && most > 1 - 1e-4 && fabs(sum / 1e5 - 0.5) < 5e-3);
}

void tn_tests_sample_pick(tn_test_list *l)
{
    tn_test_add(l, equals_oracle, NULL, "sample/pick: top_k and top_p equal a full sort");
    tn_test_add(l, distribution, NULL, "sample/pick: draws have the model's distribution");
    tn_test_add(l, greedy_and_ties, NULL, "sample/pick: greedy, ties, tokens without probability");
    tn_test_add(l, cut_at_the_edge, NULL, "sample/pick: top_p at the edge");
    tn_test_add(l, refusals, NULL, "sample/pick: NaN and options out of range are refused");
    tn_test_add(l, uniform_numbers, NULL, "sample/pick: uniform numbers");
}
