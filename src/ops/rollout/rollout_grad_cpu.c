/* rollout on the CPU, backward. */
#include "ops/rollout/rollout_cpu.h"

tn_kernel tn_rollout_backward_cpu;

size_t tn_rollout_backward_work(const tn_rollout_job *j)
{
    (void)j;
    return 0;
}

tn_status tn_rollout_backward_cpu(const tn_call *c)
{
    (void)c;
    return tn_error(TN_USAGE, "rollout has no backward pass yet");
}
