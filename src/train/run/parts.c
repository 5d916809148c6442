/* Shapes and weights of parts from files. The weights are read by weights_load.c; nothing here is of a model but its rows. */
#include "train/run/parts.h"

#include "io/yaml_settings.h"
#include "train/run/saved_model.h"
#include "train/run/weights_hash.h"
#include "train/run/weights_load.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { KEY = 128 };

static bool has_key(const tn_settings *st, const char *key)
{
    return tn_settings_find(st, key) < tn_settings_count(st);
}

static tn_status check_rows(const tn_settings *st, const tn_model *m)
{
    if (m->n_parts > TN_PARTS_MAX)
        return tn_error(TN_USAGE, "model %s has more than %d parts of files", m->name, TN_PARTS_MAX);
    for (size_t i = 0; i < m->n_parts; i++) {
        const tn_part_row *row = &m->parts[i];
        const char *missing = !has_key(st, row->file)                  ? row->file
                              : row->shape && !has_key(st, row->shape) ? row->shape
                                                                       : NULL;
        if (missing)
            return tn_error(TN_USAGE,
                            "model %s, part %s: it has no setting %s: add it to its settings, or correct the row",
                            m->name, row->scope, missing);
    }
    return TN_OK;
}

/* --- the file -------------------------------------------------------------------------------------------------------------- */

/* Of the model itself. */
static tn_status check_own(const tn_settings *st, const tn_model *m, const tn_part_row *row, const char *path,
                           const tn_saved_model *f)
{
    if (strcmp(f->model->name, m->name) != 0)
        return tn_error(TN_USAGE, "%s=%.300s: is a model of type %s; it must be %s", row->file, path, f->model->name,
                        m->name);
    for (const char *const *key = row->same; key && *key; key++)
        if (strcmp(tn_settings_text(st, *key), tn_settings_text(f->settings, *key)) != 0)
            return tn_error(TN_USAGE, "%s=%.300s has %s=%s: set %s=%s here too", row->file, path, *key,
                            tn_settings_text(f->settings, *key), *key, tn_settings_text(f->settings, *key));
    return TN_OK;
}

static tn_status check_found(const tn_settings *st, const tn_model *m, const tn_part_row *row, const char *path,
                             const tn_saved_model *f)
{
    if (!row->shape) TN_RETURN_IF(check_own(st, m, row, path, f));
    else if (strcmp(f->model->name, "gpt") != 0)
        return tn_error(TN_USAGE, "%s=%.300s: is a model of type %s; a reader must be gpt", row->file, path,
                        f->model->name);
    if (!f->weights[0])
        return tn_error(TN_USAGE,
                        "%s=%.300s: has no weights: name a run, a checkpoint, a file or a folder that has; or leave it "
                        "empty%s%s, for first values",
                        row->file, path, row->shape ? " and set " : "", row->shape ? row->shape : "");
    if (f->note[0]) return tn_error(TN_BAD_FILE, "%s: %s", row->file, f->note); /* other weights than are meant */
    return TN_OK;
}

static tn_status find_file(const tn_settings *st, const tn_model *m, const tn_part_row *row, tn_saved_model *out)
{
    tn_saved_model f = { .weights = "" };
    const char *path = tn_settings_text(st, row->file);
    struct stat info;
    const tn_model *owner;
    const bool there = stat(path, &info) == 0 || tn_preset_named(path, &owner) || tn_model_named(path);
    tn_status s =
        there ? tn_saved_model_find(NULL, path, NULL, 0, "best", &f) : tn_fs_error(TN_BAD_FILE, ENOENT, "open", path);
    if (s != TN_OK) tn_error_prefix("%s", row->file);
    else s = check_found(st, m, row, path, &f);
    if (s == TN_OK) *out = f;
    else tn_saved_model_free(&f);
    return s;
}

/* --- shapes ---------------------------------------------------------------------------------------------------------------- */

