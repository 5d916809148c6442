/* rollout: rows (dim = W, H, B, E, state, layers, steps, rules), against the lattice in double, and properties. Landings, counts
 * and the gradients of every parameter are compared. */
#include "optest.h"

#include "backend/cpu/pool.h"
#include "base/rng.h"
#include "flow_oracle.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What else a row's net has. */
typedef struct rules {
    float kappa, drift, sigma, start;
    tn_rollout_stop stop;
    float threshold;
    int s_min, patience, spawn;
    float rho;
    bool shorten, noise_z, smooth;
    int field, grid[3], keep, panel, count;
    bool surface; /* landings go through collect, which is the row's output */
} rules;

enum {
    PLAIN,
    DRIFT,
    WILD,
    NOISE,
    BATCH,
    SAMPLE,
    STALE,
    SPAWN,
    SHORTEN,
    NEAREST,
    SMOOTH,
    MANY,
    KEEP,
    KEEP_3,
    SOME,
    SPLAT
};
static const rules table[] = {
    [PLAIN] = { .kappa = 1 },
    [DRIFT] = { .kappa = 1, .drift = 0.3f },
    [WILD] = { .kappa = 4, .drift = 0.1f, .start = 0.25f },
    [NOISE] = { .kappa = 1, .drift = 0.2f, .sigma = 0.1f, .noise_z = true },
    [BATCH] = { .kappa = 2, .drift = 0.1f, .stop = TN_ROLLOUT_BATCH, .threshold = 0.6f, .s_min = 2, .patience = 3 },
    [SAMPLE] = { .kappa = 2, .drift = 0.1f, .stop = TN_ROLLOUT_SAMPLE, .threshold = 0.6f, .s_min = 1, .patience = 2 },
    [STALE] = { .kappa = 0.1f, .stop = TN_ROLLOUT_SAMPLE, .s_min = 1, .patience = 2 },
    [SPAWN] = { .kappa = 1, .drift = 0.1f, .spawn = 2, .rho = 0.15f },
    [SHORTEN] = { .kappa = 1,
                  .drift = 0.1f,
                  .sigma = 0.1f,
                  .spawn = 2,
                  .rho = 0.2f,
                  .shorten = true,
                  .keep = 2,
                  .stop = TN_ROLLOUT_SAMPLE,
                  .threshold = 0.3f,
                  .s_min = 2,
                  .patience = 3 },
    [NEAREST] = { .kappa = 1, .drift = 0.2f, .field = 3, .grid = { 3, 4, 5 } },
    [SMOOTH] = { .kappa = 1, .drift = 0.2f, .field = 2, .grid = { 3, 2, 4 }, .smooth = true },
    [MANY] = { .kappa = 1,
               .drift = 0.1f,
               .sigma = 0.1f,
               .spawn = 3,
               .rho = 0.15f,
               .shorten = true,
               .field = 8,
               .grid = { 4, 3, 3 },
               .smooth = true,
               .keep = 2,
               .stop = TN_ROLLOUT_BATCH,
               .threshold = 0.5f,
               .s_min = 2,
               .patience = 3 },
    [KEEP] = { .kappa = 1, .drift = 0.2f, .keep = 1 },
    [KEEP_3] = { .kappa = 1, .drift = 0.2f, .keep = 3, .panel = 7 },
    [SOME] = { .kappa = 1,
               .drift = 0.2f,
               .count = 2,
               .stop = TN_ROLLOUT_BATCH,
               .threshold = 0.6f,
               .s_min = 2,
               .patience = 3 },
    [SPLAT] = { .kappa = 1, .drift = 0.2f, .sigma = 0.1f, .surface = true },
};

