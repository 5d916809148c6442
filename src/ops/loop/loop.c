/* loop: compiles the body's entry points, checks shapes, registers the op. */
#include "ops/loop/loop_body.h"

#include "base/alloc.h"
#include "ops/anderson.h"
#include "ops/cuda_kernels.h"

#include <stdio.h>
#include <string.h>

tn_kernel tn_loop_forward_cpu, tn_loop_backward_cpu;
size_t tn_loop_work(const tn_sig *s, bool backward);
size_t tn_loop_host(const tn_sig *s, bool backward);

static const tn_loop_body *body_of(const tn_sig *s) { return ((const tn_loop_attr *)s->attr)->body; }

static tn_dims stacked(int64_t n, tn_dims d)
{
    tn_dims s = { .rank = d.rank + 1, .dim = { n } };
    for (int i = 0; i < d.rank && i + 1 < TN_MAX_RANK; i++) s.dim[i + 1] = d.dim[i];
    return s;
}

static tn_status loop_infer(tn_sig *s)
{
    const tn_loop_body *b = body_of(s);
    int n = 0;
    if (!b) return TN_USAGE; /* the text says why the body could not be compiled */
    for (int i = 0; i < b->spec.n_state; i++)
        s->out[n++] = (tn_type){ .dtype = b->spec.state[i].dtype, .dims = b->spec.state[i].dims };
    for (int i = 0; i < b->spec.n_ys; i++, n++) {
        if (!tn_dtype_is_float(b->spec.ys[i].dtype)) s->out[n].dtype = b->spec.ys[i].dtype;
        s->out[n].dims = stacked(b->steps, b->spec.ys[i].dims);
    }
    s->out[n++] = (tn_type){ .dtype = TN_I32, .dims = tn_shape(1) };
    s->out[n++] = (tn_type){ .dtype = TN_F32, .dims = tn_shape(1) };
    for (int i = 0; b->solve && i < LOOP_PER_SAMPLE; i++)
        s->out[n++] =
            (tn_type){ .dtype = i < LOOP_RESIDUALS ? TN_I32 : TN_F32, .dims = tn_shape(b->spec.state[0].dims.dim[0]) };
    for (int i = 0; b->grad == TN_LOOP_BPTT && i < b->spec.n_state; i++)
        s->out[n++] = (tn_type){ .dtype = b->spec.state[i].dtype, .dims = stacked(b->steps, b->spec.state[i].dims) };
    s->n_out = n;
    return TN_OK;
}

static uint64_t bits(int from, int to)
{
    uint64_t m = 0;
    for (int i = from; i < to; i++) m |= (uint64_t)1 << i;
    return m;
}

static void loop_gradient(const tn_sig *s, uint64_t want, tn_uses *u)
{
    const tn_loop_body *b = body_of(s);
    (void)want;
    u->in = bits(loop_in_x(b), s->n_in);
    u->out = b->grad == TN_LOOP_BPTT ? bits(loop_out_history(b), s->n_out) : 1;
    if (b->grad == TN_LOOP_BPTT && b->solve) u->out |= (uint64_t)1 << loop_out_sample(b, LOOP_FREE_STEPS);
    if (b->solve)
        u->out |= (uint64_t)b->counted << loop_out_sample(b, 0); /* written there: the planner keeps the memory */
}

static void loop_cost(const tn_sig *s, tn_cost *c)
{
    const tn_loop_body *b = body_of(s);
    const double n = (double)b->steps;
    c->flops = n * tn_plan_flops(b->forward.plan);
    c->varies = b->solve || tn_plan_flops_vary(b->forward.plan);
    if (!b->trains) return;
    const double all = tn_plan_flops(b->vjp_all.plan);
    switch (b->grad) {
    case TN_LOOP_BPTT: c->flops_backward = n * all; break;
    case TN_LOOP_IMPLICIT: c->flops_backward = n * tn_plan_flops(b->vjp_state.plan) + all; break;
    case TN_LOOP_ONE_STEP: c->flops_backward = all; break;
    case TN_LOOP_EP:
        c->flops_backward =
            all + n * (b->centred ? 2 : 1) * (tn_plan_flops(b->forward.plan) + tn_plan_flops(b->cost.plan));
        break;
    }
}

