/* Finding cuBLASLt. */
#include "backend/cuda/cublaslt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

static void *find_library(void)
{
    static const char *const names[] = {
        "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR),
        "/usr/local/cuda/lib64/libcublasLt.so." TEXT(CUBLAS_VER_MAJOR),
        "libcublasLt.so",
    };
    const char *given = getenv("TENON_CUBLASLT");
    if (given && given[0]) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *l = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (l) return l;
    }
    return NULL;
}

tn_status tn_cublaslt_open(tn_cublaslt *out)
{
    tn_cublaslt l = { .library = find_library() };
    if (!l.library)
        return tn_error(TN_USAGE,
                        "device=cuda: libcublasLt.so.%d is not found: install CUDA's cuBLAS, or name the file in "
                        "TENON_CUBLASLT, or use "
                        "device=cpu",
                        CUBLAS_VER_MAJOR);
    const char *missing = NULL;
#define FIND(name)                                                                                                     \
    *(void **)&l.name = dlsym(l.library, "cublasLt" #name);                                                            \
    if (!l.name) missing = "cublasLt" #name;
    TN_LT_FUNCTIONS(FIND)
#undef FIND
    if (missing) {
        dlclose(l.library);
        return tn_error(TN_USAGE, "device=cuda: the cuBLASLt that was found has no %s: install that of CUDA %d",
                        missing, CUBLAS_VER_MAJOR);
    }
    *out = l;
    return TN_OK;
}

void tn_cublaslt_close(tn_cublaslt *l)
{
    if (l->library) dlclose(l->library);
    *l = (tn_cublaslt){ 0 };
}

tn_status tn_cublaslt_failed(cublasStatus_t e, const char *what, const char *file, int line)
{
    if (e == CUBLAS_STATUS_ALLOC_FAILED)
        return tn_error_at(file, line, TN_MEMORY, "cuBLASLt has no memory left (%s)", what);
    return tn_error_at(file, line, TN_INTERNAL, "cuBLASLt: %s: status %d", what, (int)e);
}
