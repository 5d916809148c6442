/* Finds a model on disk. Every way ends in the same settings table that training uses. */
#include "train/run/saved_model.h"
#include "train/source/task_setup.h"

#include "base/alloc.h"
#include "data/manifest.h"
#include "io/gguf.h"
#include "io/llama2c.h"
#include "io/tensor_file.h"
#include "train/run/checkpoint_convert.h"
#include "train/run/parts.h"
#include "train/run/weights_load.h"
#include "train/checkpoint/checkpoint.h"
#include "train/trainer/inputs.h"
#include "train/run/train_settings.h"
#include "train/checkpoint/weights_check.h"
#include "train/checkpoint/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { WORDS = 512 };

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool has_file(const char *dir, const char *name)
{
    char path[TN_PATH_BYTES];
    struct stat st;
    return tn_path_join(dir, name, path, sizeof path) == TN_OK && stat(path, &st) == 0;
}

/* --- settings --------------------------------------------------------------------------------------------------------- */

/* The metadata of a file of ours, and the type of its matrices. */
static tn_status read_metadata(const char *path, char *model, size_t model_bytes, char *text, size_t bytes,
                               tn_matrices *matrices)
{
    tn_tensors t = { 0 };
    TN_RETURN_IF(tn_tensors_open(path, &t));
    const char *format = NULL, *name = NULL, *settings = "";
    for (size_t i = 0; i < t.n_meta; i++) {
        if (strcmp(t.meta[i].key, "format") == 0) format = t.meta[i].value;
        if (strcmp(t.meta[i].key, "model") == 0) name = t.meta[i].value;
        if (strcmp(t.meta[i].key, "settings") == 0) settings = t.meta[i].value;
    }
    tn_status s = TN_OK;
    if (!format || strcmp(format, "tenon-model 1") != 0 || !name)
        s = tn_error(
            TN_BAD_FILE,
            "%.640s does not say which model it contains (metadata format \"tenon-model 1\"): name its run, its "
            "checkpoint's directory or its Hugging Face folder instead",
            path);
    else if (strlen(name) >= model_bytes || strlen(settings) >= bytes)
        s = tn_error(TN_BAD_FILE, "%.640s: the settings in its metadata are too long", path);
    else {
        snprintf(model, model_bytes, "%s", name);
        snprintf(text, bytes, "%s", settings);
        *matrices = tn_weights_matrices(&t);
    }
    tn_tensors_close(&t);
    return s;
}

/* What a file of weights says about itself: the model's name, settings ("dim=64 layers=2") in `text`, and its matrices. */
static tn_status weights_settings(const char *path, char model[TN_PATH_BYTES], char text[TN_WEIGHTS_TEXT],
                                  tn_matrices *matrices)
{
    tn_llama2c h;
    if (!ends_with(path, ".bin")) return read_metadata(path, model, TN_PATH_BYTES, text, TN_WEIGHTS_TEXT, matrices);
    TN_RETURN_IF(tn_llama2c_read(path, &h));
    (void)tn_llama2c_settings(&h, text, TN_WEIGHTS_TEXT);
    snprintf(model, TN_PATH_BYTES, "gpt");
    return TN_OK;
}

/* What lies beside weights: a tokenizer's file by its name. */
static bool is_tokenizer(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strcmp(name, "tokenizer.json") == 0 || ends_with(name, ".model") ||
           (strncmp(name, "tok", 3) == 0 && ends_with(name, ".bin"));
}

static bool is_model(const char *path) { return tn_is_weights_file(path) && !is_tokenizer(path); }

/* The one entry of a folder that `fits`; NULL: there is none, or several. */
static const char *only_entry(const char *dir, bool (*fits)(const char *path), char out[TN_PATH_BYTES])
{
    char path[TN_PATH_BYTES];
    size_t n = 0;
    DIR *d = opendir(*dir ? dir : ".");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.' || tn_path_join(dir, e->d_name, path, sizeof path) != TN_OK || !fits(path)) continue;
        memcpy(out, path, sizeof path);
        n++;
    }
    if (d) closedir(d);
    return n == 1 ? out : NULL;
}

