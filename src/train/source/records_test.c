/* A model with data of its own: an epoch is every record once and its last batch is padded, records are told the step they are for, a source
 * that was stopped goes on with the same bytes, one of other records refuses; and a run on them learns, is evaluated, and ends with the same
 * bits wherever it was stopped. */
#include "train/source/records.h"

#include "base/alloc.h"
#include "tempdir.h"
#include "train/check/check.h"
#include "train/run/run.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { TRAIN = 13, VALID = 7, TEST = 3, CELLS = 3, B = 5, MOST_STEPS = 64 };

/* --- the data ----------------------------------------------------------------------------------------------------------------- */

typedef struct waves {
    int64_t world, cells;
    tn_source_number number[2];
} waves;

static int opened;                      /* waves that are not closed */
static atomic_int told[MOST_STEPS + 1]; /* records read for each step; the last: for none */

static double cell(const waves *w, int split, int64_t i, int64_t k)
{
    return sin((double)(w->world * 7 + split * 100 + i * 10 + k * k));
}

/* What is to be learned: each cell half of its neighbour. */
static double target(const waves *w, int split, int64_t i, int64_t k)
{
    return cell(w, split, i, (k + 1) % w->cells) / 2;
}

static tn_status open_waves(const tn_settings *st, void **data, tn_records_about *about)
{
    waves *w = malloc(sizeof *w);
    assert_non_null(w);
    *w = (waves){ .world = tn_settings_int(st, "world"),
                  .cells = CELLS,
                  .number = { { "cells", CELLS }, { "rate", 3 } } };
    *data = w;
    opened++;
    if (w->world == 99) return tn_model_error("there is no world 99");
    *about = (tn_records_about){ .count = { tn_settings_int(st, "records"), VALID, TEST },
                                 .numbers = w->number,
                                 .n_numbers = 2,
                                 .identity = (uint64_t)w->world };
    return TN_OK;
}

static void close_waves(void *data)
{
    opened--;
    free(data);
}

enum { SURFACE, WANTED, WEIGHT, STEP, NUMBER, COUNT, ROWS };
static const tn_input_row given[ROWS] = {
    { "surface", TN_F32, .dims = { TN_B, "cells" } }, { "wanted", TN_F32, .dims = { TN_B, "cells" } },
    { "weight", TN_F32, .dims = { TN_B } },           { "step", TN_I32, .dims = { TN_B } },
    { "number", TN_I32, .dims = { TN_B } },           { "count", TN_I32, .dims = { "1" }, .valid_rows = true },
};

/* Counts 2, so that counts are told from rows. */
static int64_t read_wave(const void *data, int split, int64_t i, int64_t step, void *const *at)
{
    const waves *w = data;
    for (int64_t k = 0; k < w->cells; k++) {
        if (at[SURFACE]) ((float *)at[SURFACE])[k] = (float)cell(w, split, i, k);
        if (at[WANTED]) ((float *)at[WANTED])[k] = (float)target(w, split, i, k);
    }
    if (at[WEIGHT]) *(float *)at[WEIGHT] = 1;
    if (at[STEP]) *(int32_t *)at[STEP] = (int32_t)step;
    if (at[NUMBER]) *(int32_t *)at[NUMBER] = (int32_t)i;
    if (at[SURFACE]) told[step < 0 ? MOST_STEPS : step]++;
    assert_null(at[COUNT]); /* which has no rows */
    return 2;
}

/* --- the model ---------------------------------------------------------------------------------------------------------------- */

static const tn_setting settings[] = {
    TN_SETTING_AUTO_INT("cells", "auto", TN_RANGE(1, 1000), "", "numbers of a record (auto: the data's)"),
    TN_SETTING_INT("world", "1", TN_RANGE(0, 99), "", "which data"),
    TN_SETTING_INT("records", "13", TN_RANGE(-1, 1000), "", "records to learn from"),
    TN_SETTING_FLOAT("rate", "0.5", TN_RANGE(0, 1), "", "called as a number of the data is, and no size"),
};

