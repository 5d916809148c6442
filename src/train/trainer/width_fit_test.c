/* The search for a width: counts agree with what a trainer allocates, results are within the tolerance or refused with the
 * nearest count, and widths that a model refuses are stepped over. */
#include "train/trainer/width_fit.h"

#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tn_model *open_model(const char *target, const char *const *set, size_t n, tn_settings **st)
{
    const tn_model *m;
    assert_ok(tn_settings_resolve(target, set, n, st, &m));
    return m;
}

static void counts(void **state)
{
    const char *const set[] = { "dim=48", "heads=2", "vocab=77", "train.context=16", "threads=1" };
    tn_settings *st;
    tn_trainer *t;
    int64_t n;
    const tn_model *m = open_model(*state, set, 5, &st);
    assert_ok(tn_tensors_count(m, st, NULL, &n, NULL));
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = m, .settings = st, .batch = 1, .length = 16 }, &t));
    assert_int_equal(n, tn_trainer_parameters(t));
    tn_trainer_free(t);
    tn_settings_free(st);
}

/* More than any machine has: known all the same. */
static void counts_giants(void **state)
{
    (void)state;
    const char *const set[] = { "vocab=128256" };
    tn_settings *st;
    int64_t n;
    const tn_model *m = open_model("llama3_1_8b", set, 1, &st);
    assert_ok(tn_tensors_count(m, st, NULL, &n, NULL));
    assert_true(n > 8020000000 && n < 8040000000);
    tn_settings_free(st);
}

typedef struct wanted {
    const char *target, *extra;
    int64_t parameters;
    const char *key, *text; /* what is changed, or NULL; the result, or NULL for any */
} wanted;

static const wanted rows[] = {
    { "ten", "layers=4", 470000, NULL, NULL },         { "ten", "layers=2", 40000, NULL, NULL },
    { "ten", "layers=12", 124000000, NULL, NULL },     { "gpt", "heads=2", 470000, NULL, NULL },
    { "gpt", "heads=8", 100000, NULL, NULL },   /* dim moves in steps of 16: ffn has to help */
    { "gpt", "heads=6", 3000000, NULL, NULL },  /* multiples of 64 that 12 divides, with another ffn */
    { "gpt", "ffn=1000", 3000000, NULL, NULL }, /* a typed ffn stays: multiples of 8 */
    { "gpt", "shape=gpt2", 1000000, NULL, NULL },      { "gpt", "dim=128", 1000000, "ffn", NULL },
    { "gpt", "dim=64", 268000, "layers", "layers=5" }, /* no multiple of 8: any number then */
};

static void fits(void **state)
{
    const wanted *w = *state;
    const char *const set[] = { w->extra, "vocab=256", "train.context=64" };
    tn_settings *st;
    tn_width found;
    int64_t n;
    const tn_model *m = open_model(w->target, set, 3, &st);
    assert_ok(tn_width_fit(m, st, NULL, w->key, w->parameters, &found));
    assert_ok(tn_tensors_count(m, st, NULL, &n, NULL));
    assert_int_equal(n, found.parameters);
    assert_true(llabs(n - w->parameters) <= (int64_t)(TN_WIDTH_TOLERANCE * (double)w->parameters));
    if (w->text) assert_string_equal(found.text, w->text);
    tn_settings_free(st);
}

static int64_t count_at(const tn_model *m, const tn_settings *st, const char *key, int64_t value)
{
    tn_settings *other;
    char text[32];
    int64_t n = 0;
    assert_ok(tn_settings_clone(st, &other));
    snprintf(text, sizeof text, value ? "%lld" : "auto", (long long)value);
    assert_ok(tn_settings_set(other, key, text, "test"));
    assert_ok(tn_tensors_count(m, other, NULL, &n, NULL));
    tn_settings_free(other);
    return n;
}

/* Of all multiples of 8 there is none nearer: of a narrow model, of one with an ffn of its own, and where dim is named. */
static void nearest(void **state)
{
    static const struct {
        const char *set, *key;
        int64_t parameters;
    } asked[] = { { "layers=3", NULL, 150000 }, { "ffn=700", NULL, 5000000 }, { "layers=2", "dim", 5000000 } };
    (void)state;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const char *const set[] = { "vocab=256", "heads=2", "layers=2", "train.context=64", asked[i].set };
        tn_settings *st;
        tn_width found;
        const tn_model *m = open_model("gpt", set, 5, &st);
        assert_ok(tn_width_fit(m, st, NULL, asked[i].key, asked[i].parameters, &found));
        for (int64_t d = 8; d <= 1600; d += 8)
            assert_true(llabs(count_at(m, st, "dim", d) - asked[i].parameters) >=
                        llabs(found.parameters - asked[i].parameters));
        tn_settings_free(st);
    }
}

