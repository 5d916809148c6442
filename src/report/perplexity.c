/* Windows of a text through a trainer, several side by side. */
#include "report/perplexity.h"

#include "base/status.h"

#include <math.h>

typedef struct view {
    int32_t *tokens, *labels; /* (B,T) */
} view;

int64_t tn_perplexity_windows(int64_t n, int64_t length, int64_t stride)
{
    const int64_t beyond = n - 1 - length; /* labels that the first window does not have */
    return beyond <= 0 ? 1 : 1 + (beyond + stride - 1) / stride;
}

/* Window w into a row; returns how many of its labels count. Those that the window before has do not. */
static int64_t fill_row(const tn_perplexity_options *o, int64_t w, view v)
{
    const int64_t first = w * o->stride,
                  seen = w ? first - o->stride + o->length : 0; /* labels up to `seen` are scored */
    int64_t counted = 0;
    for (int64_t t = 0; t < o->length; t++) {
        const int64_t label = first + t + 1;
        v.tokens[t] = first + t < o->n ? o->ids[first + t] : 0;
        v.labels[t] = label < o->n && label > seen ? o->ids[label] : -1;
        counted += v.labels[t] >= 0;
    }
    return counted;
}

static void skip_row(const tn_perplexity_options *o, view v)
{
    for (int64_t t = 0; t < o->length; t++) v.tokens[t] = 0, v.labels[t] = -1;
}

static tn_status run_batch(const tn_perplexity_options *o, int64_t first, int64_t windows, double *sum, int64_t *tokens)
{
    const view all = { tn_trainer_input(o->trainer, "tokens"), tn_trainer_input(o->trainer, "labels") };
    float loss;
    int64_t counted = 0;
    if (!all.tokens || !all.labels) return tn_error(TN_USAGE, "the model does not read text: it has no perplexity");
    for (int64_t b = 0; b < o->batch; b++) {
        const view row = { all.tokens + b * o->length, all.labels + b * o->length };
        if (first + b < windows) counted += fill_row(o, first + b, row);
        else skip_row(o, row);
    }
    TN_RETURN_IF(tn_trainer_eval(o->trainer, &loss));
    *sum += (double)loss * (double)counted;
    *tokens += counted;
    return TN_OK;
}

tn_status tn_perplexity_measure(const tn_perplexity_options *o, tn_perplexity *out)
{
    const int64_t windows = tn_perplexity_windows(o->n, o->length, o->stride);
    double sum = 0;
    int64_t tokens = 0;
    if (o->n < 2) return tn_error(TN_USAGE, "the text has %lld tokens: at least 2 are needed", (long long)o->n);
    tn_trainer_steady(o->trainer, true);
    for (int64_t w = 0; w < windows; w += o->batch) {
        if (o->interrupted && o->interrupted(o->ctx)) return tn_error(TN_INTERRUPTED, "interrupted while measuring");
        TN_RETURN_IF(run_batch(o, w, windows, &sum, &tokens));
        if (o->progress) o->progress(o->ctx, tokens);
    }
    *out = (tn_perplexity){ .tokens = tokens, .windows = windows, .nats = sum / (double)tokens };
    out->bits = o->bytes > 0 ? sum / log(2) / (double)o->bytes : NAN;
    return TN_OK;
}
