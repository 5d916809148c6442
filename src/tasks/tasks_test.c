/* Made-up tasks: shapes and sizes as documented, every label recomputed from its features alone, the same numbers for the same
 * settings and on every machine, and what is refused. Splits, images and environments have tests of their own. */
#include "task_sets.h"

#include "base/hash.h"

#include <math.h>
#include <zlib.h>

/* --- the label of a sample from its features, written for each task anew ------------------------------------------------- */

static int ones(const float *x, int64_t n)
{
    int k = 0;
    for (int64_t i = 0; i < n; i++) {
        assert_true(x[i] == 0 || x[i] == 1);
        k += x[i] == 1;
    }
    return k;
}

/* The place of the only 1 among n. */
static int hot(const float *x, int64_t n)
{
    assert_int_equal(ones(x, n), 1);
    for (int i = 0;; i++)
        if (x[i] == 1) return i;
}

static int digit(float x)
{
    for (int i = 0; i < 10; i++)
        if (x == (float)i / 9) return i;
    fail_msg("%g is no digit / 9", (double)x);
    return -1;
}

static void odd(const tn_samples *s, const float *x, int32_t *y) { *y = ones(x, s->features) & 1; }

static void majority(const tn_samples *s, const float *x, int32_t *y)
{
    const int k = ones(x, s->features);
    *y = k > (int)s->features - k;
}

static void which(const tn_samples *s, const float *x, int32_t *y) { *y = hot(x, s->features); }

static void first(const tn_samples *s, const float *x, int32_t *y)
{
    for (int64_t i = s->features / 10; i-- > 0;) *y = hot(x + 10 * i, 10);
}

static void last(const tn_samples *s, const float *x, int32_t *y)
{
    for (int64_t i = 0; i < s->features / 10; i++) *y = hot(x + 10 * i, 10);
}

static void each(const tn_samples *s, const float *x, int32_t *y)
{
    for (int64_t t = 0; t < s->tokens; t++) y[t] = hot(x + 10 * t, 10);
}

/* A context may follow several rules; the label must be what one of them says, which `y` then holds. */
static void three_rules(const tn_samples *s, const float *x, int32_t *y)
{
    int c[4];
    assert_int_equal(s->features, 40);
    for (int i = 0; i < 4; i++) c[i] = hot(x + 10 * i, 10);
    const bool counts = c[1] == c[0] + 1 && c[2] == c[0] + 2 && c[3] == c[0] + 3, turns = c[0] == c[2] && c[1] == c[3];
    const int32_t given = *y;
    *y = c[3];
    if (counts && c[0] < 5 && given == c[0] + 4) *y = given;
    if (turns && given == c[0]) *y = given;
}

static void sum(const tn_samples *s, const float *x, int32_t *y)
{
    int a = 0, b = 0;
    for (int64_t i = 0; i < s->features / 2; i++) {
        a = 10 * a + digit(x[i]);
        b = 10 * b + digit(x[s->features / 2 + i]);
    }
    *y = (a + b) % (int)s->classes;
}

static void sum_digits(const tn_samples *s, const float *x, int32_t *y)
{
    long long a = 0, b = 0;
    for (int64_t t = 0; t < s->tokens; t++) {
        a = 10 * a + digit(x[2 * t]);
        b = 10 * b + digit(x[2 * t + 1]);
    }
    a += b;
    for (int64_t t = s->tokens; t-- > 0; a /= 10) y[t] = (int32_t)(a % 10);
}

static void lean(const tn_samples *s, const float *x, int32_t *y)
{
    for (int64_t i = 0; i < s->features; i++) assert_true(x[i] >= -0.2f && x[i] <= 0.2f);
    *y = x[2] < 0 ? 0 : 1;
}

