/* judged: a language model that looks at one token, with metrics of its own: from sums, of the whole held-out set, and as a quotient. */
#include <tenon/model.h>

#include <math.h>

static const tn_setting settings[] = {
    TN_SETTING_INT("dim", "8", TN_RANGE(1, 65536), "", "width"),
    TN_SETTING_AUTO_INT("vocab", "auto", TN_RANGE(2, 1e7), "", "tokens of the vocabulary"),
};

static tn_status build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const int64_t d = tn_settings_int(st, "dim"), vocab = tn_settings_int(st, "vocab");
    const tn_ref table = tn_param(g, "embed", tn_shape(vocab, d), tn_normal(0.1f));
    const tn_ref x =
        tn_linear(g, tn_embed(g, tn_in(b, "tokens"), table), tn_param(g, "w", tn_shape(d, d), tn_normal(0.3f)));
    tn_output(g, "squares", tn_sum_all(g, tn_square(g, x)));
    tn_output(g, "size", tn_sum_all(g, tn_square(g, table)));
    tn_output(g, "rows", tn_copy(g, x));
    if (tn_wants(b, "logits")) tn_output(g, "logits", tn_linear(g, x, table));
    if (tn_in(b, "labels").id) tn_output(g, "loss", tn_linear_xent(g, x, table, tn_in(b, "labels")));
    return tn_graph_status(g);
}

static double spread(const double *sums, const tn_settings *st)
{
    (void)st;
    return 10 * log10(sums[0] / sums[1]);
}

static double mean(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st)
{
    double sum = 0;
    (void)st;
    for (int64_t i = 0; i < rows * each[0]; i++) sum += fabs((double)kept[0][i]);
    return sum / (double)(rows * each[0]);
}

static const tn_metric_row metrics[] = {
    { "loss", "nats", TN_LOWER, TN_MEAN_BY_COUNT, .key = "heldout" },
    { "spread", "dB", TN_HIGHER, TN_FROM_SUMS, .sums = { "squares", "size" }, .make = spread },
    { "share", "", TN_LOWER, TN_QUOTIENT, .sums = { "size", "squares" } },
    { "mean@all", "", TN_LOWER, TN_OF_WHOLE, .keep = { "rows" }, .whole = mean, .key = "mean" },
#ifdef WRONG
    { WRONG },
#endif
};

static const tn_model model = {
    TN_MODEL_HEAD,
    .name = "judged",
    .summary = "a model with metrics of its own",
    .settings = settings,
    .n_settings = sizeof settings / sizeof *settings,
    .build = build,
    .inputs = tn_language_inputs,
    .n_inputs = TN_LANGUAGE_INPUTS,
    TN_METRICS(metrics),
};

const tn_model *tenon_model(void);
const tn_model *tenon_model(void) { return &model; }
