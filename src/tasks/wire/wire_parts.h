/* What the files of src/tasks/wire share, and nobody else. */
#ifndef TN_TASKS_WIRE_PARTS_H
#define TN_TASKS_WIRE_PARTS_H

#include "tasks/wire/wire_text.h"

/* An example is written piece by piece: the context, then each question with its answers behind it. */
tn_status tn__wire_add_context(tn_wire_example *e, const char *text, size_t bytes);
/* The question is before, text and after, one behind the other. */
tn_status tn__wire_add_question(tn_wire_example *e, const char *before, const char *text, size_t bytes,
                                const char *after);
/* The answer is before, then text. */
tn_status tn__wire_add_gold(tn_wire_example *e, const char *before, const char *text, size_t bytes);

/* Example i of `count` that are spread over the `there` that a split has. */
static inline int64_t tn__wire_spread(int64_t i, int64_t count, int64_t there)
{
    return (int64_t)((double)i * (double)there / (double)count);
}

/* A new one with these fields; data is closed also where it fails. */
tn_status tn__wire_texts_new(const tn_wire_texts *like, tn_wire_texts **out);
/* hash of n numbers and some bytes. */
tn_status tn__wire_hash(const int64_t *numbers, size_t n, const void *data, size_t bytes, char hash[TN_HASH_BYTES]);
/* A whole file, packed or not; a NUL follows it that n does not count. */
tn_status tn__wire_read_file(const char *path, tn_text *out);

#endif
