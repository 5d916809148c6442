/* Tracing through CUPTI. It hands out buffers to fill and takes them back through two functions that are given nothing of
 * the caller's: what is being collected has to be known to the file (`now`). One trace at a time; only the thread that
 * began it ends it, and CUPTI has stopped before `now` goes. */
#include "backend/cuda/cuda.h"

#include "base/alloc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cupti.h>)
#include <cupti.h>

enum { BUFFER = 4 << 20, ALIGNMENT = 8 };

#define TN_CUPTI_FUNCTIONS(F)                                                                                          \
    F(ActivityEnable)                                                                                                  \
    F(ActivityDisable)                                                                                                 \
    F(ActivityRegisterCallbacks) F(ActivityFlushAll) F(ActivityGetNextRecord) F(ActivityGetNumDroppedRecords)

typedef struct collector {
    void *library;
#define FIELD(name) __typeof__(cupti##name) *name;
    TN_CUPTI_FUNCTIONS(FIELD)
#undef FIELD
    pthread_mutex_t lock; /* buffers come back on a thread of CUPTI's */
    tn_span *span;
    size_t n, capacity;
    size_t dropped;
    bool failed; /* no memory for a record */
} collector;

static collector *now;

static const CUpti_ActivityKind kinds[] = { CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                            CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION };

static void give_buffer(uint8_t **buffer, size_t *size, size_t *most)
{
    void *p = NULL;
    *most = 0;
    *size = posix_memalign(&p, ALIGNMENT, BUFFER) == 0 ? BUFFER : 0;
    *buffer = p;
}

static bool read_record(const CUpti_Activity *a, tn_span *out)
{
    switch (a->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: { /* later versions only add fields at the end */
        const CUpti_ActivityKernel4 *k = (const CUpti_ActivityKernel4 *)a;
        *out = (tn_span){ k->start, k->end, TN_SPAN_KERNEL, k->name };
        return true;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const CUpti_ActivityMemcpy *m = (const CUpti_ActivityMemcpy *)a;
        *out = (tn_span){ m->start, m->end, TN_SPAN_COPY, NULL };
        return true;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
        const CUpti_ActivityMemset *m = (const CUpti_ActivityMemset *)a;
        *out = (tn_span){ m->start, m->end, TN_SPAN_COPY, NULL };
        return true;
    }
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
        const CUpti_ActivitySynchronization *s = (const CUpti_ActivitySynchronization *)a;
        const bool event = s->type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE;
        const bool all = s->type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE ||
                         s->type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE;
        *out = (tn_span){ s->start, s->end, event ? TN_SPAN_EVENT_WAIT : TN_SPAN_WAIT, NULL };
        return event || all;
    }
    default: return false;
    }
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
    now = NULL;
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

static tn_status enable(collector *c)
{
    TN_RETURN_IF(checked(c->ActivityRegisterCallbacks(give_buffer, take_buffer), "its buffers"));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        TN_RETURN_IF(checked(c->ActivityEnable(kinds[i]), "an activity"));
    return TN_OK;
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
