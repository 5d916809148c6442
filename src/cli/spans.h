/* Lists of whole numbers behind a flag: "1k,4096" or "1024..32768", which doubles from one to the other. */
#ifndef TN_CLI_SPANS_H
#define TN_CLI_SPANS_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Numbers from 1 to 1e9, each larger than the one before it, at most `most`. flag: "--contexts", for messages. */
tn_status tn_spans_read(const char *flag, const char *text, int64_t *out, size_t most, size_t *n);

#endif
