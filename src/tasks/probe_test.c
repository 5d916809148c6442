/* Probes: every sequence is read by code that knows the rules alone and not how it was drawn: each question has exactly one
 * answer, in the sequence itself and before it; what the numbers are distributed like; the same numbers for the same seed on every
 * machine; which batch holds what; and what is refused. */
#include "tasks/probe.h"

#include "task_sets.h"

#include <stdlib.h>

static const tn_setting context_row = TN_SETTING_INT("train.context", "256", TN_RANGE(1, 1e9), "tokens", "length");

static tn_status try_probe(const char *words, tn_probe **out)
{
    char text[2048];
    tn_settings *st = tn_task_settings_of("");
    assert_ok(tn_settings_add(st, &context_row, 1, "train"));
    snprintf(text, sizeof text, "%s", words);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));) assert_ok(tn_settings_override(st, word));
    const tn_status s = tn_probe_open(st, out);
    tn_settings_free(st);
    return s;
}

static tn_probe *probe_of(const char *words)
{
    tn_probe *p = NULL;
    assert_ok(try_probe(words, &p));
    return p;
}

typedef struct sequence {
    int32_t *tokens, *labels, *scratch; /* (length), (length), (tn_probe_scratch) */
} sequence;

static sequence sequence_new(const tn_probe *p)
{
    const sequence q = { malloc(sizeof(int32_t) * (size_t)p->length), malloc(sizeof(int32_t) * (size_t)p->length),
                         malloc(sizeof(int32_t) * (size_t)tn_probe_scratch(p)) };
    assert_true(q.tokens && q.labels && q.scratch);
    return q;
}

static void sequence_free(sequence *q)
{
    free(q->tokens);
    free(q->labels);
    free(q->scratch);
}

/* --- readers ------------------------------------------------------------------------------------------------------------------ */

/* Pairs in front, then keys among noise; what each asks for is looked up by going through the pairs. */
static void read_mqar(const tn_probe *p, const tn_probe_group *g, bool training, const sequence *q)
{
    const int64_t n = g->pairs;
    int64_t asked = 0;
    (void)training;
    for (int64_t t = 0; t < g->length; t++) {
        const int32_t x = q->tokens[t];
        int64_t found = 0, before = 0;
        if (t < 2 * n) {
            assert_in_range(x, t % 2 ? p->keys : 0, t % 2 ? p->keys + p->values - 1 : p->keys - 1);
            for (int64_t u = 0; u < t && t % 2 == 0; u += 2) assert_int_not_equal(q->tokens[u], x);
            assert_int_equal(q->labels[t], -1);
            continue;
        }
        if (x >= p->keys) {
            assert_in_range(x, p->keys + p->values, p->vocab - 1);
            assert_int_equal(q->labels[t], -1);
            continue;
        }
        for (int64_t u = 0; u < 2 * n; u += 2)
            if (q->tokens[u] == x) {
                assert_int_equal(q->labels[t], q->tokens[u + 1]);
                found++;
            }
        for (int64_t u = 2 * n; u < t; u++) before += q->tokens[u] == x;
        assert_true(found == 1 && before == 0);
        asked++;
    }
    assert_int_equal(asked, n);
}

/* The last token is a key that stands once before it, in the part of the sequence that the group names. */
static void read_needle(const tn_probe *p, const tn_probe_group *g, bool training, const sequence *q)
{
    const int64_t T = g->length;
    int64_t pairs = 0, found = 0;
    (void)training;
    for (int64_t t = 0; t < T - 1; t++) {
        const int32_t x = q->tokens[t];
        assert_in_range(x, 0, p->vocab - 1);
        assert_int_equal(q->labels[t], -1);
        if (x >= p->keys) continue;
        assert_in_range(q->tokens[t + 1], p->keys, p->keys + p->values - 1);
        pairs++;
        if (x != q->tokens[T - 1]) continue;
        found++;
        assert_int_equal(q->labels[T - 1], q->tokens[t + 1]);
        /* places are pairs of tokens: the bounds of a part are rounded down to one, and shifted by one token at most */
        const double low = (double)g->depth / (double)p->depths * (double)(T - 1),
                     high = (double)(g->depth + 1) / (double)p->depths * (double)(T - 1);
        if ((double)t < low - 2 || (double)t > high + 1)
            fail_msg("the needle is at %lld, not in %g..%g", (long long)t, low, high);
    }
    for (int64_t t = 1; t < T; t++) /* a value stands behind its key and nowhere else */
        if (q->tokens[t] >= p->keys && q->tokens[t] < p->keys + p->values) assert_true(q->tokens[t - 1] < p->keys);
    assert_true(pairs == g->pairs && found == 1);
}

