/* Solves on the CPU: free, nudged and adjoint phases are the same iteration with another target. Samples that have
 * not converged are listed; with compaction they are also moved to the first rows of a batch, so the body computes
 * no others. Invariant: a sample's result depends on its own numbers alone (except with tol, a norm over the whole
 * batch). */
#include "ops/loop/loop_run.h"

#include "base/status.h"
#include "ops/rows.h"

#include <math.h>
#include <string.h>

typedef struct phase {
    const tn_loop_body *b;
    loop_work *w;
    int64_t rows, count, width; /* of the batch, those that are there, numbers in each */
    float damping, rtol, tol;
    bool together; /* all stop at once, by tol; else a sample that has converged stays */
    bool accelerate;
    float *x, *out;   /* (rows,width): states by row, and by sample (one and the same without compaction) */
    int64_t active;   /* samples on their way: w->sample[0 .. active) */
    int32_t *steps;   /* (rows) by sample, counted up, or NULL */
    float *residuals; /* (rows) by sample, or NULL */
    bool moves[LOOP_MOVING];
    size_t bytes[LOOP_MOVING]; /* of one row of each thing that moves */
    /* the target is f + factor * extra */
    float *f;
    const float *extra;
    float factor;
    bool extra_by_sample;
    float *rest;         /* (rows,width) by row: taken off f before; or NULL */
    const float *origin; /* (rows,width) by sample: what a move is measured from; or NULL */
    float limit;         /* a residual below it is there */
    int64_t per_tile, taken;
    float largest; /* residual of the last iteration */
    bool done;
} phase;

float loop_damping(const tn_call *c, const tn_loop_body *b) { return tn_arg_scalar(&c->in[loop_in_damping(b)], 1); }

tn_status loop_count(const tn_call *c, const tn_loop_body *b, int64_t *count)
{
    const int32_t *given = c->in[loop_in_count(b)].data;
    const int64_t rows = b->spec.state[0].dims.dim[0];
    *count = given ? *given : rows;
    if (*count < 0 || *count > rows)
        return tn_error(TN_USAGE, "count is %lld and the batch has %lld rows", (long long)*count, (long long)rows);
    return TN_OK;
}

/* A phase whose states start as they are in `out`, and end there. */
static tn_status phase_make(const tn_call *c, const tn_loop_body *b, loop_work *w, float *out, phase *p)
{
    const int64_t rows = b->spec.state[0].dims.dim[0], n = tn_dims_count(b->spec.state[0].dims);
    *p = (phase){ .b = b,
                  .w = w,
                  .rows = rows,
                  .width = rows ? n / rows : 0,
                  .damping = loop_damping(c, b),
                  .rtol = tn_arg_scalar(&c->in[loop_in_rtol(b)], 0),
                  .tol = tn_arg_scalar(&c->in[loop_in_tol(b)], 0),
                  .together = c->in[loop_in_tol(b)].data != NULL,
                  .accelerate = b->solver == TN_SOLVE_ANDERSON,
                  .x = b->compact ? w->front : out,
                  .out = out };
    p->limit = p->rtol;
    TN_RETURN_IF(loop_count(c, b, &p->count));
    p->active = p->count;
    p->done = p->count == 0;
    p->per_tile = tn_tile_rows(p->accelerate ? p->width * b->memory : p->width);
    *w->live = (int32_t)p->count;
    for (int64_t i = 0; i < p->count; i++) w->sample[i] = (int32_t)i;
    for (int64_t i = 0; p->accelerate && i < p->count; i++) tn_anderson_restart(&w->anderson, i);
    if (p->x != out && n) memcpy(p->x, out, (size_t)(p->count * p->width) * sizeof *out);
    return TN_OK;
}

/* --- what moves with a sample ---------------------------------------------------------------------------------------------- */

/* Where the body finds `from`, whose rows of `bytes` belong to samples: with compaction, in a copy. */
static const void *with_samples(phase *p, int which, const void *from, size_t bytes)
{
    if (!p->b->compact || !from) return from;
    p->moves[which] = true;
    p->bytes[which] = bytes;
    if (bytes) memcpy(p->w->moving[which], from, bytes * (size_t)p->count);
    return p->w->moving[which];
}

