/* train.dropout=auto: a rate by the epochs that a run plans. One epoch shows nothing twice, and dropout then only slows learning
 * down; with every further one a network learns its text by heart, and more dropout is better. The constants rest on one study
 * (docs/runs.md). A run keeps the rate that it began with. */
#ifndef TN_TRAIN_DROPOUT_AUTO_H
#define TN_TRAIN_DROPOUT_AUTO_H

#include "train/source/source.h"

#include <stdbool.h>

/* The source, in the settings, of a rate that was chosen. */
#define TN_DROPOUT_CHOSEN "auto"

typedef struct tn_dropout_auto {
    bool chosen;      /* train.dropout was auto */
    double rate;      /* for these epochs, */
    double epochs;    /* planned; 0: the data have none */
    double size;      /* of an epoch */
    const char *unit; /* "tokens", "samples" or "documents" */
} tn_dropout_auto;

/* 0 up to one epoch, then 0.02 for each further one, in steps of 0.05, up to 0.2. NaN is no epoch. */
double tn_dropout_auto_rate(double epochs);
/* By train.steps and train.accumulate, with batches of so many rows. */
tn_dropout_auto tn_dropout_auto_plan(const tn_settings *st, const tn_source *source, int64_t batch, int64_t length);
/* train.dropout gets the rate. */
tn_status tn_dropout_auto_take(const tn_dropout_auto *d, tn_settings *st);

/* "dropout 0.1 (auto): 6.0 epochs planned of 1.0 M tokens"; "" where it was not chosen. st: as the run has them. */
enum { TN_DROPOUT_AUTO_TEXT = 96 };
const char *tn_dropout_auto_text(const tn_dropout_auto *d, const tn_settings *st, char buf[TN_DROPOUT_AUTO_TEXT]);

#endif
