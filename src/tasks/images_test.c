/* Image sets: the real digits and MNIST against their known counts, and made files of all three formats: what is read, how the
 * splits lie, and one clear message for each way in which a file can be wrong. */
#include "task_sets.h"

#include <zlib.h>

static const char *words_for(const char *data, const char *more)
{
    static char words[1200];
    snprintf(words, sizeof words, "task.data=%s %s", data, more);
    return words;
}

/* --- the real ones --------------------------------------------------------------------------------------------------------- */

static void check_counts(const tn_samples *s, int64_t from, int64_t to, const int64_t *known)
{
    int64_t count[10] = { 0 };
    for (int64_t i = from; i < to; i++) count[s->y[i]]++;
    for (int c = 0; c < 10; c++) assert_int_equal(count[c], known[c]);
}

static void real_digits(void **state)
{
    (void)state;
    static const int64_t known[] = { 178, 182, 177, 183, 181, 182, 181, 179, 174, 180 };
    static const uint8_t head[] = { 0, 0, 5, 13, 9, 1, 0, 0, 0, 0, 13, 15, 10, 15, 5, 0 };
    int64_t ink = 0;
    float x[64];
    const char *folder = tn_test_data("images/digits"), *path;
    if (!folder) return;
    tn_samples *s = tn_task_set("digits", words_for(folder, ""));
    assert_true(s->n == 1797 && s->tokens == 1 && s->features == 64 && s->labels == 1 && s->classes == 10);
    check_counts(s, 0, s->n, known);
    for (int64_t i = 0; i < s->n * 64; i++) ink += s->x_u8[i];
    assert_int_equal(ink, 561718);
    assert_memory_equal(s->x_u8, head, sizeof head);
    tn_samples_read(s, 0, x);
    assert_true(x[3] == 13.0f / 16 && s->y[0] == 0 && s->y[1796] == 8);
    tn_task_set_check(s, true);
    assert_true(s->count[TN_TRAIN] == 1077 && s->count[TN_VALID] == 360 && s->count[TN_TEST] == 360);
    for (int c = 0; c < 10; c++)
        for (int k = TN_VALID; k <= TN_TEST; k++) assert_in_range(tn_task_class_count(s, k, c), 35, 37);
    tn_samples_free(s);
    path = tn_test_data("images/digits/digits.csv.gz");
    s = tn_task_set("digits", words_for(path, "task.valid_frac=0"));
    assert_true(s->count[TN_TRAIN] == 1437 && s->count[TN_VALID] == 0 && s->count[TN_TEST] == 360);
    tn_samples_free(s);
}

static void real_mnist(void **state)
{
    (void)state;
    static const int64_t train[] = { 5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949 };
    static const int64_t test[] = { 980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009 };
    int64_t ink[2] = { 0 };
    const char *folder = tn_test_data("images/mnist");
    if (!folder) return;
    tn_samples *s = tn_task_set("mnist", words_for(folder, ""));
    assert_true(s->n == 70000 && s->tokens == 1 && s->features == 784 && s->labels == 1 && s->classes == 10 &&
                s->x_u8 && !s->x_f32);
    check_counts(s, 0, 60000, train);
    check_counts(s, 60000, 70000, test);
    assert_true(s->y[0] == 5 && s->y[60000] == 7 && s->scale == 1.0f / 255);
    for (int64_t i = 0; i < s->n * 784; i++) ink[i >= 60000 * 784] += s->x_u8[i];
    assert_true(ink[0] == 1567298545 && ink[1] == 264923200);
    tn_task_set_check(s, true);
    assert_true(s->count[TN_TRAIN] == 48000 && s->count[TN_VALID] == 12000 && s->count[TN_TEST] == 10000);
    for (int64_t i = 0; i < 10000; i++) assert_int_equal(s->index[TN_TEST][i], 60000 + i);
    for (int c = 0; c < 10; c++) { /* a fifth of each, rounded down or up */
        const int64_t n = tn_task_class_count(s, TN_VALID, c);
        assert_in_range(n, train[c] / 5, train[c] / 5 + 1);
    }
    tn_samples_free(s);
}

/* --- made files -------------------------------------------------------------------------------------------------------------- */

/* As it is, or packed where the name ends in .gz. */
static void put(const char *path, const void *data, size_t bytes)
{
    const size_t n = strlen(path);
    if (n < 3 || strcmp(path + n - 3, ".gz") != 0) {
        tn_put_file(path, data, bytes);
        return;
    }
    gzFile gz = gzopen(path, "wb");
    assert_true(gz && gzwrite(gz, data, (unsigned)bytes) == (int)bytes);
    assert_int_equal(gzclose(gz), Z_OK);
}

