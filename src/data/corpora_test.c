/* Public data sets through the whole path: known counts of documents, bytes, samples and classes; a trained and a foreign
 * tokenizer. Skipped where the files are not there. */
#include "data/documents.h"
#include "data/loader.h"
#include "dataset_files.h"
#include "io/stream.h"

typedef struct corpus {
    const char *name, *file, *settings;
    uint64_t documents, text_bytes; /* arrays: samples, 0 */
    int64_t sample, classes;
} corpus;

static const corpus corpora[] = {
    { "wikitext-2 valid", "text/wikitext-2/valid.txt.gz", "doc_sep=wikitext", 60, 1121681, 0, 0 },
    { "wikitext-2 test", "text/wikitext-2/test.txt.gz", "doc_sep=wikitext", 60, 1256449, 0, 0 },
    { "wikitext-2 raw test", "text/wikitext-2-raw/wiki.test.raw.gz", "doc_sep=wikitext", 60, 1290590, 0, 0 },
    { "tinystories", "text/tinystories/tinystories_1000.json.gz", "", 1000, 0, 0, 0 },
    { "names", "text/names.txt", "doc_sep=line", 32033, 228145 - 32032, 0, 0 },
    { "moby dick", "text/books/moby-dick.txt.gz", "doc_bytes=0", 1, 1204997, 0, 0 },
    { "mnist test", "images/mnist/t10k-images-idx3-ubyte.gz", "", 10000, 0, 784, 10 },
    { "digits", "images/digits/digits.csv.gz", "", 1797, 0, 64, 10 },
};

static void counts(void **state)
{
    const corpus *c = *state;
    tn_tempdir d;
    tn_dataset *data = NULL;
    char settings[128], out[1024];
    const char *path = tn_test_data(c->file);
    if (!path) return;
    tn_tempdir_make(&d);
    snprintf(settings, sizeof settings, "valid_frac=0 %s", c->settings);
    snprintf(out, sizeof out, "%s", tn_tempdir_file(&d, "out"));
    assert_ok(tn_prepare_try(path, out, settings, NULL));
    assert_ok(tn_dataset_open(out, NULL, &data));
    assert_ok(tn_dataset_verify(data));
    const tn_dataset_counts n = tn_dataset_count(data, TN_TRAIN);
    assert_int_equal(n.documents, c->documents);
    if (c->text_bytes) assert_int_equal(n.text_bytes, c->text_bytes);
    if (c->sample) {
        assert_int_equal(tn_dataset_about(data)->sample, c->sample);
        assert_int_equal(tn_dataset_about(data)->classes, c->classes);
    }
    tn_dataset_close(data);
    tn_tempdir_clear(&d);
}

/* The first image of MNIST's test set is a 7, in grey values 0..255; a loader gives it as 0..1. */
static void mnist_first(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_dataset *data = NULL;
    tn_loader *l = NULL;
    const tn_loader_batch *b;
    char out[1024];
    const char *path = tn_test_data("images/mnist/t10k-images-idx3-ubyte.gz");
    if (!path) return;
    tn_tempdir_make(&d);
    snprintf(out, sizeof out, "%s", tn_tempdir_file(&d, "out"));
    assert_ok(tn_prepare_try(path, out, "valid_frac=0", NULL));
    assert_ok(tn_dataset_open(out, NULL, &data));
    assert_ok(tn_loader_open(&(tn_loader_options){ .dataset = data, .batch = 4, .evaluate = true }, &l));
    assert_ok(tn_loader_next(l, &b));
    static const int32_t labels[] = { 7, 2, 1, 0 };
    assert_memory_equal(b->labels, labels, sizeof labels);
    float most = 0;
    for (int i = 0; i < 784; i++) most = b->features[i] > most ? b->features[i] : most;
    assert_true(most > 0.99f && most <= 1);
    tn_loader_free(l);
    tn_dataset_close(data);
    tn_tempdir_clear(&d);
}