static void read_copy(const tn_probe *p, const tn_probe_group *g, bool training, const sequence *q)
{
    const int64_t T = g->length, S = p->segment;
    for (int64_t t = 0; t < T; t++) {
        const bool end = t >= T - S, mark = S > 1 && end;
        if (mark) assert_int_equal(q->tokens[t], p->values);
        else assert_in_range(q->tokens[t], 0, p->values - 1);
        if (S == 1) assert_int_equal(q->labels[t], end || (training && t > 0) ? q->tokens[0] : -1);
        else assert_int_equal(q->labels[t], end ? q->tokens[t - (T - S)] : -1);
    }
}

typedef struct row {
    const char *words;
    void (*read)(const tn_probe *p, const tn_probe_group *g, bool training, const sequence *q);
    int64_t vocab, groups;
    const char *first; /* name of the first group */
    const char *hash;  /* of the first training sequences and held-out ones */
} row;

static const row rows[] = {
    { "task=mqar", read_mqar, 1088, 4, "8", "8c1c76de96e392a218715c870795e13e" },
    { "task=mqar task.pairs=1,5,16 task.keys=16 task.values=2 task.noise=1 train.context=48", read_mqar, 19, 3, "1",
      "" },
    { "task=needle", read_needle, 192, 5, "d0", "1e5b5dda5b9545fe82e12de8cbb091fa" },
    { "task=needle task.pairs=9 task.keys=9 task.depths=4 train.context=19", read_needle, 137, 4, "d0", "" },
    { "task=needle task.pairs=3 task.lengths=64,256 task.depths=2", read_needle, 192, 4, "64_d0", "" },
    { "task=tokens_copy", read_copy, 10, 1, "256", "029381f4cc7ecd440d6d40be33da3d05" },
    { "task=tokens_copy task.values=3 task.segment=4 task.lengths=8,16,33 train.context=33", read_copy, 4, 3, "8", "" },
};

/* Whole batches as training gets them, and held-out sequences of both splits. */
static void readable(void **state)
{
    enum { ROWS = 6, BATCHES = 40 };
    const row *r = *state;
    tn_probe *p = probe_of(r->words);
    sequence q = sequence_new(p);
    bool seen[TN_PROBE_GROUPS] = { 0 };
    assert_int_equal(p->vocab, r->vocab);
    assert_int_equal(p->groups, r->groups);
    assert_string_equal(p->group[0].name, r->first);
    for (int64_t i = 0; i < BATCHES; i++) {
        tn_probe_which w;
        tn_probe_batch(p, i, &w);
        for (int64_t b = 0; b < ROWS; b++) {
            const int64_t g = tn_probe_train(p, 11, &w, ROWS, b, q.scratch, q.tokens, q.labels);
            assert_int_equal(p->group[g].length, w.length);
            r->read(p, &p->group[g], true, &q);
            seen[g] = true;
        }
    }
    for (int64_t g = 0; g < p->groups; g++) {
        assert_true(seen[g]);
        for (int64_t i = 0; i < 20; i++) {
            tn_probe_held(p, i % 2 ? TN_TEST : TN_VALID, g, i, q.scratch, q.tokens, q.labels);
            r->read(p, &p->group[g], false, &q);
        }
    }
    sequence_free(&q);
    tn_probe_free(p);
}

/* All numbers of some sequences. */
static void hash_of(const tn_probe *p, uint64_t seed, char hex[TN_HASH_BYTES])
{
    sequence q = sequence_new(p);
    tn_hash *h;
    assert_ok(tn_hash_begin(&h));
    for (int64_t i = 0; i < 12; i++) {
        tn_probe_which w;
        tn_probe_batch(p, i, &w);
        for (int64_t b = 0; b < 3; b++) {
            (void)tn_probe_train(p, seed, &w, 3, b, q.scratch, q.tokens, q.labels);
            tn_hash_add(h, q.tokens, sizeof *q.tokens * (size_t)w.length);
            tn_hash_add(h, q.labels, sizeof *q.labels * (size_t)w.length);
        }
        tn_probe_held(p, TN_VALID, i % p->groups, i, q.scratch, q.tokens, q.labels);
        tn_hash_add(h, q.tokens, sizeof *q.tokens * (size_t)p->group[i % p->groups].length);
    }
    tn_hash_text(h, hex);
    tn_hash_free(h);
    sequence_free(&q);
}