static tn_status add_word(char text[TN_WEIGHTS_TEXT], const char *key, const char *value)
{
    const size_t at = strlen(text);
    if (strpbrk(value, " \t\r\n,"))
        return tn_error(TN_USAGE,
                        "its setting %s=%s contains a blank or a comma: it cannot be a word of a part's shape", key,
                        value);
    const int n = snprintf(text + at, TN_WEIGHTS_TEXT - at, "%s%s=%s", at ? " " : "", key, value);
    return n > 0 && (size_t)n < TN_WEIGHTS_TEXT - at ? TN_OK : tn_error(TN_USAGE, "its settings are too long");
}

/* What differs from the defaults, and its context. */
static tn_status list_shape(const tn_saved_model *f, char text[TN_WEIGHTS_TEXT])
{
    tn_status s = TN_OK;
    tn_settings *first = NULL;
    text[0] = 0;
    TN_TRY(tn_settings_new(&first));
    TN_TRY(tn_settings_add(first, f->model->settings, f->model->n_settings, f->model->name));
    for (size_t i = 0; i < tn_settings_count(first); i++) {
        const char *key = tn_settings_row_at(first, i)->key, *value = tn_settings_text(f->settings, key);
        if (strcmp(value, tn_settings_text_at(first, i)) != 0) TN_TRY(add_word(text, key, value));
    }
    TN_TRY(add_word(text, "train.context", tn_settings_text(f->settings, "train.context")));
done:
    tn_settings_free(first);
    return s;
}

/* The shape in the config.yaml of the run that `run` names, where that run has the same file; else "". */
static tn_status shape_of_run(const tn_settings *st, const tn_part_row *row, char text[TN_WEIGHTS_TEXT],
                              char config[TN_PATH_BYTES])
{
    tn_status s = TN_OK;
    tn_settings *old = NULL;
    struct stat info;
    const char *run = tn_settings_text(st, "run"), *const keys[] = { row->file, row->shape };
    text[0] = 0;
    if (!run[0]) return TN_OK;
    TN_TRY(tn_path_join(run, "config.yaml", config, TN_PATH_BYTES));
    if (stat(config, &info) != 0) goto done;
    TN_TRY(tn_settings_new(&old));
    for (size_t i = 0; i < 2; i++)
        TN_TRY(tn_settings_add(old, tn_settings_row_at(st, tn_settings_find(st, keys[i])), 1, "part"));
    TN_TRY(tn_settings_peek_yaml(old, config));
    const char *shape = tn_settings_text(old, row->shape);
    if (strcmp(tn_settings_text(old, row->file), tn_settings_text(st, row->file)) == 0 &&
        strlen(shape) < TN_WEIGHTS_TEXT)
        snprintf(text, TN_WEIGHTS_TEXT, "%s", shape);
done:
    tn_settings_free(old);
    return s;
}

static tn_status fill_shape(tn_settings *st, const tn_model *m, const tn_part_row *row)
{
    tn_saved_model f = { .weights = "" };
    struct stat info;
    char text[TN_WEIGHTS_TEXT], why[1024], config[TN_PATH_BYTES];
    tn_status s = find_file(st, m, row, &f);
    if (s == TN_OK) {
        s = list_shape(&f, text);
        if (s == TN_OK) s = tn_settings_set(st, row->shape, text, "%s", row->file);
        else tn_error_prefix("%s=%.300s", row->file, tn_settings_text(st, row->file));
        tn_saved_model_free(&f);
        return s;
    }
    if (stat(tn_settings_text(st, row->file), &info) == 0) return s;
    snprintf(why, sizeof why, "%s", tn_error_text());
    if (shape_of_run(st, row, text, config) == TN_OK && text[0])
        return tn_settings_set(st, row->shape, text, "%s", config);
    return tn_error(s,
                    "%s; a run that was made from it has its weights: name that run with run=RUN, or say with %s=PATH "
                    "where it is now",
                    why, row->file);
}

