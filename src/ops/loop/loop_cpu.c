/* loop on the CPU: runs the body's entry points in workspace memory. Nothing is allocated; every iteration resolves
 * the few pointers that change. */
#include "ops/loop/loop_body.h"

#include "backend/cpu/pool.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

tn_kernel tn_loop_forward_cpu, tn_loop_backward_cpu;
size_t tn_loop_work_cpu(const tn_sig *s, bool backward);

/* --- workspace ----------------------------------------------------------------------------------------------------------- */

typedef struct space {
    char *base;
    size_t used;
} space;

static void *take(space *s, size_t bytes)
{
    void *p = s->base ? s->base + s->used : NULL;
    s->used += (bytes + 63) / 64 * 64;
    return p;
}

typedef struct runner {
    const loop_entry *entry;
    void *frame, *arena;
    void **externs;
    bool ran; /* in this call: the constants are those of last time */
} runner;

static runner take_runner(space *s, const loop_entry *e)
{
    runner r = { .entry = e };
    if (!e->plan) return r;
    r.frame = take(s, tn_plan_frame_bytes(e->plan));
    r.arena = take(s, tn_plan_arena_bytes(e->plan) + 64);
    r.externs = take(s, sizeof *r.externs * (size_t)(e->n_externs + 1));
    return r;
}

typedef struct workspace {
    runner forward, vjp_carry, vjp_all, cost;
    char *carry[TN_BODY_MAX], *spare[TN_BODY_MAX]; /* current state or gradient, and the next */
    float *lambda, *force;                         /* like carry 0 */
    char *zeros;                                   /* a zero cotangent */
    char *dx[TN_BODY_MAX];                         /* gradient of one slice of each sequence */
    uint8_t *there;                                /* per sample */
    float *one;
    size_t total;
} workspace;

static workspace carve(const tn_loop_body *b, bool backward, void *base)
{
    space s = { .base = base };
    workspace w = { 0 };
    size_t largest = 0;
    for (int i = 0; i < b->spec.n_carry; i++) {
        w.carry[i] = take(&s, loop_type_bytes(&b->spec.carry[i]));
        w.spare[i] = take(&s, loop_type_bytes(&b->spec.carry[i]));
        if (loop_type_bytes(&b->spec.carry[i]) > largest) largest = loop_type_bytes(&b->spec.carry[i]);
    }
    for (int i = 0; i < b->spec.n_ys; i++)
        if (loop_type_bytes(&b->spec.ys[i]) > largest) largest = loop_type_bytes(&b->spec.ys[i]);
    w.there = take(&s, (size_t)b->spec.carry[0].dims.dim[0] + 1);
    if (!backward || b->grad == TN_LOOP_EP) w.forward = take_runner(&s, &b->forward);
    if (backward) {
        w.vjp_all = take_runner(&s, &b->vjp_all);
        w.vjp_carry = take_runner(&s, &b->vjp_carry);
        w.cost = take_runner(&s, &b->cost);
        w.lambda = take(&s, loop_type_bytes(&b->spec.carry[0]));
        w.force = take(&s, loop_type_bytes(&b->spec.carry[0]));
        w.zeros = take(&s, largest);
        for (int i = 0; i < b->spec.n_xs; i++) w.dx[i] = take(&s, loop_type_bytes(&b->spec.xs[i]));
        w.one = take(&s, sizeof *w.one);
    }
    w.total = s.used;
    return w;
}

size_t tn_loop_work_cpu(const tn_sig *s, bool backward)
{
    return carve(((const tn_loop_attr *)s->attr)->body, backward, NULL).total;
}

/* --- running the body ----------------------------------------------------------------------------------------------------- */

static void set(runner *r, int index, const void *p)
{
    if (index >= 0) r->externs[index] = (void *)(uintptr_t)p;
}

static void set_consts(const tn_call *c, runner *r, int first, int n)
{
    for (int i = 0; i < n; i++) set(r, r->entry->consts[i], c->in[first + i].data);
}

static tn_status go(const tn_call *c, runner *r)
{
    tn_frame_init(r->entry->plan, r->frame, r->arena, r->externs, c->pool, c->stream);
    const bool again = r->ran;
    r->ran = true;
    return again ? tn_frame_run_again(r->entry->plan, r->frame) : tn_frame_run(r->entry->plan, r->frame);
}

