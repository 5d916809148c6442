/* Random ids in the layout of wire_layout.h. */
#include "train/source/wire_made.h"

#include "base/rng.h"

enum { BOS = 1, EOS = 2, FIRST = 3 };

static int32_t word(const tn_wire_made *m, tn_rng r, int64_t at)
{
    return (int32_t)(FIRST + tn_rng_below(r, (uint64_t)at, (uint64_t)(m->ids - FIRST)));
}

static int32_t word_of_text(const tn_wire_made *m, uint64_t seed, int64_t i, int64_t at)
{
    return word(m, (tn_rng){ seed, tn_rng_stream("wire.made.text") }, i << 24 | at);
}

/* Token `at` of BOS, question, answer, EOS. */
static int32_t token(const tn_wire_made *m, uint64_t seed, int64_t i, int64_t k, int64_t at)
{
    if (at == 0) return BOS;
    if (at == m->length - 1) return EOS;
    return word(m, (tn_rng){ seed, tn_rng_stream("wire.made.asked") + (uint64_t)k }, i << 24 | at);
}

void tn_wire_made_question(const tn_wire_made *m, uint64_t seed, int64_t i, int64_t k, int32_t *tokens, int32_t *labels,
                           int32_t *told, int32_t *document)
{
    const int64_t first = m->told - (m->length - 1); /* of the question, as text */
    for (int64_t t = 0; t < m->length; t++) {
        const int32_t x = token(m, seed, i, k, t);
        if (tokens) tokens[t] = x;
        if (labels) labels[t] = t < m->before ? -1 : x;
    }
    for (int64_t t = 0; t < m->told; t++) {
        if (told) told[t] = t >= first ? token(m, seed, i, k, 1 + t - first) : t ? word_of_text(m, seed, i, t) : BOS;
        if (document) document[t] = 1;
    }
}

void tn_wire_made_text(const tn_wire_made *m, uint64_t seed, int64_t i, int32_t *text, int32_t *labels)
{
    for (int64_t t = 0; t < m->text; t++) {
        const int32_t x = t == 0 ? BOS : t == m->text - 1 ? EOS : word_of_text(m, seed, i, t);
        if (text) text[t] = x;
        if (labels) labels[t] = t ? x : -1;
    }
}
