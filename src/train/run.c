/* Making a run's directory and its files. */
#include "train/run.h"

#include "base/fs.h"
#include "io/safetensors.h"
#include "io/yaml_settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static tn_status write_config(const tn_settings *st, const char *dir)
{
    tn_status s = TN_OK;
    char path[TN_RUN_PATH], *text = NULL;
    size_t bytes = 0;
    TN_RETURN_IF(tn_path_join(dir, "config.yaml", path, sizeof path));
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return tn_error(TN_MEMORY, "out of memory while writing %s", path);
    s = tn_settings_write_yaml(st, f);
    if (fclose(f) != 0 && s == TN_OK) s = tn_error(TN_MEMORY, "out of memory while writing %s", path);
    if (s == TN_OK) s = tn_file_write_atomic(path, text, bytes);
    free(text);
    return s;
}

/* mkdir decides who gets a name, so that two runs started at once never share one. */
static tn_status first_free(const char *model, char dir[TN_RUN_PATH])
{
    const char *base = strrchr(model, '/') ? strrchr(model, '/') + 1 : model;
    const int length = (int)strcspn(base, ".");
    TN_RETURN_IF(tn_dir_make("runs"));
    for (int n = 1; n < 100000; n++) {
        snprintf(dir, TN_RUN_PATH, "runs/%.*s-%d", length, base, n);
        if (mkdir(dir, 0777) == 0) return TN_OK;
        if (errno != EEXIST) return tn_error(TN_DISK, "cannot make %s: %s", dir, strerror(errno));
    }
    return tn_error(TN_DISK, "runs/ is full of runs of %s: remove some, or name one with run=DIR", model);
}

/* Nothing that somebody trained is overwritten by accident. */
static tn_status refuse_existing(const char *dir)
{
    char path[TN_RUN_PATH];
    struct stat info;
    TN_RETURN_IF(tn_path_join(dir, "metrics.jsonl", path, sizeof path));
    if (stat(path, &info) != 0) return TN_OK;
    return tn_error(TN_USAGE, "run: %s holds a run already: name another one, or start it over with --fresh", dir);
}

tn_status tn_run_create(const tn_settings *st, const char *model, bool fresh, char dir[TN_RUN_PATH])
{
    const char *named = tn_settings_text(st, "run");
    if (!named[0]) {
        TN_RETURN_IF(first_free(model, dir));
    } else {
        if (snprintf(dir, TN_RUN_PATH, "%s", named) >= TN_RUN_PATH) return tn_error(TN_USAGE, "run: the path is too long");
        if (!fresh) TN_RETURN_IF(refuse_existing(dir));
        const tn_status made = tn_dir_make(dir);
        if (made != TN_OK) {
            tn_error_prefix("run");
            return made;
        }
    }
    return write_config(st, dir);
}

tn_status tn_run_save_weights(const char *dir, const tn_store *st)
{
    tn_status s = TN_OK;
    char path[TN_RUN_PATH];
    tn_safetensors_writer *w = NULL;
    TN_TRY(tn_path_join(dir, "model.safetensors", path, sizeof path));
    TN_TRY(tn_safetensors_writer_begin(path, NULL, 0, &w));
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (e->role == TN_ROLE_PARAM) TN_TRY(tn_safetensors_writer_declare(w, e->name, e->dtype, e->dims));
    }
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        const size_t bytes = (size_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype);
        if (e->role == TN_ROLE_PARAM) TN_TRY(tn_safetensors_writer_put(w, e->name, e->data, bytes));
    }
    s = tn_safetensors_writer_finish(w);
    w = NULL;
done:
    tn_safetensors_writer_abort(w);
    return s;
}
