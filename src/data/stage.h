/* A folder that appears complete or not at all. Files are written into `.tmp-NAME-PID` next to it, which replaces the
 * old folder in one rename. A lock shows that its process lives; temporary folders of dead processes are removed by the
 * next one. */
#ifndef TN_DATA_STAGE_H
#define TN_DATA_STAGE_H

#include "base/fs.h"

typedef struct tn_stage {
    char final_path[TN_PATH_BYTES], temp[TN_PATH_BYTES];
    int lock; /* -1: closed */
    tn_tree_owns *owns;
} tn_stage;

/* `owns` says whether an entry of the existing folder may be replaced, and `proves` that the folder is one of ours and not
 * one that only has files of such names. A folder that holds anything else is refused; an empty one is taken. */
tn_status tn_stage_open(const char *path, tn_tree_owns *owns, bool (*proves)(const char *path), tn_stage *s);
tn_status tn_stage_commit(tn_stage *s); /* closes it whatever happened */
void tn_stage_abort(tn_stage *s);       /* removes the temporary; nothing to do after commit */

/* Removes what dead processes left beside `path`; tn_stage_open does so too. */
void tn_stage_clean(const char *path, tn_tree_owns *owns);

#endif
