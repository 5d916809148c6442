/* A backend is a table of functions: where memory comes from, how bytes move, what kernels run on. Kernels themselves
 * are chosen per op (op.h); nothing above this layer knows which device it drives. */
#ifndef TN_BACKEND_BACKEND_H
#define TN_BACKEND_BACKEND_H

#include "base/status.h"

#include <tenon/op.h>

struct tn_tracer;

/* A piece of what a device, or the host for it, did: nanoseconds of the host's monotonic clock. */
typedef enum tn_span_kind {
    TN_SPAN_KERNEL,
    TN_SPAN_COPY,       /* or clearing memory */
    TN_SPAN_WAIT,       /* the host stood still for all that was queued */
    TN_SPAN_EVENT_WAIT, /* ... for one piece of it */
    TN_SPAN_CALL,       /* the host called the device's runtime */
} tn_span_kind;

typedef struct tn_span {
    uint64_t begin, end;
    tn_span_kind kind;
    const char *name; /* of a kernel, as the compiler spells it, or of a call; lives as long as the process */
    uint32_t stream;
    uint32_t correlation; /* a call and what it started have the same; 0: none */
    uint64_t bytes;       /* of a copy */
    uint64_t mark;        /* what trace_mark said when it was queued or captured; 0: nothing */
} tn_span;

enum { TN_CHAIN_COUNTERS = 5 };

/* What happens between two runs that follow one another without the host: to (n) = from (n), which is also put behind what earlier updates
 * put there, and counters go on. */
typedef struct tn_chain_update {
    int32_t *to;
    const int32_t *from;
    int32_t *log; /* (1 + updates n): how many updates there were, and what each brought */
    int64_t n;
    struct tn_chain_counter {
        int32_t *at; /* NULL: none */
        int64_t n;
    } counter[TN_CHAIN_COUNTERS];
    int32_t step;
} tn_chain_update;

typedef struct tn_backend {
    const char *name;
    bool host_memory; /* the host reads and writes device memory directly, and work is done when a kernel returns */
    /* A queue of work: a thread pool (CPU) or a stream (CUDA). */
    tn_status (*open)(int threads, void **queue);
    void (*close)(void *queue);
    /* The queue is one of several that threads of this process use at once: it chooses nothing by measuring, which the others would
     * disturb, and memory that is freed is kept for the next who asks. NULL where that makes no difference. */
    tn_status (*share)(void *queue);
    /* Zeroed device memory; NULL with the error text set when there is none. What was queued with it must be done before it is
     * freed: wait for the queue first. */
    void *(*alloc)(size_t bytes);
    void (*free)(void *p);
    /* Between host and device memory, in the order of the queue (NULL: at once). The host may use its memory again when
     * upload returns; download returns when the bytes are there. */
    tn_status (*upload)(void *queue, void *device, const void *host, size_t bytes);
    /* The same without pinned memory between, so that the device's driver stages it (opt.pinned_uploads=off); NULL: there is no other. */
    tn_status (*upload_pageable)(void *queue, void *device, const void *host, size_t bytes);
    tn_status (*download)(void *queue, void *host, const void *device, size_t bytes);
    tn_status (*zero)(void *queue, void *device, size_t bytes);
    tn_status (*copy)(void *queue, void *to, const void *from, size_t bytes); /* within device memory */
    /* Numbers on their way to the host while the queue goes on: a reply is host memory; add queues a copy into it, end says
     * that it is complete, and wait returns when it has come. It may be filled again after that. It is freed before its queue. */
    tn_status (*reply_new)(void *queue, size_t bytes, void **reply);
    void (*reply_free)(void *reply);
    tn_status (*reply_add)(void *queue, void *reply, size_t at, const void *device, size_t bytes);
    tn_status (*reply_end)(void *queue, void *reply);
    tn_status (*reply_wait)(void *reply, const void **host);
    tn_status (*wait)(void *queue); /* until all queued work is done (NULL: of all queues) */
    /* Bytes of device memory that could still be had, and all there are. */
    tn_status (*memory)(size_t *free_bytes, size_t *all_bytes);
    tn_status (*chain_update)(void *queue, const tn_chain_update *t);
    /* Work recorded once and replayed many times; NULL where that brings nothing. What is queued between record and
     * recorded is not run. */
    tn_status (*record)(void *queue);
    tn_status (*recorded)(void *queue, void **recording);
    tn_status (*replay)(void *queue, void *recording);
    void (*drop)(void *recording);
    /* Marks in the queue, numbered from 0, and the time between marks i and i + 1 once all work is done. */
    tn_status (*mark)(void *queue, size_t i);
    tn_status (*between)(void *queue, size_t i, double *ms);
    /* The queue's own threads tell this tracer what they do (NULL: no longer); NULL where it has none. */
    void (*trace_threads)(void *queue, struct tn_tracer *to);
    /* A trace of all queues; NULL where there is none to take. The spans are the caller's (tn_free). */
    tn_status (*trace_begin)(void);
    tn_status (*trace_end)(tn_span **spans, size_t *n);
    /* What is captured from now on has this mark in the trace whenever it is replayed (0: none). NULL where there are no traces; does
     * nothing while none is taken. */
    void (*trace_mark)(uint64_t mark);
} tn_backend;

extern const tn_backend tn_backend_cpu;

/* NULL with the error text set when the device, or the library for it (cuda_library.h), is not there. */
const tn_backend *tn_backend_get(tn_device d);

#endif