static void loop_release(void *attr)
{
    tn_loop_body *b = ((tn_loop_attr *)attr)->body;
    if (!b) return;
    tn_plan_free(b->forward.plan);
    tn_plan_free(b->vjp_state.plan);
    tn_plan_free(b->vjp_all.plan);
    tn_plan_free(b->cost.plan);
    tn_free(b);
}

const tn_op tn_op_loop = {
    .name = "loop",
    .attr_bytes = sizeof(tn_loop_attr),
    .flags = TN_OP_OPTIONAL_OUT | TN_OP_FULL,
    .infer = loop_infer,
    .grad = loop_gradient,
    .cost = loop_cost,
    .kernel = { [TN_CPU] = { .forward = tn_loop_forward_cpu,
                             .backward = tn_loop_backward_cpu,
                             .work = tn_loop_work,
                             .host = tn_loop_host },
                [TN_CUDA] = { .forward = tn_loop_forward_cuda,
                              .backward = tn_loop_backward_cuda,
                              .work = tn_loop_work,
                              .host = tn_loop_host } },
    .release = loop_release,
};

/* --- making the node ---------------------------------------------------------------------------------------------------- */

static void find_all(const tn_plan *p, const char *kind, int n, int *index)
{
    char name[32];
    for (int i = 0; i < TN_BODY_MAX; i++) {
        snprintf(name, sizeof name, "%s%d", kind, i);
        index[i] = i < n ? tn_plan_extern_find(p, name) : -1;
    }
}

static tn_status compile_entry(tn_body_spec *s, tn_body_entry which, loop_entry *e)
{
    TN_RETURN_IF(tn_body_compile(s, which, &e->plan));
    e->n_externs = tn_plan_externs(e->plan);
    e->live = tn_plan_extern_find(e->plan, "live");
    find_all(e->plan, "state", s->n_state, e->state);
    find_all(e->plan, "x", s->n_xs, e->xs);
    find_all(e->plan, "const", s->n_consts, e->consts);
    find_all(e->plan, "dnext", s->n_state, e->dnext);
    find_all(e->plan, "dy", s->n_ys, e->dy);
    find_all(e->plan, "d.state", s->n_state, e->dstate);
    find_all(e->plan, "d.x", s->n_xs, e->dxs);
    find_all(e->plan, "d.const", s->n_consts, e->dconsts);
    return TN_OK;
}

/* The cost body has no next state of its own: the state passes through without a gradient. */
static void build_cost(tn_graph *g, tn_body_io *io, void *user)
{
    const tn_body *cost = user;
    cost->build(g, io, cost->user);
    io->next[0] = tn_stop_gradient(g, io->state[0]);
}

/* As the kernel gets it: the planner brings halves to f32 once, before the loop. */
static tn_type type_of(const tn_graph *g, tn_ref x, bool trainable)
{
    const tn_dtype t = tn_ref_dtype(g, x);
    return (tn_type){
        .dtype = tn_dtype_is_float(t) ? TN_F32 : t, .dims = tn_ref_dims(g, x), .absent = !x.id, .trainable = trainable
    };
}

/* What the backward kernel is to count, a bit for each. */
static unsigned counted(const tn_loop_options *o)
{
    const bool ep = o->grad == TN_LOOP_EP, implicit = o->grad == TN_LOOP_IMPLICIT;
    return (ep && o->nudged_steps ? 1u << LOOP_NUDGED_STEPS : 0) | (ep && o->signal ? 1u << LOOP_SIGNAL : 0) |
           (implicit && o->adjoint_steps ? 1u << LOOP_ADJOINT_STEPS : 0);
}

