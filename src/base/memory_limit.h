/* How much memory this process may use. */
#ifndef TN_BASE_MEMORY_LIMIT_H
#define TN_BASE_MEMORY_LIMIT_H

/* Bytes that this process may use: the machine's memory, or less where a control group limits it; and what of it is free now. */
double tn_memory_limit(void);
double tn_memory_available(void);
/* The least limit of a control group (version 2) and those above it: `root` is the mount point, `group` a path below it
 * ("/jobs/a"). A number beyond any machine where there is none. */
double tn_memory_limit_of_group(const char *root, const char *group);

#endif
