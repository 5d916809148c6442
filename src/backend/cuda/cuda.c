/* The CUDA backend: plain device memory, one stream per queue, recordings as CUDA graphs. Host memory on its way to the
 * device is copied into pinned memory first, so that the caller has it back at once and the copy waits for nothing.
 *
 * Threads use it at once, each with queues of its own. Nothing here waits for the whole device: that is an error while another thread
 * records, and would make lanes wait for each other. What is done at once, outside of all queues, is done in the thread's own default
 * stream (cudaStreamPerThread), which is then waited for. */
#include "backend/cuda/cuda.h"

#include "backend/backend.h"
#include "backend/cuda/cudnn_attention.h"
#include "backend/cuda/gemm.h"
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t SHARED_KEEPS = (uint64_t)4 << 30; /* bytes of freed memory that stay with the process */

tn_status tn_cuda_failed(cudaError_t e, const char *what, const char *file, int line)
{
    (void)cudaGetLastError(); /* so that it is not found again by the next call */
    if (e == cudaErrorMemoryAllocation)
        return tn_error_at(file, line, TN_MEMORY,
                           "the GPU has no memory left (%s): use a smaller train.batch or train.context, or "
                           "plan.recompute=layer or chunk",
                           what);
    return tn_error_at(file, line, TN_INTERNAL, "CUDA: %s: %s", what, cudaGetErrorString(e));
}

tn_status tn_cuda_available(void)
{
    int n = 0;
    const cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaSuccess && n > 0) return TN_OK;
    (void)cudaGetLastError();
    if (e == cudaErrorInsufficientDriver)
        return tn_error(
            TN_USAGE,
            "device=cuda: no NVIDIA driver, or one older than CUDA %d.%d: install a newer driver, or use device=cpu",
            CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
    if (e == cudaErrorNoDevice || n == 0)
        return tn_error(
            TN_USAGE,
            "device=cuda: the driver shows no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, or use device=cpu");
    return tn_error(TN_USAGE, "device=cuda: %s; use device=cpu", cudaGetErrorString(e));
}

bool tn_cuda_pci(char *id, int bytes)
{
    int device;
    const bool known = cudaGetDevice(&device) == cudaSuccess && cudaDeviceGetPCIBusId(id, bytes, device) == cudaSuccess;
    if (!known) (void)cudaGetLastError();
    return known;
}

/* Numbers on their way to the host. */
typedef struct tn_cuda_reply {
    tn_cuda_queue *queue;
    void *memory; /* pinned */
    size_t bytes;
    cudaEvent_t come;
    struct tn_cuda_reply *next; /* among the spare ones */
} tn_cuda_reply;

/* --- queues ---------------------------------------------------------------------------------------------------------------- */

static void free_reply(tn_cuda_reply *r);

static void cuda_close(void *queue)
{
    tn_cuda_queue *q = queue;
    if (!q) return;
    if (q->stream) cudaStreamSynchronize(q->stream);
    for (tn_cuda_reply *r = q->spare, *next; r; r = next) {
        next = r->next;
        free_reply(r);
    }
    tn_cuda_gemms_free(q->gemms);
    tn_cuda_dnn_free(q->dnn);
    for (int i = 0; i < TN_CUDA_STAGES; i++) {
        if (q->stage[i].memory) cudaFreeHost(q->stage[i].memory);
        if (q->stage[i].done) cudaEventDestroy(q->stage[i].done);
    }
    for (size_t i = 0; i < q->n_marks; i++) cudaEventDestroy(q->mark[i]);
    tn_free(q->mark);
    if (q->barrier) cudaFree(q->barrier);
    if (q->message) cudaFree(q->message);
    if (q->inner) cudaStreamDestroy(q->inner);
    if (q->stream) cudaStreamDestroy(q->stream);
    tn_free(q);
}

enum { BARRIER_BYTES = 4 * (64 + TN_CUDA_BARRIER_FLOATS), MESSAGE_BYTES = 8 * TN_CUDA_MESSAGE_WORDS };

static void *cuda_alloc(size_t bytes);

