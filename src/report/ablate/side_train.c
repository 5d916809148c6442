/* A side that trains as a run does, with lines of metrics in a file; without checkpoints. For settings that cost nothing in a step but around
 * steps. */
#include "report/ablate/side.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "report/probe/probe.h"
#include "train/run/training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 10, WORDS = 4 }; /* STEPS: that have a line (log.every) */

typedef struct tn_train_side {
    tn_step_probe *probe; /* its session */
    char path[TN_PATH_BYTES];
} tn_train_side;

static void close_train(void *side)
{
    tn_train_side *t = side;
    if (!t) return;
    tn_step_probe_close(t->probe);
    tn_free(t);
}

/* A short run whose only evaluation is a batch at its end. */
static tn_status open_train(const tn_side_options *o, void **out)
{
    static const char *const more[WORDS] = { "train.epochs=0", "train.steps=10", "train.eval_every=0",
                                             "train.eval_batches=1" };
    tn_status s = TN_OK;
    const char *word[TN_ABLATE_WORDS + WORDS];
    size_t n = 0;
    tn_train_side *t = tn_alloc(sizeof *t);
    if (!t) return TN_MEMORY;
    *t = (tn_train_side){ .probe = NULL };
    for (; n < o->n && n < TN_ABLATE_WORDS; n++) word[n] = o->word[n];
    for (size_t i = 0; i < WORDS; i++) word[n++] = more[i];
    TN_TRY(tn_path_join(o->dir, "metrics.jsonl", t->path, sizeof t->path));
    TN_TRY(tn_step_probe_open(&(tn_step_probe_options){ .user = o->user,
                                                        .settings = o->settings,
                                                        .model = o->model,
                                                        .word = word,
                                                        .n = n,
                                                        .source = "tenon ablate" },
                              &t->probe));
    *out = t;
    t = NULL;
done:
    close_train(t);
    return s;
}

static tn_status train_once(tn_train_side *t)
{
    const tn_session *s = tn_step_probe_session(t->probe);
    tn_jsonl *lines = NULL;
    tn_progress_report last;
    TN_RETURN_IF(tn_jsonl_open(t->path, false, &lines));
    const tn_status st = tn_training_run(&(tn_training){ .trainer = s->trainer,
                                                         .settings = s->settings,
                                                         .source = &s->source,
                                                         .undiagnosed = true,
                                                         .metrics = lines,
                                                         .batch = s->batch,
                                                         .length = s->length,
                                                         .once = true,
                                                         .unsaved_end = true },
                                         NULL, &last);
    const tn_status closed = tn_jsonl_close(lines);
    return st == TN_OK ? closed : st;
}

/* *ms: of a step. */
static tn_status run_train(void *side, int times, double *ms)
{
    const double begun = tn_clock_s();
    for (int i = 0; i < times; i++) TN_RETURN_IF(train_once(side));
    *ms = 1e3 * (tn_clock_s() - begun) / times / STEPS;
    return TN_OK;
}

static tn_status warm_train(void *side, double limit_s, double *ms)
{
    (void)limit_s;
    return run_train(side, 1, ms);
}

static double train_bytes(const void *side) { return tn_step_probe_bytes(((const tn_train_side *)side)->probe); }

static tn_status train_parity(void *plain, void *fast, double seconds, int *steps, tn_parity *out)
{
    tn_train_side *a = plain, *b = fast;
    (void)seconds;
    *steps = STEPS;
    *out = tn_parity_none();
    TN_RETURN_IF(train_once(a));
    TN_RETURN_IF(train_once(b));
    return tn_parity_stores(out, tn_trainer_store(tn_step_probe_session(a->probe)->trainer),
                            tn_trainer_store(tn_step_probe_session(b->probe)->trainer), false);
}

const tn_side_kind tn_side_train = { .what = "step",
                                     .open = open_train,
                                     .close = close_train,
                                     .warm = warm_train,
                                     .run = run_train,
                                     .bytes = train_bytes,
                                     .parity = train_parity,
                                     .most = 1 };