bool tn_is_weights_file(const char *path)
{
    return tn_is_hf_folder(path) || ends_with(path, ".safetensors") || ends_with(path, ".safetensors.zst") ||
           ends_with(path, ".bin") || ends_with(path, ".gguf");
}

tn_status tn_weights_words(const char *path, tn_arena *arena, const char ***out, size_t *n, tn_matrices *matrices)
{
    char model[TN_PATH_BYTES], text[TN_WEIGHTS_TEXT];
    *matrices = (tn_matrices){ .type = TN_F32 };
    TN_RETURN_IF(weights_settings(path, model, text, matrices));
    const char **list = tn_arena_alloc(arena, WORDS * sizeof *list);
    size_t used = 0;
    if (!list) return tn_error(TN_MEMORY, "out of memory");
    list[used++] =
        tn_arena_printf(arena, "model=%s", model); /* as a word of its own it might be the name of a run's directory */
    for (char *rest = text, *word; (word = strtok_r(rest, " \n", &rest));) {
        if (used == WORDS) return tn_error(TN_BAD_FILE, "%.640s: its settings have more than %d words", path, WORDS);
        list[used++] = tn_arena_strdup(arena, word);
    }
    for (size_t i = 0; i < used; i++)
        if (!list[i]) return tn_error(TN_MEMORY, "out of memory");
    *out = list;
    *n = used;
    return TN_OK;
}

static tn_status find_file(const tn_user_args *user, const char *path, const char *const *overrides, size_t n,
                           tn_saved_model *m)
{
    tn_arena arena = { 0 };
    const char **said = NULL;
    size_t n_said = 0;
    tn_status s = tn_weights_words(path, &arena, &said, &n_said, &m->matrices);
    const tn_settings_from from = {
        .user = user, .file = path, .said = said, .n_said = n_said, .overrides = overrides, .n = n
    };
    if (s == TN_OK) s = tn_settings_resolve_from(&from, &m->settings, &m->model);
    tn_arena_free(&arena);
    TN_RETURN_IF(s);
    return tn_path_join("", path, m->weights, sizeof m->weights);
}

tn_status tn_saved_model_settings(const char *target, char out[TN_PATH_BYTES])
{
    if (has_file(target, "manifest.json")) return tn_path_join(target, "..", out, TN_PATH_BYTES);
    return tn_path_join("", target, out, TN_PATH_BYTES);
}

/* A run, or one of its checkpoints, whose settings are beside it. */
static tn_status find_run(const tn_user_args *user, const char *path, const char *const *overrides, size_t n,
                          const char *link, tn_saved_model *m)
{
    const bool checkpoint = has_file(path, "manifest.json");
    char why[1024], file[TN_PATH_BYTES];
    TN_RETURN_IF(tn_saved_model_settings(path, m->config));
    const bool run = has_file(m->config, "config.yaml");
    if (!run && !checkpoint && only_entry(path, is_model, file))
        return tn_error(TN_BAD_FILE, "%.640s is a folder with a model in it: name %.640s", path, file);
    if (!run)
        return tn_error(
            TN_BAD_FILE,
            "%.640s contains neither a run (config.yaml) nor a checkpoint of one (manifest.json, with the run's "
            "config.yaml beside it) nor a Hugging Face model (config.json)",
            path);
    TN_RETURN_IF(tn_settings_resolve_user(user, m->config, overrides, n, &m->settings, &m->model));
    if (checkpoint) return tn_path_join("", path, m->weights, sizeof m->weights);
    m->link = link;
    TN_RETURN_IF(tn_ckpt_find(path, link, m->weights, why, sizeof why));
    tn_ckpt_note(link, why, m->weights, m->note);
    return TN_OK;
}

/* A word is the name of a preset or a model unless a run's directory is called so. */
static bool is_name(const char *target)
{
    const tn_model *owner;
    return (tn_preset_named(target, &owner) || tn_model_named(target)) && !has_file(target, "config.yaml") &&
           !has_file(target, "manifest.json");
}

