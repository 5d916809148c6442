/* A source that reads records one by one: the training split shuffled each epoch, the last batch as short as it comes;
 * held-out splits in order. Used for samples of tasks and for a model's own records (tn_records). */
#ifndef TN_TRAIN_SOURCES_RECORDS_H
#define TN_TRAIN_SOURCES_RECORDS_H

#include "base/hash.h"
#include "train/source/source.h"

/* The batches of an epoch: consecutive rows of an order, of which the last may be fewer. */
typedef struct tn_record_batches {
    const int32_t *row; /* (n) training records in order; NULL: there are none yet */
    int64_t n, rows;    /* rows: of a batch */
    int64_t accumulate, epoch;
} tn_record_batches;

/* Batches by length: records are grouped by the shape that they need, and a batch has the least that holds all of its records. */
typedef struct tn_record_shapes {
    const tn_input_shape *shape; /* (n) beside the whole one, the cheapest first */
    int n;
    /* From 1, above `after`; 0: the whole one. */
    int (*fit)(const void *data, const int32_t *rows, int64_t n, int64_t epoch, int after);
} tn_record_shapes;

typedef struct tn_record_set {
    const char *kind; /* of its cursors */
    const char *noun; /* "sample": in messages */
    const tn_input_row *rows;
    size_t n_rows;
    int64_t count[TN_SPLITS];
    double labels;                   /* that count, of the training part */
    const tn_source_number *numbers; /* (n_numbers), as long as the data; "samples" is added to them */
    size_t n_numbers;
    const void *data;
    tn_record_shapes shapes; /* none: all batches have the whole one */
    /* as tn_records.read, into rows of a shape; below 0: it could not be read, and the error's text says why. With shapes, what is drawn by
     * step is drawn by epoch: lengths are known before a batch has its step. */
    int64_t (*read)(const void *data, int split, int64_t i, int64_t step, int shape, void *const *at);
    int64_t (*place)(const void *data, int64_t i); /* of training record i, for people; NULL: i */
    tn_status (*hash)(const void *data, char hash[TN_HASH_BYTES]);
    void (*about)(const void *data, const tn_record_batches *b, FILE *f);
    double (*padding)(const void *data, const tn_record_batches *b); /* as tn_source.padding, or NULL */
    size_t (*bytes)(const void *data);                               /* or NULL */
    tn_status (*prepare)(void *data, const tn_source_prepare *how);  /* as tn_source.prepare, or NULL */
    const char *prepares;
    void (*close)(void *data);   /* the data go with the source; NULL: they are borrowed */
    const tn_resident *resident; /* as tn_source.resident, with the data; or NULL */
    uint64_t seed;               /* of the orders */
} tn_record_set;

/* Where row b of a feed has each of n rows, into at (n); NULL: nobody reads it. */
void tn_records_row(const tn_feed_map *m, const tn_feed *f, int64_t b, size_t n, void **at);

/* Not started. The data are closed also where it fails. */
tn_status tn_source_records_make(const tn_record_set *set, tn_source *out);

#endif
