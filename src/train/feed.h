/* Rows of a trainer's inputs for models that learn from samples. Pointers of the feed that are NULL are left out. */
#ifndef TN_TRAIN_FEED_H
#define TN_TRAIN_FEED_H

#include "base/rng.h"
#include "tasks/task.h"
#include "train/trainer.h"

/* Row b is a sample of the set; number: which one of the training set it is, 0 where it is none. Returns its labels that
 * count. */
int64_t tn_feed_sample(const tn_feed *f, int64_t b, const tn_samples *set, int64_t row, int64_t number);
/* The first n rows are there; those behind become padding. */
void tn_feed_end(const tn_feed *f, int64_t n);
/* All rows from the training samples in their order, as often as it takes. */
void tn_feed_first(const tn_feed *f, const tn_samples *set);
/* All rows are there, each the sample of its own number, with weight 1 and target 0; their features and labels are left. */
void tn_feed_numbers(const tn_feed *f);
/* Samples nobody has seen: normal numbers, and labels of so many classes; else as above. */
void tn_feed_made_up(const tn_feed *f, int64_t classes, tn_rng rng);

#endif
