/* A language model in a GGUF file as the model `gpt` has it: names, shapes and settings. Architectures "llama" (Mistral's
 * files are such, too), "qwen2" (biases on queries, keys and values) and "qwen3" (norms on queries and keys); another is refused
 * by its name, and so is whatever would make it compute something else: a tensor or a scaling of positions that `gpt` does not
 * have.
 *
 * Files of "llama" have the rows of queries and keys in such an order that rotary pairs are (2j, 2j+1), the others in
 * that of the original weights, (j, j+D/2). Both are left as they are: the settings say which (rope_pairs). Scaling of positions
 * is linear or yarn by the file's keys; that of
 * Llama 3 is a tensor of divisors in files (rope_freqs.weight), from which rope_stretch and its context are found; divisors
 * that do not come from that formula are refused. A window of attention bounds train.context: within it nothing differs.
 *
 * The file stays mapped, and tensors are decoded when their numbers are asked for: no copy of the model is held. */
#ifndef TN_IO_GGUF_MODEL_H
#define TN_IO_GGUF_MODEL_H

#include "io/safetensors.h"

typedef struct tn_gguf_model tn_gguf_model;

tn_status tn_gguf_model_open(const char *path, tn_gguf_model **out);
tn_status tn_gguf_model_open_memory(const void *data, size_t bytes, const char *name, tn_gguf_model **out);
void tn_gguf_model_close(tn_gguf_model *m); /* takes NULL */

/* (n) in one array, `data` NULL. dtype: that of the file's numbers where we have it, else f32; bytes: of such numbers. */
const tn_file_tensor *tn_gguf_model_tensors(const tn_gguf_model *m, size_t *n);
/* As a file of ours would have it: format, model, settings. */
const tn_text_pair *tn_gguf_model_meta(const tn_gguf_model *m, size_t *n);
/* dst (n): the numbers first .. first+n-1 of a tensor of m. */
void tn_gguf_model_read(const tn_gguf_model *m, const tn_file_tensor *t, int64_t first, int64_t n, float *dst);

#endif
