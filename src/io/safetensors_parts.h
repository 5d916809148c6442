/* Shared by the reader and the writer of safetensors files. */
#ifndef TN_IO_SAFETENSORS_PARTS_H
#define TN_IO_SAFETENSORS_PARTS_H

#include "io/safetensors.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors data is little-endian, and so must the machine be"
#endif

#define TN__META "__metadata__"
#define TN__DIM_MAX ((int64_t)1 << 53) /* what every JSON reader holds exactly */

typedef struct tn__safetensors_type {
    const char *name;
    tn_dtype dtype; /* TN_DTYPES: its size is known, but nothing here computes with it */
    size_t bytes;
} tn__safetensors_type;

extern const tn__safetensors_type tn__safetensors_types[]; /* ends with a NULL name */

/* A name as a message may show it: a hostile file must not reach the terminal with control bytes. */
typedef struct tn__shown_name {
    char text[96];
} tn__shown_name;

tn__shown_name tn__shown(const char *name);
/* Bytes of a shape. Partial products are bounded too: a later 0 must not hide an overflow in tn_dims_count. */
bool tn__dims_bytes(tn_dims d, size_t item, size_t *bytes);

#endif
