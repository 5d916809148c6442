/* Batches of texts by length (loader.mode=bucket): the shapes that training batches of wire may have beside the whole one, which holds
 * everything; which of them a batch has; and how much of batches is padding. A text has several rows (for the encoder, and of each reader),
 * each with a length of its own: a shape has a size for each, and what counts is all that a training step reads of them. */
#ifndef TN_TRAIN_SOURCE_WIRE_SHAPES_H
#define TN_TRAIN_SOURCE_WIRE_SHAPES_H

#include "tasks/wire/wire_sizes.h"
#include "train/source/records.h"

typedef struct tn_wire_shapes {
    const tn_wire_store *store;
    uint64_t seed;
    bool asks;            /* for batches by length; n may be 0 then */
    tn_wire_places reads; /* 1 where a training step reads such rows, 0 where it does not */
    int32_t all[TN_WIRE_SIZES];
    int n;                                        /* shapes */
    int32_t most[TN_SHAPES_MOST * TN_WIRE_SIZES]; /* (n,sizes): what they hold, the cheapest first */
    tn_wire_sizes size[TN_SHAPES_MOST + 1];       /* of the whole one, then of the others */
    tn_input_shape input[TN_SHAPES_MOST];
    char names[TN_WIRE_READERS][3][16]; /* of their numbers */
} tn_wire_shapes;

/* sender: the reader whose kept states are an input, or -1. It stays where it is. */
tn_status tn_wire_shapes_open(const tn_source_open *o, const tn_wire_store *store, int64_t questions, int sender,
                              tn_wire_shapes *out);

/* As tn_record_shapes.fit. */
int tn_wire_shapes_fit(const tn_wire_shapes *s, const int32_t *rows, int64_t n, int64_t epoch, int after);

/* The part of all that training steps read of these batches that is padding. NaN: there are none. */
double tn_wire_shapes_padding(const tn_wire_shapes *s, const tn_record_batches *b);
/* "batches by length, in 8 shapes; 6 % of their places are padding (bytes 5 %, a 9 %)" */
void tn_wire_shapes_about(const tn_wire_shapes *s, const tn_record_batches *b, FILE *f);

#endif
