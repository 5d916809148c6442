/* Rows of a session's batch as its source has filled them, and the texts that they were made of. */
#ifndef TN_REPORT_WIRE_ROWS_H
#define TN_REPORT_WIRE_ROWS_H

#include "report/answers.h"
#include "tasks/wire/wire_text.h"
#include "train/run/session.h"

/* An input (B, Q, n), (B, n) or (B) of a reader; at is NULL where nobody reads it. */
typedef struct tn_wire_input {
    int32_t *at;
    int64_t q, n;
} tn_wire_input;
tn_wire_input tn_wire_input_of(tn_session *s, char reader, const char *name);
/* Contexts of the batch at work. */
int64_t tn_wire_valid(tn_session *s);

/* Questions and all right answers, as text, of the contexts of a split, in the order of the batches' rows. */
typedef struct tn_wire_golds {
    tn_wire_texts *texts;
    int split;
    uint64_t seed;
    int64_t most; /* questions of a row */
    /* Of the context that was read last. */
    tn_wire_example example;
    int32_t *picked; /* (n): which of its questions are asked */
    int64_t n;
} tn_wire_golds;

tn_status tn_wire_golds_open(const tn_session *s, int split, tn_wire_golds *out);
void tn_wire_golds_free(tn_wire_golds *g); /* takes a zeroed one */
tn_status tn_wire_golds_read(tn_wire_golds *g, int64_t context);
/* Question q of that context, and its golds: the first is the one that is trained on. Into gold at most `most`; returns how many there are. */
tn_answer tn_wire_golds_question(const tn_wire_golds *g, int64_t q);
size_t tn_wire_golds_of(const tn_wire_golds *g, int64_t q, tn_answer *gold, size_t most);

#endif
