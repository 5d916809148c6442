/* Compiling a graph into a plan: runs the passes, places memory, and writes the flat list of steps that execution
 * walks. The plan keeps the graph for names, shapes and attributes. */
#include "backend/cpu/gemm.h"
#include "plan/plan_internal.h"

#include <math.h>
#include <string.h>

/* --- steps ------------------------------------------------------------------------------------------------------------ */

static tn_arg_template arg_of(const tn_plan *p, int32_t id, bool used)
{
    const tn_graph *g = p->graph;
    const tn_gtensor *t = &g->tensor[id];
    tn_arg_template a = { .slot = -1, .live_slot = -1 };
    if (!id) return a;
    a.arg.dtype = t->dtype;
    a.arg.dims = t->dims;
    memcpy(a.arg.stride, t->stride, sizeof a.arg.stride);
    a.slot = used ? p->place.slot_of[t->base] : -1;
    a.offset = (size_t)t->offset * tn_dtype_bytes(t->dtype);
    if (t->live) {
        const tn_gtensor *c = &g->tensor[t->live];
        a.live_slot = p->place.slot_of[c->base];
        a.live_offset = (size_t)c->offset * sizeof(int32_t);
    }
    return a;
}

static int add_args(tn_plan *p, const int32_t *ids, int n, uint64_t used)
{
    const int at = p->n_args;
    for (int i = 0; i < n; i++) p->arg[p->n_args++] = arg_of(p, ids[i], used >> i & 1);
    return at;
}

static double arg_bytes(const tn_plan *p, int i)
{
    const tn_arg *a = &p->arg[i].arg;
    return p->arg[i].slot < 0 ? 0 : (double)tn_dims_count(a->dims) * (double)tn_dtype_bytes(a->dtype);
}

/* Bytes of argument i beyond its first `numbers` numbers. */
static double bytes_beyond(const tn_plan *p, int i, double numbers)
{
    return fmax(arg_bytes(p, i) - numbers * (double)tn_dtype_bytes(p->arg[i].arg.dtype), 0);
}

/* Of all arguments, each once. Of an input that is looked up, and of a gradient that is added to, no more numbers than output 0 has. */
static double step_bytes(const tn_plan *p, const tn_node *n, const tn_step *s)
{
    const double numbers = n->n_out ? (double)tn_dims_count(n->out_type[0].dims) : 0;
    double bytes = 0;
    for (int i = s->in; i < p->n_args; i++) bytes += arg_bytes(p, i);
    for (int i = 0; i < n->n_in; i++) {
        if (!(n->op->fusion.some_rows >> i & 1)) continue;
        bytes -= bytes_beyond(p, s->in + i, numbers);
        if (n->backward && n->accumulate >> i & 1) bytes -= bytes_beyond(p, s->din + i, numbers);
    }
    return bytes;
}

static tn_status make_step(tn_plan *p, const tn_node *n, tn_step *s)
{
    const tn_graph *g = p->graph;
    *s = (tn_step){ .node = n,
                    .n_in = n->n_in,
                    .n_out = n->n_out,
                    .region = n->region,
                    .backward = n->backward,
                    .work_slot = n->work ? p->place.slot_of[n->work] : -1,
                    .work_bytes = n->work ? (size_t)tn_gtensor_count(&g->tensor[n->work]) : 0 };
    s->kernel = n->backward ? n->op->kernel[p->device].backward : n->op->kernel[p->device].forward;
    if (!s->kernel)
        return tn_error(TN_USAGE, "%s%s has no kernel for this device: use device=cpu", n->op->name,
                        n->backward ? " (backward)" : "");
    s->in = add_args(p, n->in, n->n_in, n->backward ? n->reads_in : UINT64_MAX);
    s->out = add_args(p, n->out, n->n_out, n->backward && !n->makes_out ? n->reads_out : UINT64_MAX);
    s->dout = n->backward ? add_args(p, n->dout, n->n_out, UINT64_MAX) : 0;
    s->din = n->backward ? add_args(p, n->din, n->n_in, UINT64_MAX) : 0;
    const tn_sig sig = tn_node_sig(g, n, p->threads);
    if (n->op->kernel[p->device].takes && !n->op->kernel[p->device].takes(&sig))
        return tn_error(
            TN_USAGE,
            "%s has no kernel for these shapes on this device: set tn_graph_options.device, or its switch off",
            n->op->name);
    s->host_at = p->host_bytes;
    if (n->op->kernel[p->device].host)
        p->host_bytes += (n->op->kernel[p->device].host(&sig, n->backward) + 63) / 64 * 64;
    tn_cost c = { 0 };
    if (n->op->cost) n->op->cost(&sig, &c);
    else if (n->n_out) c.flops = c.flops_backward = (double)tn_dims_count(n->out_type[0].dims);
    s->flops = n->backward ? c.flops_backward : c.flops;
    s->varies = c.varies;
    s->bytes = step_bytes(p, n, s);
    p->flops += s->flops;
    p->varies = p->varies || c.varies;
    return TN_OK;
}

