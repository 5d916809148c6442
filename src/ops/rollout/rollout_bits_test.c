/* rollout: what must not change a bit (threads, panels, compaction, states kept, the rest of the batch), and what holds of any
 * lattice: conservation, paths, landings. */
#include "base/rng.h"
#include "flow_oracle.h"
#include "plan/plan.h"
#include "testlib.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_B = 8, HEIGHT = 19, WIDTH = 18, S = WIDTH * HEIGHT, STATE = 12, SIDES = 4 };
enum {
    LANDINGS = TN_ROLLOUT_PATHS + 1,
    TENSORS = LANDINGS + 1 + FO_PARAMS
}; /* outputs, then gradients of e0 and parameters */

/* A net and how it is run. */
typedef struct setup {
    tn_rollout_options o;
    int B, E, L, threads;
    bool off, forward; /* without compaction; without gradients */
    float kappa, drift, sigma;
    const int *sample; /* (B): whose energies, numbers and cotangents a row has; NULL: its own */
    int nan, count;    /* sample whose first energy is NaN, -1: none; valid rows, 0: all */
} setup;

typedef struct result {
    float *x[TENSORS];
    int64_t n[TENSORS];
} result;

static const setup plain = { .o = { .steps = 7, .noise_z = true },
                             .B = 3,
                             .E = 1,
                             .L = 2,
                             .threads = 2,
                             .kappa = 0.5f,
                             .drift = 0.05f,
                             .sigma = 0.2f,
                             .nan = -1 };
static const setup rich = { .o = { .steps = 7,
                                   .stop = TN_ROLLOUT_SAMPLE,
                                   .threshold = 0.6f,
                                   .s_min = 3,
                                   .patience = 3,
                                   .spawn = 2,
                                   .start = 0.5f,
                                   .rho = 0.2f,
                                   .shorten = true,
                                   .noise_z = true,
                                   .field = 3,
                                   .grid = { 5, 4, 3 },
                                   .smooth = true },
                            .B = 3,
                            .E = 2,
                            .L = 1,
                            .threads = 2,
                            .kappa = 0.5f,
                            .drift = 0.05f,
                            .sigma = 0.15f,
                            .nan = -1 };

static fo_net net_of(const setup *s)
{
    return (fo_net){
        .E = s->E, .H = STATE, .L = s->L, .neuron = 32, .features = 64, .hidden = 64, .field = (int)s->o.field
    };
}

static float number(uint64_t stream, int64_t i)
{
    return tn_rng_normal((tn_rng){ .seed = 8, .stream = stream }, (uint64_t)i);
}

/* --- one run ---------------------------------------------------------------------------------------------------------------- */

static int sample_of(const setup *s, int b) { return s->sample ? s->sample[b] : b; }

typedef struct graph {
    tn_graph *g;
    tn_ref out[TN_ROLLOUT_OUTPUTS];
    tn_seed seed[SIDES];
    tn_dims dims[FO_PARAMS];
} graph;

