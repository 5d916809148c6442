/* Decoded answers against the evaluation that decodes nothing, and against what is decoded question by question. */
#include "report/wire/decoded.h"

#include "report/wire/decoded_parts.h"
#include "report/wire/wire_post.h"
#include "wire_run.h"

#include <math.h>

typedef struct world {
    wire_run w;
    tn_saved_model m;
    tn_wire_controls c;
    tn_wire_decoded d;
} world;

static void begin_with(world *x, const char *reader, const char *words, int64_t max_tokens)
{
    wire_run_open_with(&x->w, reader, words);
    assert_ok(tn_wire_controls_run(&x->w.s, 7, NULL, NULL, &x->c));
    assert_ok(tn_wire_decoded_run(&x->w.s, &x->c,
                                  &(tn_wire_decoded_options){ .split = TN_VALID, .seed = 7, .max_tokens = max_tokens },
                                  &x->d));
    x->m = (tn_saved_model){ .weights = "" };
    assert_ok(tn_saved_model_find(NULL, x->w.file, NULL, 0, "best", &x->m));
}

static void begin(world *x, const char *words, int64_t max_tokens) { begin_with(x, "", words, max_tokens); }

static void end(world *x)
{
    tn_saved_model_free(&x->m);
    tn_wire_decoded_free(&x->d);
    tn_wire_controls_free(&x->c);
    wire_run_close(&x->w);
}

/* What `wire decode` answers, question by question and message by message, has these scores. */
static void as_decoded_one_by_one(void **state)
{
    (void)state;
    world x;
    tn_wire_golds g = { .n = 0 };
    double em[2] = { 0 }, f1[2] = { 0 }, nats[2] = { 0 };
    int64_t asked = 0, words = 0;
    begin(&x, "slots=4 place=embeddings", 0);
    assert_true(x.d.in_words);
    assert_int_equal(x.d.questions, 15);
    assert_ok(tn_wire_golds_open(&x.w.s, TN_VALID, &g));
    for (int64_t i = 0; i < 5; i++) {
        assert_ok(tn_wire_golds_read(&g, i));
        for (int64_t q = 0; q < g.n; q++, asked++) {
            tn_answer gold[4];
            const tn_answer question = tn_wire_golds_question(&g, q);
            char text[64] = "";
            assert_int_equal(tn_wire_golds_of(&g, q, gold, 4), 1);
            memcpy(text, question.text, question.bytes);
            for (int k = 0; k < 2; k++) {
                tn_wire_post *p = NULL;
                tn_wire_said said = { .nats = 0 };
                tn_answer_score s;
                assert_ok(tn_wire_post_open(&(tn_wire_post_options){ .model = &x.m,
                                                                     .batch = 1,
                                                                     .reader = (char)('a' + k),
                                                                     .kind = 2,
                                                                     .question = text,
                                                                     .max_tokens = x.d.max_tokens[k] },
                                            &p));
                assert_ok(tn_wire_post_answer(p, x.c.z + i * x.c.slots * x.c.width, 1, NULL, NULL, &said));
                assert_ok(
                    tn_answer_score_of((tn_answer){ said.text.data ? said.text.data : "", said.text.n }, gold, 1, &s));
                em[k] += s.exact, f1[k] += s.f1, nats[k] += said.nats;
                words += said.text.n > 0;
                tn_wire_said_free(&said);
                tn_wire_post_close(p);
            }
        }
    }
    assert_true(words > 0 && asked == 15);
    for (int k = 0; k < 2; k++) {
        assert_true(x.d.score[TN_WIRE_LATENT][k].em_sum == em[k]);
        assert_true(fabs(x.d.score[TN_WIRE_LATENT][k].f1_sum - f1[k]) < 1e-9);
        assert_true(fabs(x.d.score[TN_WIRE_LATENT][k].nats - nats[k]) < 1e-4 * nats[k]);
    }
    tn_wire_golds_free(&g);
    end(&x);
}