/* From the observation: cos(a + b) = cos a cos b - sin a sin b. At a boundary of a float's width the given label stands. */
static void swing(const tn_samples *s, const float *x, int32_t *y)
{
    const double height = (double)x[0] + (double)x[0] * (double)x[2] - (double)x[1] * (double)x[3],
                 way = (double)x[4] + (double)x[5];
    assert_int_equal(s->features, 6);
    for (int i = 0; i < 4; i += 2)
        assert_true(fabs((double)x[i] * (double)x[i] + (double)x[i + 1] * (double)x[i + 1] - 1) < 1e-6);
    assert_true(fabsf(x[4]) <= 4 && fabsf(x[5]) <= 9);
    if (fabs(height - 0.5) < 1e-6 || (height < 0.5 && fabs(way) < 1e-6)) return;
    *y = height > 0.5 ? 1 : way > 0 ? 2 : 0;
}

typedef struct made_up {
    const char *name, *words;
    int64_t tokens, features, labels, classes, count[TN_SPLITS];
    void (*rule)(const tn_samples *s, const float *x, int32_t *y); /* y (labels) holds the task's own when called */
    double share;                                                  /* of the largest class among the labels */
    const char *hash; /* of x and y on every machine, or NULL where libm has a part in it */
} made_up;

static const made_up tasks[] = {
    { "xor", "", 1, 2, 1, 2, { 2000, 400, 400 }, odd, 0.5, "74ca3eff3f7bf19e319c9f17e67c0e98" },
    { "xor3", "", 1, 3, 1, 2, { 2000, 400, 400 }, odd, 0.5, "4ffe9c6ebfeed053f0618c5df5a1b486" },
    { "parity", "", 1, 8, 1, 2, { 10000, 2000, 2000 }, odd, 0.5, "b8554510aca35cb3ae91ed016ae3ccc2" },
    { "parity", "task.bits=12 task.size=5000 task.valid_frac=0", 1, 12, 1, 2, { 5000, 0, 1000 }, odd, 0.5, NULL },
    { "majority", "", 1, 5, 1, 2, { 2000, 400, 400 }, majority, 0.5, "4a73284e48e5649cbebda2e0ab69a933" },
    { "majority", "task.bits=4", 1, 4, 1, 2, { 2000, 400, 400 }, majority, 11.0 / 16, NULL },
    { "identity", "", 1, 4, 1, 4, { 2000, 400, 400 }, which, 0.25, "bb02c0808ce08327f862700d6c39ebfb" },
    { "copy", "", 1, 80, 1, 10, { 10000, 2000, 2000 }, first, 0.1, "e1c857e5fde2095fc0ee0c079906f856" },
    { "reversal", "", 1, 80, 1, 10, { 10000, 2000, 2000 }, last, 0.1, "49caa37e94776c393a1be57448c89d08" },
    { "reversal", "task.length=3 task.size=100 task.test_frac=0.5", 1, 30, 1, 10, { 100, 20, 50 }, last, 0, NULL },
    { "seq_copy", "", 8, 10, 8, 10, { 10000, 2000, 2000 }, each, 0.1, "8cc386cb2c1c3e4ca8b7bc70a03dc9cd" },
    { "seq_copy", "task.length=33 task.size=101", 33, 10, 33, 10, { 101, 21, 21 }, each, 0.1, NULL },
    { "addition", "", 1, 4, 1, 100, { 10000, 2000, 2000 }, sum, 0.01, "ee5354293aaf8c9bc8ec54c8a5360dce" },
    { "addition", "task.length=4", 1, 8, 1, 10000, { 10000, 2000, 2000 }, sum, 0, NULL },
    { "seq_addition", "", 4, 2, 4, 10, { 10000, 2000, 2000 }, sum_digits, 0.1, "e5dfb3a9e100a6e8b8a2179bc494a4b5" },
    { "seq_addition", "task.length=17 task.size=500", 17, 2, 17, 10, { 500, 100, 100 }, sum_digits, 0.1, NULL },
    { "tiny_lm", "", 1, 40, 1, 10, { 2000, 400, 400 }, three_rules, 0, "cc8b274afe535d6ad0dcf4bd6a87ae8e" },
    { "cartpole_bc", "", 1, 4, 1, 2, { 2000, 400, 400 }, lean, 0.5, "8848317266e9b2a1afca75377642bc6f" },
    { "acrobot_bc", "", 1, 6, 1, 3, { 2000, 400, 400 }, swing, 0, NULL },
};