static graph make_graph(const setup *s)
{
    static const char *const off[] = { "opt.rollout_compact", NULL };
    const fo_net m = net_of(s);
    graph k = { 0 };
    tn_rollout_params p = { .layers = s->L };
    tn_rollout_options o = s->o;
    tn_ref in[FO_PARAMS] = { { 0 } };
    assert_ok(
        tn_graph_new(&(tn_graph_options){ .training = true, .threads = s->threads, .off = s->off ? off : NULL }, &k.g));
    const tn_ref e0 = tn_want_gradient(k.g, tn_input(k.g, "e0", tn_shape(s->B, S, s->E), TN_F32));
    for (int i = 0; i < FO_PARAMS; i++) {
        int64_t rows, columns;
        char name[24];
        if (!fo_size(&m, i, &rows, &columns)) continue;
        snprintf(name, sizeof name, "p%d", i);
        k.dims[i] = columns > 1 ? tn_shape(rows, columns) : tn_shape(rows);
        in[i] = tn_want_gradient(k.g, tn_input(k.g, name, k.dims[i], TN_F32));
    }
    memcpy(&p, in, sizeof *in * FO_GRU);
    for (int l = 0; l < s->L; l++) memcpy(&p.gru[l], &in[FO_GRU + 4 * l], sizeof p.gru[l]);
    o.width = WIDTH, o.height = HEIGHT;
    o.kappa = tn_scalar(k.g, "kappa", s->kappa);
    o.drift = tn_scalar(k.g, "drift", s->drift);
    o.sigma = tn_scalar(k.g, "sigma", s->sigma);
    o.number = tn_input(k.g, "number", tn_shape(s->B), TN_I32);
    o.seed = tn_graph_seed(k.g);
    if (s->count) o.count = tn_input(k.g, "count", tn_shape(1), TN_I32);
    assert_ok(tn_rollout(k.g, e0, &p, &o, k.out));
    for (int i = 0; i < LANDINGS; i++) {
        char name[24];
        snprintf(name, sizeof name, "o%d", i);
        tn_output(k.g, name, k.out[i]);
        snprintf(name, sizeof name, "c%d", i);
        if (i < SIDES) k.seed[i] = (tn_seed){ k.out[i], tn_input(k.g, name, tn_ref_dims(k.g, k.out[i]), TN_F32) };
    }
    return k;
}

static void fill(const setup *s, tn_bound *b, int64_t N)
{
    const fo_net m = net_of(s);
    float *e0 = tn_bound_data(b, "e0");
    for (int i = 0; i < s->B; i++) {
        const int of = sample_of(s, i);
        ((int32_t *)tn_bound_data(b, "number"))[i] = 40 + 3 * of;
        for (int k = 0; k < S * s->E; k++) e0[i * S * s->E + k] = 0.6f * number((uint64_t)of, k);
        if (s->nan == i) e0[i * S * s->E] = NAN;
        for (int c = 0; !s->forward && c < SIDES; c++) {
            char name[24];
            snprintf(name, sizeof name, "c%d", c);
            const int64_t n = N * (c ? 1 : s->E);
            for (int64_t k = 0; k < n; k++)
                ((float *)tn_bound_data(b, name))[i * n + k] = number((uint64_t)(100 + 10 * of + c), k);
        }
    }
    for (int i = 0; i < FO_PARAMS; i++) {
        int64_t rows, columns;
        double start[4096];
        char name[24];
        const int64_t n = fo_size(&m, i, &rows, &columns);
        if (!n) continue;
        assert_true(n <= 4096);
        fo_start(&m, i, 1, start);
        snprintf(name, sizeof name, "p%d", i);
        for (int64_t k = 0; k < n; k++)
            ((float *)tn_bound_data(b, name))[k] =
                (float)(start[k] + 0.4 * (double)number(1000 + (uint64_t)i, k) / sqrt((double)columns));
    }
    if (s->count) *(int32_t *)tn_bound_data(b, "count") = s->count;
    tn_bound_seed(b, 99, 4);
}

static void copy_out(result *r, int at, tn_bound *b, const char *name, tn_dims dims)
{
    const void *p = tn_bound_data(b, name);
    r->n[at] = p ? tn_dims_count(dims) : 0;
    r->x[at] = malloc(sizeof(float) * (size_t)(r->n[at] + 1));
    assert_non_null(r->x[at]);
    if (p) memcpy(r->x[at], p, sizeof(float) * (size_t)r->n[at]);
}