enum { TRAIN = 20, TEST = 10 };

static uint8_t pixel(int64_t row, int64_t i) { return (uint8_t)(row * 31 + i * 7); }

/* An IDX file of n images of side x SIDE, or of n labels with side 0. */
static void put_idx(const char *path, uint8_t type, uint32_t n, int side, int64_t first_row)
{
    static uint8_t file[16 + TRAIN * 784];
    const uint8_t dims[] = { 0, 0, type, side ? 3 : 1, 0, 0, (uint8_t)(n >> 8), (uint8_t)n, 0, 0, 0, 28,
                             0, 0, 0,    (uint8_t)side };
    const size_t head = side ? 16 : 8, per = side ? 28 * (size_t)side : 1;
    memcpy(file, dims, head);
    for (int64_t i = 0; i < (int64_t)(n * per); i++)
        file[(int64_t)head + i] =
            (uint8_t)(side ? pixel(first_row + i / (int64_t)per, i % (int64_t)per) : (first_row + i) % 10);
    put(path, file, head + n * per);
}

static void put_mnist(tn_tempdir *d, const char *ending)
{
    static const struct {
        const char *name;
        uint32_t n;
        int side;
        int64_t first;
    } files[] = { { "train-images-idx3-ubyte", TRAIN, 28, 0 },
                  { "train-labels-idx1-ubyte", TRAIN, 0, 0 },
                  { "t10k-images-idx3-ubyte", TEST, 28, TRAIN },
                  { "t10k-labels-idx1-ubyte", TEST, 0, TRAIN } };
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", files[i].name, ending);
        put_idx(tn_tempdir_file(d, name), 8, files[i].n, files[i].side, files[i].first);
    }
}

static void made_mnist(void **state)
{
    const char *ending = *state;
    tn_tempdir d;
    tn_tempdir_make(&d);
    put_mnist(&d, ending);
    tn_samples *s = tn_task_set("mnist", words_for(d.path, "task.valid_frac=0.1"));
    assert_int_equal(s->n, TRAIN + TEST);
    for (int64_t row = 0; row < s->n; row++) {
        assert_int_equal(s->y[row], row % 10);
        for (int64_t i = 0; i < 784; i++) assert_int_equal(s->x_u8[row * 784 + i], pixel(row, i));
    }
    tn_task_set_check(s, true);
    assert_true(s->count[TN_TRAIN] == 18 && s->count[TN_VALID] == 2 && s->count[TN_TEST] == TEST);
    tn_samples_free(s);
    tn_tempdir_clear(&d);
}

#define BYTES(text) text, sizeof text - 1

typedef struct wrong {
    const char *name, *file; /* the file that is replaced, or removed where data is NULL */
    const char *data;
    size_t bytes;
    const char *says;
} wrong;

