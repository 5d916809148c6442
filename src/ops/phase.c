/* Phases of solves. Equilibrium propagation solves once in the forward kernel (free) and again in the backward kernel (nudged, with the
 * one product that makes the gradients of the map's weights); an implicit gradient solves a linear system there (adjoint). Unrolled
 * steps and gradients of one step have no phase of their own. */
#include "ops/phase.h"

#include "ops/loop/loop_body.h"
#include "ops/relax/relax.h"

static const char *phase_of(tn_loop_grad grad, bool backward)
{
    static const char *const names[][2] = { [TN_LOOP_BPTT] = { NULL, NULL },
                                            [TN_LOOP_IMPLICIT] = { "free solve", "adjoint solve" },
                                            [TN_LOOP_ONE_STEP] = { NULL, NULL },
                                            [TN_LOOP_EP] = { "free solve", "nudged solve" } };
    return names[grad][backward];
}

const char *tn_op_phase(const tn_op *op, const void *attr, bool backward)
{
    if (op == &tn_op_relax) return phase_of(((const tn_relax_attr *)attr)->grad, backward);
    if (op != &tn_op_loop) return NULL;
    const tn_loop_body *b = ((const tn_loop_attr *)attr)->body;
    return b->solve ? phase_of(b->grad, backward) : NULL;
}
