/* Choosing a backend by device. */
#include "backend/backend.h"

const tn_backend *tn_backend_get(tn_device d)
{
    if (d == TN_CPU) return &tn_backend_cpu;
    (void)tn_error(TN_USAGE, "device=cuda: this build has no CUDA backend; use device=cpu or device=auto");
    return NULL;
}
