/* How much memory this process may use: what the machine has, or less where the process is confined to less. */
#ifndef TN_TRAIN_MEMORY_LIMIT_H
#define TN_TRAIN_MEMORY_LIMIT_H

/* In bytes. Reads files of the system; what cannot be read limits nothing. */
double tn_memory_limit(void);
/* What of it is not in use now, by whomever; all of it where the system does not say. */
double tn_memory_available(void);

/* The least limit of a control group of version 2 and the groups above it: `root` is where they are mounted, `group` a path
 * below it ("/jobs/a"). A number beyond any machine where there is none. */
double tn_memory_limit_of_group(const char *root, const char *group);

#endif
