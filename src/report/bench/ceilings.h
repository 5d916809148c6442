/* What this machine can do at most, measured now: the ceilings that other figures are parts of. */
#ifndef TN_REPORT_CEILINGS_H
#define TN_REPORT_CEILINGS_H

#include "base/status.h"

#include <stdbool.h>

typedef struct tn_ceilings {
    int threads;
    bool gpu;
    double fma_gflops;  /* fp32 multiply-adds in registers, all threads together; on a GPU a large fp32 product */
    double bf16_gflops; /* of bf16 matrix instructions, or fp32 where there are none; on a GPU of a large product */
    double tf32_gflops; /* on a GPU: a large product of fp32 operands rounded to tf32 */
    double copy_gbs;    /* bytes read plus bytes written, from memory, all threads together */
    double cache_gbs;   /* the same of TN_CEILING_CACHE bytes a thread, again and again; 0 on a GPU: not measured */
} tn_ceilings;

enum { TN_CEILING_CACHE = 512 << 10 };

/* Takes about a second. */
tn_status tn_ceilings_measure(int threads, tn_ceilings *out);
/* Without copy_gbs and cache_gbs: a few hundredths of a second, and no memory worth naming. */
tn_status tn_ceilings_arithmetic(int threads, tn_ceilings *out);
/* The same of the GPU, in about a second; TN_USAGE where there is none. */
tn_status tn_ceilings_gpu(tn_ceilings *out);

/* The ceiling of matrix products with these operands (the setting compute). */
double tn_ceilings_of_compute(const tn_ceilings *c, const char *compute);

#endif