static tn_status open_parts(tn_cuda_queue *q)
{
    int device;
    TN_CUDA_TRY(cudaGetDevice(&device));
    TN_CUDA_TRY(cudaDeviceGetAttribute(&q->multiprocessors, cudaDevAttrMultiProcessorCount, device));
    TN_CUDA_TRY(cudaDeviceGetAttribute(&q->major, cudaDevAttrComputeCapabilityMajor, device));
    TN_CUDA_TRY(cudaDeviceGetAttribute(&q->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    TN_CUDA_TRY(cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking));
    TN_CUDA_TRY(cudaStreamCreateWithFlags(&q->inner, cudaStreamNonBlocking));
    q->barrier = cuda_alloc(BARRIER_BYTES); /* zeros */
    q->message = cuda_alloc(MESSAGE_BYTES);
    if (!q->barrier || !q->message) return TN_MEMORY;
    for (int i = 0; i < TN_CUDA_STAGES; i++)
        TN_CUDA_TRY(cudaEventCreateWithFlags(&q->stage[i].done, cudaEventDisableTiming));
    return tn_cuda_gemms_new(&q->gemms);
}

static tn_status cuda_open(int threads, void **queue)
{
    (void)threads;
    TN_RETURN_IF(tn_cuda_available());
    tn_cuda_queue *q = tn_alloc(sizeof *q);
    if (!q) return TN_MEMORY;
    const tn_status s = open_parts(q);
    if (s != TN_OK) {
        cuda_close(q);
        return s;
    }
    *queue = q;
    return TN_OK;
}

tn_status tn_cuda_allow_shared(const void *kernel, int bytes)
{
    int device, most;
    struct cudaFuncAttributes have;
    TN_CUDA_TRY(cudaGetDevice(&device));
    TN_CUDA_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    TN_CUDA_TRY(cudaFuncGetAttributes(&have, kernel));
    most -= (int)have.sharedSizeBytes;
    if (bytes > most)
        return tn_error(TN_INTERNAL, "a kernel asks for %d bytes of shared memory, the device gives a block %d", bytes,
                        most);
    TN_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    return TN_OK;
}

/* --- memory ---------------------------------------------------------------------------------------------------------------- */

/* cudaFree waits for everything that the device does, so lanes take memory from the driver's pool instead, which keeps what it gets
 * back. That a queue is shared is written in the pool itself: it keeps something only then. */
static bool is_shared(cudaMemPool_t *pool)
{
    int device;
    uint64_t kept = 0;
    if (cudaGetDevice(&device) == cudaSuccess && cudaDeviceGetDefaultMemPool(pool, device) == cudaSuccess &&
        cudaMemPoolGetAttribute(*pool, cudaMemPoolAttrReleaseThreshold, &kept) == cudaSuccess)
        return kept == SHARED_KEEPS;
    (void)cudaGetLastError(); /* a device without pools */
    return false;
}

static tn_status cuda_share(void *queue)
{
    int device, pools = 0;
    cudaMemPool_t pool;
    uint64_t keeps = SHARED_KEEPS;
    tn_cuda_queue *q = queue;
    q->shared = true;
    tn_cuda_gemms_share(q->gemms);
    TN_CUDA_TRY(cudaGetDevice(&device));
    TN_CUDA_TRY(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device));
    if (!pools) return TN_OK;
    TN_CUDA_TRY(cudaDeviceGetDefaultMemPool(&pool, device));
    TN_CUDA_TRY(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keeps));
    return TN_OK;
}

/* For tests: TENON_CUDA_ALLOC_LIMIT names a size above which no memory is given. */
static cudaError_t ask(size_t bytes, void **out)
{
    const char *most = getenv("TENON_CUDA_ALLOC_LIMIT");
    cudaMemPool_t pool;
    if (most && most[0] && (double)bytes > strtod(most, NULL)) return cudaErrorMemoryAllocation;
    if (is_shared(&pool)) return cudaMallocAsync(out, bytes ? bytes : 64, cudaStreamPerThread);
    return cudaMalloc(out, bytes ? bytes : 64);
}

/* What the driver keeps for later: memory of graphs and of its own pool. */
static void free_caches(void)
{
    int device;
    cudaMemPool_t pool;
    (void)cudaGetLastError();
    if (cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess || cudaGetDevice(&device) != cudaSuccess) return;
    (void)cudaDeviceGraphMemTrim(device);
    if (cudaDeviceGetDefaultMemPool(&pool, device) == cudaSuccess) (void)cudaMemPoolTrimTo(pool, 0);
}

static tn_status new_memory(size_t bytes, void **out)
{
    cudaError_t e = ask(bytes, out);
    if (e == cudaErrorMemoryAllocation) {
        free_caches();
        e = ask(bytes, out);
    }
    if (e != cudaSuccess) return tn_cuda_failed(e, "memory", __FILE__, __LINE__);
    TN_CUDA_TRY(cudaMemsetAsync(*out, 0, bytes ? bytes : 64, cudaStreamPerThread));
    TN_CUDA_TRY(cudaStreamSynchronize(cudaStreamPerThread)); /* other streams do not wait for this one */
    return TN_OK;
}

