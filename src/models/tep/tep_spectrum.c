/* The largest singular value of a matrix, followed by power iteration while training moves the matrix. */
#include "models/tep/tep.h"

enum { ITERATIONS = 1 };

/* v <- w^T (w v) / |w v|, whose length tends to sigma from below. The direction stays in the store from step to step. It is zero
 * at first: a grain of a fixed vector gives it a start, and keeps it from resting where it is orthogonal to what grows. */
tn_ref tep_sigma(tn_graph *g, tn_ref w, const char *name)
{
    const tn_ref fixed = tn_stop_gradient(g, w);
    const tn_ref state = tn_state(g, name, tn_shape(1, tn_ref_dim(g, w, 1)), TN_F32);
    tn_ref v = tn_l2_normalize(g, tn_affine(g, state, 1.f, 1e-3f), 1e-20f), pulled = v;
    for (int i = 0; i < ITERATIONS; i++) {
        pulled = tn_matmul(g, tn_l2_normalize(g, tn_linear(g, v, fixed), 1e-20f), fixed);
        v = tn_l2_normalize(g, pulled, 1e-20f);
    }
    if (tn_graph_get_options(g)->training) tn_assign(g, state, v);
    return tn_clamp_min(g, tn_sqrt(g, tn_sum(g, tn_square(g, pulled), -1)), 1e-6f);
}