tn_status tn_saved_model_find(const tn_user_args *user, const char *target, const char *const *overrides, size_t n,
                              const char *link, tn_saved_model *out)
{
    tn_status s = TN_OK;
    struct stat st;
    tn_saved_model m = { .weights = "" };
    const bool exists = stat(target, &st) == 0;
    const bool weights = tn_is_weights_file(target);
    if (weights && !exists) TN_TRY(tn_fs_error(TN_BAD_FILE, errno, "open", target));
    if (weights) TN_TRY(find_file(user, target, overrides, n, &m));
    else if (exists && S_ISDIR(st.st_mode) && !is_name(target)) TN_TRY(find_run(user, target, overrides, n, link, &m));
    else TN_TRY(tn_settings_resolve_user(user, target, overrides, n, &m.settings, &m.model));
    TN_TRY(tn_parts_resolve(m.settings, m.model));
    TN_TRY(tn_task_defaults(m.model, m.settings));
    if (m.weights[0] &&
        tn_model_reads_sequences(m.model)) { /* samples: their sizes are the task's, which is not here */
        const int64_t context = tn_settings_int(m.settings, "train.context");
        TN_TRY(tn_weights_check(m.weights, m.model, m.settings, NULL, context < 8 ? context : 8));
    }
    *out = m;
    m.settings = NULL;
done:
    tn_settings_free(m.settings);
    return s;
}

void tn_saved_model_free(tn_saved_model *m)
{
    tn_settings_free(m->settings);
    *m = (tn_saved_model){ .weights = "" };
}

/* --- weights ---------------------------------------------------------------------------------------------------------- */

tn_status tn_saved_model_load(tn_saved_model *m, tn_store *store)
{
    char none[TN_CKPT_NOTE]; /* weights name a checkpoint or a file, which nothing stands in for */
    tn_ckpt_id seen = tn_ckpt_id_of(m->weights);
    tn_status s;
    do s = tn_weights_load(m->weights, store, none);
    while (s == TN_BAD_FILE && m->link && tn_ckpt_replaced(m->config, m->link, m->weights, &seen));
    return s;
}

static bool is_shape(const tn_model *model, const char *key)
{
    for (size_t i = 0; i < model->n_parts; i++)
        if (model->parts[i].shape && strcmp(model->parts[i].shape, key) == 0) return true;
    return false;
}

/* The settings of the model itself, and those of the run that its graph depends on. Values with spaces cannot be words; the words of a
 * part's shape are joined by commas instead (tn_words_split). */
static tn_status list_settings(const tn_model *model, const tn_settings *st, char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < tn_settings_count(st); i++) {
        const char *key = tn_settings_row_at(st, i)->key, *value = tn_settings_text_at(st, i);
        const bool of_run = strcmp(key, "train.context") == 0 || strcmp(key, "compute") == 0;
        if (strcmp(tn_settings_owner_at(st, i), model->name) != 0 && !of_run) continue;
        const bool shape = is_shape(model, key);
        if (!shape && strpbrk(value, " \n"))
            return tn_error(TN_USAGE, "%s=%s contains a space: it cannot be saved with the weights", key, value);
        const int n = snprintf(text + at, bytes - at, "%s%s=%s", at ? " " : "", key, value);
        if (n < 0 || (size_t)n >= bytes - at)
            return tn_error(TN_USAGE, "the model's settings are too long to be saved with the weights");
        for (char *c = text + at + 1; shape && (c = strpbrk(c, " \n"));) *c = ',';
        at += (size_t)n;
    }
    return TN_OK;
}

tn_status tn_weights_meta(const tn_model *model, const tn_settings *st, char text[TN_WEIGHTS_TEXT],
                          tn_text_pair meta[TN_WEIGHTS_META])
{
    TN_RETURN_IF(list_settings(model, st, text, TN_WEIGHTS_TEXT));
    meta[0] = (tn_text_pair){ "format", "tenon-model 1" };
    meta[1] = (tn_text_pair){ "model", tn_settings_text(st, "model") };
    meta[2] = (tn_text_pair){ "settings", text };
    return TN_OK;
}

