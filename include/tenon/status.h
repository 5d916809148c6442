/* Status codes of the library. Their values are the exit codes of the command and never change. */
#ifndef TENON_STATUS_H
#define TENON_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tn_status {
    TN_OK = 0,
    TN_INTERNAL = 1, /* a fault of ours */
    TN_USAGE = 2,    /* a wrong key, value, shape or argument */
    TN_BAD_FILE = 3, /* a file that is missing, cut short or malformed */
    TN_DIVERGED = 4, /* a non-finite loss or gradient, by policy; a check that failed */
    TN_MEMORY = 5,   /* out of memory, or a plan that does not fit */
    TN_DISK = 6,     /* a write that failed */
    TN_INTERRUPTED = 130
} tn_status;

/* Text of the calling thread's last error: what, where, what to do. Never NULL; "" when there was none. */
const char *tn_error_text(void);
/* Source position of that error, for bug reports ("src/io/x.c:12"). Never NULL. */
const char *tn_error_where(void);
const char *tn_status_name(tn_status s);

#ifdef __cplusplus
}
#endif
#endif