/* What is decoded, taken as the right answer, is exact under teacher forcing, its end included where it has one. */
static void agrees_with_teacher_forcing(void **state)
{
    (void)state;
    world x;
    begin(&x, "slots=4", 0);
    wire_run y; /* a store without caches of other sizes */
    wire_run_open(&y, "slots=4");
    tn_trainer *t = y.s.trainer;
    const int64_t Q = tn_settings_int(y.s.settings, "questions"), each = x.c.slots * x.c.width, R = 2 * Q;
    for (int r = 0; r < 2; r++) {
        const char reader = (char)('a' + r);
        int64_t count, n_said;
        char key[32];
        assert_ok(tn_source_heldout(&y.s.source, 0, t, &count));
        const tn_wire_input labels = tn_wire_input_of(&y.s, reader, "labels"),
                            tokens = tn_wire_input_of(&y.s, reader, "tokens");
        const int64_t n = labels.n;
        tn_wire_speaker *v = NULL;
        tn_wire_words words = { .letter = 0 };
        tn_wire_row row[16];
        tn_wire_said said[16] = { { .nats = 0 } };
        float z[16 * 64];
        assert_true(R <= 16 && each <= 64);
        assert_ok(tn_wire_words_open(NULL, y.s.settings, reader, &words));
        assert_ok(
            tn_wire_speaker_new(&(tn_wire_speaker_options){ .trainer = t, .reader = reader, .batch = R, .longest = 40 },
                                &v));
        for (int64_t i = 0; i < R; i++) {
            int64_t at = 1;
            while (labels.at[i * n + at] < 0) at++;
            row[i] = (tn_wire_row){ tokens.at + i * n, at };
            memcpy(z + i * each, x.c.z + i / Q * each, sizeof *z * (size_t)each);
        }
        for (int64_t i = 0; i < R; i++) {
            const int64_t room = n - row[i].n;
            const tn_wire_say_options how = { .max_tokens = room, .ends = tn_wire_words_end, .ends_ctx = &words };
            assert_ok(tn_wire_speaker_say(v, row + i, 1, z + i * each, 2, &how, said + i));
        }
        for (int64_t i = 0; i < R; i++)
            for (int64_t k = row[i].n; k < n; k++) {
                const size_t j = (size_t)(k - row[i].n);
                tokens.at[i * n + k] = j < said[i].ids.n ? said[i].ids.ids[j] : words.eos;
                labels.at[i * n + k] = j < said[i].ids.n + said[i].ended ? tokens.at[i * n + k] : -1;
            }
        const tn_entry *e = tn_store_find(tn_trainer_store(t), "message");
        float all[2 * 64];
        for (int64_t i = 0; i < 2; i++) memcpy(all + i * each, x.c.z + i * each, sizeof *all * (size_t)each);
        assert_ok(tn_store_write(tn_trainer_store(t), e->data, all, sizeof *all * (size_t)(2 * each)));
        assert_ok(tn_trainer_run_step(t, "read"));
        snprintf(key, sizeof key, "%c.said", reader);
        const float *out = tn_trainer_step_output(t, "read", key, NULL, &n_said);
        assert_int_equal(n_said, R * (n - 1));
        for (int64_t i = 0; i < R; i++)
            for (int64_t k = row[i].n; k < n; k++)
                if (labels.at[i * n + k] >= 0) assert_int_equal((int)out[i * (n - 1) + k - 1], labels.at[i * n + k]);
        for (int64_t i = 0; i < R; i++) tn_wire_said_free(&said[i]);
        tn_wire_speaker_free(v);
        tn_wire_words_free(&words);
    }
    for (int m = 0; m < TN_WIRE_METHODS; m++) /* and what is exact so is exact in words */
        for (int k = 0; k < 2; k++) {
            const tn_wire_decoded_score *d = &x.d.score[m][k];
            assert_true((d->em != NULL) == tn_wire_decodes[m]);
            for (int64_t i = 0; d->em && i < x.c.contexts; i++) assert_true(d->em[i] >= x.c.score[m][k].em[i]);
        }
    wire_run_close(&y);
    end(&x);
}

/* A right answer may be of any length, the longest text too: the number of tokens is one for all, and not the row's. */
static void lengths(void **state)
{
    (void)state;
    world x;
    int64_t longest = 0;
    tn_wire_golds g = { .n = 0 };
    begin(&x, "slots=4", 0);
    double bytes = 0;
    assert_ok(tn_wire_golds_open(&x.w.s, TN_VALID, &g));
    for (int64_t i = 0; i < 5; i++) {
        assert_ok(tn_wire_golds_read(&g, i));
        for (int64_t q = 0; q < g.n; q++) {
            tn_answer gold[1];
            (void)tn_wire_golds_of(&g, q, gold, 1);
            bytes += (double)gold->bytes;
            longest = (int64_t)gold->bytes > longest ? (int64_t)gold->bytes : longest;
        }
    }
    for (int k = 0; k < 2; k++) assert_int_equal(x.d.max_tokens[k], longest + 4);
    assert_true(x.d.bytes == bytes);
    const tn_wire_score *s = &x.c.score[TN_WIRE_LATENT][0];
    const double bpb = tn_wire_bits_per_byte(&x.d, s);
    assert_true(s->end_nll > 0 && fabs(bpb - (s->nll - s->end_nll) / log(2) / bytes) < 1e-12);
    tn_wire_golds_free(&g);
    end(&x);
    begin(&x, "slots=4", 2);
    assert_int_equal(x.d.max_tokens[0], 2);
    end(&x);
}