enum { QUICK = TN_NO_VIEWS };
static const tn_case cases[] = {
    { "one layer", { 4, 4, 2, 1, 8, 1, 3, PLAIN }, QUICK, 1e-5f, 0 },
    { "two layers, drift", { 4, 3, 3, 1, 12, 2, 5, DRIFT }, 0, 1e-5f, 0 },
    { "clamped and folded, three energies", { 5, 4, 2, 3, 16, 1, 6, WILD }, QUICK, 1e-5f, 0 },
    { "three layers, noise", { 3, 4, 2, 2, 10, 3, 4, NOISE }, QUICK, 1e-5f, 0 },
    { "several pieces of slots", { 19, 17, 2, 1, 6, 1, 3, DRIFT }, QUICK, 1e-5f, 0 },
    { "the batch stops", { 4, 4, 3, 1, 8, 1, 9, BATCH }, QUICK, 1e-5f, 0 },
    { "samples stop", { 4, 4, 3, 1, 8, 2, 9, SAMPLE }, QUICK, 1e-5f, 0 },
    { "nothing leaves", { 3, 3, 2, 1, 8, 1, 8, STALE }, QUICK, 1e-5f, 0 },
    { "spawn", { 4, 4, 3, 1, 8, 1, 5, SPAWN }, QUICK, 1e-5f, 0 },
    { "spawn, shortened moves", { 5, 4, 3, 2, 8, 2, 6, SHORTEN }, QUICK, 1e-5f, 0 },
    { "field, nearest", { 4, 4, 2, 1, 8, 1, 4, NEAREST }, QUICK, 1e-5f, 0 },
    { "field, smooth", { 4, 3, 2, 2, 8, 2, 4, SMOOTH }, QUICK, 1e-5f, 0 },
    { "everything", { 5, 5, 3, 2, 12, 2, 7, MANY }, 0, 1e-5f, 0 },
    { "every state kept", { 4, 4, 2, 1, 8, 2, 4, KEEP }, QUICK, 1e-5f, 0 },
    { "every third state kept, panels of seven", { 4, 5, 2, 1, 8, 2, 7, KEEP_3 }, QUICK, 1e-5f, 0 },
    { "two valid rows of four", { 4, 4, 4, 1, 8, 1, 5, SOME }, QUICK, 1e-5f, 0 },
    { "through collect", { 4, 4, 2, 2, 8, 2, 6, SPLAT }, QUICK | TN_NO_NAN, 1e-5f, 0 },
};

/* --- the driver's side ------------------------------------------------------------------------------------------------------ */

static const rules *rules_of(const tn_case *c) { return &table[c->dim[7]]; }

static fo_net net_of(const tn_case *c)
{
    const rules *r = rules_of(c);
    return (fo_net){ .W = (int)c->dim[0],
                     .Hs = (int)c->dim[1],
                     .B = r->count ? r->count : (int)c->dim[2],
                     .E = (int)c->dim[3],
                     .H = (int)c->dim[4],
                     .L = (int)c->dim[5],
                     .neuron = 32,
                     .features = 64,
                     .hidden = 64,
                     .field = r->field,
                     .grid = { r->grid[0], r->grid[1], r->grid[2] },
                     .smooth = r->smooth,
                     .steps = (int)c->dim[6],
                     .start = (double)r->start,
                     .limit = 0.5,
                     .kappa = (double)r->kappa,
                     .tau = (double)r->drift,
                     .sigma = (double)r->sigma,
                     .noise_z = r->noise_z,
                     .stop = { .never = r->stop == TN_ROLLOUT_NEVER,
                               .per_sample = r->stop == TN_ROLLOUT_SAMPLE,
                               .threshold = r->threshold != 0 ? (double)r->threshold : (double)0.95f,
                               .s_min = r->s_min,
                               .patience = r->patience },
                     .spawn = r->spawn,
                     .rho = (double)r->rho,
                     .shorten = r->shorten };
}

/* Parameters that the net has, in the order of the node's inputs. */
static int parameters(const fo_net *m, int *which)
{
    int n = 0;
    int64_t rows, columns;
    for (int k = 0; k < FO_PARAMS; k++)
        if (fo_size(m, k, &rows, &columns)) which[n++] = k;
    return n;
}

