/* What several sessions of one process share: samples, plans, a context.
 *
 * Samples and plans are read-only: any number of threads share them through one tn_shared. A context runs one step at a
 * time: each thread has its own context slot, which stays open between sessions. */
#ifndef TN_TRAIN_SHARED_H
#define TN_TRAIN_SHARED_H

#include "base/hash.h"
#include "plan/plan.h"
#include "tasks/task.h"

#include <tenon/model.h>

typedef struct tn_shared tn_shared;

tn_status tn_shared_new(tn_shared **out);
void tn_shared_free(tn_shared *s); /* after all that was taken from it has been given back; takes NULL */

/* The samples of this key, opened where nobody has them. Given back by tn_shared_return_samples; the last ones stay. */
typedef tn_status tn_samples_make(void *user, tn_samples **out);
tn_status tn_shared_samples(tn_shared *s, const char *key, tn_samples_make *make, void *user, tn_samples **out);
void tn_shared_return_samples(tn_shared *s, const tn_samples *set); /* takes NULL */

/* The plan of this key. Those that were used last stay when nobody has them any more, TN_SHARED_PLANS of them. */
enum { TN_SHARED_PLANS = 24 };
tn_status tn_shared_plan(tn_shared *s, const char *key, tn_plan_make *make, void *user, const tn_plan **out);
void tn_shared_return_plan(tn_shared *s, const tn_plan *p); /* takes NULL */
int64_t tn_shared_plans_made(tn_shared *s);

/* All settings that the plans of a model depend on: not those that are read while it trains (the seed, the learning rate, ...), nor
 * those that the model names as scalars. */
tn_status tn_plan_key(const tn_model *model, const tn_settings *st, char key[TN_HASH_BYTES]);
/* A model's scalars as the settings have them, where the plan was made with those of others. */
void tn_plan_scalars(const tn_model *model, const tn_settings *st, tn_bound *b);
/* Where the host writes a run-time scalar; NULL: the plan has none of that name. */
float *tn_plan_scalar(tn_bound *b, const char *name);

/* Starts zeroed. */
typedef struct tn_context_slot {
    tn_context *context;
    tn_device device;
    bool shared; /* there may be others beside it: its context is told (tn_context_share) */
} tn_context_slot;

/* The seat's context, made anew where the last one was for another device or other threads. */
tn_status tn_context_slot_open(tn_context_slot *s, tn_device device, int threads, tn_context **out);
void tn_context_slot_free(tn_context_slot *s);

#endif
