/* Answers with caches against the whole row that is run again for each token, and against the evaluation. */
#include "report/wire/speaker.h"

#include "report/wire/wire_post.h"
#include "wire_run.h"

#include <math.h>

/* Readers that keep keys and values alone, and ones with a state beside them; messages as keys and among the embeddings. */
static const char *const runs[][2] = {
    { "", "slots=4 place=keys" },
    { "", "slots=3 private=1 place=embeddings" },
    { "conv=3", "slots=3 place=keys" },
    { "conv=4 gate=silu", "slots=2 private=2 place=embeddings" },
    { "qk_norm=true qkv_bias=true", "slots=1 place=keys" },
};
enum { RUNS = sizeof runs / sizeof *runs };

typedef struct world {
    wire_run w;
    tn_saved_model m;
    tn_wire_controls c;
} world;

static void begin(world *x, int k)
{
    wire_run_open_with(&x->w, runs[k][0], runs[k][1]);
    assert_ok(tn_wire_controls_run(&x->w.s, 7, NULL, NULL, &x->c));
    x->m = (tn_saved_model){ .weights = "" };
    assert_ok(tn_saved_model_find(NULL, x->w.file, NULL, 0, "best", &x->m));
}

static void end(world *x)
{
    tn_saved_model_free(&x->m);
    tn_wire_controls_free(&x->c);
    wire_run_close(&x->w);
}

static tn_wire_post *open_post(world *x, char reader, int kind, const char *question, int64_t batch, bool no_cache)
{
    tn_wire_post *p = NULL;
    assert_ok(tn_wire_post_open(&(tn_wire_post_options){ .model = &x->m,
                                                         .batch = batch,
                                                         .reader = reader,
                                                         .kind = kind,
                                                         .question = question,
                                                         .max_tokens = 7,
                                                         .no_cache = no_cache },
                                &p));
    return p;
}

static void assert_equal(const tn_wire_said *a, const tn_wire_said *b)
{
    assert_int_equal(a->ids.n, b->ids.n);
    if (a->ids.n) assert_memory_equal(a->ids.ids, b->ids.ids, a->ids.n * sizeof *a->ids.ids);
    assert_int_equal(a->text.n, b->text.n);
    assert_true(a->ended == b->ended && b->nats > 0);
    if (!(fabs(a->nats - b->nats) < 1e-4 * (1 + b->nats)))
        fail_msg("%.9g nats with caches, %.9g without", a->nats, b->nats);
}

/* All token by token, -log p to 1e-4; a row beside others is what it is alone, and the second time what it was the first. */
static void cached_is_uncached(void **state)
{
    (void)state;
    static const struct {
        int kind;
        const char *question;
    } asks[] = { { 2, "badu:" }, { 2, "k" }, { 1, NULL }, { 0, NULL } };
    for (int k = 0; k < RUNS; k++) {
        world x;
        begin(&x, k);
        for (size_t q = 0; q < sizeof asks / sizeof *asks; q++)
            for (char r = 'a'; r <= 'b'; r++) {
                tn_wire_said with[5] = { { .nats = 0 } }, without[5] = { { .nats = 0 } }, alone[1] = { { .nats = 0 } };
                tn_wire_post *p = open_post(&x, r, asks[q].kind, asks[q].question, 5, false);
                tn_wire_post *whole = open_post(&x, r, asks[q].kind, asks[q].question, 5, true);
                tn_wire_post *one = open_post(&x, r, asks[q].kind, asks[q].question, 1, false);
                const int64_t each = x.c.slots * x.c.width;
                assert_ok(tn_wire_post_answer(whole, x.c.z, 5, NULL, NULL, without));
                for (int64_t n = 5; n >= 4; n--) {
                    assert_ok(tn_wire_post_answer(p, x.c.z, n, NULL, NULL, with));
                    for (int64_t i = 0; i < n; i++) assert_equal(&with[i], &without[i]);
                }
                assert_ok(tn_wire_post_answer(one, x.c.z + 2 * each, 1, NULL, NULL, alone));
                assert_equal(alone, &without[2]);
                for (int i = 0; i < 5; i++) tn_wire_said_free(&with[i]), tn_wire_said_free(&without[i]);
                tn_wire_said_free(alone);
                tn_wire_post_close(p);
                tn_wire_post_close(whole);
                tn_wire_post_close(one);
            }
        end(&x);
    }
}

