/* The largest singular value of a matrix, followed by power iteration while training moves the matrix. */
#include "models/tep/tep.h"

/* Of a step. One would follow a matrix that moves slowly; the first steps of Adam turn its largest direction altogether, and then
 * fewer see so little of sigma that a map which relies on it stops contracting. */
enum { ITERATIONS = 8 };

/* v <- w^T w v; |w^T u| of u = w v / |w v| tends to sigma from below. The direction stays in the store from step to step. It is
 * zero at first: a grain of a fixed vector gives it a start, and keeps it from resting where it is orthogonal to what grows. */
tn_ref tep_sigma(tn_graph *g, tn_ref w, const char *name)
{
    const float tiny = 1e-20f;
    const tn_ref fixed = tn_stop_gradient(g, w);
    const tn_ref state = tn_state(g, name, tn_shape(1, tn_ref_dim(g, w, 1)), TN_F32);
    tn_ref v = tn_l2_normalize(g, tn_affine(g, state, 1.f, 1e-3f), tiny);
    for (int i = 1; i < ITERATIONS; i++) v = tn_l2_normalize(g, tn_matmul(g, tn_linear(g, v, fixed), fixed), tiny);
    const tn_ref pulled = tn_matmul(g, tn_l2_normalize(g, tn_linear(g, v, fixed), tiny), fixed);
    if (tn_graph_get_options(g)->training) tn_assign(g, state, tn_l2_normalize(g, pulled, tiny));
    return tn_clamp_min(g, tn_sqrt(g, tn_sum(g, tn_square(g, pulled), -1)), 1e-6f);
}
