/* Tracing through CUPTI. It hands out buffers to fill and takes them back through two functions that are given nothing of
 * the caller's: what is being collected has to be known to the file (`now`). One trace at a time; only the thread that
 * began it ends it, and CUPTI has stopped before `now` goes. */
#include "backend/cuda/cuda.h"

#include "backend/span_marks.h"
#include "base/alloc.h"
#include "base/tracer.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cupti.h>)
#include <cupti.h>

enum { BUFFER = 4 << 20, ALIGNMENT = 8 };

#define TN_CUPTI_FUNCTIONS(F)                                                                                          \
    F(ActivityEnable)                                                                                                  \
    F(ActivityDisable)                                                                                                 \
    F(ActivityRegisterCallbacks)                                                                                       \
    F(ActivityFlushAll)                                                                                                \
    F(ActivityGetNextRecord)                                                                                           \
    F(ActivityGetNumDroppedRecords)                                                                                    \
    F(GetTimestamp)                                                                                                    \
    F(GetCallbackName) F(GetGraphNodeId) F(Subscribe) F(Unsubscribe) F(EnableCallback)

typedef struct collector {
    void *library;
#define FIELD(name) __typeof__(cupti##name) *name;
    TN_CUPTI_FUNCTIONS(FIELD)
#undef FIELD
    /* For records and marks: buffers come back on a thread of CUPTI's, and nodes may be made on any. */
    pthread_mutex_t lock;
    tn_span *span;
    size_t n, capacity;
    size_t dropped;
    bool failed;   /* no memory for a record */
    int64_t later; /* nanoseconds by which the host's monotonic clock is ahead of CUPTI's */
    CUpti_SubscriberHandle subscriber;
    bool subscribed;
    tn_span_marks marks; /* of nodes; `mark` is that of nodes that are captured now */
    uint64_t mark;
    cudaStream_t capture; /* the stream that captures, or NULL */
} collector;

static collector *now;

static const CUpti_ActivityKind kinds[] = { CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                            CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
                                            CUPTI_ACTIVITY_KIND_RUNTIME };

/* Later versions of a record only add fields at the end: those that are read lie where they always did. */
#define SAME_PLACE(a, b, field) _Static_assert(offsetof(a, field) == offsetof(b, field), #field)
SAME_PLACE(CUpti_ActivityKernel5, CUpti_ActivityKernel9, start);
SAME_PLACE(CUpti_ActivityKernel5, CUpti_ActivityKernel9, streamId);
SAME_PLACE(CUpti_ActivityKernel5, CUpti_ActivityKernel9, name);
SAME_PLACE(CUpti_ActivityKernel5, CUpti_ActivityKernel9, graphNodeId);
SAME_PLACE(CUpti_ActivityMemcpy3, CUpti_ActivityMemcpy5, bytes);
SAME_PLACE(CUpti_ActivityMemcpy3, CUpti_ActivityMemcpy5, graphNodeId);
SAME_PLACE(CUpti_ActivityMemset2, CUpti_ActivityMemset4, bytes);
SAME_PLACE(CUpti_ActivityMemset2, CUpti_ActivityMemset4, graphNodeId);

static void give_buffer(uint8_t **buffer, size_t *size, size_t *most)
{
    void *p = NULL;
    *most = 0;
    *size = posix_memalign(&p, ALIGNMENT, BUFFER) == 0 ? BUFFER : 0;
    *buffer = p;
}

static const char *call_name(CUpti_CallbackId id)
{
    const char *name = NULL;
    return now->GetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, id, &name) == CUPTI_SUCCESS ? name : NULL;
}

/* mark: the node's number at first. */
static bool read_record(const CUpti_Activity *a, tn_span *out)
{
#define TIMES(x) .begin = (x)->start, .end = (x)->end
#define WORK(x) TIMES(x), .stream = (x)->streamId, .correlation = (x)->correlationId, .mark = (x)->graphNodeId
    switch (a->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const CUpti_ActivityKernel5 *k = (const CUpti_ActivityKernel5 *)a;
        *out = (tn_span){ WORK(k), .kind = TN_SPAN_KERNEL, .name = k->name };
        return true;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const CUpti_ActivityMemcpy3 *m = (const CUpti_ActivityMemcpy3 *)a;
        *out = (tn_span){ WORK(m), .kind = TN_SPAN_COPY, .bytes = m->bytes };
        return true;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
        const CUpti_ActivityMemset2 *m = (const CUpti_ActivityMemset2 *)a;
        *out = (tn_span){ WORK(m), .kind = TN_SPAN_COPY, .bytes = m->bytes, .name = "Memset" };
        return true;
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME: {
        const CUpti_ActivityAPI *c = (const CUpti_ActivityAPI *)a;
        *out = (tn_span){ TIMES(c), .kind = TN_SPAN_CALL, .name = call_name(c->cbid), .correlation = c->correlationId };
        return true;
    }
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
        const CUpti_ActivitySynchronization *s = (const CUpti_ActivitySynchronization *)a;
        const bool event = s->type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE;
        const bool all = s->type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE ||
                         s->type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE;
        *out =
            (tn_span){ TIMES(s), .kind = event ? TN_SPAN_EVENT_WAIT : TN_SPAN_WAIT, .correlation = s->correlationId };
        return event || all;
    }
    default: return false;
    }
