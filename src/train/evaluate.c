/* Evaluation: the source's held-out part through the forward plan. */
#include "train/training.h"

#include <math.h>

/* Labels that the largest logit of their row names, among those that count. logits (B*L,classes), the first of equals. */
static int64_t count_right(const tn_feed *f, const float *logits, int64_t classes)
{
    int64_t right = 0;
    for (int64_t i = 0; i < f->batch * f->labels_each; i++) {
        const float *x = logits + i * classes;
        int64_t best = 0;
        if (f->labels[i] < 0) continue;
        for (int64_t k = 1; k < classes; k++)
            if (x[k] > x[best] || isnan(x[best])) best = k;
        right += best == f->labels[i] && !isnan(x[best]);
    }
    return right;
}

/* -1: the model puts out no logits. */
static int64_t right_of(tn_trainer *t)
{
    int64_t n;
    const float *logits = tn_trainer_output(t, "logits", &n);
    const tn_feed f = tn_trainer_feed(t);
    return logits && f.labels ? count_right(&f, logits, n / (f.batch * f.labels_each)) : -1;
}

tn_status tn_evaluate(tn_trainer *t, const tn_source *source, int64_t batches, tn_evaluation *out)
{
    tn_evaluation e = { 0 };
    double sum = 0;
    int64_t right = 0;
    for (int64_t i = 0; batches == 0 || i < batches; i++) {
        float loss;
        int64_t count, n;
        TN_RETURN_IF(source->heldout(source->ctx, i, t, &count));
        if (count == 0) break;
        TN_RETURN_IF(tn_trainer_eval(t, &loss));
        if (i == 0) tn_trainer_keep_look(t); /* its rows are full */
        const float *xent = tn_trainer_output(t, "xent", &n); /* where the loss is more than that */
        sum += (double)(xent ? *xent : loss) * (double)count;
        e.tokens += count;
        if (source->train_samples > 0 && right >= 0) {
            const int64_t more = right_of(t);
            right = more < 0 ? -1 : right + more;
        }
    }
    e.loss = e.tokens ? sum / (double)e.tokens : NAN;
    e.accuracy = e.tokens && right >= 0 && source->train_samples > 0 ? (double)right / (double)e.tokens : NAN;
    *out = e;
    return TN_OK;
}
