/* Building a graph: tensors, nodes, the first error (regions.c: scopes). Knows nothing of gradients, memory or execution. */
#include "plan/graph.h"

#include "base/rng.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The graph's own copy: a plan may outlive whoever made its options. */
static tn_status copy_switches(tn_graph *g)
{
    const char *const *from = g->options.off;
    size_t n = 0;
    if (!from) return TN_OK;
    while (from[n]) n++;
    const char **to = tn_arena_alloc(&g->memory, sizeof *to * (n + 1));
    if (!to) return TN_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (!(to[i] = tn_arena_strdup(&g->memory, from[i]))) return TN_MEMORY;
    g->options.off = to;
    return TN_OK;
}

/* --- life ---------------------------------------------------------------------------------------------------------- */

tn_status tn_graph_new(const tn_graph_options *o, tn_graph **out)
{
    tn_graph *g = tn_alloc(sizeof *g);
    if (!g) return TN_MEMORY;
    if (o) g->options = *o;
    g->current_segment = -1;
    g->n_tensors = 1; /* id 0 is "none" */
    tn_status s = copy_switches(g);
    if (s == TN_OK) s = tn_grow((void **)&g->tensor, &g->cap_tensors, 64, sizeof *g->tensor);
    if (s == TN_OK) s = tn_grow((void **)&g->region, &g->cap_regions, 16, sizeof *g->region);
    if (s != TN_OK) {
        tn_graph_free(g);
        return s;
    }
    g->region[0] = "";
    g->n_regions = 1;
    *out = g;
    return TN_OK;
}

void tn_graph_free(tn_graph *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->n_owned; i++) g->owned[i].release(g->owned[i].attr);
    tn_free(g->owned);
    tn_free(g->tensor);
    tn_free(g->name);
    tn_free(g->node);
    tn_free(g->output);
    tn_free(g->assign);
    tn_free((void *)g->region);
    tn_arena_free(&g->memory);
    tn_free(g);
}

tn_status tn_graph_own(tn_graph *g, void (*release)(void *x), void *x)
{
    TN_RETURN_IF(tn_grow((void **)&g->owned, &g->cap_owned, g->n_owned + 1, sizeof *g->owned));
    g->owned[g->n_owned++] = (struct tn_owned){ release, x };
    return TN_OK;
}

tn_status tn_graph_status(const tn_graph *g)
{
    if (g->status == TN_OK) return TN_OK;
    return tn_error_at("graph", 0, g->status, "%s", g->error ? g->error : "out of memory");
}

const tn_graph_options *tn_graph_get_options(const tn_graph *g) { return &g->options; }

bool tn_graph_switch(const tn_graph *g, const char *name)
{
    if (g->options.off)
        for (const char *const *off = g->options.off; *off; off++)
            if (strcmp(*off, name) == 0) return false;
    return true;
}

void tn_graph_fail(tn_graph *g, const char *file, int line, tn_status code, const char *fmt, ...)
{
    if (g->status != TN_OK) return;
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    g->status = code;
    g->error = tn_arena_printf(&g->memory, "%s  (%s:%d%s%s)", text, file, line, g->scope[0] ? ", in " : "", g->scope);
}

/* --- tensors --------------------------------------------------------------------------------------------------------- */

static void contiguous_strides(tn_dims d, int64_t *stride)
{
    int64_t n = 1;
    for (int i = d.rank - 1; i >= 0; i--) {
        stride[i] = n;
        n *= d.dim[i];
    }
}

static bool in_graph(const tn_graph *g, tn_ref x) { return x.id >= 0 && (size_t)x.id < g->n_tensors; }

bool tn_graph_knows(tn_graph *g, const char *file, int line, tn_ref x)
{
    if (in_graph(g, x)) return true;
    tn_graph_fail(g, file, line, TN_USAGE,
                  "a tn_ref (%d) is not a tensor of this graph: it was not set, or belongs to another graph (a loop's "
                  "body may use only what the loop passes to it)",
                  x.id);
    return false;
}

