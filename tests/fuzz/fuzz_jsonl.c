/* JSON Lines and JSON lists of documents, and text split at lines, by the first byte: refused, or pieces that are not empty. */
#include "data/documents.h"
#include "fuzz_file.h"
#include "io/jsonl.h"

static void documents(const char *path, const char *doc_sep)
{
    tn_input_files in = { 0 };
    tn_documents *d = NULL;
    tn_piece piece = { 0 };
    const tn_documents_options o = { .doc_sep = doc_sep, .doc_bytes = 64 };
    tn_status s = tn_input_files_add(&in, path, TN_FORMAT_AUTO);
    if (s == TN_OK) s = tn_documents_open(&in, &o, &d);
    while (s == TN_OK) {
        s = tn_documents_next(d, &piece);
        if (s != TN_OK || !piece.text) break;
        CHECK(piece.bytes > 0);
    }
    if (s != TN_OK) fuzz_refused(s);
    tn_documents_close(d);
    tn_input_files_free(&in);
}

static void lines(const char *path)
{
    tn_jsonl_reader *r = NULL;
    json_t *object = NULL;
    double x;
    tn_status s = tn_jsonl_reader_open(path, &r);
    while (s == TN_OK) {
        s = tn_jsonl_reader_next(r, &object);
        if (s != TN_OK || !object) break;
        CHECK(json_is_object(object));
        (void)tn_jsonl_get_number(object, "loss", &x);
    }
    if (s != TN_OK) fuzz_refused(s);
    tn_jsonl_reader_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    static const char *const names[] = { "t.jsonl", "t.json", "t.txt", "t.txt.gz", "t.jsonl.zst" };
    static const char *const separators[] = { "none", "line", "blank", "wikitext", "<|endoftext|>" };
    if (bytes < 2) return 0;
    const char *path = fuzz_put(names[input[0] % 5], input + 2, bytes - 2);
    documents(path, separators[input[1] % 5]);
    if (input[0] % 5 == 0) lines(path);
    return 0;
}
