/* Random small graphs, planned in several ways: with and without shared memory, shared gradients, fused sums and
 * recomputation, for one thread and for two. The gradients must be the same bits, agree with central differences of the loss, and every plan
 * must keep its tensors apart (plan_check.h). A failing seed is named, and builds the same graph again. */
#include "base/rng.h"
#include "plan_check.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdio.h>

enum { MOST = 64, SEEDS_PER_TEST = 40, TESTS = 8, MOST_ELEMENTS = 400 };

typedef struct maker {
    tn_graph *g;
    tn_rng rng;
    uint64_t draws;
    tn_ref ref[MOST];
    int n, params, layers;
    bool stops; /* has stop_gradient: no central differences */
} maker;

static int pick(maker *m, int n) { return (int)(tn_rng_uniform(m->rng, m->draws++) * (float)n); }

static tn_ref some(maker *m) /* mostly recent ones, so that chains grow */
{
    const int back = pick(m, 3) ? pick(m, m->n < 6 ? m->n : 6) : pick(m, m->n);
    return m->ref[m->n - 1 - back];
}

static tn_ref param(maker *m, tn_dims dims, bool frozen)
{
    char name[24];
    snprintf(name, sizeof name, "p%d", m->params++);
    return frozen ? tn_frozen(m->g, name, dims, TN_F32, tn_normal(1.f)) : tn_param(m->g, name, dims, tn_normal(0.7f));
}

static tn_dims some_dims(maker *m)
{
    static const int64_t sizes[] = { 1, 2, 3, 4, 6, 8 };
    tn_dims d = { .rank = 1 + pick(m, 3) };
    for (int i = 0; i < d.rank; i++) d.dim[i] = sizes[pick(m, 6)];
    return d;
}

/* A tensor that broadcasts against x: an earlier one where there is one, or a new parameter. */
static tn_ref partner(maker *m, tn_ref x)
{
    tn_dims d = tn_ref_dims(m->g, x);
    for (int tries = 0; tries < 6; tries++) {
        const tn_ref y = some(m);
        const tn_dims e = tn_ref_dims(m->g, y);
        bool fits = e.rank <= d.rank;
        for (int i = 1; fits && i <= e.rank; i++)
            fits = e.dim[e.rank - i] == d.dim[d.rank - i] || e.dim[e.rank - i] == 1;
        if (fits) return y;
    }
    const int drop = pick(m, d.rank);
    for (int i = 0; i + drop < d.rank; i++) d.dim[i] = pick(m, 4) ? d.dim[i + drop] : 1;
    d.rank -= drop;
    return param(m, d, pick(m, 4) == 0);
}

/* --- ops ------------------------------------------------------------------------------------------------------------------ */

static tn_ref view(maker *m, tn_ref x)
{
    const tn_dims d = tn_ref_dims(m->g, x);
    const int axis = pick(m, d.rank), kind = pick(m, 5);
    if (kind == 0 && d.rank == 2) return tn_transpose(m->g, x, 1, 0);
    if (kind == 0 && d.rank == 3) return pick(m, 2) ? tn_transpose(m->g, x, 2, 0, 1) : tn_transpose(m->g, x, 0, 2, 1);
    if (kind == 1) return tn_reshape(m->g, x, tn_shape(tn_dims_count(d)));
    if (kind == 2 && tn_dims_count(d) % 2 == 0) return tn_reshape(m->g, x, tn_shape(2, tn_dims_count(d) / 2));
    const int start = pick(m, (int)d.dim[axis]);
    return tn_slice(m->g, x, axis, start, 1 + pick(m, (int)d.dim[axis] - start));
}

/* All parts of the last axis, or of one that a reshape makes of it, so that slices cover their base; the last one is
 * returned. */
static tn_ref parts(maker *m, tn_ref x)
{
    const int64_t width = tn_ref_dim(m->g, x, -1), all = tn_dims_count(tn_ref_dims(m->g, x));
    const int n = width % 3 == 0 ? 3 : width % 2 == 0 ? 2 : 1;
    const bool reshaped = pick(m, 2);
    x = tn_scale(m->g, x, 0.5f); /* a base of their own */
    if (reshaped) x = tn_reshape(m->g, x, tn_shape(all / width, n, width / n));
    for (int i = 0; i < n && m->n < MOST - 2; i++)
        m->ref[m->n++] = reshaped ? tn_slice(m->g, x, 1, i, 1) : tn_part(m->g, x, i, n);
    return m->ref[m->n - 1];
}

