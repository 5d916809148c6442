/* Contexts (arena and queue) and bound plans (a plan with a context and a store). A bound plan owns its inputs,
 * scalars and frame; everything is allocated when it is made, nothing when it runs. */
#include "backend/backend.h"
#include "base/clock.h"
#include "plan/plan_internal.h"

#include <string.h>

struct tn_context {
    const tn_backend *backend;
    tn_device device;
    int threads;
    void *queue;
    void *arena;
    size_t arena_bytes;
    const struct tn_bound *last; /* whose numbers lie in the arena, or NULL */
    uint64_t generation; /* grows when the arena moves: bound plans then resolve their pointers again */
};

struct tn_bound {
    const tn_plan *plan;
    tn_context *context;
    tn_store *store;
    void **externs;
    unsigned char *own;   /* inputs, scalars, gradients of inputs */
    void *frame;
    uint64_t generation;
    bool timers;
    double *step_ms; /* (n_steps), since the timers were turned on */
    uint64_t runs;
};

/* --- contexts --------------------------------------------------------------------------------------------------------- */

tn_status tn_context_new(tn_device device, int threads, tn_context **out)
{
    const tn_backend *b = tn_backend_get(device);
    if (!b) return TN_USAGE;
    tn_context *c = tn_alloc(sizeof *c);
    if (!c) return TN_MEMORY;
    *c = (tn_context){ .backend = b, .device = device, .threads = threads < 1 ? 1 : threads, .generation = 1 };
    const tn_status s = b->open(c->threads, &c->queue);
    if (s != TN_OK) {
        tn_free(c);
        return s;
    }
    *out = c;
    return TN_OK;
}

void tn_context_free(tn_context *c)
{
    if (!c) return;
    c->backend->free(c->arena);
    c->backend->close(c->queue);
    tn_free(c);
}

int tn_context_threads(const tn_context *c) { return c->threads; }

static tn_status reserve(tn_context *c, size_t bytes)
{
    if (bytes <= c->arena_bytes && c->arena) return TN_OK;
    c->backend->free(c->arena); /* first: the two never need to exist together */
    c->arena_bytes = 0;
    c->generation++;
    c->arena = c->backend->alloc(bytes ? bytes : 64);
    if (!c->arena) return TN_MEMORY;
    c->arena_bytes = bytes ? bytes : 64;
    return TN_OK;
}

/* --- binding ---------------------------------------------------------------------------------------------------------- */

static bool is_own(tn_role r) { return r == TN_ROLE_INPUT || r == TN_ROLE_SCALAR || r == TN_ROLE_DINPUT; }

static size_t own_bytes(const tn_gtensor *t)
{
    return ((size_t)tn_gtensor_count(t) * tn_dtype_bytes(t->dtype) + 63) / 64 * 64 + 64;
}

static tn_status find_in_store(const tn_bound *b, const tn_gtensor *t, void **out)
{
    const tn_graph *g = b->plan->graph;
    const char *name = t->role == TN_ROLE_GRAD ? g->tensor[t->source].name : t->name;
    char want[128], have[128];
    if (t->role == TN_ROLE_FLAT) {
        *out = tn_store_flat(b->store, t->name, tn_gtensor_count(t));
        return *out ? TN_OK : tn_error(TN_INTERNAL, "the store has no array %s", t->name);
    }
    const tn_entry *e = b->store ? tn_store_find(b->store, name) : NULL;
    if (!e) return tn_error(TN_USAGE, "the store has no tensor %s: adopt the graph before it is compiled", name);
    if (!tn_dims_equal(e->dims, t->dims) || (t->role != TN_ROLE_GRAD && e->dtype != t->dtype))
        return tn_error(TN_USAGE, "tensor %s is %s %s in the store, %s %s in the plan", name, tn_dtype_name(e->dtype),
                        tn_dims_text(e->dims, have, sizeof have), tn_dtype_name(t->dtype),
                        tn_dims_text(t->dims, want, sizeof want));
    *out = t->role == TN_ROLE_GRAD ? (void *)e->grad : e->data;
    if (!*out) return tn_error(TN_USAGE, "tensor %s is frozen in the store and trained in the plan", name);
    return TN_OK;
}

