/* Opens a run's directory: which one, whether it resumes, what must be cleaned up. */
#include "train/run/run.h"

#include "base/alloc.h"
#include "base/text.h"
#include "io/json_read.h"
#include "io/yaml_settings.h"
#include "train/run/parts.h"
#include "train/run/same_settings.h"
#include "train/run/training.h"
#include "train/run/weights_load.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool exists(const char *dir, const char *name)
{
    char path[TN_RUN_PATH];
    struct stat st;
    return tn_path_join(dir, name, path, sizeof path) == TN_OK && lstat(path, &st) == 0;
}

/* The same file is not written again: a resume that changes nothing touches nothing. */
static tn_status write_config(const tn_settings *st, const char *dir)
{
    tn_status s = TN_OK;
    char path[TN_RUN_PATH], *text = NULL, *now = NULL;
    size_t bytes = 0, now_bytes = 0;
    TN_RETURN_IF(tn_path_join(dir, "config.yaml", path, sizeof path));
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return tn_error(TN_MEMORY, "out of memory while writing %s", path);
    fprintf(f, "%s its settings, each with where it came from\n", TN_RUN_MARK);
    s = tn_settings_write_yaml(st, f);
    if (fclose(f) != 0 && s == TN_OK) s = tn_error(TN_MEMORY, "out of memory while writing %s", path);
    if (s == TN_OK && exists(dir, "config.yaml") &&
        tn_file_read_all(path, TN_YAML_MAX_BYTES, &now, &now_bytes) != TN_OK)
        now = NULL;
    if (s == TN_OK && !(now && now_bytes == bytes && memcmp(now, text, bytes) == 0))
        s = tn_file_write_atomic(path, text, bytes);
    tn_free(now);
    free(text);
    return s;
}

tn_status tn_run_record(const tn_run_dir *r, const tn_settings *st) { return write_config(st, r->dir); }

/* dir: NULL where the run has none. */
static tn_status record_parts(const char *dir, const tn_training *t, bool again)
{
    bool changed;
    TN_RETURN_IF(
        tn_parts_hash(t->settings, tn_trainer_model(t->trainer), tn_trainer_store(t->trainer), again, &changed));
    return changed && dir && exists(dir, "config.yaml") ? write_config(t->settings, dir) : TN_OK;
}

/* They do not fit: what that run's model has otherwise, where it says so. `from` is the run or one of its checkpoints. */
static tn_status explain_weights(const tn_settings *st, const char *from)
{
    char config[TN_RUN_PATH], why[1024], other[512] = "";
    snprintf(why, sizeof why, "%s", tn_error_text());
    bool found = false;
    for (int up = 0; up < 2 && !found; up++) {
        found = tn_path_join(from, up ? "../config.yaml" : "config.yaml", config, sizeof config) == TN_OK &&
                exists("", config);
        if (found) tn_settings_other_model(st, config, other, sizeof other);
    }
    if (!other[0]) return tn_error(TN_BAD_FILE, "train.from: %s", why);
    return tn_error(TN_BAD_FILE, "train.from: %s; settings that differ: %s", why, other);
}

/* Weights that the run starts from; moments and steps begin at zero. */
static tn_status take_weights(const tn_training *t)
{
    char note[TN_CKPT_NOTE], line[TN_RUN_PATH + 64];
    const char *from = tn_settings_text(t->settings, "train.from");
    if (!*from) return TN_OK;
    const tn_status s = tn_weights_load(from, tn_trainer_store(t->trainer), note);
    if (s == TN_BAD_FILE) return explain_weights(t->settings, from);
    if (s != TN_OK) tn_error_prefix("train.from");
    TN_RETURN_IF(s);
    snprintf(line, sizeof line, "starts from the weights of %.640s%s%.200s", from, *note ? ", " : "", note);
    tn_text_clean(line); /* the name of a folder may be anything */
    if (t->note) t->note(t->ctx, line);
    return TN_OK;
}

