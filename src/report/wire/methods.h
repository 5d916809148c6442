/* What a reader is given in the place of a text: a message in one of several forms, or as many tokens as a message has slots. */
#ifndef TN_REPORT_WIRE_METHODS_H
#define TN_REPORT_WIRE_METHODS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tn_wire_method {
    TN_WIRE_TEXT,
    TN_WIRE_NONE,
    TN_WIRE_FIRST,
    TN_WIRE_LAST,
    TN_WIRE_RANDOM,
    TN_WIRE_LATENT,
    TN_WIRE_FP16,
    TN_WIRE_INT8,
    TN_WIRE_INT6,
    TN_WIRE_INT4,
    TN_WIRE_SHUFFLED,
    TN_WIRE_MEAN,
    TN_WIRE_ZERO,
    TN_WIRE_METHODS
} tn_wire_method;

extern const char *const tn_wire_method_names[TN_WIRE_METHODS];
static inline bool tn_wire_is_text(tn_wire_method m) { return m < TN_WIRE_LATENT; }

/* What methods take from: all messages, and their mean. Borrowed. */
typedef struct tn_wire_given {
    const float *z;    /* (contexts, slots, width) */
    const float *mean; /* (slots, width) */
    int64_t contexts, slots, width, private_slots;
    int readers;
    uint64_t seed; /* of the tokens that `random` draws */
} tn_wire_given;

/* Message of a context by a method that is none of texts, into to (slots, width). bytes: of the message where it is one that is sent. */
tn_status tn_wire_give_message(const tn_wire_given *x, tn_wire_method m, int64_t context, float *to, size_t *bytes);
/* Which of n tokens of a context stay by a method of texts, into keep (n). */
void tn_wire_give_tokens(const tn_wire_given *x, tn_wire_method m, int64_t context, int64_t n, bool *keep);
/* A row of text of n tokens, right-aligned, as: zeros ; BOS ; context ; anchor text ; question ; answer. Of the context `keep` says what
 * stays. document: 1 where the row has begun. */
void tn_wire_cut_row(const int32_t *told, const int32_t *document, int64_t n, int64_t context, const bool *keep,
                     int32_t *to, int32_t *to_document);

#endif
