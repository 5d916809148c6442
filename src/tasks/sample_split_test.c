/* Splits: counts and quotas against largest remainders computed another way, independence of the test rows from the validation
 * fraction, the same rows everywhere, and files that are refused. */
#include "task_sets.h"

#include "base/hash.h"

/* A set of one feature whose labels follow a shape: class c has have[c] samples, mixed; -1 in have ends. */
static tn_sample_set *labelled(const int64_t *have, uint64_t seed)
{
    int64_t n = 0, classes = 0;
    for (; have[classes] >= 0; classes++) n += have[classes];
    tn_sample_set *b = NULL;
    assert_ok(tn__samples_new(
        &(tn_samples){ .n = n, .tokens = 1, .features = 1, .labels = 1, .classes = classes, .scale = 1 }, true, &b));
    for (int64_t c = 0, at = 0; c < classes; c++)
        for (int64_t i = 0; i < have[c]; i++) b->y[at++] = (int32_t)c;
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t k = (int64_t)tn_rng_below((tn_rng){ seed, 77 }, (uint64_t)i, (uint64_t)i + 1);
        const int32_t y = b->y[i];
        b->y[i] = b->y[k];
        b->y[k] = y;
    }
    return b;
}

static tn_status split(tn_sample_set *b, const char *words, int64_t own_test)
{
    tn_settings *st = tn_task_settings_of(words);
    const tn_status s = tn__split_by_class(st, b, own_test);
    tn_settings_free(st);
    return s;
}

/* Largest remainders: one seat at a time to the class that is furthest below its share, where none gets more than one seat
 * beyond its rounded-down share. In exact fractions of `total`. */
static void seats(const int64_t *have, int64_t classes, int64_t part, int64_t *quota)
{
    int64_t total = 0, given = 0;
    bool extra[64] = { false };
    for (int64_t c = 0; c < classes; c++) total += have[c];
    for (int64_t c = 0; c < classes; c++)
        for (quota[c] = 0; (quota[c] + 1) * total <= part * have[c]; quota[c]++) given++;
    for (; given < part; given++) {
        int64_t best = -1;
        for (int64_t c = classes - 1; c >= 0; c--)
            if (!extra[c] && (best < 0 || part * have[c] % total >= part * have[best] % total)) best = c;
        extra[best] = true;
        quota[best]++;
    }
}

typedef struct shape {
    const char *name;
    double valid, test;
    int64_t have[12], n_valid, n_test; /* counts as they have to come out */
} shape;

static const shape shapes[] = {
    { "digits", 0.2, 0.2, { 178, 182, 177, 183, 181, 182, 181, 179, 174, 180, -1 }, 360, 360 },
    { "digits 80/20", 0, 0.2, { 178, 182, 177, 183, 181, 182, 181, 179, 174, 180, -1 }, 0, 360 },
    { "uneven", 0.15, 0.3, { 1000, 10, 1, 0, 333, -1 }, 202, 404 },
    { "one each", 0.3, 0.3, { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1 }, 3, 3 },
    { "one class", 0.1, 0.1, { 7, -1 }, 1, 1 },
    { "pairs", 0.5, 0.25, { 2, 2, 2, 2, 2, 2, 2, 2, -1 }, 8, 4 },
    { "nothing kept", 0, 0, { 5, 6, -1 }, 0, 0 },
    { "thirds", 0.333333333, 0.333333333, { 30, 30, 30, -1 }, 30, 30 },
};

static void quotas(void **state)
{
    const shape *h = *state;
    char words[200];
    int64_t classes = 0, left[12], quota[12];
    tn_sample_set *b = labelled(h->have, 1);
    snprintf(words, sizeof words, "task.valid_frac=%.9g task.test_frac=%.9g task.split_seed=5", h->valid, h->test);
    assert_ok(split(b, words, 0));
    tn_task_set_check(&b->set, true);
    assert_true(b->set.count[TN_VALID] == h->n_valid && b->set.count[TN_TEST] == h->n_test);
    for (; h->have[classes] >= 0; classes++) left[classes] = h->have[classes];
    const int order[] = { TN_TEST, TN_VALID, TN_TRAIN };
    for (int k = 0; k < 3; k++) {
        seats(left, classes, b->set.count[order[k]], quota);
        for (int64_t c = 0; c < classes; c++) {
            assert_int_equal(tn_task_class_count(&b->set, order[k], (int32_t)c), quota[c]);
            assert_true((left[c] -= quota[c]) >= 0);
        }
    }
    for (int k = 0; k < TN_SPLITS; k++) /* ascending, so that a split is written in one way only */
        for (int64_t i = 1; i < b->set.count[k]; i++) assert_true(b->set.index[k][i - 1] < b->set.index[k][i]);
    tn_samples_free(&b->set);
}

