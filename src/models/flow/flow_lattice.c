/* The lattice: its parameters with their first values, the rollout, and the surface of where flows land.
 *
 * At the start the displacement head is small and the drift carries every flow to a plane, so that a surface comes out nearly where
 * it went in, and every parameter has a gradient. */
#include "models/flow/flow.h"

#include "base/status.h"

#include <math.h>

enum { NEURON = 32, FEATURES = 64, HIDDEN = 64 };

/* --- parameters -------------------------------------------------------------------------------------------------------- */

typedef struct affine {
    tn_ref w, b;
} affine;

/* Adam moves every weight by the rate: what a wide row adds up moves as much as it would with 64 weights. */
static float rate(int64_t columns) { return columns > FEATURES ? (float)FEATURES / (float)columns : 1; }

static affine affine_of(tn_graph *g, const char *scope, int64_t rows, int64_t columns, tn_init first)
{
    tn_region r = tn_region_begin(g, "%s", scope);
    const affine p = { tn_param(g, "w", tn_shape(rows, columns), first, .lr = rate(columns)),
                       tn_param(g, "b", tn_shape(rows), tn_zeros) };
    tn_region_end(g, r);
    return p;
}

/* Of the neuron: by what a layer gives; of the heads: by what it takes and gives. */
static affine neuron_layer(tn_graph *g, const char *scope, int64_t rows, int64_t columns)
{
    return affine_of(g, scope, rows, columns, tn_normal((float)sqrt(2.0 / (double)rows)));
}

static float head_size(int64_t rows, int64_t columns) { return sqrtf(2.f / (float)(rows + columns)); }

static affine head_layer(tn_graph *g, const char *scope, int64_t rows, int64_t columns, float scale)
{
    return affine_of(g, scope, rows, columns, tn_normal(scale * head_size(rows, columns)));
}

static affine energy_layer(tn_graph *g, const flow_config *c, const char *scope, int64_t rows, int64_t columns,
                           flow_started what, float scale)
{
    const float size = head_size(rows, columns);
    return affine_of(g, scope, rows, columns,
                     flow_keeps_energy(c) ? flow_start(c, what, scale * size, 0) : tn_normal(size));
}

static affine norm_of(tn_graph *g, const char *scope)
{
    tn_region r = tn_region_begin(g, "%s", scope);
    const affine p = { tn_param(g, "w", tn_shape(NEURON), tn_ones), tn_param(g, "b", tn_shape(NEURON), tn_zeros) };
    tn_region_end(g, r);
    return p;
}

static void make_layers(tn_graph *g, const flow_config *c, tn_rollout_params *p)
{
    const int64_t H = c->dim;
    p->layers = c->layers;
    for (int64_t l = 0; l < c->layers; l++) {
        const int64_t X = l ? H : FEATURES + c->energy;
        const float most = sqrtf(6.f / (float)(X + H)); /* Xavier's, gate by gate */
        const bool kept = flow_keeps_energy(c);
        const tn_init w_i = kept ? flow_start(c, FLOW_INPUTS, most, l ? 0 : FEATURES) : tn_uniform(-most, most),
                      w_h = kept ? flow_start(c, FLOW_STATES, 0, 0) : tn_block_orthogonal(1, H),
                      b_i = kept ? flow_start(c, FLOW_BIAS, 0, 0) : tn_zeros;
        tn_region r = tn_region_begin(g, "gru%lld", (long long)l);
        p->gru[l].w_i = tn_param(g, "w_i", tn_shape(3 * H, X), w_i, .lr = rate(X));
        p->gru[l].w_h = tn_param(g, "w_h", tn_shape(3 * H, H), w_h, .lr = rate(H));
        p->gru[l].b_i = tn_param(g, "b_i", tn_shape(3 * H), b_i);
        p->gru[l].b_h = tn_param(g, "b_h", tn_shape(3 * H), tn_zeros);
        tn_region_end(g, r);
    }
}

