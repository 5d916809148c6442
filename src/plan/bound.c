/* Contexts (arena and queue) and bound plans (a plan with a context and a store). A bound plan owns its inputs, scalars
 * and frame; all is allocated when it is made.
 *
 * On a GPU inputs and scalars exist twice: the host writes its copy, and each run uploads all of it at once, except
 * inputs that only the device writes. Outputs are downloaded when asked for. The first run queues kernel by kernel, the
 * second is captured, later ones are replayed. */
#include "plan/bound_internal.h"

#include <string.h>

enum { MANY = 8 };

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
    (void)c->backend->wait(c->queue);
    c->backend->free(c->arena);
    c->backend->close(c->queue);
    tn_free(c);
}

int tn_context_threads(const tn_context *c) { return c->threads; }

size_t tn_context_bytes(const tn_context *c) { return c->arena_bytes; }

tn_status tn_context_share(tn_context *c) { return c->backend->share ? c->backend->share(c->queue) : TN_OK; }

const tn_backend *tn_context_backend(const tn_context *c) { return c->backend; }

void *tn_context_queue(const tn_context *c) { return c->queue; }

void tn_context_trace(tn_context *c, tn_tracer *to)
{
    c->tracer = to;
    if (c->backend->trace_threads) c->backend->trace_threads(c->queue, to);
}