static const wrong mnist_gallery[] = {
    { "no training images", "train-images-idx3-ubyte", NULL, 0,
      "contains no train-images-idx3-ubyte: task=mnist needs" },
    { "no test labels", "t10k-labels-idx1-ubyte", NULL, 0, "download: " },
    { "an empty file", "train-images-idx3-ubyte", BYTES(""), "ends inside its header" },
    { "a text", "train-images-idx3-ubyte", BYTES("<html>404</html>"), "is not an IDX file" },
    { "images that are cut", "train-images-idx3-ubyte", BYTES("\0\0\x08\x03\0\0\0\x14\0\0\0\x1c\0\0\0\x1c pixels"),
      "cut short, download it again" },
    { "images of 28 x 27", "train-images-idx3-ubyte", BYTES("\0\0\x08\x03\0\0\0\x14\0\0\0\x1c\0\0\0\x1b pixels"),
      "does not contain images of 28 x 28" },
    { "images of floats", "train-images-idx3-ubyte", BYTES("\0\0\x0d\x03\0\0\0\x14\0\0\0\x1c\0\0\0\x1c pixels"),
      "does not contain images of 28 x 28" },
    { "labels for images", "train-images-idx3-ubyte", BYTES("\0\0\x08\x01\0\0\0\x02\x01\x02"),
      "does not contain images of 28 x 28" },
    { "images for labels", "train-labels-idx1-ubyte", BYTES("\0\0\x08\x03\0\0\0\x14\0\0\0\x1c\0\0\0\x1c pixels"),
      "does not contain a byte per label" },
    { "too few labels", "train-labels-idx1-ubyte", BYTES("\0\0\x08\x01\0\0\0\x02\x01\x02"), "has 20 images and" },
    { "labels that are cut", "t10k-labels-idx1-ubyte", BYTES("\0\0\x08\x01\0\0\0\x0a\x01\x02"),
      "cut short, download it again" },
    { "labels that go on", "t10k-labels-idx1-ubyte", BYTES("\0\0\x08\x01\0\0\0\x0a\0\0\0\0\0\0\0\0\0\0\0"),
      "goes on after the last" },
    { "a label of 10", "t10k-labels-idx1-ubyte", BYTES("\0\0\x08\x01\0\0\0\x0a\0\0\0\x0a\0\0\0\0\0\0"),
      "label 3 is 10, the classes are 0..9" },
    { "sizes that overflow", "train-images-idx3-ubyte",
      BYTES("\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "is the file damaged?" },
    { "billions of images", "train-images-idx3-ubyte", BYTES("\0\0\x08\x03\xff\xff\xff\xff\0\0\0\x1c\0\0\0\x1c"),
      "do not belong together" },
};

static void mnist_refused(void **state)
{
    const wrong *w = *state;
    tn_tempdir d;
    tn_samples *s = NULL;
    tn_tempdir_make(&d);
    put_mnist(&d, "");
    const char *path = tn_tempdir_file(&d, w->file);
    if (w->data) tn_put_file(path, w->data, w->bytes);
    else assert_int_equal(remove(path), 0);
    assert_fails(tn_task_try("mnist", words_for(d.path, ""), &s), TN_BAD_FILE, w->says);
    assert_non_null(strstr(tn_error_text(), w->data ? w->file : d.path));
    tn_tempdir_clear(&d);
}

/* Headers of both files agree on a million images that neither has; and packed files whose end is missing. */
static void mnist_promises(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_samples *s = NULL;
    tn_tempdir_make(&d);
    put_mnist(&d, "");
    tn_put_file(tn_tempdir_file(&d, "train-images-idx3-ubyte"), "\0\0\x08\x03\0\x0f\x42\x40\0\0\0\x1c\0\0\0\x1c", 16);
    tn_put_file(tn_tempdir_file(&d, "train-labels-idx1-ubyte"), "\0\0\x08\x01\0\x0f\x42\x40", 8);
    assert_fails(tn_task_try("mnist", words_for(d.path, ""), &s), TN_BAD_FILE,
                 "claims 784000000 bytes of samples in a file of 16");
    put_mnist(&d, ".gz");
    const char *packed = tn_tempdir_file(&d, "t10k-images-idx3-ubyte.gz");
    static const char *const plain[] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                         "t10k-labels-idx1-ubyte" };
    for (int i = 0; i < 4; i++) assert_int_equal(remove(tn_tempdir_file(&d, plain[i])), 0);
    assert_int_equal(truncate(packed, 100), 0);
    assert_fails(tn_task_try("mnist", words_for(d.path, ""), &s), TN_BAD_FILE, "t10k-images-idx3-ubyte.gz");
    assert_non_null(strstr(tn_error_text(), "download it again"));
    tn_tempdir_clear(&d);
}

static void places(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_samples *s = NULL;
    static const char *const names[] = { "digits", "mnist", "cifar10" };
    tn_tempdir_make(&d);
    const char *file = tn_tempdir_file(&d, "file");
    tn_put_text(file, "1,2\n");
    for (int i = 0; i < 3; i++) {
        char says[64];
        snprintf(says, sizeof says, "task=%s needs its files: give task.data=FOLDER", names[i]);
        assert_fails(tn_task_try(names[i], "", &s), TN_USAGE, says);
        assert_fails(tn_task_try(names[i], words_for("/nowhere/at/all", ""), &s), TN_BAD_FILE, "/nowhere/at/all");
        assert_fails(tn_task_try(names[i], words_for(d.path, ""), &s), TN_BAD_FILE, "download: ");
        if (i > 0) assert_fails(tn_task_try(names[i], words_for(file, ""), &s), TN_USAGE, "is not a folder");
    }
    assert_null(s);
    tn_tempdir_clear(&d);
}

/* --- digits ---------------------------------------------------------------------------------------------------------------- */

/* n rows, one after the other of the ten digits; `change` replaces the text of one field of one row. */
static size_t digits_text(char *to, int n, int row, int field, const char *change)
{
    size_t at = 0;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 65; i++) {
            char number[16];
            snprintf(number, sizeof number, "%d", i < 64 ? (r + i) % 17 : r % 10);
            at += (size_t)sprintf(to + at, "%s%s", r == row && i == field ? change : number, i < 64 ? "," : "\n");
        }
    return at;
}

