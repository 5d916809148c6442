/* The controls on two random readers: equal to evaluations that are made in other ways, where there are such. */
#include "report/wire/controls.h"

#include "tasks/wire/wire_text.h"
#include "wire_run.h"

#include <math.h>

enum { KINDS = 512 };

typedef struct sums {
    double right, first, nll;
    int64_t questions, tokens;
    bool said_first[KINDS], right_first[KINDS];
} sums;

static double unique_of(const sums *s)
{
    double said = 0, right = 0;
    for (int i = 0; i < KINDS; i++) said += s->said_first[i], right += s->right_first[i];
    return said / right;
}

/* Of rows of labels (rows, n) and what was said to them. */
static void add_said(const int32_t *labels, const float *said, const float *nll, int64_t rows, int64_t n, sums *to)
{
    for (int64_t i = 0; i < rows; i++) {
        int64_t tokens = 0, good = 0;
        for (int64_t t = 1; t < n; t++) {
            const int32_t label = labels[i * n + t];
            if (label < 0) continue;
            const bool same = (int32_t)said[i * (n - 1) + t - 1] == label;
            to->first += tokens == 0 && same;
            assert_true(label < KINDS && said[i * (n - 1) + t - 1] < KINDS);
            if (tokens == 0) to->said_first[(int)said[i * (n - 1) + t - 1]] = to->right_first[label] = true;
            to->nll += nll[i * (n - 1) + t - 1];
            tokens++, good += same;
        }
        to->questions += tokens > 0, to->right += tokens > 0 && good == tokens, to->tokens += tokens;
    }
}

static void assert_sums(const tn_wire_score *x, const sums *s, double within)
{
    assert_true(s->questions > 0 && s->tokens > s->questions);
    assert_int_equal(x->questions, s->questions);
    assert_int_equal(x->tokens, s->tokens);
    assert_true(x->right == s->right && x->first == s->first);
    assert_true(fabs(x->nll - s->nll) <= within * fabs(s->nll));
}

static void latent_is_what_eval_says(void **state)
{
    (void)state;
    wire_run w;
    tn_wire_controls c;
    wire_run_open(&w, "slots=3 private=1");
    assert_ok(tn_wire_controls_run(&w.s, 7, NULL, NULL, &c));
    assert_int_equal(c.contexts, 5);
    assert_int_equal(c.slots, 5);
    assert_string_equal(c.reader, "ab");
    for (int k = 0; k < 2; k++) {
        sums s = { 0 };
        char key[3][16];
        snprintf(key[0], sizeof key[0], "%c.labels", 'a' + k);
        snprintf(key[1], sizeof key[1], "%c.said", 'a' + k);
        snprintf(key[2], sizeof key[2], "%c.nll", 'a' + k);
        for (int64_t i = 0, count;; i++) {
            int64_t n_said, n_nll;
            assert_ok(tn_source_heldout(&w.s.source, i, w.s.trainer, &count));
            if (!count) break;
            assert_ok(tn_trainer_run_step(w.s.trainer, "eval"));
            const float *said = tn_trainer_step_output(w.s.trainer, "eval", key[1], NULL, &n_said),
                        *nll = tn_trainer_step_output(w.s.trainer, "eval", key[2], NULL, &n_nll);
            assert_true(said && nll && n_said == n_nll);
            const int64_t rows = w.s.batch * tn_settings_int(w.s.settings, "questions");
            add_said(tn_trainer_input(w.s.trainer, key[0]), said, nll, rows, n_said / rows + 1, &s);
        }
        assert_int_equal(s.questions, 5 * 3);
        assert_sums(&c.score[TN_WIRE_LATENT][k], &s, 1e-6);
        assert_true(c.score[TN_WIRE_LATENT][k].unique == unique_of(&s) && unique_of(&s) > 0);
    }
    tn_wire_controls_free(&c);
    wire_run_close(&w);
}

