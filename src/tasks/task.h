/* Tasks: what a network learns from beside text. A task is a data set of fixed-size samples that lies in memory whole
 * (digits, parity), an environment that answers actions (cartpole), a probe: sequences of tokens with questions in them,
 * made up without end (mqar; probe.h), pairs of sentences (snli; pairs.h), or texts with questions (recall; wire/wire_text.h).
 *
 *     TN_TRY(tn_task_find("digits", &t));
 *     TN_TRY(t->open(settings, &set));       set->y[set->index[TN_TEST][i]] is the label of the i-th test sample
 *     tn_samples_free(set);
 *
 * What a task hands out is a function of its settings (task.*) and files alone; the run's seed changes nothing here. Splits
 * and labels are the same on every machine. Does not make batches; nothing here is called inside a training step but an
 * environment's step. */
#ifndef TN_TASKS_TASK_H
#define TN_TASKS_TASK_H

#include "base/rng.h"
#include "base/status.h"
#include "data/manifest.h" /* tn_data_split */

#include <tenon/settings.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tn_samples {
    int64_t n, tokens, features;     /* samples; tokens of each; numbers of each token */
    int64_t labels, classes;         /* labels of each sample: 1, or one per token; a label is 0..classes-1 */
    const uint8_t *x_u8;             /* (n, tokens, features): this one, counted x scale, ... */
    const float *x_f32;              /* ... or this one; the other is NULL */
    float scale;                     /* of x_u8; 1 with x_f32 */
    const int32_t *y;                /* (n, labels); -1: not counted */
    const int32_t *index[TN_SPLITS]; /* (count[s]): rows of TN_TRAIN, TN_VALID, TN_TEST; no row is in two of them */
    int64_t count[TN_SPLITS];
    int64_t width, height;            /* of images, row by row: tokens x features is width x height; 0: they are none */
    const struct tn_targets *targets; /* what is wanted of them is a surface; NULL: their labels */
} tn_samples;

/* Images with target surfaces (route, restore): what is drawn for a batch of an optimizer step. */
typedef struct tn_targets {
    char about[96];           /* all that they depend on beside the images: for people, and for who tells them apart */
    bool has_goals;           /* the cells where the energies should land are known */
    bool same_x, same_target; /* in every step of the training; targets: with their goals */
    double grow; /* fraction of the training over which the move grows to its full size; 0: full from the start */
    /* Image `row` as x, its target and its goals, (height, width) each; NULL: nobody reads it. step: of the optimizer, -1 where it
     * is held out. progress: of the move, 0..1. A goal is the cell where the energy of that cell should land; -1: outside. */
    void (*read)(const tn_samples *set, int64_t row, int64_t step, double progress, float *x, float *target,
                 int32_t *goal);
    int move; /* of route */
    int64_t dx, dy;
    int64_t hole; /* of restore: cells of a side; 0: noise */
    double noise; /* its standard deviation */
    uint64_t seed;
} tn_targets;

/* Of the move at this step of so many; held out (-1) it is full. */
double tn_targets_progress(const tn_targets *t, int64_t step, int64_t steps);

void tn_samples_free(tn_samples *set); /* takes NULL */
/* Smaller images where task.pool asks for them. */
tn_status tn_samples_pool(const tn_settings *st, tn_samples *set);
/* One sample as the numbers a model sees: x (tokens, features). */
void tn_samples_read(const tn_samples *set, int64_t row, float *x);

/* Which rows are in which split as a file, for task.split: {"samples":n, "train":[rows], "valid":[..], "test":[..]}. */
tn_status tn_split_write(const tn_samples *set, const char *path);

/* An environment. Its state is state_bytes plain bytes without pointers, aligned as doubles and owned by the caller, who
 * may copy or save them at any time and go on from there. */
typedef struct tn_env {
    const char *name;
    int observations, actions, max_steps;
    size_t state_bytes;
    double solved; /* mean reward of an episode from which the task counts as solved */
    /* A new episode: the same rng (seed and stream), the same beginning. obs (observations). */
    void (*reset)(void *state, const tn_rng *rng, float *obs);
    /* action 0..actions-1. *done: the episode is over, by its rules or because it had max_steps; reset comes next. */
    void (*step)(void *state, int action, float *obs, float *reward, bool *done);
} tn_env;

struct tn_probe;
struct tn_pairs;
struct tn_wire_texts;

/* A row has one of open, env, probe, pairs and texts. */
typedef struct tn_task {
    const char *name, *summary;
    const char *const *defaults; /* key, value, key, value, ..., NULL: for who does not set them; NULL: none */
    tn_status (*open)(const tn_settings *st, tn_samples **out);
    const tn_env *env;
    tn_status (*probe)(const tn_settings *st, struct tn_probe *p); /* see probe.h */
    const char *reads; /* of a probe: its settings of task.*, "pairs keys" */
    tn_status (*pairs)(const tn_settings *st, struct tn_pairs **out);      /* see pairs.h */
    tn_status (*texts)(const tn_settings *st, struct tn_wire_texts **out); /* see wire/wire_text.h */
} tn_task;

const tn_task *tn_task_at(size_t i); /* in the order of tasks.def; NULL at the end */
const tn_task *tn_task_named(const char *name);
tn_status tn_task_find(const char *name, const tn_task **out); /* TN_USAGE names the nearest, or all */

/* Rows every run has: task.name ("" = none; `task=` is short for it) and what tasks read beside it. */
extern const tn_setting tn_task_settings[];
extern const size_t tn_task_settings_n;

#endif
