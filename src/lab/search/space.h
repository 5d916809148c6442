/* A search space: settings keys and the values each may take. A point is one double per dimension: the number
 * itself, or the index of a choice; NaN where another dimension's choice switches it off. */
#ifndef TN_LAB_SPACE_H
#define TN_LAB_SPACE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tn_dim_kind { TN_DIM_FLOAT = 0, TN_DIM_INT = 1, TN_DIM_CHOICE = 2 } tn_dim_kind;

typedef struct tn_dim {
    const char *key; /* of the settings */
    tn_dim_kind kind;
    double lo, hi;              /* numbers: both are possible values */
    bool log;                   /* drawn evenly in the logarithm */
    double step;                /* > 0: only lo, lo + step, ...; an INT without one has step 1 */
    const char *const *choices; /* (n_choices), as settings text */
    size_t n_choices;
    int when;        /* an earlier CHOICE dimension that must have ... */
    int when_choice; /* ... this choice; -1 and 0: always there */
} tn_dim;

typedef struct tn_space {
    const tn_dim *dims; /* (n) */
    size_t n;
} tn_space;

/* "log 1e-4..1e-1", "0..1", "log int 4..512", "int 8..64 step 8", "0.5..0.99 step 0.01", or choices: "[relu, gelu]".
 * Both ends are possible values; a range is of floats unless it says int. Fills kind, bounds and choices (which go
 * into `arena`) and leaves key and when alone but for when = -1. TN_USAGE with what is wrong and how it is written. */
struct tn_arena;
tn_status tn_dim_parse(const char *text, struct tn_arena *arena, tn_dim *out);
/* The same for choices that are a list already: one or more different ones. */
tn_status tn_dim_choices(const char *const *items, size_t n, struct tn_arena *arena, tn_dim *out);
/* "act=gelu": d is there only where an earlier dimension, of dims (n), has that choice. */
tn_status tn_dim_when(const tn_dim *dims, size_t n, const char *text, tn_dim *d);
/* For a setting that takes whole numbers only: a range of floats between whole ends becomes one of integers; others
 * are refused. */
tn_status tn_dim_make_int(tn_dim *d);
/* What the functions below and samplers rely on: ends in order, choices there, `when` pointing back, no key twice. */
tn_status tn_space_check(const tn_space *s);

/* Values of the dimension between 0 and 1 and back: evenly drawn in u means drawn by the prior. Whole steps are
 * rounded. */
double tn_dim_at(const tn_dim *d, double u);        /* u in [0,1); beyond it the nearest end */
double tn_dim_place(const tn_dim *d, double value); /* [0,1]; the middle of a choice or step; of NaN: 0.5 */
/* The u that give this value: a cell of some width where values are counted, else a point (lo = hi). */
void tn_dim_cell(const tn_dim *d, double value, double *lo, double *hi);
/* The value as settings text (a choice's own text; integers without a point; floats so that reading gives the same
 * double). */
void tn_dim_text(const tn_dim *d, double value, char *out, size_t bytes);
/* How many values there are; 0: a range without steps, so there is no counting them. Value k of them, k from 0. */
int64_t tn_dim_count(const tn_dim *d);
double tn_dim_value(const tn_dim *d, int64_t k);
/* Dimensions that the choices in x switch off become NaN. */
void tn_space_apply_when(const tn_space *s, double *x);
/* Whether dimension i is there, given the choices before it in x. */
bool tn_space_has(const tn_space *s, const double *x, size_t i);

#endif
