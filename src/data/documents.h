/* Documents from text files: .txt (whole, or split at separator lines), .jsonl and .json lists, packed or not, one after the
 * other. A document comes in pieces of about a megabyte, so that memory does not grow with it. Knows nothing of tokens.
 *
 * doc_sep: "none" (a file is a document), "line" (each line), "blank" (groups between blank lines), "wikitext" (articles, at
 * headings " = Title = " between blank lines), or any other text: a line that is exactly that text, such as <|endoftext|>,
 * separates and is dropped. Blank documents are passed over. */
#ifndef TN_DATA_DOCUMENTS_H
#define TN_DATA_DOCUMENTS_H

#include "data/input_files.h"

enum {
    TN_PIECE_BYTES = 1 << 20,   /* of text, about */
    TN_ELEMENT_BYTES = 64 << 20 /* longest line of .jsonl and longest element of .json */
};

/* The last place where text may be cut without changing what is made of it; 0: none. */
typedef size_t tn_cut_fn(const void *ctx, const char *text, size_t bytes);

typedef struct tn_documents_options {
    const char *doc_sep;  /* see above; NULL is "none" */
    const char *text_key; /* of objects in JSON; NULL is "text" */
    int64_t doc_bytes;    /* > 0: text documents longer than this are cut at the next line end into several */
    tn_cut_fn *cut;       /* NULL: before a single space between letters */
    const void *cut_ctx;
} tn_documents_options;

typedef struct tn_piece {
    const char *text; /* (bytes), borrowed until the next call */
    size_t bytes;     /* more than 0, but for the end */
    bool first;       /* a new document begins */
} tn_piece;

typedef struct tn_documents tn_documents;

/* `in` and the texts of the options stay borrowed. */
tn_status tn_documents_open(const tn_input_files *in, const tn_documents_options *o, tn_documents **out);
/* The next piece; text is NULL at the end. */
tn_status tn_documents_next(tn_documents *d, tn_piece *out);
uint64_t tn_documents_consumed(const tn_documents *d); /* bytes of files read, of in->total_bytes */
void tn_documents_close(tn_documents *d);              /* takes NULL */

#endif
