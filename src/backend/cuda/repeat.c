/* Repetitions inside a recording: a conditional node of a CUDA graph. While its body is recorded the queue's stream is
 * another one, so that whoever queues work need not know. */
#include "backend/cuda/cuda.h"

static tn_status recording(const tn_cuda_queue *q, bool *yes)
{
    enum cudaStreamCaptureStatus status;
    TN_CUDA_TRY(cudaStreamIsCapturing(q->stream, &status));
    *yes = status == cudaStreamCaptureStatusActive;
    return TN_OK;
}

#if CUDART_VERSION >= 12040

#if CUDART_VERSION >= 13000
#define EDGES NULL, /* an argument of later versions: edges without annotations */
#else
#define EDGES
#endif

/* The graph that is being recorded, and the nodes that the next one follows. */
static tn_status position(const tn_cuda_queue *q, cudaGraph_t *graph, const cudaGraphNode_t **after, size_t *n)
{
    enum cudaStreamCaptureStatus status;
#if CUDART_VERSION >= 13000
    TN_CUDA_TRY(cudaStreamGetCaptureInfo(q->stream, &status, NULL, graph, after, NULL, n));
#else
    TN_CUDA_TRY(cudaStreamGetCaptureInfo_v2(q->stream, &status, NULL, graph, after, n));
#endif
    return TN_OK;
}

tn_status tn_cuda_repeat_make(tn_cuda_queue *q, unsigned long long *handle, bool *repeats)
{
    cudaGraph_t graph;
    const cudaGraphNode_t *after;
    size_t n;
    cudaGraphConditionalHandle made;
    *repeats = false;
    TN_RETURN_IF(recording(q, repeats));
    *repeats = *repeats && !q->repeating;
    if (!*repeats) return TN_OK;
    TN_RETURN_IF(position(q, &graph, &after, &n));
    TN_CUDA_TRY(cudaGraphConditionalHandleCreate(&made, graph, 1, cudaGraphCondAssignDefault));
    *handle = made;
    return TN_OK;
}

tn_status tn_cuda_repeat_begin(tn_cuda_queue *q, unsigned long long handle)
{
    cudaGraph_t graph;
    const cudaGraphNode_t *after;
    cudaGraphNode_t node;
    size_t n;
    struct cudaGraphNodeParams p = { .type = cudaGraphNodeTypeConditional };
    p.conditional.handle = handle;
    p.conditional.type = cudaGraphCondTypeWhile;
    p.conditional.size = 1;
    TN_RETURN_IF(position(q, &graph, &after, &n));
    TN_CUDA_TRY(cudaGraphAddNode(&node, graph, after, EDGES n, &p));
    TN_CUDA_TRY(cudaStreamUpdateCaptureDependencies(q->stream, &node, EDGES 1, cudaStreamSetCaptureDependencies));
    TN_CUDA_TRY(cudaStreamBeginCaptureToGraph(q->inner, p.conditional.phGraph_out[0], NULL, NULL, 0,
                                              cudaStreamCaptureModeThreadLocal));
    cudaStream_t outer = q->stream;
    q->stream = q->inner;
    q->inner = outer;
    q->repeating = true;
    return TN_OK;
}

tn_status tn_cuda_repeat_end(tn_cuda_queue *q)
{
    cudaGraph_t body;
    cudaStream_t recorded = q->stream;
    q->stream = q->inner;
    q->inner = recorded;
    q->repeating = false;
    TN_CUDA_TRY(cudaStreamEndCapture(recorded, &body));
    return TN_OK;
}

#else

tn_status tn_cuda_repeat_make(tn_cuda_queue *q, unsigned long long *handle, bool *repeats)
{
    (void)handle;
    TN_RETURN_IF(recording(q, repeats));
    *repeats = false;
    return TN_OK;
}

tn_status tn_cuda_repeat_begin(tn_cuda_queue *q, unsigned long long handle)
{
    (void)q, (void)handle;
    return tn_error(TN_INTERNAL, "a repetition without CUDA 12.4");
}

tn_status tn_cuda_repeat_end(tn_cuda_queue *q)
{
    (void)q;
    return TN_OK;
}

#endif
