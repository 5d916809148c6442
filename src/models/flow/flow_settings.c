/* Reading the settings of `flow`, and what they must agree on: with each other and with the data. */
#include "models/flow/flow.h"

#include "base/status.h"

#include <math.h>

static float number(const tn_settings *st, const char *key) { return (float)tn_settings_float(st, key); }

int64_t flow_steps(const tn_settings *st)
{
    const int64_t steps = tn_settings_int(st, "steps"), half = tn_settings_int(st, "depth") / 2;
    return steps ? steps : half ? half : 1;
}

int64_t flow_cells(const flow_config *c) { return (c->beside ? 2 : 1) * c->width * c->height; }

int64_t flow_slots(const flow_config *c)
{
    const int64_t S = c->width * c->height;
    return c->spawn ? S + S / 4 : S;
}

static void read_all(const tn_settings *st, flow_config *c)
{
    *c = (flow_config){ .inputs = tn_settings_int(st, "inputs") * tn_settings_int(st, "tokens"),
                        .classes = tn_settings_int(st, "classes"),
                        .width = tn_settings_int(st, "width"),
                        .height = tn_settings_int(st, "height"),
                        .depth = tn_settings_int(st, "depth"),
                        .steps = flow_steps(st),
                        .dim = tn_settings_int(st, "dim"),
                        .layers = tn_settings_int(st, "layers"),
                        .energy = tn_settings_int(st, "energy"),
                        .s_min = tn_settings_int(st, "s_min"),
                        .patience = tn_settings_int(st, "patience"),
                        .spawn = tn_settings_int(st, "spawn"),
                        .field = tn_settings_int(st, "field"),
                        .grid = { tn_settings_int(st, "field_width"), tn_settings_int(st, "field_height"),
                                  tn_settings_int(st, "field_depth") },
                        .keep = tn_settings_is_auto(st, "keep") ? -1 : tn_settings_int(st, "keep"),
                        .stop = (tn_rollout_stop)tn_settings_choice(st, "stop"),
                        .lattice = (flow_lattice_use)tn_settings_choice(st, "lattice"),
                        .kept = tn_settings_choice(st, "energy_init") == 0,
                        .nearest = tn_settings_choice(st, "collect") == 1,
                        .beside = tn_settings_choice(st, "planes") == 1,
                        .shorten = tn_settings_on(st, "shorten"),
                        .noise_z = tn_settings_on(st, "noise_z"),
                        .smooth = tn_settings_choice(st, "field_deposit") == 1,
                        .map_in = tn_settings_choice(st, "mapper_in") == 1,
                        .map_out = tn_settings_choice(st, "mapper_out") == 1,
                        .start = number(st, "start"),
                        .threshold = number(st, "threshold"),
                        .rho = number(st, "rho"),
                        .eps = number(st, "collect_eps"),
                        .field_init = number(st, "field_init"),
                        .mapper_dropout = number(st, "mapper_dropout"),
                        .keep_bytes = 1e9 * tn_settings_float(st, "keep_memory") };
    if (c->lattice == FLOW_OFF) c->beside = false; /* there are no planes */
}

/* --- the surface ------------------------------------------------------------------------------------------------------- */

/* What is auto: the other side, the data's own, or a square. */
static void find_surface(flow_config *c, const tn_batch *b)
{
    const double width = b ? tn_number(b, "width") : NAN, height = b ? tn_number(b, "height") : NAN;
    const int64_t side = (int64_t)llround(sqrt((double)c->inputs));
    const bool image = !isnan(width) && !isnan(height) && width * height == (double)c->inputs;
    if (!c->width && !c->height && image) c->width = (int64_t)width, c->height = (int64_t)height;
    if (!c->width && !c->height && side * side == c->inputs) c->width = c->height = side;
    if (!c->width && c->height && c->inputs % c->height == 0) c->width = c->inputs / c->height;
    if (!c->height && c->width && c->inputs % c->width == 0) c->height = c->inputs / c->width;
}

static tn_status check_surface(const flow_config *c)
{
    const long long W = c->width, H = c->height, F = c->inputs;
    if (!W || !H)
        return tn_model_error("a sample has %lld numbers, which is no square surface: set width and height, with "
                              "mapper_in=trained unless their product is %lld",
                              F, F);
    if (W < 2 || H < 2)
        return tn_model_error("a surface of width=%lld and height=%lld has no two cells side by side: use at least 2 "
                              "of each",
                              W, H);
    if (W * H != F && !c->map_in)
        return tn_model_error("a sample has %lld numbers and the surface width=%lld x height=%lld = %lld cells: use "
                              "width=auto and height=auto, sizes whose product is %lld, or mapper_in=trained",
                              F, W, H, W * H, F);
    return TN_OK;
}

/* --- the rest ---------------------------------------------------------------------------------------------------------- */

static void find_grid(flow_config *c)
{
    const int64_t most[3] = { (c->width + 1) / 2, (c->height + 1) / 2, c->depth < 10 ? c->depth : 10 };
    for (int i = 0; i < 3; i++)
        if (!c->grid[i]) c->grid[i] = most[i] < 2 ? 2 : most[i];
}

static tn_status check(const flow_config *c)
{
    if (c->dim % 2)
        return tn_model_error("dim=%lld is odd, and the energy head has half of it: use an even dim",
                              (long long)c->dim);
    if (c->keep > c->steps)
        return tn_model_error("keep=%lld is more than the %lld steps of a flow: use keep=auto, or at most %lld",
                              (long long)c->keep, (long long)c->steps, (long long)c->steps);
    if (c->lattice == FLOW_OFF && (c->field || c->spawn))
        return tn_model_error("lattice=off has no flows: set field=0 and spawn=0");
    return TN_OK;
}

static tn_status check_batch(const flow_config *c, const tn_graph *g, const tn_batch *b)
{
    const tn_ref labels = tn_in(b, "labels"), target = tn_in(b, "target");
    const int64_t cells = target.id ? tn_ref_dim(g, target, -1) : c->inputs, made = flow_cells(c);
    if (b->cached) return tn_model_error("flow cannot decode token by token: it reads whole surfaces");
    if (target.id && c->classes)
        return tn_model_error("the task wants a surface, and classes=%lld asks for a class: leave classes at auto",
                              (long long)c->classes);
    if (labels.id && !target.id && !c->classes)
        return tn_model_error("classes is auto and no task is set: give task=NAME or classes=N");
    if (labels.id && !target.id && tn_ref_dim(g, labels, -1) != 1)
        return tn_model_error("flow gives a sample one label, and the data have %lld: use another task",
                              (long long)tn_ref_dim(g, labels, -1));
    if (!c->classes && !c->map_out && cells != made)
        return tn_model_error(
            "a surface of %lld numbers is wanted and the lattice gives %lld%s: use mapper_out=trained%s",
            (long long)cells, (long long)made, c->beside ? " (planes=beside)" : "",
            c->beside ? ", or planes=merged" : "");
    return TN_OK;
}

tn_status flow_config_read(const tn_settings *st, const tn_graph *g, const tn_batch *b, flow_config *c)
{
    read_all(st, c);
    if (b) {
        if (!tn_in(b, "features").id)
            return tn_model_error("flow learns from surfaces, not from tokens: give task=NAME");
        c->inputs = b->length * tn_ref_dim(g, tn_in(b, "features"), -1);
    }
    find_surface(c, b);
    TN_RETURN_IF(check_surface(c));
    find_grid(c);
    TN_RETURN_IF(check(c));
    return b ? check_batch(c, g, b) : TN_OK;
}
