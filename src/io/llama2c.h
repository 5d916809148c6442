/* Checkpoints of llama2.c (the first format, "legacy export"): seven i32 (dim, hidden, layers, heads, kv heads, vocab,
 * context; a negative vocab: the head has a matrix of its own), then f32 tensors, those of all layers together:
 *   embed (V,d) · norm1 (L,d) · q (L,d,d) · k, v (L,KV D,d) · out (L,d,d) · norm2 (L,d) · w1 (L,f,d) · w2 (L,d,f) · w3 (L,f,d)
 *   norm_f (d) · tables of cosines and sines (context, D/2) each, not used · head (V,d)
 * Little-endian; rotary pairs are (2j, 2j+1), norms add 1e-5.
 *
 * What is written is a safetensors file with the names and shapes of the model `gpt`, metadata format "tenon-model 1",
 * model "gpt" and settings, the key=value words under which `gpt` computes the same. The numbers are not looked at. */
#ifndef TN_IO_LLAMA2C_H
#define TN_IO_LLAMA2C_H

#include "io/sink.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tn_llama2c {
    int64_t dim, ffn, layers, heads, kv_heads, vocab, context;
    bool tied;
} tn_llama2c;

/* The header, checked against itself and against the length of the file. TN_BAD_FILE where they do not agree. */
tn_status tn_llama2c_read(const char *path, tn_llama2c *out);
/* "shape=llama dim=64 ..." into buf; returns buf. 512 bytes are enough. */
const char *tn_llama2c_settings(const tn_llama2c *h, char *buf, size_t bytes);
/* Writes `to` from `from`; nothing appears under `to` on failure. */
tn_status tn_llama2c_convert(const char *from, const char *to);
/* The same bytes into a sink. */
tn_status tn_llama2c_convert_into(const char *from, tn_sink into);

#endif
