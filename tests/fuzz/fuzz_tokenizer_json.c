/* Hugging Face's tokenizer.json: see fuzz_tokenizer.h. */
#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    fuzz_tokenizer(fuzz_put("tokenizer.json", input, bytes));
    return 0;
}
