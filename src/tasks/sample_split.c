/* Which samples are for training, validation and test: in order, by class, or from a file of row numbers.
 *
 * By class: the test rows are chosen first and do not depend on how many are kept for validation, so that results with and
 * without a validation split are about the same test. Counts are whole numbers throughout (largest remainders) and orders
 * come from Philox: every machine makes the same split. */
#include "base/alloc.h"
#include "base/fs.h"
#include "io/json_read.h"
#include "tasks/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In billionths: 0.2 is no binary fraction, and a machine that fuses the product with the sum would round it otherwise. */
int64_t tn__part_of(int64_t n, double frac) { return (n * llround(frac * 1e9) + 999999999) / 1000000000; }

static void set_counts(tn_sample_set *b, const int64_t count[TN_SPLITS])
{
    const int32_t *at = b->index;
    for (int k = 0; k < TN_SPLITS; k++) {
        b->set.index[k] = at;
        b->set.count[k] = count[k];
        at += count[k];
    }
}

/* --- files -------------------------------------------------------------------------------------------------------------- */

tn_status tn_split_write(const tn_samples *set, const char *path)
{
    enum { HEAD = 100, ROW = 12 };
    int64_t rows = 0;
    for (int k = 0; k < TN_SPLITS; k++) rows += set->count[k];
    char *text = tn_alloc(HEAD + ROW * (size_t)rows);
    if (!text) return TN_MEMORY;
    char *p = text + sprintf(text, "{\"samples\":%lld", (long long)set->n);
    for (int k = 0; k < TN_SPLITS; k++) {
        p += sprintf(p, ",\n\"%s\":[", tn_data_split_names[k]);
        for (int64_t i = 0; i < set->count[k]; i++) p += sprintf(p, "%s%d", i ? "," : "", (int)set->index[k][i]);
        p += sprintf(p, "]");
    }
    p += sprintf(p, "}\n");
    const tn_status s = tn_file_write_atomic(path, text, (size_t)(p - text));
    tn_free(text);
    return s;
}

static tn_status bad_split(const char *path, const tn_json *r, const char *why)
{
    return tn_error(TN_BAD_FILE, "%.640s:%zu: %s; a split is {\"train\":[..],\"valid\":[..],\"test\":[..]}", path,
                    tn_json_line(r), why);
}

/* The rows of one split behind those already taken. seen (n): 0, or 1 + the split a row is in. */
static tn_status take_rows(const char *path, tn_json *r, int split, tn_sample_set *b, unsigned char *seen,
                           int64_t *taken)
{
    const char *name = tn_data_split_names[split];
    int64_t row = 0;
    if (!tn_json_enter(r, '[')) return tn_error(TN_BAD_FILE, "%.640s: \"%s\" is not a list of row numbers", path, name);
    for (size_t i = 0; tn_json_item(r); i++) {
        if (!tn_json_integer(r, &row))
            return r->why ? bad_split(path, r, r->why)
                          : tn_error(TN_BAD_FILE, "%.640s: \"%s\"[%zu] is not a row number", path, name, i);
        if (row < 0 || row >= b->set.n)
            return tn_error(TN_BAD_FILE,
                            "%.640s: \"%s\"[%zu] is %lld; the rows are 0 to %lld: was it made for another task?", path,
                            name, i, (long long)row, (long long)b->set.n - 1);
        if (seen[row])
            return tn_error(TN_BAD_FILE, "%.640s: row %lld is in %s and again in %s: name it once", path,
                            (long long)row, tn_data_split_names[seen[row] - 1], name);
        seen[row] = (unsigned char)(1 + split);
        b->index[(*taken)++] = (int32_t)row;
    }
    return TN_OK;
}

