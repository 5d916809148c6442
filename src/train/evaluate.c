/* Evaluation: the source's held-out part through the forward plan. */
#include "train/training.h"

#include <math.h>
#include <string.h>

/* Labels that the largest logit of their row names, among those that count. logits (B*each,classes), the first of equals. */
static int64_t count_right(const int32_t *labels, int64_t n, const float *logits, int64_t classes)
{
    int64_t right = 0;
    for (int64_t i = 0; i < n; i++) {
        const float *x = logits + i * classes;
        int64_t best = 0;
        if (labels[i] < 0) continue;
        for (int64_t k = 1; k < classes; k++)
            if (x[k] > x[best] || isnan(x[best])) best = k;
        right += best == labels[i] && !isnan(x[best]);
    }
    return right;
}

/* -1: the model puts out no logits. */
static int64_t right_of(tn_trainer *t)
{
    int64_t n;
    const float *logits = tn_trainer_output(t, "logits", &n);
    const tn_feed f = tn_trainer_feed_again(t);
    for (size_t i = 0; logits && i < f.inputs->n; i++) {
        const tn_input_slot *s = &f.inputs->slot[i];
        if (strcmp(s->row->name, "labels") != 0 || !f.at[i]) continue;
        const int64_t all = tn_input_items(s, f.batch, f.length);
        return count_right(f.at[i], all, logits, n / all);
    }
    return -1;
}

/* Answers of each kind, where a source counts them apart. */
typedef struct tally {
    int64_t right[TN_SOURCE_GROUPS], all[TN_SOURCE_GROUPS];
    bool none; /* the model puts out no logits */
} tally;

static void tally_add(tally *a, tn_trainer *t, int64_t group, int64_t count)
{
    const int64_t right = right_of(t);
    a->none |= right < 0;
    a->right[group] += right;
    a->all[group] += count;
}

/* Kinds count alike, however many questions they have. */
static void tally_end(const tally *a, const tn_source *source, tn_evaluation *e)
{
    double sum = 0;
    int64_t n = 0;
    e->groups = source->groups;
    e->accuracy = NAN;
    for (int64_t i = 0; i < TN_SOURCE_GROUPS; i++) {
        e->group[i] = a->all[i] && !a->none ? (double)a->right[i] / (double)a->all[i] : NAN;
        if (isnan(e->group[i])) continue;
        sum += e->group[i];
        n++;
    }
    if (n) e->accuracy = sum / (double)n;
    if (!source->groups) e->group[0] = NAN; /* all answers are of one kind */
}

tn_status tn_evaluate(tn_trainer *t, const tn_source *source, int64_t batches, tn_evaluation *out)
{
    tn_evaluation e = { 0 };
    tally answers = { 0 };
    double sum = 0;
    const int64_t groups = source->groups ? source->groups : 1;
    const bool asks = source->train_samples > 0 || source->groups > 0;
    for (int64_t i = 0; batches == 0 || i < batches; i++) {
        float loss;
        int64_t count, n;
        TN_RETURN_IF(tn_source_heldout(source, i, t, &count));
        if (count == 0) break;
        TN_RETURN_IF(tn_trainer_eval(t, &loss));
        if (i == 0) tn_trainer_keep_look(t); /* its rows are full */
        const float *xent = tn_trainer_output(t, "xent", &n); /* where the loss is more than that */
        sum += (double)(xent ? *xent : loss) * (double)count;
        e.tokens += count;
        if (asks) tally_add(&answers, t, i % groups, count);
    }
    e.loss = e.tokens ? sum / (double)e.tokens : NAN;
    tally_end(&answers, source, &e);
    *out = e;
    return TN_OK;
}