static tn_ref constant(tn_op_io *io, float x)
{
    return tn_test_input(io, tn_shape(1),
                         (tn_fill_spec){ .kind = TN_FILL_CONSTANT, .lo = (double)x, .constant = true });
}

static void build(tn_op_io *io, const tn_case *c)
{
    const rules *r = rules_of(c);
    const fo_net m = net_of(c);
    const int64_t B = c->dim[2];
    int which[FO_PARAMS];
    tn_ref in[FO_PARAMS] = { { 0 } }, out[TN_ROLLOUT_OUTPUTS];
    tn_rollout_params p = { .layers = m.L };
    tn_rollout_options o = { .width = m.W,
                             .height = m.Hs,
                             .steps = m.steps,
                             .start = r->start,
                             .stop = r->stop,
                             .threshold = r->threshold,
                             .s_min = r->s_min,
                             .patience = r->patience,
                             .spawn = r->spawn,
                             .rho = r->rho,
                             .shorten = r->shorten,
                             .noise_z = r->noise_z,
                             .field = r->field,
                             .grid = { r->grid[0], r->grid[1], r->grid[2] },
                             .smooth = r->smooth,
                             .keep = r->keep,
                             .panel = r->panel };
    const tn_ref e0 = tn_test_input(io, tn_shape(B, m.W * m.Hs, m.E), (tn_fill_spec){ .kind = TN_FILL_NORMAL });
    const int n = parameters(&m, which);
    for (int i = 0; i < n; i++) {
        int64_t rows, columns;
        fo_size(&m, which[i], &rows, &columns);
        const bool matrix = columns > 1 || which[i] == FO_V1 || which[i] == FO_F || which[i] == FO_E2;
        in[which[i]] = tn_test_input(io, matrix ? tn_shape(rows, columns) : tn_shape(rows), (tn_fill_spec){ 0 });
    }
    memcpy(&p, in, sizeof *in * FO_GRU);
    for (int l = 0; l < m.L; l++) memcpy(&p.gru[l], &in[FO_GRU + 4 * l], sizeof p.gru[l]);
    o.kappa = constant(io, r->kappa);
    o.drift = constant(io, r->drift);
    o.sigma = constant(io, r->sigma);
    o.number = tn_test_input(io, tn_shape(B), (tn_fill_spec){ .kind = TN_FILL_INT, .lo = 5, .hi = 5000 });
    if (r->count)
        o.count =
            tn_test_input(io, tn_shape(1), (tn_fill_spec){ .kind = TN_FILL_INT, .lo = r->count, .hi = r->count + 1 });
    if (r->sigma > 0) o.seed = tn_graph_seed(tn_test_graph(io));
    tn_rollout(tn_test_graph(io), e0, &p, &o, out);
    if (r->surface)
        tn_test_output(io, tn_collect_(tn_test_graph(io), __FILE__, __LINE__, out,
                                       (tn_collect_options){ .width = m.W, .height = m.Hs }));
    for (int i = TN_ROLLOUT_E; !r->surface && i <= TN_ROLLOUT_COUNTS; i++) tn_test_output(io, out[i]);
}

/* The start of a training, farther apart: every parameter has a gradient, moves reach walls and planes. */
static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    const fo_net m = net_of(c);
    int which[FO_PARAMS];
    int64_t rows, columns;
    const int count = parameters(&m, which);
    for (int64_t i = 0; input == 0 && i < n; i++) x[i] *= 0.6;
    if (input < 1 || input > count) return;
    fo_size(&m, which[input - 1], &rows, &columns);
    double start[16384];
    assert_true(n <= 16384);
    fo_start(&m, which[input - 1], 1, start);
    for (int64_t i = 0; i < n; i++) x[i] = start[i] + 0.4 * x[i] / sqrt((double)columns);
}

/* --- the oracle's side ------------------------------------------------------------------------------------------------------ */

