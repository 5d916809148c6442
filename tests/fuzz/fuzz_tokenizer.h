/* A tokenizer of any file is refused, or encodes and decodes: ids are below its vocabulary, and decoding them does not fail. */
#ifndef TN_FUZZ_TOKENIZER_H
#define TN_FUZZ_TOKENIZER_H

#include "fuzz_file.h"
#include "token/tokenizer.h"

static inline void fuzz_tokenizer(const char *spec)
{
    static const char text[] =
        "The cat's 12,345 mats <|endoftext|> \xc3\xa9t\xc3\xa9 \xf0\x9f\x90\x88 \xff\xfe \t\n  end";
    static tn_tokenizer_scratch *scratch;
    tn_tokenizer *t = NULL;
    tn_tokens ids = { 0 };
    tn_text back = { 0 };
    const tn_status s = tn_tokenizer_open(spec, &t);
    if (s != TN_OK) {
        fuzz_refused(s);
        return;
    }
    if (!scratch) CHECK(tn_tokenizer_scratch_new(&scratch) == TN_OK);
    CHECK(tn_tokenizer_vocab(t) > 0);
    const tn_status encoded = tn_tokenizer_encode(t, scratch, text, sizeof text - 1, TN_ENCODE_SPECIAL, &ids);
    if (encoded != TN_OK) fuzz_refused(encoded);
    for (size_t i = 0; i < ids.n; i++) CHECK(ids.ids[i] >= 0 && ids.ids[i] < tn_tokenizer_vocab(t));
    CHECK(tn_tokenizer_decode(t, ids.ids, ids.n, &back) == TN_OK);
    CHECK(tn_tokenizer_cut(t, text, sizeof text - 1) <= sizeof text - 1);
    tn_tokens_free(&ids);
    tn_text_free(&back);
    tn_tokenizer_free(t);
}

#endif
