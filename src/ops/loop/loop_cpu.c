/* loop on the CPU: what loop_run.c asks of a device; the solves are in loop_solve.c. */
#include "ops/loop/loop_cpu.h"

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
    const int64_t rows = b->spec.carry[0].dims.dim[0], n = tn_dims_count(b->spec.carry[0].dims);
    int64_t count;
    TN_RETURN_IF(loop_count(c, b, &count));
    if (count < rows) memset(x + count * (n / rows), 0, (size_t)((rows - count) * (n / rows)) * sizeof *x);
    return TN_OK;
}

/* --- back through a damped step -------------------------------------------------------------------------------------- */

static int64_t taken(const tn_call *c, const tn_loop_body *b)
{
    return *(const int32_t *)c->out[loop_out_iterations(b)].data;
}

static tn_status reaches(const tn_call *c, const tn_loop_body *b, loop_work *w, int64_t t, char **d)
{
    const float damping = loop_damping(c, b), *from = (const float *)(const void *)w->carry[0];
    (void)t;
    if (damping == 1) return TN_OK;
    for (int64_t i = 0; i < tn_dims_count(b->spec.carry[0].dims); i++) w->lambda[i] = damping * from[i];
    *d = (char *)w->lambda;
    return TN_OK;
}

static tn_status passes_by(const tn_call *c, const tn_loop_body *b, loop_work *w, int64_t t)
{
    const float damping = loop_damping(c, b), *from = (const float *)(const void *)w->carry[0];
    float *to = (float *)(void *)w->spare[0];
    (void)t;
    for (int64_t i = 0; damping != 1 && i < tn_dims_count(b->spec.carry[0].dims); i++) to[i] += (1 - damping) * from[i];
    return TN_OK;
}

/* --- the kernels ------------------------------------------------------------------------------------------------------ */

static const loop_device cpu = { .copy = copy, .zero = zero, .add = add, .put_taken = put_taken, .solve = loop_solve,
                                 .adjoint = loop_adjoint, .propagate = loop_propagate, .set_live = set_live,
                                 .clear_behind = clear_behind, .taken = taken, .reaches = reaches, .passes_by = passes_by };

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