/* x = x + f(norm(x)), once or twice: a residual stream. */
static tn_ref residual(maker *m, tn_ref x)
{
    const int64_t d = tn_ref_dim(m->g, x, -1);
    for (int i = 0, n = 1 + pick(m, 2); i < n; i++) {
        const tn_ref w = param(m, tn_shape(d), false);
        const tn_ref u =
            pick(m, 2) ? tn_rmsnorm(m->g, x, w, .eps = 0.1f) : tn_layernorm(m->g, x, w, TN_NONE, .eps = 0.3f);
        const tn_ref y = pick(m, 2) ? tn_linear(m->g, u, param(m, tn_shape(d, d), false)) : tn_sin(m->g, u);
        x = pick(m, 2) ? tn_add(m->g, x, y) : tn_add(m->g, y, x);
    }
    return pick(m, 3) ? tn_rmsnorm(m->g, x, TN_NONE, .eps = 0.1f) : x;
}

static tn_ref unary(maker *m, tn_ref x)
{
    switch (pick(m, 7)) {
    case 0: return tn_tanh(m->g, x);
    case 1: return tn_sigmoid(m->g, x);
    case 2: return tn_sin(m->g, x);
    case 3: return tn_scale(m->g, x, -0.8f);
    case 4: return tn_silu(m->g, tn_tanh(m->g, x));
    case 5: return tn_dropout(m->g, x, 0.3f);
    default: return tn_square(m->g, tn_sin(m->g, x));
    }
}

static tn_ref binary(maker *m, tn_ref x)
{
    const tn_ref y = partner(m, x);
    switch (pick(m, 6)) {
    case 0: return tn_add(m->g, x, y);
    case 1: return tn_sub(m->g, y, x);
    case 2: return tn_mul(m->g, tn_sigmoid(m->g, x), y);
    case 3: return tn_mul_silu(m->g, x, x);
    case 4: return tn_sub(m->g, x, tn_slice(m->g, x, pick(m, tn_ref_dims(m->g, x).rank), 0, 1));
    default: return tn_mul(m->g, x, tn_tanh(m->g, y));
    }
}

static tn_ref rows(maker *m, tn_ref x)
{
    const int64_t d = tn_ref_dim(m->g, x, -1);
    const tn_ref cat[] = { x, x, tn_tanh(m->g, x) };
    switch (pick(m, 7)) {
    case 0: return tn_softmax(m->g, x);
    case 1: return tn_rmsnorm(m->g, x, pick(m, 2) ? param(m, tn_shape(d), false) : TN_NONE, .eps = 0.1f);
    case 2: return tn_layernorm(m->g, x, param(m, tn_shape(d), false), param(m, tn_shape(d), false), .eps = 0.3f);
    case 3: return tn_mean(m->g, x, pick(m, tn_ref_dims(m->g, x).rank));
    case 4: return tn_scale(m->g, tn_sum(m->g, x, pick(m, tn_ref_dims(m->g, x).rank)), 0.3f);
    case 5: return tn_concat(m->g, cat, 2 + pick(m, 2), pick(m, tn_ref_dims(m->g, x).rank));
    default:
        return tn_linear(m->g, x, param(m, tn_shape(1 + pick(m, 8), d), pick(m, 4) == 0),
                         .act = pick(m, 2) ? TN_ACT_SIGMOID : TN_ACT_NONE);
    }
}

static tn_ref any(maker *m)
{
    const tn_ref x = some(m);
    const bool large = tn_dims_count(tn_ref_dims(m->g, x)) > MOST_ELEMENTS;
    if (tn_ref_dims(m->g, x).rank < 1) return tn_tanh(m->g, x);
    switch (large ? 10 : pick(m, 11)) {
    case 0: return parts(m, x);
    case 1: return tn_copy(m->g, x);
    case 2:
        if (pick(m, 4)) return unary(m, x);
        m->stops = true;
        return tn_stop_gradient(m->g, x);
    case 3:
    case 4: return unary(m, x);
    case 5:
    case 6: return binary(m, x);
    case 7:
    case 8: return rows(m, x);
    case 9: return residual(m, x);
    default: return view(m, x);
    }
}

/* --- graphs --------------------------------------------------------------------------------------------------------------- */

/* The loss weighs every element of some of the tensors, and of the last one. */
static tn_ref make_loss(maker *m)
{
    tn_ref loss = TN_NONE;
    for (int i = 0; i < 4; i++) {
        const tn_ref x = i ? some(m) : m->ref[m->n - 1];
        const tn_ref w = param(m, tn_ref_dims(m->g, x), true),
                     term = tn_mean_all(m->g, tn_mul(m->g, tn_tanh(m->g, x), w));
        loss = loss.id ? tn_add(m->g, loss, term) : term;
    }
    return loss;
}

