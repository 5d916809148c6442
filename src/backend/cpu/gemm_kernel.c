/* Which micro-kernels this machine runs. Asks the processor (as level.c does for all other kernels); it computes nothing. */
#include "backend/cpu/gemm_kernel.h"

#include <stdatomic.h>

#if defined(__aarch64__)
#include <sys/auxv.h>

static bool has_neon_bf16(void)
{
    enum { HWCAP2_BIT_BF16 = 1 << 14 };
    return getauxval(AT_HWCAP2) & HWCAP2_BIT_BF16;
}
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
}

static bool has_avx512_bf16(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512bf16");
}

/* Linux lends the tile registers to a process that asks once; all its threads may use them then. */
static bool has_amx(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d = 0;
    if (!has_avx512_bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(d & AMX_BF16) || !(d & AMX_TILE)) return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

/* The plainest first, the fastest last; supported == NULL: runs everywhere. */
static const struct {
    const tn_gemm_ukernel *kernel;
    bool (*supported)(void);
} kernels[] = {
    { &tn__gemm_portable, NULL },
#if defined(__aarch64__)
    { &tn__gemm_neon_bf16, has_neon_bf16 },
#elif defined(__x86_64__)
    { &tn__gemm_avx2, has_avx2 },     { &tn__gemm_avx512_8, has_avx512 },
    { &tn__gemm_avx512, has_avx512 }, { &tn__gemm_avx512_bf16, has_avx512_bf16 },
    { &tn__gemm_amx, has_amx },
#endif
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* Bit i: kernels[i] runs here. Asked once, as a virtual machine may take microseconds to answer; a fact about the
 * machine, so whoever asks first writes the same number. */
static unsigned supported(void)
{
    enum { ASKED = 1 << KERNELS };
    static _Atomic unsigned known;
    unsigned bits = atomic_load_explicit(&known, memory_order_relaxed);
    if (bits) return bits;
    for (int i = 0; i < KERNELS; i++)
        if (!kernels[i].supported || kernels[i].supported()) bits |= 1u << i;
    atomic_store_explicit(&known, bits | ASKED, memory_order_relaxed);
    return bits;
}

static const tn_gemm_ukernel *last_of(tn_dtype type)
{
    for (int i = KERNELS - 1; i >= 0; i--)
        if (supported() >> i & 1 && kernels[i].kernel->type == type) return kernels[i].kernel;
    return NULL;
}

const tn_gemm_ukernel *tn__gemm_kernel_at(int index)
{
    for (int i = 0; i < KERNELS; i++)
        if (supported() >> i & 1 && index-- == 0) return kernels[i].kernel;
    return NULL;
}

const tn_gemm_ukernel *tn__gemm_kernel_best(void) { return last_of(TN_F32); }
const tn_gemm_ukernel *tn__gemm_kernel_bf16(void) { return last_of(TN_BF16); }

const char *tn_gemm_kernel_name(void) { return tn__gemm_kernel_best()->name; }

const char *tn_gemm_kernel_name_bf16(void)
{
    const tn_gemm_ukernel *u = tn__gemm_kernel_bf16();
    return u ? u->name : NULL;
}

double tn_gemm_probe_bf16(int64_t loops, const uint16_t numbers[TN_GEMM_PROBE_NUMBERS])
{
    const tn_gemm_ukernel *u = tn__gemm_kernel_bf16();
    return u ? u->probe(loops, numbers) : 0;
}
