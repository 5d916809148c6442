/* Status codes and the error text that goes with them.
 *
 * A fallible function returns tn_status and leaves its outputs untouched on failure. The message lives in a
 * buffer of the calling thread (as errno does), so no context has to be passed through every call; it says what
 * went wrong, where, and what to do. The library never prints it: the command does, in one place. */
#ifndef TN_BASE_STATUS_H
#define TN_BASE_STATUS_H

#include <tenon/status.h>

#if defined(__GNUC__)
#define TN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TN_PRINTF(fmt, args)
#endif

/* Records the message and returns `code`, so that `return tn_error(TN_USAGE, "...")` reads well. */
tn_status tn_error_at(const char *file, int line, tn_status code, const char *fmt, ...) TN_PRINTF(4, 5);
/* Puts "prefix: " before the recorded message: callers add where they were. */
void tn_error_prefix(const char *fmt, ...) TN_PRINTF(1, 2);

#define tn_error(code, ...) tn_error_at(__FILE__, __LINE__, (code), __VA_ARGS__)

/* For functions with one `done:` label and a local `tn_status s`. */
#define TN_TRY(call)                                                                                                   \
    do {                                                                                                               \
        s = (call);                                                                                                    \
        if (s != TN_OK) goto done;                                                                                     \
    } while (0)

#define TN_FAIL(code, ...)                                                                                             \
    do {                                                                                                               \
        s = tn_error_at(__FILE__, __LINE__, (code), __VA_ARGS__);                                                      \
        goto done;                                                                                                     \
    } while (0)

/* For functions that own nothing: forward at once. */
#define TN_RETURN_IF(call)                                                                                             \
    do {                                                                                                               \
        tn_status s_ = (call);                                                                                         \
        if (s_ != TN_OK) return s_;                                                                                    \
    } while (0)

#endif
