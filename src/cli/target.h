/* A configuration as it is typed among others: "gpt,lr=1e-3,layers=6" is the target gpt with two settings of its own. */
#ifndef TN_CLI_TARGET_H
#define TN_CLI_TARGET_H

#include "base/alloc.h"
#include "base/status.h"
#include "models/models.h"

typedef struct tn_target {
    const char *target;     /* see tn_settings_resolve */
    const char **overrides; /* (n): those of all, then its own; room for one more */
    size_t n;
} tn_target;

/* "lr=1e-3" stands for train.lr=1e-3 where the model has no setting of the short name. Names and lists come from the arena; `common`
 * (n_common) are the settings of all. */
tn_status tn_target_read(tn_arena *arena, const tn_user_args *user, const char *word, const char *const *common,
                         size_t n_common, tn_target *out);

#endif
