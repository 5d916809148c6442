/* A teacher that is kept (loss.teacher=cached), and what a sender gives (wire_features.h): which inputs training batches get from its file, how the file is made before a run's
 * first step, and what of it a row of a batch gets. The model has the step "teach" for it, whose outputs X.teach_ids, X.teach_logits,
 * X.teach_lse and X.teach_states are of the states that say tokens 1, 2, ... of rows X.tokens. */
#ifndef TN_TRAIN_SOURCE_WIRE_TEACH_H
#define TN_TRAIN_SOURCE_WIRE_TEACH_H

#include "tasks/wire/wire_sizes.h"
#include "tasks/wire/wire_teach.h"
#include "train/source/source.h"
#include "train/source/wire_features.h"

enum { TN_TEACHER_ROWS = 4 * TN_WIRE_READERS + 1, TN_TEACHER_NUMBERS = 2 * TN_WIRE_READERS + 2 };

typedef struct tn_wire_teacher {
    tn_wire_lesson lesson; /* readers 0: there is none */
    tn_wire_teach *file;   /* or NULL */
    tn_wire_features features;
    bool ready;                         /* all files are there */
    tn_input_row rows[TN_TEACHER_ROWS]; /* none: nothing is kept */
    size_t n_rows;
    int features_row;            /* or -1 */
    int row[TN_WIRE_READERS][4]; /* by reader of the lesson: ids, logits, lse, states; -1: none */
    tn_source_number numbers[TN_TEACHER_NUMBERS];
    size_t n_numbers;
} tn_wire_teacher;

/* What the settings ask for. */
tn_status tn_wire_teacher_open(const tn_source_open *o, const tn_wire_store *store, tn_wire_teacher *out);
void tn_wire_teacher_close(tn_wire_teacher *t);

/* A row of a batch from a teacher that knows nothing: for rows that are made up, which have no other. */
void tn_wire_teacher_unknown(const tn_wire_teacher *t, int64_t questions, void *const *at);

/* How the source fills a row of a batch with n <= questions of the context's, counted from its first. */
typedef struct tn_wire_asking {
    const void *source;
    void (*put)(const void *source, int64_t context, const int32_t *picked, int64_t n, void *const *at);
    const tn_input_row *rows;
    size_t n_rows;
    int64_t questions;
} tn_wire_asking;

/* The files, from task.cache or the run's folder; made in one pass where there are none. */
tn_status tn_wire_teacher_prepare(tn_wire_teacher *t, const tn_wire_asking *a, const tn_source_prepare *how);

/* A row of a training batch of these sizes: the teacher's inputs into at (n_rows). false: it could not be read. */
bool tn_wire_teacher_read(const tn_wire_teacher *t, int64_t context, const int32_t *picked, int64_t n,
                          const tn_wire_sizes *size, void *const *at);

#endif
