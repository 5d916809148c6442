/* llama2.c: checkpoints and tokenizers, by the first byte. A checkpoint is refused, or gives a safetensors file whose length is in
 * proportion to its own. For a checkpoint of the length its header asks for, the rest of a framed input (first byte 2) is repeated. */
#include "fuzz_tokenizer.h"
#include "io/llama2c.h"

static tn_status count(void *ctx, const void *data, size_t bytes)
{
    (void)data;
    *(size_t *)ctx += bytes;
    return TN_OK;
}

static void checkpoint(const uint8_t *input, size_t bytes)
{
    tn_llama2c h;
    char text[512];
    size_t written = 0;
    const char *path = fuzz_put("m.bin", input, bytes);
    const tn_status s = tn_llama2c_read(path, &h);
    if (s != TN_OK) {
        fuzz_refused(s);
        return;
    }
    CHECK(strlen(tn_llama2c_settings(&h, text, sizeof text)) < sizeof text);
    CHECK(h.heads > 0 && h.dim % h.heads == 0);
    CHECK(tn_llama2c_convert_into(path, (tn_sink){ count, &written }) == TN_OK);
    CHECK(written > 0 && written < 2 * bytes + (1 << 20));
}

/* Small dimensions, and as many floats as they need: the header is seven bytes of the input. */
static void framed(const uint8_t *input, size_t bytes)
{
    enum { MOST = 1 << 16 };
    static uint8_t file[MOST];
    int32_t x[7];
    if (bytes < 7) return;
    for (int i = 0; i < 7; i++) x[i] = 1 + input[i] % 16;
    const int64_t d = x[0], f = x[1], L = x[2], D = d / x[3], kv = x[4] * D;
    const int64_t n = x[5] * d + L * (2 * d + 2 * d * d + 2 * kv * d + 3 * f * d) + d + x[6] * (D / 2) * 2;
    const size_t want = sizeof x + 4 * (size_t)n;
    if (want > MOST) return;
    memcpy(file, x, sizeof x);
    for (size_t i = sizeof x; i < want; i++) file[i] = input[i % bytes];
    checkpoint(file, want);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (bytes == 0) return 0;
    if (input[0] % 3 == 0) checkpoint(input + 1, bytes - 1);
    else if (input[0] % 3 == 1) fuzz_tokenizer(fuzz_put("tokenizer.bin", input + 1, bytes - 1));
    else framed(input + 1, bytes - 1);
    return 0;
}
