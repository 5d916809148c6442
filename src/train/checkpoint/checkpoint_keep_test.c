/* Which checkpoints are kept, by ckpt.keep_latest and ckpt.keep_best; on the disk: checkpoint_test.c. */
#include "train/checkpoint/checkpoint.h"

#include "testlib.h"

#include <math.h>
#include <string.h>

typedef struct prune_row {
    const char *what;
    double heldout[6]; /* of steps 1, 2, ...; INFINITY ends; NAN: not evaluated */
    int64_t latest, best, upto;
    const char *kept;
    const char *broken; /* steps that are not whole */
} prune_row;

static const prune_row prune_rows[] = {
    { "the newest", { 1, 2, 3, 4, INFINITY }, 2, 0, 9, "34", "" },
    { "and the best", { 1, 2, 3, 4, INFINITY }, 2, 1, 9, "134", "" },
    { "one may be both", { 4, 3, 2, 1, INFINITY }, 2, 1, 9, "34", "" },
    { "two best", { 3, 1, 2, 4, INFINITY }, 1, 2, 9, "234", "" },
    { "the earlier of equals", { 2, 1, 1, 4, INFINITY }, 1, 1, 9, "24", "" },
    { "not evaluated is not best", { NAN, 5, NAN, NAN, INFINITY }, 1, 3, 9, "24", "" },
    { "more than there are", { 1, 2, INFINITY }, 9, 9, 9, "12", "" },
    { "never the last", { NAN, NAN, NAN, INFINITY }, 0, 0, 9, "3", "" },
    { "the best can be the only one", { 1, 2, 3, INFINITY }, 0, 1, 9, "1", "" },
    { "what is not whole does not count and is left", { 1, 2, 3, 4, INFINITY }, 1, 1, 9, "1234", "14" },
    { "the only whole one", { 1, 2, 3, INFINITY }, 0, 0, 9, "123", "13" },
    { "what lies ahead is left", { 5, 4, 3, 2, 1, INFINITY }, 1, 1, 3, "345", "" },
};

static void prune_rule(void **state)
{
    const prune_row *r = *state;
    tn_ckpt_entry entry[6];
    tn_ckpt_list l = { .entry = entry };
    char kept[8] = "";
    for (; l.n < 6 && !isinf(r->heldout[l.n]); l.n++) {
        const char digit = (char)('1' + l.n);
        entry[l.n] = (tn_ckpt_entry){ .step = (int64_t)l.n + 1, .complete = !strchr(r->broken, digit) };
        tn_scores_put(&entry[l.n].scores, "loss", r->heldout[l.n]);
    }
    tn_ckpt_list_mark(&l, r->latest, r->best, r->upto);
    for (size_t i = 0, n = 0; i < l.n; i++)
        if (entry[i].keep) kept[n++] = (char)('1' + i);
    assert_string_equal(kept, r->kept);
}

void tn_tests_checkpoint_keep(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof prune_rows / sizeof *prune_rows; i++)
        tn_test_add(l, prune_rule, &prune_rows[i], "checkpoint: keep %s", prune_rows[i].what);
}
