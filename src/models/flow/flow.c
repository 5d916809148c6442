/* flow: an energy-flow lattice. A sample's numbers are energies of the cells of a surface, flows carry them through a lattice, and
 * what lands is a surface again: compared with the one that is wanted, or read by a linear map that names a class. */
#include "models/flow/flow.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

static tn_ref as_floats(tn_graph *g, tn_ref x) { return tn_ref_dtype(g, x) == TN_F32 ? x : tn_cast(g, x, TN_F32); }

static tn_ref valid(const flow_net *n, tn_ref x)
{
    const tn_ref count = tn_in(n->b, "count");
    return count.id ? tn_live(n->g, x, count) : x;
}

/* --- energies ----------------------------------------------------------------------------------------------------------- */

/* The first of an energy's numbers is the cell's own. */
static void fill_first(float *x, tn_dims dims, float (*uniform)(const void *ctx, uint64_t i), const void *ctx,
                       const float *p)
{
    for (int64_t i = 0; i < tn_dims_count(dims); i++) x[i] = i ? p[0] * (2 * uniform(ctx, (uint64_t)i) - 1) : 1;
}

static tn_init first_of(float others) { return (tn_init){ .kind = TN_INIT_CALL, .fill = fill_first, .p = { others } }; }

/* x (B,F) -> (B,S,E) */
static tn_ref energies(const flow_net *n, tn_ref x)
{
    tn_graph *g = n->g;
    const flow_config *c = n->c;
    const tn_ref cells = c->map_in ? as_floats(g, flow_map_in(n, x)) : x;
    const tn_ref e = tn_reshape(g, cells, tn_shape(n->b->batch, c->width * c->height, 1));
    if (c->energy == 1) return e;
    return as_floats(g, tn_linear(g, e, tn_param(g, "spread", tn_shape(c->energy, 1), first_of(1))));
}

/* (B,cells,E) -> (B,cells) */
static tn_ref one_number(const flow_net *n, tn_ref surface)
{
    tn_graph *g = n->g;
    const int64_t E = n->c->energy;
    const tn_ref y =
        E == 1 ? surface : as_floats(g, tn_linear(g, surface, tn_param(g, "gather", tn_shape(1, E), first_of(0.1f))));
    return tn_reshape(g, y, tn_shape(n->b->batch, flow_cells(n->c)));
}

/* --- results ------------------------------------------------------------------------------------------------------------ */

/* Sums of psnr. */
static void put_squares(const flow_net *n, tn_ref y, tn_ref target)
{
    tn_graph *g = n->g;
    tn_output(g, "squares", tn_sum_all(g, tn_square(g, valid(n, tn_sub(g, y, target)))));
    tn_output(g, "cells", tn_sum_all(g, valid(n, tn_fill(g, tn_ref_dims(g, target), TN_F32, 1.f))));
}

/* Without a target (checks, benchmarks) the sample itself is wanted. */
static tn_ref target_of(const flow_net *n, tn_ref x)
{
    const tn_ref given = tn_in(n->b, "target");
    return given.id ? given : x;
}

/* What is compared with a target of `cells` numbers. */
static tn_ref answer_of(const flow_net *n, tn_ref surface, int64_t cells)
{
    tn_graph *g = n->g;
    if (!n->c->map_out) return one_number(n, surface);
    const tn_ref flat = tn_reshape(g, surface, tn_shape(n->b->batch, flow_cells(n->c) * n->c->energy));
    return as_floats(g, flow_map_out(n, flat, cells));
}

static tn_ref surface_loss(const flow_net *n, tn_ref surface, tn_ref x)
{
    tn_graph *g = n->g;
    const tn_ref target = target_of(n, x), y = answer_of(n, surface, tn_ref_dim(g, target, -1));
    if (!tn_graph_get_options(g)->training) put_squares(n, y, target);
    return tn_mse(g, valid(n, y), target);
}

static tn_ref class_loss(const flow_net *n, tn_ref surface)
{
    tn_graph *g = n->g;
    const flow_config *c = n->c;
    const int64_t B = n->b->batch, k = flow_cells(c) * c->energy;
    const tn_ref flat = tn_reshape(g, surface, tn_shape(B, k)), given = tn_in(n->b, "labels");
    /* without labels the first class is wanted */
    const tn_ref labels = given.id ? tn_reshape(g, given, tn_shape(B)) : tn_fill(g, tn_shape(B), TN_I32, 0);
    const tn_ref y = c->map_out ? flow_map_out(n, flat, c->inputs) : flat;
    const int64_t width = tn_ref_dim(g, y, -1);
    tn_region r = tn_region_begin(g, "readout");
    const tn_ref w = tn_param(g, "w", tn_shape(c->classes, width), tn_normal(1.f / sqrtf((float)width))),
                 b = tn_param(g, "b", tn_shape(c->classes), tn_zeros);
    if (tn_wants(n->b, "logits") || !given.id)
        tn_output(g, "logits", tn_reshape(g, as_floats(g, tn_linear(g, y, w, .bias = b)), tn_shape(B, 1, c->classes)));
    const tn_ref loss = tn_linear_xent(g, y, w, labels, .bias = b);
    tn_region_end(g, r);
    return loss;
}

static const struct {
    const char *name;
    int output;
} landing_outputs[] = {
    { "e", TN_ROLLOUT_E },           { "u", TN_ROLLOUT_U },           { "v", TN_ROLLOUT_V },
    { "d", TN_ROLLOUT_D },           { "plane", TN_ROLLOUT_PLANE },   { "age", TN_ROLLOUT_AGE },
    { "landed", TN_ROLLOUT_LANDED }, { "counts", TN_ROLLOUT_COUNTS },
};

