/* Resonance: a coupling of the eigenstates where they are read; the recurrence itself stays diagonal. It is real and the
 * same for real and imaginary parts, so it is folded into whatever matrix meets the states: w_out (R c) = (w_out R) c,
 * a small product per step. Cells and heads are groups of states that do not couple.
 *     blockdiag    s = R c, R (cells heads, k/heads, k/heads) free, near the identity at first
 *     dense_frob   s = R^T c, R = 1 + eps M / (|M| + 1e-8), M (cells, k, k), |.| the Frobenius norm of a cell's M */
#include "models/ten/ten.h"

tn_ref ten_resonance_param(ten_net *n)
{
    const ten_config *c = n->c;
    if (c->resonance == TEN_RESONANCE_NONE) return TN_NONE;
    if (c->resonance == TEN_RESONANCE_DENSE)
        return tn_param(n->g, "resonance", tn_shape(c->cells, c->k, c->k), tn_normal(1), .no_decay = true);
    const int64_t k = c->k / c->heads;
    return tn_param(n->g, "resonance", tn_shape(c->cells * c->heads, k, k), ten_init_blocks(), .no_decay = true);
}

/* eps M / (|M| + 1e-8), cell by cell. */
static tn_ref unit_coupling(ten_net *n, tn_ref m)
{
    tn_graph *g = n->g;
    const int64_t cells = n->c->cells, k = n->c->k;
    const tn_ref squares = tn_sum(g, tn_square(g, tn_reshape(g, m, tn_shape(cells, k * k))), 1);
    const tn_ref norm = tn_affine(g, tn_sqrt(g, squares), 1, 1e-8f);
    return tn_scale(g, tn_div(g, m, tn_reshape(g, norm, tn_shape(cells, 1, 1))), n->c->resonance_eps);
}

tn_ref ten_resonate(ten_net *n, tn_ref x, tn_ref resonance, bool fold)
{
    tn_graph *g = n->g;
    if (!resonance.id || tn_graph_status(g) != TN_OK) return x;
    const bool dense = n->c->resonance == TEN_RESONANCE_DENSE;
    const int64_t G = tn_ref_dim(g, resonance, 0), k = tn_ref_dim(g, resonance, 1);
    const int64_t rows = tn_ref_dim(g, x, 0), parts = tn_ref_dim(g, x, 1) / (G * k); /* real, imaginary */
    const tn_ref r = tn_reshape(g, dense ? unit_coupling(n, resonance) : resonance, tn_shape(1, G, k, k));
    const tn_ref by_group = tn_transpose(g, tn_reshape(g, x, tn_shape(rows, parts, G, k)), 1, 2, 0, 3);
    const tn_ref y = tn_matmul(g, by_group, r, .transpose_b = dense == fold);
    const tn_ref back = tn_reshape(g, tn_transpose(g, y, 2, 0, 1, 3), tn_shape(rows, parts * G * k));
    return dense ? tn_add(g, x, back) : back;
}
