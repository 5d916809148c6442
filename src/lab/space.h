/* A search space: settings keys and the values each may take. A point is one double per dimension: the number itself, or the place of
 * a choice among its choices; NaN where the dimension is switched off by another one's choice. */
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
    double lo, hi;   /* numbers: both are possible values */
    bool log;        /* drawn evenly in the logarithm */
    double step;     /* > 0: only lo, lo + step, ...; an INT without one has step 1 */
    const char *const *choices; /* (n_choices), as settings text */
    size_t n_choices;
    int when;        /* an earlier CHOICE dimension that must have ... */
    int when_choice; /* ... this choice; -1 and 0: always there */
} tn_dim;

typedef struct tn_space {
    const tn_dim *dims; /* (n) */
    size_t n;
} tn_space;

/* "log 1e-4..1e-1", "4..512", "log int 4..512", "0.5..0.99 step 0.01", or choices from a list: fills kind, bounds and choices (which go
 * into `arena`). TN_USAGE with what is wrong and how it is written. */
struct tn_arena;
tn_status tn_dim_parse(const char *text, struct tn_arena *arena, tn_dim *out);

/* Values of the dimension between 0 and 1 and back: evenly drawn in u means drawn by the prior. Whole steps are rounded. */
double tn_dim_at(const tn_dim *d, double u);       /* u in [0,1) */
double tn_dim_place(const tn_dim *d, double value); /* [0,1]; a choice's middle */
/* The value as settings text (a choice's own text; integers without a point; floats so that reading gives the same double). */
void tn_dim_text(const tn_dim *d, double value, char *out, size_t bytes);
/* Dimensions that the choices in x switch off become NaN. */
void tn_space_apply_when(const tn_space *s, double *x);

#endif
