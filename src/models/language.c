/* Rows that all language models share: the inputs of a batch of text, and metrics. */
#include <tenon/model.h>

#include <math.h>

const tn_input_row tn_language_inputs[] = { TN_LANGUAGE_INPUT_ROWS };
_Static_assert(sizeof tn_language_inputs / sizeof *tn_language_inputs == TN_LANGUAGE_INPUTS, "as model.h says");

const tn_source_number tn_language_assumes[] = { { "vocab", 50257 } };

const tn_loss_row tn_language_losses[] = { { "xent", "labels" }, { "extra", TN_T } };
_Static_assert(sizeof tn_language_losses / sizeof *tn_language_losses == TN_LANGUAGE_LOSSES, "as model.h says");

void tn_answers_add(const tn_metric_view *v, double *sums)
{
    int64_t n, all;
    const float *logits = v->output(v->ctx, "logits", &all); /* (n, classes) */
    const int32_t *labels = v->input(v->ctx, "labels", &n);
    if (!logits || !labels || n < 1) {
        sums[0] = NAN; /* the model puts out none */
        return;
    }
    const int64_t classes = all / n;
    for (int64_t i = 0; i < n; i++) {
        const float *x = logits + i * classes;
        int64_t best = 0;
        if (labels[i] < 0) continue;
        for (int64_t k = 1; k < classes; k++)
            if (x[k] > x[best] || isnan(x[best])) best = k;
        sums[0] += best == labels[i] && !isnan(x[best]);
    }
    sums[1] += (double)v->count;
}

const tn_metric_row tn_language_metrics[] = {
    { "loss", "nats", TN_LOWER, TN_MEAN_BY_COUNT, .sums = { "xent" }, .key = "heldout" },
    { "bits_per_byte", "bits/byte", TN_LOWER, TN_MEAN_BY_COUNT, .sums = { "xent" }, .needs = "bits",
      .key = "bits_per_byte" },
    { "accuracy", "", TN_HIGHER, TN_ADDED, .add = tn_answers_add, .reads = "logits", .needs = "answers",
      .by_group = true },
};
_Static_assert(sizeof tn_language_metrics / sizeof *tn_language_metrics == TN_LANGUAGE_METRICS, "as model.h says");