/* The guard has kept what the trainer was made with: a rollback before its next snapshot leads to these weights instead. */
static tn_status keep_weights(tn_trainer *t)
{
    tn_guard *guard = tn_trainer_guard(t);
    if (!guard) return TN_OK;
    const tn_guard_state now = tn_guard_state_of(guard);
    return tn_guard_resume(guard, &now, false, 0);
}

tn_status tn_run_begin_parts(const tn_training *t)
{
    TN_RETURN_IF(take_weights(t)); /* parts that have a file of their own come from there */
    TN_RETURN_IF(tn_parts_load(t->settings, tn_trainer_model(t->trainer), tn_trainer_store(t->trainer)));
    TN_RETURN_IF(keep_weights(t->trainer));
    return record_parts(t->dir, t, true);
}

tn_status tn_run_prepare(const tn_training *t, bool starts)
{
    const tn_source_prepare how = { .trainer = t->trainer,
                                    .settings = t->settings,
                                    .dir = t->dir,
                                    .ctx = t->ctx,
                                    .note = t->note,
                                    .interrupted = t->interrupted };
    if (starts) TN_RETURN_IF(tn_run_begin_parts(t));
    return tn_source_make_ready(t->source, &how);
}

enum { WAIT_MS = 3000, WAIT_FOUND_MS = 500 }; /* a run that was only found may well belong to somebody */

static bool lock_within(int fd, int wait_ms)
{
    const struct timespec pause = { .tv_nsec = 20 * 1000 * 1000 };
    for (;; wait_ms -= 20) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
        if (errno != EWOULDBLOCK && errno != EINTR) return true; /* a filesystem without locks has to do without */
        if (wait_ms <= 0) return false;
        nanosleep(&pause, NULL);
    }
}

/* Whether the open directory is still the one of that name: a start that failed takes its own away (run_undo.c). */
static bool is_still(int fd, const char *dir)
{
    struct stat locked, named;
    return fstat(fd, &locked) == 0 && stat(dir, &named) == 0 && locked.st_dev == named.st_dev &&
           locked.st_ino == named.st_ino;
}

tn_status tn_run_lock(const char *dir, int wait_ms, int *fd)
{
    const int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d < 0) return tn_fs_error(TN_DISK, errno, "open", dir);
    const bool locked = lock_within(d, wait_ms);
    if (locked && is_still(d, dir)) {
        *fd = d;
        return TN_OK;
    }
    close(d);
    if (locked) return tn_error(TN_USAGE, "%.640s was removed by the process that had made it: try again", dir);
    return tn_error(TN_USAGE, "%.640s is in use by another process: wait for it, or name another run with run=OTHER",
                    dir);
}

/* --- what a killed process left -------------------------------------------------------------------------------------- */

/* What is not ours (another name, or something else in it) stays. */
static tn_status remove_leftover(const char *dir, const char *name)
{
    char path[TN_RUN_PATH], as[300];
    struct stat st;
    TN_RETURN_IF(tn_path_join(dir, name, path, sizeof path));
    snprintf(as, sizeof as, "%s/", name);
    if (strncmp(name, ".tmp-", 5) != 0 || lstat(path, &st) != 0 || !tn_run_owns(name, st.st_mode)) return TN_OK;
    if (S_ISDIR(st.st_mode)) {
        const tn_status s = tn_run_part_remove(path, as);
        return s == TN_USAGE ? TN_OK : s;
    }
    return unlink(path) == 0 || errno == ENOENT ? TN_OK : tn_fs_error(TN_DISK, errno, "remove", path);
}

static tn_status remove_leftovers(const char *dir)
{
    tn_status s = TN_OK;
    DIR *d = opendir(dir);
    if (!d) return tn_fs_error(TN_DISK, errno, "read directory", dir);
    for (struct dirent *e; s == TN_OK && (e = readdir(d));) s = remove_leftover(dir, e->d_name);
    closedir(d);
    return s;
}