/* Refuses ranks, negative sizes and products that could overflow later arithmetic. */
static bool dims_ok(tn_graph *g, const char *file, int line, tn_dims d, const char *name)
{
    int64_t n = 1;
    bool ok = d.rank >= 0 && d.rank <= TN_MAX_RANK;
    for (int i = 0; ok && i < d.rank; i++)
        ok = d.dim[i] >= 0 && !__builtin_mul_overflow(n, d.dim[i] ? d.dim[i] : 1, &n) && n < INT64_MAX / 16;
    char text[128];
    if (!ok)
        tn_graph_fail(g, file, line, TN_USAGE, "%s has the impossible shape %s", name ? name : "a tensor",
                      tn_dims_text(d, text, sizeof text));
    return ok;
}

static int32_t append_tensor(tn_graph *g, const tn_gtensor *t)
{
    if (g->status != TN_OK) return 0;
    if (tn_grow((void **)&g->tensor, &g->cap_tensors, g->n_tensors + 1, sizeof *g->tensor) != TN_OK) {
        g->status = TN_MEMORY;
        return 0;
    }
    g->tensor[g->n_tensors] = *t;
    return (int32_t)g->n_tensors++;
}

int32_t tn_graph_new_tensor(tn_graph *g, tn_role role, const char *name, tn_dtype dtype, tn_dims dims)
{
    if (g->status != TN_OK || !dims_ok(g, "shape", 0, dims, name)) return 0;
    tn_gtensor t = { .role = role, .dtype = dtype, .dims = dims, .producer = -1 };
    contiguous_strides(dims, t.stride);
    if (name && (!(t.name = tn_arena_strdup(&g->memory, name)) ||
                 tn_grow((void **)&g->name, &g->cap_names, g->n_names + 1, sizeof *g->name) != TN_OK))
        g->status = TN_MEMORY;
    const int32_t id = append_tensor(g, &t);
    if (id) g->tensor[id].base = id;
    if (id && name) g->name[g->n_names++] = (struct tn_name){ tn_rng_stream(name), id };
    return id;
}

int32_t tn_graph_new_view(tn_graph *g, int32_t x)
{
    tn_gtensor t = g->tensor[x];
    t.name = NULL;
    t.output = t.wanted = false;
    return append_tensor(g, &t);
}

bool tn_gtensor_contiguous(const tn_gtensor *t)
{
    int64_t n = 1;
    for (int i = t->dims.rank - 1; i >= 0; i--) {
        if (t->dims.dim[i] != 1 && t->stride[i] != n) return false;
        n *= t->dims.dim[i];
    }
    return true;
}

int64_t tn_gtensor_count(const tn_gtensor *t) { return tn_dims_count(t->dims); }

bool tn_gtensor_whole(const tn_graph *g, const tn_gtensor *t)
{
    return tn_gtensor_contiguous(t) && t->offset == 0 && tn_gtensor_count(t) == tn_gtensor_count(&g->tensor[t->base]);
}

int32_t tn_graph_find(const tn_graph *g, const char *full_name)
{
    const uint64_t hash = tn_rng_stream(full_name);
    for (size_t i = 0; i < g->n_names; i++)
        if (g->name[i].hash == hash && strcmp(g->tensor[g->name[i].id].name, full_name) == 0) return g->name[i].id;
    return 0;
}

static const char *frozen_word(tn_role r) { return r == TN_ROLE_FROZEN ? "frozen " : ""; }

/* Finds or makes the outside tensor `name` in the open scope. */
static int32_t outside(tn_graph *g, const char *file, int line, tn_role role, const char *name, tn_dims dims,
                       tn_dtype dtype, bool scoped, bool *made)
{
    char path[512], a[128], b[128];
    *made = false;
    if (g->status != TN_OK) return 0;
    const int n = snprintf(path, sizeof path, "%s%s%s", scoped ? g->scope : "", scoped && g->scope[0] ? "." : "", name);
    if (n < 0 || (size_t)n >= sizeof path) {
        tn_graph_fail(g, file, line, TN_USAGE, "the name %s is too long", name);
        return 0;
    }
    int32_t id = tn_graph_find(g, path);
    if (id) {
        const tn_gtensor *t = &g->tensor[id];
        if (t->role != role || t->dtype != dtype || !tn_dims_equal(t->dims, dims))
            tn_graph_fail(g, file, line, TN_USAGE, "%s is %s%s %s here and %s%s %s before: give them different names",
                          path, frozen_word(role), tn_dtype_name(dtype), tn_dims_text(dims, a, sizeof a),
                          frozen_word(t->role), tn_dtype_name(t->dtype), tn_dims_text(t->dims, b, sizeof b));
        return g->status == TN_OK ? id : 0;
    }
    *made = true;
    if (!dims_ok(g, file, line, dims, path)) return 0;
    return tn_graph_new_tensor(g, role, path, dtype, dims);
}

