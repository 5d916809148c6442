/* loop on any device: workspace, running the body in it, sequences and back-propagation through time. Nothing is
 * allocated. */
#include "ops/loop/loop_run.h"

#include "base/status.h"
#include "ops/slots.h"

#include <string.h>

size_t tn_loop_work(const tn_sig *s, bool backward);
size_t tn_loop_host(const tn_sig *s, bool backward);

/* --- workspace ----------------------------------------------------------------------------------------------------------- */

typedef struct space {
    char *base;
    size_t used;
    struct space *host; /* for what the device never sees */
} space;

static void *take(space *s, size_t bytes) { return tn_carve(s->base, &s->used, bytes); }

static loop_runner take_runner(space *s, const loop_entry *e)
{
    loop_runner r = { .entry = e };
    if (!e->plan) return r;
    r.frame = take(s->host, tn_plan_frame_bytes(e->plan));
    r.arena = take(s, tn_plan_arena_bytes(e->plan) + 64);
    r.externs = take(s->host, sizeof *r.externs * (size_t)(e->n_externs + 1));
    return r;
}

static void take_moving(space *s, const tn_body_spec *spec, char **moving)
{
    for (int i = 0; i < spec->n_consts; i++)
        if (spec->live_consts >> i & 1) moving[i] = take(s, loop_type_bytes(&spec->consts[i]));
}

/* What a solve needs, whatever the phase. */
static void take_solve(space *s, const tn_loop_body *b, bool backward, loop_work *w)
{
    const tn_type *h = &b->spec.state[0];
    const size_t rows = (size_t)h->dims.dim[0];
    w->live = take(s, sizeof *w->live);
    w->sample = take(s, sizeof *w->sample * rows);
    w->there = take(s, rows);
    w->residual = take(s, sizeof *w->residual * rows);
    w->moved = take(s, sizeof *w->moved * rows);
    w->progress = take(s, 64);
    if (b->solver == TN_SOLVE_ANDERSON) {
        const int64_t width = rows ? tn_dims_count(h->dims) / h->dims.dim[0] : 0;
        w->anderson = tn_anderson_at(take(s, tn_anderson_bytes(b->memory, h->dims.dim[0], width)), b->memory,
                                     h->dims.dim[0], width);
    }
    if (backward && b->at_rest) w->moving[LOOP_REST] = take(s, loop_type_bytes(h));
    if (!b->compact) return;
    w->front = take(s, loop_type_bytes(h));
    take_moving(s, &b->spec, w->moving);
    if (!backward) return;
    for (int i = 0; b->grad == TN_LOOP_BPTT && i < b->spec.n_consts; i++)
        if ((b->spec.live_consts >> i & 1) && b->vjp_all.dconsts[i] >= 0)
            w->dmoving[i] = take(s, loop_type_bytes(&b->spec.consts[i]));
    take_moving(s, &b->cost_spec, w->moving + TN_BODY_MAX);
    if (b->grad == TN_LOOP_IMPLICIT) w->moving[LOOP_FREE_STATE] = take(s, loop_type_bytes(h));
}

static loop_work carve(const tn_loop_body *b, bool backward, void *base, void *host)
{
    space of_host = { .base = host }, s = { .base = base, .host = &of_host };
    loop_work w = { 0 };
    size_t largest = 0;
    for (int i = 0; i < b->spec.n_state; i++) {
        w.state[i] = take(&s, loop_type_bytes(&b->spec.state[i]));
        w.spare[i] = take(&s, loop_type_bytes(&b->spec.state[i]));
        if (loop_type_bytes(&b->spec.state[i]) > largest) largest = loop_type_bytes(&b->spec.state[i]);
    }
    for (int i = 0; i < b->spec.n_ys; i++)
        if (loop_type_bytes(&b->spec.ys[i]) > largest) largest = loop_type_bytes(&b->spec.ys[i]);
    if (b->solve) take_solve(&s, b, backward, &w);
    if (!backward || b->grad == TN_LOOP_EP) w.forward = take_runner(&s, &b->forward);
    if (backward) {
        w.vjp_all = take_runner(&s, &b->vjp_all);
        w.vjp_state = take_runner(&s, &b->vjp_state);
        w.cost = take_runner(&s, &b->cost);
        w.lambda = take(&s, loop_type_bytes(&b->spec.state[0]));
        w.force = take(&s, loop_type_bytes(&b->spec.state[0]));
        w.zeros = take(&s, largest);
        for (int i = 0; i < b->spec.n_xs; i++) w.dx[i] = take(&s, loop_type_bytes(&b->spec.xs[i]));
        w.one = take(&s, sizeof *w.one);
    }
    w.total = s.used;
    w.host = of_host.used;
    return w;
}