static const char *at_step(const tn_arg *a, int64_t t, size_t bytes) { return (const char *)a->data + (size_t)t * bytes; }

static void copy_out(const tn_arg *a, const void *from, size_t bytes)
{
    if (a->data && bytes) memcpy(a->data, from, bytes);
}

/* f(h) for the state in w->carry; the results stay in the body's arena. */
static tn_status step_forward(const tn_call *c, const tn_loop_body *b, workspace *w, int64_t t)
{
    for (int i = 0; i < b->spec.n_carry; i++) set(&w->forward, b->forward.carry[i], w->carry[i]);
    for (int i = 0; i < b->spec.n_xs; i++)
        set(&w->forward, b->forward.xs[i], at_step(&c->in[loop_in_x(b) + i], t, loop_type_bytes(&b->spec.xs[i])));
    return go(c, &w->forward);
}

static const void *result(const runner *r, const char *kind, int i)
{
    char name[16] = { 0 };
    size_t n = strlen(kind);
    memcpy(name, kind, n);
    if (i >= 10) name[n++] = (char)('0' + i / 10);
    name[n] = (char)('0' + i % 10);
    return tn_frame_output(r->entry->plan, r->frame, name);
}

/* --- solving ---------------------------------------------------------------------------------------------------------------- */

typedef struct solver {
    int64_t rows, count, width; /* samples, those that are there, numbers in each */
    float damping, rtol, tol;
    bool freeze, together; /* a sample that has converged stays; all stop at once, by tol */
    int32_t *steps;        /* (rows): counts evaluations, or NULL */
    float *residuals;      /* (rows), or NULL */
    float largest;         /* residual of the last iteration */
} solver;

static float scalar(const tn_call *c, int i, float none) { return c->in[i].data ? *(const float *)c->in[i].data : none; }

static tn_status make_solver(const tn_call *c, const tn_loop_body *b, solver *s)
{
    const int64_t rows = b->spec.carry[0].dims.dim[0], n = tn_dims_count(b->spec.carry[0].dims);
    const int32_t *count = c->in[loop_in_count(b)].data;
    if (count && (*count < 0 || *count > rows))
        return tn_error(TN_USAGE, "count is %d and the batch has %lld rows", (int)*count, (long long)rows);
    *s = (solver){ .rows = rows, .count = count ? *count : rows, .width = rows ? n / rows : 0,
                   .rtol = scalar(c, loop_in_rtol(b), 0), .damping = scalar(c, loop_in_damping(b), 1),
                   .tol = scalar(c, loop_in_tol(b), 0), .freeze = b->grad != TN_LOOP_BPTT,
                   .together = c->in[loop_in_tol(b)].data != NULL };
    return TN_OK;
}

/* h <- (1-d) h + d f for the samples still on their way; returns how many are left. */
static int64_t relax(solver *s, float *h, const float *f, uint8_t *there)
{
    int64_t left = 0;
    double moved = 0; /* |h_next - h|^2 over the batch */
    s->largest = 0;
    for (int64_t b = 0; b < s->count; b++) {
        float *hb = h + b * s->width;
        const float *fb = f + b * s->width;
        double dist = 0, size = 0, step = 0;
        if (there[b] && s->freeze && !s->together) continue;
        for (int64_t i = 0; i < s->width; i++) {
            const double d = (double)fb[i] - (double)hb[i];
            dist += d * d;
            size += (double)fb[i] * (double)fb[i];
        }
        for (int64_t i = 0; i < s->width; i++) {
            const float next = (1 - s->damping) * hb[i] + s->damping * fb[i];
            const double d = (double)next - (double)hb[i];
            step += d * d;
            hb[i] = next;
        }
        moved += step;
        const float r = (float)(sqrt(dist) / fmax(sqrt(size), 1e-6));
        there[b] = r < s->rtol; /* false for NaN */
        left += !there[b];
        if (s->steps) s->steps[b]++;
        if (s->residuals) s->residuals[b] = r;
        if (isnan(r) || r > s->largest) s->largest = r; /* NaN stays */
    }
    return s->together ? (sqrt(moved) < (double)s->tol ? 0 : s->count) : left;
}

