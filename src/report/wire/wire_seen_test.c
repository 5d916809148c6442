/* encoder_sees: what the encoder reads is the context, or the context with its question behind it, and nothing of an answer; messages
 * depend on just that, wherever they are made. */
#include "report/wire/rows.h"
#include "report/wire/wire_post.h"
#include "tasks/wire/wire_layout.h"
#include "wire_run.h"

#include <math.h>
#include <stdio.h>

enum { TEXTS = 8, HELDOUT = 5, EPOCHS = 6, MOST = 512 };
#define MINI "tests/token/mini_llama2.json"
#define BOTH "encoder_sees=both "

typedef struct world {
    wire_run w; /* whose readers have a tokenizer that joins letters */
    tn_session s;
    int64_t each; /* numbers of a message */
} world;

static tn_settings *settings_of(const world *x, const char *words)
{
    char text[2800];
    snprintf(
        text, sizeof text,
        "a.model=%s b.model=%s a.tokenizer=%s b.tokenizer=%s task=recall task.keys=50 task.pairs=3 task.questions=1 "
        "task.heldout=%d task.size=%d train.batch=%d slots=3 width=8 dim=16 heads=2 ffn=24 layers=1 hidden=12 "
        "train.steps=4 train.warmup=2 loader.workers=0 %s",
        x->w.model[0], x->w.model[1], MINI, MINI, HELDOUT, TEXTS, TEXTS, words);
    return wire_run_settings(tn_model_named("wire"), text);
}

static tn_status try_session(world *x, const char *words)
{
    tn_settings *st = settings_of(x, words);
    x->s = (tn_session){ 0 };
    const tn_status s = tn_session_open_with(&(tn_session_options){ .settings = st,
                                                                    .model = tn_model_named("wire"),
                                                                    .needs_data = true,
                                                                    .steps = tn_wire_control_steps },
                                             &x->s);
    tn_settings_free(st);
    return s;
}

static void begin_readers(world *x)
{
    wire_run_open_with(&x->w, "vocab=562", "slots=3 a.tokenizer=" MINI " b.tokenizer=" MINI);
}

static void begin(world *x, const char *words)
{
    begin_readers(x);
    assert_ok(try_session(x, words));
    assert_ok(tn_parts_load(x->s.settings, tn_model_named("wire"), tn_trainer_store(x->s.trainer)));
    x->each = tn_settings_int(x->s.settings, "slots") * tn_settings_int(x->s.settings, "width");
}

static void end(world *x)
{
    tn_session_close(&x->s);
    wire_run_close(&x->w);
}

static const int32_t *input(world *x, const char *name)
{
    const tn_feed f = tn_trainer_feed_again(x->s.trainer);
    return tn_feed_at(&f, name);
}

/* Which training text row b is of: contexts differ from their first line on. */
static int64_t text_of_row(world *x, const tn_wire_texts *t, tn_wire_example *e, int64_t b)
{
    const int64_t most = tn_settings_int(x->s.settings, "bytes");
    const int32_t *bytes = input(x, "bytes");
    assert_non_null(bytes);
    for (int64_t i = 0; i < TEXTS; i++) {
        assert_ok(tn_wire_read(t, TN_TRAIN, i, e));
        size_t k = 0;
        while (k < e->context.bytes && bytes[b * most + (int64_t)k] == (unsigned char)tn_wire_at(e, e->context)[k]) k++;
        if (k == e->context.bytes) return i;
    }
    fail_msg("row %lld is of no text", (long long)b);
    return 0;
}

/* --- rows ------------------------------------------------------------------------------------------------------------------- */

typedef struct expected {
    char text[MOST];
    int64_t bytes;
    tn_tokens ids;
} expected;

static void lay_out(const tn_wire_parts *p, tn_tokens *ids)
{
    tn_tokenizer *t = NULL;
    tn_tokenizer_scratch *scratch = NULL;
    tn_wire_tokens work = { 0 };
    size_t answer;
    assert_ok(tn_tokenizer_open(MINI, &t));
    assert_ok(tn_tokenizer_scratch_new(&scratch));
    const tn_wire_reader r = { 'b', t, tn_tokenizer_special(t, TN_TOKEN_BOS), tn_tokenizer_special(t, TN_TOKEN_EOS) };
    assert_ok(tn_wire_lay_out(&r, scratch, p, &work, ids, &answer));
    tn_wire_tokens_free(&work);
    tn_tokenizer_scratch_free(scratch);
    tn_tokenizer_free(t);
}

