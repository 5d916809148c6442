/* Probes: sequences of tokens with questions in them, for models that read tokens. What is asked can be answered from the
 * sequence itself and from nowhere else, so that the share of right answers says what a network remembers.
 *
 *     TN_TRY(tn_probe_open(settings, &p));
 *     tn_probe_batch(p, i, &which);                  what training batch i is made of
 *     tn_probe_train(p, seed, &which, rows, row, scratch, tokens, labels);
 *     tn_probe_free(p);
 *
 * A sequence is a function of (seed, number) alone, by counter-based random numbers: whoever knows the number of the next batch can
 * go on, and nothing is kept. Held-out sequences are those of task.split_seed, whatever the run's seed. Sequences come in groups that
 * are measured apart (8 pairs, 16 pairs; depths; lengths). Nothing here allocates but tn_probe_open. */
#ifndef TN_TASKS_PROBE_H
#define TN_TASKS_PROBE_H

#include "base/hash.h"
#include "tasks/samples.h"

enum { TN_PROBE_GROUPS = 40, TN_PROBE_LENGTHS = 8, TN_PROBE_NAME = 24 };

typedef struct tn_probe_group {
    char name[TN_PROBE_NAME]; /* "32": its metrics are NAME_32 */
    int64_t length;           /* of its sequences */
    int64_t pairs, depth;     /* as the task has use for them */
} tn_probe_group;

typedef struct tn_probe {
    const struct tn_task *task;
    int64_t vocab, length;                 /* tokens: different ones; of the longest sequences */
    int64_t heldout;                       /* held-out sequences of each group */
    uint64_t seed;                         /* of those */
    tn_probe_group group[TN_PROBE_GROUPS]; /* (groups), shorter ones first */
    int64_t groups;
    int64_t lengths[TN_PROBE_LENGTHS]; /* (n_lengths), ascending */
    int64_t n_lengths;
    bool mixed; /* a training batch holds all groups of its length in turn, not one of them */
    int64_t keys, values, noise, segment, depths;
    uint8_t *text; /* (text_bytes): what lies between, instead of noise; NULL: none */
    size_t text_bytes;
    /* One sequence of a group: tokens and labels (length each), labels -1 where nothing is asked. `training`: of a training batch.
     * scratch (tn_probe_scratch): for drawing without repetition. */
    void (*draw)(const struct tn_probe *p, const tn_probe_group *g, bool training, tn_task_draws *d, int32_t *scratch,
                 int32_t *tokens, int32_t *labels);
} tn_probe;

/* The probe that task.name names, for train.context; TN_USAGE names the setting that does not fit. */
tn_status tn_probe_open(const tn_settings *st, tn_probe **out);
void tn_probe_free(tn_probe *p);             /* takes NULL */
int64_t tn_probe_scratch(const tn_probe *p); /* numbers */
/* Of all that its sequences depend on, the seeds aside. */
void tn_probe_hash(const tn_probe *p, char hash[TN_HASH_BYTES]);

/* What training batch i is made of. Lengths share the tokens: while the longest has one batch, one of a quarter of its tokens has
 * four. Groups of a length come in turn, by batches or (mixed) by rows. */
typedef struct tn_probe_which {
    int64_t batch;         /* i */
    int64_t length;        /* of all its sequences */
    int64_t first, groups; /* groups of that length */
    int64_t before;        /* batches of that length before it */
} tn_probe_which;

void tn_probe_batch(const tn_probe *p, int64_t i, tn_probe_which *out);
/* Row `row` of so many of a training batch; returns its group. */
int64_t tn_probe_train(const tn_probe *p, uint64_t seed, const tn_probe_which *w, int64_t rows, int64_t row,
                       int32_t *scratch, int32_t *tokens, int32_t *labels);
/* Held-out sequence `number` of a group. */
void tn_probe_held(const tn_probe *p, tn_data_split split, int64_t group, int64_t number, int32_t *scratch,
                   int32_t *tokens, int32_t *labels);

/* --- for files of src/tasks -------------------------------------------------------------------------------------------------- */

/* "8,16,32" as ascending numbers of at least 1, or `otherwise` while the setting is auto. */
tn_status tn__probe_list(const tn_settings *st, const char *key, const char *otherwise, int64_t most, int64_t *list,
                         int64_t *n);
/* task.lengths, or train.context. */
tn_status tn__probe_lengths(const tn_settings *st, tn_probe *p);
/* task.keys or task.values, or `otherwise` while it is auto. */
int64_t tn__probe_size(const tn_settings *st, const char *key, int64_t otherwise);
/* n different numbers of 0..of-1 in random order, in scratch[0..n-1]. */
void tn__draw_distinct(tn_task_draws *d, int64_t n, int64_t of, int32_t *scratch);
/* n tokens first..first+of-1, uniform. */
void tn__draw_tokens(tn_task_draws *d, int32_t *tokens, int64_t n, int64_t first, int64_t of);

#endif