/* The first parameter that is not expected ends the building: nothing more is added to the graph. */
static void check_expected(tn_graph *g, const tn_gtensor *t)
{
    const tn_status s = g->expect ? g->expect(g->expect_ctx, t->name, t->dims) : TN_OK;
    if (s == TN_OK || g->status != TN_OK) return;
    g->status = s;
    g->error = tn_arena_strdup(&g->memory, tn_error_text());
}

tn_ref tn_param_(tn_graph *g, const char *file, int line, const char *name, tn_dims dims, tn_init init,
                 tn_param_options o)
{
    bool made;
    const int32_t id =
        outside(g, file, line, g->frozen ? TN_ROLE_FROZEN : TN_ROLE_PARAM, name, dims, TN_F32, true, &made);
    if (id && made) {
        g->tensor[id].init = init;
        g->tensor[id].options = o;
        g->tensor[id].weight = true;
        g->tensor[id].needs_grad = !g->frozen;
        check_expected(g, &g->tensor[id]);
    }
    return (tn_ref){ g->status == TN_OK ? id : 0 };
}

tn_ref tn_tied_(tn_graph *g, const char *file, int line, const char *full_name)
{
    const int32_t id = tn_graph_find(g, full_name);
    if (!id) tn_graph_fail(g, file, line, TN_USAGE, "no tensor %s to tie to: create it first", full_name);
    return (tn_ref){ g->status == TN_OK ? id : 0 };
}

tn_ref tn_frozen_(tn_graph *g, const char *file, int line, const char *name, tn_dims dims, tn_dtype dtype, tn_init init)
{
    bool made;
    const int32_t id = outside(g, file, line, TN_ROLE_FROZEN, name, dims, dtype, true, &made);
    if (id && made) g->tensor[id].init = init;
    return (tn_ref){ id };
}

tn_ref tn_state_(tn_graph *g, const char *file, int line, const char *name, tn_dims dims, tn_dtype dtype, bool cache)
{
    bool made;
    const bool carried = cache && g->options.carried;
    const tn_role role = carried ? TN_ROLE_INPUT : cache ? TN_ROLE_CACHE : TN_ROLE_STATE;
    const tn_ref x = { outside(g, file, line, role, name, dims, dtype, true, &made) };
    if (carried) tn_input_by_copy(g, x);
    return carried && tn_dtype_is_float(dtype) ? tn_want_gradient(g, x) : x;
}

tn_ref tn_input_(tn_graph *g, const char *file, int line, const char *name, tn_dims dims, tn_dtype dtype)
{
    bool made;
    return (tn_ref){ outside(g, file, line, TN_ROLE_INPUT, name, dims, dtype, false, &made) };
}

void tn_input_by_copy(tn_graph *g, tn_ref x)
{
    if (x.id) g->tensor[x.id].by_copy = true;
}

tn_ref tn_scalar_(tn_graph *g, const char *file, int line, const char *name, float initial)
{
    bool made;
    const int32_t id = outside(g, file, line, TN_ROLE_SCALAR, name, tn_shape(1), TN_F32, false, &made);
    if (id && made) g->tensor[id].initial = initial;
    return (tn_ref){ id };
}

tn_ref tn_graph_seed(tn_graph *g)
{
    if (!g->seed) g->seed = tn_input(g, "rng", tn_shape(2), TN_I64).id;
    return (tn_ref){ g->seed };
}