static result run(setup s)
{
    result r = { { 0 }, { 0 } };
    tn_plan *plan;
    tn_context *context;
    tn_bound *b;
    graph k = make_graph(&s);
    tn_dims dims[LANDINGS];
    char name[24];
    for (int i = 0; i < LANDINGS; i++) dims[i] = tn_ref_dims(k.g, k.out[i]);
    assert_ok(tn_graph_compile(
        k.g, &(tn_compile_options){ .threads = s.threads, .seeds = k.seed, .n_seeds = s.forward ? 0 : SIDES }, &plan));
    assert_ok(tn_context_new(TN_CPU, s.threads, &context));
    assert_ok(tn_bind(plan, context, NULL, &b));
    fill(&s, b, dims[TN_ROLLOUT_U].dim[1]);
    tn_finding f = { 0 };
    tn_bound_check(b, &f); /* paths have NaN where no flow is; that is no finding */
    assert_ok(tn_run(b));
    if (f.found != (s.nan >= 0)) fail_msg("not finite: %s", f.found ? f.text : "nothing");
    for (int i = 0; i < LANDINGS; i++) {
        snprintf(name, sizeof name, "o%d", i);
        copy_out(&r, i, b, name, dims[i]);
    }
    copy_out(&r, LANDINGS, b, "d.e0", tn_shape(s.B, S, s.E));
    for (int i = 0; i < FO_PARAMS; i++) {
        snprintf(name, sizeof name, "d.p%d", i);
        copy_out(&r, LANDINGS + 1 + i, b, name, k.dims[i]);
    }
    tn_bound_free(b);
    tn_context_free(context);
    tn_plan_free(plan);
    return r;
}

static void discard(result *r)
{
    for (int i = 0; i < TENSORS; i++) free(r->x[i]);
}

static const int32_t *integers(const result *r, int i) { return (const int32_t *)r->x[i]; }

static void same_bits(const char *what, const result *a, const result *b)
{
    for (int i = 0; i < TENSORS; i++) {
        if (!a->n[i] || !b->n[i]) continue;
        if (a->n[i] != b->n[i]) fail_msg("%s: tensor %d has another size", what, i);
        for (int64_t k = 0; k < a->n[i]; k++)
            if (memcmp(&a->x[i][k], &b->x[i][k], sizeof(float)))
                fail_msg("%s: tensor %d, element %lld: %.9g instead of %.9g", what, i, (long long)k, (double)b->x[i][k],
                         (double)a->x[i][k]);
    }
}

/* --- bits -------------------------------------------------------------------------------------------------------------------- */

static void nothing_else_counts(void **state)
{
    const setup *from = *state;
    result want = run(*from);
    static const struct {
        const char *what;
        int threads, panel, keep;
        bool off, forward;
    } rows[] = {
        { "1 thread", 1, 0, 0, false, false },           { "3 threads", 3, 0, 0, false, false },
        { "panels of 16", 2, 16, 0, false, false },      { "panels of 77", 1, 77, 0, false, false },
        { "one panel", 2, 4096, 0, false, false },       { "no compaction", 2, 0, 0, true, false },
        { "every state", 2, 0, 1, false, false },        { "every third state", 2, 0, 3, false, false },
        { "every fourth state", 1, 64, 4, true, false }, { "no state", 2, 0, 8, false, false },
        { "forward only", 2, 0, 0, false, true },        { "forward only, no compaction", 1, 64, 3, true, true },
    };
    int64_t left = 0;
    for (int64_t i = 0; i < want.n[TN_ROLLOUT_LANDED]; i++) left += integers(&want, TN_ROLLOUT_LANDED)[i] == 1;
    assert_true(left > want.n[TN_ROLLOUT_LANDED] / 10 && left < want.n[TN_ROLLOUT_LANDED]);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        setup s = *from;
        s.threads = rows[i].threads, s.o.panel = rows[i].panel, s.o.keep = rows[i].keep;
        s.off = rows[i].off, s.forward = rows[i].forward;
        result got = run(s);
        same_bits(rows[i].what, &want, &got);
        discard(&got);
    }
    discard(&want);
}

