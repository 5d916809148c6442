/* A source with batches made ahead is the source without: the same inputs, cursors, marks and words, whatever is asked in between. */
#include "train/run/session.h"

#include "dataset_files.h"

#include <string.h>

/* Sentence pairs: the files that "task.data=@" stands for. */
static void put_pairs(const tn_tempdir *d)
{
    static const char *const names[] = { "snli_train.tsv", "snli_dev.tsv", "snli_test.tsv" };
    char path[1024], text[8192];
    for (int k = 0; k < 3; k++) {
        int n = sprintf(text, "gold_label\tsentence1\tsentence2\n");
        for (int i = 0; i < 30 - 9 * k; i++)
            n += sprintf(text + n, "entailment\tThe %s %d sees a tree .\tSomebody sees %d trees .\n", names[k] + 5, i,
                         i);
        assert_ok(tn_path_join(d->path, names[k], path, sizeof path));
        tn_put_file(path, text, (size_t)n);
    }
}

static tn_session open_run(const char *const *row, const char *ahead)
{
    char text[600], data[300];
    const char *set[24];
    size_t n = 0;
    tn_tempdir d;
    tn_session on;
    snprintf(text, sizeof text, "%s %s threads=1 train.batch=4", row[1], ahead);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));) set[n++] = word;
    tn_tempdir_make(&d);
    for (size_t i = 0; i < n; i++)
        if (strcmp(set[i], "task.data=@") == 0) {
            put_pairs(&d);
            snprintf(data, sizeof data, "task.data=%s", d.path);
            set[i] = data;
        }
    assert_ok(tn_session_open(row[0], set, n, true, &on));
    tn_tempdir_remove(&d); /* sentences are in memory */
    assert_true((on.source.prefetch != NULL) == (strcmp(ahead, "loader.workers=0") != 0));
    return on;
}

static void assert_same_feed(tn_session *a, tn_session *b)
{
    const tn_feed x = tn_trainer_feed_again(a->trainer), y = tn_trainer_feed_again(b->trainer);
    assert_true(x.batch == y.batch && x.length == y.length && *x.valid == *y.valid && x.inputs->n == y.inputs->n);
    for (size_t i = 0; i < x.inputs->n; i++)
        if (x.at[i])
            assert_memory_equal(x.at[i], y.at[i],
                                sizeof(float) * (size_t)tn_input_items(&x.inputs->slot[i], x.batch, x.length));
}

static void assert_same_cursor(const tn_session *a, const tn_session *b)
{
    json_t *x = tn_source_save(&a->source), *y = tn_source_save(&b->source);
    assert_true(x && y && json_equal(x, y));
    json_decref(x);
    json_decref(y);
}

static void take(tn_session *a, tn_session *b, int64_t step)
{
    int64_t n, m;
    assert_ok(tn_source_next(&a->source, step, a->trainer, &n));
    assert_ok(tn_source_next(&b->source, step, b->trainer, &m));
    assert_int_equal(n, m);
    assert_same_feed(a, b);
}

static void same_batches(void **state)
{
    const char *const *row = *state;
    char said[2][200];
    tn_source_mark mark;
    int64_t n, m;
    static const char *const ways[] = { "loader.prefetch=1", "loader.prefetch=3", "loader.workers=4" };
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        tn_session a = open_run(row, "loader.workers=0"), b = open_run(row, ways[way]);
        const int64_t each = tn_settings_int(a.settings, "train.accumulate");
        for (int64_t step = 0; step < 30; step++) {
            tn_source_mark_here(&b.source, &mark);
            for (int64_t k = 0; k < each; k++) take(&a, &b, step);
            if (step % 7 == 3) { /* a look at a batch, and a cursor, which move the source */
                tn_source_describe(&a.source, 1, said[0], sizeof said[0]);
                tn_source_describe(&b.source, 1, said[1], sizeof said[1]);
                assert_string_equal(said[0], said[1]);
            }
            if (step % 5 == 2) assert_same_cursor(&a, &b);
            if (step % 4 == 1) tn_source_rest(&b.source);
            for (int64_t i = 0; step % 11 == 4 && i < 2; i++) { /* held-out batches between two steps */
                assert_ok(tn_source_heldout(&a.source, i, a.trainer, &n));
                assert_ok(tn_source_heldout(&b.source, i, b.trainer, &m));
                assert_int_equal(n, m);
                assert_same_feed(&a, &b);
            }
            if (step % 9 == 6) { /* the step once more, as a diagnosis does */
                assert_ok(tn_source_back(&a.source, &mark));
                assert_ok(tn_source_back(&b.source, &mark));
                for (int64_t k = 0; k < each; k++) take(&a, &b, step);
            }
        }
        json_t *at = tn_source_save(&a.source);
        take(&a, &b, 30);
        assert_ok(tn_source_load(&b.source, at)); /* back to where it was saved */
        assert_ok(tn_source_load(&a.source, at));
        take(&a, &b, 30);
        json_decref(at);
        tn_session_close(&a);
        tn_session_close(&b);
    }
}

