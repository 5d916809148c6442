/* above on the CPU: one pass in the calling thread; the list is short next to the rows it stands for. */
#include "ops/above/above.h"

tn_kernel tn_above_forward_cpu;

tn_status tn_above_forward_cpu(const tn_call *c)
{
    const tn_above_attr *a = c->attr;
    const float *restrict x = c->in[0].data; /* (n) or (n,1), rows stride[0] apart */
    int32_t *restrict keep = c->out[0].data; /* (n) */
    const int64_t n = tn_arg_count(&c->in[0]), step = c->in[0].stride[0], out = c->out[0].stride[0];
    for (int64_t i = 0; i < n; i++) keep[i * out] = (x[i * step] > a->threshold) != a->invert;
    return TN_OK;
}