/* Constants `first..` of the node as the runner's, those with samples as theirs. */
static void set_consts(const tn_call *c, phase *p, loop_runner *r, const tn_body_spec *s, int first, int moving)
{
    loop_set(r, r->entry->live, p->w->live);
    for (int i = 0; i < s->n_consts; i++) {
        const void *data = c->in[first + i].data;
        const bool sample = s->live_consts >> i & 1;
        loop_set(r, r->entry->consts[i],
                 sample && p->rows ? with_samples(p, moving + i, data, loop_type_bytes(&s->consts[i]) / (size_t)p->rows)
                                   : data);
    }
}

/* Entry i leaves the list, the last one takes its place; with compaction its rows too. */
static void leave(phase *p, int64_t i)
{
    loop_work *w = p->w;
    const int64_t last = --p->active;
    const size_t bytes = (size_t)p->width * sizeof *p->x;
    if (p->b->compact) {
        memcpy(p->out + w->sample[i] * p->width, p->x + i * p->width, bytes);
        if (i != last) memcpy(p->x + i * p->width, p->x + last * p->width, bytes);
        for (int k = 0; i != last && k < LOOP_MOVING; k++)
            if (p->moves[k])
                memcpy(w->moving[k] + (size_t)i * p->bytes[k], w->moving[k] + (size_t)last * p->bytes[k], p->bytes[k]);
        *w->live = (int32_t)p->active;
    }
    w->sample[i] = w->sample[last];
    w->there[i] = w->there[last];
}

/* --- an iteration ------------------------------------------------------------------------------------------------------------ */

/* How far the target lies from where the sample began; where that is next to nothing, a thousandth of its size (squared: `size`). */
static double moved_by(const phase *p, int64_t sample, const float *f, double size)
{
    double gone, all;
    tn_residual_norms(p->width, p->origin + sample * p->width, f, &gone, &all);
    return fmax(sqrt(gone), 1e-3 * sqrt(size));
}

static void step_tile(void *arg, int64_t t)
{
    const phase *p = arg;
    const loop_work *w = p->w;
    const int64_t end = (t + 1) * p->per_tile < p->active ? (t + 1) * p->per_tile : p->active;
    for (int64_t i = t * p->per_tile; i < end; i++) {
        const int64_t sample = w->sample[i], row = p->b->compact ? i : sample;
        float *x = p->x + row * p->width, *f = p->f + row * p->width;
        double distance, size;
        if (p->extra) {
            const float *e = p->extra + (p->extra_by_sample ? sample : row) * p->width;
            for (int64_t k = 0; k < p->width; k++) f[k] += p->factor * e[k];
        }
        tn_residual_norms(p->width, x, f, &distance, &size);
        const float r = (float)(sqrt(distance) / fmax(p->origin ? moved_by(p, sample, f, size) : sqrt(size), 1e-6));
        const bool there = r < p->limit; /* false for NaN */
        w->moved[i] = p->accelerate && !there ? tn_anderson_step(&w->anderson, sample, p->damping, x, f)
                                              : tn_damped_step(p->width, p->damping, x, f);
        w->there[i] = there;
        w->residual[i] = r;
        if (p->steps) p->steps[sample]++;
        if (p->residuals) p->residuals[sample] = r;
    }
}

/* After an evaluation into p->f: every sample on its way takes a step, and those that are there leave. */
static void phase_step(const tn_call *c, phase *p)
{
    loop_work *w = p->w;
    int64_t left = 0;
    double moved = 0;
    tn_pool_run(c->pool, tn_tiles(p->active, p->per_tile), step_tile, p);
    p->taken++;
    p->largest = 0;
    for (int64_t i = 0; i < p->active; i++) {
        moved += w->moved[i];
        left += !w->there[i];
        if (isnan(w->residual[i]) || w->residual[i] > p->largest) p->largest = w->residual[i]; /* NaN stays */
    }
    p->done = p->together ? sqrt(moved) < (double)p->tol : left == 0;
    for (int64_t i = 0; !p->together && i < p->active;)
        if (w->there[i]) leave(p, i);
        else i++;
}

static bool phase_goes_on(const phase *p) { return !p->done && p->taken < p->b->steps; }

static void phase_end(phase *p)
{
    for (int64_t i = 0; p->b->compact && i < p->active; i++)
        memcpy(p->out + p->w->sample[i] * p->width, p->x + i * p->width, (size_t)p->width * sizeof *p->x);
}

