/* What the instruments of `ten` say: time constants of parameters set by hand, decays as means over tokens and sizes of states
 * against a recurrence written out in double precision, and nothing of it where nobody asked. */
#include "models/models.h"
#include "train/trainer/histogram.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"
#include "world.h"

#include <math.h>
#include <stdio.h>

enum { B = 2, T = 12, V = 11, K = 6, H = 2, N = 4, D = 8, MOST = 512 };

typedef struct rig {
    tn_settings *settings;
    tn_trainer *trainer;
} rig;

typedef struct said {
    struct {
        char name[64];
        double value;
    } one[MOST];
    int n;
    tn_histograms spreads;
} said;

static void take(void *ctx, const char *name, double value, const char *unit)
{
    said *s = ctx;
    (void)unit;
    assert_true(s->n < MOST);
    snprintf(s->one[s->n].name, sizeof s->one[0].name, "%s", name);
    s->one[s->n++].value = value;
}

static void take_spread(void *ctx, const char *name, double value, const char *unit)
{
    tn_histograms_take(&((said *)ctx)->spreads, name, value, unit);
}

static double value_of(const said *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->one[i].name, name) == 0) return s->one[i].value;
    return NAN;
}

static const tn_histogram *spread_of(const said *s, const char *name)
{
    for (size_t i = 0; i < s->spreads.n; i++)
        if (strcmp(s->spreads.row[i].name, name) == 0) return &s->spreads.row[i];
    fail_msg("nothing was said of %s", name);
    return NULL;
}

static rig open_rig(const char *pattern, const char *more, bool instruments)
{
    const char *const set[] = { pattern,    "layers=1",         "dim=8",     "k=6", "heads=2",
                                "vocab=11", "train.context=12", "threads=1", more };
    rig r = { 0 };
    const tn_model *model;
    assert_ok(tn_settings_resolve("ten", set, sizeof set / sizeof *set, &r.settings, &model));
    assert_ok(tn_trainer_new(
        &(tn_trainer_options){
            .model = model, .settings = r.settings, .batch = B, .length = T, .instruments = instruments },
        &r.trainer));
    for (int i = 0; i < B * T; i++) {
        ((int32_t *)tn_trainer_input(r.trainer, "tokens"))[i] = i * 7 % V;
        ((int32_t *)tn_trainer_input(r.trainer, "labels"))[i] = (i * 7 + 7) % V;
    }
    return r;
}

