/* The file of a lesson: numbers come back as they were, whose key it has, and files that are refused. */
#include "wire_world.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "tasks/wire/wire_teach.h"

#include <sys/stat.h>

#define WORDS "task=recall task.size=70 task.heldout=6 task.pairs=3 task.keys=60"
enum { TOP = 5, STATES = 12, VOCAB = 40, MOST = 64 };

typedef struct world {
    tn_tempdir d;
    tn_tokenizer *tokenizer[2];
    tn_wire_reader reader[2];
    tn_wire_texts *texts;
    tn_wire_store *store;
    tn_wire_lesson lesson;
    char path[TN_PATH_BYTES];
} world;

static const char *const about[] = { "weights of a", "weights of b" };

static void begin(world *w, tn_dtype type)
{
    *w = (world){ .tokenizer = { tn_wire_bpe(320) } };
    tn_tempdir_make(&w->d);
    assert_ok(tn_tokenizer_open("bytes", &w->tokenizer[1]));
    for (int r = 0; r < 2; r++) w->reader[r] = tn_wire_reader_of((char)('a' + r), w->tokenizer[r]);
    w->texts = tn_wire_open(WORDS);
    assert_ok(tn_wire_store_open(w->texts, w->reader, 2, NULL, &w->store));
    w->lesson = (tn_wire_lesson){ .store = w->store, .readers = 2, .type = type };
    w->lesson.taught[0] = (tn_wire_taught){ .reader = 0, .top = TOP, .vocab = VOCAB, .states = STATES };
    w->lesson.taught[1] = (tn_wire_taught){ .reader = 1, .states = STATES + 1 }; /* of one only states are kept */
    assert_ok(tn_wire_lesson_key(&w->lesson, about));
    snprintf(w->path, sizeof w->path, "%s/teach.bin", w->d.path);
}

static void end(world *w)
{
    tn_wire_store_free(w->store);
    tn_wire_texts_free(w->texts);
    for (int r = 0; r < 2; r++) tn_tokenizer_free(w->tokenizer[r]);
    tn_tempdir_clear(&w->d);
}

/* Numbers that a bf16 holds. */
static void make_up(const world *w, size_t k, int64_t q, tn_wire_numbers *x)
{
    const int64_t n = tn_wire_lesson_tokens(&w->lesson, k, q, NULL), states = w->lesson.taught[k].states;
    assert_true(n >= 2 && n < MOST);
    for (int64_t i = 0; i < n * TOP; i++) {
        x->ids[i] = (int32_t)((q + 7 * i) % VOCAB);
        x->logits[i] = -0.001f * (float)(q + i);
    }
    for (int64_t i = 0; i < n; i++) x->lse[i] = 1 + 0.01f * (float)(q * 3 + i);
    for (int64_t i = 0; i < n * states; i++) x->states[i] = (float)((q * 31 + i * 5 + (int64_t)k) % 127) / 64 - 1;
}

typedef struct room {
    int32_t ids[MOST * TOP];
    float logits[MOST * TOP], lse[MOST], states[MOST * (STATES + 1)];
} room;

static tn_wire_numbers said_of(room *r) { return (tn_wire_numbers){ r->ids, r->logits, r->lse, r->states }; }

static tn_status write_until(world *w, int64_t questions, tn_wire_teach_writer **out)
{
    room r;
    int64_t first;
    tn_wire_numbers x = said_of(&r);
    const int64_t n = tn_wire_lesson_questions(&w->lesson, &first);
    assert_ok(tn_wire_teach_begin(&w->lesson, w->path, out));
    for (int64_t q = first; q < first + n && q < first + questions; q++)
        for (size_t k = 0; k < 2; k++) {
            make_up(w, k, q, &x);
            TN_RETURN_IF(tn_wire_teach_add(*out, &x));
        }
    return TN_OK;
}

static void write_all(world *w)
{
    tn_wire_teach_writer *to;
    assert_ok(write_until(w, 1 << 30, &to));
    assert_ok(tn_wire_teach_finish(to));
    tn_wire_teach_abort(to);
}