#undef TIMES
#undef WORK
}

static void take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    CUpti_Activity *a = NULL;
    tn_span span;
    size_t dropped = 0;
    (void)size;
    if (now) {
        pthread_mutex_lock(&now->lock);
        while (valid && now->ActivityGetNextRecord(buffer, valid, &a) == CUPTI_SUCCESS) {
            if (!read_record(a, &span)) continue;
            if (tn_grow((void **)&now->span, &now->capacity, now->n + 1, sizeof span) != TN_OK) now->failed = true;
            else now->span[now->n++] = span;
        }
        if (now->ActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS) now->dropped += dropped;
        pthread_mutex_unlock(&now->lock);
    }
    free(buffer);
}

static void *find_library(void)
{
    static const char *const names[] = { "libcupti.so.13", "libcupti.so.12", "/usr/local/cuda/lib64/libcupti.so",
                                         "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", "libcupti.so" };
    const char *given = getenv("TENON_CUPTI");
    if (given && given[0]) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *l = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (l) return l;
    }
    return NULL;
}

static tn_status open_library(collector *c)
{
    const char *missing = NULL;
    c->library = find_library();
    if (!c->library)
        return tn_error(TN_USAGE,
                        "--trace: libcupti is not found: install CUDA's CUPTI, or name the file in TENON_CUPTI");
#define FIND(name)                                                                                                     \
    *(void **)&c->name = dlsym(c->library, "cupti" #name);                                                             \
    if (!c->name) missing = "cupti" #name;
    TN_CUPTI_FUNCTIONS(FIND)
#undef FIND
    return missing
               ? tn_error(TN_USAGE, "--trace: the CUPTI that was found has no %s: install that of this CUDA", missing)
               : TN_OK;
}

static void drop(collector *c)
{
    if (c->subscribed) (void)c->Unsubscribe(c->subscriber);
    now = NULL;
    tn_span_marks_free(&c->marks);
    tn_free(c->span);
    pthread_mutex_destroy(&c->lock); /* the library stays loaded: CUPTI does not survive being unloaded */
    tn_free(c);
}

static tn_status checked(CUptiResult e, const char *what)
{
    return e == CUPTI_SUCCESS
               ? TN_OK
               : tn_error(TN_USAGE, "--trace: CUPTI refuses %s (code %d): is another profiler attached?", what, (int)e);
}

/* Nodes that a capture makes have the mark of now, and those of the executable graph the mark of what they are copies of. */
static void CUPTIAPI node_made(void *unused, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    const CUpti_ResourceData *resource = data;
    const CUpti_GraphData *g = resource->resourceDescriptor;
    uint64_t node = 0, original = 0;
    (void)unused, (void)domain;
    if (!now || now->GetGraphNodeId(g->node, &node) != CUPTI_SUCCESS) return;
    tn_status s = TN_OK;
    pthread_mutex_lock(&now->lock);
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) s = tn_span_marks_add(&now->marks, node, now->mark);
    else if (now->GetGraphNodeId(g->originalNode, &original) == CUPTI_SUCCESS)
        s = tn_span_marks_copy(&now->marks, node, original);
    if (s != TN_OK) now->failed = true;
    pthread_mutex_unlock(&now->lock);
}

/* Without them, where somebody else has subscribed, there are no marks. */
static void subscribe(collector *c)
{
    static const CUpti_CallbackId ids[] = { CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                                            CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED };
    c->subscribed = c->Subscribe(&c->subscriber, node_made, NULL) == CUPTI_SUCCESS;
    for (size_t i = 0; c->subscribed && i < sizeof ids / sizeof *ids; i++)
        (void)c->EnableCallback(1, c->subscriber, CUPTI_CB_DOMAIN_RESOURCE, ids[i]);
}