static tn_status build_toy(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const int64_t n = tn_settings_int(st, "cells");
    const tn_ref y = tn_linear(g, tn_in(b, "surface"), tn_param(g, "w", tn_shape(n, n), tn_normal(0.1f)));
    tn_output(g, "loss", tn_mse(g, y, tn_in(b, "wanted"), .weights = tn_in(b, "weight")));
    tn_output(g, "step", tn_copy(g, tn_in(b, "step")));
    tn_output(g, "number", tn_copy(g, tn_in(b, "number")));
    tn_output(g, "count", tn_copy(g, tn_in(b, "count")));
    return tn_number(b, "rate") == 3 && tn_number(b, "cells") == CELLS
               ? tn_graph_status(g)
               : tn_model_error("the numbers of the data are not there");
}

static const tn_input_row inputs[] = {
    { "wanted", TN_F32, .dims = { TN_B, "cells" }, .pad = -7 }, /* whatever it is there: its weight is 0 */
    { "surface", TN_F32, .dims = { TN_B, "cells" } },
    { "weight", TN_F32, .dims = { TN_B } },
    { "step", TN_I32, .dims = { TN_B }, .pad = -9 },
    { "number", TN_I32, .dims = { TN_B }, .pad = -1 },
    { "count", TN_I32, .dims = { "1" }, .valid_rows = true },
};

static const tn_records records = { "waves", given, ROWS, open_waves, close_waves, read_wave };

static const tn_model toy = { TN_MODEL_HEAD,      .name = "toy",     .settings = settings, .n_settings = 4,
                              .build = build_toy, TN_INPUTS(inputs), .records = &records };

typedef struct rig {
    tn_settings *settings;
    tn_trainer *trainer;
    tn_source source;
    tn_feed f;
    float *surface, *wanted, *weight;
    int32_t *step, *number, *count;
} rig;

static tn_settings *settings_of(const char *const *set, size_t n)
{
    tn_settings *st;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, settings, 4, "toy"));
    for (size_t i = 0; i < n; i++) assert_ok(tn_settings_override(st, set[i]));
    return st;
}

static tn_status find(tn_settings *st, tn_source *out)
{
    return tn_source_find(&(tn_source_open){ .model = &toy, .settings = st, .needed = true, .trains = true }, out);
}

/* As a session does it. */
static tn_status try_rig(rig *r, const char *const *set, size_t n, tn_data_split heldout)
{
    *r = (rig){ .settings = settings_of(set, n) };
    TN_RETURN_IF(find(r->settings, &r->source));
    const tn_input_spec input_spec = tn_source_input_spec(&r->source);
    TN_RETURN_IF(tn_trainer_new(
        &(tn_trainer_options){
            .model = &toy, .settings = r->settings, .batch = B, .length = 1, .input_spec = &input_spec, .threads = 1 },
        &r->trainer));
    TN_RETURN_IF(r->source.start(&r->source,
                                 &(tn_source_start){ .trainer = r->trainer,
                                                     .batch = B,
                                                     .length = 1,
                                                     .heldout = heldout,
                                                     .accumulate = tn_settings_int(r->settings, "train.accumulate") }));
    r->f = tn_trainer_feed(r->trainer);
    r->surface = tn_feed_at(&r->f, "surface");
    r->wanted = tn_feed_at(&r->f, "wanted");
    r->weight = tn_feed_at(&r->f, "weight");
    r->step = tn_feed_at(&r->f, "step");
    r->number = tn_feed_at(&r->f, "number");
    r->count = tn_feed_at(&r->f, "count");
    return TN_OK;
}

static void open_rig(rig *r, const char *set) { assert_ok(try_rig(r, &set, set != NULL, TN_VALID)); }

