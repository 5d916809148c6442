/* A small store and the optimizer's plan over it, for the tests of everything that moves parameters. The store has two
 * buckets and tensors of every kind that matters: a matrix, a vector, factors on the learning rate, forced and
 * forbidden decay, lengths that need padding and one that spans several tiles. */
#ifndef TN_APPLY_H
#define TN_APPLY_H

#include "optim/optim.h"
#include "testlib.h"

typedef struct tn_apply {
    tn_store *store;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
} tn_apply;

void tn_apply_open(tn_apply *a, const tn_optim_options *o, int threads);
void tn_apply_close(tn_apply *a);

/* Normal numbers times `size` in the gradient of every tensor; the same for the same step. */
void tn_apply_draw(tn_apply *a, int step, float size);
/* Sets the scalars and the loss and runs once; returns ok. */
bool tn_apply_run(tn_apply *a, const tn_optim_scalars *v, float loss);
float tn_apply_norm(tn_apply *a);

/* Elements of all trainable tensors, one after the other, without the padding. */
int64_t tn_apply_count(const tn_apply *a);
typedef enum tn_apply_array { TN_APPLY_PARAM, TN_APPLY_GRAD, TN_APPLY_M, TN_APPLY_V } tn_apply_array;
void tn_apply_read(const tn_apply *a, tn_apply_array which, double *x);
/* Learning rate factor of each element, and 1 or 0 for decay. */
void tn_apply_groups(const tn_apply *a, double *lr, double *decay);
/* Fails unless every tensor has max|x - ref| <= tolerance * max|ref|. */
void tn_apply_compare(const tn_apply *a, tn_apply_array which, const double *ref, double tolerance);

/* A copy of parameters and moments, padding included. */
typedef struct tn_apply_copy {
    size_t bytes;
    unsigned char *data;
} tn_apply_copy;
tn_apply_copy tn_apply_save(const tn_apply *a);
bool tn_apply_same(const tn_apply *a, tn_apply_copy c); /* frees c */
bool tn_apply_grads_zero(const tn_apply *a);

/* Checks shared by the optimizers: NaN and Inf in each place leave all bits; 1 thread = 2 threads; no allocation. */
void tn_apply_check_refused(const tn_optim_options *o, const tn_optim_scalars *v);
void tn_apply_check_threads(const tn_optim_options *o, const tn_optim_scalars *v);

#endif