/* Where the list of each split is in the text (not open: nowhere); what else a split may say is checked here. */
static tn_status find_lists(const char *path, tn_json *r, int64_t n, tn_json list[TN_SPLITS])
{
    char key[41] = "";
    int64_t samples = 0;
    if (!tn_json_enter(r, '{')) (void)tn_json_skip(r);
    else
        while (tn_json_key(r)) {
            int k = 0;
            while (k < TN_SPLITS && !tn_json_is(r, tn_data_split_names[k])) k++;
            if (k < TN_SPLITS && list[k].begin) return bad_split(path, r, "a duplicate key");
            if (k < TN_SPLITS) list[k] = *r;
            else if (!tn_json_is(r, "samples")) {
                if (r->bytes < sizeof key) tn_json_copy(r, key);
                return tn_error(TN_BAD_FILE, "%.640s: \"%.40s\" is not one of train, valid, test and samples", path,
                                key);
            } else if (!tn_json_integer(r, &samples) || samples != n)
                return tn_error(
                    TN_BAD_FILE,
                    "%.640s was made for %lld samples, this task has %lld: with its settings (task.size, ...) "
                    "as they were then it fits",
                    path, (long long)samples, (long long)n);
            if (k < TN_SPLITS) (void)tn_json_skip(r);
        }
    if (!tn_json_end(r)) return bad_split(path, r, r->why);
    if (list[TN_TRAIN].begin) return TN_OK;
    return tn_error(TN_BAD_FILE, "%.640s is not a split: write {\"train\":[..],\"valid\":[..],\"test\":[..]}", path);
}

static tn_status read_split(const char *path, tn_sample_set *b)
{
    tn_status s = TN_OK;
    char *text = NULL;
    tn_json r, list[TN_SPLITS] = { { .begin = NULL } };
    size_t bytes;
    int64_t taken = 0, count[TN_SPLITS] = { 0 };
    unsigned char *seen = tn_alloc((size_t)b->set.n);
    if (!seen) return TN_MEMORY;
    TN_TRY(tn_file_read_all(path, 65536 + 32 * (size_t)b->set.n, &text, &bytes));
    tn_json_open(&r, text, bytes);
    TN_TRY(find_lists(path, &r, b->set.n, list));
    for (int k = 0; k < TN_SPLITS; k++) {
        const int64_t before = taken;
        if (list[k].begin) TN_TRY(take_rows(path, &list[k], k, b, seen, &taken));
        count[k] = taken - before;
    }
    if (count[TN_TRAIN] == 0) TN_FAIL(TN_BAD_FILE, "%.640s: \"train\" is empty: there is nothing to learn from", path);
    set_counts(b, count);
done:
    tn_free(text);
    tn_free(seen);
    return s;
}

/* Whether task.split decides; then it is read. */
static tn_status from_file(const tn_settings *st, tn_sample_set *b, bool *done)
{
    const char *path = tn_settings_text(st, "task.split");
    *done = *path != 0;
    return *done ? read_split(path, b) : TN_OK;
}

/* --- in order ----------------------------------------------------------------------------------------------------------- */

tn_status tn__split_in_order(const tn_settings *st, tn_sample_set *b, const int64_t count[TN_SPLITS])
{
    bool done;
    TN_RETURN_IF(from_file(st, b, &done));
    if (done) return TN_OK;
    for (int64_t i = 0; i < b->set.n; i++) b->index[i] = (int32_t)i;
    set_counts(b, count);
    return TN_OK;
}

/* Rows of each split among the first n - own_test; those are count[TN_TEST] where there are any. */
static tn_status count_parts(const tn_settings *st, int64_t n, int64_t own_test, int64_t count[TN_SPLITS])
{
    const double valid = tn_settings_float(st, "task.valid_frac"), test = tn_settings_float(st, "task.test_frac");
    const int64_t mine = n - own_test;
    count[TN_VALID] = tn__part_of(mine, valid);
    count[TN_TEST] = own_test ? own_test : tn__part_of(n, test);
    count[TN_TRAIN] = n - count[TN_VALID] - count[TN_TEST];
    if (count[TN_TRAIN] > 0) return TN_OK;
    if (own_test)
        return tn_error(TN_USAGE, "task.valid_frac=%g leaves none of %lld samples for training: make it smaller", valid,
                        (long long)mine);
    return tn_error(
        TN_USAGE, "task.valid_frac=%g and task.test_frac=%g leave none of %lld samples for training: make them smaller",
        valid, test, (long long)n);
}

tn_status tn__split_in_parts(const tn_settings *st, tn_sample_set *b)
{
    int64_t count[TN_SPLITS] = { 0 };
    if (!*tn_settings_text(st, "task.split")) TN_RETURN_IF(count_parts(st, b->set.n, 0, count));
    return tn__split_in_order(st, b, count);
}

/* --- by class ----------------------------------------------------------------------------------------------------------- */

/* `part` of the samples, from each class its share of have (classes): what is missing after rounding down goes to the
 * classes with the largest remainders, of equal ones to the first. Leaves no quota above what a class has. */