static tn_rollout_params make_parameters(tn_graph *g, const flow_config *c)
{
    const int64_t H = c->dim, E = c->energy, F = c->field;
    tn_rollout_params p = { 0 };
    const affine q = neuron_layer(g, "place", 3, 3), v1 = neuron_layer(g, "neuron1", NEURON, 3 + E + F),
                 n1 = norm_of(g, "norm1"), v2 = neuron_layer(g, "neuron2", NEURON, NEURON), n2 = norm_of(g, "norm2"),
                 v3 = neuron_layer(g, "neuron3", FEATURES, NEURON);
    make_layers(g, c, &p);
    const float others = 0.2f / (float)c->steps; /* what units besides the energy's add, they add in every step */
    const affine e1 = energy_layer(g, c, "energy1", H / 2, H, FLOW_HEAD1, 1),
                 e2 = energy_layer(g, c, "energy2", E, H / 2, FLOW_HEAD2, others),
                 d1 = head_layer(g, "move1", HIDDEN, H, 1), d2 = head_layer(g, "move2", 3, HIDDEN, 0.1);
    p.q = q.w, p.qb = q.b, p.v1 = v1.w, p.v1b = v1.b, p.n1g = n1.w, p.n1b = n1.b;
    p.v2 = v2.w, p.v2b = v2.b, p.n2g = n2.w, p.n2b = n2.b, p.v3 = v3.w, p.v3b = v3.b;
    p.e1 = e1.w, p.e1b = e1.b, p.e2 = e2.w, p.e2b = e2.b, p.d1 = d1.w, p.d1b = d1.b, p.d2 = d2.w, p.d2b = d2.b;
    if (F) p.f = tn_param(g, "field", tn_shape(F, H), tn_normal(c->field_init * head_size(F, H)), .lr = rate(H));
    return p;
}

/* --- rollout and collection --------------------------------------------------------------------------------------------- */

static tn_rollout_options options_of(const flow_net *n, int64_t keep)
{
    const flow_config *c = n->c;
    tn_graph *g = n->g;
    return (tn_rollout_options){ .width = c->width,
                                 .height = c->height,
                                 .steps = c->steps,
                                 .start = c->start,
                                 .stop = c->stop,
                                 .threshold = c->threshold,
                                 .s_min = c->s_min,
                                 .patience = c->patience,
                                 .spawn = c->spawn,
                                 .rho = c->rho,
                                 .shorten = c->shorten,
                                 .noise_z = c->noise_z,
                                 .field = c->field,
                                 .grid = { c->grid[0], c->grid[1], c->grid[2] },
                                 .smooth = c->smooth,
                                 .keep = keep,
                                 .number = tn_in(n->b, "sample"),
                                 .count = tn_in(n->b, "count"),
                                 .kappa = tn_scalar(g, "kappa", 1),
                                 .drift = tn_scalar(g, "drift", 0),
                                 .sigma = n->noisy ? tn_scalar(g, "noise", 0) : TN_NONE,
                                 .seed = n->noisy ? tn_graph_update_seed(g) : TN_NONE };
}

tn_status flow_lattice(const flow_net *n, tn_ref e0, flow_landings *out)
{
    tn_graph *g = n->g;
    const flow_config *c = n->c;
    int64_t keep = 0;
    TN_RETURN_IF(flow_keep(g, c, n->b->batch, &keep));
    tn_region r = tn_region_begin(g, "lattice");
    if (c->lattice == FLOW_FROZEN) tn_frozen_begin(g);
    const tn_rollout_params p = make_parameters(g, c);
    if (c->lattice == FLOW_FROZEN) tn_frozen_end(g);
    const tn_rollout_options o = options_of(n, keep);
    tn_ref *x = out->out;
    const tn_status s = tn_rollout(g, e0, &p, &o, x);
    if (s == TN_OK)
        out->surface = tn_collect(g, x[TN_ROLLOUT_E], x[TN_ROLLOUT_U], x[TN_ROLLOUT_V], x[TN_ROLLOUT_D],
                                  x[TN_ROLLOUT_PLANE], x[TN_ROLLOUT_AGE], x[TN_ROLLOUT_LANDED], .width = c->width,
                                  .height = c->height, .nearest = c->nearest, .beside = c->beside, .eps = c->eps);
    tn_region_end(g, r);
    return s;
}