/* Rows of the batch stand alone: each as it is by itself, in any order, beside NaN. */
static void samples_stand_alone(void **state)
{
    const setup *from = *state;
    static const int order[] = { 2, 0, 1 };
    setup other = *from;
    other.sample = order;
    other.nan = 1;
    result all = run(*from), mixed = run(other);
    for (int b = 0; b < from->B; b++) {
        setup s = *from;
        const int self = order[b];
        s.B = 1, s.sample = &self;
        result one = run(s);
        for (int i = 0; i <= LANDINGS; i++) {
            if (i == TN_ROLLOUT_PATHS) continue;
            const int64_t n = one.n[i];
            assert_memory_equal(one.x[i], all.x[i] + self * n, sizeof(float) * (size_t)n);
            if (b != other.nan) assert_memory_equal(one.x[i], mixed.x[i] + b * n, sizeof(float) * (size_t)n);
        }
        discard(&one);
    }
    assert_true(isnan(mixed.x[TN_ROLLOUT_E][mixed.n[TN_ROLLOUT_E] / 3]));
    discard(&all);
    discard(&mixed);
}

/* Rows beyond the count have no flows, no gradients, and change nothing. */
static void rows_beyond_the_count(void **state)
{
    const setup *from = *state;
    setup s = *from, two = *from;
    s.count = 2, s.nan = 2;
    two.B = 2;
    result some = run(s), want = run(two);
    s.off = true;
    result off = run(s);
    same_bits("without compaction", &some, &off);
    for (int i = 0; i < TENSORS; i++) {
        if (i == TN_ROLLOUT_PATHS) continue;
        assert_memory_equal(some.x[i], want.x[i], sizeof(float) * (size_t)want.n[i]);
        for (int64_t k = want.n[i]; k < some.n[i]; k++) assert_int_equal(integers(&some, i)[k], 0);
    }
    discard(&some);
    discard(&want);
    discard(&off);
}

/* --- what holds of any lattice ------------------------------------------------------------------------------------------------- */

static void flows_are_conserved(void **state)
{
    const setup *from = *state;
    int64_t refused = 0, before = 0;
    for (int steps = 1; steps <= 6; steps++) {
        setup s = *from;
        s.o.steps = steps, s.forward = true;
        result r = run(s);
        const int64_t N = r.n[TN_ROLLOUT_U] / s.B;
        int64_t exits = 0;
        for (int b = 0; b < s.B; b++) {
            const int32_t *n = integers(&r, TN_ROLLOUT_COUNTS) + b * TN_ROLLOUT_TALLIES;
            int64_t landed[3] = { 0 }, ages = 0;
            for (int64_t i = b * N; i < (b + 1) * N; i++) {
                landed[integers(&r, TN_ROLLOUT_LANDED)[i]]++;
                ages += integers(&r, TN_ROLLOUT_AGE)[i];
            }
            assert_int_equal(n[TN_ROLLOUT_ASKED],
                             n[TN_ROLLOUT_EXITED] + n[TN_ROLLOUT_PROJECTED] + n[TN_ROLLOUT_REFUSED]);
            assert_int_equal(landed[1], n[TN_ROLLOUT_EXITED]);
            assert_int_equal(landed[2], n[TN_ROLLOUT_PROJECTED]);
            assert_int_equal(ages, n[TN_ROLLOUT_FLOW_STEPS]);
            assert_true(n[TN_ROLLOUT_TAKEN] <= steps);
            refused += n[TN_ROLLOUT_REFUSED];
            exits += n[TN_ROLLOUT_EXITED];
        }
        assert_true(exits >= before);
        before = exits;
        discard(&r);
    }
    assert_true(before > 0);
    if (from->o.spawn && !refused) fail_msg("no spawn was refused: the row tests nothing of it");
}