static void close_rig(rig *r)
{
    tn_source_close(&r->source);
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

static int64_t next(rig *r, int64_t step)
{
    int64_t count;
    assert_ok(tn_source_next(&r->source, step, r->trainer, &count));
    return count;
}

/* The first `rows` rows are records of the split by their numbers, for this step; those behind are padding. */
static void assert_batch(const rig *r, int split, int64_t step, int64_t rows)
{
    const waves w = { .world = tn_settings_int(r->settings, "world"), .cells = CELLS };
    assert_int_equal(r->count[0], rows);
    for (int64_t b = 0; b < B; b++) {
        const bool valid = b < rows;
        assert_int_equal(r->step[b], valid ? step : -9);
        assert_true(valid ? r->number[b] >= 0 : r->number[b] == -1);
        assert_true(r->weight[b] == (valid ? 1 : 0));
        for (int64_t k = 0; k < CELLS; k++) {
            assert_true(r->surface[b * CELLS + k] == (valid ? (float)cell(&w, split, r->number[b], k) : 0));
            assert_true(r->wanted[b * CELLS + k] == (valid ? (float)target(&w, split, r->number[b], k) : -7));
        }
    }
}

/* --- batches ------------------------------------------------------------------------------------------------------------------ */

static void one_epoch(rig *r, int64_t step, int32_t order[TRAIN])
{
    bool seen[TRAIN] = { false };
    int at = 0;
    for (int batch = 0; batch < 3; batch++) {
        const int64_t rows = batch < 2 ? B : TRAIN - 2 * B;
        assert_int_equal(next(r, step + batch), 2 * rows);
        assert_batch(r, TN_TRAIN, step + batch, rows);
        for (int64_t b = 0; b < rows; b++) {
            assert_true(r->number[b] < TRAIN && !seen[r->number[b]]);
            seen[r->number[b]] = true;
            order[at++] = r->number[b];
        }
    }
    assert_int_equal(at, TRAIN);
}

static void epochs(void **state)
{
    (void)state;
    rig a, b;
    int32_t first[TRAIN], second[TRAIN], other[TRAIN];
    open_rig(&a, NULL);
    open_rig(&b, "seed=9");
    one_epoch(&a, 0, first);
    one_epoch(&a, 40, second); /* whatever step is said, it is told to the records */
    one_epoch(&b, 0, other);
    assert_true(memcmp(first, second, sizeof first) != 0 && memcmp(first, other, sizeof first) != 0);
    const uint64_t before = tn_alloc_count();
    for (int i = 0; i < 7; i++) (void)next(&a, i);
    assert_int_equal(tn_alloc_count(), before);
    assert_true(a.source.train_samples == TRAIN && a.source.train_tokens == 2 * TRAIN && a.source.epoch_batches == 3 &&
                isnan(a.source.bits));
    close_rig(&a);
    close_rig(&b);
    assert_int_equal(opened, 0);
}

static void heldout(void **state)
{
    const tn_data_split split = *(const tn_data_split *)*state;
    const int64_t all = split == TN_VALID ? VALID : TEST;
    rig r;
    int64_t count;
    assert_ok(try_rig(&r, NULL, 0, split));
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0; i < 3; i++) {
            const int64_t rows = all - i * B < B ? all - i * B : B;
            assert_ok(tn_source_heldout(&r.source, i, r.trainer, &count));
            assert_int_equal(count, rows > 0 ? 2 * rows : 0);
            if (count == 0) break;
            assert_batch(&r, (int)split, -1, rows); /* for no step */
            for (int64_t b = 0; b < rows; b++) assert_int_equal(r.number[b], i * B + b);
        }
        (void)next(&r, 3);
    }
    assert_true(tn_source_number_of(&r.source, "samples") == TRAIN && r.source.count(r.source.ctx, split) == all);
    close_rig(&r);
}

/* --- the cursor --------------------------------------------------------------------------------------------------------------- */

static void goes_on(void **state)
{
    (void)state;
    for (int stop = 0; stop < 8; stop++) {
        rig a, b;
        int64_t count;
        open_rig(&a, NULL);
        open_rig(&b, NULL);
        for (int i = 0; i < stop; i++) (void)next(&a, i);
        json_t *cursor = a.source.save(a.source.ctx);
        assert_ok(tn_source_heldout(&a.source, 0, a.trainer, &count)); /* which leaves the place where it is */
        assert_ok(b.source.load(b.source.ctx, cursor));
        for (int i = 0; i < 7; i++) {
            assert_int_equal(next(&a, stop + i), next(&b, stop + i));
            assert_memory_equal(a.surface, b.surface, sizeof(float) * B * CELLS);
            assert_memory_equal(a.wanted, b.wanted, sizeof(float) * B * CELLS);
            assert_memory_equal(a.number, b.number, sizeof(int32_t) * B);
            assert_memory_equal(a.step, b.step, sizeof(int32_t) * B);
            assert_int_equal(a.count[0], b.count[0]);
        }
        json_decref(cursor);
        close_rig(&a);
        close_rig(&b);
    }
}

