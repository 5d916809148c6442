/* Pairs of sentences as records: a premise, and a hypothesis that follows from it. */
#include "tasks/pairs.h"

#include "train/source/records.h"
#include "train/source/task_setup.h"

#include <stdio.h>

/* What they fill, in this order. Ids behind the end of a sentence are 0, which ends a text. */
enum { PREMISE, PREMISE_LENGTH, HYPOTHESIS, HYPOTHESIS_LENGTH, COUNT, SAMPLE, ROWS };
static const tn_input_row rows[ROWS] = {
    { "premise", TN_I32, { TN_B, "text" }, .below = "vocab" },
    { "premise_length", TN_I32, .dims = { TN_B } },
    { "hypothesis", TN_I32, { TN_B, "text" }, .below = "vocab" },
    { "hypothesis_length", TN_I32, .dims = { TN_B } },
    { "count", TN_I32, { "1" }, .valid_rows = true },
    { "sample", TN_I32, .dims = { TN_B } }, /* which one of the training set it is, 0 where it is none */
};

static int64_t read_pair(const void *data, int split, int64_t i, int64_t step, int shape, void *const *at)
{
    static const int ids[] = { [TN_PREMISE] = PREMISE, [TN_HYPOTHESIS] = HYPOTHESIS };
    const tn_pairs *p = data;
    (void)step, (void)shape;
    for (int which = 0; which < 2; which++) {
        int32_t *length = at[ids[which] + 1];
        if (at[ids[which]]) (void)tn_pairs_read(p, split, i, which, at[ids[which]]);
        if (length) *length = (int32_t)tn_pairs_length(p, split, i, which);
    }
    if (at[SAMPLE]) *(int32_t *)at[SAMPLE] = split == TN_TRAIN ? (int32_t)i : 0;
    return 1;
}

static tn_status hash_pairs(const void *data, char hash[TN_HASH_BYTES]) { return tn_pairs_hash(data, hash); }

static void about(const void *data, const tn_record_batches *b, FILE *f)
{
    const tn_pairs *p = data;
    (void)b;
    fprintf(
        f,
        "task    snli, %lld pairs, %lld valid, %lld test, of at most %lld tokens a sentence, %lld different tokens\n",
        (long long)p->count[TN_TRAIN], (long long)p->count[TN_VALID], (long long)p->count[TN_TEST], (long long)p->text,
        (long long)p->vocab);
}

static size_t bytes_of(const void *data)
{
    const tn_pairs *p = data;
    const size_t sentences = 2 * (size_t)(p->count[0] + p->count[1] + p->count[2]);
    return sentences * sizeof *p->at + p->at[sentences] * sizeof *p->ids;
}

static void close_pairs(void *data) { tn_pairs_free(data); }

bool tn_source_takes_pairs(const tn_source_open *o)
{
    const tn_task *task = tn_task_named(tn_settings_text(o->settings, "task.name"));
    return task && task->pairs; /* that the model reads them was checked */
}

tn_status tn_source_open_pairs(const tn_source_open *o, tn_source *out)
{
    tn_pairs *p = NULL;
    const tn_task *task = tn_task_named(tn_settings_text(o->settings, "task.name"));
    tn_status s = task->pairs(o->settings, &p);
    if (s == TN_OK) s = tn_task_fit_pairs(o->settings, p);
    if (s != TN_OK) {
        tn_pairs_free(p);
        return s;
    }
    const tn_record_set records = { .kind = "task",
                                    .noun = "pair",
                                    .rows = rows,
                                    .n_rows = ROWS,
                                    .count = { p->count[0], p->count[1], p->count[2] },
                                    .labels = (double)p->count[TN_TRAIN],
                                    .data = p,
                                    .read = read_pair,
                                    .hash = hash_pairs,
                                    .about = about,
                                    .bytes = bytes_of,
                                    .close = close_pairs,
                                    .seed = (uint64_t)tn_settings_int(o->settings, "seed") };
    TN_RETURN_IF(tn_source_records_make(&records, out));
    tn_source_add_number(out, "text", (double)p->text);
    tn_source_add_number(out, "vocab", (double)p->vocab);
    tn_source_add_number(out, "bits", tn_pairs_bits(p, TN_VALID));
    out->tokenizer = p->tokenizer;
    out->prefetch_depth = 2;
    return TN_OK;
}