uint64_t tn_graph_stream(tn_graph *g) { return ++g->next_stream; }

/* --- results ----------------------------------------------------------------------------------------------------------- */

void tn_output(tn_graph *g, const char *name, tn_ref x)
{
    if (g->status != TN_OK) return;
    if (!x.id) {
        tn_graph_fail(g, "output", 0, TN_USAGE, "output %s has no tensor", name);
        return;
    }
    if (!tn_graph_knows(g, "output", 0, x)) return;
    if (!tn_gtensor_contiguous(&g->tensor[x.id]))
        x = tn_copy(g, x); /* whoever reads it knows its shape, not its strides */
    if (g->status != TN_OK) return;
    const char *copy = tn_arena_strdup(&g->memory, name);
    if (!copy || tn_grow((void **)&g->output, &g->cap_outputs, g->n_outputs + 1, sizeof *g->output) != TN_OK) {
        g->status = TN_MEMORY;
        return;
    }
    g->output[g->n_outputs++] = (tn_named){ copy, x.id };
    g->tensor[x.id].output = true;
}

tn_ref tn_graph_output(const tn_graph *g, const char *name)
{
    for (size_t i = 0; i < g->n_outputs; i++)
        if (strcmp(g->output[i].name, name) == 0) return (tn_ref){ g->output[i].id };
    return TN_NONE;
}

/* In the state's type: what comes out goes in again. */
static void put_out_next(tn_graph *g, const tn_gtensor *state, tn_ref value)
{
    const tn_dtype dtype = state->dtype;
    const char *name = tn_arena_printf(&g->memory, "next.%s", state->name);
    if (!name) g->status = TN_MEMORY;
    tn_output(g, name, tn_ref_dtype(g, value) == dtype ? value : tn_cast(g, value, dtype));
}

void tn_assign(tn_graph *g, tn_ref state, tn_ref value)
{
    char a[128], b[128];
    if (g->status != TN_OK || !state.id || !value.id) return;
    if (!tn_graph_knows(g, "assign", 0, state) || !tn_graph_knows(g, "assign", 0, value)) return;
    const tn_gtensor *to = &g->tensor[state.id], *from = &g->tensor[value.id];
    const bool carried = to->role == TN_ROLE_INPUT && g->options.carried;
    if (to->role != TN_ROLE_STATE && to->role != TN_ROLE_CACHE && !carried) {
        tn_graph_fail(g, "assign", 0, TN_USAGE, "%s is not a state", to->name ? to->name : "the tensor");
        return;
    }
    if (tn_gtensor_count(to) != tn_gtensor_count(from)) {
        tn_graph_fail(g, "assign", 0, TN_USAGE, "state %s has shape %s, its new value %s", to->name,
                      tn_dims_text(to->dims, a, sizeof a), tn_dims_text(from->dims, b, sizeof b));
        return;
    }
    if (carried) {
        put_out_next(g, to, value);
        return;
    }
    if (tn_grow((void **)&g->assign, &g->cap_assigns, g->n_assigns + 1, sizeof *g->assign) != TN_OK) {
        g->status = TN_MEMORY;
        return;
    }
    g->assign[g->n_assigns++] = (tn_assignment){ state.id, value.id };
}

/* --- nodes ------------------------------------------------------------------------------------------------------------- */

