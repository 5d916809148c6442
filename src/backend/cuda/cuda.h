/* The CUDA backend for kernels and for each other: the queue behind tn_call.stream, and errors. Header for C and CUDA.
 *
 * A kernel function runs on the host, launches on the queue's stream and returns; it neither waits nor allocates, and it
 * does the same launches every time, so that a step can be recorded and replayed. Sums have a fixed order: no float
 * atomics. Counts that live in device memory (tn_arg.live) are read by the device only. */
#ifndef TN_BACKEND_CUDA_CUDA_H
#define TN_BACKEND_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/backend.h"
#include "backend/cuda_library.h"
#include "base/status.h"

#include <tenon/op.h>

typedef struct tn_cuda_gemms tn_cuda_gemms;
typedef struct tn_cuda_dnn tn_cuda_dnn;

/* A step uploads twice, and a few of them may be queued before the host waits for the first. */
enum { TN_CUDA_STAGES = 12, TN_CUDA_BARRIER_FLOATS = 264192, TN_CUDA_MESSAGE_WORDS = 1 << 19 };

typedef struct tn_cuda_queue {
    cudaStream_t stream;
    int multiprocessors, major; /* major: of the compute capability */
    int shared_bytes;           /* shared memory that a block may ask for */
    /* device memory of the grid barrier of one kernel: 64 counters, then TN_CUDA_BARRIER_FLOATS (plan/decode) */
    void *barrier;
    /* (TN_CUDA_MESSAGE_WORDS) of 64 bits, what blocks of one kernel send each other, 0 at first (plan/decode) */
    void *message;
    struct tn_cuda_stage { /* pinned memory on the way to the device; they take turns */
        void *memory;
        size_t bytes;
        cudaEvent_t done;
    } stage[TN_CUDA_STAGES];
    int next_stage;
    cudaStream_t inner; /* records what a recording repeats (repeat.c) */
    bool repeating;
    bool shared;                 /* one of several at once: nothing is measured */
    struct tn_cuda_reply *spare; /* replies that nobody uses: pinned memory is slow to make and to give back */
    cudaEvent_t *mark;
    size_t n_marks;
    tn_cuda_gemms *gemms; /* gemm.h */
    tn_cuda_dnn *dnn;     /* cudnn_attention.h; NULL until it is asked for */
} tn_cuda_queue;

/* A part of a recording that the device repeats: what is queued between begin and end is recorded once and run as long as
 * the number behind `handle` is not 0; kernels set it (cudaGraphSetConditional), it is 1 when a replay begins.
 * *repeats: false where the queue is not recording, is repeating already, or CUDA is older than 12.4; then nothing has begun. */
tn_status tn_cuda_repeat_make(tn_cuda_queue *q, unsigned long long *handle, bool *repeats);
tn_status tn_cuda_repeat_begin(tn_cuda_queue *q, unsigned long long handle);
tn_status tn_cuda_repeat_end(tn_cuda_queue *q);

extern const tn_backend tn_backend_cuda;
tn_status tn_cuda_available(void); /* tn_cuda_library.available */
bool tn_cuda_pci(char *id, int bytes);
tn_status tn_cuda_failed(cudaError_t e, const char *what, const char *file, int line);

#define TN_CUDA_TRY(call)                                                                                              \
    do {                                                                                                               \
        const cudaError_t e_ = (call);                                                                                 \
        if (e_ != cudaSuccess) return tn_cuda_failed(e_, #call, __FILE__, __LINE__);                                   \
    } while (0)

tn_status tn_cuda_chain_update(void *queue, const tn_chain_update *t);

/* trace.c: what the device did and when, from CUPTI's activity records. The library is looked for when a trace is asked for. */
/* TN_USAGE: no CUPTI, with the remedy. */
tn_status tn_cuda_trace_begin(void);
/* All that was queued since is done. The spans are the caller's (tn_free). */
tn_status tn_cuda_trace_end(tn_span **spans, size_t *n);
void tn_cuda_trace_mark(uint64_t mark);
/* What this stream captures has marks, until it is NULL. */
void tn_cuda_trace_capture(cudaStream_t stream);

/* Lets launches of `kernel` ask for `bytes` of dynamic shared memory. The limit is kept with the function, not with a launch: one
 * lane that set a smaller one would make another's launch fail. So it is always set to the most that the device can give, which is
 * the same whoever asks. Nothing else calls cudaFuncSetAttribute for it (scripts/check-layers). */
tn_status tn_cuda_allow_shared(const void *kernel, int bytes);

/* After a launch. */
#define TN_CUDA_LAUNCHED() TN_CUDA_TRY(cudaGetLastError())

static inline tn_cuda_queue *tn_cuda_queue_of(const tn_call *c) { return (tn_cuda_queue *)c->stream; }

static inline cudaStream_t tn_cuda_stream(const tn_call *c) { return tn_cuda_queue_of(c)->stream; }

#ifdef __cplusplus
}
#endif
#endif
