/* Small files and data sets for the tests of src/data and src/io: made by code, so that none has to be stored. Header only. */
#ifndef TN_DATASET_FILES_H
#define TN_DATASET_FILES_H

#include "base/alloc.h"
#include "data/dataset.h"
#include "data/prepare.h"
#include "tempdir.h"

static inline void tn_put_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) fail_msg("cannot write %s", path);
}

static inline void tn_put_text(const char *path, const char *text) { tn_put_file(path, text, strlen(text)); }

static inline void tn_remove_all(const char *path)
{
    char inner[1100];
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (snprintf(inner, sizeof inner, "%s/%s", path, e->d_name) < (int)sizeof inner) tn_remove_all(inner);
    }
    if (dir) closedir(dir);
    assert_int_equal(remove(path), 0);
}

/* Removes the temporary folder with everything below it. */
static inline void tn_tempdir_clear(tn_tempdir *d) { tn_remove_all(d->path); }

/* Prepares `input` into `out` with settings "a=b c=d" (no spaces in values). */
static inline tn_status tn_prepare_try(const char *input, const char *out, const char *settings,
                                       tn_prepare_report *report)
{
    tn_settings *st = NULL;
    char text[4096], key[4200];
    tn_prepare_report r = { 0 };
    assert_ok(tn_prepare_settings(&st));
    snprintf(key, sizeof key, "out=%s", out);
    tn_status s = tn_settings_override(st, key);
    snprintf(text, sizeof text, "%s", settings);
    for (char *rest = text, *word; s == TN_OK && (word = strtok_r(rest, " ", &rest));)
        s = tn_settings_override(st, word);
    const tn_prepare p = { .inputs = &input, .n = 1, .settings = st };
    if (s == TN_OK) s = tn_prepare_run(&p, report ? report : &r);
    tn_settings_free(st);
    return s;
}

/* n documents of varied lengths, the i-th ends in a newline and holds its number; as .jsonl. */
static inline void tn_put_documents(const char *path, int n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < n; i++) {
        fprintf(f, "{\"text\":\"document %d:", i);
        for (int k = 0; k < (i * 37) % 61; k++) fprintf(f, " word%d", k * i % 97);
        fprintf(f, "\"}\n");
    }
    assert_int_equal(fclose(f), 0);
}

#endif
