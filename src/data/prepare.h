/* `tenon data prepare` as a library call: files in, a self-contained folder of shards out.
 *
 * Streams: a few megabytes per thread, whatever the size of the inputs. The result depends on inputs and settings
 * alone. The folder appears complete or not at all; a second call with unchanged inputs does nothing. */
#ifndef TN_DATA_PREPARE_H
#define TN_DATA_PREPARE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <tenon/settings.h>

typedef struct tn_prepare_progress {
    const char *phase;    /* "count", "merge" (training a tokenizer), "prepare" */
    uint64_t done, total; /* bytes of the input files; "merge": tokens of the vocabulary */
    uint64_t tokens;      /* written so far; arrays: samples */
    double seconds;
} tn_prepare_progress;

typedef struct tn_prepare {
    const char *const *inputs; /* (n) files and folders */
    size_t n;
    const tn_settings *settings; /* with the rows of tn_prepare_settings */
    void *ctx;
    void (*progress)(void *ctx, const tn_prepare_progress *p); /* or NULL */
    bool (*interrupted)(void *ctx);                            /* asked now and then, or NULL */
} tn_prepare;

typedef struct tn_prepare_report {
    bool up_to_date; /* nothing had to be done */
    size_t files, skipped;
    double seconds;
    uint64_t input_bytes;
} tn_prepare_report;

/* A table with the keys: out, tokenizer, ... (docs/data.md). */
tn_status tn_prepare_settings(tn_settings **out);
tn_status tn_prepare_run(const tn_prepare *p, tn_prepare_report *out);

#endif
