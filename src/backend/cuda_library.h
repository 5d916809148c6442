/* What the program and the CUDA library (libtenon_cuda.so) know of each other. All CUDA code is in that library, so that the
 * program runs where neither NVIDIA's runtime nor a GPU exists. Each side has one table of functions: the library's names its
 * backend and kernels, the program's what these call in the program (host.def). Neither sees another symbol of the other. */
#ifndef TN_BACKEND_CUDA_LIBRARY_H
#define TN_BACKEND_CUDA_LIBRARY_H

#include "backend/backend.h"

#include <tenon/body.h>

struct loop_device;
struct loop_runner;
struct tn_atomic_file;
struct tn_cuda_kernels;
struct tn_decode_builder;
struct tn_decode_program;
struct tn_decode_space;
struct tn_span_marks;

#define TN_HOST(type, name, parameters, arguments) type name parameters;
#include "backend/host.def"
#undef TN_HOST

typedef struct tn_cuda_host {
    tn_status (*error)(const char *file, int line, tn_status code, const char *fmt, ...);
#define TN_HOST(type, name, parameters, arguments) type(*name) parameters;
#include "backend/host.def"
#undef TN_HOST
} tn_cuda_host;

typedef struct tn_cuda_library {
    const tn_backend *backend;
    tn_status (*available)(
        void); /* TN_OK where a driver and a GPU are there; else the error text says what is missing */
    bool (*pci)(char *id, int bytes);      /* the address of the GPU in use, as other tools name it; false: unknown */
    const struct tn_cuda_kernels *kernels; /* ops/cuda_kernels.h */
} tn_cuda_library;

/* The two symbols of the library. tn_cuda_abi is the version and a checksum of all headers (TN_CUDA_ABI); only a library whose
 * text is the program's own is opened. NULL from open: another copy of Tenon in this process has it. */
typedef const tn_cuda_library *tn_cuda_open_function(const tn_cuda_host *host);

/* Whether NVIDIA's driver, or that of WSL, is in use: nothing is loaded for the answer. */
bool tn_cuda_has_driver(void);
/* NULL before tn_backend_get has loaded it. */
const tn_cuda_library *tn_cuda_library_loaded(void);

#endif
