/* Fuzz target of GGUF: any bytes must be refused, or give keys and tensors that lie inside the bytes and can be found, read
 * and decoded. What is a model is read through as one, too. The first byte of an input, if odd, makes the rest follow a header
 * of the right magic and version (counts are two bytes), with 256 zero bytes of data after it. */
#include "fuzz_file.h"
#include "io/gguf.h"
#include "io/gguf_model.h"

static bool inside(const void *p, size_t n, const unsigned char *file, size_t bytes)
{
    const unsigned char *q = p;
    return q >= file && q <= file + bytes && n <= (size_t)(file + bytes - q);
}

static void check_keys(const tn_gguf *f, const unsigned char *file, size_t bytes)
{
    for (size_t i = 0; i < tn_gguf_key_count(f); i++) {
        const tn_gguf_value *v = tn_gguf_key_at(f, i);
        uint64_t texts = 0;
        size_t at = 0;
        tn_gguf_text t;
        CHECK(inside(v->key.data, v->key.bytes, file, bytes) && inside(v->data, v->bytes, file, bytes));
        CHECK(v->kind < TN_GGUF_KINDS && v->kind != TN_GGUF_LIST);
        while (tn_gguf_text_next(v, &at, &t)) {
            CHECK(inside(t.data, t.bytes, file, bytes));
            texts++;
        }
        CHECK(texts == (v->kind == TN_GGUF_TEXT ? v->count : 0));
        for (uint64_t k = 0; v->kind != TN_GGUF_TEXT && k < v->count; k++) (void)tn_gguf_number_at(v, k);
    }
}

static void check_tensors(const tn_gguf *f, const unsigned char *file, size_t bytes)
{
    static float x[1000];
    size_t total = 0;
    for (size_t i = 0; i < tn_gguf_count(f); i++) {
        const tn_gguf_tensor *t = tn_gguf_at(f, i);
        const int64_t count = tn_dims_count(t->dims);
        char name[TN_GGUF_NAME_MAX + 1] = "";
        CHECK(inside(t->data, t->bytes, file, bytes) && count > 0);
        CHECK((size_t)(count / t->type->values * t->type->bytes) == t->bytes);
        for (int64_t at = 0; at < count; at += 1000)
            tn_gguf_decode(t->type, t->data, at, count - at < 1000 ? count - at : 1000, x);
        total += t->bytes;
        memcpy(name, t->name.data, t->name.bytes);
        if (strlen(name) == t->name.bytes) CHECK(tn_gguf_tensor_of(f, name) == t);
    }
    CHECK(total <= bytes);
}

static void check_model(const unsigned char *file, size_t bytes)
{
    static float x[1000];
    tn_decoder_file *m = NULL;
    if (tn_gguf_model_open_memory(file, bytes, "fuzz", &m) != TN_OK) {
        fuzz_refused(TN_BAD_FILE);
        return;
    }
    for (size_t i = 0; i < m->n; i++) {
        const int64_t count = tn_dims_count(m->tensor[i].dims);
        tn_file_piece piece[TN_PIECES];
        int64_t sum = 0;
        for (int64_t at = 0; at < count; at += 1000)
            tn_decoder_file_read(m, &m->tensor[i], at, count - at < 1000 ? count - at : 1000, x);
        for (int k = tn_decoder_file_pieces(m, &m->tensor[i], piece); k-- > 0;) {
            const size_t held = (size_t)(piece[k].count / piece[k].type->values * piece[k].type->bytes);
            CHECK(inside(piece[k].data, held, file, bytes));
            sum += piece[k].count;
        }
        CHECK(sum == count);
    }
    CHECK(strlen(m->settings) < 700);
    tn_decoder_file_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    tn_gguf *f = NULL;
    if (bytes < 3) return 0;
    const bool framed = input[0] % 2;
    const uint32_t version = 3;
    const uint64_t tensors = input[1], keys = input[2];
    const size_t n = framed ? 24 + bytes - 3 + 256 : bytes - 1;
    unsigned char *file = calloc(1, n); /* exactly as long, so that the sanitizer sees a read beyond it */
    CHECK(file);
    if (framed) {
        memcpy(file, "GGUF", 4);
        memcpy(file + 4, &version, 4);
        memcpy(file + 8, &tensors, 8);
        memcpy(file + 16, &keys, 8);
        memcpy(file + 24, input + 3, bytes - 3);
    } else memcpy(file, input + 1, n);
    if (tn_gguf_open_memory(file, n, "fuzz", &f) == TN_OK) {
        check_keys(f, file, n);
        check_tensors(f, file, n);
        check_model(file, n);
    } else fuzz_refused(TN_BAD_FILE);
    tn_gguf_close(f);
    free(file);
    return 0;
}
