/* What the default network starts from and which group of the optimizer each parameter is in: the distributions with which it
 * was chosen, tensor by tensor, and that none was forgotten. */
#include "models/models.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"
#include "world.h"

#include <math.h>

/* A tensor's numbers are uniform, normal, one value, or what `expect` says of each. */
typedef struct rule {
    const char *end; /* of the name */
    enum { NORMAL, UNIFORM, CONSTANT, EACH } kind;
    double a, b;                            /* deviation; bounds; value */
    double (*expect)(int64_t i, int64_t n); /* EACH: what number i is */
    double (*image)(double x, int64_t i,
                    int64_t n); /* UNIFORM: of what must be uniform, NULL: of the numbers themselves */
    bool decay;
    float lr;
} rule;

/* Decays with time constants log-spaced from 4 to 1024, then write strengths of a half. */
static double decay_bias(int64_t i, int64_t n)
{
    const double tau = 4 * pow(256, (double)i / ((double)n / 2 - 1));
    return i < n / 2 ? log(expm1(1 / tau)) : 0;
}

/* |lambda|^2 at a gate of 1. */
static double squared_modulus(double x, int64_t i, int64_t n)
{
    (void)i, (void)n;
    return exp(-16 * log1p(exp(x)));
}

/* Phases: the first half reaches pi/10, the second pi. */
static double phase_part(double x, int64_t i, int64_t n) { return i < n / 2 ? 10 * x : x; }

#define PI 3.14159265358979323846
#define OUT_STD (0.02 / 2.8284271247461903) /* sqrt(2 layers), of 4 layers */

static const rule *rule_of(const char *name)
{
    static const rule rules[] = {
        { "embed", NORMAL, 0.02, 0, NULL, NULL, true, 1 },
        { "norm1.w", CONSTANT, 1, 0, NULL, NULL, false, 1 },
        { "norm2.w", CONSTANT, 1, 0, NULL, NULL, false, 1 },
        { "norm_f.w", CONSTANT, 1, 0, NULL, NULL, false, 1 },
        { "ffn.w1", NORMAL, 0.02, 0, NULL, NULL, true, 1 },
        { "ffn.w2", NORMAL, OUT_STD, 0, NULL, NULL, true, 1 },
        { "mixer.w_out", NORMAL, OUT_STD, 0, NULL, NULL, true, 1 },
        { "mixer.w_in", NORMAL, 0.02, 0, NULL, NULL, true, 1 },
        { "mixer.w_ri", NORMAL, 0.02, 0, NULL, NULL, true, 1 },
        { "mixer.w_ab", NORMAL, 0.02, 0, NULL, NULL, true, 1 },
        { "mixer.b_ri", CONSTANT, 0, 0, NULL, NULL, false, 1 },
        { "mixer.b_ab", EACH, 0, 0, decay_bias, NULL, false, 1 },
        { "mixer.conv", UNIFORM, -0.5, 0.5, NULL, NULL, false, 1 },
        { "mixer.skip", CONSTANT, 1, 0, NULL, NULL, false, 1 },
        { "mixer.gain", CONSTANT, 1, 0, NULL, NULL, false, 1 },
        { "mixer.nu", UNIFORM, 0.9 * 0.9, 0.999 * 0.999, NULL, squared_modulus, false, 0.3f },
        { "mixer.omega", UNIFORM, 0, PI, NULL, phase_part, false, 0.3f },
    };
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const size_t m = strlen(rules[i].end);
        if (n >= m && strcmp(name + n - m, rules[i].end) == 0) return &rules[i];
    }
    fail_msg("%s: a parameter that no rule speaks of", name);
    return NULL;
}

/* Mean and variance within five deviations of their own, bounds kept. */
static void look_at_numbers(const rule *r, const tn_entry *e)
{
    const int64_t n = tn_dims_count(e->dims);
    const float *x = e->data;
    const bool normal = r->kind == NORMAL;
    const double mean = normal ? 0 : (r->a + r->b) / 2,
                 variance = normal ? r->a * r->a : (r->b - r->a) * (r->b - r->a) / 12;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = r->image ? r->image((double)x[i], i, n) : (double)x[i];
        if (r->kind == CONSTANT || r->kind == EACH) {
            const double want = r->kind == EACH ? r->expect(i, n) : r->a;
            if (fabs(v - want) > 1e-6 * (1 + fabs(want)))
                fail_msg("%s[%d] is %.9g instead of %.9g", e->name, (int)i, v, want);
            continue;
        }
        if (!normal && !(v >= r->a - 1e-6 && v <= r->b + 1e-6))
            fail_msg("%s[%d] gives %g, outside its bounds", e->name, (int)i, v);
        sum += v - mean;
        squares += (v - mean) * (v - mean);
    }
    if (r->kind == CONSTANT || r->kind == EACH) return;
    const double spread = normal ? sqrt(2.0 / (double)n) : sqrt(0.8 / (double)n); /* of the variance, relative */
    if (!(fabs(sum / (double)n) < 5 * sqrt(variance / (double)n)))
        fail_msg("%s: mean %g off", e->name, sum / (double)n);
    if (!(fabs(squares / (double)n / variance - 1) < 5 * spread))
        fail_msg("%s: variance %g instead of %g", e->name, squares / (double)n, variance);
}

