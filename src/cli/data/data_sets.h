/* The table of data_sets.def, and fetching of one of its rows. */
#ifndef TN_CLI_DATA_SETS_H
#define TN_CLI_DATA_SETS_H

#include "base/fs.h"
#include "cli/cli.h"

typedef enum tn_data_where { TN_FROM_DEBIAN, TN_FROM_PYPI } tn_data_where;

typedef struct tn_data_set {
    const char *name, *kind, *into;
    uint64_t bytes;
    const char *licence, *what, *try;
} tn_data_set;

typedef struct tn_data_from {
    const char *set;
    tn_data_where where;
    const char *package;
    uint64_t bytes;
    const char *files;
} tn_data_from;

extern const tn_data_set tn_data_sets[];
extern const tn_data_from tn_data_froms[];
extern const size_t tn_data_sets_n, tn_data_froms_n;

/* TN_USAGE with the nearest name when there is none of that name. */
tn_status tn_data_set_find(const char *name, const tn_data_set **out);
/* The packages of a set, one after the other: pass NULL, then what was returned. NULL after the last. */
const tn_data_from *tn_data_from_next(const tn_data_set *d, const tn_data_from *after);

/* The file that says what a folder holds and where it came from; it is written last. */
#define TN_DATA_SOURCE "SOURCE"
/* Whether an entry of a folder can be one that tn_data_fill wrote. */
bool tn_data_owns(const char *name, mode_t mode);

/* The folder below a data set's own in which packages are fetched and unpacked; it is gone when the set is whole. */
#define TN_DATA_WORK ".fetch"

/* Runs the client of `from` in `work` (absolute, empty), printing each command before it runs; *package gets the path of what came.
 * TN_USAGE: this machine has no such client. TN_BAD_FILE: it failed. */
tn_status tn_data_fetch(tn_cli *c, const tn_data_from *from, const char *work, char package[TN_PATH_BYTES]);
/* Unpacks a package into the folder, without root and without running anything that is in it. */
tn_status tn_data_unpack(tn_cli *c, const tn_data_from *from, const char *package, const char *tree);
/* Makes the files of the set in `dir` out of an unpacked package. */
tn_status tn_data_fill(const tn_data_set *d, const tn_data_from *from, const char *tree, const char *dir,
                       uint64_t *bytes);

#endif
