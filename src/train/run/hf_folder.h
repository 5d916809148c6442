/* Writes a model as a Hugging Face folder: config.json, model.safetensors with the names of transformers, tokenizer.json and
 * generation_config.json. Rotary pairs (2j, 2j+1) become (j, j+D/2): rows of queries and keys change their order.
 *
 * The folder appears whole under its name, or not at all. */
#ifndef TN_TRAIN_HF_FOLDER_H
#define TN_TRAIN_HF_FOLDER_H

#include "train/run/checkpoint_convert.h"

/* Whether a name to be written is that of a folder: it ends in /, is a directory, or has no ending. */
bool tn_names_folder(const char *path);
/* As tn_ckpt_convert. Only a `gpt` that transformers' llama, qwen2 or qwen3 can compute; another is refused by the setting. note also
 * says where the model's tokenizer could not go along. */
tn_status tn_hf_folder_write(const tn_user_args *user, const char *in, const char *out, tn_dtype dtype,
                             char note[TN_CKPT_NOTE]);

#endif