static void expect(const tn_wire_example *e, int32_t k, bool both, expected *to)
{
    const tn_wire_span q = e->question[k].question;
    tn_wire_parts p = { .context = tn_wire_at(e, e->context), .context_bytes = e->context.bytes };
    to->bytes = snprintf(to->text, sizeof to->text, "%.*s", (int)e->context.bytes, tn_wire_at(e, e->context));
    if (both) {
        p.anchor = "\n", p.anchor_bytes = 1;
        p.question = tn_wire_at(e, q), p.question_bytes = q.bytes;
        to->bytes += snprintf(to->text + to->bytes, sizeof to->text - (size_t)to->bytes, "\n%.*s", (int)q.bytes,
                              tn_wire_at(e, q));
    }
    lay_out(&p, &to->ids);
}

static void check_row(world *x, int64_t b, const expected *e, bool both)
{
    const int64_t most = tn_settings_int(x->s.settings, "bytes"), sent = tn_settings_int(x->s.settings, "sent");
    const int32_t *bytes = input(x, "bytes"), *rows = input(x, "sent");
    if (bytes) {
        assert_int_equal(input(x, "lengths")[b], e->bytes);
        for (int64_t i = 0; i < most; i++)
            assert_int_equal(bytes[b * most + i], i < e->bytes ? (unsigned char)e->text[i] : 0);
    }
    assert_true((rows != NULL) == (both && strcmp(tn_settings_text(x->s.settings, "encoder"), "sender") == 0));
    if (rows) assert_int_equal(input(x, "sent_length")[b], e->ids.n);
    for (int64_t i = 0; rows && i < sent; i++)
        assert_int_equal(rows[b * sent + i], i < (int64_t)e->ids.n ? e->ids.ids[i] : 0);
}

/* Of training batches over several epochs, which ask different questions, and of held-out ones. */
static void rows_of_the_encoder(void **state)
{
    const char *words = *state;
    const bool both = strstr(words, "both");
    world x;
    tn_wire_texts *t = NULL;
    tn_wire_example e = { .questions = 0 };
    expected want = { .bytes = 0 };
    int64_t count;
    begin(&x, words);
    const uint64_t seed = (uint64_t)tn_settings_int(x.s.settings, "seed");
    assert_ok(tn_task_named("recall")->texts(x.s.settings, &t));
    for (int64_t step = 0; step <= EPOCHS; step++) {
        const bool trains = step < EPOCHS;
        if (trains) assert_ok(tn_source_next(&x.s.source, step, x.s.trainer, &count));
        else assert_ok(tn_source_heldout(&x.s.source, 0, x.s.trainer, &count));
        assert_int_equal(count, trains ? TEXTS : HELDOUT);
        for (int64_t b = 0; b < count; b++) {
            int32_t k;
            const int split = trains ? TN_TRAIN : TN_VALID;
            const int64_t i = trains ? text_of_row(&x, t, &e, b) : b;
            assert_ok(tn_wire_read(t, split, i, &e));
            assert_int_equal(tn_wire_pick(seed, trains ? step : -1, split, i, 3, 1, &k), 1);
            expect(&e, k, both, &want);
            check_row(&x, b, &want, both);
        }
    }
    tn_tokens_free(&want.ids);
    tn_wire_example_free(&e);
    tn_wire_texts_free(t);
    end(&x);
}

/* --- messages --------------------------------------------------------------------------------------------------------------- */

typedef struct message {
    float z[64];
    int32_t asked[64];
    int64_t length;
} message;

static tn_wire_post *open_post(world *x, tn_saved_model *m, const char *question)
{
    tn_wire_post *p = NULL;
    assert_true(x->each <= 64);
    assert_ok(tn_wire_post_open(&(tn_wire_post_options){ .model = m, .batch = 2, .question = question }, &p));
    return p;
}

static void save(world *x, tn_saved_model *m)
{
    assert_ok(tn_weights_save(x->w.file, x->s.model, x->s.settings, tn_trainer_store(x->s.trainer)));
    *m = (tn_saved_model){ .weights = "" };
    assert_ok(tn_saved_model_find(NULL, x->w.file, NULL, 0, "best", m));
}

