/* Choosing a backend by device. */
#include "backend/backend.h"

#ifdef TN_HAVE_CUDA
#include "backend/cuda/cuda.h"
#endif

const tn_backend *tn_backend_get(tn_device d)
{
    if (d == TN_CPU) return &tn_backend_cpu;
#ifdef TN_HAVE_CUDA
    return tn_cuda_available() == TN_OK ? &tn_backend_cuda : NULL;
#else
    (void)tn_error(
        TN_USAGE,
        "device=cuda: this build has no CUDA backend; use device=cpu or device=auto, or build where nvcc is found");
    return NULL;
#endif
}
