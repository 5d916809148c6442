/* What a profile says, in sentences. */
#include "report/page/report.h"

#include "base/text.h"

#include <math.h>
#include <stdio.h>

enum { SENTENCE = 320, LONGEST = 3 };

static void say_step(const tn_profile *p, char *buf)
{
    const double gflops = 1e-6 * tn_profile_flops(p) / p->step_ms,
                 peak = tn_ceilings_of_compute(&p->ceilings, p->compute);
    int n = snprintf(buf, SENTENCE, "A step takes %s ms (+- %.2g, %d steps): %s %s/s", TN_NUMBER(p->step_ms),
                     p->spread_ms, p->steps, TN_NUMBER(1e3 * p->items / p->step_ms), p->unit);
    if (!isnan(gflops) && n > 0 && n < SENTENCE)
        snprintf(buf + n, SENTENCE - (size_t)n, ", %s GFLOP/s, %.0f %% of the %s that this machine reaches",
                 TN_NUMBER(gflops), 100 * tn_profile_reached(p), TN_NUMBER(peak));
}

/* Timers take time of their own, and other work on the machine is not the same for all steps. */
static void say_timed(const tn_profile *p, char *buf)
{
    const double more = p->timed_ms / p->step_ms - 1;
    if (p->replayed)
        snprintf(buf, SENTENCE, "Its parts are those of steps that the device replays as a whole, as training does");
    else
        snprintf(buf, SENTENCE, "Its parts are those of steps with a timer around every op, of %s ms: %.1f %% %s",
                 TN_NUMBER(p->timed_ms), 100 * fabs(more), more < 0 ? "shorter" : "longer");
}

static void say_part(const tn_profile_part *x, char *buf)
{
    int n = snprintf(buf, SENTENCE, "%s%s%s: %.1f %% of the step, %s ms", x->name, x->pass[0] ? ", " : "", x->pass,
                     100 * x->share, TN_NUMBER(x->ms));
    if (!(x->bound_ms > 0) && x->bound[0] && n > 0 && n < SENTENCE)
        snprintf(buf + n, SENTENCE - (size_t)n, "; bound by the %s", x->bound);
    if (x->bound_ms > 0 && n > 0 && n < SENTENCE)
        snprintf(buf + n, SENTENCE - (size_t)n, "; bound by %s, which would allow %s ms (%.0f %% is reached)", x->bound,
                 TN_NUMBER(x->bound_ms), 100 * x->bound_ms / x->ms);
}

static void say_memory(const tn_profile *p, char *buf)
{
    int n = snprintf(buf, SENTENCE, "Memory: %s MB planned", TN_NUMBER((double)p->memory.total * 1e-6));
    if (!isnan(p->peak_bytes) && n > 0 && n < SENTENCE)
        snprintf(buf + n, SENTENCE - (size_t)n, ", %s MB the most that the %s has taken",
                 TN_NUMBER(p->peak_bytes * 1e-6), p->device == TN_CPU ? "process" : "device");
}

static void say_change(const tn_comparison *c, void (*put)(void *ctx, const char *sentence), void *ctx)
{
    tn_profile_change x[TN_PROFILE_CHANGES + 1];
    const tn_profile_change *step = &x[tn_profile_changes(c->before, c->after, x) - 1];
    char text[SENTENCE];
    for (int k = 0; k < 2; k++) {
        const tn_profile *p = k ? c->after[0] : c->before[0];
        snprintf(text, sizeof text, "%.120s: a step of %s %s takes %s ms, %s %s/s, %s MB planned", c->name[k],
                 TN_NUMBER(p->items), p->unit, TN_NUMBER(p->step_ms), TN_NUMBER(1e3 * p->items / p->step_ms), p->unit,
                 TN_NUMBER((double)p->memory.total * 1e-6));
        put(ctx, text);
    }
    snprintf(text, sizeof text,
             step->seen ? "For as much work the second takes %.3f of the time of the first"
                        : "No difference is seen between their steps (ratio %.3f)",
             step->after_ms / step->before_ms);
    put(ctx, text);
}

void tn_report_findings(const tn_report *r, void (*put)(void *ctx, const char *sentence), void *ctx)
{
    const tn_profile *p = r->profile;
    tn_profile_part part[TN_PROFILE_PARTS];
    const size_t n = tn_profile_parts(p, part);
    char text[SENTENCE];
    if (r->against) {
        say_change(r->against, put, ctx);
        if (r->missing) put(ctx, r->missing);
        return;
    }
    say_step(p, text);
    put(ctx, text);
    say_timed(p, text);
    put(ctx, text);
    for (size_t i = 0; i < n && i < LONGEST; i++) {
        say_part(&part[i], text);
        put(ctx, text);
    }
    snprintf(text, sizeof text, "It waits for data %.1f %% of the time", 100 * p->data_ms / tn_profile_whole(p));
    put(ctx, text);
    say_memory(p, text);
    put(ctx, text);
    if (r->run) put(ctx, tn_run_time_text(r->run, text));
    if (r->missing) put(ctx, r->missing);
}

static void say_memory_change(double bytes, char *buf, size_t room)
{
    buf[0] = 0;
    if (fabs(bytes) >= 0.05e6)
        snprintf(buf, room, "; %s MB %s", TN_NUMBER(fabs(bytes) * 1e-6), bytes > 0 ? "more" : "less");
}

void tn_report_advice(const tn_report *r, void (*put)(void *ctx, const char *sentence), void *ctx)
{
    char text[SENTENCE + TN_ADVICE_WHY], words[TN_ADVICE_WORDS * TN_ADVICE_WORD], memory[64];
    if (r->advised && !r->n_advice) put(ctx, "No setting was found that makes it more than 3 % faster");
    for (size_t i = 0; i < r->n_advice; i++) {
        const tn_advice *a = &r->advice[i];
        say_memory_change(a->more_bytes, memory, sizeof memory);
        snprintf(text, sizeof text, "%s: %.2f times as fast (%.2f to %.2f, %s)%s: %s%s%s",
                 tn_advice_words(a, words, sizeof words), a->gain.median, a->gain.low, a->gain.high,
                 a->computed ? "computed" : "probed", memory, a->why, a->price[0] ? ". Price: " : "", a->price);
        put(ctx, text);
    }
    if (!r->untried) return;
    snprintf(text, sizeof text, "There was no time to try %zu more: use a larger --seconds", r->untried);
    put(ctx, text);
}