/* Stories with a tokenizer: every document begins with the end-of-text token, decodes to its text, and the folder is enough. */
static void stories(const char *tokenizer_setting)
{
    tn_tempdir d;
    tn_dataset *data = NULL;
    tn_tokenizer *t = NULL;
    tn_text text = { 0 };
    char out[1024], settings[1200];
    const char *path = tn_test_data("text/tinystories/tinystories_1000.json.gz");
    if (!path) return;
    tn_tempdir_make(&d);
    snprintf(out, sizeof out, "%s", tn_tempdir_file(&d, "out"));
    snprintf(settings, sizeof settings, "%s valid_frac=0.1", tokenizer_setting);
    assert_ok(tn_prepare_try(path, out, settings, NULL));
    assert_ok(tn_dataset_open(out, NULL, &data));
    assert_ok(tn_dataset_verify(data));
    assert_ok(tn_tokenizer_open(tn_dataset_about(data)->tokenizer, &t));
    const int32_t eot = tn_dataset_about(data)->eot;
    assert_true(eot >= 0 && eot == tn_tokenizer_special(t, TN_TOKEN_END));
    uint64_t bytes = 0;
    for (tn_data_split k = TN_TRAIN; k <= TN_VALID; k++)
        for (uint64_t i = 0; i < tn_dataset_count(data, k).documents; i++) {
            int32_t ids[8192];
            uint64_t start, tokens;
            assert_ok(tn_dataset_document(data, k, i, &start, &tokens));
            assert_true(tokens < 8192);
            assert_ok(tn_dataset_read(data, k, start, tokens, ids));
            assert_int_equal(ids[0], eot);
            text.n = 0;
            assert_ok(tn_tokenizer_decode(t, ids + 1, tokens - 1, &text));
            bytes += text.n;
        }
    assert_int_equal(bytes, tn_dataset_count(data, TN_TRAIN).text_bytes + tn_dataset_count(data, TN_VALID).text_bytes);
    assert_true(tn_dataset_count(data, TN_VALID).documents > 50);
    tn_text_free(&text);
    tn_tokenizer_free(t);
    tn_dataset_close(data);
    tn_tempdir_clear(&d);
}

static void trained_tokenizer(void **state)
{
    (void)state;
    stories("tokenizer=train:1000");
}

static void foreign_tokenizer(void **state)
{
    (void)state;
    char setting[1100];
    const char *path = tn_test_data("tokenizers/gpt2/encoder.json");
    if (!path) return;
    snprintf(setting, sizeof setting, "tokenizer=%s", path);
    stories(setting);
}

/* Several pieces, each tokenized apart: the tokens are those of the whole text. */
static void long_document(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_dataset *data = NULL;
    tn_tokenizer *t = NULL;
    tn_tokenizer_scratch *x = NULL;
    tn_tokens whole = { 0 };
    tn_stream *s = NULL;
    char out[1024], tokenizer[1024], settings[1200];
    enum { ROOM = 4 << 20 };
    size_t n;
    const char *path = tn_test_data("tokenizers/gpt2/encoder.json");
    if (!path) return;
    snprintf(tokenizer, sizeof tokenizer, "%s", path);
    path = tn_test_data("text/books/bronte.txt.gz");
    if (!path) return;
    tn_tempdir_make(&d);
    snprintf(out, sizeof out, "%s", tn_tempdir_file(&d, "out"));
    snprintf(settings, sizeof settings, "tokenizer=%s valid_frac=0 doc_bytes=0", tokenizer);
    assert_ok(tn_prepare_try(path, out, settings, NULL));
    assert_ok(tn_dataset_open(out, NULL, &data));
    char *text = tn_alloc(ROOM);
    assert_ok(tn_stream_open(path, &s));
    assert_ok(tn_stream_read(s, text, ROOM, &n));
    assert_true(n > 3 * TN_PIECE_BYTES && n < ROOM);
    assert_ok(tn_tokenizer_open(tokenizer, &t));
    assert_ok(tn_tokenizer_scratch_new(&x));
    assert_ok(tn_tokenizer_encode(t, x, text, n, 0, &whole));
    assert_int_equal(tn_dataset_count(data, TN_TRAIN).tokens, whole.n + 1);
    assert_int_equal(tn_dataset_count(data, TN_TRAIN).text_bytes, n);
    int32_t *ids = tn_alloc((whole.n + 1) * sizeof *ids);
    assert_ok(tn_dataset_read(data, TN_TRAIN, 0, whole.n + 1, ids));
    assert_memory_equal(ids + 1, whole.ids, whole.n * sizeof *ids);
    tn_free(ids);
    tn_free(text);
    tn_tokens_free(&whole);
    tn_tokenizer_scratch_free(x);
    tn_tokenizer_free(t);
    tn_stream_close(s);
    tn_dataset_close(data);
    tn_tempdir_clear(&d);
}

void tn_tests_corpora(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof corpora / sizeof *corpora; i++)
        tn_test_add(l, counts, &corpora[i], "corpora: %s", corpora[i].name);
    tn_test_add(l, mnist_first, NULL, "corpora: mnist through the loader");
    tn_test_add(l, trained_tokenizer, NULL, "corpora: stories with a trained tokenizer");
    tn_test_add(l, long_document, NULL, "corpora: a long document gives the tokens of the whole");
    tn_test_add(l, foreign_tokenizer, NULL, "corpora: stories with GPT-2's tokenizer");
}
