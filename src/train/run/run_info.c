/* What a run's files say. A run that trains writes them meanwhile: what is missing or cut is not known, not an error. */
#include "train/run/run_info.h"

#include "io/json_read.h"
#include "train/run/checkpoint_convert.h"
#include "io/yaml_settings.h"
#include "train/checkpoint/run_folder.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

const char *tn_run_state_name(tn_run_state s)
{
    static const char *const names[] = { "running", "finished", "stopped", "no checkpoint", "failed", "damaged" };
    return names[s];
}

/* --- which there are ------------------------------------------------------------------------------------------------- */

static bool stat_in(const char *dir, const char *name, struct stat *st)
{
    char path[TN_PATH_BYTES];
    return tn_path_join(dir, name, path, sizeof path) == TN_OK && lstat(path, st) == 0;
}

static bool has_mark(const char *dir)
{
    char path[TN_PATH_BYTES], text[sizeof TN_RUN_MARK] = "";
    tn_file f = { 0 };
    if (tn_path_join(dir, "config.yaml", path, sizeof path) != TN_OK || tn_file_open(path, &f) != TN_OK) return false;
    const bool read = f.bytes >= sizeof text - 1 && tn_file_read_at(&f, path, 0, text, sizeof text - 1) == TN_OK;
    tn_file_close(&f);
    return read && strcmp(text, TN_RUN_MARK) == 0;
}

bool tn_is_run(const char *dir)
{
    struct stat st;
    return (stat_in(dir, "metrics.jsonl", &st) && S_ISREG(st.st_mode)) ||
           (stat_in(dir, "config.yaml", &st) && S_ISREG(st.st_mode) && has_mark(dir));
}

typedef struct found {
    tn_arena *arena;
    const char **dir;
    size_t n, capacity;
} found;

static tn_status add(found *f, const char *dir)
{
    TN_RETURN_IF(tn_grow((void **)&f->dir, &f->capacity, f->n + 1, sizeof *f->dir));
    f->dir[f->n] = tn_arena_strdup(f->arena, dir);
    return f->dir[f->n++] ? TN_OK : TN_MEMORY;
}

static tn_status look_in(const char *path, int depth, found *f)
{
    tn_status s = TN_OK;
    DIR *d = opendir(path);
    if (!d) return tn_fs_error(TN_BAD_FILE, errno, "read directory", path);
    for (struct dirent *e; s == TN_OK && (e = readdir(d));) {
        char dir[TN_PATH_BYTES];
        struct stat st;
        if (e->d_name[0] == '.' || !stat_in(path, e->d_name, &st) || !S_ISDIR(st.st_mode)) continue;
        if (tn_path_join(path, e->d_name, dir, sizeof dir) != TN_OK) continue;
        if (tn_is_run(dir)) s = add(f, dir);
        else if (depth > 0 && look_in(dir, depth - 1, f) == TN_MEMORY)
            s = TN_MEMORY; /* one that cannot be read has none */
    }
    closedir(d);
    return s;
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

tn_status tn_run_find_all(const char *path, tn_arena *arena, const char ***dirs, size_t *n)
{
    found f = { .arena = arena };
    tn_status s = tn_is_run(path) ? add(&f, path) : look_in(path, 1, &f);
    const char **out = s == TN_OK ? tn_arena_alloc(arena, (f.n + 1) * sizeof *out) : NULL;
    if (s == TN_OK && !out) s = TN_MEMORY;
    if (s == TN_OK && f.n) {
        qsort(f.dir, f.n, sizeof *f.dir, by_name);
        memcpy(out, f.dir, f.n * sizeof *out);
    }
    tn_free(f.dir);
    if (s != TN_OK) return s;
    *dirs = out;
    *n = f.n;
    return TN_OK;
}

/* --- what one says --------------------------------------------------------------------------------------------------- */

/* Shared, so that it does not keep a run from starting for longer than this takes. */
static bool is_locked(const char *dir)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return locked;
}

static tn_status read_settings(const char *dir, tn_settings **out, tn_run_info *r)
{
    tn_status s = TN_OK;
    char path[TN_PATH_BYTES];
    tn_settings *st = NULL;
    TN_TRY(tn_path_join(dir, "config.yaml", path, sizeof path));
    TN_TRY(tn_settings_new(&st));
    TN_TRY(tn_settings_add(st, tn_train_settings, tn_train_settings_n, "train"));
    TN_TRY(tn_settings_peek_yaml(st, path)); /* without the model's own, which may be in a shared object */
    snprintf(r->model, sizeof r->model, "%s", tn_settings_text(st, "model"));
    snprintf(r->preset, sizeof r->preset, "%s", tn_settings_text(st, "preset"));
    r->steps = tn_settings_int(st, "train.steps");
    r->patience = tn_settings_int(st, "train.stop_patience");
    *out = st;
    st = NULL;
done:
    tn_settings_free(st);
    return s;
}

