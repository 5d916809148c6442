/* Finds the first tensor of a plan that is not finite, by checking every tensor before and after each step. Slow,
 * copies tensors to the host and allocates: only for diagnosis. Auxiliary outputs and packed weights are not checked:
 * they may hold anything. */
#include "plan/plan_internal.h"

#include <stdio.h>
#include <string.h>

typedef struct looker {
    const tn_plan *plan;
    const tn_backend *backend;
    void *queue;
    void *memory; /* of the host, for what a device has */
    size_t bytes;
    tn_finding *f;
} looker;

/* --- one tensor --------------------------------------------------------------------------------------------------------- */

static bool is_float(tn_dtype t) { return t == TN_F32 || t == TN_BF16 || t == TN_F16 || t == TN_F64; }

/* By its bits: the exponent is all ones. */
static bool is_bad(tn_dtype t, const unsigned char *p, bool *nan)
{
    uint16_t h;
    uint32_t w;
    uint64_t d;
    switch (t) {
    case TN_F32:
        memcpy(&w, p, sizeof w);
        *nan = w & 0x7FFFFF;
        return (w & 0x7F800000) == 0x7F800000;
    case TN_BF16:
        memcpy(&h, p, sizeof h);
        *nan = h & 0x7F;
        return (h & 0x7F80) == 0x7F80;
    case TN_F16:
        memcpy(&h, p, sizeof h);
        *nan = h & 0x3FF;
        return (h & 0x7C00) == 0x7C00;
    case TN_F64:
        memcpy(&d, p, sizeof d);
        *nan = d & 0xFFFFFFFFFFFFF;
        return (d & 0x7FF0000000000000) == 0x7FF0000000000000;
    default: return false;
    }
}

/* The bytes for the host to read; NULL: no memory, or the device failed. */
static const void *bring(looker *l, const void *data, size_t bytes)
{
    if (l->backend->host_memory) return data;
    if (bytes > l->bytes) {
        tn_free(l->memory);
        l->memory = tn_alloc(bytes);
        l->bytes = l->memory ? bytes : 0;
    }
    return l->memory && l->backend->download(l->queue, l->memory, data, bytes) == TN_OK ? l->memory : NULL;
}

typedef struct count {
    int64_t all, bad;
    int64_t first[TN_MAX_RANK]; /* place of the first bad one */
    bool nan;                   /* which is a NaN */
} count;

static tn_status count_bad(looker *l, const tn_arg *a, count *c)
{
    const size_t size = tn_dtype_bytes(a->dtype);
    tn_dims dims = a->dims;
    int64_t at[TN_MAX_RANK] = { 0 }, span = 1;
    const int32_t *live = a->live ? bring(l, a->live, sizeof *live) : NULL;
    *c = (count){ 0 };
    if (a->live && !live) return TN_MEMORY;
    if (live && dims.rank > 0 && *live < dims.dim[0]) dims.dim[0] = *live < 0 ? 0 : *live;
    c->all = tn_dims_count(dims);
    if (c->all == 0) return TN_OK;
    for (int i = 0; i < dims.rank; i++) span += (dims.dim[i] - 1) * a->stride[i];
    const unsigned char *p = bring(l, a->data, (size_t)span * size);
    if (!p) return TN_MEMORY;
    for (int64_t k = 0; k < c->all; k++) {
        int64_t e = 0;
        bool nan = false;
        for (int i = 0; i < dims.rank; i++) e += at[i] * a->stride[i];
        if (is_bad(a->dtype, p + (size_t)e * size, &nan) && c->bad++ == 0) {
            memcpy(c->first, at, sizeof at);
            c->nan = nan;
        }
        for (int i = dims.rank - 1; i >= 0 && ++at[i] == dims.dim[i]; i--) at[i] = 0;
    }
    return TN_OK;
}

static void describe(const tn_arg *a, const count *c, const char *what, tn_finding *f)
{
    char dims[128], at[128] = "";
    size_t n = 0;
    for (int i = 0; i < a->dims.rank; i++)
        n += (size_t)snprintf(at + n, sizeof at - n, "%s%lld", i ? "," : "", (long long)c->first[i]);
    *f =
        (tn_finding){ .found = true, .row = a->dims.rank ? c->first[0] : 0, .rows = a->dims.rank ? a->dims.dim[0] : 1 };
    snprintf(f->text, sizeof f->text, "%.300s, %s %s: %s at (%s)", what, tn_dtype_name(a->dtype),
             tn_dims_text(a->dims, dims, sizeof dims), c->nan ? "NaN" : "infinity", at);
    n = strlen(f->text);
    if (c->bad > 1)
        snprintf(f->text + n, sizeof f->text - n, ", %lld of %lld numbers are not finite", (long long)c->bad,
                 (long long)c->all);
}

