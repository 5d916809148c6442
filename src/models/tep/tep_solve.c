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
    const tn_ref sum = tn_reshape(g, tep_cost(cost->net, g, io->state[0], &inside, TN_NONE, true), tn_shape(1));
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

/* Of the training set; without data, those of the batch. */
static int64_t samples_of(const tep_net *n)
{
    const double samples = tn_number(n->b, "samples");
    return samples >= 1 ? (int64_t)samples : n->b->batch;
}

/* Zeros, or where the samples of this batch came to rest in the last epoch. */
static tn_ref first_guess(const tep_net *n, const tep_map *m, tn_ref *cache)
{
    tn_dims all = m->state;
    *cache = TN_NONE;
    if (!n->c->cache || !tn_in(n->b, "sample").id) return tn_fill(n->g, m->state, TN_F32, 0.f);
    all.dim[0] = samples_of(n);
    *cache = tn_cache(n->g, "equilibria", all, TN_F32);
    return tn_gather_rows(n->g, *cache, tn_in(n->b, "sample"));
}

static void remember(const tep_net *n, tn_ref cache, tn_ref before, tn_ref after)
{
    tn_graph *g = n->g;
    if (!cache.id || !tn_graph_get_options(g)->training) return;
    const tn_ref moved = tn_sub(g, tn_stop_gradient(g, after), before); /* 0 in padding, which says sample 0 */
    tn_assign(g, cache, tn_add(g, cache, tn_scatter_rows(g, moved, tn_in(n->b, "sample"), samples_of(n))));
}

/* --- the solve ------------------------------------------------------------------------------------------------------- */

/* What both ways of solving are given, and what they count. */
typedef struct solve {
    tn_loop_grad grad;
    bool centred, proxy, at_rest;
    tn_loop_solver solver;
    tn_ref h0, rtol, tol, damping;
    tep_target target; /* ep: the cost, its factor and strength */
    tn_ref ratio, beta, move;
    tn_ref steps, nudged_steps, adjoint_steps, residuals, signal; /* made */
} solve;

static tn_loop_grad gradient_of(const tep_net *n)
{
    static const tn_loop_grad kinds[] = { TN_LOOP_EP, TN_LOOP_EP, TN_LOOP_IMPLICIT, TN_LOOP_ONE_STEP, TN_LOOP_BPTT };
    return tn_in(n->b, "labels").id && tn_graph_get_options(n->g)->training ? kinds[n->c->grad] : TN_LOOP_ONE_STEP;
}

static solve solve_of(const tep_net *n)
{
    tn_graph *g = n->g;
    const tep_config *c = n->c;
    solve s = { .grad = gradient_of(n),
                .centred = c->grad == TEP_EP_CENTRED,
                .solver = c->anderson ? TN_SOLVE_ANDERSON : TN_SOLVE_PICARD };
    if (c->faithful) s.tol = tn_scalar(g, "tol", c->tol);
    else s.rtol = tn_scalar(g, "rtol", c->rtol);
    if (c->mode != TEP_TOROIDAL) s.damping = tn_scalar(g, "damping", c->damping); /* alpha is its own */
    if (s.grad != TN_LOOP_EP) return s;
    s.proxy = c->faithful;
    s.at_rest = c->at_rest;
    if (c->nudge_rtol > 0 && !c->faithful) s.move = tn_scalar(g, "nudge_rtol", c->nudge_rtol);
    s.target = tep_target_of(n);
    s.ratio = ratio(n);
    s.beta = tn_div(g, tn_scalar(g, "beta", c->beta), s.ratio);
    return s;
}

