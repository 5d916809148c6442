/* The samples of a task as records. */
#include "train/source/task_setup.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "train/trainer/shared.h"
#include "train/source/records.h"

#include <stdio.h>
#include <string.h>

/* What they fill, in this order. */
enum { FEATURES, LABELS, COUNT, SAMPLE, ROWS };
static const tn_input_row rows[ROWS] = {
    { "features", TN_F32, .dims = { TN_B, TN_T, "features" } },
    { "labels", TN_I32, { TN_B, "labels" }, .pad = -1 },
    { "count", TN_I32, { "1" }, .valid_rows = true },
    { "sample", TN_I32, .dims = { TN_B } }, /* which one of the training set it is, 0 where it is none */
};

typedef struct owned {
    const tn_samples *set;
    tn_samples *own; /* the same, where they go with it: back to `shared`, or freed */
    tn_shared *shared;
    char name[64]; /* of the task */
    tn_source_number number[3];
} owned;

static int64_t read_sample(const void *data, int split, int64_t i, int64_t step, void *const *at)
{
    const tn_samples *set = ((const owned *)data)->set;
    const int64_t row = set->index[split][i], L = set->labels;
    const int32_t *y = set->y + row * L;
    int64_t counted = 0;
    (void)step;
    if (at[FEATURES]) tn_samples_read(set, row, at[FEATURES]);
    if (at[LABELS]) memcpy(at[LABELS], y, sizeof *y * (size_t)L);
    if (at[SAMPLE]) *(int32_t *)at[SAMPLE] = split == TN_TRAIN ? (int32_t)i : 0;
    for (int64_t k = 0; k < L; k++) counted += y[k] >= 0;
    return counted;
}

static int64_t place_of(const void *data, int64_t i) { return ((const owned *)data)->set->index[TN_TRAIN][i]; }

static tn_status hash_samples(const void *data, char hash[TN_HASH_BYTES])
{
    const tn_samples *set = ((const owned *)data)->set;
    const int64_t shape[] = { set->n, set->tokens, set->features, set->labels, set->classes };
    const size_t numbers = (size_t)(set->n * set->tokens * set->features);
    tn_hash *h;
    TN_RETURN_IF(tn_hash_begin(&h));
    tn_hash_add(h, shape, sizeof shape);
    if (set->x_u8) tn_hash_add(h, set->x_u8, numbers);
    else tn_hash_add(h, set->x_f32, sizeof *set->x_f32 * numbers);
    tn_hash_add(h, set->y, sizeof *set->y * (size_t)(set->n * set->labels));
    for (int k = 0; k < TN_SPLITS; k++) {
        tn_hash_add(h, &set->count[k], sizeof set->count[k]);
        tn_hash_add(h, set->index[k], sizeof *set->index[k] * (size_t)set->count[k]);
    }
    tn_hash_text(h, hash);
    tn_hash_free(h);
    return TN_OK;
}

/* Samples that several sessions share are nobody's. */
static size_t bytes_of(const void *data)
{
    const owned *o = data;
    const tn_samples *set = o->own;
    if (!set || o->shared) return 0;
    return (size_t)set->n * ((size_t)(set->tokens * set->features) * (set->x_u8 ? 1 : sizeof(float)) +
                             (size_t)(set->labels + 1) * sizeof(int32_t));
}

static void about(const void *data, FILE *f)
{
    const owned *o = data;
    const tn_samples *set = o->set;
    fprintf(f, "task    %s, %lld samples, %lld valid, %lld test, of %lld x %lld numbers, %lld classes\n", o->name,
            (long long)set->count[TN_TRAIN], (long long)set->count[TN_VALID], (long long)set->count[TN_TEST],
            (long long)set->tokens, (long long)set->features, (long long)set->classes);
}

static void give_back(tn_shared *shared, tn_samples *own)
{
    if (shared) tn_shared_return_samples(shared, own);
    else tn_samples_free(own);
}

static void close_samples(void *data)
{
    owned *o = data;
    give_back(o->shared, o->own);
    tn_free(o);
}

static double counted_labels(const tn_samples *set)
{
    int64_t n = 0;
    for (int64_t i = 0; i < set->count[TN_TRAIN]; i++)
        for (int64_t k = 0; k < set->labels; k++) n += set->y[set->index[TN_TRAIN][i] * set->labels + k] >= 0;
    return (double)n;
}

/* own: goes with the source, also where that fails; or NULL. */
static tn_status make(const tn_samples *set, tn_samples *own, tn_shared *shared, const char *name, uint64_t seed,
                      tn_source *out)
{
    owned *o = tn_alloc(sizeof *o);
    if (!o) {
        give_back(shared, own);
        return TN_MEMORY;
    }
    *o = (owned){ .set = set,
                  .own = own,
                  .shared = shared,
                  .number = {
                      { "features", (double)set->features }, { "labels", (double)set->labels }, { "answers", 1 } } };
    snprintf(o->name, sizeof o->name, "%s", name);
    const tn_record_set records = { .kind = "task",
                                    .noun = "sample",
                                    .rows = rows,
                                    .n_rows = ROWS,
                                    .count = { set->count[0], set->count[1], set->count[2] },
                                    .labels = counted_labels(set),
                                    .data = o,
                                    .read = read_sample,
                                    .place = place_of,
                                    .hash = hash_samples,
                                    .about = about,
                                    .bytes = bytes_of,
                                    .close = close_samples,
                                    .seed = seed,
                                    .numbers = o->number,
                                    .n_numbers = 3 };
    return tn_source_records_make(&records, out);
}

tn_status tn_source_samples_open(const tn_samples *set, uint64_t seed, const tn_source_start *how, tn_source *out)
{
    TN_RETURN_IF(make(set, NULL, NULL, "", seed, out));
    return tn_source_started(out, how);
}

bool tn_source_takes_samples(const tn_source_open *o)
{
    const tn_task *task = tn_task_named(tn_settings_text(o->settings, "task.name"));
    return task && task->open && tn_model_reads(o->model, "features");
}

tn_status tn_source_open_samples(const tn_source_open *o, tn_source *out)
{
    tn_samples *set = NULL;
    const char *name = tn_settings_text(o->settings, "task.name");
    TN_RETURN_IF(tn_task_samples(o->settings, o->shared, &set));
    const tn_status s = tn_task_fit_samples(o->settings, set);
    if (s == TN_OK) return make(set, set, o->shared, name, (uint64_t)tn_settings_int(o->settings, "seed"), out);
    give_back(o->shared, set);
    return s;
}
