/* Gradients by inputs in `tenon check`: of a model without a trained tensor, and of vectors in the place of tokens; wrong ones fail. */
#include "testlib.h"
#include "train/check/check.h"
#include "train/run/train_settings.h"

#include <string.h>

enum { FEATURES = 6 };

static bool wrong; /* the gradient is twice what it should be */

static void twice(tn_graph *g, tn_ref dy, const tn_ref *xs, int n, tn_ref *dx, void *user)
{
    (void)xs, (void)n, (void)user;
    dx[0] = tn_scale(g, dy, 2.f);
}

static tn_status build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    tn_ref x = tn_reshape(g, tn_in(b, "features"), tn_shape(b->batch, FEATURES));
    if (wrong) x = tn_custom_gradient(g, tn_copy(g, x), &x, 1, twice, NULL);
    const tn_ref w = tn_frozen(g, "w", tn_shape(3, FEATURES), TN_F32, tn_normal(0.5f));
    tn_output(g, "loss", tn_xent(g, tn_linear(g, x, w), tn_in(b, "labels")));
    return tn_graph_status(g);
}

static const tn_input_row rows[] = { { "features", TN_F32, { TN_B, "6" }, .pad = 0 },
                                     { "labels", TN_I32, { TN_B }, .below = "3", .pad = -1 } };
static const tn_model frozen = { TN_MODEL_HEAD, .name = "frozen", .build = build, TN_INPUTS(rows) };

static void keep(void *ctx, const tn_check_row *r) { *(tn_check_row *)ctx = *r; }

static void no_trained_tensor(void **state)
{
    (void)state;
    const tn_model *unused;
    tn_settings *st;
    tn_check_row row = { 0 };
    assert_ok(tn_settings_resolve("gpt_tiny", (const char *const[]){ "threads=1" }, 1, &st, &unused));
    const tn_check c = {
        .model = &frozen, .settings = st, .batch = 4, .length = 1, .only = "gradients", .ctx = &row, .row = keep
    };
    assert_ok(tn_check_run(&c));
    assert_int_equal(row.verdict, TN_PASS);
    assert_non_null(strstr(row.detail, "no tensor is trained; 1 of 1 inputs against differences"));
    assert_true(row.value < 1e-2);
    wrong = true;
    assert_int_equal(tn_check_run(&c), TN_DIVERGED);
    assert_int_equal(row.verdict, TN_FAILED);
    wrong = false;
    tn_settings_free(st);
}

static void vectors_for_tokens(void **state)
{
    (void)state;
    static const char *const words[] = { "threads=1", "dim=16", "layers=1", "vocab=19", "qk_norm=true", "head_dim=6" };
    const tn_model *m;
    tn_settings *st;
    tn_check_row row = { 0 };
    assert_ok(tn_settings_resolve("gpt_tiny", words, sizeof words / sizeof *words, &st, &m));
    const tn_check c = {
        .model = m, .settings = st, .batch = 2, .length = 12, .only = "gradients", .ctx = &row, .row = keep
    };
    assert_ok(tn_check_run(&c));
    assert_non_null(strstr(row.detail, ", by input embeddings"));
    tn_settings_free(st);
}

static float factor; /* of what the loss sees of the only tensor */

static tn_status build_faint(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    const tn_ref x = tn_reshape(g, tn_in(b, "features"), tn_shape(b->batch, FEATURES));
    const tn_ref w = tn_param(g, "w", tn_shape(3, FEATURES), tn_normal(0.5f));
    tn_output(g, "loss", tn_xent(g, tn_linear(g, x, tn_scale(g, w, factor)), tn_in(b, "labels")));
    return tn_graph_status(g);
}

static const tn_model faint = { TN_MODEL_HEAD, .name = "faint", .build = build_faint, TN_INPUTS(rows) };

/* Gradients that nobody can measure are no fault; that there are none at all is one. */
static void too_small(void **state)
{
    (void)state;
    static const struct {
        float factor;
        tn_verdict verdict;
        const char *said;
    } ways[] = { { 1, TN_PASS, "1 of 1 tensors against differences" },
                 { 1e-6f, TN_SKIPPED, "are lost in the rounding of a loss" },
                 { 0, TN_FAILED, "the gradients of all 1 tensors are 0" } };
    const tn_model *unused;
    tn_settings *st;
    assert_ok(tn_settings_resolve("gpt_tiny", (const char *const[]){ "threads=1" }, 1, &st, &unused));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        tn_check_row row = { 0 };
        const tn_check c = {
            .model = &faint, .settings = st, .batch = 4, .length = 1, .only = "gradients", .ctx = &row, .row = keep
        };
        factor = ways[i].factor;
        assert_int_equal(tn_check_run(&c), ways[i].verdict == TN_FAILED ? TN_DIVERGED : TN_OK);
        assert_int_equal(row.verdict, ways[i].verdict);
        if (!strstr(row.detail, ways[i].said)) fail_msg("%s", row.detail);
    }
    tn_settings_free(st);
}

void tn_tests_check_gradients(tn_test_list *l)
{
    tn_test_add(l, no_trained_tensor, NULL, "check: gradients by inputs where no tensor is trained");
    tn_test_add(l, vectors_for_tokens, NULL, "check: gradients by vectors in the place of tokens");
    tn_test_add(l, too_small, NULL, "check: gradients that are too small to tell, and none");
}
