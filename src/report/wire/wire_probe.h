/* What a linear probe finds in messages: a ridge regression of the classes on numbers of a message, fitted on training texts. For the task cls.
 *
 * A premise says little about an answer that depends on the hypothesis too, so there are three probes: on the message alone, on the question
 * alone (its words, hashed), and on both with products of the two. What the message adds is the third minus the second. */
#ifndef TN_REPORT_WIRE_PROBE_H
#define TN_REPORT_WIRE_PROBE_H

#include "report/wire/controls.h"

enum { TN_PROBE_CLASSES = 32 };

/* Ridge regression of indicators of the classes on x (n, d), with a constant that is not shrunk: w (classes, d + 1), the constant last.
 * `shrink` is in units of the mean square of a column of x. */
tn_status tn_ridge_fit(const float *x, const int32_t *y, int64_t n, int64_t d, int64_t classes, double shrink,
                       double *w);
/* The class with the largest value, of one row (d). */
int32_t tn_ridge_class(const double *w, const float *x, int64_t d, int64_t classes);

typedef enum tn_wire_probe_of { TN_PROBE_MESSAGE, TN_PROBE_QUESTION, TN_PROBE_BOTH, TN_PROBES } tn_wire_probe_of;
extern const char *const tn_wire_probe_names[TN_PROBES];

typedef struct tn_wire_probe {
    bool done;                  /* the task is one of classes */
    int64_t classes, fitted, n; /* fitted: answers of the training split; n: of the split */
    double accuracy[TN_PROBES];
    double frequent; /* of the class that is the most frequent in training */
} tn_wire_probe;

/* c: of the same session, whose messages are those of `split`. Training texts are encoded here, at most `most`. */
tn_status tn_wire_probe_run(tn_session *s, const tn_wire_controls *c, int split, int64_t most, tn_wire_stop *stop,
                            void *ctx, tn_wire_probe *out);

#endif