static tn_status resolve_externs(tn_bound *b)
{
    size_t at = 0;
    for (int i = 0; i < tn_plan_externs(b->plan); i++) {
        const tn_gtensor *t = tn_plan_extern(b->plan, i);
        if (!is_own(t->role)) {
            TN_RETURN_IF(find_in_store(b, t, &b->externs[i]));
            continue;
        }
        b->externs[i] = b->own + at;
        at += own_bytes(t);
        if (t->role == TN_ROLE_SCALAR) memcpy(b->externs[i], &t->initial, sizeof t->initial);
    }
    return TN_OK;
}

tn_status tn_bind(const tn_plan *p, tn_context *c, tn_store *st, tn_bound **out)
{
    tn_status s = TN_OK;
    size_t own = 64;
    tn_bound *b = tn_alloc(sizeof *b);
    if (!b) TN_TRY(TN_MEMORY);
    *b = (tn_bound){ .plan = p, .context = c, .store = st };
    if (p->device != c->device) TN_FAIL(TN_USAGE, "the plan and the context are for different devices");
    if (c->threads > p->threads)
        TN_FAIL(TN_USAGE, "the plan was made for %d threads, the context has %d", p->threads, c->threads);
    for (int i = 0; i < tn_plan_externs(p); i++)
        if (is_own(tn_plan_extern(p, i)->role)) own += own_bytes(tn_plan_extern(p, i));
    b->externs = tn_alloc(sizeof *b->externs * (size_t)(tn_plan_externs(p) + 1));
    b->own = c->backend->alloc(own);
    b->frame = tn_alloc(tn_plan_frame_bytes(p));
    b->step_ms = tn_alloc(sizeof *b->step_ms * (p->n_steps + 1));
    if (!b->externs || !b->own || !b->frame || !b->step_ms) TN_TRY(TN_MEMORY);
    TN_TRY(resolve_externs(b));
    TN_TRY(reserve(c, p->place.arena_bytes));
    *out = b;
    b = NULL;
done:
    tn_bound_free(b);
    return s;
}

void tn_bound_free(tn_bound *b)
{
    if (!b) return;
    if (b->context->last == b) b->context->last = NULL;
    tn_free(b->externs);
    if (b->own) b->context->backend->free(b->own);
    tn_free(b->frame);
    tn_free(b->step_ms);
    tn_free(b);
}

/* --- running ------------------------------------------------------------------------------------------------------------ */

static tn_status refresh(tn_bound *b)
{
    tn_context *c = b->context;
    if (b->generation == c->generation) return TN_OK;
    if (c->arena_bytes < b->plan->place.arena_bytes)
        return tn_error(TN_MEMORY, "the context lost its memory when a larger plan did not fit: bind this plan again");
    const bool cpu = c->device == TN_CPU;
    tn_frame_init(b->plan, b->frame, c->arena, b->externs, cpu ? c->queue : NULL, cpu ? NULL : c->queue);
    b->generation = c->generation;
    return TN_OK;
}

static tn_status run_timed(tn_bound *b, bool again)
{
    const tn_plan *p = b->plan;
    const tn_frame f = tn_frame_parts(p, b->frame);
    double t = 1e3 * tn_clock_s();
    for (size_t i = again ? p->prologue : 0; i < p->n_steps; i++) {
        TN_RETURN_IF(p->step[i].kernel(&f.call[i]));
        const double u = 1e3 * tn_clock_s();
        b->step_ms[i] += u - t;
        t = u;
    }
    b->runs++;
    return TN_OK;
}

static tn_status run(tn_bound *b, bool again)
{
    TN_RETURN_IF(refresh(b));
    b->context->last = NULL;
    if (b->timers) TN_RETURN_IF(run_timed(b, again));
    else TN_RETURN_IF(again ? tn_frame_run_again(b->plan, b->frame) : tn_frame_run(b->plan, b->frame));
    b->context->last = b;
    return TN_OK;
}

