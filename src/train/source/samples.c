/* The samples of a task as records. */
#include "train/source/task_setup.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "train/trainer/shared.h"
#include "train/source/records.h"

#include <stdio.h>
#include <string.h>

/* What they fill, in this order: labels, or */
enum { FEATURES, LABELS, COUNT, SAMPLE, ROWS };
static const tn_input_row rows[ROWS] = {
    { "features", TN_F32, .dims = { TN_B, TN_T, "features" } },
    { "labels", TN_I32, { TN_B, "labels" }, .pad = -1 },
    { "count", TN_I32, { "1" }, .valid_rows = true },
    { "sample", TN_I32, .dims = { TN_B } }, /* which one of the training set it is, 0 where it is none */
};
/* ... target surfaces, the goals of their cells where they are known. */
enum { TARGET = LABELS, GOAL = ROWS, TARGET_ROWS };
static const tn_input_row target_rows[TARGET_ROWS] = {
    [FEATURES] = { "features", TN_F32, .dims = { TN_B, TN_T, "features" } },
    [TARGET] = { "target", TN_F32, .dims = { TN_B, "cells" } },
    [COUNT] = { "count", TN_I32, { "1" }, .valid_rows = true },
    [SAMPLE] = { "sample", TN_I32, .dims = { TN_B } },
    [GOAL] = { "goal", TN_I32, { TN_B, "cells" }, .pad = -1 },
};

enum { NUMBERS = 7 };

typedef struct owned {
    const tn_samples *set;
    tn_samples *own; /* the same, where they go with it: back to `shared`, or freed */
    tn_shared *shared;
    char name[64]; /* of the task */
    int64_t steps; /* of the training, by which targets grow */
    tn_source_number number[NUMBERS];
    size_t n_numbers;
    tn_resident resident;          /* what of the training samples is the same in every step; */
    int stored[TN_RESIDENT_PARTS]; /* which of the rows above its parts are */
} owned;

static int64_t read_sample(const void *data, int split, int64_t i, int64_t step, int shape, void *const *at)
{
    const tn_samples *set = ((const owned *)data)->set;
    const int64_t row = set->index[split][i], L = set->labels;
    const int32_t *y = set->y + row * L;
    int64_t counted = 0;
    (void)step, (void)shape;
    if (at[FEATURES]) tn_samples_read(set, row, at[FEATURES]);
    if (at[LABELS]) memcpy(at[LABELS], y, sizeof *y * (size_t)L);
    if (at[SAMPLE]) *(int32_t *)at[SAMPLE] = split == TN_TRAIN ? (int32_t)i : 0;
    for (int64_t k = 0; k < L; k++) counted += y[k] >= 0;
    return counted;
}

