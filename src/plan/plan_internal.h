/* The plan's own structures, shared by compiling (plan.c) and running (frame.c, bound.c). */
#ifndef TN_PLAN_INTERNAL_H
#define TN_PLAN_INTERNAL_H

#include "plan/place.h"
#include "plan/plan.h"

/* An argument before its pointers are known. */
typedef struct tn_arg_template {
    tn_arg arg;
    int slot, live_slot;        /* -1: none */
    size_t offset, live_offset; /* bytes */
} tn_arg_template;

typedef struct tn_step {
    const tn_node *node;
    tn_kernel *kernel;
    int n_in, n_out;
    int in, out, dout, din; /* first argument of each list */
    int work_slot;
    size_t work_bytes;
    size_t host_at; /* bytes, in the part of the frame that is for kernels */
    int32_t region;
    bool backward;
    double flops;
    bool varies;  /* they are the most there can be */
    double bytes; /* of its arguments, each once */
} tn_step;

struct tn_plan {
    tn_graph *graph; /* owned */
    tn_placement place;
    tn_device device;
    int threads;
    bool portable; /* opt.gemm_kernels is off */
    tn_arg_template *arg;
    int n_args;
    tn_step *step;
    size_t n_steps;
    size_t host_bytes; /* that part: memory of the host that kernels asked for */
    size_t prologue;   /* the first steps pack weights: a run after another one may leave them out */
    double flops;
    bool varies;          /* those of a step do */
    const tn_op **decode; /* (n_steps) their ops, where several may run as one kernel (plan/decode), or NULL */
};

/* A frame: resolved arguments and calls, in memory of tn_plan_frame_bytes. */
typedef struct tn_frame {
    tn_arg *arg;
    tn_call *call;
} tn_frame;

tn_frame tn_frame_parts(const tn_plan *p, const void *frame);

/* A whole run with a look at everything (finite.c). */
tn_status tn__run_checked(const tn_plan *p, const void *frame, void *const *externs, const tn_backend *backend,
                          void *queue, tn_finding *f);

#endif