static void *cuda_alloc(size_t bytes)
{
    void *p = NULL;
    if (new_memory(bytes, &p) == TN_OK) return p;
    if (p) cudaFree(p);
    return NULL;
}

/* Takes memory of the pool too, without waiting for anything: whoever frees has waited. */
static void cuda_free(void *p)
{
    if (p) cudaFree(p);
}

static tn_status grow_stage(struct tn_cuda_stage *s, size_t bytes)
{
    if (bytes <= s->bytes) return TN_OK;
    if (s->memory) TN_CUDA_TRY(cudaFreeHost(s->memory));
    s->memory = NULL;
    s->bytes = 0;
    TN_CUDA_TRY(cudaMallocHost(&s->memory, bytes));
    s->bytes = bytes;
    return TN_OK;
}

static tn_status cuda_upload(void *queue, void *device, const void *host, size_t bytes)
{
    tn_cuda_queue *q = queue;
    if (!bytes) return TN_OK;
    if (!q) {
        TN_CUDA_TRY(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cudaStreamPerThread));
        TN_CUDA_TRY(cudaStreamSynchronize(cudaStreamPerThread));
        return TN_OK;
    }
    struct tn_cuda_stage *s = &q->stage[q->next_stage];
    q->next_stage = (q->next_stage + 1) % TN_CUDA_STAGES;
    TN_CUDA_TRY(cudaEventSynchronize(s->done)); /* its last copy, as many uploads ago as there are */
    TN_RETURN_IF(grow_stage(s, bytes));
    memcpy(s->memory, host, bytes);
    TN_CUDA_TRY(cudaMemcpyAsync(device, s->memory, bytes, cudaMemcpyHostToDevice, q->stream));
    TN_CUDA_TRY(cudaEventRecord(s->done, q->stream));
    return TN_OK;
}

static tn_status cuda_upload_pageable(void *queue, void *device, const void *host, size_t bytes)
{
    if (bytes)
        TN_CUDA_TRY(
            cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, ((const tn_cuda_queue *)queue)->stream));
    return TN_OK;
}

static tn_status cuda_download(void *queue, void *host, const void *device, size_t bytes)
{
    const tn_cuda_queue *q = queue;
    cudaStream_t stream = q ? q->stream : cudaStreamPerThread;
    if (bytes) TN_CUDA_TRY(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
    TN_CUDA_TRY(cudaStreamSynchronize(stream));
    return TN_OK;
}

static tn_status cuda_zero(void *queue, void *device, size_t bytes)
{
    const tn_cuda_queue *q = queue;
    if (!bytes) return TN_OK;
    TN_CUDA_TRY(cudaMemsetAsync(device, 0, bytes, q ? q->stream : cudaStreamPerThread));
    if (!q) TN_CUDA_TRY(cudaStreamSynchronize(cudaStreamPerThread));
    return TN_OK;
}

static tn_status cuda_copy(void *queue, void *to, const void *from, size_t bytes)
{
    TN_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, ((tn_cuda_queue *)queue)->stream));
    return TN_OK;
}

static tn_status cuda_wait(void *queue)
{
    if (queue) TN_CUDA_TRY(cudaStreamSynchronize(((tn_cuda_queue *)queue)->stream));
    else TN_CUDA_TRY(cudaDeviceSynchronize());
    return TN_OK;
}

static tn_status cuda_memory(size_t *free_bytes, size_t *all_bytes)
{
    cudaMemPool_t pool;
    uint64_t has = 0, used = 0;
    TN_CUDA_TRY(cudaMemGetInfo(free_bytes, all_bytes));
    if (!is_shared(&pool)) return TN_OK;
    TN_CUDA_TRY(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &has));
    TN_CUDA_TRY(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    *free_bytes += has > used ? (size_t)(has - used) : 0;
    return TN_OK;
}

/* --- replies ----------------------------------------------------------------------------------------------------------------- */

static void free_reply(tn_cuda_reply *r)
{
    if (r->memory) cudaFreeHost(r->memory);
    if (r->come) cudaEventDestroy(r->come);
    tn_free(r);
}

static void cuda_reply_free(void *r)
{
    tn_cuda_reply *x = r;
    if (!x) return;
    x->next = x->queue->spare;
    x->queue->spare = x;
}

static tn_cuda_reply *take_spare(tn_cuda_queue *q, size_t bytes)
{
    for (tn_cuda_reply **at = &q->spare; *at; at = &(*at)->next) {
        tn_cuda_reply *r = *at;
        if (r->bytes < bytes) continue;
        *at = r->next;
        return r;
    }
    return NULL;
}

