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
    assert_fails(tn_dataset_open(path, &(tn_dataset_options){ .window = 51 }, &data), TN_BAD_FILE, "windows of 50 tokens");
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
    tn_test_add(l, raw_tokens, "tests/token/mini_qwen2.json", "raw: tokens as prepared, with an end-of-text token");
    tn_test_add(l, raw_tokens, "tests/token/mini_llama2c.bin", "raw: tokens as prepared, llama2.c");
}
