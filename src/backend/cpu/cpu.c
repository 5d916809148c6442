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

static void cpu_trace(void *queue, struct tn_tracer *to) { tn_pool_trace(queue, to); }

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

static tn_status cpu_chain_update(void *queue, const tn_chain_update *t)
{
    int32_t *log = t->log + 1 + t->log[0] * t->n;
    (void)queue;
    for (int64_t i = 0; i < t->n; i++) t->to[i] = log[i] = t->from[i];
    for (int k = 0; k < TN_CHAIN_COUNTERS; k++)
        for (int64_t i = 0; t->counter[k].at && i < t->counter[k].n; i++) t->counter[k].at[i] += t->step;
    t->log[0]++;
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

/* A reply is its memory: copies are there at once. */
static tn_status cpu_reply_new(void *queue, size_t bytes, void **reply)
{
    (void)queue;
    *reply = tn_alloc(bytes);
    return *reply ? TN_OK : TN_MEMORY;
}

static tn_status cpu_reply_add(void *queue, void *reply, size_t at, const void *device, size_t bytes)
{
    (void)queue;
    memcpy((char *)reply + at, device, bytes);
    return TN_OK;
}

static tn_status cpu_reply_end(void *queue, void *reply)
{
    (void)queue, (void)reply;
    return TN_OK;
}

static tn_status cpu_reply_wait(void *reply, const void **host)
{
    *host = reply;
    return TN_OK;
}

const tn_backend tn_backend_cpu = {
    .name = "cpu",
    .host_memory = true,
    .open = cpu_open,
    .close = cpu_close,
    .trace_threads = cpu_trace,
    .alloc = tn_alloc,
    .free = tn_free,
    .upload = cpu_copy_in,
    .download = cpu_copy_out,
    .zero = cpu_zero,
    .copy = cpu_copy_in,
    .chain_update = cpu_chain_update,
    .wait = cpu_wait,
    .reply_new = cpu_reply_new,
    .reply_free = tn_free,
    .reply_add = cpu_reply_add,
    .reply_end = cpu_reply_end,
    .reply_wait = cpu_reply_wait,
};
