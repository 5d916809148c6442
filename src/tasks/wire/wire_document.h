/* Texts with questions as documents: what a reader is trained on before it reads messages. A document is the text row of wire_layout.h
 * without its first and last token, with more questions between context and anchor where these are asked for:
 *
 *     context ; (question answer "\n") x repeats ; anchor ; question ; answer
 *
 * Questions are drawn, with repetition, by the number of the document: nothing depends on other documents. A continuation follows its context
 * at once. What stands between documents is for whoever puts them together (`tenon data prepare`). */
#ifndef TN_TASKS_WIRE_DOCUMENT_H
#define TN_TASKS_WIRE_DOCUMENT_H

#include "tasks/wire/wire_text.h"

/* Zeroed before the first use; its memory is used again. */
typedef struct tn_wire_document {
    tn_text text; /* a NUL follows it that n does not count */
    tn_wire_span context, repeated, anchor, question, answer;
    tn_wire_example example;
} tn_wire_document;

void tn_wire_document_free(tn_wire_document *d); /* leaves it empty */

/* Document i, from 0. Its context is number i of the training split; where that has an end, number i modulo its contexts. TN_USAGE: repeats
 * of a task without questions. */
tn_status tn_wire_document_make(const tn_wire_texts *t, int64_t i, int64_t repeats, tn_wire_document *out);

#endif