/* The same seed gives the same numbers, here and everywhere; another seed gives others. */
static void repeats(void **state)
{
    const row *r = *state;
    char once[TN_HASH_BYTES], again[TN_HASH_BYTES], other[TN_HASH_BYTES];
    tn_probe *p = probe_of(r->words), *same = probe_of(r->words);
    hash_of(p, 5, once);
    hash_of(same, 5, again);
    hash_of(p, 6, other);
    assert_string_equal(once, again);
    assert_string_not_equal(once, other);
    if (r->hash[0]) assert_string_equal(once, r->hash);
    tn_probe_free(p);
    tn_probe_free(same);
}

/* No sequence comes twice: training of two seeds, valid, test, other held-out seeds. */
static void streams_differ(void **state)
{
    enum { EACH = 50, KINDS = 5 };
    static int32_t all[KINDS * EACH][48];
    (void)state;
    tn_probe *p = probe_of("task=mqar task.pairs=8 train.context=48"),
             *other = probe_of("task=mqar task.pairs=8 train.context=48 task.split_seed=1");
    sequence q = sequence_new(p);
    for (int64_t i = 0; i < KINDS * EACH; i++) {
        tn_probe_which w;
        tn_probe_batch(p, i / KINDS / 5, &w);
        if (i % KINDS < 2)
            (void)tn_probe_train(p, (uint64_t)(i % KINDS), &w, 5, i / KINDS % 5, q.scratch, q.tokens, q.labels);
        else
            tn_probe_held(i % KINDS == 4 ? other : p, i % KINDS == 3 ? TN_TEST : TN_VALID, 0, i / KINDS, q.scratch,
                          q.tokens, q.labels);
        memcpy(all[i], q.tokens, sizeof all[i]);
        for (int64_t k = 0; k < i; k++) assert_memory_not_equal(all[i], all[k], sizeof all[i]);
    }
    sequence_free(&q);
    tn_probe_free(p);
    tn_probe_free(other);
}

/* --- distribution --------------------------------------------------------------------------------------------------------------- */

/* Counts that should be equal, by chi squared: with k - 1 degrees of freedom it is below k + 5 sqrt(2 k) in all but one case in
 * hundreds of thousands. */
static void assert_even(const int64_t *count, int64_t k, const char *what)
{
    double sum = 0, chi = 0;
    for (int64_t i = 0; i < k; i++) sum += (double)count[i];
    for (int64_t i = 0; i < k; i++)
        chi += ((double)count[i] - sum / (double)k) * ((double)count[i] - sum / (double)k) * (double)k / sum;
    const double over = chi - (double)k;
    if (over > 0 && over * over > 50.0 * (double)k) fail_msg("%s: chi squared is %g for %lld", what, chi, (long long)k);
}

static void mqar_is_even(void **state)
{
    enum { N = 4, K = 12, V = 7, NOISE = 5, T = 30, MANY = 4000 };
    int64_t key[N][K] = { { 0 } }, value[V] = { 0 }, noise[NOISE] = { 0 }, place[T - 2 * N] = { 0 };
    (void)state;
    tn_probe *p = probe_of("task=mqar task.pairs=4 task.keys=12 task.values=7 task.noise=5 train.context=30");
    sequence q = sequence_new(p);
    for (int64_t i = 0; i < MANY; i++) {
        tn_probe_held(p, TN_VALID, 0, i, q.scratch, q.tokens, q.labels);
        for (int64_t k = 0; k < N; k++) key[k][q.tokens[2 * k]]++, value[q.tokens[2 * k + 1] - K]++;
        for (int64_t t = 2 * N; t < T; t++) {
            if (q.labels[t] >= 0) place[t - 2 * N]++;
            else noise[q.tokens[t] - K - V]++;
        }
    }
    for (int k = 0; k < N; k++) assert_even(key[k], K, "keys of a pair");
    assert_even(value, V, "values");
    assert_even(noise, NOISE, "noise");
    assert_even(place, T - 2 * N, "places of questions");
    sequence_free(&q);
    tn_probe_free(p);
}