/* Samples by default; environments never. A run that ends with batches waiting leaves nothing behind (the sanitizers look). */
static void by_default(void **state)
{
    const char *const tasks[][2] = { { "tep", "task=xor" }, { "tep", "task=cartpole" } };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        tn_session on;
        assert_ok(tn_session_open(tasks[i][0], &tasks[i][1], 1, true, &on));
        assert_true((on.source.prefetch != NULL) == (i == 0));
        tn_session_close(&on);
    }
    tn_session env;
    const char *const set[] = { "task=cartpole", "loader.prefetch=3" };
    assert_ok(tn_session_open("tep", set, 2, true, &env));
    assert_null(env.source.prefetch); /* an environment acts with the weights of now */
    tn_session_close(&env);
}

/* Batches that wait are counted; one that is cut takes none from the trainer that is gone (the sanitizers look). */
static void memory_and_halves(void **state)
{
    const char *const *row = *state;
    int64_t n;
    tn_session a = open_run(row, "loader.workers=0"), b = open_run(row, "loader.prefetch=3");
    size_t each = 0;
    for (size_t i = 0; i < tn_trainer_inputs(b.trainer)->n; i++)
        if (tn_trainer_inputs(b.trainer)->slot[i].read)
            each += sizeof(float) * (size_t)tn_input_items(&tn_trainer_inputs(b.trainer)->slot[i], b.batch, b.length);
    assert_int_equal(tn_trainer_memory(b.trainer).data - tn_trainer_memory(a.trainer).data, 3 * each);
    for (int i = 0; i < 2; i++) {
        assert_ok(tn_source_next(&b.source, 0, b.trainer, &n));
        assert_ok(tn_session_lower(&b));
        assert_true(b.source.prefetch && b.source.split && tn_trainer_microbatches(b.trainer) == 2 << i);
    }
    assert_ok(tn_source_next(&b.source, 0, b.trainer, &n));
    tn_session_close(&a);
    tn_session_close(&b);
}

#define SURFACES "task.images=strokes task.size=30 task.pool=4"
static const char *const rows[][2] = {
    { "ten", "task=mqar task.pairs=2,4 train.context=16" },
    { "gpt_tiny", "task=tokens_copy task.lengths=8,16,32 train.accumulate=2" },    /* plans of three widths */
    { "tep", "task=xor train.accumulate=3 seed=4" },                               /* short last batches */
    { "net", "task=route task.dx=2 train.accumulate=2 train.steps=30 " SURFACES }, /* targets grow by step */
    { "net", "task=restore " SURFACES },                                           /* noise is drawn by step */
    { "bridge",
      "task=snli task.data=@ task.vocab=300 width=4 height=3 prefix=3 dim=8 heads=2 ffn=8 layers=1 body=identity "
      "decoder.dim=8 decoder.heads=2 decoder.layers=1" },
};

static int first_word(const char *text) { return (int)strcspn(text, " "); }

void tn_tests_prefetch(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tn_test_add(l, same_batches, rows[i], "ahead: %s %.*s", rows[i][0], first_word(rows[i][1]), rows[i][1]);
    for (size_t i = 0; i < 2; i++)
        tn_test_add(l, memory_and_halves, rows[i], "ahead: memory, and half the batch, %s %.*s", rows[i][0],
                    first_word(rows[i][1]), rows[i][1]);
    tn_test_add(l, by_default, NULL, "ahead: samples, but not environments");
}
