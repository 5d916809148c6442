/* Raw text as a data set: what is held out of one document, and tokens made in memory. */
#include "data/dataset.h"
#include "dataset_files.h"

/* A part of one document has at least a window, and a text too short for two is refused. */
static void held_out_window(void **state)
{
    (void)state;
    tn_tempdir dir;
    tn_dataset *data = NULL;
    char text[100];
    tn_tempdir_make(&dir);
    memset(text, 'a', sizeof text);
    const char *path = tn_tempdir_file(&dir, "t.txt");
    tn_put_file(path, text, sizeof text);
    assert_ok(tn_dataset_open(path, &(tn_dataset_options){ .holdout_frac = 0.01, .window = 41 }, &data));
    assert_int_equal(tn_dataset_count(data, TN_VALID).tokens, 41);
    tn_dataset_close(data);
    assert_ok(tn_dataset_open(path, &(tn_dataset_options){ .holdout_frac = 0.9, .window = 41 }, &data));
    assert_int_equal(tn_dataset_count(data, TN_TRAIN).tokens, 41);
    tn_dataset_close(data);
    assert_fails(tn_dataset_open(path, &(tn_dataset_options){ .window = 51 }, &data), TN_BAD_FILE,
                 "windows of 50 tokens");
    tn_tempdir_clear(&dir);
}

/* The test is the very end, what is held out lies before it, and every byte is in one part. */
static void test_part(void **state)
{
    (void)state;
    static const struct {
        double held, test;
        uint64_t window, parts[3];
    } rows[] = {
        { 0.1, 0.2, 0, { 70, 10, 20 } },  { 0.01, 0.01, 11, { 78, 11, 11 } }, { 0.5, 0.45, 30, { 30, 30, 40 } },
        { 0.3, 0.6, 33, { 33, 33, 34 } }, { 0.1, 0, 0, { 90, 10, 0 } },
    };
    tn_tempdir dir;
    tn_dataset *data = NULL;
    char text[100];
    tn_tempdir_make(&dir);
    for (int i = 0; i < 100; i++) text[i] = (char)i;
    const char *path = tn_tempdir_file(&dir, "t.txt"), *many = tn_tempdir_file(&dir, "d.jsonl");
    tn_put_file(path, text, sizeof text);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const tn_dataset_options o = { .holdout_frac = rows[r].held,
                                       .test_frac = rows[r].test,
                                       .window = rows[r].window };
        int32_t ids[100], at = 0;
        assert_ok(tn_dataset_open(path, &o, &data));
        for (int k = 0; k < TN_SPLITS; k++) {
            const uint64_t n = tn_dataset_count(data, (tn_data_split)k).tokens;
            assert_int_equal(n, rows[r].parts[k]);
            if (n) assert_ok(tn_dataset_read(data, (tn_data_split)k, 0, n, ids));
            for (uint64_t i = 0; i < n; i++) assert_int_equal(ids[i], at++);
        }
        tn_dataset_close(data);
    }
    assert_fails(tn_dataset_open(path, &(tn_dataset_options){ .test_frac = 0.1, .window = 34 }, &data), TN_BAD_FILE,
                 "windows of 33");
    assert_fails(tn_dataset_open(path, &(tn_dataset_options){ .holdout_frac = 0.5, .test_frac = 0.5 }, &data), TN_USAGE,
                 "nothing of");
    tn_put_documents(many, 40);
    assert_ok(tn_dataset_open(many, &(tn_dataset_options){ .holdout_frac = 0.2, .test_frac = 0.2 }, &data));
    uint64_t documents = 0;
    for (int k = 0; k < TN_SPLITS; k++) {
        assert_true(tn_dataset_count(data, (tn_data_split)k).documents > 0);
        documents += tn_dataset_count(data, (tn_data_split)k).documents;
    }
    assert_int_equal(documents, 40);
    tn_dataset_close(data);
    tn_tempdir_clear(&dir);
}

/* Raw text with a tokenizer holds the tokens that preparing it makes, and the bytes of its text. */
static void raw_tokens(void **state)
{
    const char *const tokenizer = *state;
    tn_tempdir dir;
    tn_dataset *raw = NULL, *made = NULL;
    int32_t a[8192], b[8192];
    char settings[200];
    tn_tempdir_make(&dir);
    const char *in = tn_tempdir_file(&dir, "d.jsonl");
    tn_put_documents(in, 40);
    snprintf(settings, sizeof settings, "tokenizer=%s valid_frac=0 test_frac=0", tokenizer);
    assert_ok(tn_prepare_try(in, tn_tempdir_file(&dir, "made"), settings, NULL));
    assert_ok(tn_dataset_open(tn_tempdir_file(&dir, "made"), NULL, &made));
    assert_ok(tn_dataset_open(in, &(tn_dataset_options){ .tokenizer = tokenizer }, &raw));
    const tn_dataset_counts x = tn_dataset_count(raw, TN_TRAIN), y = tn_dataset_count(made, TN_TRAIN);
    assert_true(x.tokens == y.tokens && x.documents == y.documents && x.text_bytes == y.text_bytes && x.tokens < 8192);
    assert_true(tn_dataset_about(raw)->eot == tn_dataset_about(made)->eot && x.text_bytes > x.tokens);
    assert_ok(tn_dataset_read(raw, TN_TRAIN, 0, x.tokens, a));
    assert_ok(tn_dataset_read(made, TN_TRAIN, 0, x.tokens, b));
    assert_memory_equal(a, b, x.tokens * sizeof *a);
    for (uint64_t i = 0, p, q, n, m; i < x.documents; i++) {
        assert_ok(tn_dataset_document(raw, TN_TRAIN, i, &p, &n));
        assert_ok(tn_dataset_document(made, TN_TRAIN, i, &q, &m));
        assert_true(p == q && n == m);
    }
    tn_dataset_close(raw);
    tn_dataset_close(made);
    tn_tempdir_clear(&dir);
}

void tn_tests_raw(tn_test_list *l)
{
    tn_test_add(l, held_out_window, NULL, "raw: a window in each part of one document");
    tn_test_add(l, test_part, NULL, "raw: a test part");
    tn_test_add(l, raw_tokens, "tests/token/mini_qwen2.json", "raw: tokens as prepared, with an end-of-text token");
    tn_test_add(l, raw_tokens, "tests/token/mini_llama2c.bin", "raw: tokens as prepared, llama2.c");
}
