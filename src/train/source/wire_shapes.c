/* Which rows a step reads follows from the settings of the model; what it does not have, it may read. */
#include "train/source/wire_shapes.h"

#include "base/alloc.h"
#include "train/source/buckets.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ASKED = 4096, LOOKED_AT = 32768 /* texts that shapes are chosen by */ };
static const double ENOUGH = 0.02; /* padding at which there is no further shape */

/* --- what is read ---------------------------------------------------------------------------------------------------------------- */

static bool has(const tn_settings *st, const char *key) { return tn_settings_find(st, key) < tn_settings_count(st); }

static bool is(const tn_settings *st, const char *key, const char *value)
{
    return strcmp(tn_settings_text(st, key), value) == 0;
}

/* Given up for want of memory: what is named in "loss.kd=1 loss.state=0.5". */
static bool dropped(const tn_settings *st, const char *key)
{
    const size_t n = strlen(key);
    for (const char *at = tn_settings_text(st, "train.dropped"); *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strncmp(at, key, n) == 0 && at[n] == '=') return true;
    return false;
}

/* A loss that is given up on the way still decides the shapes: others would have another order, in the middle of an epoch. */
static bool weighs(const tn_settings *st, const char *key)
{
    return !has(st, key) || tn_settings_float(st, key) != 0 || dropped(st, key);
}

static bool listed(const tn_settings *st, char letter)
{
    const char *only = has(st, "readers") ? tn_settings_text(st, "readers") : "";
    return !*only || strchr(only, letter);
}

/* Where nothing is asked, the text itself is said. */
static void find_reads(const tn_settings *st, tn_wire_shapes *s)
{
    const bool known = has(st, "encoder"), sends = known && is(st, "encoder", "sender");
    const bool teaches = (weighs(st, "loss.kd") || weighs(st, "loss.state")) &&
                         !(has(st, "loss.teacher") && is(st, "loss.teacher", "cached"));
    s->reads.bytes = !known || is(st, "encoder", "bytes");
    for (size_t r = 0; r < s->store->readers; r++) {
        const char x = s->store->reader[r].letter;
        const bool reads = listed(st, x), asked = s->size[0].length[r] > 2;
        s->reads.asked[r] = reads && asked;
        s->reads.told[r] = reads && asked && teaches;
        s->reads.text[r] = (reads && (!asked || weighs(st, "loss.ae"))) ||
                           (sends && !s->size[0].sent && tn_settings_text(st, "sender")[0] == x);
    }
    s->reads.sent = sends && s->size[0].sent;
}

/* What of it is read. */
static double sum_of(const tn_wire_shapes *s, const tn_wire_places *p)
{
    double sum = s->reads.bytes * p->bytes + s->reads.sent * p->sent;
    for (size_t r = 0; r < s->store->readers; r++)
        sum += s->reads.asked[r] * p->asked[r] + s->reads.text[r] * p->text[r] + s->reads.told[r] * p->told[r];
    return sum;
}

/* --- choosing shapes ------------------------------------------------------------------------------------------------------------- */

static double cost(const void *ctx, const int32_t *size)
{
    const tn_wire_shapes *s = ctx;
    const tn_wire_sizes row = tn_wire_sizes_hold(s->store, &s->size[0], size);
    tn_wire_places p = { 0 };
    tn_wire_places_add(s->store, &row, &p);
    return sum_of(s, &p);
}

/* The questions of a training context that are asked in this step, or epoch. */
static int64_t pick(const tn_wire_shapes *s, int64_t i, int64_t step, int32_t *picked)
{
    const int64_t *at = s->store->question_at + s->store->first[TN_TRAIN] + i;
    return tn_wire_pick(s->seed, step, TN_TRAIN, i, at[1] - at[0], s->size[0].questions, picked);
}