static void refuses(void **state)
{
    (void)state;
    rig a, b;
    static const struct {
        const char *set, *says;
    } row[] = {
        { "world=2", "the records, or their splits, are not those the run began with" }, /* another identity */
        { "records=12", "are not those the run began with" },                            /* another split */
        { "seed=9", "the run has seed=" },
    };
    open_rig(&a, NULL);
    json_t *cursor = a.source.save(a.source.ctx), *other = json_deep_copy(cursor);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        open_rig(&b, row[i].set);
        assert_fails(b.source.load(b.source.ctx, cursor), TN_USAGE, row[i].says);
        close_rig(&b);
    }
    json_object_set_new(other, "next", json_integer(TRAIN + 1));
    assert_fails(a.source.load(a.source.ctx, other), TN_BAD_FILE, "use another checkpoint");
    json_object_set_new(other, "kind", json_string("task"));
    assert_fails(a.source.load(a.source.ctx, other), TN_USAGE, "was not trained on the model's own records");
    json_decref(other);
    json_decref(cursor);
    close_rig(&a);
    assert_fails(try_rig(&b, (const char *const[]){ "world=99" }, 1, TN_VALID), TN_USAGE,
                 "model toy, data waves: there is no world 99");
    close_rig(&b);
    assert_fails(try_rig(&b, (const char *const[]){ "cells=4" }, 1, TN_VALID), TN_USAGE,
                 "the model takes f32 (B,4) and the data have f32 (B,3)");
    close_rig(&b);
    assert_fails(try_rig(&b, (const char *const[]){ "records=0" }, 1, TN_VALID), TN_USAGE,
                 "records have no training split");
    close_rig(&b);
    assert_int_equal(opened, 0);
}

/* Found before a record is read. */
static void refuses_rows(void **state)
{
    (void)state;
    static const tn_input_row many[TN_INPUTS_MAX + 1], flat[] = { { "surface", TN_F32, .dims = { "cells" } } };
    tn_records bad[] = { records, records, records };
    static const char *const says[] = { "data waves: it has more than 48 inputs",
                                        "data waves: input surface: a record fills one row of the batch",
                                        "data waves: its row has no name, open or read" };
    bad[0].inputs = many;
    bad[0].n_inputs = TN_INPUTS_MAX + 1;
    bad[1].inputs = flat;
    bad[1].n_inputs = 1;
    bad[2].read = NULL;
    for (int i = 0; i < 3; i++) {
        tn_model model = toy;
        tn_source source;
        tn_settings *st = settings_of(NULL, 0);
        model.records = &bad[i];
        assert_fails(tn_source_find(
                         &(tn_source_open){ .model = &model, .settings = st, .needed = true, .trains = true }, &source),
                     TN_USAGE, says[i]);
        tn_settings_free(st);
    }
    assert_int_equal(opened, 0);
}

static void too_many(void **state)
{
    (void)state;
    rig r;
    assert_fails(try_rig(&r, (const char *const[]){ "records=-1" }, 1, TN_VALID), TN_USAGE,
                 "-1 records of a split: 0 to 2147483647 are possible");
    close_rig(&r);
    assert_int_equal(opened, 0);
}

static void sizes(void **state)
{
    (void)state;
    rig r;
    open_rig(&r, NULL);
    assert_string_equal(tn_settings_text(r.settings, "cells"), "3");
    assert_string_equal(tn_settings_source(r.settings, "cells"), "data waves");
    assert_string_equal(tn_settings_text(r.settings, "rate"), "0.5"); /* a number of that name is no size */
    assert_true(tn_settings_int(r.settings, "train.batch") == TRAIN &&
                tn_settings_int(r.settings, "train.eval_batches") == 0);
    assert_true(tn_settings_on(r.settings, "train.test"));
    close_rig(&r);
}