/* The run's own directory was opened a moment ago: that it cannot be read is the disk's fault, not the file's. */
static tn_status list_own(const char *dir, tn_ckpt_list *l)
{
    const tn_status s = tn_ckpt_list_read(dir, l);
    return s == TN_BAD_FILE ? TN_DISK : s;
}

/* --- starting over --------------------------------------------------------------------------------------------------- */

/* Renamed first, so that a kill leaves all of it or a temporary. */
static tn_status drop_old(const char *dir)
{
    char old[TN_RUN_PATH], gone[TN_RUN_PATH], base[64];
    if (!exists(dir, "old")) return TN_OK;
    snprintf(base, sizeof base, ".tmp-old-%ld", (long)getpid());
    TN_RETURN_IF(tn_path_join(dir, "old", old, sizeof old));
    TN_RETURN_IF(tn_path_join(dir, base, gone, sizeof gone));
    TN_RETURN_IF(tn_tree_check(old, "old/", tn_run_owns)); /* before it loses its name */
    if (rename(old, gone) != 0) return tn_fs_error(TN_DISK, errno, "remove", old);
    return tn_run_part_remove(gone, "old/");
}

static tn_status move_to_old(const char *dir, const char *name)
{
    char from[TN_RUN_PATH], to[TN_RUN_PATH];
    if (!exists(dir, name)) return TN_OK;
    TN_RETURN_IF(tn_path_join(dir, name, from, sizeof from));
    TN_RETURN_IF(tn_path_join(dir, "old", to, sizeof to));
    TN_RETURN_IF(tn_path_join(to, name, to, sizeof to));
    return rename(from, to) == 0 ? TN_OK : tn_fs_error(TN_DISK, errno, "move", from);
}

/* A run without a checkpoint has nothing to lose: then old/, if it is there, still has the last one that had. Oldest
 * first, so that a kill on the way leaves the newest where it was. */
static tn_status set_aside(const char *dir)
{
    tn_status s = TN_OK;
    tn_ckpt_list l = { 0 };
    char old[TN_RUN_PATH], name[TN_CKPT_NAME];
    TN_RETURN_IF(list_own(dir, &l));
    if (l.n == 0) goto done;
    TN_TRY(drop_old(dir));
    TN_TRY(tn_path_join(dir, "old", old, sizeof old));
    TN_TRY(tn_dir_make(old));
    for (size_t i = 0; i < l.n; i++) TN_TRY(move_to_old(dir, tn_ckpt_name(l.entry[i].step, name)));
    static const char *const rest[] = { "latest",     "best",           "metrics.jsonl", "metrics.csv",
                                        "memory.csv", TN_RUN_TOKENIZER, "config.yaml" };
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) TN_TRY(move_to_old(dir, rest[i]));
done:
    tn_ckpt_list_free(&l);
    return s;
}

/* --- going on -------------------------------------------------------------------------------------------------------- */

static tn_status find_checkpoint(tn_run_dir *r)
{
    tn_ckpt_list l = { 0 };
    char why[1024];
    TN_RETURN_IF(list_own(r->dir, &l));
    const size_t n = l.n;
    tn_ckpt_list_free(&l);
    if (n == 0) return TN_OK;
    TN_RETURN_IF(tn_ckpt_find(r->dir, "latest", r->checkpoint, why, sizeof why));
    if (why[0]) snprintf(r->note, sizeof r->note, "%s\nusing %.640s instead", why, r->checkpoint);
    return TN_OK;
}

static void add_note(tn_run_dir *r, const char *what, const char *text)
{
    const size_t n = strlen(r->note);
    snprintf(r->note + n, sizeof r->note - n, "%s%s%s", n ? "\n" : "", what, text);
}

