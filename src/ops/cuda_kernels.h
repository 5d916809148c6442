/* The kernels of the CUDA library as one table of functions. Rows of ops name tn_NAME_forward_cuda and the like; in the program
 * these are calls through the table (cuda_calls.c), in the library the kernels themselves. */
#ifndef TN_OPS_CUDA_KERNELS_H
#define TN_OPS_CUDA_KERNELS_H

#include <tenon/op.h>

struct tn_loop_body;
struct tn_loop_phase;

typedef size_t tn_kernel_work(const tn_sig *s, bool backward);
typedef tn_status tn_kernel_relax(const tn_call *c, const struct tn_loop_body *b, const struct tn_loop_phase *p,
                                  bool *done);
typedef tn_status tn_kernel_decode(const tn_op *const *op, const tn_call *call, size_t n, size_t *took);

typedef struct tn_cuda_kernels {
#define TN_F(op) tn_kernel *op##_forward;
#define TN_B(op) tn_kernel *op##_backward;
#define TN_W(op) tn_kernel_work *op##_work;
#include "ops/cuda.def"
#undef TN_F
#undef TN_B
#undef TN_W
    tn_kernel_relax *relax_phase;
    tn_kernel_decode *decode_run;
} tn_cuda_kernels;

#define TN_F(op) tn_kernel tn_##op##_forward_cuda;
#define TN_B(op) tn_kernel tn_##op##_backward_cuda;
#define TN_W(op) tn_kernel_work tn_##op##_work_cuda;
#include "ops/cuda.def"
#undef TN_F
#undef TN_B
#undef TN_W
tn_kernel_relax tn_relax_phase_cuda;
tn_kernel_decode tn_decode_run_cuda;

#endif
