/* For ops: rules by which a node absorbs its neighbours (tn_fusion.absorbs), applied by plan/passes/absorb.c. */
#ifndef TN_OPS_ABSORB_H
#define TN_OPS_ABSORB_H

#include <tenon/op.h>

/* A node that may take neighbours in before the reverse pass (CUDA). A rule changes what it finds here to what the node will
 * be; those that tn_absorb_maker and tn_absorb_reader have found go. */
typedef struct tn_absorbing {
    tn_graph *g;
    tn_sig sig;  /* of the node as it is */
    bool trains; /* a backward pass follows */
    void *attr;
    tn_ref in[TN_MAX_ARGS], out[TN_MAX_ARGS];
    int n_in, n_out;
    size_t node, found[4]; /* for absorb.c, like the next two */
    int n_found;
    const struct tn_absorb_pass *pass;
} tn_absorbing;

typedef struct tn_absorb_rule {
    const char *switch_name;
    bool (*takes)(tn_absorbing *a); /* false: all stays */
} tn_absorb_rule;

/* Is x made whole by a node that computes f, for this node alone or one found before? Then its operands. */
bool tn_absorb_maker(tn_absorbing *a, tn_ref x, tn_function f, tn_ref operand[2]);
/* What a node that computes f makes of output 0, which nobody else reads, in the same type; or none. */
tn_ref tn_absorb_reader(tn_absorbing *a, tn_function f);
tn_ref tn_absorb_base(const tn_absorbing *a, tn_ref x); /* the tensor that x shows whole in another shape; or none */
tn_ref tn_absorb_column(tn_absorbing *a, tn_ref x);     /* x with a last axis of 1 more; or none */
tn_ref tn_absorb_result(tn_absorbing *a, tn_dtype t, tn_dims d); /* a tensor for a further output; or none */
bool tn_absorb_live(const tn_absorbing *a, tn_ref x);            /* only some rows may be alive */
/* Rows of x are contiguous and begin at multiples of so many numbers. */
bool tn_absorb_aligned(const tn_absorbing *a, tn_ref x, int64_t numbers);

#endif
