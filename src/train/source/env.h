/* An environment as a source of batches: REINFORCE with a learned baseline. A batch is what the policy, as it is now, did in
 * rl.episodes episodes: observations, actions, how much better each went than expected (weights) and what it was worth
 * (targets). The network that acts is the one that learns, on the same parameters; who computes the gradient (equilibrium
 * propagation, back-propagation through the solve, ...) is the model's own setting and unknown here. */
#ifndef TN_TRAIN_SOURCES_ENV_H
#define TN_TRAIN_SOURCES_ENV_H

#include "tasks/task.h"
#include "train/source/source.h"

extern const tn_setting tn_rl_settings[];
extern const size_t tn_rl_settings_n;

extern const tn_metric_row tn_env_reward; /* of an episode: what environments are judged by */

/* Rows of a batch that hold rl.episodes whole episodes, however long. */
int64_t tn_source_env_rows(const tn_env *env, const tn_settings *st);

#endif
