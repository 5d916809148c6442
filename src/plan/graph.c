/* Building a graph: its tensors, results and first error. Nodes: graph_nodes.c, scopes: regions.c. */
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
    g->frozen = g->options.frozen ? 1 : 0;
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

static tn_ref weight(tn_graph *g, const char *file, int line, const char *name, tn_dims dims, tn_dtype dtype,
                     tn_init init, tn_param_options o)
{
    bool made;
    const bool frozen = g->frozen || g->untrained;
    const int32_t id = outside(g, file, line, frozen ? TN_ROLE_FROZEN : TN_ROLE_PARAM, name, dims, dtype, true, &made);
    if (id && made) {
        g->tensor[id].init = init;
        g->tensor[id].options = o;
        g->tensor[id].weight = true;
        g->tensor[id].trained = g->frozen == (g->options.frozen ? 1 : 0);
        g->tensor[id].needs_grad = !frozen;
        check_expected(g, &g->tensor[id]);
    }
    return (tn_ref){ g->status == TN_OK ? id : 0 };
}

tn_ref tn_param_(tn_graph *g, const char *file, int line, const char *name, tn_dims dims, tn_init init,
                 tn_param_options o)
{
    return weight(g, file, line, name, dims, TN_F32, init, o);
}

tn_ref tn_matrix_(tn_graph *g, const char *file, int line, const char *name, tn_dims dims, tn_init init)
{
    const bool part = g->options.frozen && g->frozen > 1 && g->options.parts != TN_F32;
    const tn_dtype dtype = part ? g->options.parts : g->frozen ? g->options.weights : TN_F32;
    return weight(g, file, line, name, dims, dtype, init, (tn_param_options){ 0 });
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

tn_ref tn_graph_data(tn_graph *g, const char *name, tn_dims dims, tn_dtype dtype)
{
    bool made;
    return (tn_ref){ outside(g, __FILE__, __LINE__, TN_ROLE_DATA, name, dims, dtype, false, &made) };
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

tn_ref tn_graph_update_seed(tn_graph *g) { return tn_input(g, TN_UPDATE_SEED, tn_shape(2), TN_I64); }

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
