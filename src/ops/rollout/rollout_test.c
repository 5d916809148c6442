/* rollout: rows (dim = W, H, B, E, state, layers, steps, rules), against the lattice in double, and properties. Landings, counts
 * and the gradients of every parameter are compared. */
#include "optest.h"

#include "base/rng.h"
#include "flow_oracle.h"

#include <tenon/ops.h>

#include <math.h>
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
} rules;

enum { PLAIN, DRIFT, WILD, NOISE, BATCH, SAMPLE, STALE, SPAWN, SHORTEN, NEAREST, SMOOTH, MANY, KEEP, KEEP_3, SOME };
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
    for (int i = TN_ROLLOUT_E; i <= TN_ROLLOUT_COUNTS; i++) tn_test_output(io, out[i]);
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

static void oracle(const tn_case *c, tn_oracle *o)
{
    int64_t number[64];
    const fo_net m = filled_net(c, o, number);
    fo_run *r = fo_forward(&m);
    const double *const from[] = { r->l.e, r->l.u, r->l.v, r->l.d, r->l.plane, r->l.age, r->l.landed };
    const int64_t slots = m.B * r->slots;
    for (int k = 0; k < 7; k++) memcpy(o->out[k], from[k], sizeof(double) * (size_t)(slots * (k ? 1 : m.E)));
    for (int64_t i = 0; i < slots; i++) o->out[TN_ROLLOUT_LANDED][i] += r->projected[i];
    for (int b = 0; b < m.B; b++) count_sample(&m, r, b, o->out[TN_ROLLOUT_COUNTS] + b * TN_ROLLOUT_TALLIES);
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
    const fo_landings g = { .e = dout[0], .u = dout[1], .v = dout[2], .d = dout[3] };
    for (int i = 0; i < n; i++) dp[which[i]] = din[1 + i];
    fo_backward(&m, r, &g, dp, din[0]);
    fo_free(r);
}

static const tn_op_test test = { .op = "rollout",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .oracle_grad = oracle_grad,
                                 .adjust = adjust };

void tn_tests_rollout(tn_test_list *l) { tn_optest_add(l, &test); }