static double apart(const float *a, const float *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* A post makes what the session makes of a held-out text with its question, and something else with another question. */
static void messages_with_questions(void **state)
{
    world x;
    tn_saved_model m;
    tn_wire_golds g;
    int64_t count, n;
    begin(&x, *state);
    save(&x, &m);
    assert_ok(tn_wire_golds_open(&x.s, TN_VALID, &g));
    assert_ok(tn_source_heldout(&x.s.source, 0, x.s.trainer, &count));
    assert_ok(tn_trainer_run_step(x.s.trainer, "encode"));
    const float *made = tn_trainer_step_output(x.s.trainer, "encode", "z", NULL, &n);
    for (int64_t i = 0; i < count; i++) {
        char question[64];
        float z[2][64];
        assert_ok(tn_wire_golds_read(&g, i));
        assert_int_equal(g.n, 1);
        for (int k = 0; k < 2; k++) {
            const int32_t q = k ? (g.picked[0] + 1) % 3 : g.picked[0];
            const tn_wire_span s = g.example.question[q].question;
            snprintf(question, sizeof question, "%.*s", (int)s.bytes, tn_wire_at(&g.example, s));
            const tn_wire_line t = { tn_wire_at(&g.example, g.example.context), g.example.context.bytes, "text" };
            tn_wire_post *p = open_post(&x, &m, question);
            memset(question, 'x', sizeof question); /* the post has its own */
            assert_ok(tn_wire_post_encode(p, &t, 1, false, z[k]));
            tn_wire_post_close(p);
        }
        assert_true(apart(z[0], made + i * x.each, x.each) < 1e-5);
        assert_true(apart(z[1], made + i * x.each, x.each) > 1e-3);
    }
    tn_wire_golds_free(&g);
    tn_saved_model_free(&m);
    end(&x);
}

/* The same texts in several epochs, which ask others of their questions: Z follows the question, or it does not. */
static void question_alone(void **state)
{
    const char *words = *state;
    const bool both = strstr(words, "both");
    world x;
    message first[TEXTS] = { { .length = 0 } };
    tn_wire_texts *t = NULL;
    tn_wire_example e = { .questions = 0 };
    int64_t count, n, changed = 0;
    begin(&x, words);
    const int64_t length = tn_settings_int(x.s.settings, "a.length");
    assert_true(length <= 64 && x.each <= 64);
    assert_ok(tn_task_named("recall")->texts(x.s.settings, &t));
    for (int64_t step = 0; step < EPOCHS; step++) {
        assert_ok(tn_source_next(&x.s.source, step, x.s.trainer, &count));
        assert_ok(tn_trainer_run_step(x.s.trainer, "encode"));
        const float *made = tn_trainer_step_output(x.s.trainer, "encode", "z", NULL, &n);
        for (int64_t b = 0; b < count; b++) {
            message *f = &first[text_of_row(&x, t, &e, b)];
            const int32_t *asked = input(&x, "a.tokens") + b * length;
            const float *z = made + b * x.each;
            const bool same = f->length && memcmp(f->asked, asked, (size_t)length * sizeof *asked) == 0;
            if (!f->length) {
                memcpy(f->z, z, (size_t)x.each * sizeof *z);
                memcpy(f->asked, asked, (size_t)length * sizeof *asked);
                f->length = length;
            } else if (same || !both) assert_true(apart(f->z, z, x.each) < 1e-6);
            else assert_true(apart(f->z, z, x.each) > 1e-3);
            changed += !same && step > 0;
        }
    }
    assert_true(changed > TEXTS);
    tn_wire_example_free(&e);
    tn_wire_texts_free(t);
    end(&x);
}

static void questions_that_do_not_fit(void **state)
{
    world x;
    tn_saved_model m;
    tn_wire_post *p = NULL;
    float z[2][64];
    tn_tokens ids = { 0 };
    char text[900], long_question[900], said[80];
    begin(&x, *state);
    const bool sends = strcmp(tn_settings_text(x.s.settings, "encoder"), "sender") == 0;
    save(&x, &m);
    assert_fails(tn_wire_post_open(&(tn_wire_post_options){ .model = &m, .batch = 1 }, &p), TN_USAGE,
                 "the run's encoder sees the question too (encoder_sees=both): give --question=TEXT");
    memset(text, 'a', sizeof text);
    memset(long_question, 'b', sizeof long_question);
    long_question[sizeof long_question - 1] = 0;
    const tn_wire_line t = { text, sizeof text, "long.txt" };
    p = open_post(&x, &m, "ba:");
    assert_fails(tn_wire_post_encode(p, &t, 1, false, z[0]), TN_USAGE, "with its question, and the run takes texts of");
    assert_ok(tn_wire_post_encode(p, &t, 1, true, z[0]));
    tn_wire_post_close(p);
    p = open_post(&x, &m, "be:"); /* what is cut is the text */
    assert_ok(tn_wire_post_encode(p, &t, 1, true, z[1]));
    assert_true(apart(z[0], z[1], x.each) > 1e-4);
    tn_wire_post_close(p);
    p = open_post(&x, &m, long_question);
    lay_out(&(tn_wire_parts){ .question = long_question, .question_bytes = strlen(long_question) }, &ids);
    snprintf(said, sizeof said, "--question has %zu %s, which leaves no room",
             sends ? ids.n - 2 : strlen(long_question), sends ? "tokens" : "bytes");
    assert_fails(tn_wire_post_encode(p, &t, 1, true, z[0]), TN_USAGE, said);
    tn_tokens_free(&ids);
    tn_wire_post_close(p);
    tn_saved_model_free(&m);
    end(&x);
}

/* --- what is refused ---------------------------------------------------------------------------------------------------------- */

static void refused(void **state)
{
    (void)state;
    world x;
    tn_saved_model m;
    tn_wire_post *p = NULL;
    char words[900];
    begin(&x, "");
    save(&x, &m);
    assert_fails(tn_wire_post_open(&(tn_wire_post_options){ .model = &m, .batch = 1, .question = "ba:" }, &p), TN_USAGE,
                 "the run's encoder sees texts alone (encoder_sees=context): leave --question out");
    tn_saved_model_free(&m);
    tn_session_close(&x.s);
    assert_fails(try_session(&x, BOTH "task.questions=2"), TN_USAGE,
                 "a message is for one question, and a text has 2 here: set task.questions=1");
    assert_fails(try_session(&x, BOTH "task.questions=0"), TN_USAGE, "a text has 3 here: set task.questions=1");
    assert_fails(try_session(&x, BOTH "encoder=constant"), TN_USAGE, "encoder=constant sees nothing");
    assert_fails(try_session(&x, BOTH "encoder=free"), TN_USAGE, "encoder=free sees nothing");
    snprintf(words, sizeof words, BOTH "task=ae task.data=docs/wire.md task.length=32");
    assert_fails(try_session(&x, words), TN_USAGE, "task=ae asks no questions: use encoder_sees=context");
    snprintf(words, sizeof words, BOTH "task=cont task.data=docs/wire.md task.length=32");
    assert_fails(try_session(&x, words), TN_USAGE, "task=cont asks no questions: use encoder_sees=context");
    /* A reader that joins later takes what its encoder was trained to see. */
    assert_ok(try_session(&x, BOTH));
    assert_ok(tn_weights_save(x.w.file, x.s.model, x.s.settings, tn_trainer_store(x.s.trainer)));
    tn_session_close(&x.s);
    snprintf(words, sizeof words, "encoder_from=%s encoder_sees=context", x.w.file);
    assert_ok(try_session(&x, words));
    assert_fails(tn_parts_load(x.s.settings, tn_model_named("wire"), tn_trainer_store(x.s.trainer)), TN_USAGE,
                 "has encoder_sees=both: set encoder_sees=both here too");
    end(&x);
}

void tn_tests_wire_seen(tn_test_list *l)
{
    static const char *const sees[] = { "", BOTH, "encoder=sender sender=b", BOTH "encoder=sender sender=b" };
    for (int i = 0; i < 4; i++) {
        tn_test_add(l, rows_of_the_encoder, (void *)(uintptr_t)sees[i], "wire encoder sees: rows (%s)", sees[i]);
        tn_test_add(l, question_alone, (void *)(uintptr_t)sees[i], "wire encoder sees: another question (%s)", sees[i]);
        if (i % 2 == 0) continue;
        tn_test_add(l, messages_with_questions, (void *)(uintptr_t)sees[i], "wire encoder sees: messages (%s)",
                    sees[i]);
        tn_test_add(l, questions_that_do_not_fit, (void *)(uintptr_t)sees[i],
                    "wire encoder sees: questions that do not fit (%s)", sees[i]);
    }
    tn_test_add(l, refused, NULL, "wire encoder sees: what is refused");
}
