/* Networks of `tep` as a whole: sizes, padding and order of samples, memory, several labels, weights and values, loss scaling,
 * the cache, what keeps maps contracting, what is refused. Their gradients: tests/families/tep_gradients_test.c. */
#include "tep_world.h"

/* --- sizes ---------------------------------------------------------------------------------------------------------- */

static int64_t parameters_of(const char *target, const tep_shape *z, const char *const *more)
{
    tn_settings *st;
    const tn_model *model;
    char sizes[2][32];
    const char *list[8] = { sizes[0], sizes[1] };
    size_t n = 2;
    int64_t count = 0;
    snprintf(sizes[0], sizeof sizes[0], "inputs=%d", (int)z->F);
    snprintf(sizes[1], sizeof sizes[1], "classes=%d", (int)z->C);
    for (int i = 0; more && more[i]; i++) list[n++] = more[i];
    assert_ok(tn_settings_resolve(target, list, n, &st, &model));
    tn_graph *g = tn_world_graph(NULL);
    const tn_batch b = tep_batch(g, z);
    assert_ok(model->build(g, st, &b));
    for (size_t i = 1; i < g->n_tensors; i++)
        if (g->tensor[i].role == TN_ROLE_PARAM && g->tensor[i].base == (int32_t)i)
            count += tn_dims_count(g->tensor[i].dims);
    tn_graph_free(g);
    tn_settings_free(st);
    return count;
}

/* 12 d^2 + (I+C+16) d + C with the parameters that do nothing: counts that were published for these widths on the digits. */
static void faithful_sizes(void **state)
{
    static const struct {
        const char *dim;
        int64_t parameters;
    } rows[] = { { "dim=13", 3208 }, { "dim=110", 155110 }, { "dim=14", 3622 },    { "dim=54", 39862 },
                 { "dim=8", 1498 },  { "dim=21", 7192 },    { "dim=434", 2299342 } };
    const tep_shape z = { .B = 2, .S = 1, .F = 64, .C = 10, .L = 1 };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(parameters_of("tep", &z, TEP_LIST(rows[i].dim, "variant=faithful", "grad=ep")),
                         rows[i].parameters);
        const int64_t d = strtol(rows[i].dim + 4, NULL, 10), dead = 2 * d * d + 4 * d;
        assert_int_equal(parameters_of("tep", &z, TEP_LIST(rows[i].dim)), rows[i].parameters - dead);
    }
}

static void preset_sizes(void **state)
{
    static const struct {
        const char *name;
        int64_t F, C, parameters;
    } rows[] = { { "digits_tep", 64, 10, 2818 },   { "digits_tep_faithful", 64, 10, 3208 },
                 { "digits_bptt", 64, 10, 2818 },  { "energy_tep", 64, 10, 6634 },
                 { "mnist_tep", 784, 10, 452746 }, { "cartpole_tep", 4, 2, 4483 },
                 { "xor_tep", 2, 2, 770 } };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tep_shape z = { .B = 2, .S = 1, .F = rows[i].F, .C = rows[i].C, .L = 1 };
        const int64_t n = parameters_of(rows[i].name, &z, NULL);
        if (n != rows[i].parameters)
            fail_msg("%s has %lld parameters, not %lld", rows[i].name, (long long)n, (long long)rows[i].parameters);
    }
}

/* --- samples are solved one by one ---------------------------------------------------------------------------------- */

enum { B = 6, F = 5, C = 3, D = 12 };

typedef struct variation {
    const char *more[10];
    int64_t S, L;
} variation;

