/* Which level of its architecture this processor has. Asks for exactly what the Makefile compiles the levels for. */
#include "backend/cpu/level.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* clang 14's __builtin_cpu_supports does not know the name. */
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int ask(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return 0;
    const int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
    return wide ? 4 : 3;
}
#else
static int ask(void) { return 0; }
#endif

/* Asked once, as a virtual machine may take microseconds to answer; whoever asks first writes the same number. */
int tn_cpu_level(void)
{
    static _Atomic int known; /* level + 1 */
    int k = atomic_load_explicit(&known, memory_order_relaxed);
    if (!k) atomic_store_explicit(&known, k = ask() + 1, memory_order_relaxed);
    return k - 1;
}