static void assert_same(const tn_wire_score *a, const tn_wire_score *b, double within)
{
    assert_int_equal(a->questions, b->questions);
    assert_true(fabs(a->nll - b->nll) <= within * fabs(b->nll));
}

/* A budget that holds all of the text is the text; one of nothing is none. Half floats change little, four bits more. */
static void budgets_and_bits(void **state)
{
    (void)state;
    wire_run w;
    tn_wire_controls c;
    wire_run_open(&w, "slots=64");
    assert_ok(tn_wire_controls_run(&w.s, 7, NULL, NULL, &c));
    for (int k = 0; k < 2; k++) {
        const tn_wire_score *text = &c.score[TN_WIRE_TEXT][k];
        assert_same(&c.score[TN_WIRE_FIRST][k], text, 0);
        assert_same(&c.score[TN_WIRE_LAST][k], text, 0);
        assert_same(&c.score[TN_WIRE_RANDOM][k], text, 0);
        assert_true(fabs(c.score[TN_WIRE_NONE][k].nll - text->nll) > 1e-3 * text->nll);
        const double latent = c.score[TN_WIRE_LATENT][k].nll, half = fabs(c.score[TN_WIRE_FP16][k].nll - latent),
                     four = fabs(c.score[TN_WIRE_INT4][k].nll - latent);
        assert_true(half < 1e-3 * latent && half < four);
        assert_true(fabs(c.score[TN_WIRE_ZERO][k].nll - latent) > 1e-3 * latent);
    }
    assert_true(c.bytes[TN_WIRE_FP16] == 52 + 2 * 64 * 8 && c.bytes[TN_WIRE_INT4] < c.bytes[TN_WIRE_INT8]);
    assert_true(c.bytes[TN_WIRE_LATENT] == 0 && c.cosine > -1 && c.cosine < 1);
    tn_wire_controls_free(&c);
    wire_run_close(&w);
}

/* Fewer tokens than the text has: less is known. The budget is drawn by the seed alone. */
static void budgets_are_drawn_by_seed(void **state)
{
    (void)state;
    wire_run w;
    tn_wire_controls c[3];
    wire_run_open(&w, "slots=4");
    for (int i = 0; i < 3; i++) assert_ok(tn_wire_controls_run(&w.s, i == 2 ? 8 : 7, NULL, NULL, &c[i]));
    for (int m = 0; m < TN_WIRE_METHODS; m++)
        for (int k = 0; k < 2; k++) assert_true(c[0].score[m][k].nll == c[1].score[m][k].nll);
    assert_true(c[0].score[TN_WIRE_RANDOM][0].nll != c[2].score[TN_WIRE_RANDOM][0].nll);
    assert_true(c[0].score[TN_WIRE_FIRST][0].nll != c[0].score[TN_WIRE_LAST][0].nll);
    assert_true(c[0].score[TN_WIRE_LATENT][0].nll == c[2].score[TN_WIRE_LATENT][0].nll);
    for (int i = 0; i < 3; i++) tn_wire_controls_free(&c[i]);
    wire_run_close(&w);
}

