/* What a call of an op does that has several ways, where one of its directions says it: solves by what stops them. */
#ifndef TN_OPS_PHASE_H
#define TN_OPS_PHASE_H

#include <tenon/op.h>

/* "free solve", "nudged solve", "adjoint solve"; NULL: an op without such phases. */
const char *tn_op_phase(const tn_op *op, const void *attr, bool backward);

#endif
