/* Scores: the values of metrics at an evaluation, by name. */
#ifndef TN_TRAIN_SCORES_H
#define TN_TRAIN_SCORES_H

#include <stdbool.h>
#include <stddef.h>

enum { TN_SCORES_MAX = 64, TN_SCORE_NAME = 48, TN_SCORE_KEY = TN_SCORE_NAME + 16 };

/* In the order of the rows, the first of which is what training minimises; behind one that is counted by groups each as NAME_GROUP. */
typedef struct tn_scores {
    size_t n;
    struct {
        char name[TN_SCORE_NAME];
        double value;
    } at[TN_SCORES_MAX]; /* NaN: not known */
} tn_scores;

double tn_scores_get(const tn_scores *s, const char *name); /* NaN: there is none */
double tn_scores_first(const tn_scores *s);
/* False: there is no room, or the name is too long. */
bool tn_scores_put(tn_scores *s, const char *name, double value);

/* Whether a is better than b by the score of this name, which `lower` is better of, or not. One that knows it is better than one that does
 * not; where neither does, or they are equal, the first score decides: the lower. */
bool tn_scores_better(const tn_scores *a, const tn_scores *b, const char *name, bool lower);

/* Names that stand for something else where scores are written: no metric has one. */
bool tn_score_taken(const char *name);

#endif
