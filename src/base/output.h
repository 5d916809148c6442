/* Whether something can be written under a name, asked before the work whose result goes there. Nothing is made, opened for
 * writing or shortened. An answer is for now: the write itself is checked as well. TN_DISK names the path and a remedy. */
#ifndef TN_BASE_OUTPUT_H
#define TN_BASE_OUTPUT_H

#include "base/status.h"

#include <stdbool.h>

/* A file: its directory is there and takes files, or the name is a file, a device or a pipe that can be written. */
tn_status tn_output_file_check(const char *path);
/* A directory: it is one that takes files, or the nearest of its parents that is there does. */
tn_status tn_output_dir_check(const char *path);
/* What is there has to be written where it lies, because nothing can take its name: a device, a pipe, a file in a directory
 * that takes no others. */
bool tn_output_in_place(const char *path);

#endif
