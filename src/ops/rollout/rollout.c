/* rollout: shape checks, gradient rule, cost, the rows of the op and of its twin that computes flows on which have left. */
#include "ops/rollout/rollout.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

#include <string.h>

tn_kernel tn_rollout_forward_cpu, tn_rollout_backward_cpu;
tn_kernel_work tn_rollout_work_cpu;

enum { NEURON = 32, FEATURES = 64, HIDDEN = 64 };

/* --- shapes --------------------------------------------------------------------------------------------------------- */

/* What the parameters' shapes are: rows, columns (0: a vector). */
typedef struct wanted {
    const char *name;
    int64_t rows, columns;
} wanted;

static wanted wanted_of(const tn_rollout_attr *a, int input)
{
    const int64_t H = a->state, E = a->energy, F = a->field;
    const wanted fixed[TN_ROLLOUT_GRU - TN_ROLLOUT_Q] = {
        { "q", 3, 3 },        { "qb", 3, 0 },       { "v1", NEURON, 3 + E + F }, { "v1b", NEURON, 0 },
        { "n1g", NEURON, 0 }, { "n1b", NEURON, 0 }, { "v2", NEURON, NEURON },    { "v2b", NEURON, 0 },
        { "n2g", NEURON, 0 }, { "n2b", NEURON, 0 }, { "v3", FEATURES, NEURON },  { "v3b", FEATURES, 0 },
        { "e1", H / 2, H },   { "e1b", H / 2, 0 },  { "e2", E, H / 2 },          { "e2b", E, 0 },
        { "d1", HIDDEN, H },  { "d1b", HIDDEN, 0 }, { "d2", 3, HIDDEN },         { "d2b", 3, 0 },
        { "f", F, H },
    };
    if (input < TN_ROLLOUT_GRU) return fixed[input - TN_ROLLOUT_Q];
    const int layer = (input - TN_ROLLOUT_GRU) / 4, kind = (input - TN_ROLLOUT_GRU) % 4;
    static const char *const names[] = { "w_i", "w_h", "b_i", "b_h" };
    return (wanted){ names[kind], 3 * H, kind == 0 ? (layer ? H : FEATURES + E) : kind == 1 ? H : 0 };
}

static bool is_given(const tn_rollout_attr *a, int input)
{
    if (input == TN_ROLLOUT_F) return a->field > 0;
    return input < TN_ROLLOUT_GRU + 4 * a->layers;
}

static tn_status check_parameter(const tn_sig *s, int input)
{
    const tn_rollout_attr *a = s->attr;
    const tn_type *t = &s->in[input];
    if (!is_given(a, input)) {
        if (t->absent) return TN_OK;
        if (input == TN_ROLLOUT_F) return tn_error(TN_USAGE, "f is given, and field is 0: set the number of channels");
        return tn_error(TN_USAGE, "weights of layer %d are given, and there are %d layers",
                        (input - TN_ROLLOUT_GRU) / 4 + 1, (int)a->layers);
    }
    const wanted w = wanted_of(a, input);
    const tn_dims dims = w.columns ? tn_shape(w.rows, w.columns) : tn_shape(w.rows);
    if (t->absent || !tn_dtype_is_float(t->dtype) || t->dtype == TN_F64 || !tn_dims_equal(t->dims, dims)) {
        if (w.columns)
            return tn_error(TN_USAGE, "%s must be floats of shape (%lld,%lld)", w.name, (long long)w.rows,
                            (long long)w.columns);
        return tn_error(TN_USAGE, "%s must be floats of shape (%lld)", w.name, (long long)w.rows);
    }
    return TN_OK;
}

