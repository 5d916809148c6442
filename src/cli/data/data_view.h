/* What `tenon data` prints of a data set: one row per split, and the lengths of documents as a histogram. */
#ifndef TN_CLI_DATA_VIEW_H
#define TN_CLI_DATA_VIEW_H

#include "cli/cli.h"
#include "data/dataset.h"

/* Lengths by powers of two: bucket i counts 2^i <= n < 2^(i+1). */
typedef struct tn_lengths {
    uint64_t bucket[64], n, sum, least, most;
} tn_lengths;

void tn_lengths_add(tn_lengths *h, uint64_t length);
tn_status tn_lengths_print(tn_cli *c, const tn_lengths *h, const char *unit);

tn_status tn_data_print(tn_cli *c, const char *path, const tn_dataset *d);
/* {"name":NAME,"value":VALUE,"unit":UNIT} with --json; nothing without. */
tn_status tn_data_emit(tn_cli *c, const char *name, uint64_t value, const char *unit);
tn_status tn_data_emit_text(tn_cli *c, const char *name, const char *text);

#endif
