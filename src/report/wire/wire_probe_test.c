/* Ridge regression against its normal equations, and probes where the answer depends on the text, the question, or both. */
#include "report/wire/wire_probe.h"

#include "base/rng.h"
#include "dataset_files.h"
#include "wire_run.h"

#include <math.h>

static void ridge(void **state)
{
    (void)state;
    enum { N = 40, D = 5, C = 3 };
    float x[N * D];
    int32_t y[N];
    double w[C * (D + 1)], trace = 0;
    const tn_rng r = { 3, 1 };
    for (int i = 0; i < N * D; i++) x[i] = (float)tn_rng_normal(r, (uint64_t)i);
    for (int i = 0; i < N; i++) y[i] = x[i * D] > 0.5f ? 2 : x[i * D + 1] > 0;
    for (int i = 0; i < N * D; i++) trace += (double)x[i] * x[i];
    assert_ok(tn_ridge_fit(x, y, N, D, C, 0.1, w));
    for (int k = 0; k < C; k++)
        for (int j = 0; j <= D; j++) { /* X^T (X w - y) + shrink w = 0; the constant is not shrunk */
            double g = j < D ? 0.1 * trace / D * w[k * (D + 1) + j] : 0;
            for (int i = 0; i < N; i++) {
                double said = w[k * (D + 1) + D];
                for (int c = 0; c < D; c++) said += w[k * (D + 1) + c] * x[i * D + c];
                g += (said - (y[i] == k)) * (j < D ? x[i * D + j] : 1);
            }
            assert_true(fabs(g) < 1e-8);
        }
    int right = 0;
    for (int i = 0; i < N; i++) right += tn_ridge_class(w, x + i * D, D, C) == y[i];
    assert_true(right > 32);
    x[7] = NAN;
    assert_fails(tn_ridge_fit(x, y, N, D, C, 0.1, w), TN_DIVERGED, "not finite");
}

/* Lines of SNLI whose label is 1 by the premise's kind, the hypothesis' kind, or whether these differ. */
static void put_lines(tn_tempdir *d, const char *name, int from, int n, int by)
{
    static const char *const premises[] = { "aaaaa aaa aaaaa aaa", "zzz zzzzz zzz zzzzz" };
    static const char *const hypotheses[] = { "it is warm", "nobody sleeps" };
    static char text[20000];
    size_t at = (size_t)snprintf(text, sizeof text, "gold_label\tsentence1\tsentence2\n");
    for (int i = from; i < from + n; i++) {
        const int p = i % 2, h = i / 2 % 2, label = by == 0 ? p : by == 1 ? h : p ^ h;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\t%s %d\t%s\n", label ? "entailment" : "contradiction",
                               premises[p], i, hypotheses[h]);
    }
    tn_put_text(tn_tempdir_file(d, name), text);
}

static void probes(void **state)
{
    (void)state;
    for (int by = 0; by < 3; by++) {
        tn_tempdir d;
        wire_run w;
        tn_wire_controls c;
        tn_wire_probe p;
        char words[700];
        tn_tempdir_make_quick(&d);
        put_lines(&d, "snli_train.tsv", 0, 160, by);
        put_lines(&d, "snli_dev.tsv", 1000, 40, by);
        put_lines(&d, "snli_test.tsv", 2000, 8, by);
        snprintf(words, sizeof words, "slots=4 task=cls task.data=%s task.size=160 task.heldout=40", d.path);
        wire_run_open(&w, words);
        assert_ok(tn_wire_controls_run(&w.s, 7, NULL, NULL, &c));
        assert_ok(tn_wire_probe_run(&w.s, &c, TN_VALID, 1000, NULL, NULL, &p));
        assert_true(p.done && p.classes == 2 && p.fitted == 160 && p.n == 40);
        assert_true(p.frequent > 0.4 && p.frequent < 0.6);
        for (int k = 0; k < 2; k++) {
            if (by == k) assert_true(p.accuracy[k] > 0.95);
            else assert_true(p.accuracy[k] < 0.8);
        }
        if (!(p.accuracy[TN_PROBE_BOTH] > 0.9)) fail_msg("by %d: both %g", by, p.accuracy[TN_PROBE_BOTH]);
        assert_ok(tn_wire_probe_run(&w.s, &c, TN_VALID, 20, NULL, NULL, &p));
        assert_true(p.fitted == 20);
        tn_wire_controls_free(&c);
        wire_run_close(&w);
        tn_tempdir_remove_all(&d);
    }
    wire_run w; /* recall has no classes */
    tn_wire_controls c;
    tn_wire_probe p;
    wire_run_open(&w, "slots=4");
    assert_ok(tn_wire_controls_run(&w.s, 7, NULL, NULL, &c));
    assert_ok(tn_wire_probe_run(&w.s, &c, TN_VALID, 1000, NULL, NULL, &p));
    assert_false(p.done);
    tn_wire_controls_free(&c);
    wire_run_close(&w);
}

void tn_tests_wire_probe(tn_test_list *l)
{
    tn_test_add(l, ridge, NULL, "wire probe: ridge regression");
    tn_test_add(l, probes, NULL, "wire probe: by text, by question, by both");
}