static void share_out(const int64_t *have, int64_t classes, int64_t part, int64_t *quota)
{
    int64_t total = 0, left = part;
    for (int64_t c = 0; c < classes; c++) total += have[c];
    for (int64_t c = 0; c < classes; c++) left -= quota[c] = total ? part * have[c] / total : 0;
    for (; left > 0; left--) {
        int64_t best = -1, most = 0;
        for (int64_t c = 0; c < classes; c++) {
            const int64_t rest = part * have[c] - quota[c] * total; /* below 0 once the class got its one more */
            if (rest > most) {
                most = rest;
                best = c;
            }
        }
        quota[best]++;
    }
}

typedef struct strata {
    int64_t classes;   /* one more than the set has, for samples without a label */
    int64_t *have;     /* (classes): how many; then how many are left */
    int64_t *first;    /* (classes): where a class begins in rows */
    int64_t *quota;    /* (classes) */
    int32_t *rows;     /* (n): class after class */
    unsigned char *to; /* (n): the split of each row */
} strata;

static int64_t stratum(const tn_samples *set, int64_t row)
{
    const int32_t y = set->y[row * set->labels];
    return y < 0 ? set->classes : y;
}

/* The first n rows by class, those of a class in random order. */
static void sort_rows(const tn_samples *set, int64_t n, uint64_t seed, strata *t)
{
    const tn_rng rng = { seed, tn_rng_stream("task.split") };
    for (int64_t i = 0; i < n; i++) t->have[stratum(set, i)]++;
    for (int64_t c = 1; c < t->classes; c++) t->first[c] = t->first[c - 1] + t->have[c - 1];
    for (int64_t i = 0; i < n; i++) t->rows[t->first[stratum(set, i)]++] = (int32_t)i;
    for (int64_t c = 0; c < t->classes; c++) {
        int32_t *v = t->rows + (t->first[c] -= t->have[c]);
        for (int64_t i = t->have[c] - 1; i > 0; i--) {
            const int64_t k = (int64_t)tn_rng_below(rng, (uint64_t)c << 32 | (uint64_t)i, (uint64_t)i + 1);
            const int32_t row = v[i];
            v[i] = v[k];
            v[k] = row;
        }
    }
}

/* Marks `part` of the rows that are left as those of `split`. */
static void take_part(strata *t, int64_t part, tn_data_split split)
{
    share_out(t->have, t->classes, part, t->quota);
    for (int64_t c = 0; c < t->classes; c++) {
        for (int64_t i = 0; i < t->quota[c]; i++) t->to[t->rows[t->first[c] + i]] = (unsigned char)split;
        t->first[c] += t->quota[c];
        t->have[c] -= t->quota[c];
    }
}

tn_status tn__split_by_class(const tn_settings *st, tn_sample_set *b, int64_t own_test)
{
    tn_status s = TN_OK;
    tn_arena memory = { 0 };
    const int64_t n = b->set.n, mine = n - own_test;
    int64_t count[TN_SPLITS], at = 0;
    strata t = { .classes = b->set.classes + 1 };
    bool done = false;
    TN_TRY(from_file(st, b, &done));
    if (done) goto done;
    TN_TRY(count_parts(st, n, own_test, count));
    t.have = tn_arena_alloc(&memory, 3 * (size_t)t.classes * sizeof *t.have);
    t.rows = tn_arena_alloc(&memory, (size_t)n * sizeof *t.rows);
    t.to = tn_arena_alloc(&memory, (size_t)n);
    if (!t.have || !t.rows || !t.to) TN_TRY(TN_MEMORY);
    t.first = t.have + t.classes;
    t.quota = t.first + t.classes;
    sort_rows(&b->set, mine, (uint64_t)tn_settings_int(st, "task.split_seed"), &t);
    take_part(&t, own_test ? 0 : count[TN_TEST], TN_TEST);
    take_part(&t, count[TN_VALID], TN_VALID);
    memset(t.to + mine, TN_TEST, (size_t)own_test);
    for (int k = 0; k < TN_SPLITS; k++)
        for (int64_t i = 0; i < n; i++)
            if (t.to[i] == k) b->index[at++] = (int32_t)i;
    set_counts(b, count);
done:
    tn_arena_free(&memory);
    return s;
}
