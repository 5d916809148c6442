/* Kernels compiled for several levels of one architecture, chosen when the program runs.
 *
 * x86-64's first processors have 4-float vectors and no fused multiply-add. A file whose functions are defined with
 * TN_LEVELED is compiled three times there (the Makefile finds it by that word): as it is, for AVX2 with FMA and F16C (level 3)
 * and for AVX-512 (level 4). The first copy also holds each function under its own name, which passes the call on to
 * the copy for this processor. Other architectures compile such a file once. Everything in it that is not TN_LEVELED
 * must be static.
 *
 * Results of different levels may differ in rounding: a product and a sum are one rounding where there is FMA. */
#ifndef TN_BACKEND_CPU_LEVEL_H
#define TN_BACKEND_CPU_LEVEL_H

/* 3, 4, or 0 for what every processor of the architecture has. */
int tn_cpu_level(void);

/* TN_LEVELED(int, f, (int a, int b), (a, b)) { body } defines int f(int a, int b). */
#if defined(TN_LEVEL) && TN_LEVEL == 3
#define TN_LEVELED(type, name, parameters, arguments)                                                                  \
    type name##_v3 parameters;                                                                                         \
    type name##_v3 parameters
#elif defined(TN_LEVEL) && TN_LEVEL == 4
#define TN_LEVELED(type, name, parameters, arguments)                                                                  \
    type name##_v4 parameters;                                                                                         \
    type name##_v4 parameters
#elif defined(TN_LEVELS)
#define TN_LEVELED(type, name, parameters, arguments)                                                                  \
    type name##_v3 parameters;                                                                                         \
    type name##_v4 parameters;                                                                                         \
    static type name##_v0 parameters;                                                                                  \
    type name parameters                                                                                               \
    {                                                                                                                  \
        const int level = tn_cpu_level();                                                                              \
        return level == 4 ? name##_v4 arguments : level == 3 ? name##_v3 arguments : name##_v0 arguments;              \
    }                                                                                                                  \
    static type name##_v0 parameters
#else
#define TN_LEVELED(type, name, parameters, arguments) type name parameters
#endif

/* A kernel of an op (tn_kernel). */
#define TN_LEVELED_KERNEL(name) TN_LEVELED(tn_status, name, (const tn_call *c), (c))

#endif
