/* Two trainings of the same steps, number by number: the largest difference of a parameter, and whose it is.
 *
 * A difference counts as a part of the largest value of its tensor; of a tensor that is small as a whole, beside the model's largest value, as
 * a part of TN_PARITY_SMALL of that: what rounding leaves of a gradient that is zero in exact arithmetic says nothing. */
#ifndef TN_REPORT_PARITY_H
#define TN_REPORT_PARITY_H

#include "plan/store.h"

#define TN_PARITY_SMALL 1e-3

enum { TN_PARITY_NAME = 120 };

typedef struct tn_parity {
    char worst[TN_PARITY_NAME]; /* "layer0.mixer.nu", "gradient of layer0.mixer.nu", "loss"; "" while all are equal */
    double error;               /* its difference; infinite where one side is NaN and the other is not */
    bool identical;             /* bit for bit, everything that was compared */
    int64_t compared;           /* numbers */
} tn_parity;

/* Before anything was compared. */
tn_parity tn_parity_none(void);

/* n numbers of each side. least: what the largest of them counts as if it is below. what: before the name, or "". */
void tn_parity_numbers(tn_parity *p, const char *what, const char *name, const float *a, const float *b, int64_t n,
                       double least);
void tn_parity_loss(tn_parity *p, double a, double b);

/* All parameters that are trained, or their gradients. One that only one side has, or has in another shape, differs infinitely. */
tn_status tn_parity_stores(tn_parity *p, const tn_store *a, const tn_store *b, bool gradients);

/* Whether it is worse than that; NaN as a tolerance: nothing is. */
bool tn_parity_fails(const tn_parity *p, double tolerance);

#endif