/* The reader itself, opened as the language model that it is, on BOS ; context ; anchor ; question ; answer. */
static void text_is_the_reader_alone(void **state)
{
    (void)state;
    enum { T = 127 };
    wire_run w;
    tn_wire_controls c;
    tn_saved_model m = { .weights = "" };
    tn_trainer *t = NULL;
    tn_wire_texts *texts = NULL;
    tn_wire_example e = { 0 };
    sums s = { 0 };
    wire_run_open(&w, "slots=3");
    assert_ok(tn_wire_controls_run(&w.s, 7, NULL, NULL, &c));
    assert_ok(tn_saved_model_find(NULL, w.model[0], NULL, 0, "best", &m));
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = m.model,
                                                    .settings = m.settings,
                                                    .batch = 1,
                                                    .length = T,
                                                    .logits = true,
                                                    .nll = true,
                                                    .forward_only = true,
                                                    .frozen = true },
                             &t));
    assert_ok(tn_saved_model_load(&m, tn_trainer_store(t)));
    assert_ok(tn_task_named("recall")->texts(w.s.settings, &texts));
    int32_t *tokens = tn_trainer_input(t, "tokens"), *labels = tn_trainer_input(t, "labels");
    assert_true(tokens && labels);
    for (int64_t i = 0; i < 5; i++) {
        assert_ok(tn_wire_read(texts, TN_VALID, i, &e));
        for (size_t q = 0; q < e.questions; q++) {
            const tn_wire_span part[] = { e.context, { 0, 0 }, e.question[q].question, e.gold[e.question[q].gold] };
            int32_t row[T + 1] = { 0 };
            float said[T], nll[T], loss;
            int64_t n = 1, answer = 0, count;
            for (int k = 0; k < 4; k++) {
                if (k == 1) row[n++] = '\n'; /* the anchor */
                if (k == 3) answer = n;
                for (size_t j = 0; j < part[k].bytes; j++) row[n++] = (unsigned char)tn_wire_at(&e, part[k])[j];
                assert_true(n < T);
            }
            row[n++] = 0; /* bytes begin and end with NUL */
            int32_t full[T + 1];
            for (int64_t j = 0; j <= T; j++) full[j] = j >= answer && j < n ? row[j] : -1;
            memcpy(tokens, row, T * sizeof *tokens);
            memcpy(labels, full + 1, T * sizeof *labels);
            assert_ok(tn_trainer_eval(t, &loss));
            const float *logits = tn_trainer_output(t, "logits", &count);
            assert_true(logits && count == T * 256);
            for (int64_t j = 0; j < T; j++) {
                said[j] = 0;
                for (int id = 1; id < 256; id++)
                    if (logits[j * 256 + id] > logits[j * 256 + (int)said[j]]) said[j] = (float)id;
            }
            const float *own = tn_trainer_output(t, "nll", &count);
            assert_true(own && count == T);
            memcpy(nll, own, sizeof nll);
            add_said(full, said, nll, 1, T + 1, &s);
        }
    }
    assert_sums(&c.score[TN_WIRE_TEXT][0], &s, 1e-4);
    tn_wire_example_free(&e);
    tn_wire_texts_free(texts);
    tn_trainer_free(t);
    tn_saved_model_free(&m);
    tn_wire_controls_free(&c);
    wire_run_close(&w);
}

static tn_status stop_at(void *ctx)
{
    int *left = ctx;
    return (*left)-- > 0 ? TN_OK : tn_error(TN_INTERRUPTED, "enough");
}

static void stops_between_batches(void **state)
{
    (void)state;
    wire_run w;
    tn_wire_controls c;
    wire_run_open(&w, "slots=3");
    for (int after = 0; after < 7; after++) { /* 4 times while encoding, 3 while reading */
        int left = after;
        assert_fails(tn_wire_controls_run(&w.s, 7, stop_at, &left, &c), TN_INTERRUPTED, "enough");
        assert_null(c.z);
    }
    int left = 7;
    assert_ok(tn_wire_controls_run(&w.s, 7, stop_at, &left, &c));
    assert_int_equal(left, 0);
    tn_wire_controls_free(&c);
    wire_run_close(&w);
}

void tn_tests_controls(tn_test_list *l)
{
    tn_test_add(l, latent_is_what_eval_says, NULL, "wire controls: latent is what the evaluation says");
    tn_test_add(l, budgets_and_bits, NULL, "wire controls: budgets and bits");
    tn_test_add(l, budgets_are_drawn_by_seed, NULL, "wire controls: budgets are drawn by the seed");
    tn_test_add(l, text_is_the_reader_alone, NULL, "wire controls: text is the reader alone");
    tn_test_add(l, stops_between_batches, NULL, "wire controls: an interrupt ends them");
}
