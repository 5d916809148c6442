/* Text that is prepared once, and images that nobody has. */
#include "report/ablate/scratch.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "data/prepare.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BYTES = 32 << 20, IMAGES = 512, SIDE = 28, CLASSES = 10, DIGIT_SIDE = 8, DIGIT_LEVELS = 17 };

static bool is_own(const char *name, mode_t mode)
{
    (void)name, (void)mode;
    return true;
}

void tn_ablate_sweep(const char *dir) { (void)tn_tree_remove(dir, "", is_own); }

/* --- text ---------------------------------------------------------------------------------------------------------------------- */

static tn_status prepare(const char *data, const char *path)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    tn_prepare_report report;
    TN_TRY(tn_prepare_settings(&st));
    TN_TRY(tn_settings_set(st, "out", path, "tenon ablate"));
    TN_TRY(tn_prepare_run(&(tn_prepare){ .inputs = &data, .n = 1, .settings = st }, &report));
done:
    tn_settings_free(st);
    return s;
}

tn_status tn_ablate_prepare(const tn_settings *st, const char *dir, char path[TN_PATH_BYTES])
{
    struct stat info;
    const char *data = tn_settings_text(st, "data");
    path[0] = 0;
    if (!data[0] || tn_settings_text(st, "tokenizer")[0] || stat(data, &info) != 0) return TN_OK;
    if (!S_ISREG(info.st_mode) || info.st_size > MOST_BYTES) return TN_OK;
    TN_RETURN_IF(tn_path_join(dir, "prepared", path, TN_PATH_BYTES));
    const tn_status s = prepare(data, path);
    if (s != TN_OK) path[0] = 0;
    return s == TN_USAGE || s == TN_BAD_FILE ? TN_OK : s; /* a row less */
}

/* --- images --------------------------------------------------------------------------------------------------------------------- */

static void put_big(FILE *f, uint32_t x)
{
    for (int shift = 24; shift >= 0; shift -= 8) (void)fputc((int)(x >> shift & 255), f);
}

/* An IDX file: images, or their labels. A class has its own bright square, so that there is something to learn. */
static void put_idx(FILE *f, bool labels, uint64_t stream)
{
    const tn_rng rng = { .seed = 11, .stream = stream };
    put_big(f, labels ? 0x801 : 0x803);
    put_big(f, IMAGES);
    for (int i = 0; i < 2 && !labels; i++) put_big(f, SIDE);
    for (int i = 0; i < IMAGES; i++) {
        const int class = i % CLASSES;
        for (int k = 0; k < SIDE * SIDE && !labels; k++) {
            const bool bright = k / SIDE / 6 == class / 4 && k % SIDE / 7 == class % 4;
            const double x = (double)tn_rng_uniform(rng, (uint64_t)(i * SIDE * SIDE + k));
            (void)fputc((int)(x * (bright ? 255 : 64)), f);
        }
        if (labels) (void)fputc(class, f);
    }
}

static void put_images(FILE *f) { put_idx(f, false, 1); }
static void put_labels(FILE *f) { put_idx(f, true, 1); }

/* Lines of 64 numbers from 0 to 16 and a label. */
static void put_digits(FILE *f)
{
    const tn_rng rng = { .seed = 11, .stream = 2 };
    for (int i = 0; i < IMAGES; i++) {
        for (int k = 0; k < DIGIT_SIDE * DIGIT_SIDE; k++) {
            const double x = (double)tn_rng_uniform(rng, (uint64_t)(i * DIGIT_SIDE * DIGIT_SIDE + k));
            fprintf(f, "%d,", (int)(x * (k / 6 == i % CLASSES ? DIGIT_LEVELS : 4)));
        }
        fprintf(f, "%d\n", i % CLASSES);
    }
}

static const struct {
    const char *task, *file;
    void (*put)(FILE *f);
} files[] = { { "mnist", "train-images-idx3-ubyte", put_images },
              { "mnist", "train-labels-idx1-ubyte", put_labels },
              { "mnist", "t10k-images-idx3-ubyte", put_images },
              { "mnist", "t10k-labels-idx1-ubyte", put_labels },
              { "digits", "digits.csv", put_digits } };

static tn_status make_file(const char *dir, const char *name, void (*put)(FILE *f))
{
    char path[TN_PATH_BYTES];
    TN_RETURN_IF(tn_path_join(dir, name, path, sizeof path));
    FILE *f = fopen(path, "wb");
    if (f) put(f);
    bool bad = !f || ferror(f);
    if (f) bad |= fclose(f) != 0;
    return bad ? tn_error(TN_DISK, "cannot write %.600s: set TMPDIR to a folder with room", path) : TN_OK;
}

static bool is_for(const tn_settings *st, size_t i)
{
    if (tn_settings_find(st, "task.name") == tn_settings_count(st)) return false;
    return strcmp(tn_settings_text(st, "task.name"), files[i].task) == 0 && !tn_settings_text(st, "task.data")[0];
}

tn_status tn_ablate_make_images(tn_settings *st, const char *dir, bool *made)
{
    *made = false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (!is_for(st, i)) continue;
        TN_RETURN_IF(make_file(dir, files[i].file, files[i].put));
        *made = true;
    }
    return *made ? tn_settings_set(st, "task.data", dir, "tenon ablate") : TN_OK;
}