static tn_status solve(const tn_call *c, const tn_loop_body *b, workspace *w, float *const history, int64_t *taken, float *residual)
{
    solver s;
    TN_RETURN_IF(make_solver(c, b, &s));
    const size_t bytes = loop_type_bytes(&b->spec.carry[0]);
    for (int i = 0; i < LOOP_PER_SAMPLE; i++) {
        void *p = c->out[loop_out_sample(b, i)].data;
        if (p && s.rows) memset(p, 0, (size_t)s.rows * 4);
    }
    s.steps = c->out[loop_out_sample(b, LOOP_FREE_STEPS)].data;
    s.residuals = c->out[loop_out_sample(b, LOOP_RESIDUALS)].data;
    memset(w->there, 0, (size_t)s.rows);
    *taken = 0;
    for (int64_t left = s.count; left > 0 && *taken < b->steps; ++*taken) {
        if (history) memcpy((char *)history + (size_t)*taken * bytes, w->carry[0], bytes);
        TN_RETURN_IF(step_forward(c, b, w, 0));
        left = relax(&s, (float *)(void *)w->carry[0], result(&w->forward, "next", 0), w->there);
    }
    *residual = s.largest;
    return TN_OK;
}

/* --- forward ------------------------------------------------------------------------------------------------------------------ */

static tn_status run_sequence(const tn_call *c, const tn_loop_body *b, workspace *w)
{
    for (int64_t t = 0; t < b->steps; t++) {
        for (int i = 0; b->grad == TN_LOOP_BPTT && i < b->spec.n_carry; i++) {
            const size_t bytes = loop_type_bytes(&b->spec.carry[i]);
            const tn_arg *h = &c->out[loop_out_history(b) + i];
            if (h->data && bytes) memcpy((char *)h->data + (size_t)t * bytes, w->carry[i], bytes);
        }
        TN_RETURN_IF(step_forward(c, b, w, t));
        for (int i = 0; i < b->spec.n_ys; i++) {
            const size_t bytes = loop_type_bytes(&b->spec.ys[i]);
            const tn_arg *y = &c->out[loop_out_y(b) + i];
            if (y->data && bytes) memcpy((char *)y->data + (size_t)t * bytes, result(&w->forward, "y", i), bytes);
        }
        for (int i = 0; i < b->spec.n_carry; i++) { /* all results lie in the arena: no carry is overwritten too early */
            const size_t bytes = loop_type_bytes(&b->spec.carry[i]);
            if (bytes) memcpy(w->spare[i], result(&w->forward, "next", i), bytes);
        }
        for (int i = 0; i < b->spec.n_carry; i++) {
            char *p = w->carry[i];
            w->carry[i] = w->spare[i];
            w->spare[i] = p;
        }
    }
    return TN_OK;
}

static tn_status check_threads(const tn_call *c, const tn_loop_body *b)
{
    const int made = b->spec.threads > 0 ? b->spec.threads : 1;
    if (tn_pool_threads(c->pool) <= made) return TN_OK;
    return tn_error(TN_USAGE, "its body was made for %d threads and runs on %d: set tn_graph_options.threads", made,
                    tn_pool_threads(c->pool));
}