/* Shapes at random: whatever they are, the splits are a partition with the counts asked for. */
static void any_shape(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 200; trial++) {
        const tn_rng r = { trial, 3 };
        int64_t have[12], n = 0;
        const int64_t classes = 1 + (int64_t)tn_rng_below(r, 0, 11);
        for (int64_t c = 0; c < classes; c++) n += have[c] = (int64_t)tn_rng_below(r, (uint64_t)c + 1, c % 3 ? 60 : 4);
        have[classes] = -1;
        const double valid = 0.49 * (double)tn_rng_uniform(r, 20), test = 0.49 * (double)tn_rng_uniform(r, 21);
        if (n < 8) continue;
        char words[200];
        tn_sample_set *b = labelled(have, trial);
        for (int64_t i = 0; i < n; i += 9) b->y[i] = -1; /* samples without a label are a class of their own here */
        snprintf(words, sizeof words, "task.valid_frac=%.9f task.test_frac=%.9f", valid, test);
        const tn_status s = split(b, words, 0);
        if (s == TN_OK) tn_task_set_check(&b->set, true);
        else assert_true(n < 60 && strstr(tn_error_text(), "leave none of"));
        tn_samples_free(&b->set);
    }
}

static const int64_t ten[] = { 178, 182, 177, 183, 181, 182, 181, 179, 174, 180, -1 };

static void same_everywhere(void **state)
{
    (void)state;
    char a[TN_HASH_BYTES];
    tn_sample_set *b = labelled(ten, 1), *c = labelled(ten, 1), *e = labelled(ten, 1);
    assert_ok(split(b, "", 0));
    tn_hash_memory(b->index, (size_t)b->set.n * sizeof *b->index, a);
    assert_string_equal(a, "2b08966ac8061c92e1ce6010f8ac8890");
    assert_ok(split(c, "task.valid_frac=0", 0)); /* the test stays what it is */
    assert_int_equal(c->set.count[TN_TEST], 360);
    assert_memory_equal(b->set.index[TN_TEST], c->set.index[TN_TEST], 360 * sizeof(int32_t));
    assert_ok(split(e, "task.split_seed=1", 0)); /* another one: about a fifth of the rows are the same */
    int64_t both = 0;
    for (int64_t i = 0, k = 0; i < 360; i++) {
        while (k < 360 && e->set.index[TN_TEST][k] < b->set.index[TN_TEST][i]) k++;
        both += k < 360 && e->set.index[TN_TEST][k] == b->set.index[TN_TEST][i];
    }
    assert_in_range(both, 45, 99); /* 72, four standard deviations of 6.8 */
    tn_samples_free(&b->set);
    tn_samples_free(&c->set);
    tn_samples_free(&e->set);
}

/* Every row comes to the test about as often as any other. */
static void fair(void **state)
{
    (void)state;
    enum { TRIALS = 400 };
    int64_t times[110] = { 0 };
    tn_sample_set *b = labelled((const int64_t[]){ 50, 40, 20, -1 }, 2);
    for (int i = 0; i < TRIALS; i++) {
        char words[64];
        snprintf(words, sizeof words, "task.split_seed=%d", i);
        assert_ok(split(b, words, 0));
        for (int64_t k = 0; k < b->set.count[TN_TEST]; k++) times[b->set.index[TN_TEST][k]]++;
    }
    for (int i = 0; i < 110; i++) assert_in_range(times[i], 80 - 40, 80 + 40); /* five standard deviations of 8 */
    tn_samples_free(&b->set);
}

static void own_test(void **state)
{
    (void)state;
    tn_sample_set *b = labelled((const int64_t[]){ 60, 60, -1 }, 3);
    assert_ok(split(b, "task.test_frac=0.9", 20));
    tn_task_set_check(&b->set, true);
    assert_true(b->set.count[TN_TRAIN] == 80 && b->set.count[TN_VALID] == 20 && b->set.count[TN_TEST] == 20);
    for (int i = 0; i < 20; i++) assert_int_equal(b->set.index[TN_TEST][i], 100 + i);
    assert_fails(split(b, "task.valid_frac=0.999", 20), TN_USAGE, "task.valid_frac=0.999 leaves none of 100 samples");
    assert_fails(split(b, "task.valid_frac=0.5 task.test_frac=0.5", 0), TN_USAGE,
                 "task.valid_frac=0.5 and task.test_frac=0.5 leave none of 120 samples for training");
    tn_samples_free(&b->set);
}

/* --- files ---------------------------------------------------------------------------------------------------------------- */

