/* Fuzz target of the safetensors reader: any bytes must be refused or give tensors that lie inside the bytes and can
 * be found and copied. It checks the reader's promises, not the numbers. tests/long/fuzz.sh builds and runs it.
 *
 * The first byte of an input shortens the way to the JSON: 0..127 keeps the input as a file; 128..255 makes the rest a
 * header of its true length, followed by that many zero bytes of data (less 128). */
#include "base/alloc.h"
#include "fuzz_file.h"
#include "io/safetensors.h"

static void check_tensors(const tn_safetensors *f, const unsigned char *file, size_t bytes)
{
    static float copy[4096];
    size_t total = 0;
    for (size_t i = 0; i < tn_safetensors_count(f); i++) {
        const tn_file_tensor *t = tn_safetensors_at(f, i), *found = NULL;
        const unsigned char *p = t->data;
        CHECK(t->dtype < TN_DTYPES && t->dims.rank <= TN_MAX_RANK);
        CHECK(p >= file && p <= file + bytes && t->bytes <= (size_t)(file + bytes - p));
        CHECK((size_t)tn_dims_count(t->dims) * tn_dtype_bytes(t->dtype) == t->bytes);
        CHECK(tn_safetensors_find(f, t->name, &found) == TN_OK && found == t);
        total += t->bytes;
        if (tn_dtype_is_float(t->dtype) && tn_dims_count(t->dims) <= 4096)
            CHECK(tn_safetensors_copy_f32(t, copy) == TN_OK);
    }
    CHECK(total <= bytes);
    for (size_t i = 0; i < tn_safetensors_meta_count(f); i++)
        CHECK(tn_safetensors_meta(f, tn_safetensors_meta_at(f, i)->key) == tn_safetensors_meta_at(f, i)->value);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    tn_safetensors *f = NULL;
    if (bytes == 0) return 0;
    const bool framed = input[0] >= 128;
    const uint64_t header = bytes - 1;
    const size_t n = framed ? 8 + bytes - 1 + (input[0] - 128u) : bytes - 1;
    unsigned char *file = calloc(1, n ? n : 1); /* exactly as long, so that the sanitizer sees a read beyond it */
    CHECK(file);
    if (framed) memcpy(file, &header, 8);
    memcpy(file + (framed ? 8 : 0), input + 1, bytes - 1);
    if (tn_safetensors_open_memory(file, n, "fuzz", &f) == TN_OK) check_tensors(f, file, n);
    else fuzz_refused(TN_BAD_FILE);
    tn_safetensors_close(f);
    free(file);
    return 0;
}