static void comes_back(void **state)
{
    static const tn_dtype types[] = { TN_F32, TN_BF16 };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        world w;
        tn_wire_teach *t = NULL;
        room want, got;
        struct stat st;
        int64_t first;
        begin(&w, types[i]);
        write_all(&w);
        assert_int_equal(tn_tempdir_entries(&w.d, false), 1);
        assert_int_equal(stat(w.path, &st), 0);
        assert_true((uint64_t)st.st_size == tn_wire_teach_bytes(&w.lesson));
        assert_ok(tn_wire_teach_open(&w.lesson, w.path, &t));
        const int64_t questions = tn_wire_lesson_questions(&w.lesson, &first);
        assert_int_equal(questions, 70 * 3);
        for (int64_t k = 2 * questions; k-- > 0;) { /* backwards: any order will do */
            const int64_t q = first + k / 2, n = tn_wire_lesson_tokens(&w.lesson, (size_t)k % 2, q, NULL);
            tn_wire_numbers x = said_of(&want), y = said_of(&got);
            make_up(&w, (size_t)k % 2, q, &x);
            if (k % 2) y.ids = NULL, y.logits = y.lse = NULL;
            assert_ok(tn_wire_teach_read(t, (size_t)k % 2, q, &y));
            assert_memory_equal(got.states, want.states, sizeof(float) * (size_t)(n * (STATES + k % 2)));
            if (k % 2) continue;
            assert_memory_equal(got.ids, want.ids, sizeof(float) * (size_t)(n * TOP));
            assert_memory_equal(got.logits, want.logits, sizeof(float) * (size_t)(n * TOP));
            assert_memory_equal(got.lse, want.lse, sizeof(float) * (size_t)n);
        }
        tn_wire_teach_close(t);
        end(&w);
    }
}

/* Where labels count: the answer's tokens and the end. */
static void tokens_are_those_of_labels(void **state)
{
    (void)state;
    world w;
    int64_t first, at;
    begin(&w, TN_F32);
    const int64_t n = tn_wire_lesson_questions(&w.lesson, &first);
    for (int64_t q = first; q < first + n; q++)
        for (size_t k = 0; k < 2; k++) {
            const tn_wire_sequence s = tn_wire_store_sequence(w.store, k, 0, q, false);
            const int64_t count = tn_wire_lesson_tokens(&w.lesson, k, q, &at);
            assert_int_equal(at, tn_wire_answer(&s));
            assert_int_equal(at + count, tn_wire_length(&s));
        }
    end(&w);
}

/* A process that ends on the way leaves nothing under the name. */
static void whole_or_not_at_all(void **state)
{
    (void)state;
    world w;
    tn_wire_teach_writer *to;
    tn_wire_teach *t = NULL;
    begin(&w, TN_F32);
    assert_ok(write_until(&w, 30, &to));
    assert_fails(tn_wire_teach_finish(to), TN_INTERNAL, "before the last of it");
    tn_wire_teach_abort(to);
    assert_int_equal(tn_tempdir_entries(&w.d, false), 0);
    assert_fails(tn_wire_teach_open(&w.lesson, w.path, &t), TN_BAD_FILE, "teach.bin");
    end(&w);
}

static void another_key(void **state)
{
    (void)state;
    world w;
    char key[8][TN_HASH_BYTES];
    static const char *const other[] = { "weights of a", "weights of c" };
    begin(&w, TN_F32);
    for (int i = 0; i < 7; i++) {
        tn_wire_lesson l = w.lesson;
        tn_wire_taught *x = &l.taught[0];
        if (i == 1) x->top++;
        if (i == 2) x->states++;
        if (i == 3) x->vocab++;
        if (i == 4) l.type = TN_BF16;
        if (i == 5) l.readers = 1;
        assert_ok(tn_wire_lesson_key(&l, i == 6 ? other : about));
        memcpy(key[i], l.key, sizeof key[i]);
        for (int k = 0; k < i; k++) assert_string_not_equal(key[i], key[k]);
    }
    assert_string_equal(key[0], w.lesson.key);
    w.store->key[0] ^= 1; /* other texts */
    assert_ok(tn_wire_lesson_key(&w.lesson, about));
    assert_string_not_equal(key[0], w.lesson.key);
    end(&w);
}

