/* The arithmetic between gru's products, on rows that are in cache (CPU). */
#ifndef TN_OPS_GRU_GATES_H
#define TN_OPS_GRU_GATES_H

#include <stdbool.h>
#include <stdint.h>

/* gates (rows,4H) holds what sigmoid takes for r and z, n's part from x, and q; it becomes r, z, n, q. y (rows,H) gets h'.
 * h has rows h_row apart. */
void tn_gru_gates(float *gates, const float *h, int64_t h_row, float *y, int64_t rows, int64_t H);

/* Backward of these rows: d (rows,4H) gets the gradients of what r, z and n are functions of, and of q. dh, if not NULL, gets
 * the part of h's gradient that comes through no product. */
typedef struct tn_gru_slopes {
    const float *gates, *h, *dy; /* (rows,4H), (rows,H), (rows,H) */
    int64_t h_row;
    float *d, *dh; /* (rows,4H), (rows,H) */
    int64_t dh_row;
    bool add; /* to dh */
    int64_t rows, H;
} tn_gru_slopes;
void tn_gru_gate_slopes(const tn_gru_slopes *s);

#endif