/* Which answer is taken, against candidates and scores that are made one by one on another session with the same weights, by speakers with as
 * many positions: a candidate that has no room is not taken. */
static void one_of_several_of(const char *reader, const char *task, int64_t max_tokens, const int64_t *longest)
{
    world x;
    wire_run y;
    tn_wire_golds g = { .n = 0 };
    tn_wire_speaker *v[2] = { NULL };
    tn_wire_words words[2] = { { .letter = 0 } };
    int64_t taken[2] = { 0 }, equal = 0;
    begin_with(&x, reader, task, max_tokens);
    wire_run_open_with(&y, reader, task);
    for (int k = 0; k < 2; k++) {
        const tn_wire_speaker_options o = {
            .trainer = y.s.trainer, .reader = (char)('a' + k), .batch = 1, .longest = longest[k]
        };
        assert_ok(tn_wire_speaker_new(&o, &v[k]));
        assert_ok(tn_wire_words_open(NULL, y.s.settings, (char)('a' + k), &words[k]));
    }
    assert_ok(tn_wire_golds_open(&x.w.s, TN_VALID, &g));
    for (int64_t i = 0; i < 5; i++) {
        const float *z = x.c.z + i * x.c.slots * x.c.width;
        assert_ok(tn_wire_golds_read(&g, i));
        for (int64_t q = 0; q < g.n; q++) {
            const tn_answer question = tn_wire_golds_question(&g, q);
            int32_t ids[64] = { 0 }; /* BOS and EOS are byte 0 */
            tn_wire_said said[2] = { { .nats = 0 }, { .nats = 0 } };
            double score[2] = { 0 };
            tn_answer_score same;
            for (size_t j = 0; j < question.bytes; j++) ids[1 + j] = (unsigned char)question.text[j];
            const tn_wire_row row = { ids, 1 + (int64_t)question.bytes };
            for (int k = 0; k < 2; k++) {
                const tn_wire_say_options how = { .max_tokens = x.d.max_tokens[k],
                                                  .ends = tn_wire_words_end,
                                                  .ends_ctx = &words[k] };
                assert_ok(tn_wire_speaker_say(v[k], &row, 1, z, 2, &how, &said[k]));
                assert_ok(tn_wire_words_spell(&words[k], &said[k]));
            }
            for (int of = 0; of < 2; of++)
                for (int k = 0; k < 2; k++) {
                    double nats;
                    int32_t answer[64] = { 0 };
                    for (size_t j = 0; j < said[of].text.n; j++) answer[j] = (unsigned char)said[of].text.data[j];
                    const tn_wire_row a = { answer, (int64_t)said[of].text.n + 1 };
                    if (a.n > tn_wire_speaker_room(v[k], &row, true)) {
                        score[of] = INFINITY;
                        continue;
                    }
                    assert_ok(tn_wire_speaker_score(v[k], &row, 1, z, 2, &a, &nats));
                    score[of] += nats / (double)a.n;
                }
            taken[score[1] < score[0]]++;
            const tn_answer one = { said[0].text.data, said[0].text.n };
            assert_ok(tn_answer_score_of((tn_answer){ said[1].text.data, said[1].text.n }, &one, 1, &same));
            equal += same.exact == 1;
            for (int k = 0; k < 2; k++) tn_wire_said_free(&said[k]);
        }
    }
    const tn_wire_joint *j = &x.d.joint;
    assert_true(taken[0] > 0 && taken[1] > 0 && taken[0] + taken[1] == 15);
    assert_true(j->taken[0] == taken[0] && j->taken[1] == taken[1] && j->agree == (double)equal);
    assert_true(j->em <= j->oracle_em && j->f1 <= j->oracle_f1 + 1e-9);
    for (int k = 0; k < 2; k++) {
        assert_true(j->oracle_f1 >= x.d.score[TN_WIRE_LATENT][k].f1_sum - 1e-9);
        tn_wire_speaker_free(v[k]);
        tn_wire_words_free(&words[k]);
    }
    tn_wire_golds_free(&g);
    wire_run_close(&y);
    end(&x);
}

