/* relax: shape checks, gradient rule, cost, the row. */
#include "ops/relax/relax.h"

#include "base/status.h"
#include "ops/loop/loop_body.h"
#include "ops/relax/relax_cpu.h"

#include <math.h>

tn_status tn_relax_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out);

static uint64_t bit(int i) { return (uint64_t)1 << i; }

/* --- shapes ------------------------------------------------------------------------------------------------------- */

/* An optional input (needed ones are looked at before): floats of shape `want`. */
static tn_status check_floats(const tn_sig *s, int i, const char *name, tn_dims want)
{
    char text[64];
    if (s->in[i].absent) return TN_OK;
    if (tn_dtype_is_float(s->in[i].dtype) && tn_dims_equal(s->in[i].dims, want)) return TN_OK;
    return tn_error(TN_USAGE, "%s must be floats of shape %s", name, tn_dims_text(want, text, sizeof text));
}

static tn_status check_map(const tn_sig *s, const tn_relax_attr *a)
{
    const tn_dims x = s->in[TN_RELAX_A].dims, w1 = s->in[TN_RELAX_W1].dims;
    if ((unsigned)a->kind >= TN_RELAX_KINDS) return tn_error(TN_USAGE, "unknown kind %d: see relax.h", (int)a->kind);
    if (s->in[TN_RELAX_A].absent || x.rank != 2 || !tn_dtype_is_float(s->in[TN_RELAX_A].dtype) || x.dim[1] < 1)
        return tn_error(TN_USAGE, "a must be floats of shape (B,d): a row for each sample");
    if (s->in[TN_RELAX_W1].absent || w1.rank != 2 || w1.dim[1] != x.dim[1] || w1.dim[0] < 1)
        return tn_error(TN_USAGE, "w1 must be (f,%lld), with a (B,%lld)", (long long)x.dim[1], (long long)x.dim[1]);
    const tn_dims d = tn_shape(x.dim[1]), f = tn_shape(w1.dim[0]);
    const bool block = a->kind == TN_RELAX_BLOCK, hopfield = a->kind == TN_RELAX_HOPFIELD;
    if (hopfield && (w1.dim[0] != x.dim[1] || !s->in[TN_RELAX_B1].absent || !s->in[TN_RELAX_SCALE].absent))
        return tn_error(TN_USAGE, "hopfield has w1 (d,d) alone: leave out b1 and scale");
    if (block && s->in[TN_RELAX_W2].absent) return tn_error(TN_USAGE, "the block needs w2 (d,f)");
    if (!block && !hopfield && s->in[TN_RELAX_SCALE].absent) return tn_error(TN_USAGE, "the energy needs scale (1)");
    for (int i = TN_RELAX_W2; !block && i <= TN_RELAX_BIAS; i++)
        if (!s->in[i].absent)
            return tn_error(TN_USAGE, "only the block has more than w1, b1 and scale: leave out w2, b2 and the norms");
    TN_RETURN_IF(check_floats(s, TN_RELAX_W1, "w1", w1));
    TN_RETURN_IF(check_floats(s, TN_RELAX_B1, "b1", f));
    TN_RETURN_IF(check_floats(s, TN_RELAX_W2, "w2", tn_shape(d.dim[0], f.dim[0])));
    TN_RETURN_IF(check_floats(s, TN_RELAX_B2, "b2", d));
    TN_RETURN_IF(check_floats(s, TN_RELAX_GAIN2, "norm2_gain", d));
    TN_RETURN_IF(check_floats(s, TN_RELAX_BIAS2, "norm2_bias", d));
    TN_RETURN_IF(check_floats(s, TN_RELAX_GAIN, "norm_gain", d));
    TN_RETURN_IF(check_floats(s, TN_RELAX_BIAS, "norm_bias", d));
    TN_RETURN_IF(check_floats(s, TN_RELAX_SCALE, "scale", tn_shape(1)));
    return check_floats(s, TN_RELAX_H0, "h0", x);
}

