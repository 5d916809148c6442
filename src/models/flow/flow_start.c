/* First values by which a flow nearly keeps its energy (energy_init=kept), so that the surface that comes out is the one that went
 * in, somewhat darker. With random ones a GRU forgets half of its state in every step, and after eight of them nothing of the
 * sample is left for a readout to begin with.
 *
 * Unit k of every layer is the k-th number of the energy: its gate z is closed, and its n reads that number alone. The energy head
 * reads it twice, with both signs, since gelu(x) - gelu(-x) = x. All other first values are what they would be. */
#include "models/flow/flow.h"

#include <string.h>

typedef float draw(const void *ctx, uint64_t i);

enum { CLOSED = -4 }; /* z's bias: 1.8 % of the old state stay */

/* The rows of r, z and n that belong to the energy's units. */
static void clear_units(float *x, tn_dims dims, int64_t energy)
{
    const int64_t H = dims.dim[0] / 3, k = dims.dim[1];
    for (int64_t gate = 0; gate < 3; gate++) memset(x + gate * H * k, 0, (size_t)(energy * k) * sizeof *x);
}

/* p: bound of the others, numbers of an energy, the first column that holds them */
static void fill_inputs(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    const int64_t n = tn_dims_count(dims), energy = (int64_t)p[1], H = dims.dim[0] / 3;
    for (int64_t i = 0; i < n; i++) x[i] = p[0] * (2 * uniform(ctx, (uint64_t)i) - 1);
    clear_units(x, dims, energy);
    for (int64_t k = 0; k < energy; k++) x[(2 * H + k) * dims.dim[1] + (int64_t)p[2] + k] = 1;
}

static void fill_states(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    const tn_init others = tn_block_orthogonal(1, dims.dim[1]);
    others.fill(x, dims, uniform, ctx, others.p);
    clear_units(x, dims, (int64_t)p[0]);
}

static void fill_bias(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    (void)uniform, (void)ctx;
    for (int64_t i = 0; i < dims.dim[0]; i++) x[i] = 0;
    for (int64_t k = 0; k < (int64_t)p[0]; k++) x[dims.dim[0] / 3 + k] = CLOSED;
}

/* p: deviation of the others, numbers of an energy. Rows 2 k and 2 k + 1 read unit k. */
static void fill_head1(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    const int64_t n = tn_dims_count(dims), columns = dims.dim[1], energy = (int64_t)p[1];
    for (int64_t i = 0; i < n; i++) x[i] = p[0] * tn_block_normal(uniform, ctx, (uint64_t)i);
    memset(x, 0, (size_t)(2 * energy * columns) * sizeof *x);
    for (int64_t k = 0; k < energy; k++) x[2 * k * columns + k] = 1, x[(2 * k + 1) * columns + k] = -1;
}

static void fill_head2(float *x, tn_dims dims, draw *uniform, const void *ctx, const float *p)
{
    const int64_t n = tn_dims_count(dims), columns = dims.dim[1], energy = (int64_t)p[1];
    for (int64_t i = 0; i < n; i++) x[i] = p[0] * tn_block_normal(uniform, ctx, (uint64_t)i);
    for (int64_t k = 0; k < energy; k++) {
        memset(x + k * columns, 0, (size_t)(2 * energy) * sizeof *x);
        x[k * columns + 2 * k] = 1, x[k * columns + 2 * k + 1] = -1;
    }
}

bool flow_keeps_energy(const flow_config *c) { return c->kept && c->dim / 2 >= 2 * c->energy; }

tn_init flow_start(const flow_config *c, flow_started what, float size, int64_t column)
{
    static void (*const fill[])(float *, tn_dims, draw *, const void *, const float *) = {
        [FLOW_INPUTS] = fill_inputs, [FLOW_STATES] = fill_states, [FLOW_BIAS] = fill_bias,
        [FLOW_HEAD1] = fill_head1,   [FLOW_HEAD2] = fill_head2,
    };
    const float energy = (float)c->energy;
    const bool sized = what != FLOW_STATES && what != FLOW_BIAS;
    return (tn_init){ .kind = TN_INIT_CALL,
                      .fill = fill[what],
                      .p = { sized ? size : energy, sized ? energy : 0, (float)column } };
}