/* What instruments look at, and the metric landing. */
static void put_landings(const flow_net *n, const flow_landings *l)
{
    tn_graph *g = n->g;
    const tn_ref goal = tn_in(n->b, "goal");
    tn_output(g, "counts", l->out[TN_ROLLOUT_COUNTS]);
    tn_output(g, "flow_steps", tn_slice(g, l->out[TN_ROLLOUT_COUNTS], 1, TN_ROLLOUT_FLOW_STEPS, 1));
    if (tn_wants(n->b, "u")) {
        tn_output(g, "u", l->out[TN_ROLLOUT_U]);
        tn_output(g, "v", l->out[TN_ROLLOUT_V]);
        if (goal.id) tn_output(g, "goals", goal);
    }
    if (!tn_graph_get_options(g)->instruments) return;
    tn_output(g, "look.u", l->out[TN_ROLLOUT_U]);
    tn_output(g, "look.v", l->out[TN_ROLLOUT_V]);
    tn_output(g, "look.age", l->out[TN_ROLLOUT_AGE]);
    tn_output(g, "look.landed", l->out[TN_ROLLOUT_LANDED]);
}

static tn_ref distance_left(const flow_net *n, const flow_landings *l)
{
    return tn_reshape(n->g, tn_mean_all(n->g, valid(n, l->out[TN_ROLLOUT_D])), tn_shape(1));
}

/* The distance that flows had left, at the price of the schedule. */
static tn_ref with_exit(const flow_net *n, tn_ref loss, const flow_landings *l)
{
    tn_graph *g = n->g;
    tn_output(g, "task", loss);
    return tn_add_scaled(g, tn_reshape(g, loss, tn_shape(1)), tn_scalar(g, "lambda_exit", 0), distance_left(n, l));
}

/* --- steps -------------------------------------------------------------------------------------------------------------- */

static tn_status open_net(tn_graph *g, const tn_settings *st, const tn_batch *b, flow_config *c, flow_net *n)
{
    TN_RETURN_IF(flow_config_read(st, g, b, c));
    TN_RETURN_IF(flow_mapper_fits(g, c));
    *n = (flow_net){ .g = g, .c = c, .b = b, .noisy = tn_graph_get_options(g)->training };
    return TN_OK;
}

static tn_ref sample_of(const flow_net *n)
{
    return tn_reshape(n->g, tn_in(n->b, "features"), tn_shape(n->b->batch, n->c->inputs));
}

/* Where there is no lattice, its schedules are read by nobody. */
static void make_scalars(tn_graph *g)
{
    static const char *const names[] = { "kappa", "drift", "noise", "lambda_exit" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) tn_scalar(g, names[i], 0);
}

tn_status flow_build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    flow_config c;
    flow_net n;
    flow_landings l = { 0 };
    TN_RETURN_IF(open_net(g, st, b, &c, &n));
    const tn_ref x = sample_of(&n), e0 = energies(&n, x);
    const bool lattice = c.lattice != FLOW_OFF;
    make_scalars(g);
    if (lattice) TN_RETURN_IF(flow_lattice(&n, e0, &l));
    const tn_ref surface = lattice ? l.surface : e0;
    tn_ref loss = c.classes ? class_loss(&n, surface) : surface_loss(&n, surface, x);
    if (lattice) put_landings(&n, &l);
    if (lattice && strcmp(b->step, "train") == 0) loss = with_exit(&n, loss, &l);
    tn_output(g, "loss", loss);
    return tn_graph_status(g);
}

/* Every flow's path and landing, for pictures. */
tn_status flow_build_flows(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    flow_config c;
    flow_net n;
    flow_landings l = { 0 };
    TN_RETURN_IF(open_net(g, st, b, &c, &n));
    if (c.lattice == FLOW_OFF) return tn_model_error("lattice=off has no flows to show: use lattice=on");
    const tn_ref x = sample_of(&n);
    TN_RETURN_IF(flow_lattice(&n, energies(&n, x), &l));
    for (size_t i = 0; i < sizeof landing_outputs / sizeof *landing_outputs; i++)
        tn_output(g, landing_outputs[i].name, l.out[landing_outputs[i].output]);
    tn_output(g, "paths", l.out[TN_ROLLOUT_PATHS]);
    tn_output(g, "surface", l.surface);
    if (!c.classes) tn_output(g, "answer", answer_of(&n, l.surface, tn_ref_dim(g, target_of(&n, x), -1)));
    return tn_graph_status(g);
}

/* For models made of others: "features" (B,1,S) in, hidden (B,1,cells), and the price of flows that did not arrive. What flow_report
 * reads is put out. */
tn_status flow_forward(tn_graph *g, const tn_settings *st, const tn_batch *b, tn_forward *out)
{
    flow_config c;
    flow_net n;
    flow_landings l = { 0 };
    TN_RETURN_IF(open_net(g, st, b, &c, &n));
    const tn_ref e0 = energies(&n, sample_of(&n));
    make_scalars(g);
    if (c.lattice != FLOW_OFF) TN_RETURN_IF(flow_lattice(&n, e0, &l));
    if (l.surface.id && (n.noisy || tn_graph_get_options(g)->instruments)) put_landings(&n, &l);
    const tn_ref y = one_number(&n, l.surface.id ? l.surface : e0);
    out->hidden = tn_reshape(g, y, tn_shape(b->batch, 1, flow_cells(&c)));
    out->extra = l.surface.id ? tn_mul(g, distance_left(&n, &l), tn_scalar(g, "lambda_exit", 0)) : TN_NONE;
    return tn_graph_status(g);
}
