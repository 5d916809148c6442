/* Tasks as sources of batches, and what a task does to a run's settings. */
#ifndef TN_TRAIN_TASK_SETUP_H
#define TN_TRAIN_TASK_SETUP_H

#include "tasks/probe.h"
#include "tasks/task.h"
#include "train/source/source.h"

#include <tenon/model.h>

/* The settings made to fit the data that they name:
 *
 *   inputs, tokens, classes   where they are auto: the task's (without a task: 64, 1 and 10); classes of labels alone
 *   width, height, cells      where they are auto: those of images
 *   train.batch               where it is auto: 64, or all training samples where they are fewer
 *   train.steps               with train.epochs: those of so many epochs
 *   train.eval_every          unless set: once per epoch, and not more often than every TN_TASK_EVAL_STEPS steps
 *   train.eval_batches        unless set: 0, all of the held-out part
 *   train.test                unless set: on where the task has a test split
 *
 * Of an environment: train.batch holds rl.episodes whole episodes, train.steps unless set: TN_TASK_EPISODES episodes, value unless
 * set: on.
 *
 * Of a probe, for models that read tokens: vocab where it is auto, train.context where task.lengths say how long sequences are and
 * nobody else does, train.eval_batches and train.test as above.
 *
 * TN_USAGE names the remedy: sizes or settings that are not the task's. */
tn_status tn_task_fit_samples(tn_settings *st, const tn_samples *set);
/* Settings of the task that nobody set, where it has values of its own for them. Before its samples are made. */
tn_status tn_task_take_defaults(tn_settings *st);
/* The same for records that are no task's: batch, epochs, evaluations. */
tn_status tn_task_fit_counts(tn_settings *st, const char *name, const int64_t count[TN_SPLITS]);
/* Of pairs of sentences: text and vocab where they are auto, and as above. */
struct tn_pairs;
tn_status tn_task_fit_pairs(tn_settings *st, const struct tn_pairs *p);
/* Of texts with questions: numbers (n) that are settings and auto, and as above. */
tn_status tn_task_fit_texts(tn_settings *st, const tn_source_number *numbers, size_t n, const int64_t count[TN_SPLITS]);
tn_status tn_task_fit_env(tn_settings *st, const tn_task *task);
tn_status tn_task_fit_probe(tn_settings *st);
/* vocab where it is auto: so many; kind: "task" or "data". */
tn_status tn_task_fit_vocab(tn_settings *st, long long needs, const char *kind, const char *name);
/* The samples of the task that the settings name; of `shared` where that is not NULL (tn_shared_return_samples). */
struct tn_shared;
tn_status tn_task_samples(const tn_settings *st, struct tn_shared *shared, tn_samples **out);

/* Whether the model can learn from what the settings name: samples for a model that reads tokens, or the other way round, is TN_USAGE. */
tn_status tn_task_check(const tn_model *model, const tn_settings *st);
/* TN_USAGE: there is nothing to learn from, and what to do. */
tn_status tn_task_missing(const tn_model *model);
/* The words that give it some: " data=FILE", " task=NAME", ...; "" where it has data of its own. */
const char *tn_task_words(const tn_model *model);

enum { TN_TASK_BATCH = 64, TN_TASK_EVAL_STEPS = 20, TN_TASK_EPISODES = 1000 };

/* Settings that are auto become what the model assumes without data, so that it agrees with whoever makes up tokens or samples. */
tn_status tn_task_defaults(const tn_model *model, tn_settings *st);

/* --- sources: opened and started; what they are given is borrowed --------------------------------------------------- */

/* Samples: the training split in another order each epoch (by the seed), its last batch as short as it comes; a held-out split in its
 * own order. */
tn_status tn_source_samples_open(const tn_samples *set, uint64_t seed, const tn_source_start *how, tn_source *out);
/* A probe: sequences generated on demand, the training ones from the seed. `next` counts all tokens, `heldout` the questions. */
tn_status tn_source_probe_open(const tn_probe *p, uint64_t seed, const tn_source_start *how, tn_source *out);

/* An environment (env.c): REINFORCE with a learned baseline. A batch is what the current policy did in rl.episodes episodes. */
extern const tn_setting tn_rl_settings[];
extern const size_t tn_rl_settings_n;
extern const tn_metric_row tn_env_reward; /* of an episode: what environments are judged by */

/* Rows of a batch that hold rl.episodes whole episodes, however long. */
int64_t tn_source_env_rows(const tn_env *env, const tn_settings *st);

#endif