/* The two clocks run alike: what counts is how far they are apart. */
static tn_status compare_clocks(collector *c)
{
    uint64_t theirs = 0;
    const uint64_t before = tn_tracer_now();
    TN_RETURN_IF(checked(c->GetTimestamp(&theirs), "its clock"));
    const uint64_t after = tn_tracer_now();
    c->later = (int64_t)(before + (after - before) / 2 - theirs);
    return TN_OK;
}

static tn_status enable(collector *c)
{
    TN_RETURN_IF(checked(c->ActivityRegisterCallbacks(give_buffer, take_buffer), "its buffers"));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        TN_RETURN_IF(checked(c->ActivityEnable(kinds[i]), "an activity"));
    subscribe(c);
    return compare_clocks(c);
}

static size_t captured_nodes(cudaStream_t stream, cudaGraphNode_t **out)
{
    enum cudaStreamCaptureStatus status;
    cudaGraph_t graph = NULL;
    size_t n = 0;
#if CUDART_VERSION >= 13000
    const cudaError_t e = cudaStreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, NULL);
#else
    const cudaError_t e = cudaStreamGetCaptureInfo_v2(stream, &status, NULL, &graph, NULL, NULL);
#endif
    *out = NULL;
    if (e != cudaSuccess || status != cudaStreamCaptureStatusActive ||
        cudaGraphGetNodes(graph, NULL, &n) != cudaSuccess)
        return 0;
    *out = n ? tn_alloc(n * sizeof **out) : NULL;
    return *out && cudaGraphGetNodes(graph, *out, &n) == cudaSuccess ? n : 0;
}

/* Nodes that no step has, because CUPTI did not say that they were made, are of the step that was captured last. */
static void find_nodes(collector *c)
{
    cudaGraphNode_t *node;
    uint64_t id;
    const size_t n = captured_nodes(c->capture, &node);
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < n; i++)
        if (c->GetGraphNodeId(node[i], &id) == CUPTI_SUCCESS && !tn_span_marks_find(&c->marks, id) &&
            tn_span_marks_add(&c->marks, id, c->mark) != TN_OK)
            c->failed = true;
    pthread_mutex_unlock(&c->lock);
    tn_free(node);
}

void tn_cuda_trace_mark(uint64_t mark)
{
    if (!now) return;
    if (now->capture && now->mark) find_nodes(now);
    pthread_mutex_lock(&now->lock);
    now->mark = mark;
    pthread_mutex_unlock(&now->lock);
}

void tn_cuda_trace_capture(cudaStream_t stream)
{
    if (now) now->capture = stream;
}

static void settle(collector *c)
{
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->n; i++) {
        tn_span *s = &c->span[i];
        s->begin += (uint64_t)c->later;
        s->end += (uint64_t)c->later;
        s->mark = tn_span_marks_find(&c->marks, s->mark);
    }
    pthread_mutex_unlock(&c->lock);
}

tn_status tn_cuda_trace_begin(void)
{
    if (now) return tn_error(TN_INTERNAL, "a trace is being taken already");
    collector *c = tn_alloc(sizeof *c);
    if (!c) return TN_MEMORY;
    pthread_mutex_init(&c->lock, NULL);
    now = c;
    tn_status s = open_library(c);
    if (s == TN_OK) s = enable(c);
    if (s != TN_OK) drop(c);
    return s;
}

tn_status tn_cuda_trace_end(tn_span **spans, size_t *n)
{
    collector *c = now;
    if (!c) return tn_error(TN_INTERNAL, "no trace is being taken");
    (void)c->ActivityFlushAll(0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) (void)c->ActivityDisable(kinds[i]);
    (void)c->ActivityFlushAll(1);
    settle(c);
    tn_status s = TN_OK;
    if (c->failed) s = tn_error(TN_MEMORY, "no memory for the records of the trace");
    else if (c->dropped) s = tn_error(TN_INTERNAL, "CUPTI dropped %zu records: trace fewer steps", c->dropped);
    if (s == TN_OK) {
        *spans = c->span;
        *n = c->n;
        c->span = NULL;
    }
    drop(c);
    return s;
}

#else

void tn_cuda_trace_mark(uint64_t mark) { (void)mark; }

void tn_cuda_trace_capture(cudaStream_t stream) { (void)stream; }

tn_status tn_cuda_trace_begin(void)
{
    return tn_error(TN_USAGE, "--trace: this build has no CUPTI: build where CUDA's cupti.h is installed");
}

tn_status tn_cuda_trace_end(tn_span **spans, size_t *n)
{
    (void)spans, (void)n;
    return TN_INTERNAL;
}

#endif
