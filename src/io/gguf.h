/* GGUF files, the models of llama.cpp and of what is built on it. Little-endian, versions 2 and 3 (which differ in nothing
 * that such a file shows):
 *   "GGUF", u32 version, u64 tensors, u64 keys
 *   keys:    text key, u32 type, value; a list is u32 type, u64 length, items; a text is u64 length, bytes
 *   tensors: text name, u32 rank, u64 dims (innermost first), u32 number type, u64 offset
 *   data, at the next multiple of general.alignment (32); offsets count from here and are multiples of it
 *
 * The file is mapped and nothing of it is copied. All of the header is checked before anything is handed out: texts, values,
 * names and data then lie inside the file, keys and names are unique, tensors do not overlap. The numbers are not looked at.
 * What the keys mean is not this file's business (gguf_model.h). */
#ifndef TN_IO_GGUF_H
#define TN_IO_GGUF_H

#include "base/status.h"
#include "io/gguf_blocks.h"

enum {
    TN_GGUF_KEYS_MAX = 16 * 1000, /* their tables take a few MiB at most, however long the file is */
    TN_GGUF_TENSORS_MAX = 64 * 1000,
    TN_GGUF_NAME_MAX = 1024, /* bytes, of keys too */
    TN_GGUF_RANK_MAX = 4
};

typedef enum tn_gguf_kind { /* as in files */
                            TN_GGUF_U8,
                            TN_GGUF_I8,
                            TN_GGUF_U16,
                            TN_GGUF_I16,
                            TN_GGUF_U32,
                            TN_GGUF_I32,
                            TN_GGUF_F32,
                            TN_GGUF_BOOL,
                            TN_GGUF_TEXT,
                            TN_GGUF_LIST,
                            TN_GGUF_U64,
                            TN_GGUF_I64,
                            TN_GGUF_F64,
                            TN_GGUF_KINDS
} tn_gguf_kind;

/* Bytes of the file, without a NUL; any bytes. */
typedef struct tn_gguf_text {
    const char *data;
    size_t bytes;
} tn_gguf_text;

/* A key's value; borrowed until tn_gguf_close. A list has `count` items of `kind`, anything else one. */
typedef struct tn_gguf_value {
    tn_gguf_text key;
    tn_gguf_kind kind; /* never TN_GGUF_LIST: lists of lists are refused */
    bool is_list;
    uint64_t count;
    const unsigned char *data; /* unaligned */
    size_t bytes;
} tn_gguf_value;

typedef struct tn_gguf_tensor {
    tn_gguf_text name;
    const tn_gguf_type *type;
    tn_dims dims; /* outermost first, as everywhere here; the innermost is a multiple of type->values */
    const unsigned char *data;
    size_t bytes;
} tn_gguf_tensor;

typedef struct tn_gguf tn_gguf;

tn_status tn_gguf_open(const char *path, tn_gguf **out);
/* The same on memory that stays borrowed until the close; `name` stands for the path in messages. */
tn_status tn_gguf_open_memory(const void *data, size_t bytes, const char *name, tn_gguf **out);
void tn_gguf_close(tn_gguf *f); /* takes NULL */

const char *tn_gguf_path(const tn_gguf *f);
size_t tn_gguf_count(const tn_gguf *f);
const tn_gguf_tensor *tn_gguf_at(const tn_gguf *f, size_t i);                /* in the file's order */
const tn_gguf_tensor *tn_gguf_tensor_of(const tn_gguf *f, const char *name); /* NULL where there is none */
size_t tn_gguf_key_count(const tn_gguf *f);
const tn_gguf_value *tn_gguf_key_at(const tn_gguf *f, size_t i);
const tn_gguf_value *tn_gguf_key(const tn_gguf *f, const char *key); /* NULL where there is none */

/* The value of a key that must be there and of such a kind: any integer (or bool) that an i64 holds; any float; a text. */
tn_status tn_gguf_integer(const tn_gguf *f, const char *key, int64_t *out);
tn_status tn_gguf_float(const tn_gguf *f, const char *key, double *out);
tn_status tn_gguf_text_of(const tn_gguf *f, const char *key, tn_gguf_text *out);

/* Item i of a value of numbers, as a number; i < count. */
double tn_gguf_number_at(const tn_gguf_value *v, uint64_t i);
/* The texts of a list one after another: *at begins at 0, and false is the end. */
bool tn_gguf_text_next(const tn_gguf_value *v, size_t *at, tn_gguf_text *out);

bool tn_gguf_text_is(tn_gguf_text t, const char *s);
/* A text as a message may show it: no control bytes, and cut. */
typedef struct tn_gguf_shown {
    char text[96];
} tn_gguf_shown;
tn_gguf_shown tn_gguf_show(tn_gguf_text t);

#endif
