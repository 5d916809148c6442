/* The CPU backend: host memory, and a thread pool as the queue. Work is done when a kernel returns. */
#include "backend/backend.h"
#include "backend/cpu/pool.h"
#include "base/alloc.h"

#include <string.h>

static tn_status cpu_open(int threads, void **queue)
{
    tn_pool *pool;
    TN_RETURN_IF(tn_pool_new(threads, &pool));
    *queue = pool;
    return TN_OK;
}

static void cpu_close(void *queue) { tn_pool_free(queue); }

static tn_status cpu_copy_in(void *queue, void *device, const void *host, size_t bytes)
{
    (void)queue;
    memcpy(device, host, bytes);
    return TN_OK;
}

static tn_status cpu_copy_out(void *queue, void *host, const void *device, size_t bytes)
{
    (void)queue;
    memcpy(host, device, bytes);
    return TN_OK;
}

static tn_status cpu_zero(void *queue, void *device, size_t bytes)
{
    (void)queue;
    memset(device, 0, bytes);
    return TN_OK;
}

static tn_status cpu_wait(void *queue)
{
    (void)queue;
    return TN_OK;
}

const tn_backend tn_backend_cpu = {
    .name = "cpu", .host_memory = true, .open = cpu_open, .close = cpu_close, .alloc = tn_alloc, .free = tn_free,
    .upload = cpu_copy_in, .download = cpu_copy_out, .zero = cpu_zero, .copy = cpu_copy_in, .wait = cpu_wait,
};
