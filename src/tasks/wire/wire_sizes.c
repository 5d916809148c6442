/* Sizes of rows from the lengths of their parts. */
#include "tasks/wire/wire_sizes.h"

enum { LEAST = 3 }; /* tokens of a row that asks: BOS, something to say, EOS */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t asked_of(const tn_wire_ids *x, int64_t q) { return 2 + x->asked_at[q + 1] - x->asked_at[q]; }
static int64_t text_of(const tn_wire_ids *x, int64_t c) { return 2 + x->context_at[c + 1] - x->context_at[c]; }

/* The text without EOS, the anchor, the question without BOS. */
static int64_t told_of(const tn_wire_ids *x, int64_t text, int64_t length)
{
    return text - 1 + x->anchors + length - 1;
}

tn_wire_sizes tn_wire_sizes_whole(const tn_wire_store *s, int64_t questions)
{
    tn_wire_sizes w = { .bytes = s->most_bytes, .questions = questions };
    for (size_t r = 0; r < s->readers; r++) {
        w.length[r] = s->reader[r].length;
        w.text[r] = s->reader[r].text;
        w.told[r] = s->reader[r].told;
    }
    if (tn_wire_sends_asked(s)) w.sent = s->seen->most_ids;
    return w;
}

void tn_wire_sizes_of(const tn_wire_store *s, int64_t context, const int32_t *picked, int64_t n, int32_t *size)
{
    const int64_t seen = tn_wire_seen_question(s, context, picked, n);
    size[0] = (int32_t)tn_wire_seen_bytes(s, context, seen, NULL);
    size[1] = (int32_t)n;
    for (size_t r = 0; r < s->readers; r++) {
        const tn_wire_ids *x = &s->reader[r];
        int64_t length = 0;
        for (int64_t k = 0; k < n; k++) length = larger(length, asked_of(x, s->question_at[context] + picked[k]));
        size[2 + 2 * r] = (int32_t)length;
        size[3 + 2 * r] = (int32_t)text_of(x, context);
    }
    if (tn_wire_sends_asked(s)) size[2 + 2 * s->readers] = (int32_t)tn_wire_seen_ids(s, context, seen, NULL);
}

tn_wire_sizes tn_wire_sizes_hold(const tn_wire_store *s, const tn_wire_sizes *whole, const int32_t *size)
{
    tn_wire_sizes w = { .bytes = smaller(larger(size[0], 1), whole->bytes),
                        .questions = smaller(larger(size[1], 1), whole->questions) };
    for (size_t r = 0; r < s->readers; r++) {
        w.length[r] = smaller(larger(size[2 + 2 * r], LEAST), whole->length[r]);
        w.text[r] = smaller(larger(size[3 + 2 * r], LEAST), whole->text[r]);
        w.told[r] = told_of(&s->reader[r], w.text[r], w.length[r]);
    }
    if (tn_wire_sends_asked(s)) w.sent = smaller(larger(size[2 + 2 * s->readers], LEAST), whole->sent);
    return w;
}

void tn_wire_places_add(const tn_wire_store *s, const tn_wire_sizes *size, tn_wire_places *sum)
{
    sum->bytes += (double)size->bytes;
    sum->sent += (double)size->sent;
    for (size_t r = 0; r < s->readers; r++) {
        sum->asked[r] += (double)(size->questions * size->length[r]);
        sum->text[r] += (double)size->text[r];
        sum->told[r] += (double)(size->questions * size->told[r]);
    }
}

void tn_wire_places_used(const tn_wire_store *s, int64_t context, const int32_t *picked, int64_t n, tn_wire_places *sum)
{
    const int64_t seen = tn_wire_seen_question(s, context, picked, n);
    sum->bytes += (double)tn_wire_seen_bytes(s, context, seen, NULL);
    if (tn_wire_sends_asked(s)) sum->sent += (double)tn_wire_seen_ids(s, context, seen, NULL);
    for (size_t r = 0; r < s->readers; r++) {
        const tn_wire_ids *x = &s->reader[r];
        const int64_t text = text_of(x, context);
        sum->text[r] += (double)text;
        for (int64_t k = 0; k < n; k++) {
            const int64_t asked = asked_of(x, s->question_at[context] + picked[k]);
            sum->asked[r] += (double)asked;
            sum->told[r] += (double)told_of(x, text, asked);
        }
    }
}