static tn_status make_steps(tn_plan *p)
{
    const tn_graph *g = p->graph;
    size_t args = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        args += (size_t)(g->node[i].n_in + g->node[i].n_out) * (g->node[i].backward ? 2 : 1);
    p->arg = tn_alloc(sizeof *p->arg * (args + 1));
    p->step = tn_alloc(sizeof *p->step * (g->n_nodes + 1));
    if (!p->arg || !p->step) return TN_MEMORY;
    for (size_t i = 0; i < g->n_nodes; i++) TN_RETURN_IF(make_step(p, &g->node[i], &p->step[p->n_steps++]));
    return TN_OK;
}

/* --- compiling -------------------------------------------------------------------------------------------------------- */

static void differentiate(tn_graph *g, const tn_compile_options *o)
{
    const size_t n_forward = g->n_nodes;
    tn_seed seed = { .y = o->loss };
    if (o->loss.id) {
        if (tn_gtensor_count(&g->tensor[o->loss.id]) != 1) {
            tn_graph_fail(g, "compile", 0, TN_USAGE, "the loss must be one number");
            return;
        }
        seed.dy = tn_scalar(g, "loss_scale", 1.f);
        tn_pass_reverse(g, &seed, 1);
    } else if (o->n_seeds) {
        tn_pass_reverse(g, o->seeds, o->n_seeds);
    }
    if (o->recompute && g->n_nodes > n_forward) tn_pass_recompute(g, n_forward);
}

/* Bodies were compiled when their nodes were made. */
static tn_status check_bodies(const tn_graph *g, tn_device device)
{
    if (g->n_owned && g->options.device != device)
        return tn_error(TN_USAGE,
                        "its loops were made for another device: set tn_graph_options.device before it is built");
    return TN_OK;
}

static tn_status name_ops(tn_plan *p)
{
    p->decode = tn_alloc(sizeof *p->decode * (p->n_steps + 1));
    if (!p->decode) return TN_MEMORY;
    for (size_t i = 0; i < p->n_steps; i++) p->decode[i] = p->step[i].node->op;
    return TN_OK;
}

tn_status tn_graph_compile(tn_graph *g, const tn_compile_options *o, tn_plan **out)
{
    tn_status s = TN_OK;
    tn_plan *p = NULL;
    TN_TRY(tn_graph_status(g));
    TN_TRY(check_bodies(g, o->device));
    p = tn_alloc(sizeof *p);
    if (!p) TN_TRY(TN_MEMORY);
    p->device = o->device;
    p->portable = !tn_graph_switch(g, "opt.gemm_kernels");
    p->threads = o->threads > 0 ? o->threads : g->options.threads > 0 ? g->options.threads : 1;
    if (o->recompute && o->trained_alone) tn_pass_keep_frozen(g);
    tn_pass_fuse(g, o->recompute);
    const tn_seed loss = { .y = o->loss };
    if (p->device == TN_CUDA)
        tn_pass_absorb(g, o->recompute, o->loss.id ? &loss : o->seeds, o->loss.id ? 1 : o->n_seeds);
    differentiate(g, o);
    tn_pass_assign(g);
    tn_pass_late(g);
    tn_pass_dead(g);
    if (p->device == TN_CUDA) tn_pass_slopes(g);
    if (p->device == TN_CUDA) tn_pass_columns(g);
    tn_pass_legalize(g, p->device);
    const bool token = o->token && p->device == TN_CUDA &&
                       g->options.activation != TN_F16 && /* which the fused kernel does not read */
                       tn_graph_switch(g, "opt.decode_fused");
    p->prologue = p->device == TN_CPU ? tn_pass_pack(g, o->repeats > 0 ? o->repeats : 1) : tn_pass_round_weights(g);
    const tn_place_options where = {
        .device = p->device, .threads = p->threads, .prologue = p->prologue, .apart = token
    };
    if (g->status == TN_OK) tn_pass_place(g, &where, &p->place);
    TN_TRY(tn_graph_status(g));
    p->graph = g;
    g = NULL;
    TN_TRY(make_steps(p));
    if (token) TN_TRY(name_ops(p));
    *out = p;
    p = NULL;
done:
    tn_graph_free(g);
    tn_plan_free(p);
    return s;
}

