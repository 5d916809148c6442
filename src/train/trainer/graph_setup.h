/* Graph options from a run's settings (number format, switches, threads), in one place: training, evaluation and
 * sampling build a model the same way. */
#ifndef TN_TRAIN_GRAPH_SETUP_H
#define TN_TRAIN_GRAPH_SETUP_H

#include "plan/graph.h"
#include "train/trainer/inputs.h"

#include <tenon/model.h>

enum { TN_SWITCHES_MAX = 64 };

/* `options` points into `off`: it stays where it is while graphs are made with it. */
typedef struct tn_graph_setup {
    tn_graph_options options;
    tn_device device;
    tn_dtype frozen;                  /* type of frozen matrices as it is set (frozen=); TN_DTYPES: auto */
    const char *off[TN_SWITCHES_MAX]; /* switches that are off, NULL-terminated */
} tn_graph_setup;

/* device: NULL = as the settings say; auto is the GPU where one is there. threads: 0 = as the settings say, or one per core
 * where that is auto. The settings outlive the setup. */
tn_status tn_graph_setup_read(const tn_settings *st, const tn_device *device, int threads, tn_graph_setup *out);

/* Types of frozen matrices, after options.frozen is set. Those that a model freezes have the type that is set (frozen=), those that are
 * frozen because nothing is trained here their own; where none is set all have their own. On a GPU, whose products take operands of
 * one type, that is the type of activations. */
void tn_graph_setup_freeze(tn_graph_setup *setup, tn_dtype own);

/* For a model that was trained elsewhere and is only run here: where its files, not the command, name a GPU or what only a GPU computes
 * with, and none is there (or on_cpu: none will be used), it runs on the processor. */
tn_status tn_graph_setup_here(tn_settings *st, bool on_cpu);

typedef struct tn_graph_shape {
    int64_t batch, length;
    bool training;
    const char *step; /* of the model's own rows; NULL: "train" or "eval" */
    /* Outputs beside its own, NULL at the end; or NULL. "d.INPUT" in an evaluation is the gradient of the loss by an input of floats, for
     * which the plan must know the loss (tn_graph_setup_loss): nothing is computed or kept for gradients of weights then, whatever their
     * type. */
    const char *const *wants;
    bool nll;                /* also puts out "nll" (B,T): the cross-entropy of each label, 0 where it does not count */
    bool instruments;        /* with what instruments ask for (tn_graph_options.instruments) */
    const tn_inputs *inputs; /* NULL: those that `supply` makes */
    const tn_input_spec *input_spec; /* NULL: the model's own rows, without the optional ones */
    tn_param_check *expect;          /* asked about each parameter as it is made, or NULL */
    const void *expect_ctx;
} tn_graph_shape;

/* The graph of one step of a model on whole sequences or samples; it puts out a "loss". Nothing is in a store yet. */
tn_status tn_graph_setup_build(const tn_graph_setup *setup, const tn_model *model, const tn_settings *st,
                               const tn_graph_shape *shape, tn_graph **out);

/* What an evaluation's plan is to be differentiated by: its loss where a gradient of an input is wanted, else none. */
tn_ref tn_graph_setup_loss(const tn_graph *g, const char *const *wants);

#endif
