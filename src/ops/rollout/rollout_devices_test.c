/* rollout on a GPU (TENON_TEST_DEVICE=cuda) against the CPU in f32, and in bf16 against its own f32: landings, and gradients of
 * every parameter. Rounding may let a flow cross a plane a step earlier or later, so a share of them may differ. */
#include "base/rng.h"
#include "flow_oracle.h"
#include "world.h"

#include <tenon/ops.h>

#include <stdio.h>

enum { SIDES = 4 }; /* outputs with a gradient: e, u, v, d */

typedef struct setup {
    const char *name;
    int width, height, B, E, H, L;
    tn_rollout_options o;
    float kappa, drift, sigma;
    double same;  /* share of flows that leave at the same step, at least */
    double place; /* mean difference of these, at most */
    double slope; /* cosine between gradients, at least */
} setup;

typedef struct result {
    float *out[TN_ROLLOUT_COUNTS + 1], *grad[1 + FO_PARAMS]; /* of e0, then of parameters; NULL: none */
    int64_t n_out[TN_ROLLOUT_COUNTS + 1], n_grad[1 + FO_PARAMS];
} result;

static fo_net net_of(const setup *s)
{
    return (fo_net){
        .E = s->E, .H = s->H, .L = s->L, .neuron = 32, .features = 64, .hidden = 64, .field = (int)s->o.field
    };
}

static float number(uint64_t stream, int64_t i)
{
    return tn_rng_normal((tn_rng){ .seed = 4, .stream = stream }, (uint64_t)i);
}

/* Rows of a matrix of length about 1, moves far below the limit. */
static void fill_parameter(int which, int64_t rows, int64_t columns, float *x)
{
    const bool gain = which == FO_N1G || which == FO_N2G;
    const double size = columns == 1 ? 0.1 : (which == FO_D2 ? 0.2 : 0.9) / sqrt((double)columns);
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] = (float)((gain ? 1 : 0) + size * (double)number(100 + (uint64_t)which, i));
}

static const char *named(char *text, const char *before, int i)
{
    snprintf(text, 16, "%s%d", before, i);
    return text;
}

static tn_bound *make_plan(tn_world *w, const setup *s, tn_dtype activation, tn_dims dims[TN_ROLLOUT_COUNTS + 1])
{
    const fo_net m = net_of(s);
    tn_graph *g =
        tn_world_graph_on(w->device,
                          &(tn_graph_options){
                              .training = true, .threads = 2, .activation = activation, .round = activation });
    tn_rollout_params p = { .layers = s->L };
    tn_rollout_options o = s->o;
    tn_ref in[FO_PARAMS] = { { 0 } }, out[TN_ROLLOUT_OUTPUTS];
    tn_seed seed[SIDES];
    char name[16];
    const tn_ref e0 =
        tn_want_gradient(g, tn_input(g, "e0", tn_shape(s->B, (int64_t)s->width * s->height, s->E), TN_F32));
    for (int i = 0; i < FO_PARAMS; i++) {
        int64_t rows, columns;
        if (!fo_size(&m, i, &rows, &columns)) continue;
        in[i] = tn_want_gradient(g, tn_input(g, named(name, "p", i),
                                             columns > 1 ? tn_shape(rows, columns) : tn_shape(rows), TN_F32));
    }
    memcpy(&p, in, sizeof *in * FO_GRU);
    for (int l = 0; l < s->L; l++) memcpy(&p.gru[l], &in[FO_GRU + 4 * l], sizeof p.gru[l]);
    o.width = s->width, o.height = s->height;
    o.kappa = tn_scalar(g, "kappa", s->kappa);
    o.drift = tn_scalar(g, "drift", s->drift);
    o.sigma = tn_scalar(g, "sigma", s->sigma);
    o.seed = tn_graph_seed(g);
    assert_ok(tn_rollout(g, e0, &p, &o, out));
    for (int i = 0; i <= TN_ROLLOUT_COUNTS; i++) {
        dims[i] = tn_ref_dims(g, out[i]);
        tn_output(g, named(name, "o", i), out[i]);
        if (i < SIDES) seed[i] = (tn_seed){ out[i], tn_input(g, named(name, "c", i), dims[i], TN_F32) };
    }
    return tn_world_add(w, g, &(tn_compile_options){ .threads = 2, .seeds = seed, .n_seeds = SIDES });
}

