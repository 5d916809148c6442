/* Where the runs of a race go, and the best weights of a side while it trains. A folder that is there is never written into but by
 * making new ones below it. */
#include "base/fs.h"
#include "base/output.h"
#include "cli/race/race.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* --- folders ---------------------------------------------------------------------------------------------------------- */

/* runs/race-N. mkdir decides who gets a name, so that two races never share one. */
static tn_status next_folder(tn_race *r)
{
    TN_RETURN_IF(tn_dir_make("runs"));
    for (int n = 1; n < 100000; n++) {
        char *dir = tn_arena_printf(&r->arena, "runs/race-%d", n);
        if (!dir) return tn_error(TN_MEMORY, "out of memory");
        r->dir = dir;
        if (mkdir(dir, 0777) == 0) return TN_OK;
        if (errno != EEXIST) return tn_fs_error(TN_DISK, errno, "create directory", dir);
    }
    return tn_error(TN_DISK, "no name runs/race-N is free: remove some, or name a folder with run=DIR");
}

/* Letters, digits, dots and dashes; one dash for whatever else stood between them. */
static void add_plain(char *out, size_t *n, size_t most, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes && *n < most; i++) {
        const bool plain = isalnum((unsigned char)text[i]) || strchr("._-", text[i]);
        if (plain || (*n && out[*n - 1] != '-')) out[(*n)++] = plain ? text[i] : '-';
    }
}

/* "./models/cell.so,lr=7e-3" -> "cell-lr-7e-3": a word that needs no quotes and is no key=value. */
static void folder_name(const char *name, char out[96])
{
    static const char *const endings[] = { ".so", ".yaml", ".yml" };
    size_t n = 0, end = strcspn(name, ","), head = end, from = end;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t m = strlen(endings[i]);
        if (end > m && strncmp(name + end - m, endings[i], m) == 0) head = end - m;
    }
    while (from && name[from - 1] != '/') from--;
    if (from < head) add_plain(out, &n, 72, name + from, head - from);
    add_plain(out, &n, 72, name + end, strlen(name + end));
    while (n && (out[n - 1] == '-' || out[n - 1] == '.')) n--;
    out[n] = 0;
    if (!n || out[0] == '.' || out[0] == '-') snprintf(out, 96, "side");
}

static bool is_taken(const tn_race *r, const char *dir)
{
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->racer[i].n_trials; k++)
            if (r->racer[i].trial[k].dir && strcmp(r->racer[i].trial[k].dir, dir) == 0) return true;
    return false;
}

static tn_status name_run(tn_race *r, const tn_racer *x, tn_race_trial *t)
{
    char name[96];
    struct stat st;
    folder_name(x->name, name);
    const char *between = t->rate ? "-lr-" : "", *rate = t->rate ? t->rate : "";
    char *dir = tn_arena_printf(&r->arena, "%s/%s%s%s", r->dir, name, between, rate);
    for (int n = 2; dir && is_taken(r, dir); n++)
        dir = tn_arena_printf(&r->arena, "%s/%s-%d%s%s", r->dir, name, n, between, rate);
    if (!dir) return tn_error(TN_MEMORY, "out of memory");
    if (lstat(dir, &st) == 0)
        return tn_error(
            TN_USAGE,
            "run: %.640s already exists from another race: name another folder with run=DIR, or remove run=", dir);
    t->dir = dir;
    return TN_OK;
}

tn_status tn_race_keep(tn_race *r)
{
    if (!r->keep) return TN_OK;
    if (r->dir) TN_RETURN_IF(tn_dir_make(r->dir));
    else TN_RETURN_IF(next_folder(r));
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->racer[i].n_trials; k++)
            TN_RETURN_IF(name_run(r, &r->racer[i], &r->racer[i].trial[k]));
    return TN_OK;
}

/* --- weights ---------------------------------------------------------------------------------------------------------- */

static tn_status make_room(tn_race_weights *w, const tn_store *store)
{
    size_t n = 0;
    if (w->numbers) return TN_OK;
    for (int i = 0; i < tn_store_buckets(store); i++) n += (size_t)tn_store_bucket(store, i)->count;
    w->numbers = tn_alloc((n ? n : 1) * sizeof *w->numbers);
    w->count = n;
    return w->numbers ? TN_OK : tn_error(TN_MEMORY, "out of memory for the best weights");
}

tn_status tn_race_weights_take(tn_race_weights *w, const tn_store *store)
{
    tn_status s = TN_OK;
    tn_host_copy h = { 0 };
    TN_RETURN_IF(make_room(w, store));
    size_t at = 0;
    for (int i = 0; s == TN_OK && i < tn_store_buckets(store); i++) {
        const tn_bucket *b = tn_store_bucket(store, i);
        const size_t bytes = (size_t)b->count * sizeof *b->param;
        const void *p = tn_store_read(store, b->param, bytes, &h);
        if (p) memcpy(w->numbers + at, p, bytes);
        else s = TN_MEMORY;
        at += (size_t)b->count;
    }
    tn_host_copy_free(&h);
    return s;
}

tn_status tn_race_weights_give(const tn_race_weights *w, const tn_store *store)
{
    size_t at = 0;
    for (int i = 0; i < tn_store_buckets(store); i++) {
        const tn_bucket *b = tn_store_bucket(store, i);
        TN_RETURN_IF(tn_store_write(store, b->param, w->numbers + at, (size_t)b->count * sizeof *b->param));
        at += (size_t)b->count;
    }
    return TN_OK;
}

void tn_race_weights_free(tn_race_weights *w)
{
    tn_free(w->numbers);
    *w = (tn_race_weights){ 0 };
}