static const variation variations[] = {
    { { "dim=12", "grad=ep" }, 1, 1 },
    { { "dim=12", "grad=ep_centred" }, 1, 1 },
    { { "dim=12", "grad=implicit" }, 1, 1 },
    { { "dim=12", "grad=one_step" }, 1, 1 },
    { { "dim=12", "grad=bptt" }, 1, 1 },
    { { "dim=12", "variant=faithful", "grad=ep" }, 1, 1 },
    { { "dim=12", "mode=energy", "grad=ep_centred", "anchor=rest", "nudge_rtol=0.1" }, 1, 1 },
    { { "dim=12", "mode=energy", "grad=implicit" }, 1, 1 },
    { { "dim=12", "mode=toroidal" }, 1, 1 },
    { { "dim=12", "mode=toroidal", "grad=bptt" }, 1, 1 },
    { { "dim=12", "mode=hopfield", "nudge_rtol=0.1" }, 1, 1 },
    { { "dim=12", "mode=hopfield", "grad=implicit" }, 1, 1 },
    { { "dim=12" }, 4, 1 },
    { { "dim=12", "attention=softmax", "rtol=1e-3", "iterations=60" }, 4, 4 },
    { { "dim=12", "attention=linear", "grad=implicit" }, 4, 4 },
};

static tep_shape shape_of(const variation *v) { return (tep_shape){ .B = B, .S = v->S, .F = F, .C = C, .L = v->L }; }

static void swap_rows(char *x, size_t bytes, int i, int k)
{
    for (size_t j = 0; j < bytes; j++) {
        const char c = x[(size_t)i * bytes + j];
        x[(size_t)i * bytes + j] = x[(size_t)k * bytes + j];
        x[(size_t)k * bytes + j] = c;
    }
}

/* The state of a sample does not know the others: exchanged samples exchange their bits. (One stop for all samples, which
 * bptt and faithful have, is the same for all orders.) */
static void order_is_nothing(void **state)
{
    const variation *v = *state;
    const tep_shape z = shape_of(v);
    tn_world w = tn_world_open(3, 1);
    tn_bound *b = tep_add(&w, &z, v->more);
    static float before[B * 4 * D * 4];
    const tn_graph *g = tn_plan_graph(tn_bound_plan(b));
    const int64_t width = tn_dims_count(tn_ref_dims(g, tn_graph_output(g, "state"))) / B;
    assert_true(B * width <= (int64_t)(sizeof before / sizeof *before));
    tep_run(&w, b);
    memcpy(before, tn_world_data(b, "state"), sizeof *before * (size_t)(B * width));
    for (int i = 0; i < B / 2; i++) {
        swap_rows(tn_world_data(b, "features"), sizeof(float) * (size_t)(z.S * F), i, B - 1 - i);
        swap_rows(tn_world_data(b, "labels"), sizeof(int32_t) * (size_t)z.L, i, B - 1 - i);
    }
    tep_run(&w, b);
    const float *after = tn_world_data(b, "state");
    for (int i = 0; i < B; i++)
        assert_memory_equal(before + i * width, after + (B - 1 - i) * width, sizeof *after * (size_t)width);
    assert_memory_not_equal(before, before + width, sizeof *before * (size_t)width);
    tn_world_close(&w);
}

enum { MOST = 4096 };

/* Padding behind the valid rows changes no gradient: a batch of 4 in room for 6 is a batch of 4. */
static void padding_is_nothing(void **state)
{
    const variation *v = *state;
    tep_shape z = shape_of(v), four = z;
    tn_world w = tn_world_open(3, 1);
    static double padded[MOST], exact[MOST];
    z.count = four.count = true;
    four.B = 4;
    tn_bound *b = tep_add(&w, &z, v->more), *small = tep_add(&w, &four, v->more);
    *(int32_t *)tn_world_data(b, "count") = 4;
    for (int64_t i = 4 * z.L; i < B * z.L; i++) ((int32_t *)tn_world_data(b, "labels"))[i] = -1;
    for (int64_t i = 4 * z.S * F; i < B * z.S * F; i++) ((float *)tn_world_data(b, "features"))[i] = 0;
    const int64_t n = tep_gradients(&w, b, "", padded, MOST);
    const float loss = *(float *)tn_world_data(b, "loss");
    assert_int_equal(((int32_t *)tn_world_data(b, "steps"))[4], 0);
    tep_gradients(&w, small, "", exact, MOST);
    assert_float_equal(loss, *(float *)tn_world_data(small, "loss"), 1e-6);
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(exact[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(padded[i] - exact[i]) <= 2e-5 * most))
            fail_msg("gradient %d: %g padded, %g alone", (int)i, padded[i], exact[i]);
    tn_world_close(&w);
}

