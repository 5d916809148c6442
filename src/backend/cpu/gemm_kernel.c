/* Which micro-kernels this machine runs. The only place that asks the processor; it computes nothing. */
#include "backend/cpu/gemm_kernel.h"

#if defined(__x86_64__)
static bool has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

/* The plainest first, the fastest last; supported == NULL: runs everywhere. */
static const struct {
    const tn_gemm_ukernel *kernel;
    bool (*supported)(void);
} kernels[] = {
    { &tn__gemm_portable, NULL },
#if defined(__x86_64__)
    { &tn__gemm_avx2, has_avx2 },
#endif
};

const tn_gemm_ukernel *tn__gemm_kernel_at(int index)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if ((!kernels[i].supported || kernels[i].supported()) && index-- == 0) return kernels[i].kernel;
    return NULL;
}

const tn_gemm_ukernel *tn__gemm_kernel_best(void)
{
    for (size_t i = sizeof kernels / sizeof *kernels - 1; i > 0; i--)
        if (!kernels[i].supported || kernels[i].supported()) return kernels[i].kernel;
    return kernels[0].kernel;
}

const char *tn_gemm_kernel_name(void) { return tn__gemm_kernel_best()->name; }
