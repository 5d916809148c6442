/* Writes GGUF files into memory for tests, without any check: counts, lengths, types and offsets are what the caller says.
 * Header only. */
#ifndef TN_GGUF_FILE_H
#define TN_GGUF_FILE_H

#include "io/gguf.h"
#include "testlib.h"

#include <string.h>

enum { TN_MADE_BYTES = 1 << 16 };

typedef struct tn_made {
    unsigned char data[TN_MADE_BYTES];
    size_t n;
    uint64_t next; /* offset of the next tensor */
} tn_made;

static inline void made_bytes(tn_made *m, const void *p, size_t n)
{
    assert_true(m->n + n <= TN_MADE_BYTES);
    if (n) memcpy(m->data + m->n, p, n);
    m->n += n;
}

static inline void made_u32(tn_made *m, uint32_t x) { made_bytes(m, &x, 4); }
static inline void made_u64(tn_made *m, uint64_t x) { made_bytes(m, &x, 8); }

static inline void made_text(tn_made *m, const char *s)
{
    made_u64(m, strlen(s));
    made_bytes(m, s, strlen(s));
}

static inline void made_head(tn_made *m, uint64_t tensors, uint64_t keys)
{
    m->n = 0;
    m->next = 0;
    made_bytes(m, "GGUF", 4);
    made_u32(m, 3);
    made_u64(m, tensors);
    made_u64(m, keys);
}

static inline void made_key(tn_made *m, const char *key, uint32_t kind)
{
    made_text(m, key);
    made_u32(m, kind);
}

static inline void made_key_u32(tn_made *m, const char *key, uint32_t x)
{
    made_key(m, key, TN_GGUF_U32);
    made_u32(m, x);
}

static inline void made_key_f32(tn_made *m, const char *key, float x)
{
    made_key(m, key, TN_GGUF_F32);
    made_bytes(m, &x, 4);
}

static inline void made_key_text(tn_made *m, const char *key, const char *text)
{
    made_key(m, key, TN_GGUF_TEXT);
    made_text(m, text);
}

/* Dimensions as in files: innermost first. */
static inline void made_tensor_at(tn_made *m, const char *name, uint32_t rank, const uint64_t *dims, uint32_t type,
                                  uint64_t offset)
{
    made_text(m, name);
    made_u32(m, rank);
    for (uint32_t i = 0; i < rank; i++) made_u64(m, dims[i]);
    made_u32(m, type);
    made_u64(m, offset);
}

static inline void made_pad(tn_made *m, size_t alignment)
{
    while (m->n % alignment) made_bytes(m, "", 1);
}

#endif
