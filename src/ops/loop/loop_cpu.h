/* What the files of loop on the CPU share. */
#ifndef TN_OPS_LOOP_CPU_H
#define TN_OPS_LOOP_CPU_H

#include "ops/loop/loop_run.h"

/* Samples that are there, refused if they are more than the batch has. */
tn_status loop_count(const tn_call *c, const tn_loop_body *b, int64_t *count);
float loop_damping(const tn_call *c, const tn_loop_body *b);
/* Iterations and the largest residual, where they are asked for. */
void loop_put_numbers(const tn_call *c, const tn_loop_body *b, int64_t taken, float residual);

/* As in loop_device. */
tn_status loop_solve(const tn_call *c, const tn_loop_body *b, loop_work *w);
tn_status loop_adjoint(const tn_call *c, const tn_loop_body *b, loop_work *w, const float *g);
tn_status loop_propagate(const tn_call *c, const tn_loop_body *b, loop_work *w);

#endif
