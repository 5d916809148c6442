/* The solve of a map: where it starts, how it stops, which gradient it has, what it counts.
 *
 * Equilibrium propagation does not look at the gradient of the loss that reaches the state; it nudges by the cost itself, a sum
 * over samples, and takes a mean. What a mean over samples leaves out comes in through the cost: with
 *
 *     C' = r C,   beta' = beta / r,   r = loss_scale * samples / labels that count
 *
 * the nudge is beta dC/dh as asked, and the adjoint (h* - h_beta) / (beta' samples) has the factor of the loss as it is
 * differentiated, with several labels to a sample and under loss scaling. */
#include "models/tep/tep.h"

/* The cost as a body: the same function on the body's own tensors. */
typedef struct cost_body {
    const tep_net *net;
    tep_target outside; /* which of them are there */
} cost_body;

enum { MOST_COST = 8 };

/* The tensors of a target that are there, as pointers, in a fixed order. */
static int list_target(tep_target *t, tn_ref **list)
{
    tn_ref *const all[] = { &t->head_w, &t->head_b, &t->labels, &t->weights, &t->value_w, &t->value_b, &t->targets };
    int n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->id) list[n++] = all[i];
    return n;
}

static void nudging(tn_graph *g, tn_body_io *io, void *user)
{
    const cost_body *cost = user;
    tep_target inside = cost->outside;
    tn_ref *list[MOST_COST];
    const int n = list_target(&inside, list);
    for (int i = 0; i < n; i++) *list[i] = io->consts[i];
    const tn_ref sum = tn_reshape(g, tep_cost(cost->net, g, io->carry[0], &inside, TN_NONE), tn_shape(1));
    io->ys[0] = tn_sum_all(g, tn_mul(g, sum, io->consts[n])); /* r */
}

/* loss_scale is the planner's name for what seeds the gradient of a loss. */
static tn_ref ratio(const tep_net *n)
{
    const tn_ref scale = tn_scalar(n->g, "loss_scale", 1.f);
    if (n->labels == 1) return scale;
    return tn_mul(n->g, scale, tn_div(n->g, tep_sample_count(n), tep_label_count(n)));
}

/* --- start and end ------------------------------------------------------------------------------------------------- */

/* Zeros, or where the samples of this batch came to rest in the last epoch. */
static tn_ref first_guess(const tep_net *n, const tep_map *m, tn_ref *cache)
{
    tn_dims all = m->state;
    *cache = TN_NONE;
    if (!n->c->cache || !n->b->sample.id) return tn_fill(n->g, m->state, TN_F32, 0.f);
    all.dim[0] = n->b->samples;
    *cache = tn_cache(n->g, "equilibria", all, TN_F32);
    return tn_gather_rows(n->g, *cache, n->b->sample);
}

static void remember(const tep_net *n, tn_ref cache, tn_ref before, tn_ref after)
{
    tn_graph *g = n->g;
    if (!cache.id || !tn_graph_get_options(g)->training) return;
    const tn_ref index = n->b->count.id ? tn_live(g, n->b->sample, n->b->count) : n->b->sample;
    const tn_ref moved = tn_sub(g, tn_stop_gradient(g, after), before);
    tn_assign(g, cache, tn_add(g, cache, tn_scatter_rows(g, moved, index, n->b->samples)));
}

/* --- the solve ------------------------------------------------------------------------------------------------------- */

static tn_loop_grad gradient_of(const tep_net *n)
{
    static const tn_loop_grad kinds[] = { TN_LOOP_EP, TN_LOOP_EP, TN_LOOP_IMPLICIT, TN_LOOP_ONE_STEP, TN_LOOP_BPTT };
    const tn_loop_grad kind = kinds[n->c->grad];
    if (kind == TN_LOOP_BPTT) return kind; /* samples that are there move on: also where no gradient is asked for */
    return n->b->labels.id && tn_graph_get_options(n->g)->training ? kind : TN_LOOP_ONE_STEP;
}

tn_ref tep_solve(tep_net *n, const tep_map *m)
{
    tn_graph *g = n->g;
    const tep_config *c = n->c;
    const tn_loop_grad grad = gradient_of(n);
    tn_ref cache, costs[MOST_COST], beta = TN_NONE, free_steps, nudged_steps, adjoint_steps, residuals, signal;
    const tn_ref h0 = first_guess(n, m, &cache);
    cost_body inner = { .net = n };
    const tn_body body = { m->build, (void *)(uintptr_t)c }, cost = { nudging, &inner };
    int n_costs = 0;
    uint64_t sample_costs = 0;
    if (grad == TN_LOOP_EP) {
        const tn_ref r = ratio(n);
        tn_ref *list[MOST_COST];
        inner.outside = tep_target_of(n);
        n_costs = list_target(&inner.outside, list);
        for (int i = 0; i < n_costs; i++) {
            costs[i] = *list[i];
            if (list[i] == &inner.outside.labels || list[i] == &inner.outside.weights || list[i] == &inner.outside.targets)
                sample_costs |= (uint64_t)1 << i;
        }
        costs[n_costs++] = r;
        beta = tn_div(g, tn_scalar(g, "beta", c->beta), r);
    }
    const tn_ref h = tn_loop(g, body, .carry = &h0, .n_carry = 1, .consts = m->consts, .n_consts = m->n,
                             .sample_consts = m->per_sample, .steps = c->iterations, .grad = grad,
                             .rtol = c->faithful ? TN_NONE : tn_scalar(g, "rtol", c->rtol),
                             .tol = c->faithful ? tn_scalar(g, "tol", c->tol) : TN_NONE,
                             .damping = c->mode == TEP_TOROIDAL ? TN_NONE : tn_scalar(g, "damping", c->damping),
                             .cost = &cost, .cost_consts = costs, .n_cost_consts = n_costs, .sample_cost_consts = sample_costs,
                             .beta = beta, .centred = c->grad == TEP_EP_CENTRED, .mean = true, .proxy = c->faithful && grad == TN_LOOP_EP,
                             .count = n->b->count, .solver = c->anderson ? TN_SOLVE_ANDERSON : TN_SOLVE_PICARD,
                             .memory = (int)c->memory, .free_steps = &free_steps, .nudged_steps = &nudged_steps,
                             .adjoint_steps = &adjoint_steps, .residuals = &residuals, .signal = &signal);
    remember(n, cache, h0, h);
    tn_output(g, "steps", free_steps);
    tn_output(g, "residuals", residuals);
    tn_output(g, "state", h);
    if (grad == TN_LOOP_EP) tn_output(g, "nudged_steps", nudged_steps);
    if (grad == TN_LOOP_EP) tn_output(g, "signal", signal);
    if (grad == TN_LOOP_IMPLICIT) tn_output(g, "adjoint_steps", adjoint_steps);
    return h;
}
