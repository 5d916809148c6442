/* How tasks make their sets: memory, splits in order, and samples drawn from random numbers. For files of src/tasks only;
 * who reads a set includes task.h. */
#ifndef TN_TASKS_SAMPLES_H
#define TN_TASKS_SAMPLES_H

#include "tasks/task.h"

/* A set under construction: `set` comes first, so that a pointer to it is a pointer to the whole, and the other pointers
 * are where its fields may be written. */
typedef struct tn_sample_set {
    tn_samples set;
    uint8_t *x_u8;  /* (n, tokens, features), or NULL */
    float *x_f32;   /* (n, tokens, features), or NULL */
    int32_t *y;     /* (n, labels) */
    int32_t *index; /* (n): the splits one behind the other */
    tn_targets targets;
} tn_sample_set;

/* Memory for the shape given in `shape` (n, tokens, features, labels, classes, scale); all of it zero. `u8`: numbers are
 * bytes. The splits are empty. TN_USAGE where the sizes are more than a set may have. */
tn_status tn__samples_new(const tn_samples *shape, bool u8, tn_sample_set **out);
/* A fraction of n rounded up, as scikit-learn counts held-out samples (0.2 of 1797 is 360); the same on every machine. */
int64_t tn__part_of(int64_t n, double frac);

/* The three ways a set is split; each reads task.split first, whose file decides where it is given. */
/* Rows in their order: the first count[TN_TRAIN] are for training, the next for validation, the last for the test. */
tn_status tn__split_in_order(const tn_settings *st, tn_sample_set *b, const int64_t count[TN_SPLITS]);
/* Rows in their order by task.valid_frac and task.test_frac. */
tn_status tn__split_in_parts(const tn_settings *st, tn_sample_set *b);
/* By task.valid_frac and task.test_frac, each class (the first label) in proportion. The last own_test rows are the data
 * set's own test split: where there are any, task.test_frac does not count. */
tn_status tn__split_by_class(const tn_settings *st, tn_sample_set *b, int64_t own_test);

/* The images that task.images names, as their own task opens them, to be given targets. */
tn_status tn__open_images(const tn_settings *st, tn_sample_set **out);

/* Random numbers of one sample, one after the other. */
typedef struct tn_task_draws {
    tn_rng rng;
    uint64_t next;
} tn_task_draws;
int64_t tn__draw_below(tn_task_draws *d, int64_t n);                /* 0..n-1 */
double tn__draw_between(tn_task_draws *d, double low, double high); /* uniform */

/* A task whose samples are drawn independently. */
typedef struct tn_recipe {
    const char *name;                          /* of the task: its random numbers are its own */
    int64_t tokens, features, labels, classes; /* of a sample */
    int64_t size;                              /* training samples where task.size is auto */
    int64_t width;                             /* bits, symbols or digits: what `draw` needs to know of the settings */
    void (*draw)(const struct tn_recipe *r, tn_task_draws *d, float *x,
                 int32_t *y); /* x (tokens, features), zero; y (labels) */
} tn_recipe;

/* Training samples 0..size-1, then validation, then test: size x task.valid_frac and x task.test_frac more, drawn as the
 * others are (a point may come again where there are few). A sample is a function of task.split_seed and its number. */
tn_status tn__samples_draw(const tn_settings *st, const tn_recipe *r, tn_samples **out);
/* task.bits or task.length, or `otherwise` while it is auto; TN_USAGE beyond `most`. */
tn_status tn__task_width(const tn_settings *st, const char *key, int64_t otherwise, int64_t most, int64_t *out);

#endif
