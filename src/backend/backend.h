/* A backend is a table of functions: where memory comes from, how bytes move, what kernels run on. Kernels themselves
 * are chosen per op (op.h); nothing above this layer knows which device it drives. */
#ifndef TN_BACKEND_BACKEND_H
#define TN_BACKEND_BACKEND_H

#include "base/status.h"

#include <tenon/op.h>

typedef struct tn_backend {
    const char *name;
    /* A queue of work: a thread pool (CPU) or a stream (CUDA). */
    tn_status (*open)(int threads, void **queue);
    void (*close)(void *queue);
    /* Zeroed device memory; NULL with the error text set when there is none. */
    void *(*alloc)(size_t bytes);
    void (*free)(void *p);
    /* Between host and device memory, in the order of the queue (NULL: at once). */
    tn_status (*upload)(void *queue, void *device, const void *host, size_t bytes);
    tn_status (*download)(void *queue, void *host, const void *device, size_t bytes);
    tn_status (*zero)(void *queue, void *device, size_t bytes);
    tn_status (*wait)(void *queue); /* until all queued work is done; the only point where the host stops */
} tn_backend;

extern const tn_backend tn_backend_cpu;

/* NULL with the error text set when the device is not built in or not there. */
const tn_backend *tn_backend_get(tn_device d);

#endif
