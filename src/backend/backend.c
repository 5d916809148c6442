/* Choosing a backend by device. */
#include "backend/backend.h"

#include "backend/cuda_library.h"

const tn_backend *tn_backend_get(tn_device d)
{
    if (d == TN_CPU) return &tn_backend_cpu;
    const tn_cuda_library *l = tn_cuda_library_load();
    return l && l->available() == TN_OK ? l->backend : NULL;
}