tn_node *tn_graph_emit(tn_graph *g, const tn_op *op, const void *attr, const int32_t *in, int n_in, const int32_t *out,
                       int n_out)
{
    if (g->status != TN_OK) return NULL;
    tn_node n = {
        .op = op, .n_in = n_in, .n_out = n_out, .region = g->current_region, .segment = g->current_segment, .file = ""
    };
    n.in = tn_arena_alloc(&g->memory, sizeof *n.in * (size_t)(n_in + n_out + 1));
    tn_type *types = tn_arena_alloc(&g->memory, sizeof *types * (size_t)(n_in + n_out + 1));
    n.attr = tn_arena_alloc(&g->memory, op->attr_bytes + 1);
    if (!n.in || !types || !n.attr ||
        tn_grow((void **)&g->node, &g->cap_nodes, g->n_nodes + 1, sizeof *g->node) != TN_OK) {
        g->status = TN_MEMORY;
        return NULL;
    }
    n.out = n.in + n_in;
    n.in_type = types;
    n.out_type = types + n_in;
    if (attr) memcpy(n.attr, attr, op->attr_bytes);
    for (int i = 0; i < n_in; i++) {
        n.in[i] = in[i];
        const tn_gtensor *t = &g->tensor[in[i]];
        types[i] = (tn_type){
            .dtype = t->dtype, .dims = t->dims, .absent = !in[i], .trainable = t->needs_grad, .live = t->live != 0
        };
    }
    for (int i = 0; i < n_out; i++) {
        n.out[i] = out[i];
        n.out_type[i] = (tn_type){ .dtype = g->tensor[out[i]].dtype, .dims = g->tensor[out[i]].dims };
    }
    g->node[g->n_nodes] = n;
    return &g->node[g->n_nodes++];
}

/* Shapes of the inputs, for error messages: "(2,3) (3,4)". */
static const char *input_shapes(const tn_type *in, int n, char *buf, size_t bytes)
{
    char one[96];
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < n && used + 2 < bytes; i++)
        used += (size_t)snprintf(buf + used, bytes - used, "%s%s", i ? " " : "",
                                 in[i].absent ? "TN_NONE" : tn_dims_text(in[i].dims, one, sizeof one));
    return buf;
}

static void fail_infer(tn_graph *g, const char *file, int line, const tn_op *op, const tn_type *in, int n_in,
                       tn_status code)
{
    char shapes[256];
    tn_graph_fail(g, file, line, code, "%s of %s: %s", op->name, input_shapes(in, n_in, shapes, sizeof shapes),
                  tn_error_text());
}

/* Takes over what attr owns; the graph's copy is returned. */
static const void *own_attr(tn_graph *g, const tn_op *op, const void *attr)
{
    void *copy = tn_arena_alloc(&g->memory, op->attr_bytes);
    if (!copy || tn_graph_own(g, op->release, copy) != TN_OK) {
        g->status = TN_MEMORY;
        op->release((void *)(uintptr_t)attr);
        return NULL;
    }
    memcpy(copy, attr, op->attr_bytes);
    return copy;
}

/* A fresh tensor for output i of a new node, or a view of what the node changes in place. */
static int32_t new_result(tn_graph *g, const tn_op *op, int i, const tn_type *type, const int32_t *in)
{
    if (i || !(op->flags & TN_OP_WRITES_IN0)) {
        const int32_t id = tn_graph_new_tensor(g, TN_ROLE_ACTIVATION, NULL, type->dtype, type->dims);
        if (id) g->tensor[id].producer = (int32_t)g->n_nodes;
        return id;
    }
    return tn_graph_new_view(g, in[0]);
}

/* What is written in place outlives the step: an activation could be placed over, dropped or recomputed. */
static void check_in_place(tn_graph *g, const char *file, int line, const tn_op *op, const int32_t *in)
{
    if (g->status != TN_OK || !(op->flags & TN_OP_WRITES_IN0)) return;
    const tn_role role = g->tensor[in[0]].role;
    if (role == TN_ROLE_INPUT && g->options.carried)
        tn_graph_fail(g, file, line, TN_USAGE,
                      "attention over a cache has no gradient through it: use plan.recompute=layer");
    else if (role != TN_ROLE_STATE && role != TN_ROLE_CACHE)
        tn_graph_fail(g, file, line, TN_USAGE, "%s writes into its first input: give it a tn_state or tn_cache",
                      op->name);
}

static bool has_kernel(const tn_graph *g, const tn_op *op, const tn_sig *s)
{
    const tn_device d = g->options.device;
    return op->kernel[d].forward && (!op->kernel[d].takes || op->kernel[d].takes(s));
}

