/* Cuts batches into parts. A loss is a mean over labels (the first of the model's loss rows says which): parts weigh what they have of
 * them, so that their gradients add up to that of the whole batch. */
#include "train/source/split.h"

#include "base/alloc.h"
#include "base/status.h"
#include "train/source/prefetch.h"

#include <string.h>

struct tn_split {
    const tn_trainer *trainer;
    const tn_inputs *inputs;
    int64_t rows, parts, part_rows; /* rows = parts * part_rows */
    char *memory;                   /* of a whole batch */
    size_t offset[TN_INPUTS_MAX];   /* of inputs in it */
    tn_feed feed;                   /* of the batch in memory */
    int64_t valid, count;           /* its rows that are no padding; what it counts */
    int64_t part;                   /* the next that is handed out; 0: of another batch */
    int slot;                       /* the input that the loss is a mean over; -1: not known */
    int labels;                     /* the input whose numbers are counted in this batch; -1: rows are */
    int64_t all, before;            /* of the batch; in the parts handed out */
    float weight;                   /* of the last one */
    tn_source heldout;              /* or an empty one */
};

static size_t padded(int64_t items) { return (sizeof(float) * (size_t)items + 63) / 64 * 64; }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* --- a whole batch ------------------------------------------------------------------------------------------------------- */

static tn_feed lend(void *ctx, int64_t width, int shape)
{
    tn_split *p = ctx;
    p->valid = p->rows;
    p->feed = tn_trainer_feed_blank(p->trainer, width, shape);
    p->feed.batch = p->rows;
    p->feed.valid = &p->valid;
    for (size_t i = 0; i < p->inputs->n; i++)
        if (p->inputs->slot[i].read && !p->inputs->slot[i].left_out) p->feed.at[i] = p->memory + p->offset[i];
    return p->feed;
}

/* Numbers of a row of an input. */
static int64_t each_of(const tn_split *p, size_t slot)
{
    const tn_input_slot *s = &p->feed.inputs->slot[slot];
    return s->each * (s->has_time ? p->feed.length : 1);
}

/* What counts in the rows from .. to: labels, or the rows. */
static int64_t counted(const tn_split *p, int64_t from, int64_t to)
{
    to = smaller(to, p->valid);
    if (p->labels < 0) return to > from ? to - from : 0;
    const int64_t each = each_of(p, (size_t)p->labels);
    const int32_t *x = p->feed.at[p->labels], pad = (int32_t)p->inputs->slot[p->labels].row->pad;
    int64_t n = 0;
    for (int64_t i = from * each; i < to * each; i++) n += x[i] != pad;
    return n;
}

/* By rows where no label counts: what is minimised is then something else. */
static void begin_batch(tn_split *p)
{
    p->labels = p->slot;
    p->all = counted(p, 0, p->rows);
    if (p->all == 0) {
        p->labels = -1;
        p->all = counted(p, 0, p->rows);
    }
    p->before = 0;
}

/* --- parts --------------------------------------------------------------------------------------------------------------- */

static void copy(const tn_split *p, int64_t first, const tn_feed *to)
{
    const int64_t valid = smaller(p->valid - first, p->part_rows);
    for (size_t i = 0; i < p->inputs->n; i++) {
        const tn_input_slot *s = &p->feed.inputs->slot[i];
        const char *from = p->feed.at[i];
        if (!from || !to->at[i]) continue;
        const size_t row = sizeof(float) * (size_t)each_of(p, i);
        if (s->each) memcpy(to->at[i], from + (size_t)first * row, (size_t)p->part_rows * row);
        else memcpy(to->at[i], from, sizeof(float) * (size_t)tn_input_items(s, to->batch, to->length));
        if (s->row->valid_rows) *(int32_t *)to->at[i] = (int32_t)valid;
    }
    *to->valid = valid;
}

tn_status tn_split_next(tn_split *p, tn_split_next_batch *next, void *ctx, int64_t step, const tn_feeder *to,
                        int64_t *count)
{
    const tn_feeder whole = { p, lend };
    if (p->part == 0) {
        TN_RETURN_IF(next(ctx, step, &whole, &p->count));
        begin_batch(p);
    }
    const int64_t first = p->part * p->part_rows, n = counted(p, first, first + p->part_rows);
    const tn_feed feed = tn_feed_like(to, &p->feed);
    copy(p, n ? first : 0,
         &feed); /* one that counts nothing has no weight and is not run; who looks nevertheless sees rows */
    p->weight = p->all ? (float)((double)n * (double)p->parts / (double)p->all) : 1;
    *count = -(p->all ? p->before * p->count / p->all : 0);
    p->before += n;
    *count += p->all ? p->before * p->count / p->all : 0;
    p->part = (p->part + 1) % p->parts;
    return TN_OK;
}

float tn_split_weight(const tn_split *p) { return p->weight; }

int64_t tn_split_count(const tn_split *p) { return p->count; }

int64_t tn_split_row(const tn_split *p, int64_t row)
{
    return row < 0 ? row : (p->part + p->parts - 1) % p->parts * p->part_rows + row;
}

void tn_split_forget(tn_split *p) { p->part = 0; }

const tn_source *tn_split_heldout(const tn_split *p) { return p->heldout.ctx ? &p->heldout : NULL; }

/* --- opening ------------------------------------------------------------------------------------------------------------- */

size_t tn_split_bytes(const tn_inputs *in, const tn_source_start *how)
{
    return how->microbatches > 1 ? tn_prefetch_bytes(in, how->batch, how->length, 1) : 0;
}

static int labels_of(const tn_split *p, const tn_model *model)
{
    const char *name = model->n_losses ? model->losses[0].count : TN_T;
    for (size_t i = 0; i < p->inputs->n; i++) {
        const tn_input_slot *s = &p->inputs->slot[i];
        if (s->read && s->each && s->row->type == TN_I32 && strcmp(s->row->name, name) == 0) return (int)i;
    }
    return -1;
}

static tn_status open_heldout(tn_split *p, const tn_source *s, const tn_source_start *how)
{
    tn_source_start part = *how;
    if (!s->heldout || !s->open_heldout) return TN_OK;
    part.batch = p->part_rows;
    part.microbatches = 0;
    part.heldout_only = true;
    return s->open_heldout(s->ctx, &part, &p->heldout);
}

tn_status tn_split_new(const tn_source *of, const tn_source_start *how, tn_split **out)
{
    tn_status s = TN_OK;
    size_t all = 0;
    tn_split *p = tn_alloc(sizeof *p);
    if (!p) return TN_MEMORY;
    *p = (tn_split){ .trainer = how->trainer,
                     .inputs = tn_trainer_inputs(how->trainer),
                     .rows = how->batch,
                     .parts = how->microbatches,
                     .part_rows = how->batch / how->microbatches };
    for (size_t i = 0; i < p->inputs->n; i++) {
        p->offset[i] = all;
        if (p->inputs->slot[i].read) all += padded(tn_input_items(&p->inputs->slot[i], p->rows, how->length));
    }
    p->slot = labels_of(p, tn_trainer_model(how->trainer));
    p->memory = tn_alloc(all + 1);
    if (!p->memory) TN_TRY(TN_MEMORY);
    TN_TRY(open_heldout(p, of, how));
    *out = p;
    p = NULL;
done:
    tn_split_free(p);
    return s;
}

void tn_split_free(tn_split *p)
{
    if (!p) return;
    tn_source_close(&p->heldout);
    tn_free(p->memory);
    tn_free(p);
}
