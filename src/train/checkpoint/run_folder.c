/* Names of files in a run's directory. What is not listed here belongs to someone else. */
#include "train/checkpoint/run_folder.h"

#include "base/text.h"
#include "train/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_one_of(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0) list++;
    return *list != NULL;
}

/* What a source keeps: NAME-KEY.bin. */
static bool is_kept(const char *name)
{
    static const char *const names[] = { "teach-", "features-", NULL };
    enum { DIGITS = 32 };
    for (size_t i = 0; names[i]; i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(name, names[i], n) == 0 && strspn(name + n, "0123456789abcdef") == DIGITS)
            return strcmp(name + n + DIGITS, ".bin") == 0;
    }
    return false;
}

static bool is_file(const char *name)
{
    static const char *const files[] = { "config.yaml", "metrics.jsonl",  "metrics.csv",
                                         "memory.csv",  TN_RUN_TOKENIZER, NULL };
    return is_one_of(files, name) || is_kept(name);
}

static bool is_link(const char *name)
{
    static const char *const links[] = { "latest", "best", NULL };
    return is_one_of(links, name);
}

static bool is_of_checkpoint(const char *name)
{
    static const char *const files[] = {
        "model.safetensors",     "state.safetensors",     "state.json", "manifest.json",
        "model.safetensors.zst", "state.safetensors.zst", NULL
    };
    return is_one_of(files, name);
}

/* A checkpoint, or one on its way out. */
static bool is_step(const char *name) { return tn__ckpt_step_of(strncmp(name, "old-", 4) == 0 ? name + 4 : name) >= 0; }

static bool is_old(const char *name) { return strcmp(name, "old") == 0; }

static bool is_any(const char *name) { return is_file(name) || is_link(name) || is_step(name) || is_old(name); }

static bool owns_in_checkpoint(const char *name, mode_t mode)
{
    return S_ISREG(mode) && (is_of_checkpoint(name) || tn_is_temp_of(name, is_of_checkpoint));
}

static bool owns_at_top(const char *name, mode_t mode)
{
    if (is_file(name)) return S_ISREG(mode);
    if (is_link(name)) return S_ISLNK(mode) || S_ISREG(mode); /* a file where the filesystem has no links */
    if (is_old(name) || tn__ckpt_step_of(name) >= 0) return S_ISDIR(mode);
    return tn_is_temp_of(name, is_any) && (S_ISREG(mode) || S_ISLNK(mode) || S_ISDIR(mode));
}

bool tn_run_owns(const char *name, mode_t mode)
{
    char first[TN_CKPT_NAME + 64];
    const char *slash = strchr(name, '/');
    if (!slash) return owns_at_top(name, mode);
    if ((size_t)(slash - name) >= sizeof first) return false;
    snprintf(first, sizeof first, "%.*s", (int)(slash - name), name);
    const char *rest = slash + 1;
    if (tn__ckpt_step_of(first) >= 0 || tn_is_temp_of(first, is_step)) return owns_in_checkpoint(rest, mode);
    if (!is_old(first) && !tn_is_temp_of(first, is_old)) return false;
    return strncmp(rest, "old", 3) != 0 && tn_run_owns(rest, mode); /* a run that was set aside holds no other */
}

tn_status tn_run_part_remove(const char *path, const char *as) { return tn_tree_remove(path, as, tn_run_owns); }

/* --- the proof ------------------------------------------------------------------------------------------------------- */

typedef struct contents {
    bool config, files, old; /* config.yaml; any file at the top; old/ */
    bool checkpoint;         /* one whose manifest is whole */
    char other[160];         /* the first name that is not a run's, fit to print; or "" */
} contents;

static bool has_manifest(const char *dir, const char *name)
{
    char path[TN_PATH_BYTES];
    json_t *manifest;
    if (tn_path_join(dir, name, path, sizeof path) != TN_OK || tn_ckpt_read_manifest(path, &manifest) != TN_OK)
        return false;
    json_decref(manifest);
    return true;
}

static tn_status look_at(const char *dir, int fd, const char *name, contents *c)
{
    struct stat st;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return TN_OK;
    if (!tn_run_owns(name, st.st_mode)) {
        if (is_any(name) && !tn_is_temp_of(name, is_any))
            return tn_error(
                TN_USAGE,
                "run: %.640s/%s is %s, which is not part of a run: move it away, or name another run with run=OTHER",
                dir, name,
                S_ISLNK(st.st_mode)   ? "a link"
                : S_ISREG(st.st_mode) ? "a file"
                                      : "not a file");
        if (!c->other[0]) tn_text_quote(name, c->other, sizeof c->other);
        return TN_OK;
    }
    c->config = c->config || strcmp(name, "config.yaml") == 0;
    c->files = c->files || is_file(name);
    c->old = c->old || is_old(name);
    c->checkpoint = c->checkpoint || (tn__ckpt_step_of(name) >= 0 && has_manifest(dir, name));
    return TN_OK;
}

static tn_status read_contents(const char *dir, contents *c)
{
    tn_status s = TN_OK;
    DIR *d = opendir(dir);
    if (!d) return tn_fs_error(TN_DISK, errno, "read directory", dir);
    for (struct dirent *e; s == TN_OK && (e = readdir(d));) s = look_at(dir, dirfd(d), e->d_name, c);
    closedir(d);
    return s;
}

static tn_status read_mark(const char *dir, bool *marked)
{
    char path[TN_PATH_BYTES], head[sizeof TN_RUN_MARK] = "";
    int fd;
    TN_RETURN_IF(tn_path_join(dir, "config.yaml", path, sizeof path));
    if (tn_fd_open(path, &fd) != TN_OK) return TN_DISK; /* it is there: a file was seen a moment ago */
    *marked = tn_fd_read(fd, head, sizeof head - 1) == (ptrdiff_t)sizeof head - 1 && strcmp(head, TN_RUN_MARK) == 0;
    close(fd);
    return TN_OK;
}

tn_status tn_run_folder_check(const char *dir)
{
    contents c = { 0 }, aside = { 0 };
    char old[TN_PATH_BYTES];
    bool marked = false;
    TN_RETURN_IF(read_contents(dir, &c));
    if (c.old) TN_RETURN_IF(tn_path_join(dir, "old", old, sizeof old));
    if (c.old) TN_RETURN_IF(tn_tree_check(old, "old/", tn_run_owns));
    if (c.old)
        TN_RETURN_IF(read_contents(old, &aside)); /* a process that was killed may have moved them there already */
    if (c.checkpoint || aside.checkpoint) return TN_OK;
    if (c.other[0])
        return tn_error(
            TN_USAGE,
            "run: %.640s contains %s but no checkpoint: name a new directory with run=OTHER, or move that away", dir,
            c.other);
    if (c.config) TN_RETURN_IF(read_mark(dir, &marked));
    if (c.files && !marked)
        return tn_error(
            TN_USAGE,
            "run: %.640s contains files that tenon did not write (its config.yaml would begin with \"%s\"): "
            "name a new directory with run=OTHER",
            dir, TN_RUN_MARK);
    return TN_OK;
}
