/* clipnorm: shape check, row, call. */
#include "ops/clipnorm/clipnorm.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_clipnorm_forward_cpu;

static tn_status clipnorm_infer(tn_sig *s)
{
    static const char *const name[] = { "sumsq", "clip", "scale", "loss" };
    for (int i = 0; i < s->n_in; i++) {
        if (s->in[i].absent && i == 3) continue;
        if (s->in[i].absent || !tn_dtype_is_float(s->in[i].dtype) || (i < 3 && tn_dims_count(s->in[i].dims) != 1))
            return tn_error(TN_USAGE, "%s must be %s", name[i], i < 3 ? "one float" : "floats");
    }
    s->n_out = 3;
    for (int i = 0; i < 3; i++) {
        s->out[i].dtype = i == 1 ? TN_I32 : TN_F32;
        s->out[i].dims = tn_shape(1);
    }
    return TN_OK;
}

const tn_op tn_op_clipnorm = {
    .name = "clipnorm",
    .infer = clipnorm_infer,
    .kernel = { [TN_CPU] = { .forward = tn_clipnorm_forward_cpu },
                [TN_CUDA] = { .forward = tn_clipnorm_forward_cuda } },
};

tn_clipnorm_result tn_clipnorm_(tn_graph *g, const char *file, int line, tn_ref sumsq, tn_ref clip, tn_ref scale,
                                tn_clipnorm_options o)
{
    const tn_ref in[] = { sumsq, clip, scale, o.loss };
    tn_ref out[3] = { TN_NONE, TN_NONE, TN_NONE };
    tn_graph_add(g, file, line, &tn_op_clipnorm, NULL, in, 4, out);
    return (tn_clipnorm_result){ .coefficient = out[0], .ok = out[1], .norm = out[2] };
}
