/* The order of an epoch's records, a function of seed and epoch alone. With shapes, records of a shape stand together in whole batches, and
 * batches are shuffled; the one that is not full stays the last. */
#ifndef TN_TRAIN_SOURCES_RECORDS_ORDER_H
#define TN_TRAIN_SOURCES_RECORDS_ORDER_H

#include "train/source/records.h"

typedef struct tn_record_order {
    int32_t *row;         /* (training records) */
    int32_t *spare;       /* (the same), where there are shapes */
    unsigned char *group; /* (the same) */
} tn_record_order;

tn_status tn_record_order_new(const tn_record_set *set, tn_record_order *out);
void tn_record_order_free(tn_record_order *o); /* takes a zeroed one */
/* In place, without memory of its own. batch: rows of one. */
void tn_record_order_shuffle(tn_record_order *o, const tn_record_set *set, int64_t batch, int64_t epoch);

#endif
