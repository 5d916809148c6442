/* Names of a study. A study that is read from a database asks no model, since models may be programs: only rows of the tree are known here. */
#include "lab/study/study_metrics.h"

#include "models/models.h"
#include "train/source/env.h"

#include <string.h>

const tn_metric_row *tn_study_metric(const char *name)
{
    const tn_model *m;
    for (size_t i = 0; (m = tn_model_at(i)); i++) {
        tn_metric_list rows;
        tn_metric_rows(m, &rows);
        const tn_metric_row *r = tn_metric_find(&rows, name);
        if (r) return r;
    }
    return strcmp(tn_env_reward.name, name) == 0 ? &tn_env_reward : NULL;
}

bool tn_study_number(const char *name, bool *maximise)
{
    static const struct {
        const char *name;
        bool maximise;
    } numbers[] = {
        { "seconds", false },     { "parameters", false },  { "epochs_to_90", false },
        { "block_evals", false }, { "tokens_per_s", true }, { "memory_bytes", false },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].name, name) == 0) {
            *maximise = numbers[i].maximise;
            return true;
        }
    return false;
}