static tn_status slice_type(tn_type *t, int64_t steps)
{
    if (t->dims.rank < 1 || t->dims.dim[0] != steps)
        return tn_error(TN_USAGE, "a sequence's first axis must be the number of steps, %lld", (long long)steps);
    t->dims.rank--;
    for (int i = 0; i < t->dims.rank; i++) t->dims.dim[i] = t->dims.dim[i + 1];
    return TN_OK;
}

tn_status tn_solve_check(const tn_solve_options *o)
{
    const bool ep = o->grad == TN_LOOP_EP;
    if (o->rtol == o->tol) return tn_error(TN_USAGE, "a solve stops by rtol or by tol: give one of them");
    if (o->proxy && (!ep || o->centred))
        return tn_error(TN_USAGE, "the proxy is an ep gradient with one nudge: leave centred out");
    if (o->at_rest && (!ep || o->proxy))
        return tn_error(TN_USAGE, "at_rest=true needs grad=ep without proxy: remove it, or change these");
    if (o->move && o->tol) return tn_error(TN_USAGE, "move stops each sample by itself: give rtol, not tol");
    if (o->solver == TN_SOLVE_ANDERSON && o->grad == TN_LOOP_BPTT)
        return tn_error(TN_USAGE, "bptt follows the damped iteration: take picard, or another gradient");
    if (!o->count.absent && (o->count.dtype != TN_I32 || tn_dims_count(o->count.dims) != 1))
        return tn_error(TN_USAGE, "count is an i32 of shape (1)");
    if (o->memory && (o->memory < TN_ANDERSON_LEAST || o->memory > TN_ANDERSON_MOST))
        return tn_error(TN_USAGE, "anderson keeps %d to %d pairs, not %d", TN_ANDERSON_LEAST, TN_ANDERSON_MOST,
                        o->memory);
    return TN_OK;
}

static tn_status check_solve(const tn_graph *g, const tn_loop_options *o)
{
    if (o->n_state != 1 || o->n_xs || o->n_ys) return tn_error(TN_USAGE, "a solve has one state and no sequences");
    if (o->grad == TN_LOOP_EP && (!o->cost || !o->beta.id)) return tn_error(TN_USAGE, "ep needs a cost body and beta");
    tn_solve_options s = { .grad = o->grad, .solver = o->solver, .memory = o->memory };
    s.centred = o->centred, s.proxy = o->proxy, s.at_rest = o->at_rest;
    s.rtol = o->rtol.id, s.tol = o->tol.id, s.move = o->move.id;
    s.count = type_of(g, o->count, false);
    return tn_solve_check(&s);
}

static tn_status check_options(const tn_graph *g, const tn_loop_options *o)
{
    if (o->steps < 1) return tn_error(TN_USAGE, "a loop needs steps >= 1");
    if (o->n_state < 1 || o->n_state > TN_BODY_MAX || o->n_xs > TN_BODY_MAX || o->n_consts > TN_BODY_MAX ||
        o->n_ys > TN_BODY_MAX || o->n_cost_consts > TN_BODY_MAX)
        return tn_error(TN_USAGE, "a loop takes 1 to %d states and at most as many of the rest", TN_BODY_MAX);
    const bool solve = o->rtol.id || o->tol.id;
    if (!solve && o->grad != TN_LOOP_BPTT)
        return tn_error(TN_USAGE, "implicit, one-step and ep gradients belong to a solve: give rtol");
    if (!solve && (o->count.id || o->free_steps || o->nudged_steps || o->adjoint_steps || o->residuals || o->signal))
        return tn_error(TN_USAGE, "a count and numbers of each sample belong to a solve: give rtol");
    return solve ? check_solve(g, o) : TN_OK;
}