/* Rows of different length: -log p of the answers of the evaluation, token for token those of its rows; and of rows of text. */
static void ragged_rows(void **state)
{
    (void)state;
    enum { ROWS = 6 };
    for (int k = 0; k < RUNS; k++) {
        world x;
        begin(&x, k);
        tn_trainer *t = x.w.s.trainer;
        const int64_t Q = tn_settings_int(x.w.s.settings, "questions"), each = x.c.slots * x.c.width;
        assert_int_equal(x.w.s.batch * Q, ROWS);
        for (int r = 0; r < 2; r++)
            for (int text = 0; text < 2; text++) {
                char key[6][16];
                int64_t count, n_nll;
                static const char *const names[] = { "labels", "tokens", "nll", "told", "told_document", "length" };
                for (int i = 0; i < 6; i++) snprintf(key[i], sizeof key[i], "%c.%s", 'a' + r, names[i]);
                assert_ok(tn_source_heldout(&x.w.s.source, 0, t, &count));
                const char *step = text ? "text" : "eval";
                assert_ok(tn_trainer_run_step(t, step));
                const float *nll = tn_trainer_step_output(t, step, key[2], NULL, &n_nll);
                const int64_t n = n_nll / ROWS + 1;
                const int32_t *labels = tn_trainer_input(t, key[0]), *tokens = tn_trainer_input(t, key[1]),
                              *told = tn_trainer_input(t, key[3]), *document = tn_trainer_input(t, key[4]);
                const int64_t m = tn_settings_int(x.w.s.settings, text ? (r ? "b.told" : "a.told") : key[5]);
                tn_wire_row row[ROWS], answer[ROWS];
                double nats[ROWS], whole[ROWS] = { 0 };
                float z[ROWS * 64];
                assert_true(each <= 64);
                for (int64_t i = 0; i < ROWS; i++) {
                    int64_t at = 1, last, first = 0;
                    for (; labels[i * n + at] < 0; at++) {
                    }
                    at += i % 3; /* some of the answer is given, so that rows differ; the rest is scored */
                    for (last = at; last < n && labels[i * n + last] >= 0; last++)
                        whole[i] += nll[i * (n - 1) + last - 1];
                    assert_true(last > at);
                    const int32_t *ids = tokens + i * n;
                    if (text) {
                        for (; !document[i * m + first]; first++) {
                        }
                        ids = told + i * m + first;
                        at += m - (n - 1) - 1 - first, last += m - (n - 1) - 1 - first;
                    }
                    row[i] = (tn_wire_row){ ids, at };
                    answer[i] = (tn_wire_row){ ids + at, last - at };
                    memcpy(z + i * each, x.c.z + i / Q * each, sizeof *z * (size_t)each);
                }
                tn_wire_speaker *v = NULL;
                assert_ok(tn_wire_speaker_new(
                    &(tn_wire_speaker_options){ .trainer = t, .reader = (char)('a' + r), .batch = 7, .longest = 100 },
                    &v));
                for (int round = 0; round < 2; round++) {
                    assert_ok(tn_wire_speaker_score(v, row, ROWS, text ? NULL : z, 2, answer, nats));
                    for (int i = 0; i < ROWS; i++)
                        if (!(fabs(nats[i] - whole[i]) < 1e-4 * (1 + whole[i])))
                            fail_msg("run %d, reader %d, text %d, row %d: %.9g, and %.9g as a whole", k, r, text, i,
                                     nats[i], whole[i]);
                }
                tn_wire_speaker_free(v);
            }
        end(&x);
    }
}

/* A row of BOS alone, which asks nothing, beside others: what it says and what they say is what each says alone, where rows are of one length
 * and read in one pass. Of a text too. */
static void rows_that_ask_nothing(void **state)
{
    (void)state;
    static const int32_t ids[] = { 0, 98, 97, 58, 32, 99, 100 };
    for (int k = 0; k < RUNS; k++) {
        world x;
        begin(&x, k);
        const int64_t each = x.c.slots * x.c.width;
        const tn_wire_row row[] = { { ids, 1 }, { ids, 4 }, { ids, 2 } }, answer = { ids + 3, 4 },
                          answers[] = { answer, answer, answer };
        tn_wire_speaker *v = NULL;
        assert_ok(tn_wire_speaker_new(
            &(tn_wire_speaker_options){ .trainer = x.w.s.trainer, .reader = 'a', .batch = 3, .longest = 40 }, &v));
        double together[3], alone;
        for (int text = 0; text < 2; text++) {
            assert_ok(tn_wire_speaker_score(v, row, 3, text ? NULL : x.c.z, 1, answers, together));
            for (int i = 0; i < 3; i++) {
                assert_ok(tn_wire_speaker_score(v, row + i, 1, text ? NULL : x.c.z + i * each, 1, answers, &alone));
                assert_true(alone > 0 && fabs(together[i] - alone) < 1e-4 * alone);
            }
        }
        tn_wire_speaker_free(v);
        end(&x);
    }
}

static bool never(const void *ctx, int32_t id)
{
    (void)ctx;
    return id < 0;
}