/* The same records once more, for another split: closed alone, the data stay. */
static void open_heldout(void **state)
{
    (void)state;
    rig r;
    tn_source test;
    int64_t count;
    open_rig(&r, NULL);
    assert_ok(r.source.open_heldout(
        r.source.ctx,
        &(tn_source_start){ .trainer = r.trainer, .batch = B, .length = 1, .heldout = TN_TEST, .heldout_only = true },
        &test));
    assert_ok(tn_source_heldout(&test, 0, r.trainer, &count));
    assert_int_equal(count, 2 * TEST);
    assert_batch(&r, TN_TEST, -1, TEST);
    tn_source_close(&test);
    assert_int_equal(opened, 1);
    assert_int_equal(next(&r, 0), 2 * B);
    close_rig(&r);
}

/* --- runs --------------------------------------------------------------------------------------------------------------------- */

typedef struct stopper {
    int64_t after, seen; /* steps of this session */
} stopper;

static bool stop_now(void *ctx)
{
    stopper *s = ctx;
    return s->after >= 0 && s->seen++ >= s->after;
}

enum { STEPS = 40 };

/* As tenon train does it; loss: of the held-out part by the weights as they are then, or NULL. */
static tn_status session(const tn_tempdir *d, const char *run, int64_t stop_after, tn_progress_report *last,
                         double *loss)
{
    char dir[TN_PATH_BYTES + 8], path[TN_PATH_BYTES];
    const char *const set[] = {
        "threads=1",          "train.steps=40", "train.lr=5e-2",      "train.batch=5", "train.warmup=2",
        "train.eval_every=8", "ckpt.every=7",   "train.accumulate=2", "train.decay=0", dir
    };
    tn_status s = TN_OK;
    rig r;
    tn_jsonl *metrics = NULL;
    tn_run_dir on = { .lock = -1 };
    tn_ckpt_state state = { 0 };
    stopper stop = { .after = stop_after };
    snprintf(path, sizeof path, "%s/%s", d->path, run);
    snprintf(dir, sizeof dir, "run=%s", path);
    TN_TRY(try_rig(&r, set, sizeof set / sizeof *set, TN_VALID));
    TN_TRY(tn_run_open(r.settings, "toy", false, &on));
    tn_training job = { .trainer = r.trainer,
                        .settings = r.settings,
                        .source = &r.source,
                        .dir = on.dir,
                        .batch = B,
                        .length = 1,
                        .ctx = &stop,
                        .interrupted = stop_now };
    if (on.checkpoint[0]) TN_TRY(tn_run_resume(&on, &job, &state));
    TN_TRY(tn_path_join(path, "metrics.jsonl", path, sizeof path));
    TN_TRY(tn_jsonl_open(path, on.checkpoint[0], &metrics));
    job.metrics = metrics;
    s = tn_training_run(&job, on.checkpoint[0] ? &state : NULL, last);
    const waves w = { .world = 1, .cells = CELLS };
    const float *m = tn_store_find(tn_trainer_store(r.trainer), "w")->data;
    for (int64_t i = 0; loss && i < VALID * CELLS; i++) {
        double y = -target(&w, TN_VALID, i / CELLS, i % CELLS);
        for (int64_t k = 0; k < CELLS; k++) y += (double)m[i % CELLS * CELLS + k] * cell(&w, TN_VALID, i / CELLS, k);
        *loss += y * y / (VALID * CELLS);
    }
done:
    (void)tn_jsonl_close(metrics);
    tn_ckpt_state_free(&state);
    tn_run_close(&on);
    close_rig(&r);
    return s;
}

/* The first and the last held-out loss of a run's metrics. */
static void read_losses(tn_tempdir *d, double *first, double *last)
{
    char *text;
    *first = *last = NAN;
    assert_ok(tn_file_read_all(tn_tempdir_file(d, "a/metrics.jsonl"), 1 << 22, &text, NULL));
    for (char *rest = text, *line; (line = strtok_r(rest, "\n", &rest));) {
        json_t *v = json_loads(line, 0, NULL), *x = json_object_get(v, "heldout");
        if (x && isnan(*first)) *first = json_number_value(x);
        if (x) *last = json_number_value(x);
        json_decref(v);
    }
    tn_free(text);
}