size_t tn_loop_work(const tn_sig *s, bool backward)
{
    return carve(((const tn_loop_attr *)s->attr)->body, backward, NULL, NULL).total;
}

size_t tn_loop_host(const tn_sig *s, bool backward)
{
    return carve(((const tn_loop_attr *)s->attr)->body, backward, NULL, NULL).host;
}

/* --- running the body ----------------------------------------------------------------------------------------------------- */

static void set_consts(const tn_call *c, const tn_loop_body *b, const loop_work *w, loop_runner *r)
{
    for (int i = 0; i < b->spec.n_consts; i++)
        loop_set(r, r->entry->consts[i], w->ranked && w->moving[i] ? w->moving[i] : c->in[loop_in_const(b) + i].data);
}

static const char *at_step(const tn_arg *a, int64_t t, size_t bytes)
{
    return (const char *)a->data + (size_t)t * bytes;
}

void *loop_result(const loop_runner *r, const char *kind, int i)
{
    char name[16] = { 0 };
    size_t n = strlen(kind);
    memcpy(name, kind, n);
    if (i >= 10) name[n++] = (char)('0' + i / 10);
    name[n] = (char)('0' + i % 10);
    return tn_frame_output(r->entry->plan, r->frame, name);
}

/* One step of a sequence from the state in w->state; the results stay in the body's arena. */
static tn_status step_forward(const tn_call *c, const tn_loop_body *b, loop_work *w, int64_t t)
{
    for (int i = 0; i < b->spec.n_state; i++) loop_set(&w->forward, b->forward.state[i], w->state[i]);
    for (int i = 0; i < b->spec.n_xs; i++)
        loop_set(&w->forward, b->forward.xs[i], at_step(&c->in[loop_in_x(b) + i], t, loop_type_bytes(&b->spec.xs[i])));
    loop_bind(c, &w->forward);
    return loop_run(&w->forward);
}

/* --- forward ------------------------------------------------------------------------------------------------------------------ */

static void swap(loop_work *w, int n)
{
    for (int i = 0; i < n; i++) {
        char *p = w->state[i];
        w->state[i] = w->spare[i];
        w->spare[i] = p;
    }
}

/* Slice t of an array (steps,...) of the node, where it is asked for. */
static tn_status put_slice(const loop_device *v, const tn_call *c, const tn_arg *a, int64_t t, const void *from,
                           size_t bytes)
{
    return a->data ? v->copy(c, (char *)a->data + (size_t)t * bytes, from, bytes) : TN_OK;
}

static tn_status run_sequence(const loop_device *v, const tn_call *c, const tn_loop_body *b, loop_work *w)
{
    for (int64_t t = 0; t < b->steps; t++) {
        for (int i = 0; b->grad == TN_LOOP_BPTT && i < b->spec.n_state; i++)
            TN_RETURN_IF(
                put_slice(v, c, &c->out[loop_out_history(b) + i], t, w->state[i], loop_type_bytes(&b->spec.state[i])));
        TN_RETURN_IF(step_forward(c, b, w, t));
        for (int i = 0; i < b->spec.n_ys; i++)
            TN_RETURN_IF(put_slice(v, c, &c->out[loop_out_y(b) + i], t, loop_result(&w->forward, "y", i),
                                   loop_type_bytes(&b->spec.ys[i])));
        for (int i = 0; i < b->spec.n_state; i++) /* all results lie in the arena: no state is overwritten too early */
            TN_RETURN_IF(
                v->copy(c, w->spare[i], loop_result(&w->forward, "next", i), loop_type_bytes(&b->spec.state[i])));
        swap(w, b->spec.n_state);
    }
    return v->put_taken(c, b, b->steps);
}

