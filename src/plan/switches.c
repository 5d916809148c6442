/* Switches of the planner, the optimizer and the blocks that models share. */
#include "plan/plan.h"

const tn_setting tn_plan_switches[] = {
    TN_SETTING_SWITCH("opt.gemm_kernels", "on",
                      "matrix products with the processor's vector and matrix instructions (off: portable C)"),
    TN_SETTING_SWITCH("opt.pack_weights", "on",
                      "pack a weight once for all products that use it (off: each product packs it)"),
    TN_SETTING_SWITCH("opt.late_loss", "on",
                      "compute the loss and its gradients in one pass over the logits (off: compute the logits twice)"),
    TN_SETTING_SWITCH("opt.compact", "on",
                      "drop converged samples from the batch of a solve (off: keep computing them)"),
    TN_SETTING_SWITCH("opt.replay", "on",
                      "CUDA: capture a step as a CUDA graph and replay it (off: launch its kernels one by one)"),
    TN_SETTING_SWITCH("opt.pinned_uploads", "on",
                      "CUDA: upload batches through pinned memory, without waiting (off: from pageable memory)"),
    TN_SETTING_SWITCH("opt.sum_in_norm", "on",
                      "add the residual inside the norm that reads it (off: an addition, then a norm)"),
    TN_SETTING_SWITCH("opt.silu_in_conv", "on",
                      "CUDA: silu inside the kernel of a causal convolution (off: a separate pass over memory)"),
    TN_SETTING_SWITCH("opt.write_in_outer", "on",
                      "CUDA: write strengths inside the matrix-state recurrence (off: a separate pass over memory)"),
    TN_SETTING_SWITCH(
        "opt.gates_in_outer", "on",
        "CUDA: activations of decays and write strengths inside the matrix-state recurrence (off: separate ops)"),
    TN_SETTING_SWITCH(
        "opt.keep_states", "on",
        "CUDA: keep every 64th state of a matrix-state recurrence for the backward pass (off: recompute them)"),
    TN_SETTING_SWITCH(
        "opt.repeat", "on",
        "CUDA: a captured solve repeats one iteration until all samples converge (off: all iterations are captured)"),
    TN_SETTING_SWITCH(
        "opt.slopes", "on",
        "CUDA: multiply by gelu's derivative inside the matrix product (off: a separate pass over memory)"),
    TN_SETTING_SWITCH(
        "opt.column_sums", "on",
        "CUDA: sum a bias gradient in the kernel that computes its rows (off: a separate pass over memory)"),
    TN_SETTING_SWITCH("opt.shared_gradients", "on", "the terms of a sum share one gradient (off: a copy for each)"),
    TN_SETTING_SWITCH(
        "opt.cudnn", "on",
        "CUDA: cuDNN's attention forward kernel where it is installed and measures faster (off: our own kernels)"),
    TN_SETTING_SWITCH(
        "opt.decode_half", "on",
        "CUDA: decode with weights, activations and caches in the half of compute=bf16 or f16 (off: f32)"),
    TN_SETTING_SWITCH(
        "opt.decode_ahead", "on",
        "CUDA: greedy decoding picks tokens on the device and queues them ahead (off: logits go to the host)"),
    TN_SETTING_SWITCH("opt.decode_fused", "on",
                      "CUDA: decode one sequence in one fused kernel per token (off: a kernel for each op)"),
    TN_SETTING_SWITCH(
        "opt.keep_costly", "on",
        "layers that are recomputed (plan.recompute) keep what attention gave (off: attention again too)"),
    TN_SETTING_SWITCH(
        "opt.fused_optimizer", "on",
        "AdamW over all tensors in one op that clears the gradients it reads (off: an op for each tensor, "
        "then a pass that clears)"),
    TN_SETTING_SWITCH("opt.joint_projections", "on",
                      "one product for all matrices that read a layer's input (off: a product for each)"),
    TN_SETTING_SWITCH("opt.views", "on",
                      "ops read and write parts of a tensor where they lie (off: through contiguous copies)"),
    TN_SETTING_SWITCH("opt.inplace", "on", "elementwise ops reuse the memory of an input that is not needed again"),
};
const size_t tn_plan_switches_n = sizeof tn_plan_switches / sizeof *tn_plan_switches;