static void refused(void **state)
{
    /* Header: magic 0, payload 8, key 16, zeros 49, numbers from 56 on. */
    static const struct {
        const char *said;
        long at; /* below 0: from the end */
        long grow;
    } rows[] = {
        { "it is no file of what models gave", 0, 0 },
        { "its header is damaged", 8, 0 },
        { "its header is damaged", 15, 0 },
        { "of other readers, texts or settings", 20, 0 },
        { "not what was written", 50, 0 },
        { "not what was written", 56, 0 },
        { "not what was written", 9999, 0 },
        { "not what was written", -40, 0 },
        { "not what was written", -2, 0 },
        { "it was cut", 56, -1 },
        { "it was cut", 56, -9000 },
        { "something was added", 56, 1 },
        { "it was cut", 0, -100000000 },
    };
    (void)state;
    world w;
    char *good;
    size_t n;
    begin(&w, TN_F32);
    write_all(&w);
    assert_ok(tn_file_read_all(w.path, 1 << 28, &good, &n));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tn_wire_teach *t = NULL;
        char *bad = tn_alloc(n + 2);
        const long grown = (long)n + rows[i].grow;
        memcpy(bad, good, n);
        bad[rows[i].at < 0 ? (long)n + rows[i].at : rows[i].at] ^= 1;
        tn_put_file(w.path, bad, grown > 0 ? (size_t)grown : 0);
        assert_fails(tn_wire_teach_open(&w.lesson, w.path, &t), TN_BAD_FILE, rows[i].said);
        if (!strstr(tn_error_text(), "remove the file")) fail_msg("%zu: %s", i, tn_error_text());
        assert_null(t);
        tn_free(bad);
    }
    tn_free(good);
    end(&w);
}

/* What would be used as an index is looked at again. */
static void changed_later(void **state)
{
    (void)state;
    world w;
    tn_wire_teach *t = NULL;
    room r;
    tn_wire_numbers x = said_of(&r);
    int64_t first;
    const int32_t bad = VOCAB;
    begin(&w, TN_F32);
    write_all(&w);
    assert_ok(tn_wire_teach_open(&w.lesson, w.path, &t));
    (void)tn_wire_lesson_questions(&w.lesson, &first);
    assert_ok(tn_wire_teach_read(t, 0, first, &x));
    FILE *f = fopen(w.path, "r+b");
    assert_true(f && fseek(f, 56, SEEK_SET) == 0 && fwrite(&bad, sizeof bad, 1, f) == 1 && fclose(f) == 0);
    assert_fails(tn_wire_teach_read(t, 0, first, &x), TN_BAD_FILE, "changed after it was opened");
    assert_int_equal(truncate(w.path, 1000), 0);
    assert_fails(tn_wire_teach_read(t, 1, first + 100, &x), TN_BAD_FILE, "teach.bin");
    tn_wire_teach_close(t);
    end(&w);
}

void tn_tests_wire_teach(tn_test_list *l)
{
    tn_test_add(l, comes_back, NULL, "wire teach: what is kept comes back, in f32 and bf16");
    tn_test_add(l, tokens_are_those_of_labels, NULL, "wire teach: tokens are those that have labels");
    tn_test_add(l, whole_or_not_at_all, NULL, "wire teach: a file is whole or not there");
    tn_test_add(l, another_key, NULL, "wire teach: other readers, texts or sizes have another key");
    tn_test_add(l, refused, NULL, "wire teach: damaged, cut and foreign files are refused");
    tn_test_add(l, changed_later, NULL, "wire teach: a file that changes later is an error");
}