static tn_trainer *open_net(const char *const *set, size_t n, tn_settings **st)
{
    const tn_model *model;
    tn_trainer *t;
    assert_ok(tn_settings_resolve("ten", set, n, st, &model));
    assert_ok(
        tn_trainer_new(&(tn_trainer_options){ .model = model, .settings = *st, .batch = 1, .length = 8, .threads = 1 },
                       &t));
    return t;
}

static void default_network(void **state)
{
    const char *const set[] = { "dim=128", "layers=4", "heads=8", "vocab=300", "train.context=8" };
    tn_settings *st;
    (void)state;
    tn_trainer *t = open_net(set, 5, &st);
    const tn_store *s = tn_trainer_store(t);
    int seen = 0;
    for (size_t i = 0; i < tn_store_count(s); i++) {
        const tn_entry *e = tn_store_at(s, i);
        if (e->role != TN_ROLE_PARAM) continue;
        const rule *r = rule_of(e->name);
        look_at_numbers(r, e);
        if (e->decay != r->decay) fail_msg("%s: decay is %d", e->name, e->decay);
        if (e->lr != r->lr) fail_msg("%s: its factor on the rate is %g", e->name, (double)e->lr);
        seen++;
    }
    assert_int_equal(seen, 1 + 4 * 4 + 2 * 8 + 2 * 7 + 1); /* embedding; norms and feed-forward; D; O; last norm */
    assert_non_null(tn_store_find(s, "layer0.mixer.nu"));  /* D comes first */
    assert_non_null(tn_store_find(s, "layer3.mixer.b_ab"));
    tn_trainer_free(t);
    tn_settings_free(st);
}

/* The recipe belongs to the network: rate 3e-3, 100 steps up, a cosine down to 5 %, AdamW 0.9/0.95, decay 0.1, clip 1. A preset's and
 * a command's word come after it, and other models keep the common default. */
static void default_recipe(void **state)
{
    static const struct {
        const char *key;
        double value;
    } rows[] = { { "train.lr", 3e-3 },    { "train.lr_min_frac", 0.05 }, { "train.beta1", 0.9 },
                 { "train.beta2", 0.95 }, { "train.eps", 1e-8 },         { "train.decay", 0.1 },
                 { "train.clip", 1 },     { "train.dropout", 0 },        { "spectrum_lr", 0.3 } };
    const char *const own[] = { "train.lr=2e-3" };
    const tn_model *model;
    tn_settings *st;
    (void)state;
    assert_ok(tn_settings_resolve("ten", NULL, 0, &st, &model));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_float_equal(tn_settings_float(st, rows[i].key), rows[i].value, 1e-12);
    assert_int_equal(tn_settings_int(st, "train.warmup"), 100);
    assert_string_equal(tn_settings_text(st, "train.schedule"), "cosine");
    assert_string_equal(tn_settings_text(st, "pattern"), "DO");
    assert_string_equal(tn_settings_source(st, "train.lr"), "default");
    tn_settings_free(st);
    assert_ok(tn_settings_resolve("ten", own, 1, &st, &model));
    assert_float_equal(tn_settings_float(st, "train.lr"), 2e-3, 1e-12);
    tn_settings_free(st);
    assert_ok(tn_settings_resolve("ten_b", NULL, 0, &st, &model));
    assert_float_equal(tn_settings_float(st, "train.lr"), 3e-4, 1e-12);
    tn_settings_free(st);
    assert_ok(tn_settings_resolve("gpt", NULL, 0, &st, &model));
    assert_float_equal(tn_settings_float(st, "train.lr"), 1e-3, 1e-12);
    tn_settings_free(st);
}

/* gamma_norm=free: the factor starts as sqrt(1 - rho^2) of the modulus beside it, whatever the moduli start as. */
static void free_factor(void **state)
{
    const char *const set[] = { "pattern=E", "gamma_norm=free", "dim=16", "layers=2",
                                "vocab=20",  "train.context=8", *state,   "rho=expexp" };
    const bool sigmoid = strcmp(*state, "rho=sigmoid") == 0;
    tn_settings *st;
    tn_trainer *t = open_net(set, sigmoid ? 7 : 8, &st);
    const tn_store *s = tn_trainer_store(t);
    const tn_entry *gamma = tn_store_find(s, "layer1.mixer.log_gamma");
    const tn_entry *a = tn_store_find(s, sigmoid ? "layer1.mixer.alpha" : "layer1.mixer.nu");
    assert_true(gamma && a && gamma->lr == 1 && !gamma->decay);
    for (int64_t i = 0; i < tn_dims_count(gamma->dims); i++) {
        const double x = (double)((const float *)a->data)[i], rho = sigmoid ? 1 / (1 + exp(-x)) : exp(-exp(x));
        const double want = 0.5 * log(1 - rho * rho), have = (double)((const float *)gamma->data)[i];
        if (fabs(have - want) > 2e-5 * (1 + fabs(want))) fail_msg("number %d: %g instead of %g", (int)i, have, want);
    }
    tn_trainer_free(t);
    tn_settings_free(st);
}

void tn_tests_ten_initial(tn_test_list *l)
{
    static const char *const starts[] = { "spectrum=log", "spectrum=ring", "spectrum=uniform", "rho=sigmoid" };
    tn_test_add(l, default_network, NULL, "ten: first values and optimizer groups of the default network");
    tn_test_add(l, default_recipe, NULL, "ten: the default recipe");
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        tn_test_add(l, free_factor, starts[i], "ten: a free factor starts from its modulus, %s", starts[i]);
}
