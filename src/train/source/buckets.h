/* A few shapes for records that have several lengths each, chosen from the lengths that there are: each shape is a size for every length,
 * and a record is computed at the cheapest one that holds it. Groups of records are halved where that saves the most, by whichever length,
 * so that shapes are dense where records are many and different. */
#ifndef TN_TRAIN_SOURCE_BUCKETS_H
#define TN_TRAIN_SOURCE_BUCKETS_H

#include "base/status.h"

#include <stdint.h>

enum { TN_BUCKET_SIZES = 16, TN_BUCKETS_MOST = 63 };

typedef struct tn_bucket_rows {
    int64_t n;
    int sizes;           /* TN_BUCKET_SIZES at most */
    const int32_t *size; /* (n,sizes) */
    const int32_t *all;  /* (sizes): the shape that holds everything, which is always there */
    double (*cost)(const void *ctx, const int32_t *size); /* of a row of such a shape; grows with each size */
    const void *ctx;
} tn_bucket_rows;

/* At most `most` shapes beside `all`, no more than it takes for all rows to cost `enough`: into shape (most,sizes), the cheapest first;
 * *n: how many. */
tn_status tn_buckets_choose(const tn_bucket_rows *r, double enough, int most, int32_t *shape, int *n);

#endif