static int32_t *counters(const tn_call *c, const tn_loop_body *b, int which)
{
    int32_t *n = c->out[loop_out_sample(b, which)].data;
    if (n) memset(n, 0, (size_t)b->spec.state[0].dims.dim[0] * sizeof *n);
    return n;
}

/* The states before a step into `to` (rows,width): those of the samples on their way; without compaction, of all, which the body
 * will see on the way back. */
static void keep_states(const phase *p, float *to)
{
    const size_t bytes = (size_t)p->width * sizeof *to;
    if (!p->b->compact) memcpy(to, p->x, bytes * (size_t)p->rows);
    for (int64_t i = 0; p->b->compact && i < p->active; i++)
        memcpy(to + p->w->sample[i] * p->width, p->x + i * p->width, bytes);
}

/* --- the three phases ---------------------------------------------------------------------------------------------------- */

tn_status loop_solve(const tn_call *c, const tn_loop_body *b, loop_work *w)
{
    float *h = (float *)(void *)w->state[0],
          *history = b->grad == TN_LOOP_BPTT ? c->out[loop_out_history(b)].data : NULL;
    phase p;
    TN_RETURN_IF(phase_make(c, b, w, h, &p));
    for (int i = 0; i < LOOP_PER_SAMPLE; i++) { /* all bits 0 is 0 in both types */
        int32_t *n = counters(c, b, i);
        if (i == LOOP_FREE_STEPS) p.steps = n;
    }
    p.residuals = c->out[loop_out_sample(b, LOOP_RESIDUALS)].data;
    loop_set(&w->forward, b->forward.state[0], p.x);
    set_consts(c, &p, &w->forward, &b->spec, loop_in_const(b), 0);
    loop_bind(c, &w->forward);
    p.f = loop_result(&w->forward, "next", 0);
    while (phase_goes_on(&p)) {
        if (history) keep_states(&p, history + p.taken * p.rows * p.width);
        TN_RETURN_IF(loop_run(&w->forward));
        phase_step(c, &p);
    }
    phase_end(&p);
    loop_put_numbers(c, b, p.taken, p.largest);
    return TN_OK;
}

tn_status loop_adjoint(const tn_call *c, const tn_loop_body *b, loop_work *w, const float *g)
{
    const size_t bytes = loop_type_bytes(&b->spec.state[0]);
    loop_runner *r = &w->vjp_state;
    phase p;
    if (bytes) memcpy(w->lambda, g, bytes);
    TN_RETURN_IF(phase_make(c, b, w, w->lambda, &p));
    p.steps = counters(c, b, LOOP_ADJOINT_STEPS);
    p.f = (float *)(void *)w->spare[0];
    p.extra = g;
    p.factor = 1;
    p.extra_by_sample = true;
    set_consts(c, &p, r, &b->spec, loop_in_const(b), 0);
    loop_set(r, b->vjp_state.state[0], with_samples(&p, LOOP_FREE_STATE, c->out[0].data, (size_t)p.width * sizeof *g));
    loop_set(r, b->vjp_state.dnext[0], p.x);
    loop_set(r, b->vjp_state.dstate[0], p.f);
    loop_bind(c, r);
    while (phase_goes_on(&p)) {
        TN_RETURN_IF(loop_run(r));
        phase_step(c, &p);
    }
    phase_end(&p);
    return TN_OK;
}

/* |x - h*| of every sample that is there. */
static void distances(const phase *p, const float *x, const float *h, float *out)
{
    for (int64_t k = 0; k < p->count; k++) {
        double d, size;
        tn_residual_norms(p->width, h + k * p->width, x + k * p->width, &d, &size);
        out[k] = (float)sqrt(d);
    }
}

/* f less what it leaves at h*, which the first evaluation shows. */
static void take_rest_off(phase *p)
{
    for (int64_t i = 0; p->rest && i < p->active; i++) {
        const int64_t row = p->b->compact ? i : p->w->sample[i];
        float *f = p->f + row * p->width, *rest = p->rest + row * p->width;
        const float *x = p->x + row * p->width;
        for (int64_t k = 0; !p->taken && k < p->width; k++) rest[k] = f[k] - x[k];
        for (int64_t k = 0; k < p->width; k++) f[k] -= rest[k];
    }
}