/* A path begins in its cell (or where its parent was), has a place for every step lived, and ends where the flow landed. */
static void paths_lead_to_landings(void **state)
{
    setup s = *(const setup *)*state;
    s.forward = true;
    result r = run(s);
    const int64_t C = r.n[TN_ROLLOUT_U], N = C / s.B, P = 3 + s.E;
    for (int64_t i = 0; i < C; i++) {
        const int landed = integers(&r, TN_ROLLOUT_LANDED)[i], age = integers(&r, TN_ROLLOUT_AGE)[i];
        int64_t first = -1, last = -1, places = 0;
        for (int64_t t = 0; t <= s.o.steps; t++) {
            const float *p = r.x[TN_ROLLOUT_PATHS] + (t * C + i) * P;
            if (isnan(p[0])) continue;
            if (first < 0) first = t;
            last = t, places++;
            assert_true(fabsf(p[0]) <= 1 && fabsf(p[1]) <= 1 && fabsf(p[2]) <= 1);
        }
        if (!landed) {
            assert_int_equal(places, 0);
            continue;
        }
        assert_int_equal(places, age + 1);
        assert_int_equal(last - first, age);
        const float *begin = r.x[TN_ROLLOUT_PATHS] + (first * C + i) * P,
                    *end = r.x[TN_ROLLOUT_PATHS] + (last * C + i) * P;
        if (i % N < S) {
            assert_float_equal(begin[0], 2.0f * (float)(i % N % WIDTH) / (WIDTH - 1) - 1, 1e-6);
            assert_float_equal(begin[1], 2.0f * (float)(i % N / WIDTH) / (HEIGHT - 1) - 1, 1e-6);
        } else assert_true(first > 0);
        assert_true(end[0] == r.x[TN_ROLLOUT_U][i] && end[1] == r.x[TN_ROLLOUT_V][i]);
        assert_memory_equal(end + 3, r.x[TN_ROLLOUT_E] + i * s.E, sizeof *end * (size_t)s.E);
        assert_int_equal(integers(&r, TN_ROLLOUT_PLANE)[i], end[2] > 0);
        if (landed == 1) assert_true(fabsf(end[2]) == 1 && r.x[TN_ROLLOUT_D][i] == 0);
        else assert_float_equal(r.x[TN_ROLLOUT_D][i], 1 - fabsf(end[2]), 1e-6);
    }
    discard(&r);
}

/* From the middle a plane is two moves of the limit away. */
static void nothing_leaves_early(void **state)
{
    (void)state;
    setup s = plain;
    s.kappa = 50, s.drift = s.sigma = 0, s.forward = true;
    result r = run(s);
    int youngest = 100;
    for (int64_t i = 0; i < r.n[TN_ROLLOUT_AGE]; i++)
        if (integers(&r, TN_ROLLOUT_LANDED)[i] == 1 && integers(&r, TN_ROLLOUT_AGE)[i] < youngest)
            youngest = integers(&r, TN_ROLLOUT_AGE)[i];
    assert_int_equal(youngest, 2);
    discard(&r);
}

void tn_tests_rollout_bits(tn_test_list *l)
{
    static const struct {
        const char *name;
        const setup *s;
    } nets[] = { { "a plain net", &plain }, { "spawn, field, stop rules", &rich } };
    for (int i = 0; i < 2; i++) {
        tn_test_add(l, nothing_else_counts, nets[i].s, "rollout bits: nothing else counts, %s", nets[i].name);
        tn_test_add(l, samples_stand_alone, nets[i].s, "rollout bits: samples stand alone, %s", nets[i].name);
        tn_test_add(l, rows_beyond_the_count, nets[i].s, "rollout bits: rows beyond the count, %s", nets[i].name);
        tn_test_add(l, flows_are_conserved, nets[i].s, "rollout bits: flows are conserved, %s", nets[i].name);
        tn_test_add(l, paths_lead_to_landings, nets[i].s, "rollout bits: paths lead to landings, %s", nets[i].name);
    }
    tn_test_add(l, nothing_leaves_early, NULL, "rollout bits: nothing leaves early");
}
