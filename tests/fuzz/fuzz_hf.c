/* Hugging Face folders: config.json, the index of shards, generation_config.json and tokenizer_config.json, by the first byte. A
 * configuration is refused, or has sizes within the bounds of gpt's settings, and is the same after it was written and read again. What
 * the last two say of tokens is refused, or in the vocabulary. */
#include "base/alloc.h"
#include "fuzz_file.h"
#include "io/hf_config.h"
#include "io/hf_index.h"
#include "token/chat_template.h"
#include "token/model_tokens.h"

static tn_status look(void *ctx, const tn_decoder_tensor *t)
{
    size_t *n = ctx;
    CHECK(t->n >= 1 && t->n <= TN_PIECES && t->columns >= 0 && t->name[0]);
    for (int i = 0; i < t->n; i++) {
        CHECK(t->rows[i] >= 1 && t->rows[i] <= 10000000 && strlen(t->piece[i]) < sizeof t->piece[i] - 1);
        CHECK(t->columns <= 1048576 || t->columns <= 1000000);
    }
    ++*n;
    return TN_OK;
}

static void check_sizes(const tn_decoder_config *c)
{
    CHECK(c->dim >= 1 && c->dim <= 65536 && c->layers >= 1 && c->layers <= 1024 && c->ffn >= 1 && c->ffn <= 1000000);
    CHECK(c->heads >= 1 && c->heads <= 1024 && c->kv_heads >= 1 && c->heads % c->kv_heads == 0);
    CHECK(c->head_dim >= 2 && c->head_dim <= 1024 && c->head_dim % 2 == 0);
    CHECK(c->vocab >= 2 && c->vocab <= 10000000 && c->context >= 1 && c->context <= 1000000000);
    CHECK(c->eps > 0 && c->eps < 1 && c->base > 1 && c->base <= 1e30);
    if (c->scaling != TN_SCALED_NONE) CHECK(c->stretch >= 1 && c->stretch <= 1e6);
    if (c->scaling == TN_SCALED_LLAMA3 || c->scaling == TN_SCALED_YARN) CHECK(c->stretch_context >= 1);
    if (c->scaling == TN_SCALED_YARN) CHECK(c->beta_fast > 0 && c->beta_slow > 0 && c->attention_factor >= 0);
}

static void config(const char *text, size_t bytes)
{
    tn_decoder_config c, again;
    char *written = NULL;
    size_t tensors = 0;
    const tn_status s = tn_hf_config_read(text, bytes, "fuzz", &c);
    if (s != TN_OK) {
        fuzz_refused(TN_BAD_FILE);
        return;
    }
    check_sizes(&c);
    CHECK(tn_decoder_each(&c, TN_NAMES_HF, look, &tensors) == TN_OK);
    CHECK(tensors >= 8 && tensors <= 9 * 1024 + 3);
    CHECK(tn_hf_config_write(&c, TN_F32, (tn_hf_tokens){ -1, 7 }, &written) == TN_OK);
    CHECK(tn_hf_config_read(written, strlen(written), "again", &again) == TN_OK);
    tn_free(written);
    CHECK(again.dim == c.dim && again.ffn == c.ffn && again.layers == c.layers && again.heads == c.heads);
    CHECK(again.kv_heads == c.kv_heads && again.head_dim == c.head_dim && again.vocab == c.vocab);
    CHECK(again.context == c.context && again.tied == c.tied && again.bias == c.bias && again.qk_norm == c.qk_norm);
    CHECK(again.scaling == c.scaling && again.stretch_context == c.stretch_context);
}

static void check_index(const uint8_t *input, size_t bytes)
{
    tn_hf_index x = { 0 };
    char *text = malloc(bytes + 1); /* exactly as long, so that the sanitizer sees a read beyond it */
    CHECK(text);
    memcpy(text, input, bytes);
    text[bytes] = 0;
    if (tn_hf_index_read(text, bytes, "fuzz", &x) == TN_OK) {
        CHECK(x.n >= 1 && x.files >= 1 && x.files <= x.n);
        for (size_t i = 0; i < x.n; i++) {
            CHECK(tn_hf_index_find(&x, x.place[i].tensor) == &x.place[i]);
            CHECK(!strpbrk(x.place[i].file, "/\\") && x.place[i].file[0] != '.');
        }
        for (size_t i = 1; i < x.files; i++) CHECK(strcmp(x.file[i - 1], x.file[i]) < 0);
    } else fuzz_refused(TN_BAD_FILE);
    tn_hf_index_free(&x);
    free(text);
}

/* Beside a tokenizer that is whole. */
static void check_tokens(const char *name, const uint8_t *input, size_t bytes)
{
    static tn_tokenizer *t;
    tn_chat_template c;
    if (!t) CHECK(tn_tokenizer_open("tests/token/mini_qwen2.json", &t) == TN_OK);
    fuzz_put(name, input, bytes);
    tn_model_tokens m = tn_model_tokens_of(t);
    const tn_status s = tn_model_tokens_read(fuzz_dir(), t, &m);
    if (s != TN_OK) fuzz_refused(s);
    CHECK(m.n_end <= TN_END_TOKENS_MAX && m.start >= -1 && m.start < tn_tokenizer_vocab(t));
    for (size_t i = 0; i < m.n_end; i++) CHECK(m.end[i] >= 0 && m.end[i] < tn_tokenizer_vocab(t));
    if (m.chat_template && tn_chat_template_recognise(m.chat_template, &c) != TN_OK) fuzz_refused(TN_BAD_FILE);
    tn_model_tokens_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (bytes == 0) return 0;
    switch (input[0] % 4) {
    case 0: config((const char *)input + 1, bytes - 1); break;
    case 1: check_index(input + 1, bytes - 1); break;
    case 2: check_tokens("generation_config.json", input + 1, bytes - 1); break;
    default: check_tokens("tokenizer_config.json", input + 1, bytes - 1); break;
    }
    return 0;
}
