/* Switches of the planner. */
#include "plan/plan.h"

const tn_setting tn_plan_switches[] = {
    TN_SETTING_SWITCH("opt.gemm_kernels", "on",
                      "matrix products in the processor's own instructions (off: portable C)"),
    TN_SETTING_SWITCH("opt.pack_weights", "on",
                      "weights that several products use are packed once for all of them (off: by each)"),
    TN_SETTING_SWITCH(
        "opt.late_loss", "on",
        "a loss is made together with its gradients, in one pass over the logits (off: the logits are made twice)"),
    TN_SETTING_SWITCH(
        "opt.compact", "on",
        "samples of a solve that are there leave its batch (off: they stay in it and are computed in vain)"),
    TN_SETTING_SWITCH("opt.replay", "on",
                      "CUDA: a step is recorded once and replayed whole (off: its kernels are queued one by one)"),
    TN_SETTING_SWITCH("opt.sum_in_norm", "on",
                      "a norm makes the residual's sum that it reads, in one pass (off: a sum, then a norm)"),
    TN_SETTING_SWITCH("opt.silu_in_conv", "on",
                      "CUDA: silu of a causal convolution in its kernel (off: in a pass over memory)"),
    TN_SETTING_SWITCH(
        "opt.write_in_outer", "on",
        "CUDA: a matrix-state recurrence multiplies its values by their write strengths (off: in a pass over memory)"),
    TN_SETTING_SWITCH("opt.gates_in_outer", "on",
                      "CUDA: ... and makes decays and strengths of what their activations are given (off: those are "
                      "ops of their own)"),
    TN_SETTING_SWITCH(
        "opt.keep_states", "on",
        "CUDA: a matrix-state recurrence keeps its states at every 64th token for the backward pass (off: made twice)"),
    TN_SETTING_SWITCH(
        "opt.repeat", "on",
        "CUDA: a recorded solve repeats one iteration until all samples are there (off: all iterations are recorded)"),
    TN_SETTING_SWITCH(
        "opt.slopes", "on",
        "CUDA: a gradient is multiplied by gelu's slope in the product that makes it (off: in a pass over memory)"),
    TN_SETTING_SWITCH(
        "opt.column_sums", "on",
        "CUDA: a bias' gradient is summed by the kernel that makes the rows (off: in a pass over memory)"),
    TN_SETTING_SWITCH("opt.shared_gradients", "on",
                      "the terms of a sum have one gradient in one place (off: each its own copy)"),
    TN_SETTING_SWITCH(
        "opt.cudnn", "on",
        "CUDA: attention's forward pass by cuDNN where it is there and measures faster (off: by our own kernels)"),
    TN_SETTING_SWITCH(
        "opt.decode_half", "on",
        "CUDA: decoding with weights, activations and caches of bf16 where compute= says so (off: in f32)"),
    TN_SETTING_SWITCH("opt.decode_ahead", "on",
                      "CUDA: greedy decoding chooses on the device and queues tokens ahead (off: the logits come to "
                      "the host for each)"),
    TN_SETTING_SWITCH(
        "opt.decode_fused", "on",
        "CUDA: a single sequence's token in a few kernels that do many nodes each (off: a kernel for each node)"),
    TN_SETTING_SWITCH("opt.inplace", "on", "elementwise ops reuse the memory of an input that is not needed again"),
};
const size_t tn_plan_switches_n = sizeof tn_plan_switches / sizeof *tn_plan_switches;