static void one_of_several(void **state)
{
    (void)state;
    /* Of 60 slots, the anchor, BOS and 5 bytes, an answer of 3 bytes and its end fit reader b, and no bytes that were no UTF-8. */
    one_of_several_of("", "slots=4", 0, (int64_t[]){ 128, 128 });
    one_of_several_of("", "slots=60", 3, (int64_t[]){ 93, 70 });
}

/* What the first reader says of a text, read by each of them, row by row on another session with the same weights: so many tokens as a message
 * has slots, however few an answer has, or as many as there are positions behind that text. Answers are compared where no
 * note is cut: bytes that are no UTF-8 make it longer. */
static bool relay_of(const char *reader, int64_t slots, int64_t max_tokens, int64_t positions)
{
    char words_of[32];
    world x;
    wire_run y;
    tn_wire_golds g = { .n = 0 };
    tn_wire_speaker *v[2] = { NULL };
    tn_wire_words words[2] = { { .letter = 0 } };
    double nats[2] = { 0 };
    int64_t tokens = 0;
    bool whole = true;
    snprintf(words_of, sizeof words_of, "slots=%d", (int)slots);
    begin_with(&x, reader, words_of, max_tokens);
    wire_run_open_with(&y, reader, words_of);
    for (int k = 0; k < 2; k++) {
        const tn_wire_speaker_options o = {
            .trainer = y.s.trainer, .reader = (char)('a' + k), .batch = 1, .longest = positions
        };
        assert_ok(tn_wire_speaker_new(&o, &v[k]));
        assert_ok(tn_wire_words_open(NULL, y.s.settings, (char)('a' + k), &words[k]));
    }
    assert_ok(tn_wire_golds_open(&x.w.s, TN_VALID, &g));
    for (int64_t i = 0; i < 5; i++) {
        int32_t ids[128] = { 0 };
        tn_wire_said note = { .nats = 0 }, said = { .nats = 0 };
        assert_ok(tn_wire_golds_read(&g, i));
        const char *text = tn_wire_at(&g.example, g.example.context);
        const size_t n = g.example.context.bytes;
        for (size_t j = 0; j < n; j++) ids[1 + j] = (unsigned char)text[j];
        const int64_t room = positions - (int64_t)n;
        const tn_wire_say_options note_how = { .max_tokens = room < slots ? room : slots,
                                               .ends = tn_wire_words_end,
                                               .ends_ctx = &words[0] };
        assert_ok(tn_wire_speaker_say(v[0], &(tn_wire_row){ ids, 1 + (int64_t)n }, 1, NULL, 2, &note_how, &note));
        assert_ok(tn_wire_words_spell(&words[0], &note)); /* bytes that are no UTF-8 are others as text */
        assert_true(note.ended || (int64_t)note.ids.n == note_how.max_tokens);
        tokens += (int64_t)note.ids.n;
        whole = whole && note.text.n <= n;
        for (int64_t q = 0; q < g.n && whole; q++)
            for (int k = 0; k < 2; k++) {
                const tn_answer question = tn_wire_golds_question(&g, q);
                const tn_wire_say_options how = { .max_tokens = max_tokens,
                                                  .ends = tn_wire_words_end,
                                                  .ends_ctx = &words[k] };
                int32_t row[128] = { 0 };
                int64_t at = 1;
                for (size_t j = 0; j < note.text.n; j++) row[at++] = (unsigned char)note.text.data[j];
                row[at++] = '\n';
                for (size_t j = 0; j < question.bytes; j++) row[at++] = (unsigned char)question.text[j];
                assert_ok(tn_wire_speaker_say(v[k], &(tn_wire_row){ row, at }, 1, NULL, 2, &how, &said));
                nats[k] += said.nats;
            }
        tn_wire_said_free(&note);
        tn_wire_said_free(&said);
    }
    assert_true(tokens > 0 && x.d.relay_tokens == (double)tokens);
    for (int k = 0; k < 2; k++) {
        assert_true(!whole || fabs(x.d.relay[k].nats - nats[k]) < 1e-4 * nats[k]);
        assert_true(fabs(x.d.relay[k].nats - x.d.score[TN_WIRE_TEXT][k].nats) > 1e-3);
        tn_wire_speaker_free(v[k]);
        tn_wire_words_free(&words[k]);
    }
    tn_wire_golds_free(&g);
    wire_run_close(&y);
    end(&x);
    return whole;
}

static void relay(void **state)
{
    (void)state;
    assert_true(relay_of("", 9, 5, 128));
    relay_of("", 24, 1, 128);
    relay_of("train.context=48", 24, 1, 48);
}

static tn_status stop_at(void *ctx)
{
    int64_t *left = ctx;
    return (*left)-- > 0 ? TN_OK : tn_error(TN_INTERRUPTED, "enough");
}

