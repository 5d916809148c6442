/* Removing run directories that are no longer needed. */
#include "lab/worker/trial_run.h"

#include "base/fs.h"
#include "train/checkpoint/run_folder.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The trial whose directory has this name; NULL: none, or one of something else. */
static const tn_trial *trial_named(const tn_trial_host *h, const tn_study *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++) {
        const tn_trial *t = &s->trials[i];
        const tn_claim c = { .side = (size_t)t->side, .kind = t->kind, .number = t->number };
        char path[TN_PATH_BYTES];
        if (tn_trial_dir(h, &c, path) == TN_OK && strcmp(strrchr(path, '/') + 1, name) == 0) return t;
    }
    return NULL;
}

static bool leads_elsewhere(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

tn_status tn_trial_folder(const char *runs, const char *study, char out[TN_PATH_BYTES])
{
    TN_RETURN_IF(tn_path_join(runs, study, out, TN_PATH_BYTES));
    const char *bad = leads_elsewhere(runs) ? runs : leads_elsewhere(out) ? out : NULL;
    if (!bad) return TN_OK;
    return tn_error(TN_USAGE,
                    "%.640s is a link or a file, and trials need a directory there: move it away, or name "
                    "another database with --db=FILE",
                    bad);
}

/* No fault of the trial's, so that it waits and the worker ends: somebody has to look. */
tn_status tn_trial_dir_check(const char *dir, bool remove)
{
    const tn_status s = remove ? tn_tree_remove(dir, "", tn_run_owns) : tn_tree_check(dir, "", tn_run_owns);
    return s == TN_USAGE ? TN_DISK : s;
}

tn_status tn_trial_sweep(const tn_trial_host *h, const tn_study *s)
{
    char folder[TN_PATH_BYTES], path[TN_PATH_BYTES];
    tn_status st = TN_OK;
    TN_RETURN_IF(tn_trial_folder(h->runs, h->plan->name, folder));
    DIR *d = h->plan->keep ? NULL : opendir(folder);
    if (!d) return TN_OK;
    for (struct dirent *e; st == TN_OK && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        const tn_trial *t = trial_named(h, s, e->d_name);
        if (!t || !tn_trial_ended(t->state)) continue;
        st = tn_path_join(folder, e->d_name, path, sizeof path);
        if (st == TN_OK) st = tn_run_part_remove(path, "");
        if (st == TN_USAGE) st = TN_OK; /* a link, or something else lies in it: left alone */
    }
    closedir(d);
    (void)rmdir(folder); /* where nothing is left in them */
    (void)rmdir(h->runs);
    return st;
}
