/* Warnings of a run about its disk, and what a save that fails must know. */
#include "train/run/training_internal.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <time.h>

void tn_training_warn(const tn_training *t, const char *fmt, ...)
{
    va_list ap;
    char text[1536]; /* an error's text and what follows from it */
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    t->warn(t->ctx, text);
}

tn_status tn_warn_disk_space(const tn_training *t)
{
    struct statvfs v;
    uint64_t bytes;
    if (!t->dir || !t->warn || t->unsaved_end || statvfs(t->dir, &v) != 0) return TN_OK;
    const tn_ckpt_what what = { .store = tn_trainer_store(t->trainer), .guard = tn_trainer_guard(t->trainer) };
    TN_RETURN_IF(tn_ckpt_bytes(&what, &bytes));
    const double space = (double)v.f_bavail * (double)v.f_frsize;
    if (v.f_blocks > 0 && space < 2.0 * (double)bytes)
        tn_training_warn(t,
                         "%.640s has %.1f MB of free space, and two checkpoints of %.1f MB must fit, the old and the "
                         "new one: free some space or choose another disk with run=DIR",
                         t->dir, space / 1e6, (double)bytes / 1e6);
    return TN_OK;
}

bool tn_training_pause(const tn_training *t, double seconds)
{
    const struct timespec piece = { .tv_nsec = 50 * 1000 * 1000 };
    const double until = tn_clock_s() + seconds;
    do {
        if (t->interrupted && t->interrupted(t->ctx)) return false;
        nanosleep(&piece, NULL);
    } while (tn_clock_s() < until);
    return true;
}

tn_status tn__training_sync(const tn_training *t)
{
    const tn_status s = t->metrics ? tn_jsonl_sync(t->metrics) : TN_OK;
    if (s != TN_DISK || !t->warn) return s;
    tn_training_warn(t, "%s; its lines since the last checkpoint may be lost", tn_error_text());
    return TN_OK;
}

bool tn__has_states(const tn_store *st)
{
    for (size_t i = 0; i < tn_store_count(st); i++)
        if (tn_store_at(st, i)->role == TN_ROLE_STATE) return true;
    return false;
}

const char *tn__kept_text(int64_t saved, char text[64])
{
    if (saved > 0) snprintf(text, 64, "step-%lld is kept", (long long)saved);
    else snprintf(text, 64, "nothing is saved yet");
    return text;
}

const char *tn__next_save_text(const tn_settings *st, int64_t step, int64_t steps, char text[64])
{
    const int64_t n = tn_settings_int(st, "ckpt.every"), at = n ? (step / n + 1) * n : 0;
    const double every_s = tn_settings_float(st, "ckpt.every_s");
    if (every_s > 0) snprintf(text, 64, "in %g s", every_s);
    else if (at > 0 && at < steps) snprintf(text, 64, "after step %lld", (long long)at);
    else snprintf(text, 64, "at the end");
    return text;
}