tn_status tn_loop_run_forward(const loop_device *v, const tn_call *c)
{
    const tn_loop_body *b = ((const tn_loop_attr *)c->attr)->body;
    loop_work w = carve(b, false, c->work, c->host);
    for (int i = 0; i < b->spec.n_state; i++)
        TN_RETURN_IF(v->copy(c, w.state[i], c->in[i].data, loop_type_bytes(&b->spec.state[i])));
    if (b->solve) {
        TN_RETURN_IF(v->solve(c, b, &w));
    } else {
        set_consts(c, b, &w, &w.forward);
        TN_RETURN_IF(run_sequence(v, c, b, &w));
    }
    for (int i = 0; i < b->spec.n_state; i++)
        if (c->out[i].data) TN_RETURN_IF(v->copy(c, c->out[i].data, w.state[i], loop_type_bytes(&b->spec.state[i])));
    return TN_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------------------- */

static tn_status zero_dconsts(const loop_device *v, const tn_call *c, const tn_loop_body *b)
{
    for (int i = loop_in_x(b); i < c->n_in; i++) {
        if (!c->din[i].data || (c->accumulate >> i & 1)) continue;
        if (i < loop_in_const(b) && b->grad == TN_LOOP_BPTT) continue; /* slices are written one by one */
        TN_RETURN_IF(v->zero(c, c->din[i].data, (size_t)tn_dims_count(c->din[i].dims) * sizeof(float)));
    }
    return TN_OK;
}

static tn_status give_dstate(const loop_device *v, const tn_call *c, int i, const float *d)
{
    if (!c->din[i].data) return TN_OK;
    const int64_t n = tn_dims_count(c->din[i].dims);
    const size_t bytes = (size_t)n * sizeof *d;
    if (c->accumulate >> i & 1) return d ? v->add(c, c->din[i].data, d, n) : TN_OK;
    return d ? v->copy(c, c->din[i].data, d, bytes) : v->zero(c, c->din[i].data, bytes);
}

/* lambda^T df/d(everything) at the state h and step t: constants are added to, slices of xs written or added. */
static tn_status pull_back(const loop_device *v, const tn_call *c, const tn_loop_body *b, loop_work *w, char *const *h,
                           int64_t t, char *const *dnext, char *const *dstate)
{
    loop_runner *r = &w->vjp_all;
    const loop_entry *e = &b->vjp_all;
    for (int i = 0; i < b->spec.n_state; i++) {
        loop_set(r, e->state[i], h[i]);
        loop_set(r, e->dnext[i], dnext[i]);
        loop_set(r, e->dstate[i], dstate[i]);
    }
    for (int i = 0; i < b->spec.n_ys; i++) {
        const tn_arg *dy = &c->dout[loop_out_y(b) + i];
        loop_set(r, e->dy[i], dy->data ? at_step(dy, t, loop_type_bytes(&b->spec.ys[i])) : w->zeros);
    }
    set_consts(c, b, w, r);
    loop_set(r, e->live, w->live);
    for (int i = 0; i < b->spec.n_consts; i++)
        loop_set(r, e->dconsts[i],
                 w->ranked && w->dmoving[i] ? (void *)w->dmoving[i] : c->din[loop_in_const(b) + i].data);
    for (int i = 0; i < b->spec.n_xs; i++) {
        const int k = loop_in_x(b) + i;
        const size_t bytes = loop_type_bytes(&b->spec.xs[i]);
        const bool add = c->accumulate >> k & 1;
        loop_set(r, e->xs[i], at_step(&c->in[k], t, bytes));
        loop_set(r, e->dxs[i], add ? w->dx[i] : at_step(&c->din[k], t, bytes));
    }
    loop_bind(c, r);
    TN_RETURN_IF(loop_run(r));
    for (int i = 0; i < b->spec.n_xs; i++) {
        const int k = loop_in_x(b) + i;
        if (e->dxs[i] >= 0 && (c->accumulate >> k & 1))
            TN_RETURN_IF(v->add(c, (float *)c->din[k].data + t * tn_dims_count(b->spec.xs[i].dims),
                                (float *)(void *)w->dx[i], tn_dims_count(b->spec.xs[i].dims)));
    }
    return TN_OK;
}

static tn_status backward_bptt(const loop_device *v, const tn_call *c, const tn_loop_body *b, loop_work *w)
{
    const int64_t taken = b->solve ? v->taken(c, b) : b->steps;
    for (int i = 0; i < b->spec.n_state; i++) {
        const size_t bytes = loop_type_bytes(&b->spec.state[i]);
        TN_RETURN_IF(c->dout[i].data ? v->copy(c, w->state[i], c->dout[i].data, bytes)
                                     : v->zero(c, w->state[i], bytes));
    }
    if (b->solve) { /* what is not there has no gradient, and is not touched below where the body sees rows alive only */
        TN_RETURN_IF(v->clear_behind(c, b, (float *)(void *)w->state[0]));
        TN_RETURN_IF(v->clear_behind(c, b, (float *)(void *)w->spare[0]));
        TN_RETURN_IF(v->set_live(c, b, w));
        if (v->rank) TN_RETURN_IF(v->rank(c, b, w));
    }
    for (int64_t t = taken - 1; t >= 0; t--) {
        char *d[TN_BODY_MAX], *h[TN_BODY_MAX];
        for (int i = 0; i < b->spec.n_state; i++) {
            h[i] = (char *)c->out[loop_out_history(b) + i].data + (size_t)t * loop_type_bytes(&b->spec.state[i]);
            d[i] = w->state[i];
        }
        if (b->solve) TN_RETURN_IF(v->reaches(c, b, w, t, &h[0], &d[0]));
        TN_RETURN_IF(pull_back(v, c, b, w, h, t, d, w->spare));
        if (b->solve) TN_RETURN_IF(v->passes_by(c, b, w, t));
        swap(w, b->spec.n_state);
    }
    if (b->solve && v->unrank) TN_RETURN_IF(v->unrank(c, b, w));
    for (int i = 0; i < b->spec.n_state; i++) TN_RETURN_IF(give_dstate(v, c, i, (float *)(void *)w->state[i]));
    return TN_OK;
}

tn_status tn_loop_run_backward(const loop_device *v, const tn_call *c)
{
    const tn_loop_body *b = ((const tn_loop_attr *)c->attr)->body;
    loop_work w = carve(b, true, c->work, c->host);
    size_t largest = 0;
    for (int i = 0; i < b->spec.n_ys; i++)
        if (loop_type_bytes(&b->spec.ys[i]) > largest) largest = loop_type_bytes(&b->spec.ys[i]);
    TN_RETURN_IF(v->zero(c, w.zeros, largest));
    TN_RETURN_IF(zero_dconsts(v, c, b));
    if (b->grad == TN_LOOP_BPTT) return backward_bptt(v, c, b, &w);
    const size_t bytes = loop_type_bytes(&b->spec.state[0]);
    if (b->grad == TN_LOOP_EP) TN_RETURN_IF(v->propagate(c, b, &w));
    else if (!c->dout[0].data) TN_RETURN_IF(v->zero(c, w.lambda, bytes));
    else if (b->grad == TN_LOOP_IMPLICIT) TN_RETURN_IF(v->adjoint(c, b, &w, c->dout[0].data));
    else TN_RETURN_IF(v->copy(c, w.lambda, c->dout[0].data, bytes));
    TN_RETURN_IF(v->clear_behind(c, b, w.lambda));
    TN_RETURN_IF(v->set_live(c, b, &w));
    char *h = c->out[0].data, *lambda = (char *)w.lambda;
    TN_RETURN_IF(pull_back(v, c, b, &w, &h, 0, &lambda, w.spare));
    return give_dstate(v, c, 0, NULL);
}
