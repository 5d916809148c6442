/* The CUDA library's side of backend/cuda_library.h: its two symbols, and the functions of the program that its code calls. */
#include "backend/cuda/cuda.h"
#include "backend/cuda_library.h"
#include "ops/cuda_kernels.h"
#include "tenon_cuda_abi.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static _Atomic(const tn_cuda_host *) host;

tn_status tn_error_at(const char *file, int line, tn_status code, const char *fmt, ...)
{
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return atomic_load(&host)->error(file, line, code, "%s", text);
}

#define TN_HOST(type, name, parameters, arguments)                                                                     \
    type name parameters { return atomic_load(&host)->name arguments; }
#include "backend/host.def"

static const tn_cuda_kernels kernels = {
#define TN_F(op) .op##_forward = tn_##op##_forward_cuda,
#define TN_B(op) .op##_backward = tn_##op##_backward_cuda,
#define TN_W(op) .op##_work = tn_##op##_work_cuda,
#include "ops/cuda.def"
    .relax_phase = tn_relax_phase_cuda,
    .decode_run = tn_decode_run_cuda,
};

static const tn_cuda_library library = { &tn_backend_cuda, tn_cuda_available, tn_cuda_pci, &kernels };

extern const char tn_cuda_abi[];
const char tn_cuda_abi[] = TN_CUDA_ABI;
tn_cuda_open_function tn_cuda_open;

const tn_cuda_library *tn_cuda_open(const tn_cuda_host *h)
{
    const tn_cuda_host *none = NULL;
    return atomic_compare_exchange_strong(&host, &none, h) || none == h ? &library : NULL;
}
