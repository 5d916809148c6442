/* letters: random letters, a question of 2 and an answer of 22 that has nothing to do with them. Nothing can be learned from it: it is for
 * measuring, where lengths matter and texts do not. Readers without files get rows of just the lengths that are set (train/source/wire.c). */
#include "base/alloc.h"
#include "tasks/wire/wire_parts.h"

#include <stdio.h>

enum { LENGTH = 512, QUESTION = 2, ANSWER = 22, SIZE = 4096, MOST = 4096 };

typedef struct letters {
    size_t length;
    uint64_t seed;
} letters;

static tn_status read_letters(const tn_wire_texts *t, int split, int64_t i, tn_wire_example *e)
{
    const letters *d = t->data;
    const tn_rng r = { d->seed, tn_rng_stream("wire.letters") + (uint64_t)split };
    char x[MOST + QUESTION + ANSWER];
    const size_t n = d->length + QUESTION + ANSWER;
    for (size_t k = 0; k < n; k++) x[k] = (char)('a' + tn_rng_below(r, (uint64_t)i << 32 | k, 26));
    TN_RETURN_IF(tn__wire_add_context(e, x, d->length));
    TN_RETURN_IF(tn__wire_add_question(e, "", x + d->length, QUESTION, ""));
    return tn__wire_add_gold(e, "", x + d->length + QUESTION, ANSWER);
}

static void close_letters(void *data) { tn_free(data); }

static tn_status open_letters(const tn_settings *st, tn_wire_texts **out)
{
    letters *d = tn_alloc(sizeof *d);
    if (!d) return TN_MEMORY;
    d->length = tn_settings_is_auto(st, "task.length") ? LENGTH : (size_t)tn_settings_int(st, "task.length");
    d->seed = (uint64_t)tn_settings_int(st, "task.split_seed");
    const int64_t heldout = tn_settings_int(st, "task.heldout"),
                  size = tn_settings_is_auto(st, "task.size") ? SIZE : tn_settings_int(st, "task.size");
    const int64_t numbers[] = { (int64_t)d->length, (int64_t)d->seed };
    tn_wire_texts t = { .task = "letters",
                        .kind = TN_WIRE_QA,
                        .anchor = TN_WIRE_BETWEEN,
                        .form = "letters",
                        .count = { [TN_TRAIN] = size, [TN_VALID] = heldout, [TN_TEST] = heldout },
                        .endless = true,
                        .data = d,
                        .read = read_letters,
                        .close = close_letters };
    snprintf(t.about, sizeof t.about, "made up, for measuring");
    const tn_status s = tn__wire_hash(numbers, 2, "", 0, t.hash);
    if (s == TN_OK) return tn__wire_texts_new(&t, out);
    close_letters(d);
    return s;
}

const tn_task tn_task_letters = { .name = "letters",
                                  .summary = "random letters with a question and an answer: for measuring",
                                  .texts = open_letters };
