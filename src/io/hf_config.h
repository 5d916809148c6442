/* config.json of a Hugging Face folder: what a decoder of the kind llama, mistral, qwen2 or qwen3 computes. Keys that are absent
 * have the values that transformers gives them. A key that would make the model compute something else is refused by its name.
 * Positions are described by rope_theta and rope_scaling, or by rope_parameters, as transformers 5 writes it. */
#ifndef TN_IO_HF_CONFIG_H
#define TN_IO_HF_CONFIG_H

#include "io/decoder_file.h"

enum { TN_HF_CONFIG_BYTES = 1 << 20 };

/* `name` stands for the path in messages. `config` is the file's: its sizes are bounded, tensors have not been looked at. */
tn_status tn_hf_config_read(const char *text, size_t bytes, const char *name, tn_decoder_config *config);

#endif
