/* Files that rows of an ablation need, in a folder of their own. */
#ifndef TN_REPORT_ABLATE_SCRATCH_H
#define TN_REPORT_ABLATE_SCRATCH_H

#include "base/fs.h"

#include <tenon/settings.h>

/* The text that data= names as a prepared folder below dir. *path is "" where there is none, or it is large, or prepared already. */
tn_status tn_ablate_prepare(const tn_settings *st, const char *dir, char path[TN_PATH_BYTES]);

/* Images with labels, made up, in the files that the task reads, where the settings name a task of images and no folder; task.data is then set
 * in st. *made: they are. */
tn_status tn_ablate_make_images(tn_settings *st, const char *dir, bool *made);

/* Removes the folder. */
void tn_ablate_sweep(const char *dir);

#endif
