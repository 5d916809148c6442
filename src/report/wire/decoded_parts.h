/* Inside of decoded answers, for their files. */
#ifndef TN_REPORT_WIRE_DECODED_PARTS_H
#define TN_REPORT_WIRE_DECODED_PARTS_H

#include "report/wire/decoded.h"
#include "report/wire/reader_words.h"
#include "report/wire/rows.h"
#include "report/wire/speaker.h"

enum { TN_WIRE_MOST_GOLDS = 64, TN_WIRE_TOGETHER = 64 };

typedef struct tn_decoded_reader {
    tn_wire_input tokens, labels, told, document, length;
    tn_wire_words words;
    tn_wire_speaker *speaker;
    int64_t longest_row, longest_gold;
    int64_t longest_context; /* BOS ; context */
    int64_t longest_note;    /* a row of text whose context has as many tokens as a message has slots */
    int64_t own;             /* slots that it reads */
    tn_wire_said *said;      /* (B Q): of the method at work */
    tn_wire_said *first;     /* (B Q): of the message as it is, for the joint answer */
} tn_decoded_reader;

/* The batch at work. */
typedef struct tn_decoder_work {
    tn_session *s;
    const tn_wire_controls *c;
    const tn_wire_decoded_options *o;
    tn_wire_decoded *out;
    tn_wire_given given;
    tn_wire_golds golds;
    tn_decoded_reader reader[TN_CONTROL_READERS];
    int64_t together; /* rows of a speaker */
    float *z;         /* (together, slots, width) */
    int32_t *cut;     /* (B Q, longest told): rows of text, cut */
    int32_t *cut_document;
    bool *keep;
    tn_wire_row *row; /* (B Q) */
    int64_t valid, before;
} tn_decoder_work;

/* The answers of all readers in `first`, weighed against each other. */
tn_status tn__wire_joint_batch(tn_decoder_work *w);
/* What readers answer from what the first of them says of the texts. */
tn_status tn__wire_relay_batch(tn_decoder_work *w);
/* What reader k says to w->row, into its `said`, those that ask nothing left out; and their scores. m: whether they are rows of text, or of which
 * messages. */
tn_status tn__wire_say_rows(tn_decoder_work *w, tn_wire_method m, int k);
tn_status tn__wire_score_rows(tn_decoder_work *w, int k, tn_wire_decoded_score *to);
/* Score of an answer to question q of the context that golds has read. */
tn_status tn__wire_score_said(const tn_wire_golds *g, int64_t q, const tn_text *text, tn_answer_score *out);

#endif
