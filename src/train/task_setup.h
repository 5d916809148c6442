/* What a task makes of a run's settings: the sizes of its samples become the model's, and settings nobody set get values
 * that fit a task. */
#ifndef TN_TRAIN_TASK_SETUP_H
#define TN_TRAIN_TASK_SETUP_H

#include "tasks/task.h"

#include <tenon/model.h>

/* The task that the settings name, opened, and the settings made to fit it:
 *
 *   inputs, tokens, classes   where they are auto: the task's (without a task: 64, 1 and 10)
 *   train.batch               where it is auto: 64, or all training samples where they are fewer
 *   train.steps               with train.epochs: those of so many epochs
 *   train.eval_every          unless set: once per epoch, and not more often than every TN_TASK_EVAL_STEPS steps
 *   train.eval_batches        unless set: 0, all of the held-out part
 *   train.test                unless set: on where the task has a test split
 *
 * Of an environment: train.batch holds rl.episodes whole episodes, train.steps unless set: TN_TASK_EPISODES episodes, value unless
 * set: on; *env is the environment and *samples NULL.
 *
 * Of a probe, for models that read tokens: vocab where it is auto, train.context where task.lengths say how long sequences are and
 * nobody else does, train.eval_batches and train.test as above; *samples is NULL (tn_probe_open makes the sequences).
 *
 * *samples is NULL where the model learns from tokens, and where there is no task and none is `needed`. TN_USAGE names the
 * remedy: no task and one is needed, samples for a model that reads tokens or the other way round, sizes that are not the task's. */
tn_status tn_task_setup(const tn_model *model, tn_settings *st, bool needed, tn_samples **samples, const tn_env **env);

struct tn_shared;
/* The same; *samples is then what `shared` has of it (tn_shared_return_samples). shared may be NULL. */
tn_status tn_task_setup_shared(const tn_model *model, tn_settings *st, bool needed, struct tn_shared *shared, tn_samples **samples,
                               const tn_env **env);

enum { TN_TASK_BATCH = 64, TN_TASK_EVAL_STEPS = 20, TN_TASK_EPISODES = 1000 };

/* Sizes that are auto become those assumed without a task. */
tn_status tn_task_assume(tn_settings *st);

/* The sizes as they stand; 0 while one is auto, or the model has no such setting. */
int64_t tn_settings_inputs(const tn_settings *st);
int64_t tn_settings_tokens(const tn_settings *st);
int64_t tn_settings_classes(const tn_settings *st);

/* "xor, parity, digits" into buf: tasks of models that read tokens, or those of the others. */
const char *tn_task_names(bool tokens, char *buf, size_t bytes);

#endif