static void round_trip(void **state)
{
    (void)state;
    tn_tempdir d;
    char words[300];
    tn_sample_set *b = labelled(ten, 1), *c = labelled(ten, 9);
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "split.json");
    assert_ok(split(b, "task.split_seed=3", 0));
    assert_ok(tn_split_write(&b->set, path));
    snprintf(words, sizeof words, "task.split=%s", path);
    assert_ok(split(c, words, 0)); /* other labels: the file decides alone */
    for (int k = 0; k < TN_SPLITS; k++) {
        assert_int_equal(b->set.count[k], c->set.count[k]);
        assert_memory_equal(b->set.index[k], c->set.index[k], (size_t)b->set.count[k] * sizeof(int32_t));
    }
    tn_put_text(path, "{\n \"test\": [3, 1],\n \"train\": [1796, 0, 7]\n}\n"); /* by hand: some rows, in this order */
    assert_ok(split(c, words, 0));
    assert_true(c->set.count[TN_TRAIN] == 3 && c->set.count[TN_VALID] == 0 && c->set.count[TN_TEST] == 2);
    assert_true(c->set.index[TN_TRAIN][0] == 1796 && c->set.index[TN_TRAIN][2] == 7 && c->set.index[TN_TEST][0] == 3);
    tn_task_set_check(&c->set, false);
    tn_samples *s = NULL; /* and for a task whose splits lie in order */
    tn_put_text(path, "{\"samples\":28, \"train\":[27], \"valid\":[0,1]}");
    snprintf(words, sizeof words, "task.size=20 task.split=%s", path);
    assert_ok(tn_task_try("xor", words, &s));
    assert_true(s->count[TN_TRAIN] == 1 && s->index[TN_TRAIN][0] == 27 && s->count[TN_VALID] == 2 &&
                s->count[TN_TEST] == 0);
    tn_samples_free(s);
    assert_fails(tn_split_write(&b->set, "/nowhere/at/all/split.json"), TN_DISK, "/nowhere/at/all");
    tn_samples_free(&b->set);
    tn_samples_free(&c->set);
    tn_tempdir_clear(&d);
}

typedef struct broken {
    const char *name, *text, *says;
} broken;

static const broken gallery[] = {
    { "nothing", "", "split.json:1: " },
    { "not JSON", "train 1 2 3", "a split is {\"train\"" },
    { "cut", "{\"train\":[1,2,", "split.json:1: " },
    { "a list", "[1,2,3]", "is not a split: write {\"train\"" },
    { "no train", "{\"test\":[1,2]}", "is not a split" },
    { "empty train", "{\"train\":[],\"test\":[1,2]}", "\"train\" is empty" },
    { "no list", "{\"train\":5}", "\"train\" is not a list" },
    { "a text", "{\"train\":[1,\"2\"]}", "\"train\"[1] is not a row number" },
    { "a fraction", "{\"train\":[1.0]}", "\"train\"[0] is not a row number" },
    { "twice in one", "{\"train\":[1,2,1]}", "row 1 is in train and again in train" },
    { "in two", "{\"train\":[1,2],\"valid\":[3],\"test\":[3]}", "row 3 is in valid and again in test" },
    { "below", "{\"train\":[1,-1]}", "\"train\"[1] is -1; the rows are 0 to 1796" },
    { "beyond", "{\"train\":[1],\"test\":[1797]}", "\"test\"[0] is 1797; the rows are 0 to 1796" },
    { "far beyond", "{\"train\":[9223372036854775807]}", "the rows are 0 to 1796" },
    { "too large a number", "{\"train\":[99999999999999999999]}", "split.json:1: " },
    { "another set", "{\"samples\":1796,\"train\":[1]}", "was made for 1796 samples, this task has 1797" },
    { "a word", "{\"train\":[1],\"tset\":[2]}", "\"tset\" is not one of" },
    { "a key twice", "{\"train\":[1],\"train\":[2]}", "split.json:1: " },
};

static void refused(void **state)
{
    const broken *g = *state;
    tn_tempdir d;
    char words[300];
    tn_sample_set *b = labelled(ten, 1);
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "split.json");
    tn_put_text(path, g->text);
    snprintf(words, sizeof words, "task.split=%s", path);
    assert_fails(split(b, words, 0), TN_BAD_FILE, g->says);
    tn_samples_free(&b->set);
    tn_tempdir_clear(&d);
}

static void no_memory(void **state)
{
    (void)state;
    tn_sample_set *b = labelled(ten, 1);
    tn_settings *st = tn_task_settings_of("");
    for (uint64_t n = 1;; n++) {
        tn_alloc_fail_at(n);
        const tn_status s = tn__split_by_class(st, b, 0);
        tn_alloc_fail_at(0);
        if (s == TN_OK) break;
        assert_true(s == TN_MEMORY && n < 20);
    }
    tn_settings_free(st);
    tn_samples_free(&b->set);
}

void tn_tests_sample_split(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        tn_test_add(l, quotas, &shapes[i], "splits: quotas: %s", shapes[i].name);
    tn_test_add(l, any_shape, NULL, "splits: any shape is parted");
    tn_test_add(l, same_everywhere, NULL, "splits: the same rows everywhere");
    tn_test_add(l, fair, NULL, "splits: every row as often");
    tn_test_add(l, own_test, NULL, "splits: a test split of its own");
    tn_test_add(l, round_trip, NULL, "splits: written and read");
    for (size_t i = 0; i < sizeof gallery / sizeof *gallery; i++)
        tn_test_add(l, refused, &gallery[i], "splits: refuses %s", gallery[i].name);
    tn_test_add(l, no_memory, NULL, "splits: no memory");
}
