/* The arithmetic between gru's products, on rows that are in cache (CPU). */
#ifndef TN_OPS_GRU_GATES_H
#define TN_OPS_GRU_GATES_H

#include <stdbool.h>
#include <stdint.h>

/* gates (rows,4H) holds the products: for r and z their sum, n's part from x, n's part from h. The biases b_i and b_h (3H) are
 * added, and it becomes r, z, n, q. y (rows,H) gets h'. h has rows h_row apart. */
void tn_gru_gates(float *gates, const float *b_i, const float *b_h, const float *h, int64_t h_row, float *y,
                  int64_t rows, int64_t H);

/* Backward of these rows: d (rows,4H) gets the gradients of what r, z and n are functions of, and of q. dh, if not NULL, gets
 * the part of h's gradient that comes through no product; it may be dy. sums, if not NULL, gets d added up, TN_GRU_CHUNK rows at
 * a time, counted from the first of these rows: whoever cuts rows into several jobs cuts at multiples of it. */
enum { TN_GRU_CHUNK = 8 };
typedef struct tn_gru_slopes {
    const float *gates, *h, *dy; /* (rows,4H), (rows,H), (rows,H) */
    int64_t h_row;
    void *d; /* (rows,4H), rows d_row apart; bf16 if half is set, else f32 */
    bool half;
    float *dh; /* (rows,H) */
    int64_t d_row, dh_row;
    bool add;    /* to dh */
    float *sums; /* (rows/TN_GRU_CHUNK rounded up,4H) */
    int64_t rows, H;
} tn_gru_slopes;
void tn_gru_gate_slopes(const tn_gru_slopes *s);

/* sum (count): each gets a column of d (rows,count) added, from the first row to the last. */
void tn_gru_sum_rows(const float *d, int64_t d_row, int64_t rows, int64_t count, double *sum);

#endif
