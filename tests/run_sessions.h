/* A whole training of a small model on text, in sessions that are stopped. Header only. */
#ifndef TN_RUN_SESSIONS_H
#define TN_RUN_SESSIONS_H

#include "base/alloc.h"
#include "tempdir.h"
#include "train/run/run.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"
#include "train/source/text.h"

#include <stdio.h>
#include <string.h>

static inline const char *file_text(tn_tempdir *d, const char *name)
{
    char *text;
    assert_ok(tn_file_read_all(tn_tempdir_file(d, name), 1 << 22, &text, NULL));
    return text;
}

typedef struct place {
    tn_tempdir d;
    char data[TN_PATH_BYTES];
    int queue_depth; /* steps that run b queues; run a: one */
    int64_t ruin;    /* as in stopper */
    bool leaves;     /* evaluations, too, are stopped */
} place;

/* A file of one document, or of many. */
static inline void open_place(place *p, bool documents)
{
    char text[3000];
    size_t n = 0;
    const char *name = documents ? "text.jsonl" : "text";
    p->queue_depth = 0;
    p->leaves = false;
    p->ruin = 0;
    tn_tempdir_make_quick(&p->d);
    for (int i = 0; documents && i < 30; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "{\"text\":\"%d, of %.*s\"}\n", i, i % 17, "letters and more");
    for (; !documents && n < sizeof text; n++) text[n] = (char)('a' + n * n % 23);
    snprintf(p->data, sizeof p->data, "data=%s", tn_tempdir_file(&p->d, name));
    assert_ok(tn_file_write_atomic(tn_tempdir_file(&p->d, name), text, n));
}

typedef struct stopper {
    int64_t after, seen; /* steps of this session, and batches of its evaluations where these are stopped */
    int64_t ruin;        /* > 0: before that step a parameter becomes NaN */
    tn_trainer *trainer;
} stopper;

static inline bool stop_now(void *ctx)
{
    stopper *s = ctx;
    if (s->ruin > 0 && s->ruin-- == 1) *(float *)tn_store_at(tn_trainer_store(s->trainer), 0)->data = NAN;
    return s->after >= 0 && s->seen++ >= s->after;
}

/* One session of the command: as tenon train does it. Returns the status; *last and *from say what happened. */
static inline tn_status session(place *p, const char *run, const char *const *more, size_t n, bool fresh,
                                int64_t stop_after, tn_progress_report *last, int64_t *from)
{
    const char *set[24] = { "dim=16",
                            "layers=1",
                            "heads=2",
                            "train.context=8",
                            "train.batch=2",
                            "threads=1",
                            "train.dropout=0.1",
                            "train.accumulate=2",
                            "train.eval_batches=1",
                            "vocab=256",
                            p->data };
    char dir[TN_PATH_BYTES];
    size_t count = 11;
    int64_t widths[TN_LOADER_WIDTHS];
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    tn_trainer *t = NULL;
    tn_dataset *data = NULL;
    tn_source source = { 0 };
    tn_jsonl *metrics = NULL;
    const tn_model *model;
    tn_run_dir r = { .lock = -1 };
    tn_ckpt_state state = { 0 };
    stopper stop = { .after = stop_after, .ruin = p->ruin };
    snprintf(dir, sizeof dir, "run=%s", tn_tempdir_file(&p->d, run));
    set[count++] = dir;
    for (size_t i = 0; i < n; i++) set[count++] = more[i];
    *from = -1;
    TN_TRY(tn_settings_resolve("gpt", set, count, &st, &model));
    const char *name = tn_settings_text(st, "loader.mode");
    const tn_loader_mode mode = strcmp(name, "pack") == 0     ? TN_LOADER_PACK
                                : strcmp(name, "bucket") == 0 ? TN_LOADER_BUCKET
                                                              : TN_LOADER_WINDOW;
    TN_TRY(tn_dataset_open(p->data + 5, &(tn_dataset_options){ .holdout_frac = 0.1, .window = 9, .content = true },
                           &data));
    TN_TRY(tn_trainer_new(&(tn_trainer_options){ .model = model,
                                                 .settings = st,
                                                 .batch = 2,
                                                 .length = 8,
                                                 .input_spec =
                                                     &(tn_input_spec){ .optional = tn_source_marks_documents(mode) },
                                                 .widths = widths,
                                                 .n_widths = mode == TN_LOADER_BUCKET ? tn_loader_widths(8, widths) : 0,
                                                 .queue_depth = strcmp(run, "b") == 0 ? p->queue_depth : 0 },
                          &t));
    TN_TRY(tn_source_text_open(
        &(tn_source_text_options){
            .data = data, .seed = (uint64_t)tn_settings_int(st, "seed"), .mode = mode, .workers = 1, .prefetch = 3 },
        &(tn_source_start){ .trainer = t, .batch = 2, .length = 8, .heldout = TN_VALID }, &source));
    TN_TRY(tn_run_open(st, "gpt", fresh, &r));
    if (r.checkpoint[0]) {
        TN_TRY(tn_run_resume(&r,
                             &(tn_training){ .trainer = t, .settings = st, .source = &source, .batch = 2, .length = 8 },
                             &state));
        *from = state.step;
    }
    TN_TRY(tn_jsonl_open(tn_tempdir_file(&p->d, strcmp(run, "a") == 0 ? "a/metrics.jsonl" : "b/metrics.jsonl"),
                         *from >= 0, &metrics));
    const tn_training job = { .trainer = t,
                              .settings = st,
                              .source = &source,
                              .metrics = metrics,
                              .dir = r.dir,
                              .batch = 2,
                              .length = 8,
                              .ctx = &stop,
                              .interrupted = stop_now,
                              .leaves_evaluations = p->leaves };
    stop.trainer = t;
    s = tn_training_run(&job, *from >= 0 ? &state : NULL, last);
done:
    (void)tn_jsonl_close(metrics);
    tn_ckpt_state_free(&state);
    tn_run_close(&r);
    tn_trainer_free(t);
    tn_source_close(&source);
    tn_dataset_close(data);
    tn_settings_free(st);
    return s;
}

/* Metrics without what a clock says. */
static inline void same_metrics(place *p)
{
    char command[900];
    snprintf(command, sizeof command,
             "cd '%s' && for r in a b; do sed -E "
             "'s/,\"(tokens_per_s|first_step_s|seconds|step_ms|stall_s|stall_frac|memory_mb|utilisation)\":[^,}]*//g' "
             "$r/metrics.jsonl >$r.txt; "
             "done; "
             "cmp a.txt b.txt && cmp a/latest/model.safetensors b/latest/model.safetensors && "
             "cmp a/latest/state.safetensors b/latest/state.safetensors && [ \"$(readlink a/best)\" = \"$(readlink "
             "b/best)\" ]",
             p->d.path);
    assert_int_equal(system(command), 0);
}

#endif