static void rules(void **state)
{
    const made_up *m = *state;
    tn_samples *s = tn_task_set(m->name, m->words);
    int64_t wrong = 0, most = 0, drawn[10000] = { 0 };
    float x[512];
    int32_t y[64];
    assert_true(s->tokens == m->tokens && s->features == m->features && s->labels == m->labels &&
                s->classes == m->classes);
    for (int k = 0; k < TN_SPLITS; k++) assert_int_equal(s->count[k], m->count[k]);
    tn_task_set_check(s, true);
    for (int64_t i = 0; i < s->n; i++) {
        tn_samples_read(s, i, x);
        memcpy(y, s->y + i * s->labels, (size_t)s->labels * sizeof *y);
        m->rule(s, x, y);
        wrong += memcmp(y, s->y + i * s->labels, (size_t)s->labels * sizeof *y) != 0;
        for (int64_t k = 0; k < s->labels; k++) most = ++drawn[y[k]] > most ? drawn[y[k]] : most;
    }
    assert_int_equal(wrong, 0);
    for (int64_t c = 0; s->classes <= 10 && c < s->classes; c++) assert_true(drawn[c] > 0);
    const double n = (double)(s->n * s->labels), expected = n * m->share; /* six standard deviations */
    if (m->share > 0) assert_true(fabs((double)most - expected) <= 6 * sqrt(expected * (1 - m->share)));
    tn_samples_free(s);
}

/* --- the same numbers ---------------------------------------------------------------------------------------------------- */

static void hash_of(const tn_samples *s, char *hex)
{
    tn_hash *h = NULL;
    assert_ok(tn_hash_begin(&h));
    if (s->x_u8) tn_hash_add(h, s->x_u8, (size_t)(s->n * s->tokens * s->features));
    else tn_hash_add(h, s->x_f32, (size_t)(s->n * s->tokens * s->features) * sizeof(float));
    tn_hash_add(h, s->y, (size_t)(s->n * s->labels) * sizeof(int32_t));
    for (int k = 0; k < TN_SPLITS; k++) tn_hash_add(h, s->index[k], (size_t)s->count[k] * sizeof(int32_t));
    tn_hash_text(h, hex);
    tn_hash_free(h);
}

static void repeats(void **state)
{
    const made_up *m = *state;
    char words[256], a[TN_HASH_BYTES], b[TN_HASH_BYTES];
    tn_samples *s = tn_task_set(m->name, m->words), *again = tn_task_set(m->name, m->words), *small, *other;
    hash_of(s, a);
    hash_of(again, b);
    assert_string_equal(a, b);
    if (m->hash) assert_string_equal(a, m->hash);
    snprintf(words, sizeof words, "%s task.split_seed=1", m->words);
    other = tn_task_set(m->name, words);
    hash_of(other, b);
    assert_string_not_equal(a, b);
    snprintf(words, sizeof words, "%s task.size=50", m->words); /* begins as the larger one does */
    small = tn_task_set(m->name, words);
    assert_memory_equal(small->y, s->y, (size_t)(50 * s->labels) * sizeof(int32_t));
    assert_memory_equal(small->x_f32, s->x_f32, (size_t)(50 * s->tokens * s->features) * sizeof(float));
    tn_samples *all[] = { s, again, other, small };
    for (int i = 0; i < 4; i++) tn_samples_free(all[i]);
}

