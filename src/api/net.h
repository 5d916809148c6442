/* What a handle of <tenon/tenon.h> is made of. The store lives as long as the handle, so that tensors keep their addresses;
 * trainers come and go with the shape and share it. */
#ifndef TN_API_NET_H
#define TN_API_NET_H

#include "token/tokenizer.h"
#include "train/saved_model.h"
#include "train/scores.h"
#include "train/trainer.h"

#include <tenon/tenon.h>

#include <stdatomic.h>

/* What a trainer is for; each is made when a call first needs it. */
typedef enum tn_net_part { TN_NET_GRAD, TN_NET_LOSS, TN_NET_LOGITS, TN_NET_PARTS } tn_net_part;

struct tenon_net {
    tn_saved_model saved;
    char note[TN_CKPT_NOTE]; /* of the last tenon_open or tenon_load */
    tn_store *store;
    int64_t batch, length, vocab;
    tn_trainer *part[TN_NET_PARTS];
    tn_guard_state guard; /* of the trainer that was, while part[TN_NET_GRAD] is NULL */
    int64_t step;         /* done so far */
    int added;            /* batches whose gradients wait for a step, */
    double loss;          /* and the sum of their losses */
    tn_metric_list metrics;  /* rows of the scores */
    tn_scores scores;        /* as recorded, or as measured last */
    atomic_bool interrupted; /* by tenon_interrupt, which other threads and signal handlers call */
};

struct tenon_tokenizer {
    tn_tokenizer *t;
    tn_tokenizer_scratch *scratch;
    int32_t start;
};

/* The scores of the checkpoint that was opened, where it is one. */
void tn__api_recorded(tenon_net *net);

/* A text given by the caller may be NULL by mistake. */
tn_status tn__api_need(const void *p, const char *what);

#endif
