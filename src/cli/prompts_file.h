/* A file of prompts, one per line, for `tenon sample --prompts=FILE`. */
#ifndef TN_CLI_PROMPTS_FILE_H
#define TN_CLI_PROMPTS_FILE_H

#include "base/alloc.h"
#include "sample/sample.h"

typedef struct tn_prompts {
    tn_sample_prompt *at; /* (n) */
    int64_t *line;        /* (n) where each stands, from 1 */
    int64_t n;
    size_t longest; /* bytes */
    char *text;     /* the file, its lines ended by NUL */
    tn_arena arena; /* of all but the text */
} tn_prompts;

/* Empty lines are left out, and so is the \r of a line's end. TN_USAGE: there are none, or more than `most`; TN_BAD_FILE: a line is not
 * UTF-8. */
tn_status tn_prompts_read(const char *path, int64_t most, tn_prompts *out);
void tn_prompts_free(tn_prompts *p); /* takes a zeroed one */

#endif
