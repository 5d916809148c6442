/* The vocabulary inside a GGUF file (fuzz_tokenizer.h), and what the file says about ends of texts and the template of talks. */
#include "fuzz_tokenizer.h"
#include "token/chat_template.h"
#include "token/model_tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    const char *path = fuzz_put("t.gguf", input, bytes);
    tn_tokenizer *t = NULL;
    tn_chat_template c;
    fuzz_tokenizer(path);
    if (tn_tokenizer_open(path, &t) != TN_OK) return 0;
    tn_model_tokens m = tn_model_tokens_of(t);
    const tn_status s = tn_model_tokens_read(path, t, &m);
    if (s != TN_OK) fuzz_refused(s);
    CHECK(m.n_end <= TN_END_TOKENS_MAX && m.start >= -1 && m.start < tn_tokenizer_vocab(t));
    for (size_t i = 0; i < m.n_end; i++) CHECK(m.end[i] >= 0 && m.end[i] < tn_tokenizer_vocab(t));
    if (m.chat_template && tn_chat_template_recognise(m.chat_template, &c) != TN_OK) fuzz_refused(TN_BAD_FILE);
    tn_model_tokens_free(&m);
    tn_tokenizer_free(t);
    return 0;
}
