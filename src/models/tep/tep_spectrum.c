/* Keeps maps contracting: the largest singular value of a matrix, tracked by power iteration during training, for maps
 * that are scaled by it; and a penalty on the slope of any map. */
#include "models/tep/tep.h"

/* Of a step. One would follow a matrix that moves slowly; the first steps of Adam turn its largest direction altogether, and then
 * fewer see so little of sigma that a map which relies on it stops contracting. */
enum { ITERATIONS = 8, SQUARINGS = 13 }; /* the latter where sigma is differentiated */

/* v <- (w^T w)^(2^SQUARINGS) v. A gradient of sigma holds v fixed, which is right only where v is the largest direction itself: with the next
 * singular value 3 % below, 64 steps one by one leave a seventieth of it in v, and the gradient is a tenth off. */
static tn_ref largest_direction(tn_graph *g, tn_ref w, tn_ref v, float tiny)
{
    const int64_t k = tn_ref_dim(g, w, 1);
    tn_ref p = tn_matmul(g, tn_transpose(g, w, 1, 0), w);
    for (int i = 0; i < SQUARINGS; i++) {
        p = tn_reshape(g, tn_l2_normalize(g, tn_reshape(g, p, tn_shape(1, k * k)), tiny), tn_shape(k, k));
        p = tn_matmul(g, p, p);
    }
    return tn_l2_normalize(g, tn_matmul(g, v, p), tiny);
}

static tn_ref follow_direction(tn_graph *g, tn_ref w, tn_ref v, float tiny)
{
    for (int i = 1; i < ITERATIONS; i++) v = tn_l2_normalize(g, tn_matmul(g, tn_linear(g, v, w), w), tiny);
    return v;
}

/* v <- w^T w v; |w^T u| of u = w v / |w v| tends to sigma from below. The direction stays in the store from step to step. It is
 * zero at first: a grain of a fixed vector gives it a start, and keeps it from resting where it is orthogonal to what grows. */
tn_ref tep_sigma(const tep_net *n, tn_ref w, const char *name)
{
    tn_graph *g = n->g;
    const float tiny = 1e-20f;
    const tn_ref fixed = tn_stop_gradient(g, w), last = n->c->through_sigma ? w : fixed;
    const tn_ref state = tn_state(g, name, tn_shape(1, tn_ref_dim(g, w, 1)), TN_F32);
    const tn_ref start = tn_l2_normalize(g, tn_affine(g, state, 1.f, 1e-3f), tiny);
    const tn_ref v =
        n->c->through_sigma ? largest_direction(g, fixed, start, tiny) : follow_direction(g, fixed, start, tiny);
    const tn_ref pulled = tn_matmul(g, tn_l2_normalize(g, tn_linear(g, v, last), tiny), last);
    if (tn_graph_get_options(g)->training) tn_assign(g, state, tn_l2_normalize(g, tn_stop_gradient(g, pulled), tiny));
    return tn_clamp_min(g, tn_sqrt(g, tn_sum(g, tn_square(g, pulled), -1)), 1e-6f);
}

/* J v by a difference of the map along v, which an ordinary backward pass differentiates. Dropout of ones draws the v. */
tn_ref tep_slope_penalty(const tep_net *n, const tep_map *m, tn_ref h)
{
    tn_graph *g = n->g;
    const float step = 0.01f; /* states are of size 1: small for the map, large for f32 */
    if (n->c->jacobian <= 0 || !tn_in(n->b, "labels").id || !tn_graph_get_options(g)->training) return TN_NONE;
    const tn_ref v = tn_affine(g, tn_dropout(g, tn_fill(g, m->state, TN_F32, 1.f), 0.5f), 1.f, -1.f);
    const tn_ref rest = tn_stop_gradient(g, h), at[] = { rest, tn_add(g, rest, tn_scale(g, v, step)) };
    tn_ref f[2];
    for (int i = 0; i < 2; i++)
        m->build(g, &(tn_body_io){ .state = &at[i], .consts = m->consts, .next = &f[i] }, (void *)(uintptr_t)n->c);
    tn_ref moved = tn_sub(g, f[1], f[0]);
    if (tn_in(n->b, "count").id) moved = tn_live(g, moved, tn_in(n->b, "count"));
    const float per_sample = n->c->jacobian / (step * step) / ((float)tn_dims_count(m->state) / (float)n->b->batch);
    const tn_ref sum = tn_reshape(g, tn_scale(g, tn_sum_all(g, tn_square(g, moved)), per_sample), tn_shape(1));
    return tn_sum_all(g, tn_div(g, sum, tn_clamp_min(g, tep_sample_count(n), 1.f)));
}