/* Each of tiny_lm's rules makes about a third, with every start that it may have. */
static void tiny_lm_rules(void **state)
{
    (void)state;
    tn_samples *s = tn_task_set("tiny_lm", "task.size=9000");
    int64_t counting = 0, turning = 0, starts[10] = { 0 };
    for (int64_t i = 0; i < 9000; i++) {
        int c[4];
        for (int k = 0; k < 4; k++) c[k] = hot(s->x_f32 + 40 * i + 10 * k, 10);
        if (c[1] == c[0] + 1 && c[2] == c[0] + 2 && c[3] == c[0] + 3 && s->y[i] == c[0] + 4) {
            counting++;
            starts[c[0]]++;
        }
        turning += c[0] == c[2] && c[1] == c[3];
    }
    assert_in_range(counting, 2730, 3270);
    assert_in_range(turning, 2760, 3300); /* a random context does so once in a hundred */
    for (int a = 0; a < 10; a++) assert_true(a < 5 ? starts[a] > 450 : starts[a] == 0);
    tn_samples_free(s);
}

/* --- the table, the settings and errors ----------------------------------------------------------------------------------- */

static void table(void **state)
{
    (void)state;
    const tn_task *t;
    tn_settings *st = tn_task_settings_of("task=parity");
    for (size_t i = 0; (t = tn_task_at(i)); i++) {
        assert_ptr_equal(tn_task_named(t->name), t);
        assert_true(t->summary[0]);
        assert_int_equal((t->open != NULL) + (t->env != NULL) + (t->probe != NULL) + (t->pairs != NULL) +
                             (t->texts != NULL),
                         1);
    }
    assert_string_equal(tn_settings_text(st, "task.name"), "parity");
    assert_string_equal(tn_settings_text(st, "task"), "parity");
    assert_ok(tn_task_find("mnist", &t));
    assert_string_equal(t->name, "mnist");
    assert_fails(tn_task_find("digit", &t), TN_USAGE, "unknown task digit: did you mean digits?");
    assert_fails(tn_task_find("", &t), TN_USAGE, "choose xor, xor3,");
    assert_fails(tn_task_find("imagenet22k", &t), TN_USAGE, "cartpole, acrobot, mqar");
    assert_fails(tn_settings_override(st, "task.valid_frac=1"), TN_USAGE, "task.valid_frac");
    tn_settings_free(st);
}

static void refused(void **state)
{
    (void)state;
    tn_samples *s = NULL;
    assert_fails(tn_task_try("addition", "task.length=5", &s), TN_USAGE,
                 "task.length=5 is more than the task addition takes: at most 4");
    assert_fails(tn_task_try("seq_copy", "task.size=1e8 task.length=4096", &s), TN_USAGE, "choose another task.size");
    assert_fails(tn_task_try("parity", "task.split=/nowhere/split.json", &s), TN_BAD_FILE, "/nowhere/split.json");
    assert_null(s);
}

static void no_memory(void **state)
{
    (void)state;
    tn_samples *s = NULL;
    tn_settings *st = tn_task_settings_of("task=xor task.size=20");
    for (uint64_t n = 1;; n++) {
        tn_alloc_fail_at(n);
        const tn_status r = tn_task_named("xor")->open(st, &s);
        tn_alloc_fail_at(0);
        if (r == TN_OK) break;
        assert_int_equal(r, TN_MEMORY);
        assert_true(n < 20 && s == NULL);
    }
    tn_samples_free(s);
    tn_samples_free(NULL);
    tn_settings_free(st);
}

/* --- char ----------------------------------------------------------------------------------------------------------------- */

