/* What a long run says: only what applies, and numbers that lead to 15 minutes. */
#include "cli/train/train_estimate.h"
#include "testlib.h"

#include <stdlib.h>

static void expect(const tn_shorter *s, const char *text)
{
    char *got = NULL;
    size_t bytes;
    FILE *f = open_memstream(&got, &bytes);
    assert_non_null(f);
    tn_shorter_print(s, f);
    fclose(f);
    assert_string_equal(got, text);
    free(got);
}

static void says_what_applies(void **state)
{
    (void)state;
    expect(&(tn_shorter){ .step_s = 0.5, .left = 9990, .steps = 10000 },
           "note    about 1:23:15 to go, 0.5 s a step; what would make it shorter:\n"
           "        train.steps=1800        15 minutes, with the learning rate's schedule over these\n");
    expect(
        &(tn_shorter){
            .step_s = 2, .left = 5000, .steps = 5000, .epochs = 100, .gpu = true, .bf16 = 1.96, .smaller = "ten_tiny" },
        "note    about 2:46:40 to go, 2 s a step; what would make it shorter:\n"
        "        device=cuda             there is a GPU\n"
        "        compute=bf16            matrix products up to 2.0 times as fast\n"
        "        ten_tiny                a smaller network: the preset in place of this one\n"
        "        train.epochs=9          15 minutes, with the learning rate's schedule over these\n");
}

void tn_tests_train_estimate(tn_test_list *l)
{
    tn_test_add(l, says_what_applies, NULL, "estimate: what makes a run shorter");
}