/* A row that may say less than those beside it says the same tokens, and fewer; the others go on, to the last position. */
static void rows_with_limits(void **state)
{
    (void)state;
    static const int32_t ids[] = { 0, 98, 97, 58, 32, 99, 100 };
    for (int k = 0; k < RUNS; k++) {
        world x;
        begin(&x, k);
        const tn_wire_row row[] = { { ids, 7 }, { ids, 2 }, { ids, 4 } };
        tn_wire_said said[3] = { { .nats = 0 } }, alone = { .nats = 0 };
        tn_wire_speaker *v = NULL;
        int64_t most[3];
        assert_ok(tn_wire_speaker_new(
            &(tn_wire_speaker_options){ .trainer = x.w.s.trainer, .reader = 'a', .batch = 3, .longest = 10 }, &v));
        for (int i = 0; i < 3; i++) most[i] = tn_wire_speaker_room(v, &row[i], false);
        const tn_wire_say_options how = { .max_tokens = 8, .most = most, .ends = never };
        assert_ok(tn_wire_speaker_say(v, row, 3, NULL, 2, &how, said));
        for (int i = 0; i < 3; i++) {
            const tn_wire_say_options one = { .max_tokens = most[i] < 8 ? most[i] : 8, .ends = never };
            assert_int_equal(said[i].ids.n, i == 0 ? 4 : i == 1 ? 8 : 7);
            assert_ok(tn_wire_speaker_say(v, row + i, 1, NULL, 2, &one, &alone));
            assert_int_equal(alone.ids.n, said[i].ids.n);
            assert_memory_equal(alone.ids.ids, said[i].ids.ids, alone.ids.n * sizeof *alone.ids.ids);
            assert_true(!said[i].ended && fabs(alone.nats - said[i].nats) < 1e-4 * (1 + alone.nats));
            tn_wire_said_free(&said[i]);
        }
        tn_wire_said_free(&alone);
        tn_wire_speaker_free(v);
        end(&x);
    }
}

static void what_is_refused(void **state)
{
    (void)state;
    world x;
    tn_wire_speaker *v = NULL;
    begin(&x, 0);
    tn_wire_speaker_options o = { .trainer = x.w.s.trainer, .reader = 'a', .batch = 2, .longest = 129 };
    assert_fails(tn_wire_speaker_new(&o, &v), TN_USAGE,
                 "reader a: a sequence of 129 tokens is longer than train.context=128");
    o.longest = 20, o.reader = 'c';
    assert_fails(tn_wire_speaker_new(&o, &v), TN_USAGE, "there is no reader c");
    o.reader = 'a';
    assert_ok(tn_wire_speaker_new(&o, &v));
    const int32_t ids[] = { 0, 256, 3 };
    const tn_wire_row bad[] = { { ids, 2 } }, empty[] = { { ids, 0 } }, uneven[] = { { ids, 1 }, { ids, 1 } };
    assert_fails(tn_wire_speaker_read(v, bad, 1, NULL, 2), TN_USAGE, "token 256 is outside the vocabulary of reader a");
    assert_fails(tn_wire_speaker_read(v, empty, 1, NULL, 2), TN_INTERNAL, "does not fit");
    assert_ok(tn_wire_speaker_read(v, uneven, 2, x.c.z, 2));
    tn_wire_speaker_free(v);
    end(&x);
}

static void likely(void **state)
{
    (void)state;
    const float x[] = { 1, 3, 3, -INFINITY }, bad[] = { 1, NAN };
    assert_int_equal(tn_wire_likeliest(x, 4), 1);
    assert_int_equal(tn_wire_likeliest(bad, 2), -1);
    const double all = log(exp(1) + 2 * exp(3));
    assert_true(fabs(tn_wire_nats(x, 4, 0) - (all - 1)) < 1e-12 && fabs(tn_wire_nats(x, 4, 2) - (all - 3)) < 1e-12);
    const float far[] = { 1000, 998 };
    assert_true(fabs(tn_wire_nats(far, 2, 1) - (2 + log1p(exp(-2)))) < 1e-9);
}

void tn_tests_speaker(tn_test_list *l)
{
    tn_test_add(l, likely, NULL, "wire answers: the likeliest token and its nats");
    tn_test_add(l, cached_is_uncached, NULL, "wire answers: with caches as without");
    tn_test_add(l, ragged_rows, NULL, "wire answers: rows of different length with caches");
    tn_test_add(l, rows_that_ask_nothing, NULL, "wire answers: rows that ask nothing beside others");
    tn_test_add(l, rows_with_limits, NULL, "wire answers: rows that may say less than others");
    tn_test_add(l, what_is_refused, NULL, "wire answers: rows that are refused");
}