static tn_status go_on(tn_settings *st, tn_run_dir *r)
{
    char config[TN_RUN_PATH], changed[1024], kept[600];
    TN_RETURN_IF(find_checkpoint(r));
    if (!exists(r->dir, "config.yaml")) {
        if (!r->checkpoint[0] && !exists(r->dir, "metrics.jsonl"))
            return TN_OK; /* an empty directory, or one with other things */
        return tn_error(
            TN_USAGE,
            "run: %.640s contains a run but no config.yaml: put the file back, name another run, or start over "
            "with --fresh",
            r->dir);
    }
    if (!r->checkpoint[0]) return TN_OK; /* nothing was trained that other settings could contradict */
    TN_RETURN_IF(tn_path_join(r->dir, "config.yaml", config, sizeof config));
    TN_RETURN_IF(tn_settings_keep_rung(st, config, &r->lowered, kept, sizeof kept));
    TN_RETURN_IF(tn_settings_may_continue(st, config, changed, sizeof changed));
    if (changed[0]) add_note(r, "changed: ", changed);
    if (kept[0]) add_note(r, "", kept);
    return TN_OK;
}

/* --- which directory ------------------------------------------------------------------------------------------------- */

/* runs/NAME-N: the part before N, from a model's name or path. */
static void name_of(const char *model, char base[128])
{
    const char *name = strrchr(model, '/') ? strrchr(model, '/') + 1 : model;
    snprintf(base, 128, "%.*s-", (int)strcspn(name, "."), name);
}

static bool unfinished(const tn_settings *st, const char *dir)
{
    char name[TN_CKPT_NAME], path[TN_RUN_PATH];
    tn_ckpt_state state;
    const int64_t step = tn__ckpt_pointed(dir, "latest");
    if (step < 0) return true;
    if (tn_path_join(dir, tn_ckpt_name(step, name), path, sizeof path) != TN_OK ||
        tn_ckpt_read_state(path, &state) != TN_OK)
        return true; /* damaged: the resume will find another one, or say why not */
    const bool finished = tn_training_finished(st, &state);
    tn_ckpt_state_free(&state);
    return !finished;
}

/* What the settings name (data, a model's .so, weights to start from) is newer than the run's last checkpoint: the same words, another command. */
static bool changed_since(const tn_settings *st, const char *dir)
{
    static const char *const keys[] = { "model", "data", "tokenizer", "task.data", "train.from" };
    char path[TN_RUN_PATH];
    struct stat then, now;
    if (tn_path_join(dir, "latest", path, sizeof path) != TN_OK || stat(path, &then) != 0) return true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (stat(tn_settings_text(st, keys[i]), &now) != 0) continue;
        if (now.st_mtim.tv_sec != then.st_mtim.tv_sec ? now.st_mtim.tv_sec > then.st_mtim.tv_sec
                                                      : now.st_mtim.tv_nsec > then.st_mtim.tv_nsec)
            return true;
    }
    return false;
}

static bool take_found(const char *dir, tn_run_dir *r)
{
    int fd;
    if (tn_run_lock(dir, WAIT_FOUND_MS, &fd) != TN_OK) return false;
    if (r->lock >= 0) close(r->lock);
    r->lock = fd;
    snprintf(r->dir, sizeof r->dir, "%s", dir);
    return r->found = true;
}

/* A link is not one: where it leads nobody said. */
static bool is_directory(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The newest that can be continued and that no process has, its lock held; where there is none, the newest that is finished. */
static tn_status find_run(const tn_settings *st, const char *base, tn_run_dir *r)
{
    DIR *d = opendir("runs");
    if (!d) return errno == ENOENT ? TN_OK : tn_fs_error(TN_DISK, errno, "read directory", "runs");
    long best = 0, done = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char dir[300], config[320], *end;
        const size_t n = strlen(base);
        if (strncmp(e->d_name, base, n) != 0) continue;
        const long number = strtol(e->d_name + n, &end, 10);
        if (*end || number <= best) continue;
        snprintf(dir, sizeof dir, "runs/%s", e->d_name);
        snprintf(config, sizeof config, "%s/config.yaml", dir);
        if (!is_directory(dir) || !exists(dir, "config.yaml") || tn_run_folder_check(dir) != TN_OK ||
            !tn_settings_same_run(st, config))
            continue;
        if (!unfinished(st, dir)) done = number > done && !changed_since(st, dir) ? number : done;
        else if (take_found(dir, r)) best = number;
    }
    closedir(d);
    char dir[300];
    snprintf(dir, sizeof dir, "runs/%s%ld", base, done);
    if (!r->found && done) (void)take_found(dir, r);
    return TN_OK;
}