static void name_sizes(tn_wire_shapes *s, int sender)
{
    static const char *const what[] = { "length", "text", "told" };
    for (size_t r = 0; r < s->store->readers; r++)
        for (int k = 0; k < 3; k++)
            snprintf(s->names[r][k], sizeof s->names[r][k], "%c.%s", s->store->reader[r].letter, what[k]);
    for (int i = 0; i < s->n; i++) {
        const tn_wire_sizes *size = &s->size[i + 1];
        tn_input_shape *to = &s->input[i];
        to->size[to->n++] = (tn_source_number){ "bytes", (double)size->bytes };
        to->size[to->n++] = (tn_source_number){ "questions", (double)size->questions };
        for (size_t r = 0; r < s->store->readers; r++) {
            const int64_t own[] = { size->length[r], size->text[r], size->told[r] };
            for (int k = 0; k < 3; k++) to->size[to->n++] = (tn_source_number){ s->names[r][k], (double)own[k] };
        }
        if (size->sent) to->size[to->n++] = (tn_source_number){ "sent", (double)size->sent };
        if (sender >= 0)
            to->size[to->n++] =
                (tn_source_number){ "features.tokens", (double)(size->sent ? size->sent : size->text[sender]) };
    }
}

_Static_assert(2 + 3 * TN_WIRE_READERS + 2 <= TN_SHAPE_SIZES, "a shape has room for all sizes");

static tn_status choose(tn_wire_shapes *w, int most)
{
    tn_status s = TN_OK;
    int32_t picked[MOST_ASKED];
    tn_wire_places used = { 0 };
    const int64_t all = w->store->count[TN_TRAIN], n = all < LOOKED_AT ? all : LOOKED_AT;
    const int sizes = tn_wire_sizes_count(w->store);
    if (n < 1) return TN_OK;
    int32_t *size = tn_alloc(sizeof *size * (size_t)(n * sizes));
    if (!size) return TN_MEMORY;
    for (int64_t k = 0; k < n; k++) {
        const int64_t i = k * all / n, context = w->store->first[TN_TRAIN] + i, asked = pick(w, i, 0, picked);
        tn_wire_sizes_of(w->store, context, picked, asked, size + k * sizes);
        tn_wire_places_used(w->store, context, picked, asked, &used);
    }
    const tn_bucket_rows rows = { .n = n, .sizes = sizes, .size = size, .all = w->all, .cost = cost, .ctx = w };
    TN_TRY(tn_buckets_choose(&rows, sum_of(w, &used) / (1 - ENOUGH), most, w->most, &w->n));
    for (int i = 0; i < w->n; i++) w->size[i + 1] = tn_wire_sizes_hold(w->store, &w->size[0], w->most + i * sizes);
done:
    tn_free(size);
    return s;
}

static void take_all(tn_wire_shapes *s)
{
    const tn_wire_sizes *w = &s->size[0];
    s->all[0] = (int32_t)w->bytes;
    s->all[1] = (int32_t)w->questions;
    for (size_t r = 0; r < s->store->readers; r++) {
        s->all[2 + 2 * r] = (int32_t)w->length[r];
        s->all[3 + 2 * r] = (int32_t)w->text[r];
    }
    s->all[2 + 2 * s->store->readers] = (int32_t)w->sent;
}

tn_status tn_wire_shapes_open(const tn_source_open *o, const tn_wire_store *store, int64_t questions, int sender,
                              tn_wire_shapes *out)
{
    const tn_settings *st = o->settings;
    *out = (tn_wire_shapes){ .store = store, .seed = (uint64_t)tn_settings_int(st, "seed") };
    out->size[0] = tn_wire_sizes_whole(store, questions);
    take_all(out);
    find_reads(st, out);
    out->asks = o->trains && is(st, "loader.mode", "bucket");
    if (out->asks) TN_RETURN_IF(choose(out, (int)tn_settings_int(st, "loader.shapes") - 1));
    name_sizes(out, sender);
    return TN_OK;
}

/* --- a batch's shape --------------------------------------------------------------------------------------------------------------- */