static void threads_change_no_bit(void **state)
{
    const variation *v = *state;
    const tep_shape z = shape_of(v);
    static double grad[2][MOST];
    int64_t n = 0;
    for (int k = 0; k < 2; k++) {
        tn_world w = tn_world_open(3, 1 + k);
        n = tep_gradients(&w, tep_add(&w, &z, v->more), "", grad[k], MOST);
        tn_world_close(&w);
    }
    assert_memory_equal(grad[0], grad[1], sizeof **grad * (size_t)n);
}

/* The fused solve against the general one. */
static void fused_and_not(void **state)
{
    const variation *v = *state;
    static double grad[2][MOST];
    int64_t n = 0;
    tn_world w = tn_world_open(3, 1);
    for (int k = 0; k < 2; k++) {
        tep_shape z = shape_of(v);
        z.off = k ? "opt.relax" : NULL;
        n = tep_gradients(&w, tep_add(&w, &z, v->more), "", grad[k], MOST);
    }
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(grad[1][i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(grad[0][i] - grad[1][i]) <= 1e-4 * most))
            fail_msg("gradient %d: %g fused, %g not", (int)i, grad[0][i], grad[1][i]);
    tn_world_close(&w);
}

/* Memory of a step does not depend on the number of iterations, but for back-propagation through them. */
static void memory_and_iterations(void **state)
{
    const variation *v = *state;
    const tep_shape z = shape_of(v);
    const char *more[12] = { "iterations=200" };
    size_t arena[2];
    bool grows = false;
    for (int i = 0; v->more[i]; i++) {
        more[i + 1] = v->more[i];
        grows |= strcmp(v->more[i], "grad=bptt") == 0;
    }
    for (int k = 0; k < 2; k++) {
        tn_world w = tn_world_open(3, 1);
        more[0] = k ? "iterations=1000" : "iterations=200";
        tep_add(&w, &z, more);
        arena[k] = tn_plan_memory(w.plan[0]).arena;
        tn_world_close(&w);
    }
    if (grows) assert_true(arena[1] - arena[0] >= 799 * B * D * sizeof(float));
    else assert_int_equal(arena[0], arena[1]);
}

/* --- learning --------------------------------------------------------------------------------------------------------- */

static void learns_a_batch(void **state)
{
    const variation *v = *state;
    const tep_shape z = shape_of(v);
    tn_world w = tn_world_open(3, 1);
    tn_bound *b = tep_add(&w, &z, v->more);
    assert_ok(tn_run(b));
    const float first = *(float *)tn_world_data(b, "loss"), last = tep_train(&w, b, 0.01, 200);
    if (!(last < 0.5f * first)) fail_msg("loss %g after 200 steps, %g before", (double)last, (double)first);
    tn_world_close(&w);
}

/* --- the cost ---------------------------------------------------------------------------------------------------------- */

/* Twice the loss scale, twice the gradient, with gradients that never see the loss as with those that do. */
static void loss_scale_reaches_all(void **state)
{
    const variation *v = *state;
    const tep_shape z = shape_of(v);
    tn_world w = tn_world_open(3, 1);
    static double one[MOST], two[MOST];
    tn_bound *b = tep_add(&w, &z, v->more);
    const int64_t n = tep_gradients(&w, b, "", one, MOST);
    assert_ok(tn_bound_set(b, "loss_scale", 2.f));
    tep_gradients(&w, b, "", two, MOST);
    assert_true(tep_dot(one, one, n) > 0);
    for (int64_t i = 0; i < n; i++) assert_true(fabs(two[i] - 2 * one[i]) <= 1e-6 * fabs(one[i]) + 1e-12);
    tn_world_close(&w);
}