static double noise(const void *key, int64_t sample, int64_t slot, int64_t step, int axis)
{
    uint32_t w[4];
    (void)key;
    const tn_rng r = { .seed = 12345 + 7 * 0x9E3779B97F4A7C15u, .stream = (uint64_t)sample };
    tn_rng_block(r, (uint64_t)slot | (uint64_t)step << 32, w);
    const uint32_t *pair = axis == 2 ? w + 2 : w;
    const double radius = sqrt(-2 * log((double)((pair[0] >> 8) + 1) * 0x1p-24)),
                 angle = 2 * acos(-1.0) * (double)(pair[1] >> 8) * 0x1p-24;
    return radius * (axis == 1 ? sin(angle) : cos(angle));
}

/* The net with the oracle's inputs; number (B): room for the samples'. */
static fo_net filled_net(const tn_case *c, const tn_oracle *o, int64_t *number)
{
    fo_net m = net_of(c);
    int which[FO_PARAMS];
    const int n = parameters(&m, which);
    m.E0 = o->in[0];
    for (int i = 0; i < n; i++) m.p[which[i]] = o->in[1 + i];
    for (int b = 0; b < m.B; b++) number[b] = (int64_t)o->in[1 + n + 3][b];
    m.number = number;
    m.noise = noise;
    return m;
}

static void count_sample(const fo_net *m, const fo_run *r, int b, double *to)
{
    const fo_count *n = &r->count[r->steps * m->B + b];
    to[TN_ROLLOUT_ASKED] = (double)n->asked;
    to[TN_ROLLOUT_EXITED] = (double)n->exited;
    to[TN_ROLLOUT_PROJECTED] = (double)n->projected;
    to[TN_ROLLOUT_REFUSED] = (double)n->refused;
    to[TN_ROLLOUT_TAKEN] = to[TN_ROLLOUT_FLOW_STEPS] = 0;
    for (int s = 0; s < r->steps; s++)
        for (int64_t i = 0; i < r->slots; i++) {
            if (!r->move[(s * m->B + b) * r->slots + i].moved) continue;
            to[TN_ROLLOUT_TAKEN] = s + 1;
            to[TN_ROLLOUT_FLOW_STEPS]++;
        }
}

static fo_surface surface_of(const fo_net *m, const fo_run *r)
{
    return (fo_surface){
        .W = m->W, .Hs = m->Hs, .E = m->E, .B = m->B, .slots = r->slots, .age = 0.1, .eps = (double)1e-3f
    };
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    int64_t number[64];
    const fo_net m = filled_net(c, o, number);
    fo_run *r = fo_forward(&m);
    const double *const from[] = { r->l.e, r->l.u, r->l.v, r->l.d, r->l.plane, r->l.age, r->l.landed };
    const fo_surface surface = surface_of(&m, r);
    const int64_t slots = rules_of(c)->surface ? 0 : m.B * r->slots;
    if (rules_of(c)->surface) fo_collect(&surface, &r->l, o->out[0]);
    for (int k = 0; slots && k < 7; k++) memcpy(o->out[k], from[k], sizeof(double) * (size_t)(slots * (k ? 1 : m.E)));
    for (int64_t i = 0; i < slots; i++) o->out[TN_ROLLOUT_LANDED][i] += r->projected[i];
    for (int b = 0; slots && b < m.B; b++) count_sample(&m, r, b, o->out[TN_ROLLOUT_COUNTS] + b * TN_ROLLOUT_TALLIES);
    fo_free(r);
}

static void oracle_grad(const tn_case *c, const tn_oracle *o, double *const *dout, double *const *din)
{
    int64_t number[64];
    const fo_net m = filled_net(c, o, number);
    int which[FO_PARAMS];
    const int n = parameters(&m, which);
    double *dp[FO_PARAMS] = { 0 };
    fo_run *r = fo_forward(&m);
    fo_landings own = fo_landings_new(m.B, r->slots, m.E);
    const fo_landings given = { .e = dout[0], .u = dout[1], .v = dout[2], .d = dout[3] };
    const fo_surface surface = surface_of(&m, r);
    if (rules_of(c)->surface) fo_collect_backward(&surface, &r->l, dout[0], &own);
    for (int i = 0; i < n; i++) dp[which[i]] = din[1 + i];
    fo_backward(&m, r, rules_of(c)->surface ? &own : &given, dp, din[0]);
    fo_landings_free(&own);
    fo_free(r);
}

