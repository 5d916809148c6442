/* Loss by position: the forward plan's loss of each label, summed by bucket, in the order of the batches, in double. */
#include "report/positions.h"

#include "report/at_context.h"

#include <math.h>

static int bucket_of(int64_t position)
{
    int b = 0;
    while (position > 1 && b < TN_POSITION_ROWS - 1) {
        position >>= 1;
        b++;
    }
    return b;
}

typedef struct marks {
    const int32_t *labels, *reset, *document, *positions; /* NULL: the model does not read it */
    int64_t length;
} marks;

/* By whichever mark the model reads; without marks a row is one document. */
static bool starts_at(const marks *f, int64_t i)
{
    return f->reset      ? f->reset[i] != 0
           : f->document ? f->document[i] != f->document[i - 1]
                         : f->positions && f->positions[i] == 0;
}

static void add_row(tn_position_sums *s, const marks *f, int64_t row, const float *nll)
{
    double loss[TN_POSITION_ROWS] = { 0 }, tokens[TN_POSITION_ROWS] = { 0 };
    int64_t position = 0;
    for (int64_t t = 0; t < f->length; t++, position++) {
        const int64_t i = row * f->length + t;
        if (t > 0 && starts_at(f, i)) position = 0;
        if (f->labels[i] < 0) continue;
        const int b = bucket_of(position);
        loss[b] += (double)nll[i];
        tokens[b]++;
    }
    for (int b = 0; b < TN_POSITION_ROWS; b++) {
        if (tokens[b] == 0) continue;
        s->bucket[b].tokens += tokens[b];
        s->bucket[b].loss += loss[b];
        s->bucket[b].rows++;
        s->bucket[b].loss2 += loss[b] * loss[b];
        s->bucket[b].cross += loss[b] * tokens[b];
        s->bucket[b].tokens2 += tokens[b] * tokens[b];
    }
}

/* Of a batch as it was fed, with the loss of each label. nll (B,T). */
static void sums_add(tn_position_sums *s, const tn_feed *f, const float *nll)
{
    const marks m = { .labels = tn_feed_at(f, "labels"),
                      .reset = tn_feed_at(f, "reset"),
                      .document = tn_feed_at(f, "document"),
                      .positions = tn_feed_at(f, "positions"),
                      .length = f->length };
    for (int64_t row = 0; row < f->batch && m.labels; row++) add_row(s, &m, row, nll);
}

/* Of a ratio of sums over independent rows: sum (s - m n)^2 = loss2 - 2 m cross + m^2 tokens2. */
static double error_of(double tokens, double rows, double loss2, double cross, double tokens2, double mean)
{
    const double squares = loss2 - 2 * mean * cross + mean * mean * tokens2;
    return rows < 2 ? NAN : sqrt(fmax(squares, 0) * rows / (rows - 1)) / tokens;
}

/* Rows up to position `context` - 1, empty ones too; returns how many. */
static size_t sums_rows(const tn_position_sums *s, int64_t context, tn_position_row rows[TN_POSITION_ROWS])
{
    size_t n = 0;
    for (int64_t first = 0; first < context && n < TN_POSITION_ROWS; first = first ? 2 * first : 2) {
        tn_position_row *r = &rows[n];
        const int64_t end = first ? 2 * first : 2;
        *r =
            (tn_position_row){ .first = first, .last = (end < context ? end : context) - 1, .loss = NAN, .error = NAN };
        const double tokens = s->bucket[n].tokens;
        if (tokens > 0) {
            r->tokens = (int64_t)tokens;
            r->rows = (int64_t)s->bucket[n].rows;
            r->loss = s->bucket[n].loss / tokens;
            r->error = error_of(tokens, s->bucket[n].rows, s->bucket[n].loss2, s->bucket[n].cross, s->bucket[n].tokens2,
                                r->loss);
        }
        n++;
    }
    return n;
}

static tn_status walk(const tn_positions_options *o, tn_trainer *t, const tn_source *source, tn_position_sums *sums)
{
    int64_t done = 0;
    tn_trainer_steady(t, true);
    for (int64_t i = 0; o->tokens == 0 || done < o->tokens; i++) {
        float loss;
        int64_t count, n;
        if (o->interrupted && o->interrupted(o->ctx))
            return tn_error(TN_INTERRUPTED, "interrupted while measuring positions");
        TN_RETURN_IF(tn_source_heldout(source, i, t, &count));
        if (count == 0) break;
        TN_RETURN_IF(tn_trainer_eval(t, &loss));
        const float *nll = tn_trainer_output(t, "nll", &n);
        const tn_feed f = tn_trainer_feed(t);
        if (!nll || n != f.batch * f.length) return tn_error(TN_INTERNAL, "the plan has no loss by label");
        sums_add(sums, &f, nll);
        done += count;
        if (o->progress) o->progress(o->ctx, done);
    }
    return TN_OK;
}

tn_status tn_positions_measure(const tn_positions_options *o, tn_positions *out)
{
    tn_status s = TN_OK;
    tn_at_context at = { 0 };
    tn_source source = { 0 };
    tn_position_sums sums = { 0 };
    TN_TRY(tn_at_context_open(&(tn_at_context_options){ .model = o->model,
                                                        .settings = o->settings,
                                                        .store = o->store,
                                                        .batch = o->batch,
                                                        .context = o->context,
                                                        .nll = true,
                                                        .documents = tn_source_marks_documents(o->mode) },
                              &at));
    TN_TRY(tn_source_text_open(
        &(tn_source_text_options){ .data = o->data, .mode = o->mode },
        &(tn_source_start){
            .trainer = at.trainer, .batch = o->batch, .length = o->context, .heldout = o->split, .heldout_only = true },
        &source));
    TN_TRY(walk(o, at.trainer, &source, &sums));
    double loss = 0, tokens = 0;
    for (int b = 0; b < TN_POSITION_ROWS; b++) {
        loss += sums.bucket[b].loss;
        tokens += sums.bucket[b].tokens;
    }
    out->n = sums_rows(&sums, o->context, out->row);
    out->tokens = (int64_t)tokens;
    out->loss = tokens > 0 ? loss / tokens : NAN;
    out->bits = source.bits;
done:
    tn_source_close(&source);
    tn_at_context_close(&at);
    return s;
}
