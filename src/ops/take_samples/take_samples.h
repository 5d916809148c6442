/* take_samples: samples of a set by number, as a step reads them.      y = tn_take_samples(g, set, number, valid, scale, pad)
 *
 *     set (N, ...) u8, f32 or i32      number (B) i32      valid (1) i32      y (B, ...) f32, of i32 i32
 *
 *     y[b] = set[number[b]]   for b < valid; of u8: the number times scale
 *     y[b] = pad              for the other rows, and where the number is not in [0, N)
 *
 * All rows of y are written. Floats and integers are moved bit by bit, NaN too. No gradient passes. Which numbers a row has is
 * decided where the op runs: the host reads nothing back. */
#ifndef TN_OPS_TAKE_SAMPLES_H
#define TN_OPS_TAKE_SAMPLES_H

#include <tenon/op.h>

typedef struct tn_take_samples_attr {
    float scale, pad;
} tn_take_samples_attr;

extern const tn_op tn_op_take_samples;

#define tn_take_samples(g, set, number, valid, scale, pad)                                                             \
    tn_take_samples_((g), __FILE__, __LINE__, (set), (number), (valid), (scale), (pad))
tn_ref tn_take_samples_(tn_graph *g, const char *file, int line, tn_ref set, tn_ref number, tn_ref valid, float scale,
                        float pad);

#endif
