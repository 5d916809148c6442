/* What this machine can do at most, measured now: the ceilings that other figures are parts of. */
#ifndef TN_REPORT_CEILINGS_H
#define TN_REPORT_CEILINGS_H

#include "base/status.h"

typedef struct tn_ceilings {
    int threads;
    double fma_gflops; /* fp32 multiply-adds in registers, all threads together */
    double bf16_gflops; /* the same of the bf16 matrix instructions; of fp32 where there are none */
    double copy_gbs;   /* bytes read plus bytes written, from memory, all threads together */
} tn_ceilings;

/* Takes about half a second. */
tn_status tn_ceilings_measure(int threads, tn_ceilings *out);
/* Without copy_gbs: a few hundredths of a second, and no memory worth naming. */
tn_status tn_ceilings_arithmetic(int threads, tn_ceilings *out);

#endif
