/* Finding the files of an image set, with errors that say what is missing and where it is to be had. For src/tasks only. */
#ifndef TN_TASKS_IMAGE_FILES_H
#define TN_TASKS_IMAGE_FILES_H

#include "base/fs.h"
#include "tasks/samples.h"

typedef struct tn_image_files {
    const char *task;   /* whose they are */
    const char *needed; /* what the folder has to hold, for messages */
    const char *from;   /* where it is to be had */
} tn_image_files;

/* The first of `names` (NULL at the end) that is in task.data, as it is, .gz or .zst; path has TN_PATH_BYTES. Where task.data
 * is a file it is that one, unless `folder`. */
tn_status tn__image_find(const tn_settings *st, const tn_image_files *f, const char *const *names, bool folder,
                         char *path);

/* Refuses a header that promises more numbers than the file can hold, however well it is packed. */
tn_status tn__image_can_hold(const char *path, uint64_t bytes);

#endif