/* Labels that do not count leave the mean over those that do, in the gradient of the nudge too. */
static void labels_that_count(void **state)
{
    const tep_shape z = { .B = B, .S = 4, .F = F, .C = C, .L = 4 };
    const char *const kinds[] = { "grad=implicit", "grad=ep_centred" };
    static double grad[2][MOST];
    int64_t n = 0;
    tn_world w = tn_world_open(3, 1);
    (void)state;
    for (int k = 0; k < 2; k++) {
        tn_bound *b = tep_add(&w, &z, TEP_LIST("dim=12", "rtol=1e-5", "iterations=500", "beta=0.01", kinds[k]));
        for (int i = 0; i < B * 4; i++)
            if (i % 4 == 1) ((int32_t *)tn_world_data(b, "labels"))[i] = -1; /* 18 labels, 6 samples */
        if (!k) tep_train(&w, b, 0.01, 40);                                  /* it contracts then */
        n = tep_gradients(&w, b, "ffn", grad[k], MOST);
    }
    const double size = sqrt(tep_dot(grad[1], grad[1], n) / tep_dot(grad[0], grad[0], n));
    if (!(size > 0.7 && size < 1.4 && tep_cosine(grad[0], grad[1], n) > 0.7))
        fail_msg("ep is %g times the exact gradient, cosine %g", size, tep_cosine(grad[0], grad[1], n));
    tn_world_close(&w);
}

/* sum_b (w_b CE_b + (V_b - G_b)^2 / 2) / count, from the logits and values of an evaluation. */
static void weights_and_values(void **state)
{
    tep_shape z = {
        .B = B, .S = 1, .F = F, .C = C, .L = 1, .count = true, .weights = true, .targets = true, .logits = true
    };
    static double grad[2][MOST];
    double expect = 0;
    int64_t n = 0;
    tn_world w = tn_world_open(3, 1);
    (void)state;
    for (int k = 0; k < 2; k++) {
        tn_bound *b = tep_add(&w, &z,
                              TEP_LIST("dim=12", "mode=energy", "value=true", "rtol=1e-6", "iterations=200",
                                       "beta=0.01", k ? "grad=ep_centred" : "grad=implicit"));
        *(int32_t *)tn_world_data(b, "count") = B - 1;
        ((int32_t *)tn_world_data(b, "labels"))[B - 1] = -1;
        n = tep_gradients(&w, b, "", grad[k], MOST);
        const float *logits = tn_world_data(b, "logits"), *value = tn_world_data(b, "value");
        const float *weight = tn_world_data(b, "weights"), *target = tn_world_data(b, "targets");
        const int32_t *label = tn_world_data(b, "labels");
        expect = 0;
        for (int i = 0; i < B - 1; i++) {
            double sum = 0;
            for (int c = 0; c < C; c++) sum += exp((double)logits[i * C + c]);
            expect += (double)weight[i] * (log(sum) - (double)logits[i * C + label[i]]);
            expect += 0.5 * pow((double)value[i] - (double)target[i], 2);
        }
        assert_float_equal(*(float *)tn_world_data(b, "loss"), expect / (B - 1), 1e-5);
    }
    assert_true(tep_cosine(grad[0], grad[1], n) > 0.9999);
    assert_true(fabs(sqrt(tep_dot(grad[1], grad[1], n) / tep_dot(grad[0], grad[0], n)) - 1) < 0.01);
    tn_world_close(&w);
}

/* The same first weights, those of the head smaller by the factor. */
static void scaled_head(void **state)
{
    const tep_shape z = { .B = B, .S = 1, .F = F, .C = C, .L = 1 };
    float first[2][C * D] = { { 0 } };
    (void)state;
    for (int k = 0; k < 2; k++) {
        tn_world w = tn_world_open(3, 1);
        tep_add(&w, &z, TEP_LIST("dim=12", "mode=energy", k ? "head_scale=0.25" : "head_scale=1"));
        const tn_entry *e = tn_store_find(w.store, "head.w");
        assert_non_null(e);
        assert_int_equal(tn_dims_count(e->dims), C * D);
        memcpy(first[k], e->data, sizeof first[k]);
        tn_world_close(&w);
    }
    for (int i = 0; i < C * D; i++) {
        assert_true(first[0][i] != 0);
        assert_float_equal(first[1][i], 0.25f * first[0][i], 1e-6);
    }
}