static tn_status check_head(const tn_sig *s)
{
    const tn_dims x = s->in[TN_RELAX_A].dims, w = s->in[TN_RELAX_HEAD_W].dims, labels = s->in[TN_RELAX_LABELS].dims;
    if (s->in[TN_RELAX_HEAD_W].absent || s->in[TN_RELAX_LABELS].absent || s->in[TN_RELAX_BETA].absent)
        return tn_error(TN_USAGE, "ep needs head_w, labels and beta");
    if (w.rank != 2 || w.dim[1] != x.dim[1] || w.dim[0] < 1)
        return tn_error(TN_USAGE, "head_w must be (C,%lld): a row for each class", (long long)x.dim[1]);
    TN_RETURN_IF(check_floats(s, TN_RELAX_HEAD_W, "head_w", w));
    TN_RETURN_IF(check_floats(s, TN_RELAX_HEAD_B, "head_b", tn_shape(w.dim[0])));
    TN_RETURN_IF(check_floats(s, TN_RELAX_WEIGHTS, "weights", tn_shape(x.dim[0])));
    if (s->in[TN_RELAX_LABELS].dtype != TN_I32 || !tn_dims_equal(labels, tn_shape(x.dim[0])))
        return tn_error(TN_USAGE, "labels must be i32 of shape (%lld): one for each sample", (long long)x.dim[0]);
    return TN_OK;
}

static tn_status check_solve(const tn_sig *s, const tn_relax_attr *a)
{
    if (a->steps < 1) return tn_error(TN_USAGE, "a solve needs steps >= 1");
    tn_solve_options o = { .grad = a->grad, .solver = a->solver, .memory = a->memory };
    o.centred = a->centred, o.proxy = a->proxy, o.at_rest = a->at_rest;
    o.rtol = !s->in[TN_RELAX_RTOL].absent, o.tol = !s->in[TN_RELAX_TOL].absent;
    o.move = !s->in[TN_RELAX_MOVE].absent, o.count = s->in[TN_RELAX_COUNT];
    TN_RETURN_IF(tn_solve_check(&o));
    for (int i = TN_RELAX_RTOL; i <= TN_RELAX_MOVE; i++)
        if (!s->in[i].absent && (s->in[i].dtype != TN_F32 || tn_dims_count(s->in[i].dims) != 1))
            return tn_error(TN_USAGE, "rtol, tol, damping, beta and move are scalars");
    return TN_OK;
}

static tn_status relax_infer(tn_sig *s)
{
    const tn_relax_attr *a = s->attr;
    TN_RETURN_IF(check_map(s, a));
    TN_RETURN_IF(check_solve(s, a));
    if (a->grad == TN_LOOP_EP) TN_RETURN_IF(check_head(s));
    const tn_dims x = s->in[TN_RELAX_A].dims;
    s->out[TN_RELAX_H] = (tn_type){ .dtype = TN_F32, .dims = x };
    for (int i = TN_RELAX_FREE_STEPS; i <= TN_RELAX_SIGNAL; i++)
        s->out[i] = (tn_type){ .dtype = i < TN_RELAX_RESIDUALS ? TN_I32 : TN_F32, .dims = tn_shape(x.dim[0]) };
    s->n_out = TN_RELAX_HISTORY;
    if (a->grad != TN_LOOP_BPTT) return TN_OK;
    s->out[TN_RELAX_HISTORY] = (tn_type){ .dtype = TN_F32, .dims = tn_shape(a->steps, x.dim[0], x.dim[1]) };
    s->n_out = TN_RELAX_NORMAL;
    if (a->kind != TN_RELAX_BLOCK) return TN_OK;
    s->out[TN_RELAX_NORMAL] = s->out[TN_RELAX_HISTORY];
    s->out[TN_RELAX_NORMAL_SCALE] = (tn_type){ .dtype = TN_F32, .dims = tn_shape(a->steps, x.dim[0]) };
    s->n_out = TN_RELAX_OUTPUTS;
    return TN_OK;
}

/* --- gradient and cost -------------------------------------------------------------------------------------------- */