/* The nudged equilibrium from the free one, into w->state[0]. The first evaluation is f(h*): its distance from h* goes to
 * `noise` (rows) and itself to `first` (like state 0), where they are asked for. */
static tn_status nudge(const tn_call *c, const tn_loop_body *b, loop_work *w, float beta, float *noise, float *first)
{
    const size_t bytes = loop_type_bytes(&b->spec.state[0]);
    phase p;
    if (bytes) memcpy(w->state[0], c->out[0].data, bytes);
    TN_RETURN_IF(phase_make(c, b, w, (float *)(void *)w->state[0], &p));
    p.steps = c->out[loop_out_sample(b, LOOP_NUDGED_STEPS)].data;
    p.extra = w->force;
    p.factor = -beta;
    if (b->at_rest) {
        p.rest = (float *)(void *)w->moving[LOOP_REST];
        p.moves[LOOP_REST] = true, p.bytes[LOOP_REST] = (size_t)p.width * sizeof *p.rest;
    }
    if (c->in[loop_in_move(b)].data) p.origin = c->out[0].data, p.limit = tn_arg_scalar(&c->in[loop_in_move(b)], 0);
    loop_set(&w->forward, b->forward.state[0], p.x);
    set_consts(c, &p, &w->forward, &b->spec, loop_in_const(b), 0);
    loop_bind(c, &w->forward);
    p.f = loop_result(&w->forward, "next", 0);
    *w->one = 1;
    loop_set(&w->cost, b->cost.state[0], p.f);
    loop_set(&w->cost, b->cost.dy[0], w->one);
    loop_set(&w->cost, b->cost.dstate[0], w->force);
    set_consts(c, &p, &w->cost, &b->cost_spec, loop_in_cost(b), TN_BODY_MAX);
    loop_bind(c, &w->cost);
    while (phase_goes_on(&p)) {
        TN_RETURN_IF(loop_run(&w->forward));
        if (!p.taken && noise) distances(&p, p.f, c->out[0].data, noise);
        if (!p.taken && first) memcpy(first, p.f, (size_t)(p.count * p.width) * sizeof *first);
        take_rest_off(&p);
        TN_RETURN_IF(loop_run(&w->cost));
        phase_step(c, &p);
    }
    phase_end(&p);
    if (!noise) return TN_OK;
    distances(&p, (float *)(void *)w->state[0], c->out[0].data, w->residual);
    for (int64_t k = 0; k < p.count; k++) noise[k] = w->residual[k] / fmaxf(noise[k], 1e-30f);
    return TN_OK;
}

tn_status loop_propagate(const tn_call *c, const tn_loop_body *b, loop_work *w)
{
    const float beta = tn_arg_scalar(&c->in[loop_in_beta(b)], 0), *free_state = c->out[0].data;
    const float *h = (const float *)(const void *)w->state[0];
    const int64_t rows = b->spec.state[0].dims.dim[0];
    int64_t count;
    TN_RETURN_IF(loop_count(c, b, &count));
    if (!(beta > 0)) return tn_error(TN_USAGE, "beta must be above 0");
    const int64_t width = rows ? tn_dims_count(b->spec.state[0].dims) / rows : 0, n = count * width;
    const float samples = (float)(count ? count : 1), weight = b->mean ? 1 / samples : b->weight;
    float *signal = (float *)(void *)counters(c, b, LOOP_SIGNAL);
    counters(c, b, LOOP_NUDGED_STEPS);
    TN_RETURN_IF(nudge(c, b, w, b->proxy ? beta / samples : beta, signal, b->proxy ? w->lambda : NULL));
    if (b->proxy) {
        const float factor = 2 / (beta * samples * (float)width);
        for (int64_t i = 0; i < n; i++) w->lambda[i] = (w->lambda[i] - h[i]) * factor;
    } else if (!b->centred) {
        for (int64_t i = 0; i < n; i++) w->lambda[i] = (free_state[i] - h[i]) * (weight / beta);
    } else {
        memcpy(w->lambda, h, (size_t)n * sizeof *h);
        TN_RETURN_IF(nudge(c, b, w, -beta, NULL, NULL));
        for (int64_t i = 0; i < n; i++) w->lambda[i] = (h[i] - w->lambda[i]) * (weight / (2 * beta));
    }
    return TN_OK;
}