/* --- the cache ----------------------------------------------------------------------------------------------------------- */

/* The second visit of the same samples starts where the first one ended; others start at zero. */
static void cache_of_equilibria(void **state)
{
    tep_shape z = { .B = B, .S = 1, .F = F, .C = C, .L = 1, .count = true, .sample = true, .samples = 20 };
    tn_world w = tn_world_open(3, 1);
    tn_bound *b = tep_add(&w, &z, TEP_LIST("dim=12", "mode=energy", "cache=true", "rtol=1e-5", "iterations=200"));
    int32_t *sample = tn_world_data(b, "sample");
    static float h[B * D];
    (void)state;
    for (int i = 0; i < B; i++) sample[i] = (7 * i + 2) % 20;
    *(int32_t *)tn_world_data(b, "count") = B - 1;
    sample[B - 1] = 0;
    tep_run(&w, b);
    const int32_t cold = *(int32_t *)tn_world_data(b, "steps");
    memcpy(h, tn_world_data(b, "state"), sizeof h);
    const tn_entry *e = tn_world_entry(&w, "solve.equilibria");
    for (int i = 0; i < B - 1; i++) assert_memory_equal((float *)e->data + sample[i] * D, h + i * D, sizeof *h * D);
    for (int i = 0; i < D; i++) assert_true(((float *)e->data)[i] == 0); /* padding says sample 0 */
    tep_run(&w, b);
    assert_true(cold > 5);
    assert_in_range(*(int32_t *)tn_world_data(b, "steps"), 1, 2);
    assert_true(tn_world_distance(tn_world_data(b, "state"), h, (B - 1) * D) < 1e-4);
    sample[0] = 19;
    tep_run(&w, b);
    assert_int_equal(*(int32_t *)tn_world_data(b, "steps"), cold);
    tn_world_close(&w);
}

/* --- contraction ----------------------------------------------------------------------------------------------------------- */

/* u = w v (n) and v = w^T u (k), w (n,k); returns |v| / |u|. */
static double power_step(const float *w, int64_t n, int64_t k, double *v)
{
    double u[256], before = 0, after = 0;
    assert_true(n <= 256 && k <= 64);
    for (int64_t i = 0; i < n; i++) {
        u[i] = 0;
        for (int64_t j = 0; j < k; j++) u[i] += (double)w[i * k + j] * v[j];
        before += u[i] * u[i];
    }
    for (int64_t j = 0; j < k; j++) {
        v[j] = 0;
        for (int64_t i = 0; i < n; i++) v[j] += (double)w[i * k + j] * u[i];
        after += v[j] * v[j];
    }
    for (int64_t j = 0; j < k; j++) v[j] /= sqrt(after);
    return sqrt(after / before);
}

/* The largest singular value of w: by many iterations, and as a step sees it from the direction that the last one left. */
static double sigma_of(const tn_entry *w)
{
    double v[64], size = 0;
    for (int64_t j = 0; j < 64; j++) v[j] = 1 + 0.1 * (double)j;
    for (int t = 0; t < 300; t++) size = power_step(w->data, w->dims.dim[0], w->dims.dim[1], v);
    return size;
}

static double sigma_seen(const tn_entry *w, const tn_entry *direction)
{
    double v[64], size = 0;
    for (int64_t j = 0; j < w->dims.dim[1]; j++) v[j] = (double)((float *)direction->data)[j] + 1e-3;
    for (int t = 0; t < 8; t++) size = power_step(w->data, w->dims.dim[0], w->dims.dim[1], v);
    return size;
}