static void fill_inputs(const setup *s, tn_bound *b, const tn_dims *dims)
{
    const fo_net m = net_of(s);
    char name[16];
    float *e0 = tn_world_data(b, "e0");
    for (int64_t i = 0; i < (int64_t)s->B * s->width * s->height * s->E; i++) e0[i] = 0.6f * number(1, i);
    for (int c = 0; c < SIDES; c++) {
        float *x = tn_world_data(b, named(name, "c", c));
        for (int64_t i = 0; i < tn_dims_count(dims[c]); i++) x[i] = number(10 + (uint64_t)c, i);
    }
    for (int i = 0; i < FO_PARAMS; i++) {
        int64_t rows, columns;
        if (fo_size(&m, i, &rows, &columns)) fill_parameter(i, rows, columns, tn_world_data(b, named(name, "p", i)));
    }
    tn_bound_seed(b, 99, 4);
}

static float *copied(const void *from, int64_t n)
{
    float *x = malloc(sizeof *x * (size_t)(n + 1));
    assert_non_null(x);
    memcpy(x, from, sizeof *x * (size_t)n);
    return x;
}

static result run(const setup *s, tn_device device, tn_dtype activation)
{
    const fo_net m = net_of(s);
    result r = { { 0 }, { 0 }, { 0 }, { 0 } };
    tn_dims dims[TN_ROLLOUT_COUNTS + 1];
    char name[16];
    tn_world w = tn_world_open_on(device, 1, 2);
    tn_bound *b = make_plan(&w, s, activation, dims);
    fill_inputs(s, b, dims);
    assert_ok(tn_run(b));
    for (int i = 0; i <= TN_ROLLOUT_COUNTS; i++) {
        r.n_out[i] = tn_dims_count(dims[i]);
        r.out[i] = copied(tn_world_data(b, named(name, "o", i)), r.n_out[i]);
    }
    r.n_grad[0] = (int64_t)s->B * s->width * s->height * s->E;
    r.grad[0] = copied(tn_world_data(b, "d.e0"), r.n_grad[0]);
    for (int i = 0; i < FO_PARAMS; i++) {
        int64_t rows, columns;
        r.n_grad[1 + i] = fo_size(&m, i, &rows, &columns);
        if (r.n_grad[1 + i]) r.grad[1 + i] = copied(tn_world_data(b, named(name, "d.p", i)), r.n_grad[1 + i]);
    }
    tn_world_close(&w);
    return r;
}

static void discard(result *r)
{
    for (int i = 0; i <= TN_ROLLOUT_COUNTS; i++) free(r->out[i]);
    for (int i = 0; i <= FO_PARAMS; i++) free(r->grad[i]);
}

static int32_t integer(const result *r, int output, int64_t i) { return ((const int32_t *)r->out[output])[i]; }

/* Landings; returns the mean difference of those that left at the same step, in the same way. */
static void compare_landings(const setup *s, const result *a, const result *b)
{
    double off = 0;
    int64_t same = 0;
    const int64_t n = a->n_out[TN_ROLLOUT_U];
    for (int64_t i = 0; i < n; i++) {
        bool equal = true;
        for (int k = TN_ROLLOUT_PLANE; k <= TN_ROLLOUT_LANDED; k++) equal &= integer(a, k, i) == integer(b, k, i);
        if (!equal) continue;
        same++;
        for (int k = TN_ROLLOUT_U; k <= TN_ROLLOUT_D; k++) off += fabs((double)a->out[k][i] - (double)b->out[k][i]);
        for (int k = 0; k < s->E; k++)
            off += fabs((double)a->out[TN_ROLLOUT_E][i * s->E + k] - (double)b->out[TN_ROLLOUT_E][i * s->E + k]);
    }
    if (!((double)same >= s->same * (double)n))
        fail_msg("%s: %lld of %lld flows land alike", s->name, (long long)same, (long long)n);
    if (!(off <= s->place * (double)same * (3 + s->E)))
        fail_msg("%s: landings are %.3g apart", s->name, off / (double)(same * (3 + s->E)));
}

