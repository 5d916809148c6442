/* The rows of data_sets.def by name. */
#include "cli/data/data_sets.h"

#include "base/text.h"

#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>

#define TN_DATA_SET(...) { __VA_ARGS__ },
#define TN_DATA_FROM(...)
const tn_data_set tn_data_sets[] = {
#include "cli/data/data_sets.def"
};
#undef TN_DATA_SET
#undef TN_DATA_FROM
#define TN_DATA_SET(...)
#define TN_DATA_FROM(...) { __VA_ARGS__ },
const tn_data_from tn_data_froms[] = {
#include "cli/data/data_sets.def"
};
#undef TN_DATA_SET
#undef TN_DATA_FROM

const size_t tn_data_sets_n = sizeof tn_data_sets / sizeof *tn_data_sets,
             tn_data_froms_n = sizeof tn_data_froms / sizeof *tn_data_froms;

tn_status tn_data_set_find(const char *name, const tn_data_set **out)
{
    char quoted[80];
    tn_nearest near = { .word = name };
    for (size_t i = 0; i < tn_data_sets_n; i++) {
        if (strcmp(tn_data_sets[i].name, name) == 0) return *out = &tn_data_sets[i], TN_OK;
        tn_nearest_try(&near, tn_data_sets[i].name);
    }
    return tn_error(TN_USAGE, "unknown data set %s%s%s%s `tenon data get` lists them",
                    tn_text_quote(name, quoted, sizeof quoted), near.best ? ": did you mean " : "",
                    near.best ? near.best : "", near.best ? "?" : ";");
}

const tn_data_from *tn_data_from_next(const tn_data_set *d, const tn_data_from *after)
{
    for (const tn_data_from *f = after ? after + 1 : tn_data_froms; f < tn_data_froms + tn_data_froms_n; f++)
        if (strcmp(f->set, d->name) == 0) return f;
    return NULL;
}

void tn_data_sets_offer(const char *typed, FILE *f)
{
    for (size_t i = 0; i < tn_data_sets_n; i++)
        if (strncmp(tn_data_sets[i].name, typed, strlen(typed)) == 0)
            fprintf(f, "%s\t%s\n", tn_data_sets[i].name, tn_data_sets[i].what);
}

bool tn_data_owns(const char *name, mode_t mode)
{
    const size_t work = strlen(TN_DATA_WORK);
    if (strncmp(name, TN_DATA_WORK, work) == 0 && (name[work] == 0 || name[work] == '/')) return true;
    if (!S_ISREG(mode) || strchr(name, '/')) return false;
    if (strcmp(name, TN_DATA_SOURCE) == 0) return true;
    for (size_t i = 0; i < tn_data_sets_n; i++)
        if (*tn_data_sets[i].into && strcmp(name, tn_data_sets[i].into) == 0) return true;
    for (size_t i = 0; i < tn_data_froms_n; i++)
        if (fnmatch(strrchr(tn_data_froms[i].files, '/') + 1, name, 0) == 0) return true;
    return false;
}
