/* A destination for streamed bytes: a function and its context. A failure ends the stream. */
#ifndef TN_IO_SINK_H
#define TN_IO_SINK_H

#include "base/status.h"

#include <stddef.h>

typedef struct tn_sink {
    tn_status (*write)(void *ctx, const void *data, size_t bytes);
    void *ctx; /* borrowed */
} tn_sink;

#endif
