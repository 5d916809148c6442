/* tiktoken's rank files: see fuzz_tokenizer.h. */
#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    char spec[160];
    snprintf(spec, sizeof spec, "%s#gpt2", fuzz_put("t.tiktoken", input, bytes));
    fuzz_tokenizer(spec);
    return 0;
}