tn_status tn_weights_save(const char *path, const tn_model *model, const tn_settings *st, const tn_store *store)
{
    tn_status s = TN_OK;
    tn_tensor_writer *w = NULL;
    tn_host_copy host = { 0 };
    char text[TN_WEIGHTS_TEXT];
    tn_text_pair meta[TN_WEIGHTS_META];
    if (!ends_with(path, ".safetensors") && !ends_with(path, ".safetensors.zst"))
        TN_FAIL(TN_USAGE, "%.640s: name a weights file *.safetensors or *.safetensors.zst", path);
    TN_TRY(tn_weights_meta(model, st, text, meta));
    TN_TRY(tn_tensor_writer_begin(path, meta, TN_WEIGHTS_META, &w));
    for (int put = 0; put < 2; put++)
        for (size_t i = 0; i < tn_store_count(store); i++) {
            const tn_entry *e = tn_store_at(store, i);
            if (!e->weight) continue;
            const size_t bytes = (size_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype);
            const void *data = put ? tn_store_read(store, e->data, bytes, &host) : NULL;
            if (put && !data) TN_TRY(TN_MEMORY);
            TN_TRY(put ? tn_tensor_writer_put(w, e->name, data, bytes)
                       : tn_tensor_writer_declare(w, e->name, e->dtype, e->dims));
        }
    s = tn_tensor_writer_finish(w, NULL, NULL);
    w = NULL;
done:
    tn_tensor_writer_abort(w);
    tn_host_copy_free(&host);
    return s;
}

/* --- tokenizer -------------------------------------------------------------------------------------------------------- */

/* Of a prepared data set; *start is the token its documents begin with. Empty where the folder names none. */
static tn_status of_data(const char *dir, char spec[TN_PATH_BYTES], int32_t *start)
{
    tn_manifest m = { 0 };
    tn_status s = tn_manifest_read(dir, &m);
    if (s != TN_OK) {
        tn_error_prefix("data");
        return s;
    }
    *start = m.eot;
    if (m.tokenizer_file && m.tokenizer_file[0]) s = tn_path_join(dir, m.tokenizer_file, spec, TN_PATH_BYTES);
    else if (m.tokenizer_kind && strcmp(m.tokenizer_kind, "bytes") == 0) snprintf(spec, TN_PATH_BYTES, "bytes");
    tn_manifest_free(&m);
    return s;
}

static bool trains_tokenizer(const tn_saved_model *m)
{
    const tn_task *task = tn_task_named(tn_settings_text(m->settings, "task.name"));
    return task && task->pairs && m->config[0];
}

/* A GGUF file (not one of weights alone), or a folder as Hugging Face lays them out, holds its model's vocabulary. */
static bool brings_tokenizer(const char *weights)
{
    tn_gguf *f = NULL;
    if (ends_with(weights, ".gguf")) {
        const bool has = tn_gguf_open(weights, &f) == TN_OK && tn_gguf_key(f, "tokenizer.ggml.model");
        tn_gguf_close(f);
        return has;
    }
    return weights[0] && tn_is_hf_folder(weights) &&
           (has_file(weights, "tokenizer.json") || has_file(weights, "tokenizer.model"));
}

/* Remedies: the one tokenizer that lies beside the weights, and bytes where they fit (some tokens more than 256: special ones, and padding). */
static tn_status not_known(const tn_saved_model *m)
{
    enum { BYTES_MOST = 320 };
    char dir[TN_PATH_BYTES], file[TN_PATH_BYTES];
    struct stat st;
    const char *data = tn_settings_text(m->settings, "data");
    const int64_t vocab = tn_settings_vocab(m->settings);
    const bool bytes = vocab >= 256 && vocab <= BYTES_MOST;
    snprintf(dir, sizeof dir, "%s", m->weights);
    char *slash = strrchr(dir, '/');
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode)) dir[slash ? slash - dir + (slash == dir) : 0] = 0;
    const char *beside = only_entry(dir, is_tokenizer, file);
    return tn_error(TN_USAGE, "the model's tokenizer is not known%s%.300s%s: name it with tokenizer=%.640s%s",
                    data[0] ? " (data=" : "", data, data[0] ? " does not exist)" : "", beside ? beside : "FILE",
                    bytes ? ", or tokenizer=bytes" : "");
}