static tn_status open_reply(tn_cuda_reply *x)
{
    TN_CUDA_TRY(cudaMallocHost(&x->memory, x->bytes));
    TN_CUDA_TRY(cudaEventCreateWithFlags(&x->come, cudaEventDisableTiming));
    return TN_OK;
}

static tn_status cuda_reply_new(void *queue, size_t bytes, void **out)
{
    tn_cuda_queue *q = queue;
    tn_cuda_reply *x = take_spare(q, bytes);
    tn_status s = TN_OK;
    if (!x) {
        x = tn_alloc(sizeof *x);
        if (!x) return TN_MEMORY;
        x->queue = q;
        x->bytes = bytes > 256 ? bytes : 256;
        s = open_reply(x);
    }
    if (s == TN_OK) *out = x;
    else free_reply(x);
    return s;
}

static tn_status cuda_reply_add(void *queue, void *r, size_t at, const void *device, size_t bytes)
{
    TN_CUDA_TRY(cudaMemcpyAsync((char *)((tn_cuda_reply *)r)->memory + at, device, bytes, cudaMemcpyDeviceToHost,
                                ((tn_cuda_queue *)queue)->stream));
    return TN_OK;
}

static tn_status cuda_reply_end(void *queue, void *r)
{
    TN_CUDA_TRY(cudaEventRecord(((tn_cuda_reply *)r)->come, ((tn_cuda_queue *)queue)->stream));
    return TN_OK;
}

static tn_status cuda_reply_wait(void *r, const void **host)
{
    TN_CUDA_TRY(cudaEventSynchronize(((tn_cuda_reply *)r)->come));
    *host = ((tn_cuda_reply *)r)->memory;
    return TN_OK;
}

/* --- recordings -------------------------------------------------------------------------------------------------------------- */

static tn_status cuda_record(void *queue)
{
    tn_cuda_queue *q = queue;
    TN_CUDA_TRY(cudaStreamBeginCapture(q->stream, cudaStreamCaptureModeThreadLocal));
    tn_cuda_trace_capture(q->stream);
    return TN_OK;
}

static tn_status cuda_recorded(void *queue, void **recording)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    tn_cuda_trace_capture(NULL);
    TN_CUDA_TRY(cudaStreamEndCapture(((tn_cuda_queue *)queue)->stream, &graph));
    const cudaError_t e = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    TN_CUDA_TRY(e);
    *recording = exec;
    return TN_OK;
}

static tn_status cuda_replay(void *queue, void *recording)
{
    TN_CUDA_TRY(cudaGraphLaunch(recording, ((tn_cuda_queue *)queue)->stream));
    return TN_OK;
}

static void cuda_drop(void *recording) { cudaGraphExecDestroy(recording); }

/* --- marks ---------------------------------------------------------------------------------------------------------------------- */

static tn_status cuda_mark(void *queue, size_t i)
{
    tn_cuda_queue *q = queue;
    if (i >= q->n_marks) {
        size_t capacity = q->n_marks;
        TN_RETURN_IF(tn_grow((void **)&q->mark, &capacity, i + 1, sizeof *q->mark));
        for (; q->n_marks <= i; q->n_marks++) TN_CUDA_TRY(cudaEventCreate(&q->mark[q->n_marks]));
    }
    TN_CUDA_TRY(cudaEventRecord(q->mark[i], q->stream));
    return TN_OK;
}

static tn_status cuda_between(void *queue, size_t i, double *ms)
{
    float t = 0;
    const tn_cuda_queue *q = queue;
    TN_CUDA_TRY(cudaEventElapsedTime(&t, q->mark[i], q->mark[i + 1]));
    *ms = (double)t;
    return TN_OK;
}

const tn_backend tn_backend_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .share = cuda_share,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .upload = cuda_upload,
    .upload_pageable = cuda_upload_pageable,
    .download = cuda_download,
    .zero = cuda_zero,
    .copy = cuda_copy,
    .chain_update = tn_cuda_chain_update,
    .wait = cuda_wait,
    .reply_new = cuda_reply_new,
    .reply_free = cuda_reply_free,
    .reply_add = cuda_reply_add,
    .reply_end = cuda_reply_end,
    .reply_wait = cuda_reply_wait,
    .memory = cuda_memory,
    .record = cuda_record,
    .recorded = cuda_recorded,
    .replay = cuda_replay,
    .drop = cuda_drop,
    .mark = cuda_mark,
    .between = cuda_between,
    .trace_begin = tn_cuda_trace_begin,
    .trace_end = tn_cuda_trace_end,
    .trace_mark = tn_cuda_trace_mark,
};
