/* Opening tasks in tests: settings from "a=b c=d", and what is asked of every set. Header only. */
#ifndef TN_TASK_SETS_H
#define TN_TASK_SETS_H

#include "dataset_files.h"
#include "tasks/samples.h"

/* The rows of tasks with some set (no spaces in values). */
static inline tn_settings *tn_task_settings_of(const char *words)
{
    tn_settings *st = NULL;
    char text[4096];
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_add(st, tn_task_settings, tn_task_settings_n, "task"));
    snprintf(text, sizeof text, "%s", words);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));) assert_ok(tn_settings_override(st, word));
    return st;
}

static inline tn_status tn_task_try(const char *name, const char *words, tn_samples **out)
{
    const tn_task *t;
    tn_settings *st = tn_task_settings_of(words);
    assert_ok(tn_settings_set(st, "task", name, "test"));
    assert_ok(tn_task_find(name, &t));
    const tn_status s = t->open(st, out);
    tn_settings_free(st);
    return s;
}

static inline tn_samples *tn_task_set(const char *name, const char *words)
{
    tn_samples *set = NULL;
    assert_ok(tn_task_try(name, words, &set));
    return set;
}

/* No row is in two splits or outside, every label is a class; with `all`, every row is in one. */
static inline void tn_task_set_check(const tn_samples *set, bool all)
{
    unsigned char *seen = tn_alloc((size_t)set->n);
    int64_t rows = 0;
    assert_non_null(seen);
    assert_true(set->n > 0 && (set->x_u8 != NULL) != (set->x_f32 != NULL));
    assert_true(set->labels == 1 || set->labels == set->tokens);
    for (int64_t i = 0; i < set->n * set->labels; i++) assert_in_range(set->y[i] + 1, 0, set->classes);
    for (int k = 0; k < TN_SPLITS; k++)
        for (int64_t i = 0; i < set->count[k]; i++, rows++) {
            assert_in_range(set->index[k][i], 0, set->n - 1);
            assert_false(seen[set->index[k][i]]++);
        }
    if (all) assert_int_equal(rows, set->n);
    tn_free(seen);
}

/* Samples of a class in a split; -1 is all. */
static inline int64_t tn_task_class_count(const tn_samples *set, int split, int32_t label)
{
    int64_t n = 0;
    for (int64_t i = 0; i < set->count[split]; i++)
        n += label < 0 || set->y[set->index[split][i] * set->labels] == label;
    return n;
}

#endif
