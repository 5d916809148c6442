/* What a person sees of a training run. */
#include "cli/train/train_view.h"

#include "base/alloc.h"
#include "base/text.h"
#include "cli/view.h"

#include <math.h>
#include <string.h>

static tn_status curve_add(tn_curve *c, double x, double y)
{
    size_t capacity = c->capacity;
    TN_RETURN_IF(tn_grow((void **)&c->x, &capacity, c->n + 1, sizeof *c->x));
    TN_RETURN_IF(tn_grow((void **)&c->y, &c->capacity, c->n + 1, sizeof *c->y));
    c->x[c->n] = x;
    c->y[c->n++] = y;
    return TN_OK;
}

void tn_train_view_start(tn_train_view *v, FILE *err, const char *label)
{
    *v = (tn_train_view){ .label = label };
    tn_progress_start(&v->progress, err);
}

/* "██████▎·····": eighths of a character. */
static const char *bar(double part, int width, char *buf, size_t bytes)
{
    static const char *const eighth[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
    const int eighths = (int)(fmin(fmax(part, 0), 1) * width * 8), whole = eighths / 8, rest = eighths % 8;
    size_t n = 0;
    buf[0] = 0;
    for (int i = 0; i < whole && n + 4 < bytes; i++) n += (size_t)snprintf(buf + n, bytes - n, "█");
    if (rest && n + 4 < bytes) n += (size_t)snprintf(buf + n, bytes - n, "%s", eighth[rest]);
    for (int i = whole + (rest > 0); i < width && n + 3 < bytes; i++) n += (size_t)snprintf(buf + n, bytes - n, "·");
    return buf;
}

/* What is known of speed and memory, and one of the model's instruments. */
static const char *details(const tn_progress_report *r, char *buf, size_t bytes)
{
    size_t n = 0;
    buf[0] = 0;
    if (!isnan(r->utilisation)) n += (size_t)snprintf(buf + n, bytes - n, "  %.0f %% of peak", 100 * r->utilisation);
    if (!isnan(r->memory_bytes)) n += (size_t)snprintf(buf + n, bytes - n, "  %.0f MB", r->memory_bytes / 1e6);
    if (!isnan(r->loss_scale)) n += (size_t)snprintf(buf + n, bytes - n, "  loss scale 2^%.0f", log2(r->loss_scale));
    if (r->stall_frac >= 0.01)
        n += (size_t)snprintf(buf + n, bytes - n, "  waits for data %.0f %%", 100 * r->stall_frac);
    if (r->instrument[0]) snprintf(buf + n, bytes - n, "  %s %.3g", r->instrument, r->instrument_value);
    return buf;
}

double tn_bits_of(const tn_progress_report *r) { return tn_score_scale(&r->metrics, r->bits); }

/* "  held out 1.234 (1.78 b/B)", "  held out 0.123, NAME 0.9000" */
static const char *held_text(const tn_progress_report *r, char *buf, size_t bytes)
{
    const double first = tn_scores_first(&r->last);
    const tn_metric_row *beside = tn_metric_second(&r->metrics, r->select);
    char text[24];
    buf[0] = 0;
    if (isnan(first)) return buf;
    size_t n = (size_t)snprintf(buf, bytes, "  held out %s", tn_score_text(first, 3, text));
    if (!isnan(r->bits) && tn_metric_is_nats(r->metrics.row[0]))
        n += (size_t)snprintf(buf + n, bytes - n, " (%.2f b/B)", first * r->bits);
    const double x = beside ? tn_scores_get(&r->last, beside->name) : NAN;
    if (!isnan(x) && n < bytes) snprintf(buf + n, bytes - n, ", %.24s %s", beside->name, tn_score_text(x, 4, text));
    return buf;
}

static double place_of(const tn_train_view *v, const tn_progress_report *r)
{
    return v->axis == TN_AXIS_TOKENS ? (double)r->tokens : v->axis == TN_AXIS_SECONDS ? r->working_s : (double)r->step;
}

/* Cuts off the fields that do not fit, two blanks before each: half a number is worse than none. */
static void fit_fields(char *line, int columns)
{
    size_t n = tn_term_fit(line, columns);
    if (!line[n]) return;
    while (n > 0 && strncmp(line + n, "  ", 2) != 0) n--;
    if (n > 0) line[n] = 0;
}

/* An evaluation stays on the terminal, above the line that moves; at most five a second, where they come fast. */
static void keep_evaluation(tn_train_view *v, const tn_progress_report *r, const char *held)
{
    tn_term *t = &v->progress.term;
    char line[256], time[32];
    if (!t->tty || !*held || (v->kept && r->seconds - v->kept_s < 0.2 && r->step < r->steps)) return;
    v->kept = true;
    v->kept_s = r->seconds;
    snprintf(line, sizeof line, "%s%seval    step %*lld/%lld%s  after %s%s", v->label, v->label[0] ? "  " : "",
             (int)log10((double)r->steps) + 1, (long long)r->step, (long long)r->steps, held,
             tn_clock_text(r->seconds, time), r->best_step == r->step ? "  best" : "");
    tn_text_clean(line);
    fit_fields(line, t->width - 1);
    fprintf(t->f, "\r%s\033[K\n", line);
    v->progress.drawn = false; /* the next line is drawn below it, at once */
}

void tn_train_view_report(void *view, const tn_progress_report *r)
{
    tn_train_view *v = view;
    char line[768], drawn[128], eta[32], held[96], rate[16], more[160], loss[24], norm[24];
    const bool task = !isnan(r->samples_per_s);
    const double done = (double)r->step / (double)r->steps, bits = tn_bits_of(r);
    const bool plain = !v->progress.term.tty;
    if (!isnan(r->first_step_s) && !v->label[0])
        fprintf(v->progress.term.f, "start   first step after %.1f s\n", r->first_step_s);
    if (v->status == TN_OK) v->status = curve_add(&v->train, place_of(v, r), r->loss * bits);
    if (r->evaluated && v->status == TN_OK)
        v->status = curve_add(&v->heldout, place_of(v, r), tn_scores_first(&r->last) * bits);
    if (r->evaluated && r->best_step == r->step) v->best = v->heldout.n;
    held_text(r, held, sizeof held);
    if (r->evaluated) keep_evaluation(v, r, held);
    tn_clock_text(r->seconds / done - r->seconds,
                  eta); /* first, since a narrow terminal has room for the first fields only */
    snprintf(line, sizeof line, "%s%sstep %*lld/%lld%s%s  eta %s  loss %s%s  lr %.1e  |g| %s  %s %s/s%s", v->label,
             v->label[0] ? "  " : "", (int)log10((double)r->steps) + 1, (long long)r->step, (long long)r->steps,
             plain ? "" : "  ", plain ? "" : bar(done, 10, drawn, sizeof drawn), eta, tn_score_text(r->loss, 3, loss),
             plain ? held : "", r->lr, tn_score_text(r->grad_norm, 2, norm),
             tn_count_text(task ? r->samples_per_s : r->tokens_per_s, rate), task ? "samples" : "tok",
             details(r, more, sizeof more));
    if (!plain) fit_fields(line, v->progress.term.width - 1);
    tn_progress_line(&v->progress, r->seconds, "%s", line);
}

/* A line that stays, folded. */
static void say(const tn_train_view *v, const char *lead, const char *label, const char *text)
{
    char line[4096];
    snprintf(line, sizeof line, "%s%.500s%s%.3500s\n", lead, label, label[0] ? ": " : "", text);
    tn_term_print(&v->progress.term, line);
}

void tn_train_view_note(void *view, const char *text)
{
    tn_train_view *v = view;
    tn_progress_end(&v->progress);
    say(v, "note    ", v->label, text);
}

void tn_train_view_warn(void *view, const char *text)
{
    tn_train_view *v = view;
    tn_progress_end(&v->progress);
    say(v, "warning: ", "", text);
}

void tn_train_view_end(tn_train_view *v) { tn_progress_end(&v->progress); }

void tn_train_view_free(tn_train_view *v)
{
    tn_free(v->train.x);
    tn_free(v->train.y);
    tn_free(v->heldout.x);
    tn_free(v->heldout.y);
}