/* Constants said to have samples along axis 0 have as many as the state. */
static tn_status check_samples(const tn_graph *g, const tn_ref *consts, int n, uint64_t which, const char *option,
                               int64_t samples)
{
    if (which >> n) return tn_error(TN_USAGE, "%s has a bit above its %d constants", option, n);
    for (int i = 0; i < n; i++) {
        if (!(which >> i & 1) || !consts[i].id) continue;
        const tn_dims d = tn_ref_dims(g, consts[i]);
        if (d.rank < 1 || d.dim[0] != samples)
            return tn_error(TN_USAGE, "%s names constant %d, whose first axis is not the %lld samples", option, i,
                            (long long)samples);
    }
    return TN_OK;
}

static tn_status compile_body(const tn_graph *g, tn_body body, const tn_loop_options *o, const bool *wanted,
                              tn_loop_body *b)
{
    tn_graph_options go = *tn_graph_get_options(g);
    go.activation = TN_F32; /* the state of a recurrence is never rounded to a half */
    go.tf32 = go.tf32 || (go.device == TN_CUDA && go.round != TN_F32); /* operands of its products may be */
    b->steps = o->steps;
    b->grad = o->grad;
    b->solve = o->rtol.id || o->tol.id;
    b->centred = o->centred;
    b->weight = o->weight != 0 ? o->weight : 1.f;
    b->counted = counted(o);
    b->mean = o->mean;
    b->proxy = o->proxy;
    b->at_rest = o->at_rest;
    b->fused = o->fused;
    b->repeats = tn_graph_switch(g, "opt.repeat");
    b->solver = o->solver;
    b->memory = o->memory ? o->memory : TN_ANDERSON_DEFAULT;
    b->live = b->solve && o->sample_consts != 0;
    b->compact = b->live && o->rtol.id && tn_graph_switch(g, "opt.compact") &&
                 go.device == TN_CPU;         /* elsewhere the host does not know who is there */
    b->cost_spec.n_consts = o->n_cost_consts; /* they are inputs even where nothing is trained */
    b->spec = (tn_body_spec){ .body = body,
                              .n_state = o->n_state,
                              .n_xs = o->n_xs,
                              .n_consts = o->n_consts,
                              .n_ys = o->n_ys,
                              .options = go,
                              .threads = go.threads,
                              .repeats = o->steps };
    for (int i = 0; i < o->n_state; i++) b->spec.state[i] = type_of(g, o->state[i], true);
    if (b->solve && (b->spec.state[0].dims.rank < 1 || b->spec.state[0].dtype != TN_F32))
        return tn_error(TN_USAGE, "a solve's state has samples along axis 0, and floats");
    if (b->solve) {
        const int64_t samples = b->spec.state[0].dims.dim[0];
        TN_RETURN_IF(check_samples(g, o->consts, o->n_consts, o->sample_consts, "sample_consts", samples));
        TN_RETURN_IF(
            check_samples(g, o->cost_consts, o->n_cost_consts, o->sample_cost_consts, "sample_cost_consts", samples));
    }
    for (int i = 0; i < o->n_xs; i++) {
        b->spec.xs[i] = type_of(g, o->xs[i], wanted[loop_in_x(b) + i]);
        TN_RETURN_IF(slice_type(&b->spec.xs[i], o->steps));
    }
    for (int i = 0; i < o->n_consts; i++) b->spec.consts[i] = type_of(g, o->consts[i], wanted[loop_in_const(b) + i]);
    b->spec.live = b->live;
    b->spec.live_consts = b->live ? o->sample_consts : 0;
    TN_RETURN_IF(compile_entry(&b->spec, TN_BODY_FORWARD, &b->forward));
    if (!b->trains) return TN_OK;
    if (o->grad == TN_LOOP_IMPLICIT) TN_RETURN_IF(compile_entry(&b->spec, TN_BODY_VJP_STATE, &b->vjp_state));
    if (o->grad != TN_LOOP_BPTT) b->spec.repeats = 1; /* one pull back at the end */
    TN_RETURN_IF(compile_entry(&b->spec, TN_BODY_VJP_ALL, &b->vjp_all));
    if (o->grad != TN_LOOP_EP) return TN_OK;
    b->cost_spec = (tn_body_spec){ .body = { build_cost, (void *)(uintptr_t)o->cost },
                                   .n_state = 1,
                                   .n_ys = 1,
                                   .n_consts = o->n_cost_consts,
                                   .options = go,
                                   .threads = go.threads,
                                   .repeats = o->steps,
                                   .live = b->live,
                                   .live_consts = b->live ? o->sample_cost_consts : 0 };
    b->cost_spec.state[0] = b->spec.state[0];
    for (int i = 0; i < o->n_cost_consts; i++) b->cost_spec.consts[i] = type_of(g, o->cost_consts[i], false);
    return compile_entry(&b->cost_spec, TN_BODY_VJP_STATE, &b->cost);
}