static void made_digits(void **state)
{
    const char *name = *state;
    static char text[20000];
    tn_tempdir d;
    tn_tempdir_make(&d);
    put(tn_tempdir_file(&d, name), text, digits_text(text, 50, -1, 0, ""));
    tn_samples *s = tn_task_set("digits", words_for(d.path, ""));
    assert_int_equal(s->n, 50);
    for (int64_t r = 0; r < 50; r++) {
        assert_int_equal(s->y[r], r % 10);
        for (int64_t i = 0; i < 64; i++) assert_int_equal(s->x_u8[64 * r + i], (r + i) % 17);
    }
    for (int c = 0; c < 10; c++)
        assert_true(tn_task_class_count(s, TN_TRAIN, c) == 3 && tn_task_class_count(s, TN_VALID, c) == 1 &&
                    tn_task_class_count(s, TN_TEST, c) == 1);
    tn_samples_free(s);
    tn_tempdir_clear(&d);
}

typedef struct table_wrong {
    const char *name;
    int row, field;
    const char *change, *says;
} table_wrong;

static const table_wrong digits_gallery[] = {
    { "too much ink", 3, 5, "17", "row 4: field 6 is 17, not an integer of 0..16" },
    { "half a pixel", 3, 5, "1.5", "row 4: field 6 is 1.5" },
    { "less than no ink", 0, 0, "-1", "row 1: field 1 is -1" },
    { "a digit of 10", 9, 64, "10", "row 10: field 65 is 10, not an integer of 0..9" },
    { "a huge number", 9, 64, "1e300", "row 10: field 65 is 1e+300" },
    { "a word", 3, 5, "ink", "field 6 is not a finite number" },
    { "a field more", 3, 5, "1,1", "66 fields, the first line has 65" },
    { "too many columns", 0, 5, "1,1", "has 66 columns instead of 64 pixels and a digit" },
};

static void digits_refused(void **state)
{
    const table_wrong *w = *state;
    static char text[20000];
    tn_tempdir d;
    tn_samples *s = NULL;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "digits.csv");
    tn_put_file(path, text, digits_text(text, 20, w->row, w->field, w->change));
    assert_fails(tn_task_try("digits", words_for(path, ""), &s), TN_BAD_FILE, w->says);
    assert_non_null(strstr(tn_error_text(), path));
    tn_tempdir_clear(&d);
}

static void digits_cut(void **state)
{
    (void)state;
    static char text[20000];
    tn_tempdir d;
    tn_samples *s = NULL;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "digits.csv.gz"), *empty = tn_tempdir_file(&d, "empty.csv");
    const size_t n = digits_text(text, 20, -1, 0, "");
    put(path, text, n - 20); /* the last line lacks fields */
    assert_fails(tn_task_try("digits", words_for(path, ""), &s), TN_BAD_FILE, "the first line has 65");
    put(path, text, n);
    assert_int_equal(truncate(path, 80), 0);
    assert_fails(tn_task_try("digits", words_for(path, ""), &s), TN_BAD_FILE, "download it again");
    tn_put_text(empty, "\n\n");
    assert_fails(tn_task_try("digits", words_for(empty, ""), &s), TN_BAD_FILE, "contains no rows");
    text[0] = 'a'; /* a heading, and nothing below it */
    tn_put_file(empty, text, (size_t)(strchr(text, '\n') - text));
    assert_fails(tn_task_try("digits", words_for(empty, ""), &s), TN_BAD_FILE, "contains no rows; download it again");
    tn_tempdir_clear(&d);
}

static void no_memory(void **state)
{
    (void)state;
    static char text[20000];
    tn_tempdir d;
    tn_samples *s = NULL;
    tn_tempdir_make(&d);
    tn_put_file(tn_tempdir_file(&d, "digits.csv"), text, digits_text(text, 30, -1, 0, ""));
    put_mnist(&d, "");
    static const char *const names[] = { "digits", "mnist" };
    for (int i = 0; i < 2; i++) {
        tn_settings *st = tn_task_settings_of(words_for(d.path, ""));
        for (uint64_t n = 1;; n++) {
            tn_alloc_fail_at(n);
            const tn_status r = tn_task_named(names[i])->open(st, &s);
            tn_alloc_fail_at(0);
            if (r == TN_OK) break;
            assert_true(r == TN_MEMORY && n < 40 && s == NULL);
        }
        tn_samples_free(s);
        s = NULL;
        tn_settings_free(st);
    }
    tn_tempdir_clear(&d);
}