static void energy_stays_contracting(void **state)
{
    const tep_shape z = { .B = B, .S = 1, .F = F, .C = C, .L = 1 };
    tn_world w = tn_world_open(3, 1);
    tn_bound *b = tep_add(&w, &z, TEP_LIST("dim=32", "mode=energy", "grad=ep_centred"));
    const tn_entry *e = tn_world_entry(&w, "energy.w1"), *v = tn_world_entry(&w, "energy.direction");
    double *moments = calloc(2 * 65536, sizeof *moments);
    (void)state;
    assert_non_null(moments);
    for (int i = 1; i <= 60; i++) {
        const double slope = 0.7 * pow(sigma_of(e) / sigma_seen(e, v), 2);
        if (!(slope < 0.9)) fail_msg("step %d: the slope may reach %g", i, slope);
        if (i > 10 && !(fabs(slope - 0.7) < 0.02)) fail_msg("step %d: the slope may reach %g, not kappa", i, slope);
        tn_store_zero_grad(w.store);
        assert_ok(tn_run(b));
        tep_adam(&w, 0.02, i, moments, 65536);
    }
    free(moments);
    tn_world_close(&w);
}

/* |Wh| + |g| (fade + fade^2 + fade^3) of the map as it is run, while training pulls at both. */
static void torus_stays_contracting(void **state)
{
    const tep_shape z = { .B = B, .S = 1, .F = F, .C = C, .L = 1 };
    tn_world w = tn_world_open(3, 1);
    tn_bound *b = tep_add(&w, &z, TEP_LIST("dim=32", "mode=toroidal", "grad=implicit"));
    const tn_entry *e = tn_world_entry(&w, "torus.wh"), *g = tn_world_entry(&w, "torus.buffer");
    const tn_entry *v = tn_world_entry(&w, "torus.direction");
    double *moments = calloc(2 * 65536, sizeof *moments), largest = 0;
    (void)state;
    assert_non_null(moments);
    assert_float_equal(sigma_of(e), 0.9, 1e-5);
    for (int i = 1; i <= 60; i++) {
        const double reach = 2.439 * fabs((double)*(float *)g->data), sigma = sigma_of(e);
        const double factor = fmin(1, 0.95 / (sigma_seen(e, v) + reach));
        largest = fmax(largest, sigma + reach);
        if (!(factor * (sigma + reach) < 1)) fail_msg("step %d: the slope may reach %g", i, factor * (sigma + reach));
        tn_store_zero_grad(w.store);
        assert_ok(tn_run(b));
        tep_adam(&w, 0.02, i, moments, 65536);
    }
    assert_true(largest > 1.2); /* there was something to hold down */
    free(moments);
    tn_world_close(&w);
}

/* Of the energy map near its linear regime J is symmetric with |J v| <= slope |v|; and a network trained under the penalty takes
 * fewer steps than one without. */
static void slope_has_a_price(void **state)
{
    const tep_shape z = { .B = B, .S = 1, .F = F, .C = C, .L = 1, .count = true };
    float extra[2];
    double steps[2] = { 0 };
    (void)state;
    for (int k = 0; k < 2; k++) {
        tn_world w = tn_world_open(3, 1);
        tn_bound *b = tep_add(&w, &z, TEP_LIST("dim=12", "mode=energy", "jacobian=1", k ? "kappa=0.7" : "kappa=0.35"));
        *(int32_t *)tn_world_data(b, "count") = B - 1;
        ((int32_t *)tn_world_data(b, "labels"))[B - 1] = -1;
        tn_bound_seed(b, 1, 5);
        tep_run(&w, b);
        extra[k] = *(float *)tn_world_data(b, "extra");
        assert_float_equal(*(float *)tn_world_data(b, "loss"), *(float *)tn_world_data(b, "xent") + extra[k], 1e-6);
        tn_world_close(&w);
    }
    assert_true(extra[0] > 0 && extra[1] < 0.7f * 0.7f * 1.1f);
    assert_true(extra[1] > 2 * extra[0] && extra[1] < 5 * extra[0]); /* as kappa^2, but for the tanh */
    for (int k = 0; k < 2; k++) {
        tn_world w = tn_world_open(3, 1);
        tn_bound *b =
            tep_add(&w, &z, TEP_LIST("dim=12", "rtol=1e-4", "iterations=200", k ? "jacobian=1" : "jacobian=0"));
        tep_train(&w, b, 0.005, 30);
        for (int i = 0; i < B; i++) steps[k] += ((int32_t *)tn_world_data(b, "steps"))[i];
        tn_world_close(&w);
    }
    if (!(steps[1] < 0.8 * steps[0])) fail_msg("%g steps with the penalty, %g without", steps[1], steps[0]);
}

