/* Plans by key: a plan is made once for a model, its settings and a shape, and then shared. The key is text that names
 * everything the plan depends on. Not for several threads at once: each owner keeps its own cache. */
#ifndef TN_PLAN_CACHE_H
#define TN_PLAN_CACHE_H

#include "plan/plan.h"

typedef struct tn_plan_cache tn_plan_cache;

tn_status tn_plan_cache_new(tn_plan_cache **out);
void tn_plan_cache_free(tn_plan_cache *c); /* frees its plans */

/* The plan of this key; `make` is called when there is none yet. */
typedef tn_status tn_plan_make(void *user, tn_plan **out);
tn_status tn_plan_cache_get(tn_plan_cache *c, const char *key, tn_plan_make *make, void *user, const tn_plan **out);
size_t tn_plan_cache_count(const tn_plan_cache *c);

#endif
