/* wrong: two layers whose bias is added in the product or behind it, by a switch each. The twin of opt.bias_wrong adds 1.02 times the bias. */
#include <tenon/model.h>

static const tn_setting settings[] = {
    TN_SETTING_INT("dim", "64", TN_RANGE(1, 65536), "", "width"),
    TN_SETTING_AUTO_INT("vocab", "auto", TN_RANGE(2, 1e7), "", "vocabulary size"),
    TN_SETTING_SWITCH("opt.bias_right", "on", "bias in the product (off: behind it)"),
    TN_SETTING_SWITCH("opt.bias_wrong", "on", "bias in the product (off: behind it, and another)"),
};

static const tn_input_row inputs[] = {
    { "tokens", TN_I32, { TN_B, TN_T }, .below = "vocab" },
    { "labels", TN_I32, { TN_B, TN_T }, .below = "vocab", .pad = -1 },
};
static const tn_source_number assumes[] = { { "vocab", 256 } };
static const tn_metric_row metrics[] = { { "loss", "nats", TN_LOWER, TN_MEAN_BY_COUNT, .key = "heldout" } };

static tn_ref layer(tn_graph *g, tn_ref x, int64_t d, bool fused, float factor)
{
    const tn_ref w = tn_param(g, "w", tn_shape(d, d), tn_normal(0.1f)), b = tn_param(g, "b", tn_shape(d), tn_zeros);
    if (fused) return tn_tanh(g, tn_linear(g, x, w, .bias = b));
    return tn_tanh(g, tn_add(g, tn_linear(g, x, w), tn_affine(g, b, factor, 0)));
}

static tn_status build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    static const char *const names[] = { "opt.bias_right", "opt.bias_wrong" };
    const int64_t d = tn_settings_int(st, "dim"), vocab = tn_settings_int(st, "vocab");
    const tn_ref table = tn_param(g, "embed", tn_shape(vocab, d), tn_normal(0.1f));
    tn_ref x = tn_embed(g, tn_in(b, "tokens"), table);
    for (int i = 0; i < 2; i++) {
        tn_region r = tn_region_begin(g, "layer%d", i);
        x = layer(g, x, d, tn_settings_on(st, names[i]), i ? 1.02f : 1);
        tn_region_end(g, r);
    }
    tn_output(g, "loss", tn_linear_xent(g, x, table, tn_in(b, "labels")));
    return tn_graph_status(g);
}

static const tn_model model = {
    TN_MODEL_HEAD,
    .name = "wrong",
    .summary = "a model with a twin that is wrong",
    .settings = settings,
    .n_settings = sizeof settings / sizeof *settings,
    .build = build,
    TN_INPUTS(inputs),
    .assumes = assumes,
    .n_assumes = sizeof assumes / sizeof *assumes,
    TN_METRICS(metrics),
};

const tn_model *tenon_model(void);
const tn_model *tenon_model(void) { return &model; }