/* --- errors ----------------------------------------------------------------------------------------------------------------- */

static void bad_settings(void **state)
{
    static const struct {
        const char *more[4], *says;
        int64_t S, L;
        bool weights;
    } rows[] = {
        { { "mode=energy", "variant=faithful" }, "variant=faithful needs mode=block", 1, 1, false },
        { { "mode=energy" }, "several tokens (here 4) need mode=block", 4, 1, false },
        { { "variant=faithful", "grad=implicit" }, "grad=ep (its proxy) and grad=bptt", 1, 1, false },
        { { "dim=10", "heads=4" }, "heads=4 must divide dim=10", 1, 1, false },
        { { "solver=anderson", "grad=bptt" }, "use solver=picard", 1, 1, false },
        { { "inputs=7" }, "1 tokens of 5 numbers, the settings say tokens=1 inputs=7", 1, 1, false },
        { { "classes=auto" }, "give task=NAME or classes=N", 1, 1, false },
        { { "dim=8" }, "1 label or one for each token, not 3", 4, 3, false },
        { { "dim=8" }, "use value=false", 4, 4, true },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tep_shape z = { .B = 2, .S = rows[i].S, .F = F, .C = C, .L = rows[i].L, .weights = rows[i].weights };
        const tn_model *model;
        tn_settings *st = tep_settings(&z, rows[i].more, &model);
        tn_graph *g = tn_world_graph(NULL);
        tn_batch b = tep_batch(g, &z);
        assert_fails(model->build(g, st, &b), TN_USAGE, rows[i].says);
        tn_batch_add(&b, "features", TN_NONE);
        assert_fails(model->build(g, st, &b), TN_USAGE, "give task=NAME");
        tn_graph_free(g);
        tn_settings_free(st);
    }
}

void tn_tests_tep(tn_test_list *l)
{
    tn_test_add(l, faithful_sizes, NULL, "tep: sizes are the published ones");
    tn_test_add(l, preset_sizes, NULL, "tep: presets have their sizes");
    for (size_t i = 0; i < sizeof variations / sizeof *variations; i++) {
        const variation *v = &variations[i];
        const char *second = v->more[1] ? v->more[1] : "", *third = v->more[1] && v->more[2] ? v->more[2] : "";
        tn_test_add(l, order_is_nothing, v, "tep: the order of samples is nothing, %s %s S=%d", second, third,
                    (int)v->S);
        tn_test_add(l, padding_is_nothing, v, "tep: padding is nothing, %s %s S=%d", second, third, (int)v->S);
        tn_test_add(l, threads_change_no_bit, v, "tep: threads change no bit, %s %s S=%d", second, third, (int)v->S);
        tn_test_add(l, fused_and_not, v, "tep: the fused solve is the general one, %s %s S=%d", second, third,
                    (int)v->S);
        tn_test_add(l, memory_and_iterations, v, "tep: memory and iterations, %s %s S=%d", second, third, (int)v->S);
        tn_test_add(l, learns_a_batch, v, "tep: learns a batch, %s %s S=%d", second, third, (int)v->S);
        tn_test_add(l, loss_scale_reaches_all, v, "tep: the loss scale reaches all, %s %s S=%d", second, third,
                    (int)v->S);
    }
    tn_test_add(l, labels_that_count, NULL, "tep: labels that count make the mean");
    tn_test_add(l, weights_and_values, NULL, "tep: weights and values");
    tn_test_add(l, scaled_head, NULL, "tep: a head that starts near zero");
    tn_test_add(l, cache_of_equilibria, NULL, "tep: the cache of equilibria");
    tn_test_add(l, energy_stays_contracting, NULL, "tep: the energy map stays contracting");
    tn_test_add(l, torus_stays_contracting, NULL, "tep: the toroidal map stays contracting");
    tn_test_add(l, slope_has_a_price, NULL, "tep: the slope of the map has a price");
    tn_test_add(l, bad_settings, NULL, "tep: bad settings are refused with a reason");
}
