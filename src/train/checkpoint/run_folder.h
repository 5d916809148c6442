/* Which files a run's directory may hold, and how such a directory is recognised. Nothing else is ever removed from it,
 * and other directories are not written to. A new file of a run is a row in run_folder.c. */
#ifndef TN_TRAIN_RUN_FOLDER_H
#define TN_TRAIN_RUN_FOLDER_H

#include "base/fs.h"

/* Begins the config.yaml of a run; a file of settings that somebody wrote does not have it. */
#define TN_RUN_MARK "# A run of tenon:"
#define TN_RUN_TOKENIZER "tokenizer.json" /* of a task that trains one */

/* Whether an entry of a run ("step-3/state.json", "old/config.yaml") is one that a run writes: a tn_tree_owns. */
bool tn_run_owns(const char *name, mode_t mode);

/* The directory may be used as a run: it is empty, or everything in it is a run's and its config.yaml has the mark, or it
 * holds a checkpoint; files of other names may lie beside that, and stay. TN_USAGE: it may not, and why. Links in place of
 * files or checkpoints are refused, so are other things than a run's in old/. */
tn_status tn_run_folder_check(const char *dir);

/* Removes a part of a run (`as`: "step-1/", "old/"; "": a whole run) if nothing else lies in it. */
tn_status tn_run_part_remove(const char *path, const char *as);

#endif
