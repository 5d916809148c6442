/* The CUDA kernels that rows of ops name, as calls into the CUDA library. A plan for a GPU is made only where the backend, and so the
 * library, was there before. */
#include "backend/cuda_library.h"
#include "ops/cuda_kernels.h"

static const tn_cuda_kernels *kernels(void)
{
    const tn_cuda_library *l = tn_cuda_library_loaded();
    return l ? l->kernels : NULL;
}

static tn_status missing(void) { return tn_error(TN_INTERNAL, "a plan for a GPU runs without the CUDA library"); }

#define TN_F(op)                                                                                                       \
    tn_status tn_##op##_forward_cuda(const tn_call *c) { return kernels() ? kernels()->op##_forward(c) : missing(); }
#define TN_B(op)                                                                                                       \
    tn_status tn_##op##_backward_cuda(const tn_call *c) { return kernels() ? kernels()->op##_backward(c) : missing(); }
#define TN_W(op)                                                                                                       \
    size_t tn_##op##_work_cuda(const tn_sig *s, bool backward)                                                         \
    {                                                                                                                  \
        return kernels() ? kernels()->op##_work(s, backward) : 0;                                                      \
    }
#include "ops/cuda.def"

tn_status tn_relax_phase_cuda(const tn_call *c, const struct tn_loop_body *b, const struct tn_loop_phase *p, bool *done)
{
    return kernels() ? kernels()->relax_phase(c, b, p, done) : missing();
}

tn_status tn_decode_run_cuda(const tn_op *const *op, const tn_call *call, size_t n, size_t *took)
{
    return kernels() ? kernels()->decode_run(op, call, n, took) : missing();
}