/* Which pair is asked where is independent: the first pair's question is anywhere. And needles lie everywhere in their part. */
static void places_are_even(void **state)
{
    enum { MANY = 6000, T = 42, DEPTHS = 4 };
    int64_t first[T] = { 0 }, at[T] = { 0 };
    (void)state;
    tn_probe *p = probe_of("task=mqar task.pairs=5 train.context=42"),
             *n = probe_of("task=needle task.pairs=2 task.depths=4 train.context=41");
    sequence q = sequence_new(p);
    for (int64_t i = 0; i < MANY; i++) {
        tn_probe_held(p, TN_TEST, 0, i, q.scratch, q.tokens, q.labels);
        for (int64_t t = 10; t < T; t++) first[t - 10] += q.tokens[t] == q.tokens[0];
    }
    assert_even(first, T - 10, "places of the first pair's question");
    sequence_free(&q);
    q = sequence_new(n);
    for (int64_t i = 0; i < MANY; i++) {
        tn_probe_held(n, TN_TEST, i % DEPTHS, i, q.scratch, q.tokens, q.labels);
        for (int64_t t = 0; t < 40; t++)
            if (q.tokens[t] == q.tokens[40]) at[t / 2]++;
    }
    assert_even(at, 20, "places of needles");
    sequence_free(&q);
    tn_probe_free(p);
    tn_probe_free(n);
}

/* --- which batch holds what ------------------------------------------------------------------------------------------------------ */

static void batches_take_turns(void **state)
{
    tn_probe_which w;
    (void)state;
    tn_probe *p = probe_of("task=mqar");
    sequence q = sequence_new(p);
    for (int64_t i = 0; i < 12; i++) {
        tn_probe_batch(p, i, &w);
        for (int64_t b = 0; b < 3; b++)
            assert_int_equal(tn_probe_train(p, 1, &w, 3, b, q.scratch, q.tokens, q.labels), i % 4);
    }
    sequence_free(&q);
    tn_probe_free(p);
    p = probe_of("task=tokens_copy task.lengths=16,64,256");
    int64_t tokens[3] = { 0 };
    for (int64_t i = 0; i < 2 * 21; i++) {
        tn_probe_batch(p, i, &w);
        const int64_t slot = i % 21, k = slot < 16 ? 0 : slot < 20 ? 1 : 2;
        assert_true(w.length == p->lengths[k] && w.first == k && w.groups == 1);
        assert_int_equal(w.before * w.length, tokens[k]);
        tokens[k] += w.length;
    }
    assert_true(tokens[0] == 512 && tokens[1] == 512 && tokens[2] == 512);
    tn_probe_free(p);
    p = probe_of("task=needle");
    q = sequence_new(p);
    for (int64_t i = 0; i < 5; i++) { /* depths by rows, going on from batch to batch */
        tn_probe_batch(p, i, &w);
        for (int64_t b = 0; b < 3; b++)
            assert_int_equal(tn_probe_train(p, 1, &w, 3, b, q.scratch, q.tokens, q.labels), (3 * i + b) % 5);
    }
    sequence_free(&q);
    tn_probe_free(p);
}

/* --- text ------------------------------------------------------------------------------------------------------------------------ */

