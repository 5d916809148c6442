/* A model as somebody left it on the disk: its settings, weights and tokenizer, found from one word. Opens nothing of
 * the run for writing, and trains nothing.
 *
 *   runs/ten-1             a run: config.yaml, its best checkpoint (or its latest), the tokenizer of its data
 *   runs/ten-1/step-500    one checkpoint of it
 *   model.safetensors      a file of ours (metadata format "tenon-model 1"), packed or not
 *   stories15M.bin         a checkpoint of llama2.c
 *   SmolLM2.gguf           a model of llama.cpp (gguf_model.h); decoded as it is loaded
 *   Llama-3.2-1B           a folder of Hugging Face (hf_model.h): config.json, safetensors, its tokenizer
 *   gpt_tiny, x.yaml, .so  a preset, model or file of settings: no weights; parameters have their first values */
#ifndef TN_TRAIN_SAVED_MODEL_H
#define TN_TRAIN_SAVED_MODEL_H

#include "base/alloc.h"
#include "base/fs.h"
#include "io/safetensors.h"
#include "models/models.h"
#include "plan/store.h"
#include "token/model_tokens.h"
#include "token/tokenizer.h"
#include "train/checkpoint/checkpoint.h"
#include "train/run/weights_load.h"

typedef struct tn_saved_model {
    tn_settings *settings; /* owned; vocab is never auto */
    const tn_model *model;
    char weights[TN_PATH_BYTES]; /* a checkpoint's directory or a file; "" where there are none */
    char config[TN_PATH_BYTES];  /* the directory of the run, or "" */
    char note[TN_CKPT_NOTE];     /* as tn_ckpt_resolve's: weights are not those that were meant */
    tn_matrices matrices;        /* of the weights */
    const char *link;            /* which checkpoint of the run was asked for; NULL: weights names it */
} tn_saved_model;

/* link: "best" or "latest", for a run; it outlives the model. overrides ("key=value") come last. A shared object is loaded where `user`
 * names it. */
tn_status tn_saved_model_find(const tn_user_args *user, const char *target, const char *const *overrides, size_t n,
                              const char *link, tn_saved_model *out);
void tn_saved_model_free(tn_saved_model *m); /* takes a zeroed one */
/* Where the settings of a target are that is no file of weights: a checkpoint's in the run around it, others' in themselves. */
tn_status tn_saved_model_settings(const char *target, char out[TN_PATH_BYTES]);

/* tn_weights_load from m->weights, or, where the run has removed that checkpoint since it was found, from the one that is meant now. */
tn_status tn_saved_model_load(tn_saved_model *m, tn_store *store);
/* All parameters with the model's settings, as a file that tn_saved_model_find takes. */
tn_status tn_weights_save(const char *path, const tn_model *model, const tn_settings *st, const tn_store *store);

/* Metadata of format "tenon-model 1": what tells a file of weights from any other. The settings are written to `text`, which
 * meta points into. */
enum { TN_WEIGHTS_META = 3, TN_WEIGHTS_TEXT = 16384 };
tn_status tn_weights_meta(const tn_model *model, const tn_settings *st, char text[TN_WEIGHTS_TEXT],
                          tn_text_pair meta[TN_WEIGHTS_META]);
/* What a weights file says about itself as "key=value" words, the model first, all of it in `arena`; and its matrices. */
tn_status tn_weights_words(const char *path, tn_arena *arena, const char ***out, size_t *n, tn_matrices *matrices);
bool tn_is_weights_file(const char *path); /* by its name, or a folder of Hugging Face */

/* The model's tokenizer: `spec` where it is not empty, else the setting `tokenizer` where there is one, else the one inside a GGUF
 * file or beside a folder's weights, else the run's own, else that
 * of the data set the run names, else bytes where the vocabulary or the data say so. *tokens: what texts begin and end with,
 * and the template of talks; of the model's files and the tokenizer's. Freed by tn_model_tokens_free. */
tn_status tn_saved_model_tokenizer_spec(const tn_saved_model *m, char spec[TN_PATH_BYTES]); /* for tn_tokenizer_open */
tn_status tn_saved_model_tokenizer(const tn_saved_model *m, const char *spec, tn_tokenizer **out,
                                   tn_model_tokens *tokens);
/* One token that texts begin with and one that ends them; target: for the error, TN_USAGE where there is none that ends them. */
tn_status tn_saved_model_ends(const tn_tokenizer *t, const tn_model_tokens *tokens, const char *target, int32_t *start,
                              int32_t *end);
/* The same for a model that reads texts (tn_source_open.tokenizer), with one token that texts begin with and one that ends them; what ends
 * them stands for the first where there is none. TN_USAGE where there is no such token. */
tn_status tn_saved_model_reader(const tn_user_args *user, const char *target, const char *spec, tn_tokenizer **out,
                                int32_t *start, int32_t *end);

#endif