tn_status tn_run(tn_bound *b) { return run(b, false); }

tn_status tn_run_again(tn_bound *b)
{
    return run(b, b->context->last == b && b->generation == b->context->generation);
}

const tn_plan *tn_bound_plan(const tn_bound *b) { return b->plan; }

void *tn_bound_data(tn_bound *b, const char *name)
{
    const int i = tn_plan_extern_find(b->plan, name);
    if (i >= 0) return b->externs[i];
    if (refresh(b) != TN_OK) return NULL;
    void *p = tn_frame_output(b->plan, b->frame, name);
    if (p) return p;
    for (size_t k = 0; k < b->plan->graph->n_outputs; k++) { /* an output that is an outside tensor no step touches */
        const tn_gtensor *t = &b->plan->graph->tensor[b->plan->graph->output[k].id];
        if (strcmp(b->plan->graph->output[k].name, name) == 0 && b->plan->place.slot_of[t->base] >= 0) {
            const int ext = b->plan->place.slot[b->plan->place.slot_of[t->base]].ext;
            if (ext >= 0) return (char *)b->externs[ext] + (size_t)t->offset * tn_dtype_bytes(t->dtype);
        }
    }
    return NULL;
}

tn_status tn_bound_set(tn_bound *b, const char *scalar, float value)
{
    const int i = tn_plan_extern_find(b->plan, scalar);
    if (i < 0 || tn_plan_extern(b->plan, i)->role != TN_ROLE_SCALAR)
        return tn_error(TN_USAGE, "the plan has no run-time scalar %s", scalar);
    return b->context->backend->upload(b->context->queue, b->externs[i], &value, sizeof value);
}

void tn_bound_seed(tn_bound *b, int64_t seed, int64_t step)
{
    const int64_t v[2] = { seed, step };
    const int i = tn_plan_extern_find(b->plan, "rng");
    if (i >= 0) (void)b->context->backend->upload(b->context->queue, b->externs[i], v, sizeof v);
}

/* --- time ---------------------------------------------------------------------------------------------------------------- */

void tn_bound_timers(tn_bound *b, bool on)
{
    memset(b->step_ms, 0, sizeof *b->step_ms * b->plan->n_steps);
    b->runs = 0;
    b->timers = on;
}

size_t tn_bound_times(const tn_bound *b, tn_region_time *rows, size_t most)
{
    const tn_graph *g = b->plan->graph;
    for (size_t i = 0; i < g->n_regions && i < most; i++)
        rows[i] = (tn_region_time){ .region = g->region[i], .runs = b->runs };
    tn_bound_times_add(b, 1, rows, most);
    return g->n_regions;
}

void tn_bound_times_add(const tn_bound *b, int64_t runs, tn_region_time *rows, size_t most)
{
    const tn_graph *g = b->plan->graph;
    for (size_t i = 0; i < b->plan->n_steps; i++) {
        const tn_step *s = &b->plan->step[i];
        if ((size_t)s->region >= most || strcmp(rows[s->region].region, g->region[s->region]) != 0) continue;
        tn_region_time *r = &rows[s->region];
        *(s->backward ? &r->backward_ms : &r->forward_ms) += b->step_ms[i];
        r->flops += s->flops * (double)runs;
    }
}

size_t tn_bound_op_times(const tn_bound *b, tn_op_time *rows, size_t n, size_t most)
{
    for (size_t i = 0; i < b->plan->n_steps; i++) {
        const tn_step *s = &b->plan->step[i];
        size_t k = 0;
        while (k < n && strcmp(rows[k].op, s->node->op->name) != 0) k++;
        if (k == n && n == most) continue;
        if (k == n) rows[n++] = (tn_op_time){ .op = s->node->op->name, .runs = b->runs };
        *(s->backward ? &rows[k].backward_ms : &rows[k].forward_ms) += b->step_ms[i];
        rows[k].flops += s->flops;
    }
    return n;
}