/* Digits for training, letters in the last tenth: a haystack is a piece of the file, of its own part. */
static void needle_in_text(void **state)
{
    enum { BYTES = 5000, T = 101 };
    tn_tempdir d;
    char words[TN_PATH_BYTES + 80], text[BYTES];
    (void)state;
    tn_tempdir_make(&d);
    for (int i = 0; i < BYTES; i++) text[i] = (char)(i < BYTES - BYTES / 10 ? '0' + i % 10 : 'a' + i % 26);
    const char *path = tn_tempdir_file(&d, "text");
    assert_ok(tn_file_write_atomic(path, text, sizeof text));
    snprintf(words, sizeof words, "task=needle train.context=101 task.pairs=2 task.data=%s", path);
    tn_probe *p = probe_of(words);
    sequence q = sequence_new(p);
    assert_int_equal(p->vocab, 64 + 64 + 256);
    for (int64_t i = 0; i < 60; i++) {
        tn_probe_which w;
        int64_t other = 0;
        tn_probe_batch(p, i, &w);
        const bool training = i % 2;
        if (training) (void)tn_probe_train(p, 3, &w, 1, 0, q.scratch, q.tokens, q.labels);
        else tn_probe_held(p, TN_VALID, i / 2 % 5, i, q.scratch, q.tokens, q.labels);
        read_needle(p, &p->group[training ? w.before % 5 : i / 2 % 5], training, &q);
        int32_t start = -1;
        for (int64_t t = 0; t < T - 1; t++) {
            const int32_t x = q.tokens[t] - 128;
            if (x < 0) continue;
            assert_true(training ? x >= '0' && x <= '9' : x >= 'a' && x <= 'z');
            const int32_t base = training ? '0' : 'a', wheel = training ? 10 : 26,
                          from = (int32_t)(((x - base - t) % wheel + wheel) % wheel);
            if (start < 0) start = from;
            assert_int_equal(start, from); /* one piece, in its order */
            other++;
        }
        assert_int_equal(other, T - 1 - 4);
    }
    sequence_free(&q);
    tn_probe_free(p);
    p = NULL;
    snprintf(words, sizeof words, "task=needle train.context=500 task.data=%s", path);
    assert_fails(try_probe(words, &p), TN_USAGE,
                 "the tenth of it that is held out must be longer than train.context=500");
    snprintf(words, sizeof words, "task=needle task.data=%s.none", path);
    assert_fails(try_probe(words, &p), TN_BAD_FILE, "none");
    assert_null(p);
    tn_tempdir_clear(&d);
}

/* --- what is refused ------------------------------------------------------------------------------------------------------------- */

static void refused(void **state)
{
    static const char *const cases[][2] = {
        { "task=mqar train.context=191", "task.pairs=64 needs 192 tokens" },
        { "task=mqar task.keys=40", "task.pairs=64 needs as many different keys and task.keys is 40" },
        { "task=mqar task.pairs=8,4", "task.pairs=8,4 is not a list of ascending numbers" },
        { "task=mqar task.pairs=", "is not a list of ascending numbers" },
        { "task=mqar task.pairs=0", "is not a list of ascending numbers" },
        { "task=mqar task.pairs=4,", "is not a list of ascending numbers" },
        { "task=mqar task.pairs=4;5", "is not a list of ascending numbers" },
        { "task=mqar task.pairs=-4", "is not a list of ascending numbers" },
        { "task=mqar task.pairs=99999999999999999999", "is not a list of ascending numbers" },
        { "task=mqar task.lengths=256", "task.lengths is not for the task mqar" },
        { "task=mqar task.segment=2", "task.segment is not for the task mqar" },
        { "task=mqar task.length=8", "task.length is not for the task mqar" },
        { "task=needle task.length=8", "task.length is not for the task needle" },
        { "task=tokens_copy task.pairs=8",
          "task.pairs is not for the task tokens_copy: leave it out (it has task. lengths values segment)" },
        { "task=needle task.pairs=1,2", "more than 1 numbers" },
        { "task=needle task.pairs=65", "needs as many different keys" },
        { "task=needle train.context=8", "8 tokens are too short for task.depths=5" },
        { "task=needle task.lengths=16,32", "set train.context=32" },
        { "task=needle task.lengths=64,128,256 task.depths=20", "more than 40 groups" },
        { "task=tokens_copy task.lengths=1,2,3,4,5,6,7,8,256", "more than 8 numbers" },
        { "task=tokens_copy train.context=1", "task.segment=1 needs 2 tokens" },
        { "task=tokens_copy task.segment=129", "task.segment=129 needs 258 tokens" },
        { "task=xor", "the task xor has no sequences" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_probe *p = NULL;
        assert_fails(try_probe(cases[i][0], &p), TN_USAGE, cases[i][1]);
        assert_null(p);
    }
}

void tn_tests_probe(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tn_test_add(l, readable, &rows[i], "probe: %s: every question has its answer", rows[i].words);
        tn_test_add(l, repeats, &rows[i], "probe: %s: the same again", rows[i].words);
    }
    tn_test_add(l, streams_differ, NULL, "probe: no sequence comes twice");
    tn_test_add(l, mqar_is_even, NULL, "probe: mqar: keys, values, noise and places are even");
    tn_test_add(l, places_are_even, NULL, "probe: places are even");
    tn_test_add(l, batches_take_turns, NULL, "probe: batches take turns, lengths share the tokens");
    tn_test_add(l, needle_in_text, NULL, "probe: needle in a text");
    tn_test_add(l, refused, NULL, "probe: what is refused");
}