int tn_wire_shapes_fit(const tn_wire_shapes *s, const int32_t *rows, int64_t n, int64_t epoch, int after)
{
    int32_t picked[MOST_ASKED], size[TN_WIRE_SIZES], most[TN_WIRE_SIZES] = { 0 };
    const int sizes = tn_wire_sizes_count(s->store);
    for (int64_t b = 0; b < n; b++) {
        const int64_t asked = pick(s, rows[b], epoch, picked);
        tn_wire_sizes_of(s->store, s->store->first[TN_TRAIN] + rows[b], picked, asked, size);
        for (int k = 0; k < sizes; k++) most[k] = size[k] > most[k] ? size[k] : most[k];
    }
    for (int i = after; i < s->n; i++) {
        bool holds = true;
        for (int k = 0; k < sizes; k++) holds &= most[k] <= s->most[i * sizes + k];
        if (holds) return i + 1;
    }
    return 0;
}

/* --- padding ----------------------------------------------------------------------------------------------------------------------- */

typedef struct tally {
    tn_wire_places all, used;
} tally;

static void count_batch(const tn_wire_shapes *s, const tn_record_batches *b, int64_t first, tally *t)
{
    int32_t picked[MOST_ASKED];
    const int64_t left = b->n - first, n = left < b->rows ? left : b->rows;
    const int64_t step = s->n ? b->epoch : first / b->rows / b->accumulate;
    const int shape = s->n ? tn_wire_shapes_fit(s, b->row + first, n, b->epoch, 0) : 0;
    for (int64_t k = 0; k < b->rows; k++) tn_wire_places_add(s->store, &s->size[shape], &t->all);
    for (int64_t k = 0; k < n; k++) {
        const int64_t i = b->row[first + k], asked = pick(s, i, step, picked);
        tn_wire_places_used(s->store, s->store->first[TN_TRAIN] + i, picked, asked, &t->used);
    }
}

static tally count(const tn_wire_shapes *s, const tn_record_batches *b)
{
    tally t = { 0 };
    for (int64_t first = 0; b->row && first < b->n; first += b->rows) count_batch(s, b, first, &t);
    return t;
}

static double part(double used, double all) { return all > 0 ? 1 - used / all : NAN; }

static void put_part(FILE *f, bool reads, const char *what, char letter, double used, double all, bool *any)
{
    if (!reads) return;
    fprintf(f, "%s%s", *any ? ", " : " (", what);
    if (letter) fprintf(f, " %c", letter);
    fprintf(f, " %.0f %%", 100 * part(used, all));
    *any = true;
}

double tn_wire_shapes_padding(const tn_wire_shapes *s, const tn_record_batches *b)
{
    const tally t = count(s, b);
    return part(sum_of(s, &t.used), sum_of(s, &t.all));
}

void tn_wire_shapes_about(const tn_wire_shapes *s, const tn_record_batches *b, FILE *f)
{
    const tally t = count(s, b);
    const double all = part(sum_of(s, &t.used), sum_of(s, &t.all));
    bool any = false;
    if (isnan(all)) return;
    if (s->n) fprintf(f, "batches by length, in %d shapes;", s->n + 1);
    else fprintf(f, "batches in one shape;");
    fprintf(f, " %.1f %% of their places are padding", 100 * all);
    put_part(f, s->reads.bytes != 0, "bytes", 0, t.used.bytes, t.all.bytes, &any);
    put_part(f, s->reads.sent != 0, "text and question", 0, t.used.sent, t.all.sent, &any);
    for (size_t r = 0; r < s->store->readers; r++) {
        const char x = s->store->reader[r].letter;
        put_part(f, s->reads.asked[r] != 0, "answers", x, t.used.asked[r], t.all.asked[r], &any);
        put_part(f, s->reads.text[r] != 0, "text", x, t.used.text[r], t.all.text[r], &any);
        put_part(f, s->reads.told[r] != 0, "text and answers", x, t.used.told[r], t.all.told[r], &any);
    }
    fprintf(f, "%s%s\n", any ? ")" : "", !s->asks && all > 0.1 ? ": loader.mode=bucket has less" : "");
}
