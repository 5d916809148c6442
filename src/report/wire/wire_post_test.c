/* Messages and answers of a run that is opened from its file, against the evaluation of the session that it was saved from. */
#include "report/wire/wire_post.h"

#include "io/wire_file.h"
#include "tasks/wire/wire_store.h"
#include "wire_run.h"

#include <math.h>

typedef struct world {
    wire_run w;
    tn_saved_model m;
    tn_wire_controls c;
    int64_t each; /* numbers of a message */
} world;

static void begin(world *x, const char *words)
{
    wire_run_open(&x->w, words);
    assert_ok(tn_wire_controls_run(&x->w.s, 7, NULL, NULL, &x->c));
    x->m = (tn_saved_model){ .weights = "" };
    assert_ok(tn_saved_model_find(NULL, x->w.file, NULL, 0, "best", &x->m));
    x->each = x->c.slots * x->c.width;
}

static void end(world *x)
{
    tn_saved_model_free(&x->m);
    tn_wire_controls_free(&x->c);
    wire_run_close(&x->w);
}

static tn_wire_post *open_post(world *x, char reader, const char *question, int64_t tokens)
{
    tn_wire_post *p = NULL;
    assert_ok(tn_wire_post_open(
        &(tn_wire_post_options){
            .model = &x->m, .batch = 2, .reader = reader, .kind = 2, .question = question, .max_tokens = tokens },
        &p));
    return p;
}

/* Text i of the held-out ones. */
static tn_wire_line text_of(world *x, int64_t i, char buf[256])
{
    tn_wire_texts *t = NULL;
    tn_wire_example e = { .questions = 0 };
    assert_ok(tn_task_named("recall")->texts(x->w.s.settings, &t));
    assert_ok(tn_wire_read(t, TN_VALID, i, &e));
    const size_t n = e.context.bytes;
    assert_true(n > 0 && n < 256);
    memcpy(buf, tn_wire_at(&e, e.context), n);
    tn_wire_example_free(&e);
    tn_wire_texts_free(t);
    return (tn_wire_line){ buf, n, "text" };
}

static void encodes_as_the_session_does(void **state)
{
    (void)state;
    static const char *const encoders[] = { "slots=3 private=2", "slots=2 encoder=sender sender=b refiner=1",
                                            "slots=2 encoder=constant" };
    for (size_t k = 0; k < 3; k++) {
        world x;
        char buf[2][256];
        float z[512];
        begin(&x, encoders[k]);
        tn_wire_post *p = open_post(&x, 0, NULL, 0);
        const tn_wire_about *a = tn_wire_post_about(p);
        assert_true(a->slots == x.c.slots && a->width == x.c.width && a->readers == 2 && a->tokens == (k == 1));
        for (int64_t i = 0; i + 1 < 5; i++) {
            const tn_wire_line t[] = { text_of(&x, i, buf[0]), text_of(&x, i + 1, buf[1]) };
            assert_ok(tn_wire_post_encode(p, t, 2, false, z));
            for (int64_t j = 0; j < 2 * x.each; j++) assert_true(fabsf(z[j] - x.c.z[i * x.each + j]) < 1e-5f);
            assert_true((memcmp(z, z + x.each, sizeof *z * (size_t)x.each) == 0) == (k == 2));
        }
        tn_wire_post_close(p);
        end(&x);
    }
}

