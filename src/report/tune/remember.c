/* The memory of tuned settings: JSON of a few hundred bytes under the hash of its key. */
#include "report/tune/remember.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"
#include "io/json_read.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { FORMAT = 1, MOST_BYTES = 64 << 10, MOST_GPUS = 64 };

/* --- the machine --------------------------------------------------------------------------------------------------------------- */

/* The value of a line "key   : value"; "" where there is none. */
static void proc_value(const char *path, const char *key, char *out, size_t bytes)
{
    char line[4096];
    FILE *f = fopen(path, "r");
    out[0] = 0;
    while (f && !out[0] && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
        const char *value = colon + 1 + strspn(colon + 1, " \t");
        snprintf(out, bytes, "%.*s", (int)strcspn(value, "\n"), value);
    }
    if (f) fclose(f);
    tn_text_clean(out);
}

static int is_name(const struct dirent *d) { return d->d_name[0] != '.'; }

/* In the order of their places on the bus. */
static size_t add_gpus(const char *proc, char *buf, size_t at, size_t bytes)
{
    char dir[TN_PATH_BYTES], path[2 * TN_PATH_BYTES], name[128];
    struct dirent **list = NULL;
    snprintf(dir, sizeof dir, "%s/driver/nvidia/gpus", proc);
    const int n = scandir(dir, &list, is_name, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s/information", dir, list[i]->d_name);
        proc_value(path, "Model", name, sizeof name);
        if (name[0] && i < MOST_GPUS && at < bytes) at += (size_t)snprintf(buf + at, bytes - at, ", %s", name);
        free(list[i]);
    }
    free(list);
    return at;
}

/* Where /proc has no name for the processor it has numbers: "aarch64 0x41 0xd40". */
static void processor(const char *proc, char *model, size_t bytes)
{
    char path[TN_PATH_BYTES], maker[32], part[32];
    struct utsname u;
    snprintf(path, sizeof path, "%s/cpuinfo", proc);
    proc_value(path, "model name", model, bytes);
    if (model[0]) return;
    proc_value(path, "CPU implementer", maker, sizeof maker);
    proc_value(path, "CPU part", part, sizeof part);
    snprintf(model, bytes, "%.60s%s%s%s%s", uname(&u) == 0 ? u.machine : "unknown", maker[0] ? " " : "", maker,
             part[0] ? " " : "", part);
}

/* Of memory what is counted in whole GB: kernels keep more or less of it for themselves. */
const char *tn_machine_text(const char *proc, double memory, char buf[TN_MACHINE_TEXT])
{
    char model[128];
    processor(proc, model, sizeof model);
    const int at = snprintf(buf, TN_MACHINE_TEXT, "%s, %ld cores, %.*f GB", model, sysconf(_SC_NPROCESSORS_ONLN),
                            memory < 1e9 ? 1 : 0, memory / 1e9);
    (void)add_gpus(proc, buf, (size_t)at, TN_MACHINE_TEXT);
    return buf;
}

/* --- the key ------------------------------------------------------------------------------------------------------------------- */

/* Settings that do not decide what is fast; one that ends in a dot stands for all below it. */
static const char *const beside[] = {
    "run",
    "preset",
    "seed",
    "log.",
    "ckpt.",
    "sample.",
    "train.from",
    "train.steps",
    "train.epochs",
    "train.lr",
    "train.warmup",
    "train.lr_min_frac",
    "train.schedule",
    "train.decay",
    "train.cooldown_frac",
    "train.beta1",
    "train.beta2",
    "train.eps",
    "train.clip",
    "train.momentum",
    "train.eval_every",
    "train.select",
    "train.test",
    "train.stop_patience",
    "train.nonfinite",
};

static bool counts(const char *key)
{
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        const size_t n = strlen(beside[i]);
        if (beside[i][n - 1] == '.' ? strncmp(key, beside[i], n) == 0 : strcmp(key, beside[i]) == 0) return false;
    }
    return true;
}

static void add_text(tn_hash *h, const char *text) { tn_hash_add(h, text, strlen(text) + 1); }

tn_status tn_tuned_key_of(const tn_settings *st, const char *machine, const char *version, tn_tuned_key *out)
{
    tn_hash *h;
    char name[TN_HASH_BYTES];
    TN_RETURN_IF(tn_hash_begin(&h));
    for (size_t i = 0; i < tn_settings_count(st); i++) {
        if (!counts(tn_settings_row_at(st, i)->key)) continue;
        add_text(h, tn_settings_row_at(st, i)->key);
        add_text(h, tn_settings_text_at(st, i));
    }
    snprintf(out->machine, sizeof out->machine, "%s", machine);
    snprintf(out->version, sizeof out->version, "%s", version);
    snprintf(out->model, sizeof out->model, "%.*s", (int)sizeof out->model - 1, tn_settings_text(st, "model"));
    tn_hash_text(h, out->settings);
    add_text(h, out->machine);
    add_text(h, out->version);
    add_text(h, out->model);
    tn_hash_text(h, name);
    tn_hash_free(h);
    snprintf(out->name, sizeof out->name, "%s.json", name);
    return TN_OK;
}