static void relax_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    const tn_relax_attr *a = s->attr;
    (void)want;
    u->in = 0;
    for (int i = 0; i < s->n_in; i++)
        if (!s->in[i].absent && i != TN_RELAX_H0) u->in |= bit(i);
    u->out = a->grad == TN_LOOP_BPTT ? bit(TN_RELAX_HISTORY) | bit(TN_RELAX_FREE_STEPS) : bit(TN_RELAX_H);
    if (a->grad == TN_LOOP_BPTT && a->kind == TN_RELAX_BLOCK)
        u->out |= bit(TN_RELAX_NORMAL) | bit(TN_RELAX_NORMAL_SCALE);
    u->out |= a->counted; /* written there: the planner keeps the memory */
}

/* FLOPs of the products of one sample: its map (the gradient by the state costs as much, and so does that by the parameters), and the cost
 * with its gradient. */
typedef struct prices {
    double map, cost;
} prices;

static prices prices_of(const tn_relax_attr *a, tn_dims x, tn_dims w1, tn_dims head)
{
    const double d = (double)x.dim[1], f = (double)w1.dim[0], C = head.rank ? (double)head.dim[0] : 0;
    return (prices){ (a->kind == TN_RELAX_HOPFIELD ? 2 : 4) * d * f, 4 * d * C };
}

/* FLOPs of the way back, with so many samples and so many evaluations of them all together: of the free solve (bptt), of the adjoint's,
 * of nudged ones. */
static double back(const tn_relax_attr *a, prices p, bool together, double samples, double steps)
{
    const double once = 3 * samples * p.map; /* the map at the equilibrium, and both gradients */
    if (a->grad == TN_LOOP_BPTT)             /* the last product is not made again */
        return (a->kind == TN_RELAX_HOPFIELD ? 2 : 2.5) * steps * p.map;
    if (a->grad == TN_LOOP_IMPLICIT) return once + steps * p.map;
    if (a->grad != TN_LOOP_EP) return once;
    const bool shared = !together && a->solver == TN_SOLVE_PICARD; /* a nudge's first step has that map */
    return once + steps * (p.map + p.cost) - (shared ? (a->centred ? 2 : 1) * samples * p.map : 0);
}

static tn_dims head_of(const tn_type *w) { return w->absent ? (tn_dims){ 0 } : w->dims; }

static void relax_cost(const tn_sig *s, tn_cost *c)
{
    const tn_relax_attr *a = s->attr;
    const double B = (double)s->in[TN_RELAX_A].dims.dim[0], T = (double)a->steps;
    const prices p = prices_of(a, s->in[TN_RELAX_A].dims, s->in[TN_RELAX_W1].dims, head_of(&s->in[TN_RELAX_HEAD_W]));
    const double phases = a->grad == TN_LOOP_EP && a->centred ? 2 : 1;
    c->varies = true;
    c->flops = B * T * p.map;
    c->flops_backward = back(a, p, !s->in[TN_RELAX_TOL].absent, B, phases * B * T);
}

static double sum_of(const tn_arg *steps)
{
    const int32_t *n = steps->data;
    double sum = 0;
    for (int64_t b = 0; n && b < steps->dims.dim[0]; b++) sum += n[b];
    return n ? sum : NAN;
}

/* Rows without a sample are not computed: they have no steps. */
static double relax_spent(const tn_call *c, bool backward)
{
    const tn_relax_attr *a = c->attr;
    const tn_arg *head = &c->in[TN_RELAX_HEAD_W];
    const int32_t *count = c->in[TN_RELAX_COUNT].data;
    const prices p =
        prices_of(a, c->in[TN_RELAX_A].dims, c->in[TN_RELAX_W1].dims, head->data ? head->dims : (tn_dims){ 0 });
    const double B = (double)c->in[TN_RELAX_A].dims.dim[0], samples = count ? fmax(fmin(*count, B), 0) : B;
    if (!backward) return p.map * sum_of(&c->out[TN_RELAX_FREE_STEPS]);
    const int steps = a->grad == TN_LOOP_EP         ? TN_RELAX_NUDGED_STEPS
                      : a->grad == TN_LOOP_IMPLICIT ? TN_RELAX_ADJOINT_STEPS
                                                    : TN_RELAX_FREE_STEPS;
    return back(a, p, c->in[TN_RELAX_TOL].data, samples, a->grad == TN_LOOP_ONE_STEP ? 0 : sum_of(&c->out[steps]));
}

/* --- the row ------------------------------------------------------------------------------------------------------ */