static maker make_graph(uint64_t seed, const char *const *off, int threads, tn_ref *loss)
{
    maker m = { .g = tn_world_graph(&(tn_graph_options){ .training = true, .off = off, .threads = threads }),
                .rng = { .seed = seed, .stream = 77 } };
    for (int i = 0; i < 3; i++) m.ref[m.n++] = param(&m, some_dims(&m), i == 2);
    m.ref[m.n++] = tn_tanh(m.g, m.ref[0]);
    const int ops = 6 + pick(&m, 30);
    tn_region r = { 0 };
    bool open = false;
    for (int i = 0; i < ops && m.n < MOST - 4; i++) {
        if (pick(&m, 4) == 0) {
            if (open) tn_region_end(m.g, r);
            open = !open || pick(&m, 2);
            if (open) r = tn_segment_begin(m.g, "layer%d", m.layers++);
        }
        const tn_ref y = any(&m);
        m.ref[m.n++] = y;
        if (pick(&m, 12) == 0 && y.id) {
            char name[16];
            snprintf(name, sizeof name, "out%d", i);
            tn_output(m.g, name, y);
        }
    }
    if (open) tn_region_end(m.g, r);
    *loss = make_loss(&m);
    tn_output(m.g, "loss", *loss);
    return m;
}

static float loss_of(tn_bound *b)
{
    assert_ok(tn_run(b));
    return *(const float *)tn_world_data(b, "loss");
}

/* (L(p + h v) - L(p - h v)) / 2h along the direction v of unit length, in the store's first bucket. */
static double difference(tn_bound *b, const tn_bucket *k, const float *p, const float *v, double h)
{
    double l[2];
    for (int s = 0; s < 2; s++) {
        for (int64_t i = 0; i < k->count; i++) k->param[i] = (float)((double)p[i] + (s ? -h : h) * (double)v[i]);
        l[s] = (double)loss_of(b);
    }
    memcpy(k->param, p, sizeof *p * (size_t)k->count);
    return (l[0] - l[1]) / (2 * h);
}

static void check_differences(tn_bound *b, const tn_bucket *k, const float *grad, uint64_t seed)
{
    float *v = test_malloc(sizeof *v * (size_t)k->count), *p = test_malloc(sizeof *p * (size_t)k->count);
    double norm = 0, slope = 0;
    memcpy(p, k->param, sizeof *p * (size_t)k->count);
    for (int64_t i = 0; i < k->count; i++) {
        v[i] = tn_rng_normal((tn_rng){ seed, 3 }, (uint64_t)i);
        norm += (double)v[i] * (double)v[i];
    }
    for (int64_t i = 0; i < k->count; i++) {
        v[i] = (float)((double)v[i] / sqrt(norm));
        slope += (double)v[i] * (double)grad[i];
    }
    const double a = difference(b, k, p, v, 0.02), c = difference(b, k, p, v, 0.01), d = (4 * c - a) / 3;
    if (!(fabs(d - slope) <= 1e-3 + 1e-2 * fabs(slope)))
        fail_msg("seed %llu: slope %.6f, difference %.6f", (unsigned long long)seed, slope, d);
    test_free(v);
    test_free(p);
}

static void check_seed(uint64_t seed)
{
    static const char *const apart[] = { "opt.inplace", NULL }, *const alone[] = { "opt.shared_gradients", NULL },
                             *const sums[] = { "opt.sum_in_norm", NULL };
    static const struct {
        const char *name, *const *off;
        bool recompute;
        int threads;
    } way[] = { { "plain", NULL, false, 1 },      { "apart", apart, false, 1 },
                { "recompute", NULL, true, 1 },   { "recompute, apart", apart, true, 1 },
                { "two threads", NULL, true, 2 }, { "gradients apart", alone, false, 1 },
                { "sums apart", sums, false, 1 } };
    float *first = NULL;
    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        char what[64];
        tn_ref loss;
        tn_world w = tn_world_open(9, way[i].threads);
        maker m = make_graph(seed, way[i].off, way[i].threads, &loss);
        const bool stops = m.stops;
        tn_bound *b = tn_world_add(&w, m.g, &(tn_compile_options){ .loss = loss, .recompute = way[i].recompute });
        const tn_bucket *k = tn_store_bucket(w.store, 0);
        snprintf(what, sizeof what, "seed %llu, %s", (unsigned long long)seed, way[i].name);
        tn_plan_check(w.plan[0], what);
        tn_bound_seed(b, 4, 1);
        assert_true(isfinite(loss_of(b)));
        if (!first) {
            first = test_malloc(sizeof *first * (size_t)k->count);
            memcpy(first, k->grad, sizeof *first * (size_t)k->count);
            if (!stops) check_differences(b, k, first, seed);
        } else if (memcmp(first, k->grad, sizeof *first * (size_t)k->count) != 0) {
            fail_msg("%s: other gradients than the plain plan", what);
        }
        tn_world_close(&w);
    }
    test_free(first);
}

static void random_graphs(void **state)
{
    const uint64_t first = (uint64_t)(uintptr_t)*state;
    for (uint64_t s = first; s < first + SEEDS_PER_TEST; s++) check_seed(s);
}

void tn_tests_random_graph(tn_test_list *l)
{
    for (uintptr_t i = 0; i < TESTS; i++)
        tn_test_add(l, random_graphs, (const void *)(i * SEEDS_PER_TEST), "random_graph %d", (int)i);
}
