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
    double copy_gbs;    /* bytes read plus bytes written by a copy, from memory, all threads together */
    double upload_gbs;  /* on a GPU: from the host's memory to the device's, as batches go */
    double upload_pageable_gbs; /* the same with opt.pinned_uploads=off */
    double memory_gbs;          /* from memory by the fastest of a copy, a sum and numbers that are changed in place */
    double shared_gbs; /* the same of TN_CEILING_SHARED bytes, again and again: the last cache; 0: not measured */
    double cache_gbs;  /* the same of TN_CEILING_CACHE bytes a thread: its own cache; 0: not measured */
    double launch_ms;  /* of a call that computes nothing: threads begin and are waited for; 0: not measured */
} tn_ceilings;

enum { TN_CEILING_CACHE = 512 << 10, TN_CEILING_SHARED = 16 << 20 };

/* Takes about `seconds`, a third of a second at least and a second at most: the shorter, the more other work on the cores counts. */
tn_status tn_ceilings_measure(int threads, double seconds, tn_ceilings *out);
/* Arithmetic alone: a few hundredths of a second, and no memory worth naming. */
tn_status tn_ceilings_arithmetic(int threads, tn_ceilings *out);
/* The same of the GPU, in about a second; TN_USAGE where there is none. */
tn_status tn_ceilings_gpu(tn_ceilings *out);

/* GB/s at which a call can move its arguments of so many bytes: what fits into a cache may be there already, and threads' own caches add
 * up. *cached (or NULL): it is a cache's. */
double tn_ceilings_bandwidth(const tn_ceilings *c, double bytes, bool *cached);
/* The ceiling of matrix products with these operands (the setting compute). */
double tn_ceilings_of_compute(const tn_ceilings *c, const char *compute);

#endif
