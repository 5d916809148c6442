/* The input files of a data set: names and folders expanded into one sorted list with size, modification time and
 * format. Opens only folders, and the first bytes of files without a known ending. */
#ifndef TN_DATA_INPUT_FILES_H
#define TN_DATA_INPUT_FILES_H

#include "base/alloc.h"
#include "base/status.h"

typedef enum tn_format {
    TN_FORMAT_AUTO = 0,   /* by the name, .gz and .zst taken off */
    TN_FORMAT_TEXT = 1,   /* .txt .text .md .raw, and files without a known name that hold no NUL */
    TN_FORMAT_JSONL = 2,  /* .jsonl .ndjson: one object or string a line */
    TN_FORMAT_JSON = 3,   /* .json: one list of strings or objects */
    TN_FORMAT_TOKENS = 4, /* .bin: llm.c (1024-byte header) or nanoGPT (bare uint16) */
    TN_FORMAT_NPY = 5,
    TN_FORMAT_CSV = 6,
    TN_FORMAT_IDX = 7,
    TN_FORMATS = 8
} tn_format;

typedef enum tn_data_kind { TN_KIND_TEXT = 0, TN_KIND_TOKENS = 1, TN_KIND_ARRAYS = 2 } tn_data_kind;

typedef struct tn_input_file {
    const char *path;
    tn_format format;
    uint64_t bytes;
    int64_t changed_ns;
} tn_input_file;

typedef struct tn_input_files {
    tn_arena arena;
    tn_input_file *v; /* (n) */
    size_t n, capacity;
    size_t skipped;       /* files in folders whose names say nothing we read */
    uint64_t total_bytes; /* packed, as they lie on the disk */
    /* what a training was given to read as it is, or NULL: then the keys of `tenon data prepare` mean something here */
    const char *as_is;
} tn_input_files;

/* Adds a file, or all files below a folder whose names are known, sorted by path. Names that begin with a dot and links
 * to folders are passed over, and so are prepared data sets. TN_BAD_FILE where there is nothing. */
tn_status tn_input_files_add(tn_input_files *in, const char *path, tn_format format);
void tn_input_files_free(tn_input_files *in);
/* "say KEY=VALUE", or the command that says it, where nobody could here: for the ends of messages. */
const char *tn_input_files_hint(const tn_input_files *in, const char *key_value, char buf[512]);

tn_data_kind tn_format_kind(tn_format f);
const char *tn_format_name(tn_format f);
extern const char tn_format_choices[]; /* "auto|txt|jsonl|..." in the order of tn_format */
tn_format tn_format_parse(const char *name);

#endif
