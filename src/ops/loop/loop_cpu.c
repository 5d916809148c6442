/* loop on the CPU: the device functions of loop_run.c; solves are in loop_solve.c. */
#include "ops/loop/loop_run.h"

#include "backend/cpu/pool.h"
#include "base/status.h"

#include <string.h>

tn_kernel tn_loop_forward_cpu, tn_loop_backward_cpu;

static tn_status copy(const tn_call *c, void *to, const void *from, size_t bytes)
{
    (void)c;
    if (bytes) memcpy(to, from, bytes);
    return TN_OK;
}

static tn_status zero(const tn_call *c, void *to, size_t bytes)
{
    (void)c;
    if (bytes) memset(to, 0, bytes);
    return TN_OK;
}

static tn_status add(const tn_call *c, float *to, const float *from, int64_t n)
{
    (void)c;
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
    return TN_OK;
}

void loop_put_numbers(const tn_call *c, const tn_loop_body *b, int64_t taken, float residual)
{
    int32_t *n = c->out[loop_out_iterations(b)].data;
    float *r = c->out[loop_out_iterations(b) + 1].data;
    if (n) *n = (int32_t)taken;
    if (r) *r = residual;
}

static tn_status put_taken(const tn_call *c, const tn_loop_body *b, int64_t taken)
{
    loop_put_numbers(c, b, taken, 0);
    return TN_OK;
}

static tn_status set_live(const tn_call *c, const tn_loop_body *b, loop_work *w)
{
    int64_t count;
    TN_RETURN_IF(loop_count(c, b, &count));
    *w->live = (int32_t)count;
    return TN_OK;
}

static tn_status clear_behind(const tn_call *c, const tn_loop_body *b, float *x)
{
    const int64_t rows = b->spec.state[0].dims.dim[0], n = tn_dims_count(b->spec.state[0].dims);
    int64_t count;
    TN_RETURN_IF(loop_count(c, b, &count));
    if (count < rows) memset(x + count * (n / rows), 0, (size_t)((rows - count) * (n / rows)) * sizeof *x);
    return TN_OK;
}

/* --- back through time ------------------------------------------------------------------------------------------------ */

static const int32_t *steps_of(const tn_call *c, const tn_loop_body *b)
{
    return c->out[loop_out_sample(b, LOOP_FREE_STEPS)].data;
}

static int64_t taken(const tn_call *c, const tn_loop_body *b)
{
    const int32_t *steps = steps_of(c, b);
    int64_t most = 0;
    for (int64_t k = 0; k < b->spec.state[0].dims.dim[0]; k++) most = steps[k] > most ? steps[k] : most;
    return most;
}

static size_t row_bytes(const tn_type *t) { return t->dims.dim[0] ? loop_type_bytes(t) / (size_t)t->dims.dim[0] : 0; }

/* Rows of `to` become those of `from` that w->sample names. */
static void gather(const loop_work *w, int64_t n, void *to, const void *from, size_t bytes)
{
    for (int64_t k = 0; k < n; k++)
        memcpy((char *)to + (size_t)k * bytes, (const char *)from + (size_t)w->sample[k] * bytes, bytes);
}

/* With compaction the samples that take a step are the first rows: they lie by their steps, those with most first, and in the
 * order of the batch where they have as many. */
static tn_status rank(const tn_call *c, const tn_loop_body *b, loop_work *w)
{
    const int32_t *steps = steps_of(c, b);
    const int64_t n = *w->live;
    int64_t k = 0;
    if (!b->compact) return TN_OK;
    for (int64_t s = taken(c, b); k < n; s--)
        for (int64_t i = 0; i < n; i++)
            if (steps[i] == s) w->sample[k++] = (int32_t)i;
    gather(w, n, w->spare[0], w->state[0], row_bytes(&b->spec.state[0]));
    memcpy(w->state[0], w->spare[0], row_bytes(&b->spec.state[0]) * (size_t)n);
    for (int i = 0; i < b->spec.n_consts; i++) {
        const tn_type *t = &b->spec.consts[i];
        if (!w->moving[i] || t->absent) continue;
        gather(w, n, w->moving[i], c->in[loop_in_const(b) + i].data, row_bytes(t));
        if (w->dmoving[i]) memset(w->dmoving[i], 0, loop_type_bytes(t));
    }
    w->ranked = true;
    return TN_OK;
}