/* --- properties ------------------------------------------------------------------------------------------------------------- */

/* A node with parameters of the right sizes, all but one. */
typedef struct node {
    tn_graph *g;
    tn_ref out[TN_ROLLOUT_OUTPUTS];
    tn_status status;
} node;

static node make_node(const tn_case *c, const tn_rollout_options *o, int without)
{
    const fo_net m = net_of(c);
    node k = { 0 };
    tn_rollout_params p = { .layers = m.L };
    tn_ref in[FO_PARAMS] = { { 0 } };
    assert_ok(tn_graph_new(NULL, &k.g));
    for (int i = 0; i < FO_PARAMS; i++) {
        int64_t rows, columns;
        char name[24];
        if (!fo_size(&m, i, &rows, &columns) || i == without) continue;
        snprintf(name, sizeof name, "p%d", i);
        in[i] = tn_input(k.g, name, columns > 1 ? tn_shape(rows, columns) : tn_shape(rows), TN_F32);
    }
    memcpy(&p, in, sizeof *in * FO_GRU);
    for (int l = 0; l < m.L; l++) memcpy(&p.gru[l], &in[FO_GRU + 4 * l], sizeof p.gru[l]);
    k.status = tn_rollout(k.g, tn_input(k.g, "e0", tn_shape(2, 12, m.E), TN_F32), &p, o, k.out);
    return k;
}

static void mistakes_are_refused(void)
{
    static const tn_case c = { "", { 4, 3, 2, 2, 8, 1, 3, PLAIN }, 0, 1, 0 };
    static const struct {
        tn_rollout_options o;
        int without;
        const char *says;
    } rows[] = {
        { { .width = 1, .height = 12, .steps = 3 }, -1, "width and height must be at least 2" },
        { { .width = 4, .height = 4, .steps = 3 }, -1, "S = 16 cells" },
        { { .width = 4, .height = 3 }, -1, "steps=0" },
        { { .width = 4, .height = 3, .steps = 3, .start = 1 }, -1, "between the planes" },
        { { .width = 4, .height = 3, .steps = 3, .limit = -1 }, -1, "limit=-1" },
        { { .width = 4, .height = 3, .steps = 3, .stop = TN_ROLLOUT_BATCH }, -1, "patience=0 must be at least 1" },
        { { .width = 4, .height = 3, .steps = 3, .spawn = 1 }, -1, "rho above 0" },
        { { .width = 4, .height = 3, .steps = 3, .field = 40 }, -1, "at most 16" },
        { { .width = 4, .height = 3, .steps = 3, .field = 3 }, -1, "at least 2 corners" },
        { { .width = 4, .height = 3, .steps = 3, .field = 3, .grid = { 2, 2, 2 } }, -1, "v1 must be" },
        { { .width = 4, .height = 3, .steps = 3 }, FO_V3B, "v3b must be floats of shape (64)" },
        { { .width = 4, .height = 3, .steps = 3 }, FO_GRU + FO_WH, "w_h must be floats of shape (24,8)" },
    };
    for (size_t i = 0; i < TN_COUNT(rows); i++) {
        node k = make_node(&c, &rows[i].o, rows[i].without);
        assert_fails(k.status, TN_USAGE, rows[i].says);
        tn_graph_free(k.g);
    }
}

