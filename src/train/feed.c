/* Rows of the inputs: from a set of samples, as padding, or made up. */
#include "train/feed.h"

#include <string.h>

int64_t tn_feed_sample(const tn_feed *f, int64_t b, const tn_samples *set, int64_t row, int64_t number)
{
    const int64_t L = set->labels;
    const int32_t *y = set->y + row * L;
    int64_t counted = 0;
    if (f->features) tn_samples_read(set, row, f->features + b * f->length * f->inputs);
    if (f->labels) memcpy(f->labels + b * L, y, sizeof *y * (size_t)L);
    if (f->sample) f->sample[b] = (int32_t)number;
    for (int64_t i = 0; i < L; i++) counted += y[i] >= 0;
    return counted;
}

void tn_feed_end(const tn_feed *f, int64_t n)
{
    const int64_t rest = f->batch - n, numbers = f->length * f->inputs, L = f->labels_each;
    if (f->count) f->count[0] = (int32_t)n;
    if (rest < 1) return;
    if (f->features) memset(f->features + n * numbers, 0, sizeof *f->features * (size_t)(rest * numbers));
    if (f->labels) memset(f->labels + n * L, -1, sizeof *f->labels * (size_t)(rest * L));
    if (f->sample) memset(f->sample + n, 0, sizeof *f->sample * (size_t)rest);
    if (f->weights) memset(f->weights + n, 0, sizeof *f->weights * (size_t)rest);
    if (f->targets) memset(f->targets + n, 0, sizeof *f->targets * (size_t)rest);
}

void tn_feed_first(const tn_feed *f, const tn_samples *set)
{
    for (int64_t b = 0; b < f->batch; b++) {
        const int64_t which = b % set->count[TN_TRAIN];
        (void)tn_feed_sample(f, b, set, set->index[TN_TRAIN][which], which);
    }
    tn_feed_end(f, f->batch);
}

void tn_feed_numbers(const tn_feed *f)
{
    for (int64_t b = 0; b < f->batch; b++) {
        if (f->sample) f->sample[b] = (int32_t)b;
        if (f->weights) f->weights[b] = 1;
        if (f->targets) f->targets[b] = 0;
    }
    tn_feed_end(f, f->batch);
}

void tn_feed_made_up(const tn_feed *f, int64_t classes, tn_rng rng)
{
    const tn_rng other = { rng.seed, rng.stream + 1 };
    if (f->features) tn_rng_normals(rng, f->features, f->batch * f->length * f->inputs);
    for (int64_t i = 0; f->labels && i < f->batch * f->labels_each; i++)
        f->labels[i] = (int32_t)tn_rng_below(other, (uint64_t)i, (uint64_t)classes);
    tn_feed_numbers(f);
}
