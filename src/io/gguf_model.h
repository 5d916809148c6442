/* A language model in a GGUF file as the model `gpt` has it: names, shapes and settings. Architectures "llama" (Mistral's
 * files are such, too), "qwen2" (biases on queries, keys and values) and "qwen3" (norms on queries and keys); another is refused
 * by its name, and so is whatever would make it compute something else: a tensor or a scaling of positions that `gpt` does not
 * have.
 *
 * Files of "llama" have the rows of queries and keys in such an order that rotary pairs are (2j, 2j+1), the others in
 * that of the original weights, (j, j+D/2). Both are left as they are: the settings say which (rope_pairs). Scaling of positions
 * is linear or yarn by the file's keys; that of
 * Llama 3 is a tensor of divisors in files (rope_freqs.weight), from which rope_stretch and its context are found; divisors
 * that do not come from that formula are refused. A window of attention bounds train.context: within it nothing differs. */
#ifndef TN_IO_GGUF_MODEL_H
#define TN_IO_GGUF_MODEL_H

#include "io/decoder_file.h"

tn_status tn_gguf_model_open(const char *path, tn_decoder_file **out);
tn_status tn_gguf_model_open_memory(const void *data, size_t bytes, const char *name, tn_decoder_file **out);

#endif
