/* The handle of <tenon/tenon.h>. The store lives as long as the handle, so tensors keep their addresses; trainers
 * change with the shape and share it. */
#ifndef TN_API_NET_H
#define TN_API_NET_H

#include "token/tokenizer.h"
#include "train/run/saved_model.h"
#include "train/run/metric_rows.h"
#include "train/trainer/trainer.h"

#include <tenon/tenon.h>

#include <stdatomic.h>

/* What a trainer is for; each is made when a call first needs it. */
typedef enum tn_net_part { TN_NET_GRAD, TN_NET_EVAL, TN_NET_WANTS, TN_NET_PARTS } tn_net_part;

/* An input as the caller filled it. */
typedef struct tn_net_input {
    void *data;   /* (items), owned */
    size_t items; /* that there is room for */
    bool filled;
} tn_net_input;

enum { TN_NET_NAME = 64, TN_NET_NAMES = 320 };

struct tenon_net {
    tn_saved_model saved;
    char note[TN_CKPT_NOTE]; /* of the last tenon_open or tenon_load */
    tn_store *store;
    bool frozen;       /* its weights are those of the file, without gradients, until somebody needs more (thaw.c) */
    tn_dtype matrices; /* then: type of matrices, */
    bool rounded;      /* and the file has more digits than that */
    const char **name; /* (n_names) of its tensors, which callers may keep after that */
    size_t n_names;
    tn_arena names;
    bool sampling;    /* tenon_sample is running on the store: nothing may replace it */
    tn_trainer *last; /* that ran before a thaw, for its outputs, on */
    tn_store *last_store;
    int64_t batch, length, vocab;
    tn_trainer *part[TN_NET_PARTS];
    tn_inputs inputs;                          /* all that a caller may fill, for this model and these numbers */
    tn_net_input input[TN_INPUTS_MAX];         /* by slot of it */
    tn_source_number number[TN_BATCH_NUMBERS]; /* (n_numbers): sizes that are no settings */
    size_t n_numbers;
    uint64_t optional;                      /* those that the trainers were made for, a bit for each slot */
    char want[TN_BATCH_WANTS][TN_NET_NAME]; /* (n_wants): outputs of part[TN_NET_WANTS] beside its own */
    size_t n_wants;
    tn_trainer *ran;         /* whose outputs can be read, or NULL */
    const char *step;        /* that it ran: "eval", or one of the model's own */
    tn_guard_state guard;    /* of the trainer that was, while part[TN_NET_GRAD] is NULL */
    int64_t steps;           /* done so far */
    int added;               /* batches whose gradients wait for a step, */
    double loss;             /* and the sum of their losses */
    tn_metric_list metrics;  /* rows of the scores */
    tn_scores scores;        /* as recorded, or as measured last */
    atomic_bool interrupted; /* by tenon_interrupt, which other threads and signal handlers call */
};

struct tenon_tokenizer {
    tn_tokenizer *t;
    tn_tokenizer_scratch *scratch;
    tn_model_tokens tokens;
};

/* For the calls of <tenon/tenon.h>, which own nothing: forward at once; a mistake of the caller's. */
#define TN_API_TRY(call)                                                                                               \
    do {                                                                                                               \
        const tn_status s_ = (tn_status)(call);                                                                        \
        if (s_ != TN_OK) return (tenon_status)s_;                                                                      \
    } while (0)
#define TN_API_USAGE(...) return (tenon_status)tn_error(TN_USAGE, __VA_ARGS__)

/* What inputs there are, and how large. */
tn_status tn__api_inputs(tenon_net *net);
/* A size of the inputs that is no setting: whether a name is one, or NULL; and its value. */
const char *tn__api_number(const tenon_net *net, const char *name);
tn_status tn__api_set_number(tenon_net *net, const char *name, const char *value);
/* For a trainer: what callers fill, of optional inputs those that are filled. rows outlive the supply. */
tn_input_spec tn__api_input_spec(const tenon_net *net, tn_input_row rows[TN_INPUTS_MAX]);
/* A trainer for it; o says what differs between them. all: with every step of the model's own, else with those that do not train. */
tn_status tn__api_trainer(const tenon_net *net, tn_trainer_options o, bool all, tn_trainer **out);
/* The copy of an input, which then counts as filled. */
tn_status tn__api_input(tenon_net *net, const char *name, void **out);
tn_status tn__api_check_values(const tenon_net *net, const char *name, const int32_t *values, size_t n);
/* An output of what ran last; false: it has none of that name. */
bool tn__api_output(const tenon_net *net, const char *name, tenon_tensor *out);
/* Trainers of another shape are needed: the old ones go. */
void tn__api_drop(tenon_net *net);
/* Weights that can be trained and looked at: f32, with gradients. Addresses that callers get are of these alone, and stay. */
tn_status tn__api_thaw(tenon_net *net);
void tn__api_forget_last(tenon_net *net); /* what is kept of before */
/* Adds the tensors of all steps of the model to the store; vocab: of its logits. Frozen as the handle is. */
tn_status tn__api_adopt(tenon_net *net, int64_t length, int64_t *vocab);

/* The scores of the checkpoint that was opened, where it is one. */
void tn__api_recorded(tenon_net *net);

/* What the caller gives may be NULL by mistake. */
tn_status tn__api_need(const void *p, const char *what);
/* A struct of the caller's that begins with its size: whether that is set; then so much of `from` as there is room for. */
tn_status tn__api_check_size(const void *to, const char *type);
tenon_status tn__api_give(const void *from, size_t bytes, void *to, const char *type);
/* The other way: a caller's options over the defaults in *to. */
tn_status tn__api_take(const void *from, void *to, size_t bytes, const char *type);
/* Adds to "a, b" for a message. */
void tn__api_list(char names[TN_NET_NAMES], const char *name);

#endif
