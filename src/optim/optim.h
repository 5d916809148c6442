/* The optimizer's plan: the second half of a training step. The first half (forward and backward, once per accumulated
 * batch) adds to the store's gradients; this plan measures their norm, decides whether they are usable, moves the
 * parameters and leaves zero gradients behind. It reads no data and knows no model.
 *
 *   scalars  lr, decay, clip, scale; adamw: beta1, beta2, eps, opt_step; sgd: momentum            input  loss f32 (losses)
 *   outputs  grad_norm f32 (1): after `scale`, before clipping        ok i32 (1): 0 = not finite, nothing was changed
 *
 * `scale` is 1 / (loss_scale * batches accumulated). `opt_step` counts the steps that were applied, from 1: it does not
 * grow with a step that had ok = 0. The plan covers the buckets the store has when it is made; every trainable tensor
 * takes part, with or without a gradient (decay acts on both). */
#ifndef TN_OPTIM_OPTIM_H
#define TN_OPTIM_OPTIM_H

#include "plan/plan.h"

typedef enum tn_optim_kind { TN_ADAMW = 0, TN_SGD = 1 } tn_optim_kind;

typedef struct tn_optim_options {
    tn_optim_kind kind;
    bool nesterov;  /* sgd */
    bool decay_all; /* weight decay on every tensor, not only where the model says so */
    bool apart;     /* adamw: a node for each tensor, then a pass that clears the gradients (opt.fused_optimizer=off) */
    int64_t losses; /* how many are looked at, all of which must be finite; 0: 1 */
} tn_optim_options;

/* Gives the store the moments it needs and makes the plan. */
tn_status tn_optim_plan(tn_store *st, const tn_optim_options *o, tn_device device, int threads, tn_plan **out);

typedef struct tn_optim_scalars {
    float lr, beta1, beta2, eps, momentum, decay;
    float clip;  /* 0: no limit */
    float scale; /* on the gradient */
    int64_t opt_step;
} tn_optim_scalars;

/* Sets those that the plan has; refuses numbers that would ruin the parameters, before any is set. */
tn_status tn_optim_set(tn_bound *b, const tn_optim_scalars *v);

#endif
