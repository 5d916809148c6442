/* clipnorm on the GPU: one thread, so that the decision (ok) stays on the device and the optimizer's kernels can read it
 * without the host. Tests are written so that a NaN fails them. */
#include "backend/cuda/device.cuh"
#include "ops/clipnorm/clipnorm.h"

#include <float.h>

struct numbers {
    const void *data[4]; /* sumsq, clip, scale, loss or NULL */
    tn_dtype dtype[4];
    int64_t losses;
};

__device__ __forceinline__ bool finite_number(float x) { return fabsf(x) <= FLT_MAX; /* false for NaN */ }

static __global__ void decide(numbers n, float *coefficient, int32_t *to_ok, float *to_norm)
{
    const float sumsq = tn_load(n.data[0], n.dtype[0], 0), clip = tn_load(n.data[1], n.dtype[1], 0);
    const float scale = tn_load(n.data[2], n.dtype[2], 0), norm = sqrtf(sumsq) * scale;
    bool ok = finite_number(norm) && finite_number(scale);
    for (int64_t i = 0; i < n.losses; i++) ok = ok && finite_number(tn_load(n.data[3], n.dtype[3], i));
    const bool limit = clip > 0 && norm > clip;
    *coefficient = !ok ? 0.f : limit ? scale * (clip / norm) : scale;
    *to_ok = ok;
    *to_norm = norm;
}

extern "C" tn_status tn_clipnorm_forward_cuda(const tn_call *c)
{
    numbers n = {};
    for (int i = 0; i < 4; i++) n.data[i] = c->in[i].data, n.dtype[i] = c->in[i].dtype;
    n.losses = c->in[3].data ? tn_dims_count(c->in[3].dims) : 0;
    decide<<<1, 1, 0, tn_cuda_stream(c)>>>(n, (float *)c->out[0].data, (int32_t *)c->out[1].data,
                                           (float *)c->out[2].data);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