/* Where there is not so much, what there was is there again, for the plans that it was enough for. */
static tn_status reserve(tn_context *c, size_t bytes)
{
    const size_t before = c->arena_bytes;
    if (bytes <= c->arena_bytes && c->arena) return TN_OK;
    TN_RETURN_IF(c->backend->wait(c->queue));
    c->backend->free(c->arena); /* first: the two never need to exist together */
    c->arena = NULL;
    c->arena_bytes = 0;
    c->generation++;
    c->arena = c->backend->alloc(bytes ? bytes : 64);
    const bool fits = c->arena;
    if (!fits && before) c->arena = c->backend->alloc(before);
    c->arena_bytes = fits ? (bytes ? bytes : 64) : c->arena ? before : 0;
    return fits ? TN_OK : TN_MEMORY;
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

/* Where the host reads and writes what lies at p in own memory. */
static void *host_side(const tn_bound *b, const void *p) { return b->host + ((const unsigned char *)p - b->own); }

/* Which part of own memory a tensor lies in: 0 written by the host, 1 a gradient, 2 written by copies. */
static int part_of(const tn_gtensor *t) { return t->role == TN_ROLE_DINPUT ? 1 : t->by_copy ? 2 : 0; }

static tn_status resolve_externs(tn_bound *b)
{
    size_t at[3] = { 0, b->input_bytes, b->own_bytes };
    for (int i = 0; i < tn_plan_externs(b->plan); i++) {
        const tn_gtensor *t = tn_plan_extern(b->plan, i);
        if (!is_own(t->role)) {
            TN_RETURN_IF(find_in_store(b, t, &b->externs[i]));
            continue;
        }
        b->externs[i] = b->own + at[part_of(t)];
        at[part_of(t)] += own_bytes(t);
        if (t->role == TN_ROLE_SCALAR) memcpy(host_side(b, b->externs[i]), &t->initial, sizeof t->initial);
    }
    return TN_OK;
}

/* Inputs first, so that one copy uploads them all. */
static tn_status alloc_own(tn_bound *b)
{
    const tn_backend *backend = b->context->backend;
    size_t part[3] = { 0, 64, 0 };
    for (int i = 0; i < tn_plan_externs(b->plan); i++) {
        const tn_gtensor *t = tn_plan_extern(b->plan, i);
        if (is_own(t->role)) part[part_of(t)] += own_bytes(t);
    }
    b->input_bytes = part[0];
    b->own_bytes = part[0] + part[1];
    b->own = backend->alloc(b->own_bytes + part[2]);
    b->host = backend->host_memory ? b->own : tn_alloc(b->own_bytes);
    return b->own && b->host ? TN_OK : TN_MEMORY;
}

tn_status tn_bind(const tn_plan *p, tn_context *c, tn_store *st, tn_bound **out)
{
    tn_status s = TN_OK;
    tn_bound *b = tn_alloc(sizeof *b);
    if (!b) TN_TRY(TN_MEMORY);
    *b = (tn_bound){ .plan = p, .context = c, .store = st };
    if (p->device != c->device) TN_FAIL(TN_USAGE, "the plan and the context are for different devices");
    if (c->threads > p->threads)
        TN_FAIL(TN_USAGE, "the context has %d threads, the plan allows at most %d", c->threads, p->threads);
    b->replays = c->backend->record && tn_graph_switch(p->graph, "opt.replay");
    b->pageable = c->backend->upload_pageable && !tn_graph_switch(p->graph, "opt.pinned_uploads");
    if (st) TN_TRY(tn__store_attach(st, c->queue));
    b->attached = st != NULL;
    TN_TRY(alloc_own(b));
    b->externs = tn_alloc(sizeof *b->externs * (size_t)(tn_plan_externs(p) + 1));
    b->frame = tn_alloc(tn_plan_frame_bytes(p));
    b->step_ms = tn_alloc(sizeof *b->step_ms * (p->n_steps + 1));
    b->spent = tn_alloc(sizeof *b->spent * (p->n_steps + 1));
    if (!b->externs || !b->frame || !b->step_ms || !b->spent) TN_TRY(TN_MEMORY);
    TN_TRY(resolve_externs(b));
    TN_TRY(reserve(c, p->place.arena_bytes));
    *out = b;
    b = NULL;
done:
    tn_bound_free(b);
    return s;
}

static void forget_recordings(tn_bound *b, int first)
{
    for (int i = first; i < RECORDINGS; i++) {
        if (b->recording[i]) b->context->backend->drop(b->recording[i]);
        b->recording[i] = NULL;
        b->queued[i] = false;
    }
}

void tn_bound_free(tn_bound *b)
{
    if (!b) return;
    if (b->context->last == b) b->context->last = NULL;
    (void)b->context->backend->wait(b->context->queue);
    if (b->attached) tn__store_detach(b->store, b->context->queue);
    forget_recordings(b, WHOLE);
    tn_free(b->externs);
    if (b->host != b->own) tn_free(b->host);
    if (b->own) b->context->backend->free(b->own);
    for (size_t i = 0; b->seen && i < b->plan->graph->n_outputs; i++) tn_free(b->seen[i]);
    tn_free(b->seen);
    tn_free(b->frame);
    tn_free(b->step_ms);
    tn_free(b->spent);
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
    forget_recordings(b, WHOLE);
    tn_frame_init(b->plan, b->frame, c->arena, b->externs, cpu ? c->queue : NULL, cpu ? NULL : c->queue);
    b->generation = c->generation;
    b->update_known = false;
    return TN_OK;
}

static tn_status find_input(const tn_bound *b, const char *name, int32_t **at, int64_t *n)
{
    const int i = tn_plan_extern_find(b->plan, name);
    const tn_gtensor *t = i < 0 ? NULL : tn_plan_extern(b->plan, i);
    *at = NULL;
    *n = 0;
    if (!t) return TN_OK;
    if (t->role != TN_ROLE_INPUT || t->dtype != TN_I32)
        return tn_error(TN_INTERNAL, "%s is not an integer input", name);
    *at = b->externs[i];
    *n = tn_gtensor_count(t);
    return TN_OK;
}

/* Where the chain's tensors lie; recordings of other places are dropped. */
static tn_status find_update(tn_bound *b)
{
    tn_chain_update t;
    memset(&t, 0, sizeof t); /* its gaps are compared, too */
    t.log = b->chain.log;
    t.step = b->chain.step;
    TN_RETURN_IF(find_input(b, b->chain.input, &t.to, &t.n));
    for (int i = 0; i < TN_CHAIN_COUNTERS && b->chain.counter[i]; i++)
        TN_RETURN_IF(find_input(b, b->chain.counter[i], &t.counter[i].at, &t.counter[i].n));
    t.from = tn_frame_output(b->plan, b->frame, b->chain.output);
    if (!t.to || !t.from) return tn_error(TN_INTERNAL, "the plan has no %s", t.to ? b->chain.output : b->chain.input);
    b->update_known = true;
    if (memcmp(&t, &b->update, sizeof t) == 0) return TN_OK;
    forget_recordings(b, CHAINED);
    b->update = t;
    return TN_OK;
}

static tn_status update(const tn_bound *b)
{
    return b->chained ? b->context->backend->chain_update(b->context->queue, &b->update) : TN_OK;
}

/* Step by step, each with its mark: for a trace of the device. */
static tn_status queue_marked(tn_bound *b, bool again)
{
    const tn_plan *p = b->plan;
    const tn_backend *backend = b->context->backend;
    const tn_frame f = tn_frame_parts(p, b->frame);
    tn_status s = TN_OK;
    for (size_t i = again ? p->prologue : 0; i < p->n_steps && s == TN_OK; i++) {
        backend->trace_mark(b->first_mark + i);
        s = p->step[i].kernel(&f.call[i]);
    }
    backend->trace_mark(0);
    return s == TN_OK ? update(b) : s;
}

static tn_status queue_all(tn_bound *b, bool again)
{
    if (b->first_mark) return queue_marked(b, again);
    TN_RETURN_IF(again ? tn_frame_run_again(b->plan, b->frame) : tn_frame_run(b->plan, b->frame));
    return update(b);
}

static tn_status queue_many(tn_bound *b)
{
    for (int i = 0; i < MANY; i++) TN_RETURN_IF(queue_all(b, true));
    return TN_OK;
}

/* kind: what is recorded, if it is not yet, and run. */
static tn_status run_recorded(tn_bound *b, int kind)
{
    const tn_backend *backend = b->context->backend;
    void *queue = b->context->queue;
    if (kind != CHAINED_MANY && !b->queued[kind]) {
        b->queued[kind] = true;
        return queue_all(b, kind & 1);
    }
    if (!b->recording[kind]) {
        void *whole = NULL;
        TN_RETURN_IF(backend->record(queue));
        const tn_status s = kind == CHAINED_MANY ? queue_many(b) : queue_all(b, kind & 1),
                        ended = backend->recorded(queue, &whole);
        if (s != TN_OK && whole) backend->drop(whole); /* a part of a step is never replayed */
        TN_RETURN_IF(s);
        TN_RETURN_IF(ended);
        b->recording[kind] = whole;
    }
    return backend->replay(queue, b->recording[kind]);
}

/* What the host wrote since the last run goes first. */
static tn_status upload_own(tn_bound *b)
{
    const size_t bytes = b->gave_gradients ? b->own_bytes : b->input_bytes;
    if (b->host == b->own || !bytes || ((b->held || b->chained) && b->uploaded && !b->gave_gradients)) return TN_OK;
    b->gave_gradients = false;
    b->uploaded = true;
    const tn_backend *backend = b->context->backend;
    return (b->pageable ? backend->upload_pageable : backend->upload)(b->context->queue, b->own, b->host, bytes);
}

static tn_status run(tn_bound *b, bool again)
{
    const tn_backend *backend = b->context->backend;
    const uint64_t begun = backend->host_memory ? 0 : tn_tracer_clock(b->context->tracer);
    TN_RETURN_IF(refresh(b));
    b->context->last = NULL;
    TN_RETURN_IF(upload_own(b));
    if (b->taken) TN_RETURN_IF(backend->copy(b->context->queue, b->taken_to, b->taken, b->taken_bytes));
    if (b->chained && !b->update_known) TN_RETURN_IF(find_update(b));
    if (b->finding) {
        TN_RETURN_IF(tn__run_checked(b->plan, b->frame, b->externs, backend, b->context->queue, b->finding));
    } else if (tn__bound_is_timed(b)) {
        TN_RETURN_IF(backend->host_memory ? tn__bound_run_timed(b, again) : tn__bound_run_marked(b, again));
        TN_RETURN_IF(update(b));
    } else
        TN_RETURN_IF(b->replays ? run_recorded(b, (again ? AGAIN : WHOLE) + (b->chained ? CHAINED : WHOLE))
                                : queue_all(b, again));
    if (begun) tn__bound_trace_queued(b, begun);
    b->context->last = b;
    return TN_OK;
}

void tn_bound_mark(tn_bound *b, uint64_t first)
{
    const tn_backend *backend = b->context->backend;
    if (!backend->trace_mark || !b->replays) return;
    (void)backend->wait(b->context->queue);
    forget_recordings(b, WHOLE);
    b->first_mark = first;
}

tn_status tn_run(tn_bound *b) { return run(b, false); }

tn_status tn_run_again(tn_bound *b) { return run(b, b->context->last == b && b->generation == b->context->generation); }

const tn_plan *tn_bound_plan(const tn_bound *b) { return b->plan; }

void tn_bound_label(tn_bound *b, const char *label) { b->label = label; }

/* --- runs that follow one another ------------------------------------------------------------------------------------------- */

tn_status tn_bound_chain(tn_bound *b, const tn_chain *c)
{
    b->chained = c;
    b->uploaded = b->update_known = false;
    if (!c) return TN_OK;
    b->chain = *c;
    return b->context->backend->zero(b->context->queue, c->log, sizeof *c->log);
}

tn_status tn_run_chain(tn_bound *b, int64_t n)
{
    while (n > 0) {
        const bool warm = b->update_known && b->queued[CHAINED_AGAIN] && b->context->last == b &&
                          b->generation == b->context->generation;
        const bool many = n >= MANY && warm && b->replays && !b->timers;
        TN_RETURN_IF(many ? run_recorded(b, CHAINED_MANY) : tn_run_again(b));
        n -= many ? MANY : 1;
    }
    return TN_OK;
}

/* --- what a plan has ---------------------------------------------------------------------------------------------------------- */

/* An outside tensor as the host sees it. */
static void *own_data(tn_bound *b, int i)
{
    void *p = b->externs[i];
    const tn_gtensor *t = tn_plan_extern(b->plan, i);
    if (b->host == b->own || !is_own(t->role)) return p;
    if (t->by_copy) return NULL;
    if (t->role == TN_ROLE_DINPUT) {
        b->gave_gradients |= b->plan->graph->tensor[t->source].wanted_adds;
        if (b->context->backend->download(b->context->queue, host_side(b, p), p, own_bytes(t)) != TN_OK) return NULL;
    }
    return host_side(b, p);
}

/* Where an output lies on the device, or NULL. */
static void *output_place(tn_bound *b, const char *name)
{
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

/* The output at p, copied for the host into memory that is kept for it. */
static void *see_output(tn_bound *b, const char *name, const void *p)
{
    const tn_graph *g = b->plan->graph;
    size_t i = 0;
    while (i < g->n_outputs && strcmp(g->output[i].name, name) != 0) i++;
    if (i == g->n_outputs || (!b->seen && !(b->seen = tn_alloc(sizeof *b->seen * g->n_outputs)))) return NULL;
    const tn_gtensor *t = &g->tensor[g->output[i].id];
    const size_t bytes = (size_t)tn_gtensor_count(t) * tn_dtype_bytes(t->dtype);
    if (!b->seen[i] && !(b->seen[i] = tn_alloc(bytes + 64))) return NULL;
    return b->context->backend->download(b->context->queue, b->seen[i], p, bytes) == TN_OK ? b->seen[i] : NULL;
}

void *tn_bound_place(tn_bound *b, const char *name)
{
    void *p = output_place(b, name);
    const int i = p ? -1 : tn_plan_extern_find(b->plan, name);
    return i < 0 ? p : b->externs[i];
}

tn_status tn_bound_take(tn_bound *b, const char *input, const void *device_memory)
{
    const int i = tn_plan_extern_find(b->plan, input);
    if (i < 0 || tn_plan_extern(b->plan, i)->role != TN_ROLE_INPUT)
        return tn_error(TN_INTERNAL, "the plan has no input %s", input);
    b->taken = device_memory;
    b->taken_to = b->externs[i];
    b->taken_bytes =
        (size_t)tn_gtensor_count(tn_plan_extern(b->plan, i)) * tn_dtype_bytes(tn_plan_extern(b->plan, i)->dtype);
    return TN_OK;
}

void *tn_bound_data(tn_bound *b, const char *name)
{
    const int i = tn_plan_extern_find(b->plan, name);
    if (i >= 0) return own_data(b, i);
    void *p = output_place(b, name);
    return !p || b->context->backend->host_memory ? p : see_output(b, name, p);
}

tn_status tn_bound_set(tn_bound *b, const char *scalar, float value)
{
    const int i = tn_plan_extern_find(b->plan, scalar);
    if (i < 0 || tn_plan_extern(b->plan, i)->role != TN_ROLE_SCALAR)
        return tn_error(TN_USAGE, "the plan has no run-time scalar %s", scalar);
    memcpy(host_side(b, b->externs[i]), &value, sizeof value);
    return TN_OK;
}

static void set_seed(tn_bound *b, const char *input, int64_t seed, int64_t step)
{
    const int64_t v[2] = { seed, step };
    const int i = tn_plan_extern_find(b->plan, input);
    if (i >= 0) memcpy(host_side(b, b->externs[i]), v, sizeof v);
}

void tn_bound_seed(tn_bound *b, int64_t seed, int64_t step)
{
    set_seed(b, "rng", seed, step);
    set_seed(b, TN_UPDATE_SEED, seed, step);
}

void tn_bound_update_seed(tn_bound *b, int64_t seed, int64_t update) { set_seed(b, TN_UPDATE_SEED, seed, update); }

void tn_bound_hold(tn_bound *b, bool held)
{
    b->held = held;
    b->uploaded = false;
}

void tn_bound_check(tn_bound *b, tn_finding *f) { b->finding = f; }
