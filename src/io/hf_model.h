/* Hugging Face folders of decoders: config.json (hf_config.h), and model.safetensors or the files that
 * model.safetensors.index.json names (hf_index.h), in F32, BF16 and F16. Rotary pairs are (j, j+D/2).
 *
 * Every tensor of the folder must have its place, because one that is left out would change what the model computes. Two are
 * left out all the same: tables of frequencies of old folders (rotary_emb.inv_freq), and a head that is the embedding's copy. */
#ifndef TN_IO_HF_MODEL_H
#define TN_IO_HF_MODEL_H

#include "io/decoder_file.h"

#define TN_HF_CONFIG "config.json"
#define TN_HF_WEIGHTS "model.safetensors"
#define TN_HF_INDEX "model.safetensors.index.json"

bool tn_hf_model_is(const char *path); /* a directory with config.json */
tn_status tn_hf_model_open(const char *folder, tn_decoder_file **out);

#endif