/* Sizes of the model's own file that nobody has set here: those that were set are compared when it is loaded. */
static tn_status take_sizes(tn_settings *st, const tn_model *m, const tn_part_row *row)
{
    tn_saved_model f = { .weights = "" };
    struct stat info;
    const char *path = tn_settings_text(st, row->file);
    if (!path[0] || stat(path, &info) != 0) return TN_OK; /* a run that goes on has its weights */
    tn_status s = tn_saved_model_find(NULL, path, NULL, 0, "best", &f);
    if (s == TN_OK && strcmp(f.model->name, m->name) == 0)
        for (const char *const *key = row->same; s == TN_OK && key && *key; key++)
            if (strcmp(tn_settings_source(st, *key), "default") == 0)
                s = tn_settings_set(st, *key, tn_settings_text(f.settings, *key), "%s", row->file);
    if (s != TN_OK) tn_error_prefix("%s", row->file);
    tn_saved_model_free(&f);
    return s;
}

tn_status tn_parts_resolve(tn_settings *st, const tn_model *m)
{
    TN_RETURN_IF(check_rows(st, m));
    for (size_t i = 0; i < m->n_parts; i++)
        if (!m->parts[i].shape) TN_RETURN_IF(take_sizes(st, m, &m->parts[i]));
    for (size_t i = 0; i < m->n_parts; i++)
        if (m->parts[i].shape && tn_settings_text(st, m->parts[i].file)[0] &&
            !tn_settings_text(st, m->parts[i].shape)[0])
            TN_RETURN_IF(fill_shape(st, m, &m->parts[i]));
    return TN_OK;
}

/* --- weights --------------------------------------------------------------------------------------------------------------- */

/* Sizes that no tensor shows, or that a file has more of: heads, layers. */
static tn_status compare_sizes(const tn_settings *st, const tn_part_row *row, const tn_saved_model *f,
                               const tn_settings *shape)
{
    for (size_t i = 0; i < f->model->n_settings; i++) {
        const tn_setting *size = &f->model->settings[i];
        const bool whole = size->type == TN_TYPE_INT || size->type == TN_TYPE_AUTO_INT;
        if (!whole || tn_settings_is_auto(shape, size->key) || tn_settings_is_auto(f->settings, size->key)) continue;
        if (tn_settings_int(shape, size->key) != tn_settings_int(f->settings, size->key))
            return tn_error(TN_USAGE,
                            "%s has %s=%s and %s=%.300s has %s=%s: leave %s empty, and it is filled from the file",
                            row->shape, size->key, tn_settings_text(shape, size->key), row->file,
                            tn_settings_text(st, row->file), size->key, tn_settings_text(f->settings, size->key),
                            row->shape);
    }
    return TN_OK;
}

/* The shape as it is set, against the file's. */
static tn_status check_shape(const tn_settings *st, const tn_part_row *row, const tn_saved_model *f)
{
    tn_status s = TN_OK;
    tn_settings *shape = NULL;
    tn_arena arena = { 0 };
    const char *const *words;
    TN_TRY(tn_words_split(&arena, tn_settings_text(st, row->shape), &words));
    TN_TRY(tn_settings_new(&shape));
    TN_TRY(tn_settings_add(shape, f->model->settings, f->model->n_settings, f->model->name));
    for (; *words; words++) {
        char key[KEY];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(*words, "="), *words);
        if (has_key(shape, key)) TN_TRY(tn_settings_set(shape, key, strchr(*words, '=') + 1, "%s", row->shape));
    }
    TN_TRY(compare_sizes(st, row, f, shape));
done:
    tn_settings_free(shape);
    tn_arena_free(&arena);
    return s;
}

static bool has_parameters(const tn_store *store, const tn_weights_part *p)
{
    for (size_t i = 0; i < tn_store_count(store); i++)
        if (tn_weights_part_name(p, tn_store_at(store, i))) return true;
    return false;
}

static tn_status open_part(const tn_settings *st, const tn_model *m, const tn_part_row *row, const tn_store *store,
                           tn_arena *arena, tn_weights_part *out)
{
    tn_saved_model f = { .weights = "" };
    TN_RETURN_IF(find_file(st, m, row, &f));
    tn_status s = row->shape ? check_shape(st, row, &f) : TN_OK;
    tn_weights_part p = {
        .path = tn_arena_strdup(arena, f.weights), .scope = row->scope, .but = row->rms, .own = !row->shape
    };
    tn_saved_model_free(&f);
    if (s == TN_OK && !p.path) s = tn_error(TN_MEMORY, "out of memory");
    if (s == TN_OK && !has_parameters(store, &p))
        s = tn_error(TN_USAGE,
                     "model %s has no parameters %s.NAME for %s: open the part under that scope, or leave %s empty",
                     m->name, row->scope, row->file, row->file);
    if (s == TN_OK) *out = p;
    return s;
}

