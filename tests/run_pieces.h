/* A run that is stopped after some steps and goes on later, in the session that the caller has opened. */
#ifndef TN_TESTS_RUN_PIECES_H
#define TN_TESTS_RUN_PIECES_H

#include "train/run/run_train.h"
#include "train/run/training.h"

typedef struct tn_stopper {
    int64_t after, seen;
} tn_stopper;

static inline bool tn_stop_now(void *ctx)
{
    tn_stopper *s = ctx;
    return s->after >= 0 && s->seen++ >= s->after;
}

/* Trains on from where the run's folder is; stop_after: asked so often, it stops (-1: never). Closes the session. */
static inline tn_status tn_run_piece(tn_session *on, const char *model, int64_t stop_after, tn_progress_report *last)
{
    tn_status s = TN_OK;
    tn_run_dir r = { .lock = -1 };
    tn_ckpt_state state = { 0 };
    const tn_ckpt_state *from;
    tn_stopper stop = { .after = stop_after };
    TN_TRY(tn_run_open(on->settings, model, false, &r));
    TN_TRY(tn_run_load(&r, on, &state, &from));
    s = tn_run_train(&r, on, from, &(tn_training){ .ctx = &stop, .interrupted = tn_stop_now }, NULL, last);
done:
    tn_ckpt_state_free(&state);
    tn_run_close(&r);
    tn_session_close(on);
    return s;
}

#endif