/* The first token of an answer is what the evaluation says after the question; what follows is said again, token by token. */
static void answers_as_the_evaluation_says(void **state)
{
    (void)state;
    world x;
    begin(&x, "slots=4");
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < 2; i++) {
            char key[3][16], question[64] = "";
            int64_t n_said, count, at = 1;
            const char reader = (char)('a' + k);
            snprintf(key[0], sizeof key[0], "%c.labels", reader);
            snprintf(key[1], sizeof key[1], "%c.said", reader);
            snprintf(key[2], sizeof key[2], "%c.tokens", reader);
            assert_ok(tn_source_heldout(&x.w.s.source, 0, x.w.s.trainer, &count));
            assert_ok(tn_trainer_run_step(x.w.s.trainer, "eval"));
            const float *said = tn_trainer_step_output(x.w.s.trainer, "eval", key[1], NULL, &n_said);
            const int32_t *labels = tn_trainer_input(x.w.s.trainer, key[0]),
                          *tokens = tn_trainer_input(x.w.s.trainer, key[2]);
            const int64_t Q = tn_settings_int(x.w.s.settings, "questions"), n = n_said / (2 * Q) + 1, row = i * Q + 1;
            for (; labels[row * n + at] < 0; at++) question[at - 1] = (char)tokens[row * n + at];
            tn_wire_said out[2] = { { .nats = 0 }, { .nats = 0 } };
            tn_wire_post *p = open_post(&x, reader, question, 6);
            assert_ok(tn_wire_post_answer(p, x.c.z, 2, NULL, NULL, out));
            const int32_t first = (int32_t)said[row * (n - 1) + at - 1];
            assert_true(out[i].ids.n ? out[i].ids.ids[0] == first : out[i].ended && first == 0);
            assert_true(out[i].ids.n <= 6 && (out[i].ids.n == 6) == !out[i].ended && out[i].nats > 0);
            /* Longer answers begin with shorter ones. */
            tn_wire_said longer[2] = { { .nats = 0 }, { .nats = 0 } };
            tn_wire_post_close(p);
            p = open_post(&x, reader, question, 9);
            assert_ok(tn_wire_post_answer(p, x.c.z, 2, NULL, NULL, longer));
            assert_true(longer[i].ids.n >= out[i].ids.n && longer[i].nats >= out[i].nats - 1e-3);
            assert_memory_equal(longer[i].ids.ids, out[i].ids.ids, out[i].ids.n * sizeof *out[i].ids.ids);
            for (int j = 0; j < 2; j++) tn_wire_said_free(&out[j]), tn_wire_said_free(&longer[j]);
            tn_wire_post_close(p);
        }
    end(&x);
}

/* What goes through a message and a second process is what one that has both ends says, bit for bit. */
static void message_between_two_posts(void **state)
{
    (void)state;
    world x;
    char buf[256];
    float z[512];
    unsigned char bytes[1024];
    tn_wire_message m = { .z = NULL };
    tn_wire_size size;
    tn_wire_said near[1] = { { .nats = 0 } }, far[1] = { { .nats = 0 } };
    begin(&x, "slots=4 private=1");
    const tn_wire_line t = text_of(&x, 0, buf);
    tn_wire_post *sends = open_post(&x, 0, NULL, 0), *reads = open_post(&x, 'b', "badu:", 8);
    const tn_wire_about *a = tn_wire_post_about(sends);
    assert_string_equal(a->encoder, tn_wire_post_about(reads)->encoder);
    tn_wire_options o = { .bits = 6,
                          .group = 32,
                          .scale = TN_F16,
                          .shared_slots = (uint32_t)a->shared,
                          .private_slots = (uint32_t)a->private_slots,
                          .models = (uint32_t)a->readers,
                          .width = (uint32_t)a->width };
    memcpy(o.encoder, a->encoder, sizeof o.encoder);
    assert_ok(tn_wire_size_of(&o, &size));
    assert_true(size.message <= sizeof bytes);
    assert_ok(tn_wire_post_encode(sends, &t, 1, false, z));
    assert_ok(tn_wire_encode(&o, z, bytes));
    assert_ok(tn_wire_decode("m", bytes, size.message, &(tn_wire_limits){ .encoder = a->encoder }, &m));
    assert_ok(tn_wire_post_answer(reads, m.z, 1, NULL, NULL, near));
    tn_wire_post_close(sends);
    tn_wire_post_close(reads);
    tn_wire_message_free(&m);
    reads = open_post(&x, 'b', "badu:", 8);
    assert_ok(tn_wire_decode("m", bytes, size.message,
                             &(tn_wire_limits){ .encoder = tn_wire_post_about(reads)->encoder }, &m));
    assert_ok(tn_wire_post_answer(reads, m.z, 1, NULL, NULL, far));
    assert_int_equal(near->ids.n, far->ids.n);
    assert_memory_equal(near->ids.ids, far->ids.ids, near->ids.n * sizeof *near->ids.ids);
    assert_true(near->nats == far->nats && near->nats > 0);
    tn_wire_said_free(near);
    tn_wire_said_free(far);
    tn_wire_message_free(&m);
    tn_wire_post_close(reads);
    end(&x);
}