/* What counts is the surface. */
static int64_t read_target(const void *data, int split, int64_t i, int64_t step, int shape, void *const *at)
{
    const owned *o = data;
    const tn_targets *t = o->set->targets;
    (void)shape;
    t->read(o->set, o->set->index[split][i], step, tn_targets_progress(t, step, o->steps), at[FEATURES], at[TARGET],
            t->has_goals ? at[GOAL] : NULL);
    if (at[SAMPLE]) *(int32_t *)at[SAMPLE] = split == TN_TRAIN ? (int32_t)i : 0;
    return 1;
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
    if (set->targets) tn_hash_add(h, set->targets->about, strlen(set->targets->about));
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

static void about(const void *data, const tn_record_batches *b, FILE *f)
{
    const owned *o = data;
    (void)b;
    const tn_samples *set = o->set;
    fprintf(f, "task    %s, %lld samples, %lld valid, %lld test, of ", o->name, (long long)set->count[TN_TRAIN],
            (long long)set->count[TN_VALID], (long long)set->count[TN_TEST]);
    if (set->targets)
        fprintf(f, "%lld x %lld cells, %s\n", (long long)set->width, (long long)set->height, set->targets->about);
    else
        fprintf(f, "%lld x %lld numbers, %lld classes\n", (long long)set->tokens, (long long)set->features,
                (long long)set->classes);
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

static void add_number(owned *o, const char *name, double value)
{
    o->number[o->n_numbers++] = (tn_source_number){ name, value };
}

static void list_numbers(owned *o)
{
    const tn_samples *set = o->set;
    add_number(o, "features", (double)set->features);
    if (set->targets) {
        add_number(o, "targets", 1);
        if (set->targets->has_goals) add_number(o, "goals", 1);
    } else {
        add_number(o, "labels", (double)set->labels);
        add_number(o, "answers", 1);
        add_number(o, "classes", (double)set->classes);
    }
    if (!set->width) return;
    add_number(o, "cells", (double)(set->width * set->height));
    add_number(o, "width", (double)set->width);
    add_number(o, "height", (double)set->height);
}

/* --- where they stay on the device ------------------------------------------------------------------------------------------ */

static void read_stored(const void *data, size_t part, int64_t i, void *to)
{
    const owned *o = data;
    const tn_samples *set = o->set;
    const tn_targets *t = set->targets;
    const int64_t row = set->index[TN_TRAIN][i], n = o->resident.part[part].each;
    const int which = o->stored[part];
    if (t)
        t->read(set, row, 0, tn_targets_progress(t, 0, o->steps), which == FEATURES ? to : NULL,
                which == TARGET ? to : NULL, which == GOAL ? to : NULL);
    else if (which == LABELS) memcpy(to, set->y + row * n, sizeof *set->y * (size_t)n);
    else if (set->x_u8) memcpy(to, set->x_u8 + row * n, (size_t)n);
    else memcpy(to, set->x_f32 + row * n, sizeof *set->x_f32 * (size_t)n);
}

static void add_stored(owned *o, int which, tn_resident_part part)
{
    o->stored[o->resident.n] = which;
    o->resident.part[o->resident.n++] = part;
}

/* What is drawn for each step stays with the host. */
static const tn_resident *stay(owned *o)
{
    const tn_samples *set = o->set;
    const tn_targets *t = set->targets;
    const int64_t n = set->tokens * set->features;
    const tn_dtype bytes = set->x_u8 && !t ? TN_U8 : TN_F32;
    o->resident = (tn_resident){ .samples = set->count[TN_TRAIN],
                                 .number = rows[SAMPLE].name,
                                 .valid = rows[COUNT].name,
                                 .data = o,
                                 .read = read_stored };
    if (!t || t->same_x)
        add_stored(o, FEATURES,
                   (tn_resident_part){ .input = "features", .stored = bytes, .scale = set->scale, .each = n });
    if (!t)
        add_stored(o, LABELS,
                   (tn_resident_part){ .input = "labels", .stored = TN_I32, .each = set->labels, .counts = true });
    if (t && t->same_target)
        add_stored(o, TARGET, (tn_resident_part){ .input = "target", .stored = TN_F32, .each = n });
    if (t && t->same_target && t->has_goals)
        add_stored(o, GOAL, (tn_resident_part){ .input = "goal", .stored = TN_I32, .each = n, .counts = true });
    return o->resident.n ? &o->resident : NULL;
}

/* own: goes with the source, also where that fails; or NULL. */
static tn_status make(const tn_samples *set, tn_samples *own, tn_shared *shared, const char *name, uint64_t seed,
                      int64_t steps, tn_source *out)
{
    owned *o = tn_alloc(sizeof *o);
    if (!o) {
        give_back(shared, own);
        return TN_MEMORY;
    }
    *o = (owned){ .set = set, .own = own, .shared = shared, .steps = steps };
    snprintf(o->name, sizeof o->name, "%s", name);
    list_numbers(o);
    const tn_targets *t = set->targets;
    const tn_record_set records = { .kind = "task",
                                    .noun = "sample",
                                    .rows = t ? target_rows : rows,
                                    .n_rows = t && t->has_goals ? TARGET_ROWS : ROWS,
                                    .count = { set->count[0], set->count[1], set->count[2] },
                                    .labels = t ? (double)set->count[TN_TRAIN] : counted_labels(set),
                                    .data = o,
                                    .read = t ? read_target : read_sample,
                                    .place = place_of,
                                    .hash = hash_samples,
                                    .about = about,
                                    .bytes = bytes_of,
                                    .close = close_samples,
                                    .resident = stay(o),
                                    .seed = seed,
                                    .numbers = o->number,
                                    .n_numbers = o->n_numbers };
    TN_RETURN_IF(tn_source_records_make(&records, out));
    out->prefetch_depth = 2;
    return TN_OK;
}

tn_status tn_source_samples_open(const tn_samples *set, uint64_t seed, const tn_source_start *how, tn_source *out)
{
    TN_RETURN_IF(make(set, NULL, NULL, "", seed, 0, out));
    return tn_source_started(out, how);
}

bool tn_source_takes_samples(const tn_source_open *o)
{
    const tn_task *task = tn_task_named(tn_settings_text(o->settings, "task.name"));
    return task && task->open && tn_model_reads(o->model, "features");
}

/* A network that answers with a class has no use for a surface. */
static tn_status check_targets(const tn_model *model, const char *name, const tn_samples *set)
{
    if (!set->targets || tn_model_reads(model, "target")) return TN_OK;
    return tn_error(
        TN_USAGE,
        "task=%s asks for a surface, and %s answers with a class: use a model with an input target, or a task "
        "with classes, such as strokes",
        name, model->name);
}

tn_status tn_source_open_samples(const tn_source_open *o, tn_source *out)
{
    tn_samples *set = NULL;
    tn_settings *st = o->settings;
    const char *name = tn_settings_text(st, "task.name");
    TN_RETURN_IF(tn_task_take_defaults(st));
    TN_RETURN_IF(tn_task_samples(st, o->shared, &set));
    tn_status s = check_targets(o->model, name, set);
    if (s == TN_OK) s = tn_task_fit_samples(st, set);
    if (s == TN_OK)
        return make(set, set, o->shared, name, (uint64_t)tn_settings_int(st, "seed"),
                    tn_settings_int(st, "train.steps"), out);
    give_back(o->shared, set);
    return s;
}