/* --- CIFAR-10 ---------------------------------------------------------------------------------------------------------------- */

enum { RECORD = 3073 };

static const char *batch_name(int i, const char *ending)
{
    static char name[64];
    if (i < 5) snprintf(name, sizeof name, "data_batch_%d.bin%s", i + 1, ending);
    else snprintf(name, sizeof name, "test_batch.bin%s", ending);
    return name;
}

/* 4 images in each of the five files, 10 in the last. */
static void put_cifar(tn_tempdir *d, const char *folder, const char *ending)
{
    static uint8_t file[10 * RECORD];
    for (int b = 0; b < 6; b++) {
        const int n = b < 5 ? 4 : 10;
        char path[512];
        for (int r = 0; r < n; r++) {
            file[r * RECORD] = (uint8_t)((4 * b + r) % 10);
            for (int i = 0; i < RECORD - 1; i++) file[r * RECORD + 1 + i] = pixel(4 * b + r, i);
        }
        snprintf(path, sizeof path, "%s/%s%s", d->path, folder, batch_name(b, ending));
        put(path, file, (size_t)n * RECORD);
    }
}

static void made_cifar(void **state)
{
    const char *ending = *state;
    tn_tempdir d;
    char sub[400];
    tn_tempdir_make(&d);
    snprintf(sub, sizeof sub, "%s/cifar-10-batches-bin", d.path);
    if (*ending) assert_int_equal(mkdir(sub, 0777), 0); /* the packed ones as they come out of the archive */
    put_cifar(&d, *ending ? "cifar-10-batches-bin/" : "", ending);
    tn_samples *s = tn_task_set("cifar10", words_for(d.path, ""));
    assert_true(s->n == 30 && s->features == 3072 && s->tokens == 1 && s->classes == 10 && s->scale == 1.0f / 255);
    for (int64_t r = 0; r < 30; r++) {
        assert_int_equal(s->y[r], r % 10);
        for (int64_t i = 0; i < 3072; i++) assert_int_equal(s->x_u8[r * 3072 + i], pixel(r, i));
    }
    tn_task_set_check(s, true);
    assert_true(s->count[TN_TRAIN] == 16 && s->count[TN_VALID] == 4 && s->count[TN_TEST] == 10 &&
                s->index[TN_TEST][0] == 20);
    tn_samples_free(s);
    tn_tempdir_clear(&d);
}

static void cifar_refused(void **state)
{
    (void)state;
    static uint8_t file[2 * RECORD];
    tn_tempdir d;
    tn_samples *s = NULL;
    tn_tempdir_make(&d);
    put_cifar(&d, "", "");
    const char *third = tn_tempdir_file(&d, "data_batch_3.bin");
    assert_int_equal(truncate(third, 4 * RECORD - 1), 0);
    assert_fails(tn_task_try("cifar10", words_for(d.path, ""), &s), TN_BAD_FILE,
                 "data_batch_3.bin is not a file of 3073-byte records");
    assert_non_null(strstr(tn_error_text(), "3072 bytes are left over"));
    file[RECORD] = 10;
    tn_put_file(third, file, sizeof file);
    assert_fails(tn_task_try("cifar10", words_for(d.path, ""), &s), TN_BAD_FILE,
                 "the label of image 1 is 10, the classes are 0..9");
    tn_put_file(third, "", 0);
    assert_fails(tn_task_try("cifar10", words_for(d.path, ""), &s), TN_BAD_FILE, "data_batch_3.bin is empty");
    assert_int_equal(remove(third), 0);
    assert_fails(tn_task_try("cifar10", words_for(d.path, ""), &s), TN_BAD_FILE, "contains no data_batch_3.bin");
    assert_null(s);
    tn_tempdir_clear(&d);
}

/* --- damage at random ---------------------------------------------------------------------------------------------------- */

typedef struct victim {
    const char *task, *file;
} victim;

