/* recall: lines "key: value", then the value of a key. Keys differ within a context, so that the answer is one word, and a context says
 * nothing about another: what a reader answers comes through Z or is a guess. Splits are streams of random numbers. */
#include "base/alloc.h"
#include "tasks/probe.h"
#include "tasks/wire/wire_parts.h"
#include "tasks/wire/wire_words.h"

#include <stdio.h>
#include <string.h>

enum { PAIRS = 16, KEYS = 1024, SIZE = 20000, PAIRS_MOST = 4096 };

typedef struct recall {
    tn_word *words; /* (n) */
    size_t n;
    int64_t pairs;
    bool fewer; /* training contexts have 1, 2, 4, ... or `pairs` */
    uint64_t seed;
} recall;

static void close_recall(void *data)
{
    recall *d = data;
    tn_free(d->words);
    tn_free(d);
}

/* Words of a context are drawn one after the other; a key that it has already is drawn again. */
typedef struct draws {
    tn_rng r;
    uint64_t at;
} draws;

static tn_word draw(const recall *d, draws *x) { return d->words[tn_rng_below(x->r, x->at++, d->n)]; }

/* The line's bytes, of which the first *key are the key. */
static size_t write_line(const recall *d, draws *x, const tn_word *keys, int64_t line, tn_word *key, char out[24],
                         size_t *key_bytes)
{
    for (bool again = true; again;) {
        *key = draw(d, x);
        again = false;
        for (int64_t k = 0; k < line && !again; k++) again = keys[k] == *key;
    }
    size_t n = *key_bytes = tn__word_write(*key, out);
    out[n++] = ':';
    out[n++] = ' ';
    n += tn__word_write(draw(d, x), out + n);
    out[n++] = '\n';
    return n;
}

/* Pairs of a context: short ones teach what a message is before long ones teach how much of it there can be. */
static int64_t pairs_of(const recall *d, int split, int64_t i)
{
    int64_t sizes = 1;
    if (!d->fewer || split != TN_TRAIN) return d->pairs;
    while (((int64_t)1 << (sizes - 1)) < d->pairs) sizes++;
    const int64_t n = (int64_t)1 << tn_rng_below((tn_rng){ d->seed, tn_rng_stream("wire.recall.pairs") }, (uint64_t)i,
                                                 (uint64_t)sizes);
    return n < d->pairs ? n : d->pairs;
}

static tn_status read_recall(const tn_wire_texts *t, int split, int64_t i, tn_wire_example *e)
{
    const recall *d = t->data;
    draws x = { { d->seed, tn_rng_stream("wire.recall") + (uint64_t)split }, (uint64_t)i << 32 };
    tn_word keys[PAIRS_MOST];
    uint16_t bytes[PAIRS_MOST], key_bytes[PAIRS_MOST];
    const int64_t pairs = pairs_of(d, split, i);
    for (int64_t k = 0; k < pairs; k++) {
        char line[24];
        size_t of_key;
        bytes[k] = (uint16_t)write_line(d, &x, keys, k, &keys[k], line, &of_key);
        key_bytes[k] = (uint16_t)of_key;
        const size_t before = e->context.bytes;
        TN_RETURN_IF(tn__wire_add_context(e, line, bytes[k]));
        e->context = (tn_wire_span){ 0, before + bytes[k] };
    }
    for (int64_t k = 0, at = 0; k < pairs; at += bytes[k++]) {
        char line[24]; /* a copy: the text that it lies in grows */
        memcpy(line, e->text.data + at, bytes[k]);
        const size_t n = key_bytes[k];
        TN_RETURN_IF(tn__wire_add_question(e, "", line, n + 1, ""));
        TN_RETURN_IF(tn__wire_add_gold(e, "", line + n + 1, bytes[k] - n - 2));
    }
    return TN_OK;
}

static tn_status take_words(const tn_settings *st, recall *d)
{
    tn_text text = { 0 };
    const char *path = tn_settings_text(st, "task.data");
    const bool is_auto = tn_settings_is_auto(st, "task.keys");
    const size_t wanted = is_auto ? KEYS : (size_t)tn_settings_int(st, "task.keys");
    d->n = wanted;
    if (!path[0]) return tn__words_made(d->n, &d->words);
    TN_RETURN_IF(tn__wire_read_file(path, &text));
    const tn_status s = tn__words_of_text(text.data, text.n, &d->n, &d->words);
    tn_text_free(&text);
    TN_RETURN_IF(s);
    if (d->n == wanted || (is_auto && d->n)) return TN_OK;
    return tn_error(TN_USAGE,
                    "%.640s has %zu different words of %d to %d lower-case letters and task.keys is %zu: make it "
                    "smaller, or use a longer text",
                    path, d->n, TN_WORD_LEAST, TN_WORD_MOST, wanted);
}

static tn_status take_pairs(const tn_settings *st, recall *d)
{
    char otherwise[32];
    int64_t n;
    snprintf(otherwise, sizeof otherwise, "%d", PAIRS);
    TN_RETURN_IF(tn__probe_list(st, "task.pairs", otherwise, 1, &d->pairs, &n));
    if (d->pairs > PAIRS_MOST)
        return tn_error(TN_USAGE, "task.pairs=%lld is more than recall takes: at most %d", (long long)d->pairs,
                        PAIRS_MOST);
    if ((size_t)d->pairs <= d->n) return TN_OK;
    return tn_error(TN_USAGE, "task.pairs=%lld needs as many different keys and there are %zu: make task.keys larger",
                    (long long)d->pairs, d->n);
}

static tn_status open_recall(const tn_settings *st, tn_wire_texts **out)
{
    tn_status s = TN_OK;
    const char *path = tn_settings_text(st, "task.data");
    recall *d = tn_alloc(sizeof *d);
    if (!d) return TN_MEMORY;
    d->seed = (uint64_t)tn_settings_int(st, "task.split_seed");
    d->fewer = tn_settings_on(st, "task.fewer");
    TN_TRY(take_words(st, d));
    TN_TRY(take_pairs(st, d));
    const int64_t heldout = tn_settings_int(st, "task.heldout"),
                  size = tn_settings_is_auto(st, "task.size") ? SIZE : tn_settings_int(st, "task.size");
    tn_wire_texts t = { .task = "recall",
                        .kind = TN_WIRE_QA,
                        .anchor = TN_WIRE_BETWEEN,
                        .form = "key: value",
                        .count = { [TN_TRAIN] = size, [TN_VALID] = heldout, [TN_TEST] = heldout },
                        .endless = true,
                        .data = d,
                        .read = read_recall,
                        .close = close_recall };
    snprintf(t.about, sizeof t.about, "%lld pairs of %zu words %s%.80s", (long long)d->pairs, d->n,
             path[0] ? "of " : "made of syllables", path);
    const int64_t numbers[] = { d->pairs, (int64_t)d->seed, d->fewer };
    TN_TRY(tn__wire_hash(numbers, 3, d->words, d->n * sizeof *d->words, t.hash));
    return tn__wire_texts_new(&t, out);
done:
    close_recall(d);
    return s;
}

const tn_task tn_task_recall = { .name = "recall",
                                 .summary = "texts of lines \"key: value\": the value of a key",
                                 .texts = open_recall };