static tn_status check_run_time(const tn_sig *s)
{
    const struct {
        int input;
        const char *name;
        tn_dtype dtype;
        int64_t count;
    } rows[] = {
        { TN_ROLLOUT_NUMBER, "number", TN_I32, s->in[TN_ROLLOUT_E0].dims.dim[0] },
        { TN_ROLLOUT_SEED, "seed", TN_I64, 2 },
        { TN_ROLLOUT_KAPPA, "kappa", TN_F32, 1 },
        { TN_ROLLOUT_DRIFT, "drift", TN_F32, 1 },
        { TN_ROLLOUT_SIGMA, "sigma", TN_F32, 1 },
        { TN_ROLLOUT_COUNT, "count", TN_I32, 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tn_type *t = &s->in[rows[i].input];
        if (t->absent) continue;
        if (t->dtype != rows[i].dtype || tn_dims_count(t->dims) != rows[i].count)
            return tn_error(TN_USAGE, "%s must be %s with %lld numbers", rows[i].name, tn_dtype_name(rows[i].dtype),
                            (long long)rows[i].count);
        if (t->trainable) return tn_error(TN_USAGE, "%s has no gradient: pass a scalar or an input", rows[i].name);
    }
    return TN_OK;
}

static tn_status check_rules(const tn_rollout_attr *a)
{
    if (a->width < 2 || a->height < 2)
        return tn_error(TN_USAGE, "a surface of %d x %d cells: width and height must be at least 2", (int)a->width,
                        (int)a->height);
    if (a->steps < 1) return tn_error(TN_USAGE, "steps=%d: at least 1", (int)a->steps);
    if (!(a->start > -1 && a->start < 1))
        return tn_error(TN_USAGE, "start=%g: flows start between the planes, in (-1, 1)", (double)a->start);
    if (!(a->limit > 0 && a->limit <= 1)) return tn_error(TN_USAGE, "limit=%g is outside (0, 1]", (double)a->limit);
    if (a->stop != TN_ROLLOUT_NEVER && (a->patience < 1 || a->s_min < 0))
        return tn_error(TN_USAGE, "stop rule: patience=%d must be at least 1, s_min=%d at least 0", (int)a->patience,
                        (int)a->s_min);
    if (a->spawn < 0 || a->spawn > 1024 || (a->spawn > 0 && !(a->rho > 0)))
        return tn_error(TN_USAGE, "spawn=%d with rho=%g: spawn is 0 to 1024, rho above 0", (int)a->spawn,
                        (double)a->rho);
    if (a->keep < 0 || a->panel < 0) return tn_error(TN_USAGE, "keep and panel must not be negative");
    if (a->layers < 1 || a->layers > TN_ROLLOUT_LAYERS)
        return tn_error(TN_USAGE, "%d GRU layers: 1 to %d", (int)a->layers, TN_ROLLOUT_LAYERS);
    if (a->energy < 1 || a->energy > TN_ROLLOUT_ENERGY)
        return tn_error(TN_USAGE, "flows of %d energies: 1 to %d", (int)a->energy, TN_ROLLOUT_ENERGY);
    if (a->state < 2 || a->state % 2) return tn_error(TN_USAGE, "a state of %d: must be even", (int)a->state);
    if (a->field < 0 || a->field > TN_ROLLOUT_FIELD)
        return tn_error(TN_USAGE, "a field of %d channels: at most %d", (int)a->field, TN_ROLLOUT_FIELD);
    for (int i = 0; a->field && i < 3; i++)
        if (a->grid[i] < 2) return tn_error(TN_USAGE, "the field's grid needs at least 2 corners along each axis");
    return TN_OK;
}

static void fill_outputs(tn_sig *s)
{
    const tn_rollout_attr *a = s->attr;
    const int64_t B = s->in[TN_ROLLOUT_E0].dims.dim[0], S = (int64_t)a->width * a->height,
                  N = S + (a->spawn ? S / 4 : 0), C = B * N, T = a->steps, L = a->layers, E = a->energy, H = a->state,
                  kept = a->keep ? 0 : T;
    const tn_dims slots = tn_shape(B, N), rows = tn_shape(T, C);
    tn_type *o = s->out;
    s->n_out = TN_ROLLOUT_OUTPUTS;
    for (int i = 0; i < TN_ROLLOUT_OUTPUTS; i++) {
        const bool by_slot = i >= TN_ROLLOUT_U && i <= TN_ROLLOUT_LANDED;
        if (i < TN_ROLLOUT_STATE || i == TN_ROLLOUT_GRID) o[i].dtype = TN_F32;
        if (o[i].dtype == TN_F16) o[i].dtype = TN_F32; /* gradients add up over more steps than f16 has range for */
        if (by_slot) o[i].dims = slots;
        if (i >= TN_ROLLOUT_PLANE && i <= TN_ROLLOUT_COUNTS) o[i].dtype = TN_I32;
        if (i >= TN_ROLLOUT_SLOT && i <= TN_ROLLOUT_LIVE) o[i].dtype = TN_I32, o[i].dims = rows;
    }
    o[TN_ROLLOUT_E].dims = tn_shape(B, N, E);
    o[TN_ROLLOUT_COUNTS].dims = tn_shape(B, TN_ROLLOUT_TALLIES);
    o[TN_ROLLOUT_PATHS].dims = tn_shape(T + 1, B, N, 3 + E);
    o[TN_ROLLOUT_PLACES].dims = tn_shape(T, C, 3 + E);
    o[TN_ROLLOUT_LIVE].dims = tn_shape(T + 1, B + 1);
    o[TN_ROLLOUT_STATE].dims = tn_shape(a->keep ? T / a->keep : T, L, C, H);
    o[TN_ROLLOUT_GATES].dims = tn_shape(kept, L, C, 4 * H);
    o[TN_ROLLOUT_HEADS].dims = tn_shape(kept, C, H / 2 + HIDDEN);
    o[TN_ROLLOUT_GRID].dims =
        tn_shape(a->field ? T : 0, B, a->field ? (int64_t)a->grid[0] * a->grid[1] * a->grid[2] : 1, a->field);
}

static tn_status rollout_infer(tn_sig *s)
{
    const tn_rollout_attr *a = s->attr;
    const tn_type *e = &s->in[TN_ROLLOUT_E0];
    TN_RETURN_IF(check_rules(a));
    const int64_t S = (int64_t)a->width * a->height;
    if (e->absent || !tn_dtype_is_float(e->dtype) || e->dims.rank != 3 || e->dims.dim[1] != S ||
        e->dims.dim[2] != a->energy)
        return tn_error(TN_USAGE, "e0 must be floats of shape (B,S,E) with S = %lld cells and E = %d", (long long)S,
                        (int)a->energy);
    if (S > INT32_MAX / 2 || e->dims.dim[0] > INT32_MAX / (2 * S))
        return tn_error(TN_USAGE, "%lld samples of %lld cells are too many flows", (long long)e->dims.dim[0],
                        (long long)S);
    TN_RETURN_IF(check_run_time(s));
    for (int i = TN_ROLLOUT_Q; i < TN_ROLLOUT_INPUTS; i++) TN_RETURN_IF(check_parameter(s, i));
    fill_outputs(s);
    return TN_OK;
}

/* --- gradient, cost ------------------------------------------------------------------------------------------------- */

/* All parameters, because the steps' insides are made again from places; not e0, which is in the first places. */
static void rollout_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)want;
    u->in =
        (((uint64_t)1 << TN_ROLLOUT_INPUTS) - 1) & ~((uint64_t)1 << TN_ROLLOUT_E0 | (uint64_t)1 << TN_ROLLOUT_COUNT);
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i].absent) u->in &= ~((uint64_t)1 << i);
    u->out = (((uint64_t)1 << TN_ROLLOUT_OUTPUTS) - 1) &
             ~((uint64_t)1 << TN_ROLLOUT_D | (uint64_t)1 << TN_ROLLOUT_AGE | (uint64_t)1 << TN_ROLLOUT_PATHS);
}

