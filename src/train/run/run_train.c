/* Training a run that is open. */
#include "train/run/run_train.h"

#include "base/fs.h"

#include <stdio.h>
#include <unistd.h>

static tn_training training_of(const tn_session *on, const tn_training *calls)
{
    tn_training t = *calls;
    t.trainer = on->trainer;
    t.settings = on->settings;
    t.source = &on->source;
    t.batch = on->batch;
    t.length = on->length;
    t.ladder = &on->ladder;
    return t;
}

/* The rows of the run's batches, where the command leaves them open: another machine may have found others. */
static tn_status read_batch(const tn_run_dir *run, int64_t *batch)
{
    tn_ckpt_state state;
    TN_RETURN_IF(tn_ckpt_read_state(run->checkpoint, &state));
    *batch = state.batch;
    tn_ckpt_state_free(&state);
    return TN_OK;
}

/* The session as the run has it: its rung of the memory ladder, its batch. */
static tn_status fit_session(const tn_run_dir *run, tn_session *on)
{
    int64_t batch = on->batch;
    if (tn_settings_is_auto(on->settings, "train.batch") && tn_ladder_on(on->settings))
        TN_RETURN_IF(read_batch(run, &batch));
    if (batch == on->batch && !run->lowered) return TN_OK;
    if (batch < 1 || batch % tn_settings_int(on->settings, "plan.microbatches") != 0)
        return TN_OK; /* see tn_run_resume */
    on->batch = batch;
    TN_RETURN_IF(tn_session_refit(on));
    return tn_run_record(run, on->settings);
}

tn_status tn_run_load(const tn_run_dir *run, tn_session *on, tn_ckpt_state *state, const tn_ckpt_state **from)
{
    *state = (tn_ckpt_state){ 0 };
    *from = NULL;
    if (!run->checkpoint[0]) return TN_OK;
    TN_RETURN_IF(fit_session(run, on));
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

/* The newest save, or the beginning; `state` is what was loaded before. */
static tn_status load_again(tn_run_dir *run, tn_session *on, tn_ckpt_state *state, const tn_ckpt_state **from)
{
    char why[256];
    tn_ckpt_state_free(state);
    *state = (tn_ckpt_state){ 0 };
    *from = NULL;
    run->checkpoint[0] = 0;
    if (tn__ckpt_pointed(run->dir, "latest") < 0) return TN_OK;
    TN_RETURN_IF(tn_ckpt_find(run->dir, "latest", run->checkpoint, why, sizeof why));
    const tn_training t = training_of(on, &(tn_training){ 0 });
    TN_RETURN_IF(tn_run_resume(run, &t, state));
    *from = state;
    return TN_OK;
}

/* Where a person goes on. */
static tn_status ended(const tn_run_dir *run, const tn_training *calls)
{
    char why[1024];
    const int64_t saved = tn__ckpt_pointed(run->dir, "latest");
    snprintf(why, sizeof why, "%s", tn_error_text());
    if (saved <= 0) return tn_error(TN_MEMORY, "%s", why);
    return tn_error(TN_MEMORY, "%s; step %lld is saved%s", why, (long long)saved,
                    calls->once ? "" : ": rerun this command to resume");
}

tn_status tn_run_train(const tn_run_dir *run, tn_session *on, const tn_ckpt_state *from, const tn_training *calls,
                       void (*lowered)(void *ctx, const tn_session *on), tn_progress_report *last)
{
    tn_run_dir now = *run;
    tn_ckpt_state state = { 0 };
    tn_status s = train_once(&now, on, from, calls, last);
    while (s == TN_MEMORY && tn_ladder_on(on->settings)) {
        if (calls->tracer) tn_tracer_restart(calls->tracer, 0); /* it has names of the plans that go now */
        if ((s = tn_session_lower(on)) != TN_OK) break;         /* there is no rung left */
        s = tn_run_record(run, on->settings);
        if (lowered) lowered(calls->ctx, on);
        if (s == TN_OK) s = load_again(&now, on, &state, &from);
        if (s == TN_OK) s = train_once(&now, on, from, calls, last);
    }
    if (s == TN_MEMORY) s = ended(run, calls);
    tn_ckpt_state_free(&state);
    return s;
}
