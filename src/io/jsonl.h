/* JSON Lines, one flat object per line: an append-only writer for metrics and a streaming reader.
 *
 * The writer formats into a fixed buffer (no allocation after opening) and writes each line with one write(2): a killed
 * process leaves at most one partial line, at the end, which the reader accepts. One writer per file. NaN and
 * infinities are the texts "NaN", "Infinity" and "-Infinity". */
#ifndef TN_IO_JSONL_H
#define TN_IO_JSONL_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TN_JSONL_LINE_BYTES = 64 << 10, /* longest line written, with its newline */
    TN_JSONL_READ_BYTES = 1 << 20   /* longest line read: no line of ours is near it */
};

typedef struct tn_jsonl tn_jsonl;

/* append=false empties the file. append=true keeps it; a line cut off at its end is removed first. */
tn_status tn_jsonl_open(const char *path, bool append, tn_jsonl **out);
/* A line: begin, pairs, end. Keys must differ. Bytes that are no UTF-8 become U+FFFD. Pairs report nothing: a line
 * that grew too long fails in the end (TN_USAGE) and is not written. */
void tn_jsonl_begin(tn_jsonl *w);
void tn_jsonl_number(tn_jsonl *w, const char *key, double x); /* the shortest text that reads back equal */
void tn_jsonl_integer(tn_jsonl *w, const char *key, int64_t x);
void tn_jsonl_text(tn_jsonl *w, const char *key, const char *text);
void tn_jsonl_flag(tn_jsonl *w, const char *key, bool x);
/* After a failed write the file ends where it did before, and the next line may be tried. */
tn_status tn_jsonl_end(tn_jsonl *w);
/* From here on a line that cannot be written waits in memory, up to so many bytes of them, and goes out before the next one;
 * tn_jsonl_end still fails. Lines for which there is no room are lost, and counted. */
tn_status tn_jsonl_buffer(tn_jsonl *w, size_t bytes);
typedef struct tn_jsonl_backlog {
    size_t waiting, lost; /* lines */
} tn_jsonl_backlog;
tn_jsonl_backlog tn_jsonl_backlog_of(const tn_jsonl *w);
tn_status tn_jsonl_flush(tn_jsonl *w); /* tries to write what waits */
tn_status tn_jsonl_sync(tn_jsonl *w);  /* to the disk; after a failure lines may be lost, do not repeat it */
tn_status tn_jsonl_close(tn_jsonl *w); /* frees; takes NULL */

typedef struct tn_jsonl_reader tn_jsonl_reader;

tn_status tn_jsonl_reader_open(const char *path, tn_jsonl_reader **out);
/* The next object, borrowed until the next call, or NULL at the end. Blank lines are skipped. Anything else that is
 * not an object is an error that names file and line, except a last line without a newline: that one was cut. */
tn_status tn_jsonl_reader_next(tn_jsonl_reader *r, json_t **object);
/* From here on every `every`-th line is read and the others are passed over, but for the first `most` that contain `text`. */
void tn_jsonl_reader_thin(tn_jsonl_reader *r, int64_t every, const char *text, int64_t most);
/* From here on lines that are no object are passed over, and counted. */
void tn_jsonl_reader_forgive(tn_jsonl_reader *r);
int64_t tn_jsonl_reader_damaged(const tn_jsonl_reader *r, int64_t *first); /* how many were; the number of the first */
/* Before the first line: only the lines that begin within the last so many bytes are read; they are counted from 1. */
tn_status tn_jsonl_reader_tail(tn_jsonl_reader *r, size_t bytes);
int64_t tn_jsonl_reader_line(const tn_jsonl_reader *r); /* number of the last line read, from 1 */
bool tn_jsonl_reader_cut(const tn_jsonl_reader *r);     /* the end was reached and its last line was cut */
void tn_jsonl_reader_close(tn_jsonl_reader *r);         /* takes NULL */

/* A number as the writer wrote it, NaN and infinities included; false where the key is missing or no number. */
bool tn_jsonl_get_number(const json_t *object, const char *key, double *out);

#endif
