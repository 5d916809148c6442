/* The smallest model that learns from samples, for tests of what feeds one: two layers, a class for each sample or token.
 * Header only. */
#ifndef TN_TESTS_MLP_H
#define TN_TESTS_MLP_H

#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <tenon/model.h>

#include <string.h>

static const tn_setting tn_mlp_rows[] = {
    TN_SETTING_AUTO_INT("inputs", "auto", TN_RANGE(1, 1e6), "", "features per token (auto: the task's)"),
    TN_SETTING_AUTO_INT("tokens", "auto", TN_RANGE(1, 1e6), "", "tokens per sample (auto: the task's)"),
    TN_SETTING_AUTO_INT("classes", "auto", TN_RANGE(2, 1e6), "", "classes (auto: the task's)"),
    TN_SETTING_INT("dim", "16", TN_RANGE(1, 65536), "", "width"),
};

/* What samples hold, with weights and targets where somebody gives them: also for other models of tests. */
static const tn_input_row tn_mlp_inputs[] = {
    { "features", TN_F32, .dims = { TN_B, TN_T, "inputs" } },
    { "labels", TN_I32, { TN_B, "labels" }, .below = "classes", .pad = -1 },
    { "count", TN_I32, { "1" }, .valid_rows = true },
    { "sample", TN_I32, .dims = { TN_B } },
    { "weights", TN_F32, .dims = { TN_B }, .optional = true },
    { "targets", TN_F32, .dims = { TN_B }, .optional = true },
};
static const tn_source_number tn_mlp_assumes[] = {
    { "inputs", 64 }, { "tokens", 1 }, { "classes", 10 }, { "labels", 1 }
};
#define TN_MLP_ROWS                                                                                                    \
    TN_INPUTS(tn_mlp_inputs), .time = "tokens", .assumes = tn_mlp_assumes,                                             \
                              .n_assumes = sizeof tn_mlp_assumes / sizeof *tn_mlp_assumes

/* For a trainer without a source: labels of a sample, samples of the training set. */
#define TN_MLP_SUPPLY(L, N, ...)                                                                                       \
    &(tn_input_spec)                                                                                                   \
    {                                                                                                                  \
        .numbers = (const tn_source_number[]){ { "labels", (double)(L) }, { "samples", (double)(N) } },                \
        .n_numbers = 2, __VA_ARGS__                                                                                    \
    }

/* One label for a sample: its tokens are one long row. One for each token: each is looked at alone. */
static tn_status tn_mlp_build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const int64_t B = b->batch, T = b->length, F = tn_settings_int(st, "inputs"), C = tn_settings_int(st, "classes");
    const int64_t d = tn_settings_int(st, "dim"), L = tn_ref_dim(g, tn_in(b, "labels"), 1), n = T * F / L;
    const tn_ref x = tn_reshape(g, tn_in(b, "features"), tn_shape(B * L, n));
    const tn_ref w1 = tn_param(g, "w1", tn_shape(d, n), tn_normal(0.5f)),
                 w2 = tn_param(g, "w2", tn_shape(C, d), tn_normal(0.5f));
    const tn_ref h = tn_tanh(g, tn_linear(g, x, w1, .bias = tn_param(g, "b1", tn_shape(d), tn_zeros)));
    const tn_ref logits = tn_linear(g, h, w2, .bias = tn_param(g, "b2", tn_shape(C), tn_zeros));
    if (tn_wants(b, "logits")) tn_output(g, "logits", tn_reshape(g, logits, tn_shape(B, L, C)));
    tn_output(g, "rows", tn_copy(g, tn_in(b, "count")));
    tn_output(g, "which", tn_copy(g, tn_in(b, "sample")));
    tn_output(g, "first", tn_copy(g, tn_slice(g, x, 1, 0, 1)));
    tn_output(g, "loss", tn_xent(g, logits, tn_reshape(g, tn_in(b, "labels"), tn_shape(B * L))));
    return tn_graph_status(g);
}

static void tn_mlp_instruments(const tn_settings *st, const tn_instruments *i)
{
    int64_t n, m;
    const float *rows = i->output(i->ctx, "rows", &n), *first = i->output(i->ctx, "first", &m);
    (void)st;
    if (!rows || !first) return;
    double sum = 0;
    for (int64_t k = 0; k < m; k++) sum += (double)first[k];
    i->report(i->ctx, "rows", n == 1 ? (double)rows[0] : NAN, "samples");
    i->report(i->ctx, "first", sum, "");
}

static const tn_model tn_mlp = { TN_MODEL_HEAD,
                                 .name = "mlp",
                                 .summary = "two layers",
                                 .settings = tn_mlp_rows,
                                 .n_settings = sizeof tn_mlp_rows / sizeof *tn_mlp_rows,
                                 .build = tn_mlp_build,
                                 .instruments = tn_mlp_instruments,
                                 TN_MLP_ROWS };

/* The settings of a run of it. */
static inline tn_settings *tn_mlp_settings(const char *const *set, size_t n)
{
    tn_settings *st;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, tn_mlp.settings, tn_mlp.n_settings, tn_mlp.name));
    for (size_t i = 0; i < n; i++) assert_ok(tn_settings_override(st, set[i]));
    return st;
}

#endif
