/* Segments: the parts of a flat array that an optimizer treats alike. A kernel sweeps the array in tiles of fixed size
 * and meets the segments (or parts of them) that lie in each tile; what lies between segments is never touched. */
#ifndef TN_OPS_SEGMENTS_H
#define TN_OPS_SEGMENTS_H

#include "backend/cpu/pool.h"

#include <tenon/op.h>

typedef struct tn_segment {
    int64_t offset, count; /* elements */
    float lr;              /* factor on the learning rate */
    bool decay;            /* weight decay applies */
} tn_segment;

typedef struct tn_segments {
    const tn_segment *at; /* (n) in ascending order, disjoint */
    int64_t n;
} tn_segments;

/* fn(job, segment, first element, how many), for every part of every segment, tiles in parallel. */
typedef void tn_segment_fn(const void *job, const tn_segment *s, int64_t first, int64_t n);
void tn_segments_run(tn_segments s, tn_pool *pool, tn_segment_fn *fn, const void *job);

/* What the shape checks of optimizers share: inputs [0, flats) are f32 arrays of one length and are also the outputs;
 * [flats, scalars) are single floats, and the last input (ok) is a single i32. */
tn_status tn_segments_infer(tn_sig *sig, tn_segments s, int flats);
/* Fails when the outputs are not the memory of the inputs: such ops work in place only. */
tn_status tn_segments_in_place(const tn_call *c);

#endif