/* Two batches a step: of 5 and 5, 3 and 5, 5 and 3 records. */
static void assert_told(int least)
{
    static const int each[] = { 10, 8, 8 };
    for (int i = 0; i < STEPS; i++) assert_true(least ? told[i] >= each[i % 3] : told[i] == each[i % 3]);
    for (int i = STEPS; i < MOST_STEPS; i++) assert_int_equal(told[i], 0);
    assert_true(told[MOST_STEPS] > 0 && told[MOST_STEPS] % VALID == 0);
}

static void runs(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_progress_report whole, last = { 0 };
    double loss = 0, first, end;
    char command[900];
    tn_tempdir_make_quick(&d);
    memset(told, 0, sizeof told);
    assert_ok(session(&d, "a", -1, &whole, &loss));
    assert_int_equal(whole.step, STEPS);
    assert_told(0);
    read_losses(&d, &first, &end);
    assert_true(fabs(end - loss) < 1e-6 && end < 0.1 * first && end > 0);
    memset(told, 0, sizeof told);
    for (int i = 0; last.step < STEPS && i < 30; i++) { /* 0, 1, 2, ... steps at a time */
        const tn_status s = session(&d, "b", i, &last, NULL);
        assert_int_equal(s, last.step < STEPS ? TN_INTERRUPTED : TN_OK);
    }
    assert_int_equal(last.step, STEPS);
    assert_told(1);
    snprintf(command, sizeof command,
             "cd '%s' && for r in a b; do sed -E "
             "'s/"
             ",\"(samples_per_s|tokens_per_s|first_step_s|seconds|step_ms|stall_s|stall_frac|memory_mb|utilisation)\":["
             "^,}]*//g' "
             "$r/metrics.jsonl >$r.txt; done; grep -q '\"heldout\"' a.txt && cmp a.txt b.txt && cmp "
             "a/latest/model.safetensors b/latest/model.safetensors && "
             "cmp a/latest/state.safetensors b/latest/state.safetensors && [ \"$(readlink a/best)\" = \"$(readlink "
             "b/best)\" ]",
             d.path);
    assert_int_equal(system(command), 0);
    tn_tempdir_remove_all(&d);
    assert_int_equal(opened, 0);
}

/* --- checks ------------------------------------------------------------------------------------------------------------------- */

static void take_check(void *ctx, const tn_check_row *r)
{
    int *seen = ctx;
    seen[r->verdict]++;
    if (r->verdict == TN_FAILED) print_message("%s: %s\n", r->name, r->detail);
}

static void checks(void **state)
{
    (void)state;
    int seen[3] = { 0 };
    tn_source source;
    tn_settings *st = settings_of((const char *const[]){ "threads=1" }, 1);
    assert_ok(find(st, &source));
    const tn_check c = { .model = &toy,
                         .settings = st,
                         .batch = 8,
                         .length = 1,
                         .source = &source,
                         .only = "parameters,gradients,leak,overfit,determinism,allocations,speed",
                         .ctx = seen,
                         .row = take_check };
    assert_ok(tn_check_run(&c));
    assert_true(seen[TN_PASS] == 6 && seen[TN_SKIPPED] == 1);
    tn_source_close(&source);
    tn_settings_free(st);
}

void tn_tests_records(tn_test_list *l)
{
    static const tn_data_split valid = TN_VALID, test = TN_TEST;
    tn_test_add(l, epochs, NULL, "records: epochs, padding and steps");
    tn_test_add(l, heldout, &valid, "records: the valid part");
    tn_test_add(l, heldout, &test, "records: the test part");
    tn_test_add(l, goes_on, NULL, "records: goes on where it was");
    tn_test_add(l, refuses, NULL, "records: refusals");
    tn_test_add(l, refuses_rows, NULL, "records: mistakes in their row");
    tn_test_add(l, too_many, NULL, "records: a count that cannot be");
    tn_test_add(l, sizes, NULL, "records: what settings become");
    tn_test_add(l, open_heldout, NULL, "records: another split apart");
    tn_test_add(l, runs, NULL, "records: a run in sessions of 0, 1, 2, ... steps");
    tn_test_add(l, checks, NULL, "records: checks of a model on them");
}
