/* The settings of every run; tn_settings_common adds the tables of all modules. */
#ifndef TN_TRAIN_SETTINGS_H
#define TN_TRAIN_SETTINGS_H

#include "models/models.h"

extern const tn_setting tn_train_settings[];
extern const size_t tn_train_settings_n;

/* Adds the rows that do not depend on the model. */
tn_status tn_settings_common(tn_settings *st);

/* Defaults, then the preset, then what `target` says, then the overrides ("key=value"). The target is a YAML file, a
 * run's directory (its config.yaml), the name of a preset or a model, the path of a model's .so, or NULL. The model is
 * the one these name; its rows are added. Free *out with tn_settings_free. A shared object is loaded where `user` names it. */
typedef struct tn_settings_from {
    const tn_user_args *user;
    const char *target;
    const char *file;        /* instead of a target: a file of weights, */
    const char *const *said; /* (n_said) and the "key=value" words that stand in it */
    size_t n_said;
    const char *const *overrides; /* (n) */
    size_t n;
} tn_settings_from;
tn_status tn_settings_resolve_from(const tn_settings_from *from, tn_settings **out, const tn_model **model);
tn_status tn_settings_resolve_user(const tn_user_args *user, const char *target, const char *const *overrides, size_t n,
                                   tn_settings **out, const tn_model **model);
/* The same, of models of the tree alone. */
tn_status tn_settings_resolve(const char *target, const char *const *overrides, size_t n, tn_settings **out,
                              const tn_model **model);

/* How many different tokens may be made up for a model: its vocabulary, or 256 where it has no such setting. */
int64_t tn_settings_vocab(const tn_settings *st);

#endif