void tn_plan_free(tn_plan *p)
{
    if (!p) return;
    tn_graph_free(p->graph);
    tn_free(p->arg);
    tn_free(p->decode);
    tn_free(p->step);
    tn_free(p);
}

/* --- looking ------------------------------------------------------------------------------------------------------------ */

tn_memory tn_plan_memory(const tn_plan *p)
{
    tn_memory m = { .activations = p->place.activation_peak,
                    .workspace = p->place.arena_bytes - p->place.activation_peak,
                    .arena = p->place.arena_bytes,
                    .frame = tn_plan_frame_bytes(p) };
    for (int i = 0; i < p->place.n_slots; i++) {
        const tn_slot *s = &p->place.slot[i];
        switch (s->role) {
        case TN_ROLE_PARAM: m.parameters += s->bytes; break;
        case TN_ROLE_GRAD: m.gradients += s->bytes; break;
        case TN_ROLE_FROZEN: m.frozen += s->bytes; break;
        case TN_ROLE_STATE:
        case TN_ROLE_CACHE: m.state += s->bytes; break;
        case TN_ROLE_INPUT:
        case TN_ROLE_DINPUT:
        case TN_ROLE_SCALAR: m.inputs += s->bytes; break;
        default: break;
        }
    }
    return m;
}

size_t tn_plan_steps(const tn_plan *p) { return p->n_steps; }

/* Input i of a step: does it read all of this weight? */
static bool reads_weight(const tn_plan *p, const tn_step *s, int i)
{
    const tn_node *n = s->node;
    const int slot = p->arg[s->in + i].slot;
    const tn_fusion *f = &n->op->fusion;
    if (slot < 0 || (f->some_rows >> i & 1)) return false;
    if (f->packed_in && i == f->weight_in && n->in[f->packed_in]) return false;
    const tn_slot *x = &p->place.slot[slot];
    return x->role == TN_ROLE_PARAM || x->role == TN_ROLE_FROZEN || (x->ext < 0 && x->first < (int32_t)p->prologue);
}

size_t tn_plan_weight_bytes(const tn_plan *p)
{
    size_t bytes = 0;
    for (int k = 0; k < p->place.n_slots; k++) {
        bool read = false;
        for (size_t i = p->prologue; i < p->n_steps && !read; i++)
            for (int a = 0; a < p->step[i].n_in && !read; a++)
                read = p->arg[p->step[i].in + a].slot == k && reads_weight(p, &p->step[i], a);
        if (read) bytes += p->place.slot[k].bytes;
    }
    return bytes;
}

const char *tn_plan_kernel(const tn_plan *p)
{
    const tn_graph_options *o = &p->graph->options;
    return tn_gemm_kernel_of(&(tn_gemm){ .round = o->round, .bf16x3 = o->bf16x3, .portable_only = p->portable });
}

const tn_graph *tn_plan_graph(const tn_plan *p) { return p->graph; }

double tn_plan_flops(const tn_plan *p) { return p->flops; }

bool tn_plan_flops_vary(const tn_plan *p) { return p->varies; }

int tn_plan_externs(const tn_plan *p) { return p->place.n_externs; }

const tn_gtensor *tn_plan_extern(const tn_plan *p, int i) { return &p->graph->tensor[p->place.extern_tensor[i]]; }

int tn_plan_extern_find(const tn_plan *p, const char *name)
{
    for (int i = 0; i < p->place.n_externs; i++) {
        const char *n = tn_plan_extern(p, i)->name;
        if (n && strcmp(n, name) == 0) return i;
    }
    return -1;
}

const tn_gtensor *tn_plan_input_gradient(const tn_plan *p, const char *name)
{
    const int i = tn_plan_extern_find(p, name);
    return i >= 0 && tn_plan_extern(p, i)->role == TN_ROLE_DINPUT ? tn_plan_extern(p, i) : NULL;
}
