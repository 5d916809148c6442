/* What maps the surface of a premise to that of its hypothesis: the lattice of `flow`, run once, or a baseline. */
#include "models/bridge/bridge.h"

#include "base/status.h"
#include "models/encoder.h"
#include "models/flow/flow.h"

#include <stdio.h>

/* --- the lattice ---------------------------------------------------------------------------------------------------------- */

static int64_t lattice_steps(const tn_settings *st)
{
    const int64_t steps = tn_settings_int(st, "flow.steps");
    return steps ? steps : tn_settings_int(st, "flow.depth") / 2;
}

double bridge_kappa_at(const tn_settings *st, int64_t step)
{
    (void)step;
    return tn_settings_on(st, "flow.movement") ? 1 : 0;
}

double bridge_drift_at(const tn_settings *st, int64_t step)
{
    (void)step;
    return tn_settings_float(st, "flow.drift") / (double)lattice_steps(st);
}

double bridge_noise_at(const tn_settings *st, int64_t step)
{
    return bridge_kappa_at(st, step) * tn_settings_float(st, "flow.noise");
}

double bridge_exit_at(const tn_settings *st, int64_t step)
{
    const int64_t n = tn_settings_int(st, "flow.exit_steps");
    const double left = n == 0 ? 1 : step < n ? 1 - (double)step / (double)n : 0;
    return left * tn_settings_float(st, "flow.lambda_exit");
}

static tn_status lattice(tn_graph *g, const tn_settings *st, const tn_batch *b, const bridge_config *c, tn_ref x,
                         bridge_mapped *out)
{
    static const char *const names[] = { "count", "sample" };
    char width[32], height[32];
    const char *const words[] = { width, height, NULL };
    tn_part flow;
    tn_forward f;
    snprintf(width, sizeof width, "width=%lld", (long long)c->width);
    snprintf(height, sizeof height, "height=%lld", (long long)c->height);
    TN_RETURN_IF(tn_part_open(g, st, "flow", "flow", words, &flow));
    tn_batch in = { .size = sizeof in, .batch = b->batch, .length = 1, .step = b->step };
    tn_batch_add(&in, "features", tn_reshape(g, x, tn_shape(b->batch, 1, c->cells)));
    for (size_t i = 0; i < 2; i++)
        if (tn_in(b, names[i]).id) tn_batch_add(&in, names[i], tn_in(b, names[i]));
    TN_RETURN_IF(tn_part_forward(g, &flow, &in, &f));
    *out = (bridge_mapped){ .surface = tn_reshape(g, f.hidden, tn_shape(b->batch, c->cells)), .extra = f.extra };
    return TN_OK;
}

/* Where there is no lattice, its schedules are read by nobody. */
static void make_scalars(tn_graph *g)
{
    static const char *const names[] = { "kappa", "drift", "noise", "lambda_exit" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) tn_scalar(g, names[i], 0);
}

/* --- baselines ------------------------------------------------------------------------------------------------------------ */

/* Rows of the surface are tokens; c->hidden is their width inside. */
static tn_ref transformer(tn_graph *g, const bridge_config *c, tn_ref x, int64_t B)
{
    tn_ref y = tn_dense(g, tn_reshape(g, x, tn_shape(B, c->height, c->width)), "in", c->hidden, TN_ACT_NONE);
    const tn_ref places = tn_param(g, "position", tn_shape(c->height, c->hidden), tn_normal(0.02f), .no_decay = true);
    y = bridge_layers(g, c, tn_add(g, y, places), TN_NONE);
    return tn_reshape(g, tn_dense(g, y, "back", c->width, TN_ACT_NONE), tn_shape(B, c->cells));
}

/* Maps from surface to surface grow with its cells; one that no memory holds is refused before anything is allocated. */
static tn_status baseline_fits(const tn_graph *g, const bridge_config *c)
{
    const double S = (double)c->cells, n = c->body == BRIDGE_LINEAR ? S * S
                                           : c->body == BRIDGE_MLP  ? 2 * S * (double)c->hidden
                                                                    : 0;
    const double copies = tn_graph_get_options(g)->training ? 4 : 1, bytes = 4 * copies * n, has = flow_memory(g);
    if (bytes <= has) return TN_OK;
    return tn_error(TN_MEMORY,
                    "body=%s has %.3g M parameters at width=%lld x height=%lld, which take %.3g GB%s, and %s %.3g GB: "
                    "use a smaller surface, or %s",
                    c->body == BRIDGE_LINEAR ? "linear" : "mlp", n / 1e6, (long long)c->width, (long long)c->height,
                    bytes / 1e9, copies > 1 ? " in training" : "", flow_memory_where(g), has / 1e9,
                    c->body == BRIDGE_LINEAR ? "another body" : "a smaller hidden");
}

static tn_ref baseline(tn_graph *g, const bridge_config *c, tn_ref x, int64_t B)
{
    const int64_t S = c->cells;
    switch (c->body) {
    case BRIDGE_MEAN:
        return tn_add(g, tn_fill(g, tn_shape(B, S), TN_F32, 0), tn_param(g, "mean", tn_shape(S), tn_normal(0.02f)));
    case BRIDGE_LINEAR: return tn_dense(g, x, "map", S, TN_ACT_NONE);
    case BRIDGE_MLP: return tn_dense(g, tn_dense(g, x, "map1", c->hidden, TN_ACT_GELU_ERF), "map2", S, TN_ACT_NONE);
    case BRIDGE_TRANSFORMER: return transformer(g, c, x, B);
    default: return x;
    }
}

tn_status bridge_body_build(tn_graph *g, const tn_settings *st, const tn_batch *b, const bridge_config *c, tn_ref x,
                            bridge_mapped *out)
{
    *out = (bridge_mapped){ 0 };
    make_scalars(g);
    if (c->body == BRIDGE_LATTICE) TN_RETURN_IF(lattice(g, st, b, c, x, out));
    else {
        TN_RETURN_IF(baseline_fits(g, c));
        const tn_region r = tn_region_begin(g, "body");
        out->surface = tn_floats(g, baseline(g, c, x, b->batch));
        tn_region_end(g, r);
    }
    if (c->residual) out->surface = tn_add(g, x, out->surface);
    return tn_graph_status(g);
}