static tn_ref by_loop(const tep_net *n, const tep_map *m, solve *s)
{
    const tep_config *c = n->c;
    cost_body inner = { .net = n, .outside = s->target };
    const tn_body body = { m->build, (void *)(uintptr_t)c }, cost = { nudging, &inner };
    tn_ref costs[MOST_COST], *list[MOST_COST];
    const int k = list_target(&inner.outside, list);
    uint64_t per_sample = 0;
    for (int i = 0; i < k; i++) {
        costs[i] = *list[i];
        if (list[i] == &inner.outside.labels || list[i] == &inner.outside.weights || list[i] == &inner.outside.targets)
            per_sample |= (uint64_t)1 << i;
    }
    costs[k] = s->ratio;
    return tn_loop(n->g, body, .state = &s->h0, .n_state = 1, .consts = m->consts, .n_consts = m->n,
                   .sample_consts = m->per_sample, .steps = c->iterations, .grad = s->grad, .rtol = s->rtol,
                   .tol = s->tol, .damping = s->damping, .cost = &cost, .cost_consts = costs, .n_cost_consts = k + 1,
                   .sample_cost_consts = per_sample, .beta = s->beta, .centred = s->centred, .mean = true,
                   .proxy = s->proxy, .at_rest = s->at_rest, .move = s->move, .count = tn_in(n->b, "count"),
                   .solver = s->solver, .memory = (int)c->memory, .free_steps = &s->steps,
                   .nudged_steps = &s->nudged_steps, .adjoint_steps = &s->adjoint_steps, .residuals = &s->residuals,
                   .signal = &s->signal);
}

/* The maps that have a kernel of their own, with the cost it knows. */
static tn_ref by_relax(const tep_net *n, const tep_map *m, solve *s)
{
    tn_graph *g = n->g;
    const tn_ref *k = m->consts;
    tn_relax_options o = { .kind = m->kind,
                           .h0 = s->h0,
                           .steps = n->c->iterations,
                           .grad = s->grad,
                           .rtol = s->rtol,
                           .tol = s->tol,
                           .damping = s->damping,
                           .beta = s->beta,
                           .centred = s->centred,
                           .mean = true,
                           .proxy = s->proxy,
                           .at_rest = s->at_rest,
                           .move = s->move,
                           .count = tn_in(n->b, "count"),
                           .solver = s->solver,
                           .memory = (int)n->c->memory,
                           .free_steps = &s->steps,
                           .nudged_steps = &s->nudged_steps,
                           .adjoint_steps = &s->adjoint_steps,
                           .residuals = &s->residuals,
                           .signal = &s->signal };
    if (m->kind == TN_RELAX_BLOCK) {
        o.norm2_gain = k[1], o.norm2_bias = k[2];
        o.w1 = k[3], o.b1 = k[4], o.w2 = k[5], o.b2 = k[6];
        o.norm_gain = k[7], o.norm_bias = k[8];
    } else if (m->kind == TN_RELAX_HOPFIELD) {
        o.w1 = k[1];
    } else {
        o.w1 = k[1], o.b1 = k[2], o.scale = k[3];
    }
    if (s->grad == TN_LOOP_EP) {
        const tn_ref each = s->target.weights.id ? s->target.weights : tn_fill(g, tn_shape(n->b->batch), TN_F32, 1.f);
        o.head_w = s->target.head_w, o.head_b = s->target.head_b;
        o.labels = s->target.labels, o.weights = tn_mul(g, each, s->ratio);
    }
    return tn_relax_(g, __FILE__, __LINE__, k[0], o);
}

tn_ref tep_solve(tep_net *n, const tep_map *m)
{
    tn_graph *g = n->g;
    tn_ref cache;
    solve s = solve_of(n);
    s.h0 = first_guess(n, m, &cache);
    const tn_ref h = m->fused && !s.target.targets.id ? by_relax(n, m, &s) : by_loop(n, m, &s);
    remember(n, cache, s.h0, h);
    tn_output(g, "steps", s.steps);
    tn_output(g, "residuals", s.residuals);
    tn_output(g, "state", h);
    if (s.grad == TN_LOOP_EP) tn_output(g, "nudged_steps", s.nudged_steps);
    if (s.grad == TN_LOOP_EP) tn_output(g, "signal", s.signal);
    if (s.grad == TN_LOOP_IMPLICIT) tn_output(g, "adjoint_steps", s.adjoint_steps);
    return h;
}
