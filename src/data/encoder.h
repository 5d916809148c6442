/* Tokenizing on several threads: the caller fills jobs of about a megabyte and gets them back, encoded, in the same
 * order. The result does not depend on the number of threads. */
#ifndef TN_DATA_ENCODER_H
#define TN_DATA_ENCODER_H

#include "data/manifest.h"
#include "token/tokenizer.h"

typedef struct tn_encode_piece {
    size_t at, bytes; /* in the job's text */
    size_t tokens;    /* filled by the worker; they follow each other in the job's ids */
    bool first;       /* of its document */
    tn_data_split split;
} tn_encode_piece;

typedef struct tn_encode_job {
    tn_text text;
    tn_encode_piece *pieces; /* (n) */
    size_t n, capacity;
    tn_tokens ids;
    tn_status status;
    char error[1024];
    int state; /* the encoder's */
} tn_encode_job;

typedef struct tn_encoder tn_encoder;

tn_status tn_encoder_new(const tn_tokenizer *t, int threads, tn_encoder **out);
void tn_encoder_free(tn_encoder *e); /* takes NULL; waits for jobs at work */

/* The next job to fill. Where it was used before, it comes back done: take its ids before tn_encode_job_clear. Fails with
 * what its worker failed with. n = 0: nothing in it. */
tn_status tn_encoder_claim(tn_encoder *e, tn_encode_job **out);
void tn_encoder_submit(tn_encoder *e);     /* the job claimed last */
int tn_encoder_depth(const tn_encoder *e); /* jobs; claiming that many times after the last submit gets all back */

void tn_encode_job_clear(tn_encode_job *j);
tn_status tn_encode_job_add(tn_encode_job *j, const char *text, size_t bytes, bool first, tn_data_split split);

#endif