/* --- the file ------------------------------------------------------------------------------------------------------------------ */

tn_status tn_tuned_save(const char *dir, const tn_tuned_key *k, const tn_tuned *t)
{
    tn_status s = TN_OK;
    char path[TN_PATH_BYTES], *text = NULL;
    json_t *words = json_array(), *o = NULL;
    for (size_t i = 0; i < t->n && words; i++) json_array_append_new(words, json_string(t->word[i]));
    o = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:i, s:o}", "format", FORMAT, "machine", k->machine,
                  "tenon", k->version, "model", k->model, "settings", k->settings, "when", t->when, "gain",
                  t->gain.n ? t->gain.median : 1.0, "low", t->gain.n ? t->gain.low : 1.0, "high",
                  t->gain.n ? t->gain.high : 1.0, "pairs", t->gain.n, "words", words);
    if (!o || !(text = json_dumps(o, JSON_INDENT(1)))) TN_TRY(tn_error(TN_MEMORY, "out of memory"));
    TN_TRY(tn_dir_make(dir));
    TN_TRY(tn_path_join(dir, k->name, path, sizeof path));
    TN_TRY(tn_file_write_atomic(path, text, strlen(text)));
done:
    json_decref(o);
    free(text);
    return s;
}

static bool is_text(const json_t *o, const char *key, const char *text)
{
    const char *x = json_string_value(json_object_get(o, key));
    return x && strcmp(x, text) == 0;
}

static bool is_ours(const json_t *o, const tn_tuned_key *k)
{
    return json_integer_value(json_object_get(o, "format")) == FORMAT && is_text(o, "machine", k->machine) &&
           is_text(o, "tenon", k->version) && is_text(o, "model", k->model) && is_text(o, "settings", k->settings);
}

/* "key=value" of a setting that may be tuned, in characters that such values have. */
static bool is_word(const char *w)
{
    char key[TN_TUNE_WORD];
    const char *eq = w ? strchr(w, '=') : NULL;
    if (!eq || strlen(w) >= TN_TUNE_WORD || strspn(eq + 1, "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(eq + 1))
        return false;
    snprintf(key, sizeof key, "%.*s", (int)(eq - w), w);
    return tn_tune_sets(key);
}

static bool read_words(const json_t *list, tn_tuned *out)
{
    if (!json_is_array(list) || json_array_size(list) > TN_TUNE_WORDS) return false;
    out->n = json_array_size(list);
    for (size_t i = 0; i < out->n; i++) {
        const char *w = json_string_value(json_array_get(list, i));
        if (!is_word(w)) return false;
        memcpy(out->word[i], w, strlen(w) + 1);
    }
    return true;
}

static bool read_gain(const json_t *o, tn_tuned *out)
{
    const json_int_t n = json_integer_value(json_object_get(o, "pairs"));
    out->gain = (tn_ratio){ json_number_value(json_object_get(o, "gain")), json_number_value(json_object_get(o, "low")),
                            json_number_value(json_object_get(o, "high")), (int)n };
    const char *when = json_string_value(json_object_get(o, "when"));
    if (n < 0 || n > TN_RATIOS_MOST || !when || !(out->gain.low > 0 && out->gain.median < 1e6)) return false;
    snprintf(out->when, sizeof out->when, "%.*s", (int)sizeof out->when - 1, when);
    tn_text_clean(out->when);
    return true;
}

tn_status tn_tuned_load(const char *dir, const tn_tuned_key *k, tn_tuned *out, bool *found)
{
    tn_status s = TN_OK;
    char path[TN_PATH_BYTES], *text = NULL;
    size_t bytes;
    json_t *o = NULL;
    json_error_t err;
    tn_tuned t = { .n = 0 };
    *found = false;
    TN_TRY(tn_path_join(dir, k->name, path, sizeof path));
    struct stat info;
    if (stat(path, &info) != 0) goto done;
    TN_TRY(tn_file_read_all(path, MOST_BYTES, &text, &bytes));
    o = tn_json_tree(text, bytes, JSON_REJECT_DUPLICATES, &err);
    if (!o || !is_ours(o, k) || !read_words(json_object_get(o, "words"), &t) || !read_gain(o, &t))
        TN_TRY(tn_error(TN_BAD_FILE, "%.600s is damaged or belongs to another machine: run `tenon tune` again", path));
    *out = t;
    *found = true;
done:
    json_decref(o);
    tn_free(text);
    return s;
}
