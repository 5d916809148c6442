/* Texts with questions about them, for models that read a text through a latent: recall, cont, ae, cls, squad.
 *
 *     TN_TRY(task->texts(settings, &t));
 *     TN_TRY(tn_wire_read(t, TN_TEST, i, &e));        e.text.data + e.context.at is the context, ...
 *     tn_wire_example_free(&e);
 *     tn_wire_texts_free(t);
 *
 * An example is a function of the task's settings and files, its split and its index: nothing is drawn beside them. It is text;
 * wire_layout.h makes tokens of it. */
#ifndef TN_TASKS_WIRE_TEXT_H
#define TN_TASKS_WIRE_TEXT_H

#include "base/hash.h"
#include "tasks/task.h"
#include "token/tokenizer.h" /* tn_text */

/* What the questions of a context are: none, its continuation, questions. Also the anchor that a reader sees before them. */
enum { TN_WIRE_AE, TN_WIRE_LM, TN_WIRE_QA };
#define TN_WIRE_BETWEEN "\n" /* the anchor as text, of all tasks that ask questions */

/* Bytes of an example's text. */
typedef struct tn_wire_span {
    size_t at, bytes;
} tn_wire_span;

typedef struct tn_wire_question {
    tn_wire_span question; /* may be empty: the answer continues the context */
    size_t gold, golds;    /* its answers, at least one: gold[gold] is trained on, all of them are right */
} tn_wire_question;

/* Zeroed before the first use; its memory is used again by the next read. */
typedef struct tn_wire_example {
    tn_text text;
    tn_wire_span context;
    tn_wire_question *question; /* (questions) */
    size_t questions, question_capacity;
    tn_wire_span *gold; /* (golds) */
    size_t golds, gold_capacity;
} tn_wire_example;

void tn_wire_example_free(tn_wire_example *e); /* leaves it empty */
/* Its pieces; not NUL-terminated. */
static inline const char *tn_wire_at(const tn_wire_example *e, tn_wire_span s) { return e->text.data + s.at; }

typedef struct tn_wire_texts tn_wire_texts;
struct tn_wire_texts {
    const char *task;
    int kind;           /* TN_WIRE_AE, ... */
    const char *anchor; /* what stands between context and question where the context is read as text */
    const char *form;   /* how examples are written; another form, other tokens */
    int64_t count[TN_SPLITS];
    bool endless;             /* training examples go on behind their count */
    char hash[TN_HASH_BYTES]; /* of all that examples depend on */
    int64_t cut, left_out; /* contexts that were longer than task.length; questions whose answer is not in the rest */
    char about[160];       /* where the texts come from, for people */
    void *data;
    tn_status (*read)(const tn_wire_texts *t, int split, int64_t i, tn_wire_example *e);
    void (*close)(void *data);
};

void tn_wire_texts_free(tn_wire_texts *t); /* takes NULL */
/* Example i of a split. TN_MEMORY. */
tn_status tn_wire_read(const tn_wire_texts *t, int split, int64_t i, tn_wire_example *e);

/* Which q of a context's n questions are asked, ascending, into out (the smaller of q and n, which is returned; q 0: all). step: of the
 * optimizer, others in each; -1: held out, a choice that depends on split and context alone, and where a larger q keeps what a smaller
 * one asks. */
int64_t tn_wire_pick(uint64_t seed, int64_t step, int split, int64_t context, int64_t n, int64_t q, int32_t *out);

#endif