/* mkdir decides who gets a name, so that two runs started at once never share one. */
static tn_status first_free(const char *base, tn_run_dir *r)
{
    TN_RETURN_IF(tn_dir_make("runs"));
    for (int n = 1; n < 100000; n++) {
        snprintf(r->dir, sizeof r->dir, "runs/%s%d", base, n);
        if (mkdir(r->dir, 0777) == 0) {
            r->made = true;
            TN_RETURN_IF(tn_dir_sync("runs"));
            return tn_run_lock(r->dir, WAIT_MS, &r->lock);
        }
        if (errno != EEXIST) return tn_fs_error(TN_DISK, errno, "create directory", r->dir);
    }
    return tn_error(TN_DISK, "runs/ is full of runs named %s: remove some, or name one with run=DIR", base);
}

static tn_status take_dir(const tn_settings *st, const char *model, bool fresh, tn_run_dir *r)
{
    const char *named = tn_settings_text(st, "run");
    char base[128];
    if (named[0]) {
        TN_RETURN_IF(tn_path_join("", named, r->dir, sizeof r->dir));
        r->made = !exists("", r->dir);
        tn_status s = tn_dir_make(r->dir);
        if (s == TN_OK) s = tn_run_lock(r->dir, WAIT_MS, &r->lock);
        if (s != TN_OK) tn_error_prefix("run");
        return s;
    }
    name_of(model, base);
    if (exists("", "runs") && !is_directory("runs"))
        return tn_error(
            TN_USAGE,
            "run: runs is a link or a file here, and runs are made in a directory of that name: name one with "
            "run=DIR (run=runs/NAME follows the link)");
    if (!fresh) TN_RETURN_IF(find_run(st, base, r));
    return r->found ? TN_OK : first_free(base, r);
}

tn_status tn_run_open(tn_settings *st, const char *model, bool fresh, tn_run_dir *out)
{
    tn_status s = TN_OK;
    tn_run_dir r = { .lock = -1 };
    TN_TRY(tn__run_check_path(st));
    TN_TRY(take_dir(st, model, fresh, &r));
    TN_TRY(tn_run_folder_check(r.dir));
    if (!fresh) TN_TRY(go_on(st, &r));
    TN_TRY(remove_leftovers(r.dir));
    if (fresh) TN_TRY(set_aside(r.dir));
    TN_TRY(write_config(st, r.dir));
    *out = r;
    r.lock = -1;
done:
    tn_run_undo(&r, s);
    tn_run_close(&r);
    return s;
}

void tn_run_close(tn_run_dir *r)
{
    if (r->lock >= 0) close(r->lock);
    r->lock = -1;
}

/* --- tidying --------------------------------------------------------------------------------------------------------- */

tn_status tn_run_tidy(const char *dir, const tn_settings *st, int64_t step)
{
    tn_ckpt_list l = { 0 };
    tn_status s = list_own(dir, &l);
    if (s == TN_OK) {
        tn_ckpt_list_mark(&l, tn_settings_int(st, "ckpt.keep_latest"), tn_settings_int(st, "ckpt.keep_best"), step);
        s = tn_ckpt_list_prune(dir, &l, step);
        tn_ckpt_list_free(&l);
    }
    if (s == TN_OK) s = drop_old(dir);
    return s == TN_USAGE ? TN_OK : s; /* an old/ with other things in it stays; the next start says so */
}

tn_status tn_run_sweep(const char *dir) { return remove_leftovers(dir); }

/* --- loading --------------------------------------------------------------------------------------------------------- */

