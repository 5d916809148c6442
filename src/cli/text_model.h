/* Opening a model that writes text: what `tenon sample` and `tenon chat` share. */
#ifndef TN_CLI_TEXT_MODEL_H
#define TN_CLI_TEXT_MODEL_H

#include "cli/cli.h"
#include "sample/sample.h"
#include "train/run/saved_model.h"

enum { TN_STOPS_MAX = 64 };

typedef struct tn_text_model {
    tn_cli *c;
    tn_settings *keys; /* of tn_sample_settings or tn_chat_settings */
    tn_saved_model model;
    tn_store *store;
    tn_tokenizer *tokenizer;
    tn_model_tokens tokens;
    tn_sampler *sampler;
    const char *stop[TN_STOPS_MAX];
    size_t n_stop;
    bool replies; /* the model answers prompts: what it writes does not continue them */
} tn_text_model;

/* The keys of `tenon chat`: those of sampling and its own. */
tn_status tn_chat_settings(tn_settings **out);
/* Settings, model and tokenizer from the command line; m->c and m->keys are set. */
tn_status tn_text_model_find(tn_text_model *m);
/* Sampler and weights; context: the tokens that attention keeps. */
tn_status tn_text_model_open(tn_text_model *m, int64_t batch, int64_t context);
/* A warning where `context` is longer than the one that the model's rotary positions are for. */
tn_status tn_warn_of_context(tn_cli *c, const tn_saved_model *m, int64_t context);
void tn_text_model_close(tn_text_model *m);
/* Sampling as the settings say; ctx and text are empty. */
tn_sample_options tn_text_model_options(const tn_text_model *m);
tn_status tn_text_write(tn_cli *c, const char *text, size_t bytes); /* to standard output, at once */

#endif