const tn_op tn_op_relax = {
    .name = "relax",
    .attr_bytes = sizeof(tn_relax_attr),
    .flags = TN_OP_OPTIONAL_OUT,
    .infer = relax_infer,
    .grad = relax_grad,
    .cost = relax_cost,
    .spent = relax_spent,
    .kernel = { [TN_CPU] = { .forward = tn_relax_forward_cpu,
                             .backward = tn_relax_backward_cpu,
                             .work = tn_relax_work_cpu } },
    TN_OP_SWITCH("opt.relax", "equilibria solved a few samples at a time inside one op (off: a loop over plain ops)"),
    .plain = tn_relax_plain,
};

/* An input that gets no gradient. */
static tn_ref fixed(tn_graph *g, tn_ref x) { return x.id ? tn_stop_gradient(g, x) : x; }

static uint32_t counted(const tn_relax_options *o)
{
    const bool ep = o->grad == TN_LOOP_EP, implicit = o->grad == TN_LOOP_IMPLICIT;
    return (uint32_t)((ep && o->nudged_steps ? bit(TN_RELAX_NUDGED_STEPS) : 0) |
                      (ep && o->signal ? bit(TN_RELAX_SIGNAL) : 0) |
                      (implicit && o->adjoint_steps ? bit(TN_RELAX_ADJOINT_STEPS) : 0));
}

tn_ref tn_relax_(tn_graph *g, const char *file, int line, tn_ref a, tn_relax_options o)
{
    const tn_relax_attr attr = { .kind = o.kind,
                                 .steps = o.steps,
                                 .grad = o.grad,
                                 .solver = o.solver,
                                 .memory = o.memory ? o.memory : TN_ANDERSON_DEFAULT,
                                 .centred = o.centred,
                                 .mean = o.mean,
                                 .proxy = o.proxy,
                                 .at_rest = o.grad == TN_LOOP_EP && o.at_rest,
                                 .weight = o.weight != 0 ? o.weight : 1.f,
                                 .counted = counted(&o) };
    const bool ep = o.grad == TN_LOOP_EP; /* the same options serve every gradient */
    const tn_ref in[TN_RELAX_INPUTS] = {
        [TN_RELAX_A] = a,
        [TN_RELAX_W1] = o.w1,
        [TN_RELAX_B1] = o.b1,
        [TN_RELAX_W2] = o.w2,
        [TN_RELAX_B2] = o.b2,
        [TN_RELAX_GAIN2] = o.norm2_gain,
        [TN_RELAX_BIAS2] = o.norm2_bias,
        [TN_RELAX_GAIN] = o.norm_gain,
        [TN_RELAX_BIAS] = o.norm_bias,
        [TN_RELAX_SCALE] = fixed(g, o.scale),
        [TN_RELAX_H0] = fixed(g, o.h0),
        [TN_RELAX_HEAD_W] = ep ? fixed(g, o.head_w) : TN_NONE,
        [TN_RELAX_HEAD_B] = ep ? fixed(g, o.head_b) : TN_NONE,
        [TN_RELAX_LABELS] = ep ? o.labels : TN_NONE,
        [TN_RELAX_WEIGHTS] = ep ? fixed(g, o.weights) : TN_NONE,
        [TN_RELAX_RTOL] = o.rtol,
        [TN_RELAX_TOL] = o.tol,
        [TN_RELAX_DAMPING] = o.damping,
        [TN_RELAX_BETA] = ep ? o.beta : TN_NONE,
        [TN_RELAX_MOVE] = ep ? o.move : TN_NONE,
        [TN_RELAX_COUNT] = o.count,
    };
    tn_ref out[TN_RELAX_OUTPUTS] = { { 0 } };
    tn_ref *const to[TN_RELAX_HISTORY] = { NULL, o.free_steps, o.nudged_steps, o.adjoint_steps, o.residuals, o.signal };
    const tn_ref h = tn_graph_add(g, file, line, &tn_op_relax, &attr, in, TN_RELAX_INPUTS, out);
    for (int i = 0; i < TN_RELAX_HISTORY; i++)
        if (to[i]) *to[i] = out[i];
    return h;
}
