/* Training a run that is open. */
#include "train/run/run_train.h"

#include "base/fs.h"

#include <unistd.h>

static tn_training training_of(const tn_session *on, const tn_training *calls)
{
    tn_training t = *calls;
    t.trainer = on->trainer;
    t.settings = on->settings;
    t.source = &on->source;
    t.batch = on->batch;
    t.length = on->length;
    return t;
}

tn_status tn_run_load(const tn_run_dir *run, const tn_session *on, tn_ckpt_state *state, const tn_ckpt_state **from)
{
    *state = (tn_ckpt_state){ 0 };
    *from = NULL;
    if (!run->checkpoint[0]) return TN_OK;
    const tn_training t = training_of(on, &(tn_training){ 0 });
    TN_RETURN_IF(tn_run_resume(run, &t, state));
    *from = state;
    return TN_OK;
}

/* Who uses the run later does not need the data. */
static tn_status keep_tokenizer(const tn_run_dir *run, const tn_source *source)
{
    char path[TN_RUN_PATH];
    if (!source->tokenizer) return TN_OK;
    TN_RETURN_IF(tn_path_join(run->dir, TN_RUN_TOKENIZER, path, sizeof path));
    return access(path, F_OK) == 0 ? TN_OK : tn_tokenizer_save(source->tokenizer, path);
}

static tn_status train_once(const tn_run_dir *run, const tn_session *on, const tn_ckpt_state *from,
                            const tn_training *calls, tn_progress_report *last)
{
    tn_training t = training_of(on, calls);
    char path[TN_RUN_PATH];
    TN_RETURN_IF(keep_tokenizer(run, &on->source));
    TN_RETURN_IF(tn_path_join(run->dir, "metrics.jsonl", path, sizeof path));
    TN_RETURN_IF(tn_jsonl_open(path, from != NULL, &t.metrics));
    t.dir = run->dir;
    const tn_status s = tn_training_run(&t, from, last), closed = tn_jsonl_close(t.metrics);
    return s == TN_OK ? closed : s;
}

tn_status tn_run_train(const tn_run_dir *run, tn_session *on, const tn_ckpt_state *from, const tn_training *calls,
                       void (*halved)(void *ctx, const tn_session *on), tn_progress_report *last)
{
    tn_status s = train_once(run, on, from, calls, last);
    while (s == TN_MEMORY && !from && last->step == 0) {
        TN_RETURN_IF(tn_session_halve_batch(on));
        TN_RETURN_IF(tn_run_record(run, on->settings));
        if (halved) halved(calls->ctx, on);
        s = train_once(run, on, from, calls, last);
    }
    return s;
}
