/* The calling thread's error text. Owns no memory but two thread-local buffers; never fails, never prints.
 * Invariant: the text is one line without control characters, whatever names of files and things in them it quotes. */
#include "base/status.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 1024 };

static _Thread_local char error_text[TEXT_BYTES];
static _Thread_local char error_where[128];

tn_status tn_error_at(const char *file, int line, tn_status code, const char *fmt, ...)
{
    va_list ap;
    char text[TEXT_BYTES]; /* the arguments may quote the old message */
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tn_text_clean(text);
    memcpy(error_text, text, sizeof text);
    snprintf(error_where, sizeof error_where, "%s:%d", file, line);
    return code;
}

void tn_error_prefix(const char *fmt, ...)
{
    va_list ap;
    char text[TEXT_BYTES];
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0 || n >= (int)sizeof text - 3) return;
    snprintf(text + n, sizeof text - (size_t)n, ": %.*s", TEXT_BYTES - n - 3, error_text);
    tn_text_clean(text);
    memcpy(error_text, text, sizeof text);
}

const char *tn_error_text(void) { return error_text; }

const char *tn_error_where(void) { return error_where; }

const char *tn_status_name(tn_status s)
{
    switch (s) {
    case TN_OK: return "ok";
    case TN_INTERNAL: return "internal";
    case TN_USAGE: return "usage";
    case TN_BAD_FILE: return "bad file";
    case TN_DIVERGED: return "diverged";
    case TN_MEMORY: return "memory";
    case TN_DISK: return "disk";
    case TN_INTERRUPTED: return "interrupted";
    }
    return "unknown";
}
