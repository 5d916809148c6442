/* A file of numbers that frozen models gave, NAME-KEY.bin: written once, whole or not at all, and read with pread as they are needed
 * (tn_file), so that the page cache holds what a machine has room for. The key is a hash of all that the numbers depend on: who has it knows
 * every size, and the file says nothing else. */
#ifndef TN_TASKS_WIRE_KEPT_H
#define TN_TASKS_WIRE_KEPT_H

#include "base/fs.h"
#include "base/hash.h"

#include <tenon/tensor.h>

typedef struct tn_wire_kept_writer tn_wire_kept_writer;
/* payload: bytes of all numbers. */
tn_status tn_wire_kept_begin(const char *path, const char key[TN_HASH_BYTES], uint64_t payload,
                             tn_wire_kept_writer **out);
/* n numbers more, of the type `from`, kept as `to`. */
tn_status tn_wire_kept_add(tn_wire_kept_writer *w, const void *x, tn_dtype from, tn_dtype to, int64_t n);
tn_status tn_wire_kept_finish(tn_wire_kept_writer *w); /* then abort it too: that frees it */
void tn_wire_kept_abort(tn_wire_kept_writer *w);       /* takes NULL; no file is left unless it was finished */
uint64_t tn_wire_kept_bytes(uint64_t payload);         /* of the whole file */

typedef struct tn_wire_kept {
    tn_file file; /* a zeroed one is closed */
    char path[TN_PATH_BYTES];
} tn_wire_kept;

/* Reads all of it once: a file that is cut, damaged or of another key is refused. */
tn_status tn_wire_kept_open(const char *path, const char key[TN_HASH_BYTES], uint64_t payload, tn_wire_kept *out);
void tn_wire_kept_close(tn_wire_kept *k);
/* n numbers of a type that begin at byte `at` of the payload: i32 as they are, others as f32. TN_BAD_FILE: the file was changed
 * meanwhile. By several threads at once; no allocation. */
tn_status tn_wire_kept_read(const tn_wire_kept *k, uint64_t at, tn_dtype type, int64_t n, void *to);
/* TN_BAD_FILE, with the remedy. */
tn_status tn_wire_kept_damaged(const char *path, const char *what);

#endif