tn_ref tn_graph_add(tn_graph *g, const char *file, int line, const tn_op *op, const void *attr, const tn_ref *in,
                    int n_in, tn_ref *out)
{
    tn_type in_type[TN_MAX_ARGS], out_type[TN_MAX_ARGS] = { 0 };
    int32_t ids[TN_MAX_ARGS], results[TN_MAX_ARGS];
    bool trainable = false;
    if (op->release) attr = own_attr(g, op, attr); /* whatever happens from here on, the graph releases it */
    if (g->status != TN_OK) goto failed;
    if (n_in > TN_MAX_ARGS)
        tn_graph_fail(g, file, line, TN_USAGE, "%s: %d inputs, at most %d", op->name, n_in, TN_MAX_ARGS);
    for (int i = 0; i < n_in && g->status == TN_OK; i++) {
        if (!tn_graph_knows(g, file, line, in[i])) break;
        ids[i] = in[i].id;
        const tn_gtensor *t = &g->tensor[in[i].id];
        in_type[i] = (tn_type){
            .dtype = t->dtype, .dims = t->dims, .absent = !in[i].id, .trainable = t->needs_grad, .live = t->live != 0
        };
        trainable |= t->needs_grad;
    }
    for (int i = 0; i < TN_MAX_ARGS; i++) out_type[i].dtype = g->options.activation;
    tn_sig sig = { .attr = attr,
                   .n_in = n_in,
                   .in = in_type,
                   .out = out_type,
                   .threads = 1,
                   .round = g->options.round,
                   .bf16x3 = g->options.bf16x3,
                   .portable = !tn_graph_switch(g, "opt.gemm_kernels") };
    const bool on = g->status == TN_OK && !(op->plain && op->switch_name && !tn_graph_switch(g, op->switch_name));
    if (on) {
        const tn_status s = op->infer(&sig);
        if (s != TN_OK) fail_infer(g, file, line, op, in_type, n_in, s);
    }
    if (g->status == TN_OK && op->plain && (!on || !has_kernel(g, op, &sig))) {
        const tn_status s = op->plain(g, attr, in, n_in, out);
        if (s != TN_OK) fail_infer(g, file, line, op, in_type, n_in, s);
        return g->status == TN_OK ? out[0] : TN_NONE;
    }
    check_in_place(g, file, line, op, ids);
    const bool rowwise = n_in > 0 && (op->flags & TN_OP_ROWWISE) && !sig.mixes_rows;
    const int32_t live = rowwise && g->status == TN_OK ? g->tensor[ids[0]].live : 0;
    for (int i = 0; i < sig.n_out && g->status == TN_OK; i++) {
        results[i] = new_result(g, op, i, &out_type[i], ids);
        if (!results[i]) break;
        tn_gtensor *t = &g->tensor[results[i]];
        if (t->base == results[i]) t->live = live;
        t->needs_grad = trainable && op->grad && tn_dtype_is_float(t->dtype) && !(i && (op->flags & TN_OP_AUX_FROM_1));
    }
    tn_node *node = tn_graph_emit(g, op, attr, ids, n_in, results, sig.n_out);
    if (!node) goto failed;
    node->file = file;
    node->line = line;
    for (int i = 0; i < sig.n_out; i++) out[i] = (tn_ref){ results[i] };
    return out[0];
failed:
    out[0] = TN_NONE;
    return TN_NONE;
}

int32_t *tn_graph_changed(tn_graph *g)
{
    int32_t *at = tn_arena_alloc(&g->memory, sizeof *at * g->n_tensors);
    if (!at) {
        g->status = TN_MEMORY;
        return NULL;
    }
    for (size_t i = 0; i < g->n_tensors; i++) at[i] = -1;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->node[i].op->flags & TN_OP_WRITES_IN0) at[g->tensor[g->node[i].in[0]].base] = (int32_t)i;
    return at;
}

bool tn_node_writes(const tn_graph *g, const tn_node *n, int32_t base)
{
    bool found = false;
    for (int k = 0; n->backward && k < n->n_in; k++) found |= n->din[k] && g->tensor[n->din[k]].base == base;
    for (int k = 0; (!n->backward || n->makes_out) && k < n->n_out; k++)
        found |= n->out[k] && g->tensor[n->out[k]].base == base;
    return found;
}

