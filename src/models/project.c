/* Products of a layer's tokens with its matrices, and the plain ways to compute the same in a training step: a product for each of several
 * matrices, and for each time step. Evaluation and decoding always have one product. */
#include "models/blocks.h"

static bool is_plain(tn_graph *g, const char *name)
{
    return name && tn_graph_status(g) == TN_OK && tn_graph_get_options(g)->training && !tn_graph_switch(g, name);
}

bool tn_block_projects_apart(tn_graph *g) { return is_plain(g, "opt.joint_projections"); }

static void one_step(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->next[0] = tn_affine(g, io->state[0], 1, 1); /* a loop has a state; nobody reads this one */
    io->ys[0] = tn_linear(g, io->xs[0], io->consts[0]);
}

/* x (B,T,d), w (n,d) -> (B,T,n). */
static tn_ref by_steps(tn_graph *g, tn_ref x, tn_ref w)
{
    const tn_ref first = tn_transpose(g, x, 1, 0, 2), count = tn_fill(g, tn_shape(1), TN_F32, 0);
    tn_ref y = TN_NONE;
    tn_loop(g, ((tn_body){ .build = one_step }), .steps = tn_ref_dim(g, x, 1), .state = &count, .n_state = 1,
            .xs = &first, .n_xs = 1, .consts = &w, .n_consts = 1, .ys = &y, .n_ys = 1);
    return tn_transpose(g, y, 1, 0, 2);
}

tn_ref tn_block_product(tn_graph *g, tn_ref x, tn_ref w, const char *switch_name)
{
    return is_plain(g, switch_name) && tn_ref_dim(g, x, 1) > 1 ? by_steps(g, x, w) : tn_linear(g, x, w);
}

void tn_block_project(tn_graph *g, tn_ref u, tn_ref w, const int64_t *rows, int n, const char *switch_name, tn_ref *out)
{
    const bool apart = tn_block_projects_apart(g);
    const tn_ref all = apart ? TN_NONE : tn_block_product(g, u, w, switch_name);
    for (int64_t i = 0, at = 0; i < n; at += rows[i++])
        out[i] = apart ? tn_block_product(g, u, tn_slice(g, w, 0, at, rows[i]), switch_name)
                       : tn_slice(g, all, -1, at, rows[i]);
}
