/* The part of the ceilings that is bandwidth. */
#ifndef TN_REPORT_CEILINGS_MEMORY_H
#define TN_REPORT_CEILINGS_MEMORY_H

#include "backend/cpu/pool.h"
#include "report/bench/ceilings.h"

/* Fills copy_gbs, memory_gbs, shared_gbs, cache_gbs. */
tn_status tn_ceilings_of_memory(tn_pool *pool, int threads, double seconds, tn_ceilings *out);

#endif
