/* Reading JSON value by value from memory, for files that may be large or hostile: headers of tensors, tokenizers, documents.
 *
 * It allocates nothing. jansson, which the small files use, builds a tree of 45 to 80 times the text ("[]," is 3 bytes there
 * and 136 in memory, "{}," 250: a header of 24 MB took 1.84 GB), and offers no bound. tn_json_tree is jansson within one.
 *
 *     tn_json_open(&r, text, bytes);
 *     if (tn_json_enter(&r, '{'))
 *         while (tn_json_key(&r))
 *             if (tn_json_is(&r, "shape")) ... one value is read or skipped ...
 *             else tn_json_skip(&r);
 *     if (!tn_json_end(&r)) ... r.why, tn_json_line(&r) ...
 *
 * The first error stays: every call after it returns false, so that it is enough to look once, at the end. What a key or a
 * text says stays valid until the next call. RFC 8259, UTF-8 checked; names that come twice are the caller's business. */
#ifndef TN_IO_JSON_READ_H
#define TN_IO_JSON_READ_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TN_JSON_DEPTH = 256 };

typedef struct tn_json {
    const char *begin, *at, *end;
    const char *why;  /* the first error, or NULL */
    const char *raw;  /* the last key or text between its quotes, */
    size_t raw_bytes; /* with its escapes, */
    size_t bytes;     /* and without them */
    bool nul;         /* a text may hold U+0000; false unless the caller sets it after the open */
    int depth;
    char open[TN_JSON_DEPTH]; /* '{' or '[' */
    bool some[TN_JSON_DEPTH]; /* it has a value already */
} tn_json;

void tn_json_open(tn_json *r, const char *text, size_t bytes);
/* What comes next: '{', '[', '"', '0' (a number), 't', 'f', 'n'; 0 after an error or where there is no value. */
char tn_json_peek(tn_json *r);
/* Goes into an object or a list; false, and nothing is read, where the next value is another. */
bool tn_json_enter(tn_json *r, char bracket);
/* The next key of the object, or that the list has one more value; false at its end, which is then behind. */
bool tn_json_key(tn_json *r);
bool tn_json_item(tn_json *r);
/* A value of its kind; false where it is another: that one is skipped, so that the caller may go on. An integer has neither
 * point nor exponent and fits; a flag is true or false. */
bool tn_json_text(tn_json *r);
bool tn_json_integer(tn_json *r, int64_t *out);
bool tn_json_flag(tn_json *r, bool *out);
bool tn_json_skip(tn_json *r);
/* Skips a value and says where it lies. */
bool tn_json_extent(tn_json *r, const char **text, size_t *bytes);
/* After the last value: nothing follows. */
bool tn_json_end(tn_json *r);
size_t tn_json_line(const tn_json *r);

/* The last key or text: whether it is `word`; decoded to `out` (r->bytes, and a NUL), which may be where it lies. */
bool tn_json_is(const tn_json *r, const char *word);
char *tn_json_copy(const tn_json *r, char *out);

/* A tree of jansson's for a file of at most 128 KiB, or for a longer one whose tree takes at most its size and 8 MiB.
 * flags: as json_loadb. NULL: err says why. */
json_t *tn_json_tree(const char *text, size_t bytes, size_t flags, json_error_t *err);

#endif