static tn_status unrank(const tn_call *c, const tn_loop_body *b, loop_work *w)
{
    int64_t n;
    if (!w->ranked) return TN_OK;
    TN_RETURN_IF(loop_count(c, b, &n));
    const int64_t width = (int64_t)(row_bytes(&b->spec.state[0]) / sizeof(float));
    memcpy(w->spare[0], w->state[0], loop_type_bytes(&b->spec.state[0]));
    for (int64_t k = 0; k < n; k++)
        memcpy((float *)(void *)w->state[0] + w->sample[k] * width, (float *)(void *)w->spare[0] + k * width,
               (size_t)width * sizeof(float));
    for (int i = 0; i < b->spec.n_consts; i++) {
        const int64_t each = (int64_t)(row_bytes(&b->spec.consts[i]) / sizeof(float));
        float *to = c->din[loop_in_const(b) + i].data;
        for (int64_t k = 0; to && w->dmoving[i] && k < n; k++)
            for (int64_t e = 0; e < each; e++) to[w->sample[k] * each + e] += w->dmoving[i][k * each + e];
    }
    return TN_OK;
}

/* Does the sample in row k take step t? */
static bool takes(const tn_call *c, const tn_loop_body *b, const loop_work *w, int64_t k, int64_t t)
{
    return w->ranked ? k < *w->live : t < steps_of(c, b)[k];
}

static tn_status reaches(const tn_call *c, const tn_loop_body *b, loop_work *w, int64_t t, char **h, char **d)
{
    const float damping = loop_damping(c, b), *from = (const float *)(const void *)w->state[0];
    const int32_t *steps = steps_of(c, b);
    const int64_t rows = b->spec.state[0].dims.dim[0], width = rows ? tn_dims_count(b->spec.state[0].dims) / rows : 0;
    int64_t n = rows;
    if (w->ranked) {
        TN_RETURN_IF(loop_count(c, b, &n));
        *w->live = 0;
        while (*w->live < n && steps[w->sample[*w->live]] > t) ++*w->live;
        gather(w, *w->live, w->front, *h, row_bytes(&b->spec.state[0]));
        *h = (char *)w->front;
    }
    for (int64_t k = 0; k < n; k++) {
        const float part = takes(c, b, w, k, t) ? damping : 0;
        for (int64_t i = k * width; i < (k + 1) * width; i++) w->lambda[i] = part * from[i];
    }
    *d = (char *)w->lambda;
    return TN_OK;
}

static tn_status passes_by(const tn_call *c, const tn_loop_body *b, loop_work *w, int64_t t)
{
    const float damping = loop_damping(c, b), *from = (const float *)(const void *)w->state[0];
    const int64_t rows = b->spec.state[0].dims.dim[0], width = rows ? tn_dims_count(b->spec.state[0].dims) / rows : 0;
    float *to = (float *)(void *)w->spare[0];
    for (int64_t k = 0; k < rows; k++) {
        const bool took = takes(c, b, w, k, t);
        if (!took) memcpy(to + k * width, from + k * width, (size_t)width * sizeof *to);
        for (int64_t i = k * width; took && damping != 1 && i < (k + 1) * width; i++) to[i] += (1 - damping) * from[i];
    }
    return TN_OK;
}

/* --- the kernels ------------------------------------------------------------------------------------------------------ */

static const loop_device cpu = { .copy = copy,
                                 .zero = zero,
                                 .add = add,
                                 .put_taken = put_taken,
                                 .solve = loop_solve,
                                 .adjoint = loop_adjoint,
                                 .propagate = loop_propagate,
                                 .set_live = set_live,
                                 .clear_behind = clear_behind,
                                 .taken = taken,
                                 .reaches = reaches,
                                 .passes_by = passes_by,
                                 .rank = rank,
                                 .unrank = unrank };

static tn_status check_threads(const tn_call *c)
{
    const tn_loop_body *b = ((const tn_loop_attr *)c->attr)->body;
    const int made = b->spec.threads > 0 ? b->spec.threads : 1;
    if (tn_pool_threads(c->pool) <= made) return TN_OK;
    return tn_error(TN_USAGE, "its body was made for %d threads and runs on %d: set tn_graph_options.threads", made,
                    tn_pool_threads(c->pool));
}

tn_status tn_loop_forward_cpu(const tn_call *c)
{
    TN_RETURN_IF(check_threads(c));
    return tn_loop_run_forward(&cpu, c);
}

tn_status tn_loop_backward_cpu(const tn_call *c)
{
    TN_RETURN_IF(check_threads(c));
    return tn_loop_run_backward(&cpu, c);
}