static void compare_gradients(const setup *s, const result *a, const result *b)
{
    for (int i = 0; i <= FO_PARAMS; i++) {
        double aa = 0, bb = 0, ab = 0;
        for (int64_t k = 0; k < a->n_grad[i]; k++) {
            const double x = (double)a->grad[i][k], y = (double)b->grad[i][k];
            aa += x * x, bb += y * y, ab += x * y;
        }
        if (a->n_grad[i] && !(aa > 0 && bb > 0 && ab >= s->slope * sqrt(aa * bb) && fabs(log(aa / bb)) < 0.2))
            fail_msg("%s: gradient %d: cosine %.6f, lengths %.6g and %.6g", s->name, i, ab / sqrt(aa * bb), sqrt(aa),
                     sqrt(bb));
    }
}

/* --- tests ---------------------------------------------------------------------------------------------------------------- */

static const setup single[] = {
    { "experiment's lattice", 28, 28, 16, 1, 32, 3, { .steps = 20 }, 1, 0.06f, 0.02f, 0.9999, 1e-5, 0.9999 },
    { "spawn and field",
      20,
      18,
      8,
      2,
      24,
      2,
      { .steps = 9, .spawn = 1, .rho = 0.2f, .field = 4, .grid = { 5, 5, 4 }, .smooth = true, .keep = 3 },
      1,
      0.12f,
      0.02f,
      0.9995,
      1e-5,
      0.9999 },
    { "samples stop",
      24,
      24,
      8,
      1,
      40,
      1,
      { .steps = 14, .stop = TN_ROLLOUT_SAMPLE, .threshold = 0.7f, .s_min = 4, .patience = 3, .noise_z = true },
      1,
      0.1f,
      0.05f,
      0.9995,
      1e-5,
      0.9999 },
};
static const setup half[] = {
    { "one layer", 9, 7, 3, 1, 64, 1, { .steps = 5 }, 1, 0.21f, 0.02f, 0.95, 2e-2, 0.98 },
    { "odd sizes",
      20,
      18,
      5,
      2,
      192,
      2,
      { .steps = 7, .spawn = 1, .rho = 0.24f, .field = 3, .grid = { 4, 4, 3 }, .smooth = true, .keep = 3 },
      1,
      0.15f,
      0.02f,
      0.85,
      2e-2,
      0.95 },
    { "experiment", 28, 28, 16, 1, 512, 3, { .steps = 20 }, 1, 0.06f, 0.02f, 0.85, 2e-2, 0.95 },
};

static void as_on_the_cpu(void **state)
{
    const setup *s = *state;
    result want = run(s, TN_CPU, TN_F32), got = run(s, tn_test_device(), TN_F32);
    compare_landings(s, &want, &got);
    compare_gradients(s, &want, &got);
    discard(&want);
    discard(&got);
}

/* Twice, with the same bits. */
static void half_as_single(void **state)
{
    const setup *s = *state;
    result want = run(s, tn_test_device(), TN_F32), got = run(s, tn_test_device(), TN_BF16),
           again = run(s, tn_test_device(), TN_BF16);
    for (int i = 0; i <= TN_ROLLOUT_COUNTS; i++)
        assert_memory_equal(got.out[i], again.out[i], sizeof(float) * (size_t)got.n_out[i]);
    for (int i = 0; i <= FO_PARAMS; i++)
        if (got.n_grad[i]) assert_memory_equal(got.grad[i], again.grad[i], sizeof(float) * (size_t)got.n_grad[i]);
    compare_landings(s, &want, &got);
    compare_gradients(s, &want, &got);
    discard(&want);
    discard(&got);
    discard(&again);
}

void tn_tests_rollout_devices(tn_test_list *l)
{
    if (tn_test_device() == TN_CPU) return;
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        tn_test_add(l, as_on_the_cpu, &single[i], "rollout: as on the CPU, %s", single[i].name);
    for (size_t i = 0; i < sizeof half / sizeof *half; i++)
        tn_test_add(l, half_as_single, &half[i], "rollout: bf16 as f32, %s", half[i].name);
}