static tn_status choose(const tn_saved_model *m, char spec[TN_PATH_BYTES], int32_t *start)
{
    const char *data = tn_settings_text(m->settings, "data");
    if (tn_settings_find(m->settings, "tokenizer") < tn_settings_count(m->settings))
        TN_RETURN_IF(tn_path_join("", tn_settings_text(m->settings, "tokenizer"), spec, TN_PATH_BYTES));
    if (spec[0]) return TN_OK;
    if (brings_tokenizer(m->weights)) return tn_path_join("", m->weights, spec, TN_PATH_BYTES);
    if (trains_tokenizer(m) && has_file(m->config, TN_RUN_TOKENIZER))
        return tn_path_join(m->config, TN_RUN_TOKENIZER, spec, TN_PATH_BYTES);
    if (data[0] && has_file(data, TN_MANIFEST_NAME)) TN_RETURN_IF(of_data(data, spec, start));
    if (spec[0]) return TN_OK;
    if (tn_settings_vocab(m->settings) != 256 && (!data[0] || !has_file("", data))) /* there: text, which is bytes */
        return not_known(m);
    snprintf(spec, TN_PATH_BYTES, "bytes");
    return TN_OK;
}

tn_status tn_saved_model_tokenizer_spec(const tn_saved_model *m, char spec[TN_PATH_BYTES])
{
    char chosen[TN_PATH_BYTES] = "";
    int32_t first;
    TN_RETURN_IF(choose(m, chosen, &first));
    return tn_path_join("", chosen, spec, TN_PATH_BYTES);
}

tn_status tn_saved_model_tokenizer(const tn_saved_model *m, const char *spec, tn_tokenizer **out,
                                   tn_model_tokens *tokens)
{
    tn_status s = TN_OK;
    char chosen[TN_PATH_BYTES] = "";
    int32_t first = -1;
    tn_tokenizer *t = NULL;
    tn_model_tokens all = { .start = -1 };
    const bool brings = brings_tokenizer(m->weights);
    if (spec && spec[0]) TN_TRY(tn_path_join("", spec, chosen, sizeof chosen));
    else TN_TRY(choose(m, chosen, &first));
    TN_TRY(tn_tokenizer_open(chosen, &t));
    all = tn_model_tokens_of(t);
    if (!brings || strcmp(chosen, m->weights) != 0) TN_TRY(tn_model_tokens_read(chosen, t, &all));
    if (brings) TN_TRY(tn_model_tokens_read(m->weights, t, &all));
    if (first >= 0) all.start = first;
    *out = t;
    *tokens = all;
    return TN_OK;
done:
    tn_model_tokens_free(&all);
    tn_tokenizer_free(t);
    return s;
}

/* Bytes have no token to spare: NUL, which texts do not have, stands between them. */
tn_status tn_saved_model_ends(const tn_tokenizer *t, const tn_model_tokens *tokens, const char *target, int32_t *start,
                              int32_t *end)
{
    const bool bytes = strcmp(tn_tokenizer_kind(t), "bytes") == 0;
    const int32_t last = tokens->n_end ? tokens->end[0] : tokens->start >= 0 ? tokens->start : bytes ? 0 : -1;
    if (last < 0)
        return tn_error(TN_USAGE,
                        "%.640s: its tokenizer has no token that ends a text (EOS, <|endoftext|>): use another model, "
                        "or add one to tokenizer.json",
                        target);
    *start = tokens->start >= 0 ? tokens->start : last;
    *end = last;
    return TN_OK;
}

tn_status tn_saved_model_reader(const tn_user_args *user, const char *target, const char *spec, tn_tokenizer **out,
                                int32_t *start, int32_t *end)
{
    tn_status s = TN_OK;
    tn_saved_model m = { .weights = "" };
    tn_model_tokens tokens = { .start = -1 };
    tn_tokenizer *t = NULL;
    TN_RETURN_IF(tn_saved_model_find(user, target, NULL, 0, "best", &m));
    TN_TRY(tn_saved_model_tokenizer(&m, spec, &t, &tokens));
    if (tn_tokenizer_vocab(t) > tn_settings_vocab(m.settings))
        TN_FAIL(TN_USAGE, "the tokenizer has %lld tokens but %.640s only %lld: name the model's own tokenizer",
                (long long)tn_tokenizer_vocab(t), target, (long long)tn_settings_vocab(m.settings));
    TN_TRY(tn_saved_model_ends(t, &tokens, target, start, end));
    *out = t;
    t = NULL;
done:
    tn_tokenizer_free(t);
    tn_model_tokens_free(&tokens);
    tn_saved_model_free(&m);
    return s;
}
