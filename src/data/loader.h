/* Batches made ahead of time by background threads, in an order that does not depend on them.
 *
 *     tn_dataset *data;
 *     tn_loader *loader;
 *     tn_loader_cursor cursor;                                  // 0 bytes of it matter before the first save
 *     const tn_loader_batch *b;
 *     TN_TRY(tn_dataset_open("books", NULL, &data));
 *     TN_TRY(tn_loader_open(&(tn_loader_options){ .dataset = data, .split = TN_TRAIN, .batch = 8, .length = 256,
 *                                                 .mode = TN_LOADER_PACK, .seed = 1, .workers = 2, .from = resume ? &cursor : NULL },
 *                           &loader));
 *     for (int64_t step = 0; step < steps; step++) {
 *         TN_TRY(tn_loader_next(loader, &b));                   // b stays valid until the next call
 *         memcpy(tokens, b->tokens, ...); memcpy(labels, b->targets, ...); memcpy(reset, b->reset, ...);
 *         ...
 *         cursor = tn_loader_position(loader);                  // save it with the checkpoint: the next batch comes after it
 *     }
 *     tn_loader_free(loader);                                   // before the data set
 *
 * Evaluation: .evaluate = true walks the split once in its own order, each target exactly once; b is NULL after the last.
 * Packed rows begin anew: reset is 1 at the first token of a row and wherever a document starts. Targets are the next token
 * of the same document (its end-of-text token after the last, where the data set has one), -1 where there is none. Nothing is
 * allocated after the open. Arrays use features and labels instead of tokens. One consumer thread. */
#ifndef TN_DATA_LOADER_H
#define TN_DATA_LOADER_H

#include "data/dataset.h"

typedef enum tn_loader_mode {
    TN_LOADER_PACK =
        0, /* documents one after the other, cut every `length` tokens; rows near each other are shuffled */
    TN_LOADER_BUCKET = 1, /* one document (or a part of `length` tokens) a row, similar lengths together, rows padded */
    TN_LOADER_WINDOW = 2  /* random places of the split, for few long documents; training only */
} tn_loader_mode;

/* Where a loader is: the state after the last batch handed out. Plain bytes, to be kept in a checkpoint. */
typedef struct tn_loader_cursor {
    uint64_t step;         /* batches handed out */
    uint64_t epoch, index; /* the next window of batches begins with document number `index` in the order of `epoch`, */
    uint64_t offset;       /* behind so many of its tokens */
    uint64_t batch;        /* batches done of that window */
    uint64_t seed, documents, tokens; /* what the order belongs to: a cursor of other data or seed is refused */
    int64_t rows, length;
    uint64_t mode;
} tn_loader_cursor;

typedef struct tn_loader_options {
    const tn_dataset *dataset; /* borrowed until tn_loader_free */
    tn_data_split split;
    int64_t batch, length; /* B, T; arrays: length is not used */
    tn_loader_mode mode;
    bool evaluate;
    uint64_t seed;
    int workers;        /* threads that fill batches; 0: the caller's, when it asks */
    int depth;          /* batches in memory, the caller's included; 0: workers + 2 */
    int window_batches; /* rows are shuffled (pack) or sorted by length (bucket) over so many batches; 0: 32; 1: not at all */
    float scale;        /* arrays: 0 is 1/255 for u8 and 1 for f32 */
    const tn_loader_cursor *from; /* NULL: from the start */
} tn_loader_options;

typedef struct tn_loader_batch {
    int64_t rows, width;    /* B; T, or in bucket mode the least of tn_loader_widths that the rows fit in */
    const int32_t *tokens;  /* (rows,width) */
    const int32_t *targets; /* (rows,width), -1: none */
    const int32_t *reset;   /* (rows,width), 1: nothing of an earlier token passes */
    int64_t count;          /* targets that are not -1; arrays: valid rows */
    const float *features;  /* arrays: (rows,sample) */
    const int32_t *labels;  /* arrays: (rows), -1 behind the last sample of an evaluation */
    uint64_t step, epoch;
} tn_loader_batch;

/* The widths of bucket mode for rows of at most T tokens: eighths of T, rounded up, and T, ascending. Returns how many. Few,
 * since whoever computes on them has a plan for each; halves, quarters and eighths alone leave twice the padding. */
enum { TN_LOADER_WIDTHS = 8 };
int tn_loader_widths(int64_t T, int64_t widths[TN_LOADER_WIDTHS]);

typedef struct tn_loader_stats {
    uint64_t batches, bytes, targets, positions; /* handed out; positions: rows x width, padding included */
    double wait_s;                               /* the caller stood still */
} tn_loader_stats;

typedef struct tn_loader tn_loader;
struct tn_tracer;

tn_status tn_loader_open(const tn_loader_options *o, tn_loader **out);
/* Memory that an open one takes; SIZE_MAX: more than can be counted. */
size_t tn_loader_bytes(const tn_loader_options *o);
void tn_loader_free(tn_loader *l); /* takes NULL; waits for a batch being filled, no longer */
/* The next batch, or NULL at the end of an evaluation. An error of a worker comes here, in its place in the order. */
tn_status tn_loader_next(tn_loader *l, const tn_loader_batch **out);
/* Back to where it was opened. For loaders without workers. */
void tn_loader_rewind(tn_loader *l);
/* Where a row of the batch handed out last begins: a document of the split, and behind how many of its tokens. */
tn_status tn_loader_row(tn_loader *l, int64_t row, uint64_t *document, uint64_t *offset);
tn_loader_cursor tn_loader_position(const tn_loader *l);
tn_loader_stats tn_loader_measure(const tn_loader *l);
/* Its workers tell this tracer what batches they fill, from the next one on (NULL: nobody); without workers nobody does. */
void tn_loader_trace(tn_loader *l, struct tn_tracer *to);
/* They finish what they fill and begin nothing new until the next batch is asked for. */
void tn_loader_rest(tn_loader *l);

#endif
