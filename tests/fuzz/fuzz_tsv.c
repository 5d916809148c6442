/* Tables of text: refused, or rows with the columns that were asked for; a sentence in its one form is never longer than it was. */
#include "fuzz_file.h"
#include "tasks/sentence.h"
#include "tasks/tsv.h"

static tn_status take(void *user, size_t line, const tn_tsv_field *field)
{
    size_t *last = user;
    CHECK(line == ++*last);
    for (int i = 0; i < 2; i++) {
        tn_text out = { 0 };
        CHECK(!memchr(field[i].text, '\t', field[i].bytes) && !memchr(field[i].text, '\n', field[i].bytes));
        CHECK(tn__sentence_write(field[i].text, field[i].bytes, &out) == TN_OK && out.n <= field[i].bytes);
        tn_text_free(&out);
    }
    return TN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    static const char *const columns[] = { "a", "b", NULL };
    size_t line = 1;
    const tn_status s = tn__tsv_read(fuzz_put("t.tsv", input, bytes), columns, take, &line);
    if (s != TN_OK) fuzz_refused(s);
    return 0;
}
