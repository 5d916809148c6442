/* What the help of `tenon sample` shows of its keys. */
#ifndef TN_CLI_SAMPLE_KEYS_H
#define TN_CLI_SAMPLE_KEYS_H

#include <stdio.h>

void tn_sample_keys(FILE *f);

#endif