static void rollout_cost(const tn_sig *s, tn_cost *c)
{
    const tn_rollout_attr *a = s->attr;
    double weights = 0, trained = 0;
    for (int i = TN_ROLLOUT_Q; i < TN_ROLLOUT_INPUTS; i++) {
        if (s->in[i].absent || s->in[i].dims.rank != 2) continue;
        weights += (double)tn_dims_count(s->in[i].dims);
        trained += s->in[i].trainable ? (double)tn_dims_count(s->in[i].dims) : 0;
    }
    const double rows = 2.0 * a->steps * (double)(s->in[TN_ROLLOUT_E0].dims.dim[0] * a->width * a->height);
    c->flops = rows * weights;
    c->flops_backward = rows * (weights + trained + (a->keep ? weights : 0));
    c->varies = true;
}

/* --- rows ----------------------------------------------------------------------------------------------------------- */

static tn_status rollout_as_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    tn_rollout_attr a;
    memcpy(&a, attr, sizeof a);
    a.compact = false;
    tn_graph_add(g, __FILE__, __LINE__, &tn_op_rollout_plain, &a, in, n_in, out);
    return tn_graph_status(g);
}

#define KERNELS_ON(device)                                                                                             \
    {                                                                                                                  \
        .forward = tn_rollout_forward_##device, .backward = tn_rollout_backward_##device,                              \
        .work = tn_rollout_work_##device                                                                               \
    }