static const victim victims[] = {
    { "mnist", "train-images-idx3-ubyte" },    { "mnist", "t10k-labels-idx1-ubyte" },
    { "mnist", "train-labels-idx1-ubyte.gz" }, { "digits", "digits.csv" },
    { "cifar10", "data_batch_2.bin" },         { "digits", "split.json" },
};

/* Bytes changed, most of them near the beginning, or an end that is missing. */
static size_t damage(unsigned char *file, size_t bytes, tn_rng r)
{
    const size_t changes = tn_rng_below(r, 0, 4);
    if (changes == 0) return tn_rng_below(r, 1, bytes);
    for (size_t i = 0; i < changes; i++) {
        const size_t reach = tn_rng_below(r, 10 + i, 2) ? bytes : bytes < 24 ? bytes : 24;
        file[tn_rng_below(r, 20 + i, reach)] = (unsigned char)tn_rng_below(r, 30 + i, 256);
    }
    return bytes;
}

/* Whatever is in a file, the answer is a set that keeps its promises or an error that names a file. */
static void damaged(void **state)
{
    const victim *v = *state;
    static char text[20000];
    tn_tempdir d;
    char words[600];
    size_t bytes;
    tn_tempdir_make_quick(&d);
    put_mnist(&d, strstr(v->file, ".gz") ? ".gz" : "");
    put_cifar(&d, "", "");
    tn_put_file(tn_tempdir_file(&d, "digits.csv"), text, digits_text(text, 40, -1, 0, ""));
    tn_put_text(tn_tempdir_file(&d, "split.json"),
                "{\"samples\":40,\"train\":[1,2,30,39],\"valid\":[0,3],\"test\":[7,9]}");
    const char *path = tn_tempdir_file(&d, v->file), *split = tn_tempdir_file(&d, "split.json");
    if (strcmp(v->file, "split.json") == 0) snprintf(words, sizeof words, "task.data=%s task.split=%s", d.path, split);
    else snprintf(words, sizeof words, "task.data=%s", d.path);
    char *file = NULL;
    assert_ok(tn_file_read_all(path, 1 << 20, &file, &bytes));
    unsigned char *copy = tn_alloc(bytes);
    for (uint64_t i = 0; i < 200; i++) {
        tn_samples *s = NULL;
        memcpy(copy, file, bytes);
        tn_put_file(path, copy, damage(copy, bytes, (tn_rng){ i, tn_rng_stream(v->file) }));
        const tn_status r = tn_task_try(v->task, words, &s);
        if (r == TN_OK) tn_task_set_check(s, false);
        else
            assert_true((r == TN_BAD_FILE || r == TN_USAGE) && s == NULL &&
                        strstr(tn_error_text(), r == TN_USAGE ? "task." : d.path));
        tn_samples_free(s);
    }
    tn_free(copy);
    tn_free(file);
    tn_tempdir_clear(&d);
}

void tn_tests_images(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof victims / sizeof *victims; i++)
        tn_test_add(l, damaged, &victims[i], "images: %s with a damaged %s", victims[i].task, victims[i].file);
    tn_test_add(l, real_digits, NULL, "images: the digits");
    tn_test_add(l, real_mnist, NULL, "images: MNIST");
    tn_test_add(l, made_mnist, "", "images: mnist files");
    tn_test_add(l, made_mnist, ".gz", "images: mnist files, packed");
    for (size_t i = 0; i < sizeof mnist_gallery / sizeof *mnist_gallery; i++)
        tn_test_add(l, mnist_refused, &mnist_gallery[i], "images: mnist refuses %s", mnist_gallery[i].name);
    tn_test_add(l, mnist_promises, NULL, "images: mnist refuses empty promises and cut packs");
    tn_test_add(l, places, NULL, "images: where the files are");
    tn_test_add(l, made_digits, "digits.csv", "images: a table of digits");
    tn_test_add(l, made_digits, "optdigits.tes.gz", "images: a table of digits, packed");
    for (size_t i = 0; i < sizeof digits_gallery / sizeof *digits_gallery; i++)
        tn_test_add(l, digits_refused, &digits_gallery[i], "images: digits refuses %s", digits_gallery[i].name);
    tn_test_add(l, digits_cut, NULL, "images: digits refuses files that are cut");
    tn_test_add(l, no_memory, NULL, "images: no memory");
    tn_test_add(l, made_cifar, "", "images: cifar10 files");
    tn_test_add(l, made_cifar, ".gz", "images: cifar10 files, packed");
    tn_test_add(l, cifar_refused, NULL, "images: cifar10 refuses");
}