static void texts_that_do_not_fit(void **state)
{
    (void)state;
    world x;
    float z[512], cut[512];
    char text[300], whole[300];
    begin(&x, "slots=2");
    tn_wire_post *p = open_post(&x, 0, NULL, 0);
    const size_t most = (size_t)tn_wire_post_about(p)->most;
    assert_true(most > 4 && most < 290);
    memset(text, 'a', sizeof text);
    memcpy(text + most - 1, "\xc3\xa9", 2); /* a character across the limit */
    memset(whole, 'a', sizeof whole);
    const tn_wire_line t = { text, most + 9, "long.txt" }, none = { text, 0, "empty.txt" },
                       fits = { whole, most - 1, "short.txt" };
    assert_fails(tn_wire_post_encode(p, &t, 1, false, z), TN_USAGE, "long.txt has");
    assert_fails(tn_wire_post_encode(p, &none, 1, false, z), TN_USAGE, "empty.txt is empty");
    assert_ok(tn_wire_post_encode(p, &t, 1, true, cut));
    assert_ok(tn_wire_post_encode(p, &fits, 1, false, z));
    assert_memory_equal(z, cut, sizeof *z * (size_t)x.each);
    tn_wire_post_close(p);
    assert_fails(tn_wire_post_open(&(tn_wire_post_options){ .model = &x.m, .batch = 1, .reader = 'c', .max_tokens = 2 },
                                   &p),
                 TN_USAGE, "no reader c");
    end(&x);
}

/* Of the encoder and no more: adapters may be trained further. heads and what the encoder sees change no shape. */
static void hash_is_of_the_encoder(void **state)
{
    (void)state;
    static const struct {
        const char *name, *setting;
        bool changes;
    } rows[] = { { NULL, NULL, false },      { "encoder.pool.z.w", NULL, true }, { "to.a.in.w", NULL, false },
                 { "a.embed", NULL, false }, { NULL, "heads=4", true },          { NULL, "encoder_sees=both", true } };
    world x;
    char first[TN_HASH_BYTES];
    begin(&x, "slots=2");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float was = 0;
        tn_saved_model m = { .weights = "" };
        tn_store *store = tn_trainer_store(x.w.s.trainer);
        const tn_entry *e = rows[i].name ? tn_store_find(store, rows[i].name) : NULL;
        if (rows[i].name) {
            assert_non_null(e);
            was = ((float *)e->data)[0];
            ((float *)e->data)[0] = was + 1;
            assert_ok(tn_weights_save(x.w.file, x.w.s.model, x.w.s.settings, store));
        }
        assert_ok(tn_saved_model_find(NULL, x.w.file, &rows[i].setting, rows[i].setting != NULL, "best", &m));
        tn_wire_post *p = NULL;
        const char *seen = tn_wire_sees_question(m.settings) ? "a:" : NULL;
        assert_ok(tn_wire_post_open(&(tn_wire_post_options){ .model = &m, .batch = 1, .question = seen }, &p));
        if (i == 0) memcpy(first, tn_wire_post_about(p)->encoder, sizeof first);
        assert_int_equal(strlen(first), 32);
        assert_int_equal(strcmp(first, tn_wire_post_about(p)->encoder) != 0, rows[i].changes);
        tn_wire_post_close(p);
        tn_saved_model_free(&m);
        if (e) {
            ((float *)e->data)[0] = was;
            assert_ok(tn_weights_save(x.w.file, x.w.s.model, x.w.s.settings, store));
        }
    }
    end(&x);
}

void tn_tests_wire_post(tn_test_list *l)
{
    tn_test_add(l, encodes_as_the_session_does, NULL, "wire messages: encoded as in a session");
    tn_test_add(l, answers_as_the_evaluation_says, NULL, "wire messages: answers as the evaluation says");
    tn_test_add(l, message_between_two_posts, NULL, "wire messages: from one process to another");
    tn_test_add(l, texts_that_do_not_fit, NULL, "wire messages: texts that do not fit");
    tn_test_add(l, hash_is_of_the_encoder, NULL, "wire messages: the hash is the encoder's");
}
