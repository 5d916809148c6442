/* cls: a premise, and whether a hypothesis follows from it: yes, maybe or no. SNLI's files as task=snli reads them; no premise is in two
 * splits, and pairs whose readers disagree are left out. */
#include "base/alloc.h"
#include "tasks/pairs.h"
#include "tasks/snli_lines.h"
#include "tasks/wire/wire_parts.h"

#include <stdio.h>
#include <string.h>

typedef struct cls {
    tn_snli_part part[TN_SPLITS];
    size_t *line[TN_SPLITS]; /* (count): where the lines that count begin */
    int64_t left_out;
} cls;

static void close_cls(void *data)
{
    cls *d = data;
    for (int k = 0; k < TN_SPLITS; k++) tn_free(d->line[k]);
    tn__snli_free(d->part);
    tn_free(d);
}

static tn_status read_cls(const tn_wire_texts *t, int split, int64_t i, tn_wire_example *e)
{
    static const char *const answers[] = {
        [TN_SNLI_ENTAILS] = " yes", [TN_SNLI_NEUTRAL] = " maybe", [TN_SNLI_CONTRADICTS] = " no"
    };
    const cls *d = t->data;
    tn_snli_row row;
    tn_snli_part part = d->part[split]; /* a copy: only its text is read */
    size_t at = d->line[split][i];
    (void)tn__snli_next(&part, &at, &row);
    const char *premise = row.sentence[TN_PREMISE], *hypothesis = row.sentence[TN_HYPOTHESIS],
               *answer = answers[(int)*row.marks];
    TN_RETURN_IF(tn__wire_add_context(e, premise, strlen(premise)));
    TN_RETURN_IF(tn__wire_add_question(e, "Hypothesis: ", hypothesis, strlen(hypothesis), " Answer:"));
    return tn__wire_add_gold(e, "", answer, strlen(answer));
}

/* The lines of a split that count; of more than `most` that are held out, some that are spread over the file. */
static tn_status list_lines(cls *d, int k, int64_t most, int64_t *count)
{
    tn_snli_part *p = &d->part[k];
    tn_snli_row row;
    int64_t n = 0;
    if (!(d->line[k] = tn_alloc(p->n * sizeof *d->line[k]))) return TN_MEMORY;
    for (size_t at = 0, here = 0; (k != TN_TRAIN || n < most) && tn__snli_next(p, &at, &row); here = at)
        if (*row.marks < TN_SNLI_UNKNOWN) d->line[k][n++] = here;
    *count = n < most ? n : most;
    for (int64_t i = 0; i < *count; i++) d->line[k][i] = d->line[k][tn__wire_spread(i, *count, n)];
    if (n) return TN_OK;
    return tn_error(TN_BAD_FILE, "%.640s has no labelled pair whose premise is in no later split: use another file",
                    p->path);
}

static tn_status open_cls(const tn_settings *st, tn_wire_texts **out)
{
    tn_status s = TN_OK;
    tn_hash *h = NULL;
    cls *d = tn_alloc(sizeof *d);
    if (!d) return TN_MEMORY;
    tn_wire_texts t = { .task = "cls",
                        .kind = TN_WIRE_QA,
                        .anchor = TN_WIRE_BETWEEN,
                        .form = "Hypothesis: %s Answer: yes|maybe|no",
                        .data = d,
                        .read = read_cls,
                        .close = close_cls };
    const int64_t size = tn_settings_is_auto(st, "task.size") ? INT32_MAX : tn_settings_int(st, "task.size");
    TN_TRY(tn__snli_read(st, "cls", d->part, &d->left_out));
    const int64_t heldout = tn_settings_int(st, "task.heldout");
    for (int k = 0; k < TN_SPLITS; k++) TN_TRY(list_lines(d, k, k == TN_TRAIN ? size : heldout, &t.count[k]));
    snprintf(t.about, sizeof t.about, "SNLI of %.60s, %lld lines left out whose premise another split has",
             tn_settings_text(st, "task.data"), (long long)d->left_out);
    TN_TRY(tn_hash_begin(&h));
    for (int k = 0; k < TN_SPLITS; k++) tn_hash_add(h, d->part[k].text.data, d->part[k].text.n);
    tn_hash_text(h, t.hash);
    tn_hash_free(h);
    return tn__wire_texts_new(&t, out);
done:
    close_cls(d);
    return s;
}

const tn_task tn_task_cls = { .name = "cls",
                              .summary = "pairs of sentences (SNLI): yes, maybe or no",
                              .texts = open_cls };