/* Models of many sizes get widths that a GPU likes, with an ffn near their own, and counts within 1 %. */
static void even(void **state)
{
    static const char *const shapes[] = { "layers=4", "layers=6", "layers=12" };
    const char *target = *state;
    int64_t last = 0;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (double size = 5e6; size < 2e8; size *= 1.37) {
            const char *const set[] = { shapes[k], "vocab=256", "train.context=64" };
            tn_settings *st;
            tn_width found;
            const tn_model *m = open_model(target, set, 3, &st);
            assert_ok(tn_width_fit(m, st, NULL, NULL, (int64_t)size, &found));
            const int64_t dim = tn_settings_int(st, "dim"), ffn = tn_settings_int(st, "ffn");
            if (dim % (dim >= 288 ? 64 : 32)) fail_msg("%s %s %.0f: %s", target, shapes[k], size, found.text);
            assert_true(llabs(found.parameters - (int64_t)size) <= (int64_t)(0.01 * size));
            if (!ffn) {
                tn_settings_free(st);
                continue;
            }
            assert_int_equal(ffn % 8, 0);
            const double each = (double)(count_at(m, st, "ffn", 128) - count_at(m, st, "ffn", 64)) / 64,
                         own = 64 + (double)(count_at(m, st, "ffn", 0) - count_at(m, st, "ffn", 64)) / each;
            if (!((double)ffn > 0.66 * own && (double)ffn < 1.51 * own))
                fail_msg("%s %s %.0f: %s, its own ffn is %.0f", target, shapes[k], size, found.text, own);
            last = ffn;
            tn_settings_free(st);
        }
    assert_true(last > 0);
}

/* Small models, and those whose heads leave no such width, take what they did. */
static void uneven(void **state)
{
    (void)state;
    const char *const heads[] = { "heads=7", "layers=4", "vocab=256", "train.context=64" }, *const narrow[] = {
        "heads=2", "layers=2", "vocab=256", "train.context=64"
    };
    tn_settings *st;
    tn_width found;
    const tn_model *m = open_model("gpt", heads, 4, &st);
    assert_ok(tn_width_fit(m, st, NULL, NULL, 4000000, &found));
    assert_int_equal(tn_settings_int(st, "dim") % 56, 0);
    tn_settings_free(st);
    m = open_model("gpt", narrow, 4, &st);
    assert_ok(tn_width_fit(m, st, NULL, NULL, count_at(m, st, "dim", 120) + 300, &found));
    assert_string_equal(found.text, "dim=120");
    assert_string_equal(tn_settings_source(st, "ffn"), "default");
    tn_settings_free(st);
}

static void refused(void **state)
{
    (void)state;
    const char *const set[] = { "vocab=50000", "heads=8", "train.context=64", "dim=40" };
    tn_settings *st;
    tn_width found;
    const tn_model *m = open_model("gpt", set, 4, &st);
    assert_fails(tn_width_fit(m, st, NULL, NULL, 1000, &found), TN_USAGE, "the nearest is 8");
    assert_string_equal(tn_settings_text(st, "dim"), "40"); /* untouched */
    assert_fails(tn_width_fit(m, st, NULL, "widht", 1000, &found), TN_USAGE, "--width=KEY");
    assert_fails(tn_width_fit(m, st, NULL, "shape", 1000, &found), TN_USAGE, "--width=KEY");
    tn_settings_free(st);
}

void tn_tests_width_fit(tn_test_list *l)
{
    tn_test_add(l, counts, "ten", "width: parameters counted without a store (ten)");
    tn_test_add(l, counts, "gpt", "width: parameters counted without a store (gpt)");
    tn_test_add(l, counts_giants, NULL, "width: 8 G parameters counted");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tn_test_add(l, fits, &rows[i], "width: %s %s with %lld parameters", rows[i].target, rows[i].extra,
                    (long long)rows[i].parameters);
    tn_test_add(l, even, "ten", "width: even widths (ten)");
    tn_test_add(l, even, "gpt", "width: even widths (gpt)");
    tn_test_add(l, even, "ten_hybrid", "width: even widths (ten_hybrid)");
    tn_test_add(l, uneven, NULL, "width: small models and odd heads");
    tn_test_add(l, nearest, NULL, "width: the nearest there is");
    tn_test_add(l, refused, NULL, "width: out of reach");
}