#define KERNELS                                                                                                        \
    {                                                                                                                  \
        [TN_CPU] = KERNELS_ON(cpu), [TN_CUDA] = KERNELS_ON(cuda)                                                       \
    }

const tn_op tn_op_rollout = {
    .name = "rollout",
    .attr_bytes = sizeof(tn_rollout_attr),
    .flags = TN_OP_OPTIONAL_OUT,
    .infer = rollout_infer,
    .grad = rollout_grad,
    .cost = rollout_cost,
    .aux_from = TN_ROLLOUT_PATHS,
    .kernel = KERNELS,
    TN_OP_SWITCH("opt.rollout_compact", "flows that left the lattice take no time (off: they are computed on)"),
    .plain = rollout_as_plain,
};

const tn_op tn_op_rollout_plain = {
    .name = "rollout_plain",
    .attr_bytes = sizeof(tn_rollout_attr),
    .flags = TN_OP_OPTIONAL_OUT,
    .infer = rollout_infer,
    .grad = rollout_grad,
    .cost = rollout_cost,
    .aux_from = TN_ROLLOUT_PATHS,
    .kernel = KERNELS,
};

static int32_t narrow(int64_t x) { return x < 0 ? -1 : x > INT32_MAX ? INT32_MAX : (int32_t)x; }

static tn_rollout_attr attr_of(const tn_graph *g, tn_ref e0, const tn_rollout_params *p, const tn_rollout_options *o)
{
    const bool good = tn_graph_status(g) == TN_OK;
    return (tn_rollout_attr){
        .width = narrow(o->width),
        .height = narrow(o->height),
        .steps = narrow(o->steps),
        .layers = narrow(p->layers),
        .energy = good && e0.id && tn_ref_dims(g, e0).rank == 3 ? narrow(tn_ref_dim(g, e0, 2)) : 0,
        .state = good && p->e1.id && tn_ref_dims(g, p->e1).rank == 2 ? narrow(tn_ref_dim(g, p->e1, 1)) : 0,
        .start = o->start,
        .limit = o->limit != 0 ? o->limit : 0.5f,
        .stop = o->stop,
        .threshold = o->threshold != 0 ? o->threshold : 0.95f,
        .s_min = narrow(o->s_min),
        .patience = narrow(o->patience),
        .spawn = narrow(o->spawn),
        .rho = o->rho,
        .shorten = o->shorten,
        .noise_z = o->noise_z,
        .field = narrow(o->field),
        .grid = { narrow(o->grid[0]), narrow(o->grid[1]), narrow(o->grid[2]) },
        .smooth = o->smooth,
        .keep = narrow(o->keep),
        .compact = true,
        .panel = narrow(o->panel),
    };
}

tn_status tn_rollout_(tn_graph *g, const char *file, int line, tn_ref e0, const tn_rollout_params *p,
                      const tn_rollout_options *o, tn_ref out[TN_ROLLOUT_OUTPUTS])
{
    const tn_rollout_attr a = attr_of(g, e0, p, o);
    tn_ref in[TN_ROLLOUT_INPUTS] = {
        e0,     o->number, o->seed, o->kappa, o->drift, o->sigma, o->count, p->q,  p->qb,  p->v1,
        p->v1b, p->n1g,    p->n1b,  p->v2,    p->v2b,   p->n2g,   p->n2b,   p->v3, p->v3b, p->e1,
        p->e1b, p->e2,     p->e2b,  p->d1,    p->d1b,   p->d2,    p->d2b,   p->f,
    };
    for (int64_t l = 0; l < TN_ROLLOUT_LAYERS && l < p->layers; l++)
        memcpy(&in[TN_ROLLOUT_GRU + 4 * l], &p->gru[l], sizeof p->gru[l]);
    for (int i = 0; i < TN_ROLLOUT_OUTPUTS; i++) out[i] = TN_NONE;
    tn_graph_add(g, file, line, &tn_op_rollout, &a, in, TN_ROLLOUT_INPUTS, out);
    return tn_graph_status(g);
}
