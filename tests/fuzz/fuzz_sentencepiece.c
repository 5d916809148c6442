/* sentencepiece's .model: see fuzz_tokenizer.h. */
#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    fuzz_tokenizer(fuzz_put("t.model", input, bytes));
    return 0;
}
