/* What the device did and when, from CUPTI's activity records. The library is looked for when a trace is asked for. */
#ifndef TN_BACKEND_CUDA_TRACE_H
#define TN_BACKEND_CUDA_TRACE_H

#include "backend/backend.h"

/* TN_USAGE: no CUPTI, with the remedy. */
tn_status tn_cuda_trace_begin(void);
/* All that was queued since is done. The spans are the caller's (tn_free). */
tn_status tn_cuda_trace_end(tn_span **spans, size_t *n);

#endif