static void close_rig(rig *r)
{
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

static float *param(rig *r, const char *name)
{
    const tn_entry *e = tn_store_find(tn_trainer_store(r->trainer), name);
    assert_non_null(e);
    return (float *)e->data;
}

static void evaluate(rig *r, said *s)
{
    float loss;
    *s = (said){ 0 };
    assert_ok(tn_trainer_eval(r->trainer, &loss));
    tn_trainer_keep_outputs(r->trainer);
    tn_trainer_instruments(r->trainer, take, take_spread, s);
}

/* Eigenvalues exp(-1/tau) with tau 2, 4, 5, 8, 1000 and 9 in an E layer: each in the octave it belongs to. */
static void by_hand(void **state)
{
    static const double tau[K] = { 2.01, 4.01, 5, 8.01, 1000, 9 };
    static said s;
    (void)state;
    rig r = open_rig("pattern=E", "rho=expexp", true);
    for (int k = 0; k < K; k++) param(&r, "layer0.mixer.nu")[k] = (float)log(1 / tau[k]);
    evaluate(&r, &s);
    const tn_histogram *x = spread_of(&s, "layer0.E.tau"), *all = spread_of(&s, "tau");
    assert_int_equal(x->n, K);
    assert_int_equal(all->n, K);
    for (int k = 0; k < 12; k++)
        assert_int_equal(tn_histogram_octave(x, k), k == 1 ? 1 : k == 2 || k == 3 ? 2 : k == 9);
    assert_true(fabs(x->min - 2.01) < 1e-3 && fabs(x->max - 1000) < 0.1);
    assert_true(fabs(tn_histogram_quantile(x, 0.5) / 5 - 1) < 0.05);
    assert_true(fabs(value_of(&s, "tau_min") - 2.01) < 1e-3 && fabs(value_of(&s, "tau_max") - 1000) < 0.1);
    close_rig(&r);
}

/* --- the D and O layers, written out -------------------------------------------------------------------------------------- */

/* u (T,D): what the mixer of layer 0 sees, from the embedding through its first norm. */
static void mixer_input(rig *r, int row, double *u)
{
    const float *embed = param(r, "embed"), *w = param(r, "layer0.norm1.w");
    for (int t = 0; t < T; t++) {
        const float *x = embed + ((int32_t *)tn_trainer_input(r->trainer, "tokens"))[row * T + t] * D;
        double mean = 0;
        for (int i = 0; i < D; i++) mean += (double)x[i] * (double)x[i] / D;
        for (int i = 0; i < D; i++) u[t * D + i] = (double)x[i] / sqrt(mean + 1e-6) * (double)w[i];
    }
}

static double dot(const float *w, const double *u)
{
    double sum = 0;
    for (int i = 0; i < D; i++) sum += (double)w[i] * u[i];
    return sum;
}

/* (conv4 (w u))_t of one channel c of `width`. */
static double conv(rig *r, const double *u, int t, int c, int width)
{
    const float *w = param(r, "layer0.mixer.conv"), *in = param(r, "layer0.mixer.w_in") + c * D;
    double sum = 0;
    for (int j = 0; j < 4; j++)
        if (t - 3 + j >= 0) sum += (double)w[j * width + c] * dot(in, u + (t - 3 + j) * D);
    return sum;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return log1p(exp(x)); }

static void d_layer(void **state)
{
    static said s;
    (void)state;
    rig r = open_rig("pattern=D", "seed=3", true);
    double u[T * D], decay[K] = { 0 }, square = 0;
    float *bias = param(&r, "layer0.mixer.b_ri");
    for (int k = 0; k < K; k++) bias[k] = (float)(k - 3) * 0.5f; /* gates that differ */
    for (int row = 0; row < B; row++) {
        double re[K] = { 0 }, im[K] = { 0 };
        mixer_input(&r, row, u);
        for (int t = 0; t < T; t++)
            for (int k = 0; k < K; k++) {
                const float *w = param(&r, "layer0.mixer.w_ri");
                const double gate = sigmoid(dot(w + k * D, u + t * D) + (double)bias[k]);
                const double in = sigmoid(dot(w + (K + k) * D, u + t * D) + (double)bias[K + k]);
                const double l = -8 * gate * softplus((double)param(&r, "layer0.mixer.nu")[k]), rho = exp(l);
                const double omega = (double)param(&r, "layer0.mixer.omega")[k],
                             gamma = sqrt(fmax(-expm1(2 * l), 1e-6));
                const double a = re[k], b = im[k];
                re[k] = rho * (cos(omega) * a - sin(omega) * b) + gamma * in * conv(&r, u, t, k, 2 * K);
                im[k] = rho * (sin(omega) * a + cos(omega) * b) + gamma * in * conv(&r, u, t, K + k, 2 * K);
                decay[k] += l / (B * T);
            }
        for (int k = 0; k < K; k++) square += (re[k] * re[k] + im[k] * im[k]) / (B * 2 * K);
    }
    evaluate(&r, &s);
    double least = HUGE_VAL, most = 0;
    for (int k = 0; k < K; k++) {
        least = fmin(least, -1 / decay[k]);
        most = fmax(most, -1 / decay[k]);
    }
    const tn_histogram *x = spread_of(&s, "layer0.D.tau");
    assert_int_equal(x->n, K);
    assert_true(fabs(x->min / least - 1) < 1e-4 && fabs(x->max / most - 1) < 1e-4 && most > 1.5 * least);
    assert_true(fabs(value_of(&s, "layer0.D.state_rms") / sqrt(square) - 1) < 1e-4);
    close_rig(&r);
}

static void o_layer(void **state)
{
    static said s;
    (void)state;
    rig r = open_rig("pattern=O", "seed=4", true);
    const int HN = H * N;
    double u[T * D], decay[H] = { 0 }, square = 0;
    for (int row = 0; row < B; row++) {
        double S[H][N][N] = { { { 0 } } };
        mixer_input(&r, row, u);
        for (int t = 0; t < T; t++)
            for (int h = 0; h < H; h++) {
                const float *w = param(&r, "layer0.mixer.w_ab"), *bias = param(&r, "layer0.mixer.b_ab");
                const double alpha = -softplus(dot(w + h * D, u + t * D) + (double)bias[h]);
                const double beta = sigmoid(dot(w + (H + h) * D, u + t * D) + (double)bias[H + h]);
                decay[h] += alpha / (B * T);
                for (int i = 0; i < N; i++)
                    for (int j = 0; j < N; j++) {
                        const double k = conv(&r, u, t, HN + h * N + i, 3 * HN),
                                     v = conv(&r, u, t, 2 * HN + h * N + j, 3 * HN);
                        S[h][i][j] = exp(alpha) * S[h][i][j] + k * sigmoid(k) * beta * v * sigmoid(v);
                    }
            }
        for (int h = 0; h < H; h++)
            for (int i = 0; i < N; i++)
                for (int j = 0; j < N; j++) square += S[h][i][j] * S[h][i][j] / (B * H * N * N);
    }
    evaluate(&r, &s);
    const tn_histogram *x = spread_of(&s, "layer0.O.tau");
    assert_int_equal(x->n, H);
    assert_true(fabs(x->min * -decay[0] - 1) < 1e-4 && fabs(x->max * -decay[1] - 1) < 1e-4 && decay[1] > decay[0]);
    assert_true(fabs(value_of(&s, "layer0.O.state_rms") / sqrt(square) - 1) < 1e-4);
    close_rig(&r);
}

/* --- when it is said ------------------------------------------------------------------------------------------------------ */

static void when(void **state)
{
    static said s;
    float loss, plain;
    (void)state;
    rig r = open_rig("pattern=DO", "layers=2", true), without = open_rig("pattern=DO", "layers=2", false);
    tn_trainer_instruments(r.trainer, take, take_spread, &s);
    assert_true(s.n == 2 && s.spreads.n == 0); /* parameters alone */
    evaluate(&r, &s);
    assert_true(s.n == 4 && spread_of(&s, "tau")->n == K + H);
    assert_true(value_of(&s, "layer1.O.state_rms") > 0);
    assert_ok(tn_trainer_grad(r.trainer, 0, &loss));
    s = (said){ 0 };
    tn_trainer_instruments(r.trainer, take, take_spread, &s);
    assert_true(s.n == 2 && s.spreads.n == 0); /* what was seen is no more */
    evaluate(&without, &s);
    assert_true(s.n == 2 && s.spreads.n == 0);
    assert_ok(tn_trainer_eval(r.trainer, &loss));
    assert_ok(tn_trainer_eval(without.trainer, &plain));
    assert_true(loss == plain); /* looking changes nothing, and costs training nothing */
    assert_int_equal(tn_plan_steps(tn_trainer_plan(r.trainer, true)),
                     tn_plan_steps(tn_trainer_plan(without.trainer, true)));
    assert_true(tn_plan_steps(tn_trainer_plan(r.trainer, false)) >
                tn_plan_steps(tn_trainer_plan(without.trainer, false)));
    close_rig(&r);
    close_rig(&without);
}

/* Every kind of eigenvalue, and scales: one number for each state, all positive. */
static void kinds(void **state)
{
    static said s;
    static const struct {
        const char *pattern, *more, *name;
        int n;
    } rows[] = {
        { "pattern=E", "select=bounded", "layer0.E.tau", K },  { "pattern=E", "select=rg", "layer0.E.tau", K },
        { "pattern=E", "rho=sigmoid", "layer0.E.tau", K },     { "pattern=E", "n_cells=2", "layer0.E.tau", 2 * K },
        { "pattern=D", "hten=1,3", "layer0.scale3.D.tau", K },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rig r = open_rig(rows[i].pattern, rows[i].more, true);
        evaluate(&r, &s);
        const tn_histogram *x = spread_of(&s, rows[i].name);
        assert_true(x->n == rows[i].n && x->min > 0 && isfinite(x->max));
        close_rig(&r);
    }
}

static void quantiles(void **state)
{
    static tn_histograms s;
    (void)state;
    tn_histograms_clear(&s);
    for (int i = 1; i <= 1000; i++) tn_histograms_take(&s, i % 2 ? "a.x" : "b.x", i, "");
    assert_int_equal(s.n, 3);
    const tn_histogram *all = &s.row[0];
    assert_string_equal(all->name, "x");
    assert_true(all->n == 1000 && all->min == 1 && all->max == 1000);
    assert_true(fabs(tn_histogram_quantile(all, 0.5) / 500 - 1) < 0.05 &&
                fabs(tn_histogram_quantile(all, 0.1) / 100 - 1) < 0.05);
    assert_true(tn_histogram_octave(all, 3) == 8 && tn_histogram_octave(all, 9) == 1000 - 511 &&
                tn_histogram_octave(all, 10) == 0);
    assert_int_equal(tn_histogram_octave(&s.row[1], 3), 4);
    tn_histogram few = { .name = "few" };
    assert_true(isnan(tn_histogram_quantile(&few, 0.5)));
    const double odd[] = { 0, INFINITY, NAN, 1e-30 };
    for (int i = 0; i < 4; i++) tn_histogram_add(&few, odd[i]);
    assert_true(few.n == 3 && few.bin[0] == 2 && few.bin[TN_HISTOGRAM_BINS - 1] == 1);
    for (int i = 0; i < 2 * TN_HISTOGRAM_NAMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d.y", i);
        tn_histograms_take(&s, name, 1, "");
    }
    assert_int_equal(s.n, TN_HISTOGRAM_NAMES);
}

void tn_tests_ten_instruments(tn_test_list *l)
{
    tn_test_add(l, by_hand, NULL, "ten: time constants set by hand");
    tn_test_add(l, d_layer, NULL, "ten: decay and state of a D layer, written out");
    tn_test_add(l, o_layer, NULL, "ten: decay and state of an O layer, written out");
    tn_test_add(l, when, NULL, "ten: instruments of an evaluation, until the next step");
    tn_test_add(l, kinds, NULL, "ten: instruments of every kind of eigenvalue");
    tn_test_add(l, quantiles, NULL, "spread: bins, quantiles, names");
}