/* The last whole line of metrics.jsonl, or NULL; json_decref it. */
static json_t *last_line(const char *dir, tn_run_info *r)
{
    enum { TAIL = 64 << 10 };
    char path[TN_PATH_BYTES], *text = tn_alloc(TAIL);
    tn_file f = { 0 };
    struct stat st;
    json_t *line = NULL;
    if (stat_in(dir, "metrics.jsonl", &st) && S_ISREG(st.st_mode)) {
        r->changed = (int64_t)st.st_mtime; /* the folder is also touched by who only looks at the run */
        if (text && tn_path_join(dir, "metrics.jsonl", path, sizeof path) == TN_OK && tn_file_open(path, &f) == TN_OK) {
            size_t n = f.bytes < TAIL ? f.bytes : TAIL;
            if (tn_file_read_at(&f, path, f.bytes - n, text, n) != TN_OK) n = 0;
            while (n && text[n - 1] != '\n') n--;
            size_t begin = n ? n - 1 : 0;
            while (begin && text[begin - 1] != '\n') begin--;
            if (n) line = tn_json_tree(text + begin, n - 1 - begin, 0, NULL);
        }
    }
    tn_file_close(&f);
    tn_free(text);
    return line;
}

int64_t tn_run_parameters(const char *dir, const tn_run_info *r)
{
    char path[TN_PATH_BYTES], name[TN_CKPT_NAME];
    tn_tensors t = { 0 };
    int64_t n = 0;
    if (tn_path_join(dir, tn_ckpt_name(r->saved, name), path, sizeof path) != TN_OK) return 0;
    if (tn_tensors_open(path, &t) != TN_OK) return 0;
    for (size_t i = 0; i < t.n; i++) n += tn_dims_count(t.tensor[i].dims);
    tn_tensors_close(&t);
    return n;
}

/* From the newest checkpoint whose files are all there. False: it has checkpoints, and none can be read. */
static bool read_checkpoints(const char *dir, const tn_settings *st, tn_run_info *r, bool *finished)
{
    tn_ckpt_list l = { 0 };
    bool known = tn_ckpt_list_read(dir, &l) == TN_OK;
    if (!known) snprintf(r->why, sizeof r->why, "%s", tn_error_text());
    bool none = known && l.n == 0;
    for (size_t i = 0; i < l.n; i++) r->bytes += l.entry[i].bytes;
    known = false;
    for (size_t i = l.n; i-- > 0 && !known;) {
        char path[TN_PATH_BYTES], name[TN_CKPT_NAME];
        tn_ckpt_state state;
        if (!l.entry[i].complete ||
            tn_path_join(dir, tn_ckpt_name(l.entry[i].step, name), path, sizeof path) != TN_OK ||
            tn_ckpt_read_state(path, &state) != TN_OK)
            continue;
        known = true;
        r->saved = state.step, r->tokens = state.tokens;
        r->best = state.best, r->best_step = state.best_step, r->stale = state.stale;
        memcpy(r->select, l.entry[i].select, sizeof r->select);
        memcpy(r->unit, l.entry[i].unit, sizeof r->unit);
        *finished = st && tn_training_finished(st, &state);
        tn_ckpt_state_free(&state);
    }
    if (!known && !none && !r->why[0]) snprintf(r->why, sizeof r->why, "none of its %zu checkpoints can be read", l.n);
    tn_ckpt_list_free(&l);
    return known || none;
}

tn_status tn_run_info_read(const char *dir, tn_run_info *out)
{
    tn_run_info r = { 0 };
    struct stat st;
    tn_settings *settings = NULL;
    bool finished = false;
    if (stat(dir, &st) != 0) return tn_fs_error(TN_BAD_FILE, errno, "read", dir);
    r.changed = (int64_t)st.st_mtime;
    const bool readable = read_settings(dir, &settings, &r) == TN_OK;
    if (!readable) snprintf(r.why, sizeof r.why, "%s", tn_error_text());
    const bool whole = read_checkpoints(dir, settings, &r, &finished) && readable;
    json_t *line = last_line(dir, &r);
    const json_t *at = json_object_get(line, "step");
    const char *word = json_string_value(json_object_get(line, "nonfinite"));
    r.step = json_is_integer(at) && json_integer_value(at) > r.saved ? json_integer_value(at) : r.saved;
    r.state = is_locked(dir)                         ? TN_RUN_RUNNING
              : !whole                               ? TN_RUN_DAMAGED
              : finished                             ? TN_RUN_FINISHED
              : word && strcmp(word, "stopped") == 0 ? TN_RUN_FAILED
              : r.saved                              ? TN_RUN_STOPPED
                                                     : TN_RUN_BEGUN;
    json_decref(line);
    tn_settings_free(settings);
    *out = r;
    return TN_OK;
}