tn_status tn_loop_forward_cpu(const tn_call *c)
{
    const tn_loop_body *b = ((const tn_loop_attr *)c->attr)->body;
    workspace w = carve(b, false, c->work);
    int64_t taken = b->steps;
    float residual = 0;
    TN_RETURN_IF(check_threads(c, b));
    set_consts(c, &w.forward, loop_in_const(b), b->spec.n_consts);
    for (int i = 0; i < b->spec.n_carry; i++)
        if (loop_type_bytes(&b->spec.carry[i])) memcpy(w.carry[i], c->in[i].data, loop_type_bytes(&b->spec.carry[i]));
    if (b->solve) {
        float *history = b->grad == TN_LOOP_BPTT ? c->out[loop_out_history(b)].data : NULL;
        TN_RETURN_IF(solve(c, b, &w, history, &taken, &residual));
    } else {
        TN_RETURN_IF(run_sequence(c, b, &w));
    }
    for (int i = 0; i < b->spec.n_carry; i++) copy_out(&c->out[i], w.carry[i], loop_type_bytes(&b->spec.carry[i]));
    const int32_t n = (int32_t)taken;
    copy_out(&c->out[loop_out_iterations(b)], &n, sizeof n);
    copy_out(&c->out[loop_out_iterations(b) + 1], &residual, sizeof residual);
    return TN_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------------------- */

static void zero_dconsts(const tn_call *c, const tn_loop_body *b)
{
    for (int i = loop_in_x(b); i < c->n_in; i++) {
        if (!c->din[i].data || (c->accumulate >> i & 1)) continue;
        if (i < loop_in_const(b) && b->grad == TN_LOOP_BPTT) continue; /* slices are written one by one */
        memset(c->din[i].data, 0, (size_t)tn_dims_count(c->din[i].dims) * sizeof(float));
    }
}

static void add_to(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

static void give_dcarry(const tn_call *c, int i, const float *d)
{
    if (!c->din[i].data) return;
    const int64_t n = tn_dims_count(c->din[i].dims);
    float *to = c->din[i].data;
    if (c->accumulate >> i & 1) {
        if (d) add_to(to, d, n);
    } else if (d) {
        memcpy(to, d, (size_t)n * sizeof *to);
    } else {
        memset(to, 0, (size_t)n * sizeof *to);
    }
}

/* lambda^T df/d(everything) at the state h and step t: constants are added to, slices of xs written or added. */
static tn_status pull_back(const tn_call *c, const tn_loop_body *b, workspace *w, char *const *h, int64_t t,
                           char *const *dnext, char *const *dcarry)
{
    runner *r = &w->vjp_all;
    const loop_entry *e = &b->vjp_all;
    for (int i = 0; i < b->spec.n_carry; i++) {
        set(r, e->carry[i], h[i]);
        set(r, e->dnext[i], dnext[i]);
        set(r, e->dcarry[i], dcarry[i]);
    }
    for (int i = 0; i < b->spec.n_ys; i++) {
        const tn_arg *dy = &c->dout[loop_out_y(b) + i];
        set(r, e->dy[i], dy->data ? at_step(dy, t, loop_type_bytes(&b->spec.ys[i])) : w->zeros);
    }
    set_consts(c, r, loop_in_const(b), b->spec.n_consts);
    for (int i = 0; i < b->spec.n_consts; i++) set(r, e->dconsts[i], c->din[loop_in_const(b) + i].data);
    for (int i = 0; i < b->spec.n_xs; i++) {
        const int k = loop_in_x(b) + i;
        const size_t bytes = loop_type_bytes(&b->spec.xs[i]);
        const bool add = c->accumulate >> k & 1;
        set(r, e->xs[i], at_step(&c->in[k], t, bytes));
        set(r, e->dxs[i], add ? w->dx[i] : at_step(&c->din[k], t, bytes));
    }
    TN_RETURN_IF(go(c, r));
    for (int i = 0; i < b->spec.n_xs; i++) {
        const int k = loop_in_x(b) + i;
        if (e->dxs[i] >= 0 && (c->accumulate >> k & 1))
            add_to((float *)c->din[k].data + t * tn_dims_count(b->spec.xs[i].dims), (float *)(void *)w->dx[i],
                   tn_dims_count(b->spec.xs[i].dims));
    }
    return TN_OK;
}

/* Rows that are not there have no gradient. */
static void clear_behind(const solver *s, float *d)
{
    if (s->count < s->rows) memset(d + s->count * s->width, 0, (size_t)((s->rows - s->count) * s->width) * sizeof *d);
}

static tn_status backward_bptt(const tn_call *c, const tn_loop_body *b, workspace *w)
{
    solver s = { .damping = 1 };
    if (b->solve) TN_RETURN_IF(make_solver(c, b, &s));
    const int64_t taken = b->solve ? *(const int32_t *)c->out[loop_out_iterations(b)].data : b->steps;
    char *h[TN_BODY_MAX];
    for (int i = 0; i < b->spec.n_carry; i++) {
        const size_t bytes = loop_type_bytes(&b->spec.carry[i]);
        if (c->dout[i].data) memcpy(w->carry[i], c->dout[i].data, bytes);
        else if (bytes) memset(w->carry[i], 0, bytes);
    }
    if (b->solve) clear_behind(&s, (float *)(void *)w->carry[0]);
    for (int64_t t = taken - 1; t >= 0; t--) {
        char *d[TN_BODY_MAX];
        for (int i = 0; i < b->spec.n_carry; i++) {
            h[i] = (char *)c->out[loop_out_history(b) + i].data + (size_t)t * loop_type_bytes(&b->spec.carry[i]);
            d[i] = w->carry[i];
        }
        const int64_t n = tn_dims_count(b->spec.carry[0].dims);
        if (s.damping != 1) { /* d = damping * gradient reaches f; the rest passes by */
            for (int64_t i = 0; i < n; i++) w->lambda[i] = s.damping * ((float *)(void *)w->carry[0])[i];
            d[0] = (char *)w->lambda;
        }
        TN_RETURN_IF(pull_back(c, b, w, h, t, d, w->spare));
        if (s.damping != 1)
            for (int64_t i = 0; i < n; i++)
                ((float *)(void *)w->spare[0])[i] += (1 - s.damping) * ((float *)(void *)w->carry[0])[i];
        for (int i = 0; i < b->spec.n_carry; i++) {
            char *p = w->carry[i];
            w->carry[i] = w->spare[i];
            w->spare[i] = p;
        }
    }
    for (int i = 0; i < b->spec.n_carry; i++) give_dcarry(c, i, (float *)(void *)w->carry[i]);
    for (int64_t t = taken; b->spec.n_xs && t < b->steps; t++) /* slices never read */
        for (int i = 0; i < b->spec.n_xs; i++)
            if (c->din[loop_in_x(b) + i].data && !(c->accumulate >> (loop_in_x(b) + i) & 1))
                memset((char *)c->din[loop_in_x(b) + i].data + (size_t)t * loop_type_bytes(&b->spec.xs[i]), 0,
                       loop_type_bytes(&b->spec.xs[i]));
    return TN_OK;
}

/* lambda = g + J^T lambda at the equilibrium, by the damped iteration of the solve. */
static tn_status adjoint(const tn_call *c, const tn_loop_body *b, workspace *w, solver *s, const float *g)
{
    const int64_t n = s->rows * s->width;
    runner *r = &w->vjp_carry;
    float *pulled = (float *)(void *)w->spare[0];
    memcpy(w->lambda, g, (size_t)n * sizeof *g);
    clear_behind(s, w->lambda);
    memset(w->there, 0, (size_t)s->rows);
    s->steps = c->out[loop_out_sample(b, LOOP_ADJOINT_STEPS)].data;
    if (s->steps) memset(s->steps, 0, (size_t)s->rows * sizeof *s->steps);
    set_consts(c, r, loop_in_const(b), b->spec.n_consts);
    set(r, b->vjp_carry.carry[0], c->out[0].data);
    set(r, b->vjp_carry.dnext[0], w->lambda);
    set(r, b->vjp_carry.dcarry[0], pulled);
    int64_t left = s->count;
    for (int64_t t = 0; left > 0 && t < b->steps; t++) {
        TN_RETURN_IF(go(c, r));
        add_to(pulled, g, n);
        left = relax(s, w->lambda, pulled, w->there);
    }
    return TN_OK;
}

/* The nudged equilibrium for one sign of beta, from the free one, into w->carry[0]; f(h*) into w->lambda if asked. */
static tn_status nudge(const tn_call *c, const tn_loop_body *b, workspace *w, solver *s, float beta, bool first)
{
    const int64_t n = s->rows * s->width;
    float *target = (float *)(void *)w->spare[0];
    memcpy(w->carry[0], c->out[0].data, (size_t)n * sizeof(float));
    memset(w->there, 0, (size_t)s->rows);
    set_consts(c, &w->forward, loop_in_const(b), b->spec.n_consts);
    set_consts(c, &w->cost, loop_in_cost(b), b->cost_spec.n_consts);
    int64_t left = s->count;
    for (int64_t t = 0; left > 0 && t < b->steps; t++) {
        TN_RETURN_IF(step_forward(c, b, w, 0));
        memcpy(target, result(&w->forward, "next", 0), (size_t)n * sizeof *target);
        if (first && !t) memcpy(w->lambda, target, (size_t)n * sizeof *target);
        *w->one = 1;
        set(&w->cost, b->cost.carry[0], target);
        set(&w->cost, b->cost.dy[0], w->one);
        set(&w->cost, b->cost.dcarry[0], w->force);
        TN_RETURN_IF(go(c, &w->cost));
        for (int64_t i = 0; i < n; i++) target[i] -= beta * w->force[i];
        left = relax(s, (float *)(void *)w->carry[0], target, w->there);
    }
    return TN_OK;
}

/* |h_beta - h*| / |f(h*) - h*| of each sample; f(h*) is in w->lambda. */
static void give_signal(const tn_call *c, const tn_loop_body *b, const workspace *w, const solver *s)
{
    const float *free_state = c->out[0].data, *h = (const float *)(const void *)w->carry[0];
    float *signal = c->out[loop_out_sample(b, LOOP_SIGNAL)].data;
    for (int64_t k = 0; signal && k < s->rows; k++) {
        double moved = 0, noise = 0;
        for (int64_t i = k * s->width; i < (k + 1) * s->width; i++) {
            moved += pow((double)h[i] - (double)free_state[i], 2);
            noise += pow((double)w->lambda[i] - (double)free_state[i], 2);
        }
        signal[k] = k < s->count ? (float)(sqrt(moved) / fmax(sqrt(noise), 1e-30)) : 0;
    }
}

static tn_status propagate(const tn_call *c, const tn_loop_body *b, workspace *w, solver *s)
{
    const float beta = scalar(c, loop_in_beta(b), 0), samples = (float)(s->count ? s->count : 1);
    const float weight = b->mean ? 1 / samples : b->weight;
    const float *free_state = c->out[0].data, *h = (const float *)(const void *)w->carry[0];
    const int64_t n = s->rows * s->width;
    if (!(beta > 0)) return tn_error(TN_USAGE, "beta must be above 0");
    s->steps = c->out[loop_out_sample(b, LOOP_NUDGED_STEPS)].data;
    if (s->steps) memset(s->steps, 0, (size_t)s->rows * sizeof *s->steps);
    TN_RETURN_IF(nudge(c, b, w, s, b->proxy ? beta / samples : beta, true));
    give_signal(c, b, w, s);
    if (b->proxy) {
        const float factor = 2 / (beta * samples * (float)s->width);
        for (int64_t i = 0; i < n; i++) w->lambda[i] = (w->lambda[i] - h[i]) * factor;
    } else if (!b->centred) {
        for (int64_t i = 0; i < n; i++) w->lambda[i] = (free_state[i] - h[i]) * (weight / beta);
    } else {
        memcpy(w->lambda, h, (size_t)n * sizeof *h);
        TN_RETURN_IF(nudge(c, b, w, s, -beta, false));
        for (int64_t i = 0; i < n; i++) w->lambda[i] = (h[i] - w->lambda[i]) * (weight / (2 * beta));
    }
    clear_behind(s, w->lambda);
    return TN_OK;
}

tn_status tn_loop_backward_cpu(const tn_call *c)
{
    const tn_loop_body *b = ((const tn_loop_attr *)c->attr)->body;
    workspace w = carve(b, true, c->work);
    size_t largest = 0;
    TN_RETURN_IF(check_threads(c, b));
    for (int i = 0; i < b->spec.n_ys; i++)
        if (loop_type_bytes(&b->spec.ys[i]) > largest) largest = loop_type_bytes(&b->spec.ys[i]);
    if (largest) memset(w.zeros, 0, largest);
    zero_dconsts(c, b);
    if (b->grad == TN_LOOP_BPTT) return backward_bptt(c, b, &w);
    const size_t bytes = loop_type_bytes(&b->spec.carry[0]);
    solver s;
    TN_RETURN_IF(make_solver(c, b, &s));
    if (b->grad == TN_LOOP_EP) TN_RETURN_IF(propagate(c, b, &w, &s));
    else if (!c->dout[0].data) memset(w.lambda, 0, bytes);
    else if (b->grad == TN_LOOP_IMPLICIT) TN_RETURN_IF(adjoint(c, b, &w, &s, c->dout[0].data));
    else memcpy(w.lambda, c->dout[0].data, bytes);
    clear_behind(&s, w.lambda);
    char *h = c->out[0].data, *lambda = (char *)w.lambda;
    TN_RETURN_IF(pull_back(c, b, &w, &h, 0, &lambda, w.spare));
    give_dcarry(c, 0, NULL);
    return TN_OK;
}