/* Both kernels on exactly the workspace that they ask for, with fewer threads than planned. */
static void keeps_to_workspace(void)
{
    enum { GUARD = 4096, BYTE = 0x5a, MOST = TN_ROLLOUT_INPUTS + TN_ROLLOUT_OUTPUTS, THREADS = 3 };
    for (int i = 0; i < (int)TN_COUNT(cases); i++) {
        const tn_case *c = &cases[i];
        const rules *r = rules_of(c);
        const tn_rollout_attr a = { .width = (int32_t)c->dim[0],
                                    .height = (int32_t)c->dim[1],
                                    .steps = (int32_t)c->dim[6],
                                    .layers = (int32_t)c->dim[5],
                                    .energy = (int32_t)c->dim[3],
                                    .state = (int32_t)c->dim[4],
                                    .start = r->start,
                                    .limit = 0.5f,
                                    .stop = r->stop,
                                    .threshold = 0.95f,
                                    .s_min = r->s_min,
                                    .patience = r->patience,
                                    .spawn = r->spawn,
                                    .rho = r->rho,
                                    .shorten = r->shorten,
                                    .field = r->field,
                                    .grid = { r->grid[0], r->grid[1], r->grid[2] },
                                    .smooth = r->smooth,
                                    .keep = r->keep,
                                    .compact = i % 2,
                                    .panel = r->panel };
        const fo_net m = net_of(c);
        tn_type types[MOST] = { { 0 } };
        tn_arg at[MOST] = { { 0 } }, grad[MOST] = { { 0 } };
        tn_pool *pool;
        assert_ok(tn_pool_new(1 + i % THREADS, &pool));
        for (int k = 0; k < TN_ROLLOUT_INPUTS; k++) {
            int64_t rows = 0, columns = 0;
            types[k].absent = k && (k < TN_ROLLOUT_Q || !fo_size(&m, k - TN_ROLLOUT_Q, &rows, &columns));
            types[k].dims =
                k ? (columns > 1 ? tn_shape(rows, columns) : tn_shape(rows)) : tn_shape(c->dim[2], m.W * m.Hs, m.E);
        }
        tn_sig s = {
            .attr = &a, .in = types, .n_in = TN_ROLLOUT_INPUTS, .out = types + TN_ROLLOUT_INPUTS, .threads = THREADS
        };
        assert_ok(tn_op_rollout.infer(&s));
        for (int k = 0; k < MOST; k++) {
            const size_t n = (size_t)tn_dims_count(types[k].dims);
            at[k].dims = grad[k].dims = types[k].dims;
            if (types[k].absent) continue;
            at[k].data = calloc(n + 1, sizeof(float));
            grad[k].data = calloc(n + 1, sizeof(float));
            for (size_t n_k = 0; k < TN_ROLLOUT_INPUTS && n_k < n; n_k++)
                ((float *)at[k].data)[n_k] = sinf(1.7f * (float)n_k + (float)k);
        }
        for (int backward = 0; backward < 2; backward++) {
            const size_t bytes = tn_op_rollout.kernel[TN_CPU].work(&s, backward);
            unsigned char *work = aligned_alloc(64, (bytes + GUARD + 63) / 64 * 64);
            memset(work + bytes, BYTE, GUARD);
            const tn_call call = { .attr = &a,
                                   .in = at,
                                   .n_in = s.n_in,
                                   .out = at + s.n_in,
                                   .n_out = s.n_out,
                                   .dout = grad + s.n_in,
                                   .din = grad,
                                   .work = work,
                                   .work_bytes = bytes,
                                   .pool = pool };
            assert_ok(backward ? tn_op_rollout.kernel[TN_CPU].backward(&call)
                               : tn_op_rollout.kernel[TN_CPU].forward(&call));
            for (int k = 0; k < GUARD; k++) assert_int_equal(work[bytes + (size_t)k], BYTE);
            free(work);
        }
        for (int k = 0; k < MOST; k++) free(at[k].data), free(grad[k].data);
        tn_pool_free(pool);
    }
}

static const tn_property properties[] = {
    { "mistakes are refused", mistakes_are_refused },
    { "keeps to its workspace", keeps_to_workspace },
};

static const tn_op_test test = { .op = "rollout",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .oracle_grad = oracle_grad,
                                 .adjust = adjust,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_rollout(tn_test_list *l) { tn_optest_add(l, &test); }