/* Whether the line is an object of a step up to `step`. */
static bool line_stays(const char *line, size_t bytes, int64_t step)
{
    json_t *v = tn_json_tree(line, bytes, 0, NULL);
    const json_t *at = json_object_get(v, "step");
    const bool stays = json_is_integer(at) && json_integer_value(at) <= step;
    json_decref(v);
    return stays;
}

/* How many bytes of m stay. Steps only grow, so it is enough to go back from the end. */
static size_t bytes_to_keep(const tn_map *m, int64_t step)
{
    const char *text = (const char *)m->data;
    size_t keep = m->bytes;
    while (keep) {
        const bool whole = text[keep - 1] == '\n';
        size_t begin = keep - whole;
        while (begin && text[begin - 1] != '\n') begin--;
        if (whole && line_stays(text + begin, keep - 1 - begin, step)) break;
        keep = begin;
    }
    return keep;
}

tn_status tn_metrics_cut(const char *path, int64_t step)
{
    tn_status s = TN_OK;
    tn_map m = { 0 };
    struct stat st;
    int fd;
    if (lstat(path, &st) != 0 && errno == ENOENT) return TN_OK;
    TN_RETURN_IF(tn_file_open_own(path, O_RDWR, &fd));
    TN_TRY(tn_file_map(path, &m));
    const size_t keep = bytes_to_keep(&m, step);
    if (keep != m.bytes && ftruncate(fd, (off_t)keep) != 0) TN_TRY(tn_fs_error(TN_DISK, errno, "shorten", path));
done:
    tn_file_unmap(&m);
    close(fd);
    return s;
}

/* Where the data go on, and what whoever runs it has kept beside that. */
static tn_status load_cursor(const json_t *cursor, const tn_source *source, const tn_ckpt_extra *extra)
{
    if (!extra) return tn_source_load(source, cursor);
    const json_t *own = json_object_get(cursor, extra->name);
    if (!own) return tn_error(TN_USAGE, "the checkpoint has no %s state", extra->name);
    TN_RETURN_IF(extra->load(extra->ctx, own));
    return tn_source_load(source, json_object_get(cursor, "data"));
}

tn_status tn_run_resume(const tn_run_dir *r, const tn_training *how, tn_ckpt_state *out)
{
    const tn_settings *settings = how->settings;
    tn_trainer *t = how->trainer;
    const int64_t batch = how->batch, length = how->length;
    tn_status s = TN_OK;
    tn_ckpt_state st = { 0 };
    char path[TN_RUN_PATH];
    TN_TRY(tn_ckpt_load(r->checkpoint, tn_trainer_store(t), tn_trainer_guard(t), &st));
    if (st.batch != batch || st.length != length) /* train.batch=auto found another one: the machine has other memory */
        TN_FAIL(TN_USAGE,
                "train.batch: the run has batches of %lld x %lld tokens, this command makes them %lld x %lld: set "
                "train.batch=%lld, start over with --fresh, or name another run with run=OTHER",
                (long long)st.batch, (long long)st.length, (long long)batch, (long long)length, (long long)st.batch);
    TN_TRY(record_parts(r->dir, how, false));
    tn_trainer_resume_loss_scale(t, &st.scaling);
    s = load_cursor(st.cursor, how->source, how->extra);
    if (s != TN_OK) {
        tn_error_prefix("data");
        goto done;
    }
    TN_TRY(tn_path_join(r->dir, "metrics.jsonl", path, sizeof path));
    TN_TRY(tn_metrics_cut(path, st.unevaluated ? st.step - 1 : st.step)); /* its line comes with the evaluation */
    TN_TRY(tn__ckpt_point(r->dir, "latest", st.step)); /* a killed process, or damage, may have left it elsewhere */
    TN_TRY(tn_run_tidy(r->dir, settings, st.step));
    *out = st;
    st.cursor = NULL;
done:
    tn_ckpt_state_free(&st);
    return s;
}