/* An interrupt is heard within a batch, wherever it comes: of 3 batches, read twice, there are many tokens. */
static void interrupted(void **state)
{
    (void)state;
    wire_run w;
    tn_wire_controls c;
    tn_wire_decoded d;
    int64_t all = 1 << 20, asked;
    tn_wire_decoded_options o = { .split = TN_VALID, .seed = 7, .max_tokens = 2, .stop = stop_at, .ctx = &all };
    wire_run_open(&w, "slots=3");
    assert_ok(tn_wire_controls_run(&w.s, 7, NULL, NULL, &c));
    assert_ok(tn_wire_decoded_run(&w.s, &c, &o, &d));
    asked = (1 << 20) - all;
    tn_wire_decoded_free(&d);
    /* Of 3 batches: 8 methods and the relay, two readers, a row and 2 tokens of each; the note; 4 scores. */
    assert_int_equal(asked, 3 + 3 * (1 + 9 * 2 * 3 + 4 + 4));
    for (int64_t at = 0; at < asked; at += 5) {
        int64_t left = at;
        o.ctx = &left;
        assert_fails(tn_wire_decoded_run(&w.s, &c, &o, &d), TN_INTERRUPTED, "enough");
    }
    tn_wire_controls_free(&c);
    wire_run_close(&w);
}

/* Copies from afar: by hand. */
static void far_copies(void **state)
{
    (void)state;
    /* BOS, a context of 8, a continuation of 6. Pairs (1 2) and (3 4) stand before the last three tokens, (5 6) among these. */
    static const int32_t row[] = { 99, 1, 2, 3, 4, 7, 8, 5, 6, 1, 2, 5, 6, 1, 2, 3, 4 };
    bool far[8];
    assert_int_equal(tn_wire_far(row, 8, 3, 9, 8, far), 3);
    /*             6 1    1 2    2 5    5 6 is near   6 1: the continuation has it   1 2: so too   2 3: afar   3 4 */
    const bool want[8] = { false, true, false, false, false, false, true, true };
    assert_memory_equal(far, want, sizeof far);
    assert_int_equal(tn_wire_far(row, 8, 0, 9, 8, far), 4); /* nothing is near: 5 6 too */
    assert_int_equal(tn_wire_far(row, 8, 8, 9, 8, far), 0);
}

static void recovered(void **state)
{
    (void)state;
    tn_wire_controls c = { .readers = 1 };
    c.score[TN_WIRE_NONE][0] = (tn_wire_score){ .nll = 12, .end_nll = 2, .far_nll = 4, .far = 2 };
    c.score[TN_WIRE_TEXT][0] = (tn_wire_score){ .nll = 7, .end_nll = 1, .far_nll = 2, .far = 2 };
    c.score[TN_WIRE_LATENT][0] = (tn_wire_score){ .nll = 8, .end_nll = 1, .far_nll = 3.5, .far = 2 };
    assert_true(tn_wire_recovered(&c, TN_WIRE_LATENT, 0, false) == 0.75);
    assert_true(tn_wire_recovered(&c, TN_WIRE_LATENT, 0, true) == 0.25);
    assert_true(tn_wire_recovered(&c, TN_WIRE_TEXT, 0, false) == 1 &&
                tn_wire_recovered(&c, TN_WIRE_NONE, 0, false) == 0);
    c.score[TN_WIRE_NONE][0].nll = 8; /* the text gains nothing */
    assert_true(isnan(tn_wire_recovered(&c, TN_WIRE_LATENT, 0, false)));
    c.score[TN_WIRE_TEXT][0].far = 0;
    assert_true(isnan(tn_wire_recovered(&c, TN_WIRE_LATENT, 0, true)));
}

void tn_tests_decoded(tn_test_list *l)
{
    tn_test_add(l, as_decoded_one_by_one, NULL, "wire answers: scores of what is decoded one by one");
    tn_test_add(l, agrees_with_teacher_forcing, NULL, "wire answers: decoding agrees with teacher forcing");
    tn_test_add(l, lengths, NULL, "wire answers: as long as the longest, whatever the question");
    tn_test_add(l, one_of_several, NULL, "wire answers: one of several readers");
    tn_test_add(l, relay, NULL, "wire answers: from what another reader says of the text");
    tn_test_add(l, interrupted, NULL, "wire answers: an interrupt is heard at each token");
    tn_test_add(l, far_copies, NULL, "wire controls: copies from afar");
    tn_test_add(l, recovered, NULL, "wire controls: the recovered gain");
}
