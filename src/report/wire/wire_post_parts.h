/* Inside of a post, for its files. */
#ifndef TN_REPORT_WIRE_POST_PARTS_H
#define TN_REPORT_WIRE_POST_PARTS_H

#include "report/wire/reader_words.h"
#include "report/wire/speaker.h"
#include "report/wire/wire_post.h"
#include "train/trainer/trainer.h"

struct tn_wire_post {
    tn_saved_model *model;
    tn_settings *settings; /* with rows as long as they are needed */
    tn_trainer *trainer;
    tn_wire_about about;
    int64_t batch;
    char encoder[16], sender; /* sender: of encoder=sender, else 0 */
    char *seen;               /* (seen_bytes) the question that the encoder sees behind a text, or NULL */
    size_t seen_bytes;
    tn_input_row rows[TN_INPUTS_MAX];
    size_t n_rows;
    tn_wire_words words; /* of who tokenises: the sender, or the reader that answers */
    tn_wire_tokens work;
    tn_tokens laid;
    /* Of answers. */
    char reader;
    int kind;
    int64_t questions, max_tokens, length; /* questions: tokens of the question; length: of a row */
    tn_wire_speaker *speaker;              /* NULL: each token runs the whole row again */
};

/* All inputs of all rows as padding, of which the first n count. */
tn_status tn__wire_post_begin(tn_wire_post *p, int64_t n, tn_feed *f);

#endif
