/* Contexts as they are typed: "64,1024..8192", the second of which doubles from one to the other. */
#ifndef TN_CLI_CONTEXT_LIST_H
#define TN_CLI_CONTEXT_LIST_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { TN_CONTEXTS_MOST = 16 };

typedef struct tn_context_list {
    int64_t at[TN_CONTEXTS_MOST]; /* (n), from small to large */
    size_t n;
} tn_context_list;

tn_status tn_context_list_read(const char *text, tn_context_list *out);

#endif
