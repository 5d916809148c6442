/* Anderson acceleration of many fixed-point iterations x = f(x), each sample by itself.
 *
 * Of the last m evaluations it keeps f_i and r_i = f_i - x_i, and takes x = sum a_i f_i with sum a_i = 1 and |sum a_i r_i|
 * least: (R^T R + e tr(R^T R)/n I) a = 1, scaled, with e = 1e-8 and n pairs kept so far. The first step is a damped one. A
 * restart drops all pairs: after a residual above twice the one before, a system that cannot be solved, or a number that is
 * not finite (then x also goes back to the damped step from the pair before, if there is one).
 *
 * A sample's numbers depend on that sample alone; samples may be stepped by different threads. */
#ifndef TN_OPS_ANDERSON_H
#define TN_OPS_ANDERSON_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TN_ANDERSON_DEFAULT = 5, TN_ANDERSON_LEAST = 2, TN_ANDERSON_MOST = 16 };
#define TN_ANDERSON_REGULAR 1e-8 /* e */
#define TN_ANDERSON_GROWTH 2.0   /* of a residual that restarts */

typedef struct tn_anderson {
    int memory; /* m, TN_ANDERSON_LEAST to TN_ANDERSON_MOST */
    int64_t samples, width;
    float *r, *f;           /* (samples,m,width), a ring */
    double *gram;           /* (samples,m,m): r_i . r_k */
    double *before;         /* (samples): |r| of the last evaluation */
    int32_t *kept, *newest; /* (samples): pairs in use, place of the last one */
} tn_anderson;

/* The rules of the method, for every layout of samples: one by one (anderson.c), as columns of a tile (relax_anderson.c), a block
 * of threads each (anderson.cuh). */
#ifdef __CUDACC__
#define TN_ANDERSON_RULE static __host__ __device__ inline
#else
#define TN_ANDERSON_RULE static inline
#endif

/* How many pairs a sample has with that of an evaluation whose residual is r, after `kept` of them and a residual `before`. */
TN_ANDERSON_RULE int tn_anderson_pairs(int memory, int kept, double r, double before)
{
    if (!isfinite(r)) return 0;
    if (kept && r > TN_ANDERSON_GROWTH * before) kept = 0;
    return kept < memory ? kept + 1 : memory;
}

/* (G + e tr/n I) weight = 1 by Cholesky, then scaled to sum 1; false if that cannot be done. gram has rows of m, factor (n,apart). */
TN_ANDERSON_RULE bool tn_anderson_weigh(const double *gram, int m, int n, double *factor, int apart, double *weight)
{
    double trace = 0, sum = 0;
    for (int i = 0; i < n; i++) trace += gram[i * m + i];
    for (int i = 0; i < n; i++)
        for (int k = 0; k <= i; k++) {
            double s = gram[i * m + k] + (i == k ? TN_ANDERSON_REGULAR * trace / n : 0);
            for (int j = 0; j < k; j++) s -= factor[i * apart + j] * factor[k * apart + j];
            if (k < i) factor[i * apart + k] = s / factor[k * apart + k];
            else if (s > 0 && isfinite(s)) factor[i * apart + i] = sqrt(s);
            else return false;
        }
    for (int i = 0; i < n; i++) {
        double s = 1;
        for (int j = 0; j < i; j++) s -= factor[i * apart + j] * weight[j];
        weight[i] = s / factor[i * apart + i];
    }
    for (int i = n - 1; i >= 0; i--) {
        double s = weight[i];
        for (int j = i + 1; j < n; j++) s -= factor[j * apart + i] * weight[j];
        weight[i] = s / factor[i * apart + i];
        sum += weight[i];
    }
    for (int i = 0; i < n; i++) weight[i] /= sum;
    return sum > 0 && isfinite(sum);
}

size_t tn_anderson_bytes(int memory, int64_t samples, int64_t width);
tn_anderson tn_anderson_at(void *memory_64, int memory, int64_t samples, int64_t width); /* aligned to 64 bytes */
void tn_anderson_restart(const tn_anderson *a, int64_t sample);
/* x (width) becomes the next point, given f = f(x); returns |x_next - x|^2. */
double tn_anderson_step(const tn_anderson *a, int64_t sample, float damping, float *x, const float *f);

/* The damped step, x <- (1-damping) x + damping f; returns |x_next - x|^2. */
double tn_damped_step(int64_t width, float damping, float *x, const float *f);
/* |f - x|^2 and |f|^2. */
void tn_residual_norms(int64_t width, const float *x, const float *f, double *distance, double *size);

#endif