static void pangram(void **state)
{
    (void)state;
    const char *text = "the quick brown fox jumps over the lazy dog. ";
    const char *letters = " .abcdefghijklmnopqrstuvwxyz";
    tn_samples *s = tn_task_set("char", "");
    float x[28];
    assert_int_equal(strlen(text), 45);
    assert_true(s->n == 4499 && s->classes == 28 && s->features == 28 && s->tokens == 1 && s->scale == 1);
    tn_task_set_check(s, true);
    for (int64_t i = 0; i < s->n; i++) {
        tn_samples_read(s, i, x);
        assert_int_equal(letters[hot(x, 28)], text[i % 45]);
        assert_int_equal(letters[s->y[i]], text[(i + 1) % 45]);
    }
    /* in order: 900 of 4499 are kept for each, the test is the end of the text */
    assert_true(s->count[TN_TRAIN] == 2699 && s->count[TN_VALID] == 900 && s->count[TN_TEST] == 900);
    assert_true(s->index[TN_TRAIN][2698] == 2698 && s->index[TN_VALID][0] == 2699 && s->index[TN_TEST][899] == 4498);
    tn_samples_free(s);
}

static void text_file(void **state)
{
    (void)state;
    const unsigned char text[] = "banana\xff nab";
    tn_tempdir d;
    char words[512];
    tn_samples *s = NULL, *z;
    float x[18];
    tn_tempdir_make(&d);
    const char *plain = tn_tempdir_file(&d, "a.txt"), *packed = tn_tempdir_file(&d, "a.txt.gz"),
               *one = tn_tempdir_file(&d, "one.txt");
    tn_put_file(plain, text, sizeof text - 1);
    tn_put_text(one, "aaaaaaaaaaaaaa");
    gzFile gz = gzopen(packed, "wb");
    assert_int_equal(gzwrite(gz, text, sizeof text - 1), sizeof text - 1);
    assert_int_equal(gzclose(gz), Z_OK);
    snprintf(words, sizeof words, "task.data=%s task.length=3", plain);
    s = tn_task_set("char", words);
    assert_true(s->classes == 5 && s->features == 15 && s->n == 8); /* space a b n 0xff */
    tn_samples_read(s, 0, x);
    assert_true(hot(x, 5) == 2 && hot(x + 5, 5) == 1 && hot(x + 10, 5) == 3 && s->y[0] == 1); /* ban -> a */
    assert_int_equal(s->y[3], 4);                                                             /* ana -> 0xff */
    snprintf(words, sizeof words, "task.data=%s task.length=3", packed);
    z = tn_task_set("char", words);
    assert_memory_equal(z->x_u8, s->x_u8, (size_t)(s->n * s->features));
    tn_samples_free(s);
    tn_samples_free(z);
    snprintf(words, sizeof words, "task.data=%s task.size=7 task.valid_frac=0", plain);
    s = tn_task_set("char", words);
    assert_true(s->n == 6 && s->classes == 4 && s->count[TN_TRAIN] == 4 && s->count[TN_TEST] == 2);
    tn_samples_free(s);
    s = NULL;
    snprintf(words, sizeof words, "task.data=%s", one);
    assert_fails(tn_task_try("char", words, &s), TN_USAGE, "too few to learn from");
    snprintf(words, sizeof words, "task.data=%s task.length=9", plain);
    assert_fails(tn_task_try("char", words, &s), TN_USAGE, "too few to learn from");
    snprintf(words, sizeof words, "task.data=%s/none", d.path);
    assert_fails(tn_task_try("char", words, &s), TN_BAD_FILE, "none");
    tn_tempdir_clear(&d);
}

void tn_tests_tasks(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        tn_test_add(l, rules, &tasks[i], "tasks: %s %s: every label by its rule", tasks[i].name, tasks[i].words);
        tn_test_add(l, repeats, &tasks[i], "tasks: %s %s: the same again", tasks[i].name, tasks[i].words);
    }
    tn_test_add(l, tiny_lm_rules, NULL, "tasks: tiny_lm: three rules, a third each");
    tn_test_add(l, table, NULL, "tasks: table");
    tn_test_add(l, refused, NULL, "tasks: what is refused");
    tn_test_add(l, no_memory, NULL, "tasks: no memory");
    tn_test_add(l, pangram, NULL, "tasks: char: the sentence");
    tn_test_add(l, text_file, NULL, "tasks: char: a text of one's own");
}
