/* How long an answer takes when the reader has the text before it, and when it has the message: reading what stands before the answer, and
 * then the tokens, each after the other. Times are of a whole batch, on the machine that runs it. */
#ifndef TN_REPORT_WIRE_LATENCY_H
#define TN_REPORT_WIRE_LATENCY_H

#include "report/wire/controls.h"

typedef struct tn_wire_path_times {
    double prefill_ms, decode_ms; /* medians; a message's prefill makes keys or vectors of it too */
    double positions;             /* that stand before the answer, in the mean: tokens, and slots of the message */
} tn_wire_path_times;

typedef struct tn_wire_latency {
    int64_t batch, tokens, repeats; /* tokens: of an answer, whether it ends or not */
    char reader[TN_CONTROL_READERS + 1];
    int readers;
    double encode_ms; /* of the batch's texts to messages */
    tn_wire_path_times text[TN_CONTROL_READERS], message[TN_CONTROL_READERS];
} tn_wire_latency;

/* On the first batch that is held out, one question of each text; where there are fewer texts they come again. The session has the steps of
 * the controls, and no speaker has been opened on it. tokens: of an answer; those that fit a reader's context are measured. TN_USAGE: the
 * task asks nothing. */
tn_status tn_wire_latency_measure(tn_session *s, int64_t tokens, int64_t repeats, tn_wire_stop *stop, void *ctx,
                                  tn_wire_latency *out);

#endif