/* --- looking at parameters ------------------------------------------------------------------------------------------------- */

static void add_squares(void *ctx, const float *x, int64_t n)
{
    double *sum = ctx;
    for (int64_t i = 0; i < n; i++) *sum += (double)x[i] * (double)x[i];
}

static tn_status set_rms(const tn_settings *st, const tn_model *m, const tn_part_row *row, const tn_store *store)
{
    char name[KEY];
    double sum = 0;
    snprintf(name, sizeof name, "%s.embed", row->scope);
    const tn_entry *to = tn_store_find(store, row->rms), *embed = tn_store_find(store, name);
    if (!(to && embed) && (row->optional || !tn_settings_text(st, row->file)[0])) return TN_OK; /* no such part */
    if (!to || !embed || tn_dims_count(to->dims) != 1 || !tn_dtype_is_float(to->dtype))
        return tn_error(TN_USAGE, "model %s, part %s: its root mean square needs %s, and %s of one number", m->name,
                        row->scope, name, row->rms);
    TN_RETURN_IF(tn_entry_numbers(store, embed, add_squares, &sum));
    const float rms = (float)sqrt(sum / (double)tn_dims_count(embed->dims));
    return tn_store_put(store, to, 0, 1, &rms, TN_F32);
}

tn_status tn_parts_load(const tn_settings *st, const tn_model *m, tn_store *store)
{
    tn_status s = TN_OK;
    tn_arena arena = { 0 };
    tn_weights_part part[TN_PARTS_MAX];
    size_t n = 0;
    char note[TN_CKPT_NOTE];
    if (!m->n_parts) return TN_OK;
    TN_TRY(check_rows(st, m));
    for (size_t i = 0; i < m->n_parts; i++) {
        const tn_part_row *row = &m->parts[i];
        const bool left_out = row->optional && !has_parameters(store, &(tn_weights_part){ .scope = row->scope });
        if (tn_settings_text(st, row->file)[0] && !left_out) TN_TRY(open_part(st, m, row, store, &arena, &part[n++]));
    }
    if (n) TN_TRY(tn_weights_load_parts(part, n, store, note));
    for (size_t i = 0; i < m->n_parts; i++)
        if (m->parts[i].rms) TN_TRY(set_rms(st, m, &m->parts[i], store));
done:
    tn_arena_free(&arena);
    return s;
}

/* --- hashes ---------------------------------------------------------------------------------------------------------------- */

static const char *name_in_part(const void *ctx, const tn_entry *e) { return tn_weights_part_name(ctx, e); }

/* "": it has no parameters. */
static tn_status hash_part(const tn_store *store, const tn_part_row *row, char hex[TN_HASH_BYTES])
{
    const tn_weights_part p = { .scope = row->scope, .but = row->rms };
    size_t n = 0;
    tn_hash *h;
    TN_RETURN_IF(tn_hash_begin(&h));
    const tn_status s = tn_weights_hash_add(store, name_in_part, &p, h, &n);
    tn_hash_text(h, hex);
    if (!n) hex[0] = 0;
    tn_hash_free(h);
    return s;
}

tn_status tn_parts_hash(tn_settings *st, const tn_model *m, const tn_store *store, bool again, bool *changed)
{
    *changed = false;
    for (size_t i = 0; i < m->n_parts; i++) {
        const tn_part_row *row = &m->parts[i];
        char key[KEY], hex[TN_HASH_BYTES];
        snprintf(key, sizeof key, "%s.hash", row->scope);
        if (!has_key(st, key) || (!again && tn_settings_text(st, key)[0])) continue;
        TN_RETURN_IF(hash_part(store, row, hex));
        if (strcmp(tn_settings_text(st, key), hex) == 0) continue;
        TN_RETURN_IF(tn_settings_set(st, key, hex, "weights"));
        *changed = true;
    }
    return TN_OK;
}