static bool reads_any(const tn_graph *g, const int32_t *ids, int n, uint64_t which, int32_t base)
{
    for (int k = 0; k < n; k++)
        if ((which >> k & 1) && ids[k] && g->tensor[ids[k]].base == base) return true;
    return false;
}

bool tn_node_reads(const tn_graph *g, const tn_node *n, int32_t base)
{
    return reads_any(g, n->in, n->n_in, n->backward ? n->reads_in : UINT64_MAX, base) ||
           (n->backward &&
            (reads_any(g, n->dout, n->n_out, UINT64_MAX, base) || reads_any(g, n->out, n->n_out, n->reads_out, base)));
}

tn_sig tn_node_sig(const tn_graph *g, const tn_node *n, int threads)
{
    return (tn_sig){ .attr = n->attr,
                     .n_in = n->n_in,
                     .n_out = n->n_out,
                     .in = n->in_type,
                     .out = n->out_type,
                     .threads = threads,
                     .round = g->options.round,
                     .bf16x3 = g->options.bf16x3,
                     .portable = !tn_graph_switch(g, "opt.gemm_kernels"),
                     .makes_out = n->makes_out };
}

/* --- looking ----------------------------------------------------------------------------------------------------------- */

/* A handle of no tensor here looks like none; who uses it is told. */
static const tn_gtensor *look_at(const tn_graph *g, tn_ref x) { return &g->tensor[in_graph(g, x) ? x.id : 0]; }

tn_dims tn_ref_dims(const tn_graph *g, tn_ref x) { return look_at(g, x)->dims; }

tn_dtype tn_ref_dtype(const tn_graph *g, tn_ref x) { return look_at(g, x)->dtype; }

bool tn_ref_trainable(const tn_graph *g, tn_ref x) { return look_at(g, x)->needs_grad; }

int64_t tn_ref_dim(const tn_graph *g, tn_ref x, int axis)
{
    const tn_dims d = look_at(g, x)->dims;
    if (axis < 0) axis += d.rank;
    return axis >= 0 && axis < d.rank ? d.dim[axis] : 1;
}

/* --- for passes ------------------------------------------------------------------------------------------------------- */

bool tn_graph_put(tn_graph *g, size_t at, size_t like, const tn_op *op, const void *attr, const int32_t *in, int n_in,
                  const int32_t *out, int n_out)
{
    if (!tn_graph_emit(g, op, attr, in, n_in, out, n_out)) return false;
    tn_node *made = &g->node[--g->n_nodes];
    made->region = g->node[like].region;
    made->segment = g->node[like].segment;
    made->file = g->node[like].file;
    made->line = g->node[like].line;
    g->node[at] = *made;
    return true;
}

void tn_graph_close_up(tn_graph *g)
{
    size_t w = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->node[i].op) g->node[w++] = g->node[i];
    g->n_nodes = w;
    for (size_t i = 0; i < w; i++)
        for (int k = 0; k < g->node[i].n_out; k++)
            if (g->tensor[g->node[i].out[k]].producer >= 0) g->tensor[g->node[i].out[k]].producer = (int32_t)i;
    for (size_t i = 1; i < g->n_tensors; i++) g->tensor[i].producer = g->tensor[g->tensor[i].base].producer;
}

void tn_nodes_push(tn_graph *g, tn_nodes *l, const tn_node *n)
{
    if (tn_grow((void **)&l->node, &l->capacity, l->n + 1, sizeof *l->node) != TN_OK) g->status = TN_MEMORY;
    else l->node[l->n++] = *n;
}

void tn_graph_take(tn_graph *g, tn_nodes *l)
{
    tn_free(g->status == TN_OK ? g->node : l->node);
    if (g->status != TN_OK) return;
    g->node = l->node;
    g->n_nodes = l->n;
    g->cap_nodes = l->capacity;
}

tn_type *tn_graph_types(tn_graph *g, const tn_type *from, int n)
{
    tn_type *types = tn_arena_alloc(&g->memory, sizeof *types * (size_t)n);
    if (types) memcpy(types, from, sizeof *types * (size_t)n);
    else g->status = TN_MEMORY;
    return types;
}
