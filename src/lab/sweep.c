/* Run directories that nobody needs any more. */
#include "lab/trial_run.h"

#include "base/fs.h"
#include "train/checkpoint.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
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

tn_status tn_trial_sweep(const tn_trial_host *h, const tn_study *s)
{
    char folder[TN_PATH_BYTES], path[TN_PATH_BYTES];
    tn_status st = TN_OK;
    TN_RETURN_IF(tn_path_join(h->runs, s->name, folder, sizeof folder));
    DIR *d = h->plan->keep ? NULL : opendir(folder);
    if (!d) return TN_OK;
    for (struct dirent *e; st == TN_OK && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        const tn_trial *t = trial_named(h, s, e->d_name);
        if (!t || !tn_trial_ended(t->state)) continue;
        st = tn_path_join(folder, e->d_name, path, sizeof path);
        if (st == TN_OK) st = tn__dir_remove(path);
    }
    closedir(d);
    (void)rmdir(folder); /* where nothing is left in them */
    (void)rmdir(h->runs);
    return st;
}