tn_ref tn_loop_(tn_graph *g, const char *file, int line, tn_body body, tn_loop_options o)
{
    tn_ref in[TN_MAX_ARGS] = { { 0 } }, out[TN_MAX_ARGS] = { { 0 } };
    bool wanted[TN_MAX_ARGS] = { 0 };
    int n = 0;
    if (tn_graph_status(g) != TN_OK) return TN_NONE;
    if (o.grad != TN_LOOP_EP) { /* the same options serve every gradient */
        o.cost = NULL;
        o.n_cost_consts = 0;
        o.sample_cost_consts = 0;
        o.beta = o.move = TN_NONE;
    }
    const int total = o.n_state + o.n_xs + o.n_consts + o.n_cost_consts + 6;
    tn_status s = check_options(g, &o);
    if (s == TN_OK && total > TN_MAX_ARGS) s = tn_error(TN_USAGE, "%d tensors, at most %d", total, TN_MAX_ARGS);
    tn_loop_body *b = s == TN_OK ? tn_alloc(sizeof *b) : NULL;
    if (!b) {
        tn_graph_fail(g, file, line, s == TN_OK ? TN_MEMORY : s, "loop: %s", tn_error_text());
        return TN_NONE;
    }
    for (int i = 0; i < o.n_state; i++) in[n++] = o.state[i];
    for (int i = 0; i < o.n_xs; i++) in[n++] = o.xs[i];
    for (int i = 0; i < o.n_consts; i++) in[n++] = o.consts[i];
    for (int i = 0; i < o.n_cost_consts; i++) in[n++] = o.cost_consts[i];
    in[n++] = o.rtol;
    in[n++] = o.damping;
    in[n++] = o.beta;
    in[n++] = o.tol;
    in[n++] = o.count;
    in[n++] = o.move;
    for (int i = 0; i < n; i++) {
        wanted[i] = tn_ref_trainable(g, in[i]);
        b->trains |= wanted[i];
    }
    tn_loop_attr a = { .body = b };
    s = compile_body(g, body, &o, wanted, b);
    if (s != TN_OK) {
        tn_graph_fail(g, file, line, s, "loop: %s", tn_error_text());
        loop_release(&a);
        return TN_NONE;
    }
    if (!tn_graph_add(g, file, line, &tn_op_loop, &a, in, n, out).id) return TN_NONE;
    for (int i = 0; o.final && i < o.n_state; i++) o.final[i] = out[i];
    for (int i = 0; o.ys && i < o.n_ys; i++) o.ys[i] = out[loop_out_y(b) + i];
    if (o.iterations) *o.iterations = out[loop_out_iterations(b)];
    if (o.residual) *o.residual = out[loop_out_iterations(b) + 1];
    tn_ref *const per_sample[] = { o.free_steps, o.nudged_steps, o.adjoint_steps, o.residuals, o.signal };
    for (int i = 0; b->solve && i < LOOP_PER_SAMPLE; i++)
        if (per_sample[i]) *per_sample[i] = out[loop_out_sample(b, i)];
    return out[0];
}