static tn_status look_at(looker *l, const tn_arg *a, const char *what, bool of_batch)
{
    count c;
    if (l->f->found || !a->data || !is_float(a->dtype)) return TN_OK;
    TN_RETURN_IF(count_bad(l, a, &c));
    if (!c.bad) return TN_OK;
    describe(a, &c, what, l->f);
    if (!of_batch) l->f->row = -1;
    return TN_OK;
}

/* --- all of a plan -------------------------------------------------------------------------------------------------------- */

static const char *const role_names[] = {
    [TN_ROLE_PARAM] = "the parameter",      [TN_ROLE_GRAD] = "the gradient, before the step, of",
    [TN_ROLE_FROZEN] = "the frozen tensor", [TN_ROLE_STATE] = "the state",
    [TN_ROLE_INPUT] = "the input",          [TN_ROLE_SCALAR] = "the scalar",
    [TN_ROLE_DATA] = "the samples",
};

static const char *role_name(tn_role r)
{
    return (size_t)r < sizeof role_names / sizeof *role_names ? role_names[r] : NULL;
}

/* What the plan is given. */
static tn_status look_at_externs(looker *l, void *const *externs)
{
    char what[320];
    for (int i = 0; i < tn_plan_externs(l->plan); i++) {
        const tn_gtensor *t = tn_plan_extern(l->plan, i);
        const char *name = t->role == TN_ROLE_GRAD ? l->plan->graph->tensor[t->source].name : t->name;
        if (!role_name(t->role)) continue;
        tn_arg a = { .data = externs[i], .dtype = t->dtype, .dims = t->dims };
        memcpy(a.stride, t->stride, sizeof a.stride);
        snprintf(what, sizeof what, "%s %.200s", role_name(t->role), name ? name : "without a name");
        TN_RETURN_IF(look_at(l, &a, what, t->role == TN_ROLE_INPUT));
    }
    return TN_OK;
}

static void name_node(const tn_graph *g, const tn_node *n, char *buf, size_t bytes)
{
    const char *region = g->region[n->region], *file = strrchr(n->file ? n->file : "", '/');
    snprintf(buf, bytes, "%s in %.120s (%.60s:%d)", n->op->name, region[0] ? region : "the graph",
             file      ? file + 1
             : n->file ? n->file
                       : "",
             n->line);
}

/* What a step has written: outputs, and in the backward pass gradients. */
static tn_status look_at_step(looker *l, const tn_step *s, const tn_call *c)
{
    const tn_graph *g = l->plan->graph;
    const tn_node *n = s->node;
    const int aux = n->op->flags & TN_OP_AUX_FROM_1 ? 1 : n->op->aux_from,
              n_out = aux && aux < n->n_out ? aux : n->n_out;
    char node[256], what[480];
    name_node(g, n, node, sizeof node);
    for (int i = 0; i < n_out && (!n->backward || n->makes_out); i++) {
        const char *name = n->out[i] ? g->tensor[n->out[i]].name : NULL;
        snprintf(what, sizeof what, "%.120s%sthe output of %s", name ? name : "", name ? ", " : "", node);
        TN_RETURN_IF(look_at(l, &c->out[i], what, true));
    }
    for (int i = 0; n->backward && i < n->n_in; i++) {
        if (!n->din[i]) continue;
        const tn_gtensor *t = &g->tensor[g->tensor[n->din[i]].base];
        const char *name = t->role == TN_ROLE_GRAD || t->role == TN_ROLE_DINPUT ? g->tensor[t->source].name : NULL;
        if (name) snprintf(what, sizeof what, "the gradient of %.120s, made by the backward pass of %s", name, node);
        else snprintf(what, sizeof what, "the gradient of input %d of %s", i, node);
        TN_RETURN_IF(look_at(l, &c->din[i], what, t->role == TN_ROLE_ACTIVATION || t->role == TN_ROLE_DINPUT));
    }
    return TN_OK;
}

tn_status tn__run_checked(const tn_plan *p, const void *frame, void *const *externs, const tn_backend *backend,
                          void *queue, tn_finding *f)
{
    tn_status s = TN_OK;
    looker l = { .plan = p, .backend = backend, .queue = queue, .f = f };
    const tn_frame frames = tn_frame_parts(p, frame);
    TN_TRY(backend->wait(queue));
    TN_TRY(look_at_externs(&l, externs));
    for (size_t i = 0; i < p->n_steps; i++) {
        TN_TRY(p->step[i].kernel(&frames.call[i]));
        if (i >= p->prologue) TN_TRY(look_at_step(&l, &p->step[i], &frames.call[i]));
    }
done:
    tn_free(l.memory);
    return s;
}
