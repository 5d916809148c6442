/* What a start that failed takes back: the folder that it made, as long as nothing was trained in it. Left there, it would offer a run to
 * go on with, and the next one would be called NAME-2. */
#include "train/run/run.h"

#include "base/fs.h"
#include "train/checkpoint/run_folder.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files that say nothing a rerun does not write again. */
static const char *const begun[] = { "config.yaml", TN_RUN_TOKENIZER, "metrics.jsonl" };

static bool says_nothing(const char *dir, const char *name)
{
    char path[TN_RUN_PATH];
    struct stat st;
    if (strcmp(name, "metrics.jsonl") == 0) /* its lines are steps */
        return tn_path_join(dir, name, path, sizeof path) == TN_OK && lstat(path, &st) == 0 && st.st_size == 0;
    for (size_t i = 0; i < sizeof begun / sizeof *begun; i++)
        if (strcmp(name, begun[i]) == 0) return true;
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static bool nothing_trained(const char *dir)
{
    bool nothing = true;
    DIR *d = opendir(dir);
    if (!d) return false;
    for (struct dirent *e; nothing && (e = readdir(d));) nothing = says_nothing(dir, e->d_name);
    closedir(d);
    return nothing;
}

void tn_run_undo(tn_run_dir *r, tn_status s)
{
    char path[TN_RUN_PATH];
    if (s == TN_OK || s == TN_INTERRUPTED || r->lock < 0 || !r->made || !nothing_trained(r->dir)) return;
    for (size_t i = 0; i < sizeof begun / sizeof *begun; i++)
        if (tn_path_join(r->dir, begun[i], path, sizeof path) == TN_OK) (void)unlink(path);
    (void)rmdir(r->dir); /* what cannot be removed stays; the start's own error is what counts */
}
