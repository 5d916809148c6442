/* What a person sees of a study that runs: a small table that is redrawn on a terminal, one line now and then elsewhere. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/lab/lab_campaign.h"
#include "cli/term.h"

#include <math.h>
#include <string.h>

static const double TTY_EVERY_S = 0.5, PIPE_EVERY_S = 10,
                    COST = 50; /* at most one part in so many of the time goes into looking */

struct tn_lab_watch {
    const tn_campaign *k;
    tn_term term;
    tn_tally *tally; /* (n_sides) */
    double begun, looked, every;
    int64_t first; /* trials that had ended at the beginning */
    bool started, changed;
    int lines; /* drawn, to go up again */
};

tn_status tn_lab_watch_start(tn_cli *c, const tn_campaign *k, tn_lab_watch **out)
{
    tn_lab_watch *w = tn_alloc(sizeof *w);
    if (!w) return TN_MEMORY;
    *w = (tn_lab_watch){ .k = k,
                         .term = tn_term_of(c->err),
                         .begun = tn_clock_s(),
                         .tally = tn_alloc(sizeof *w->tally * k->plan->n_sides) };
    if (!w->tally) {
        tn_free(w);
        return TN_MEMORY;
    }
    w->every = w->term.tty ? TTY_EVERY_S : PIPE_EVERY_S;
    *out = w;
    return TN_OK;
}

void tn_lab_watch_end(tn_lab_watch *w)
{
    if (!w) return;
    tn_free(w->tally);
    tn_free(w);
}

static int64_t ended_of(const tn_tally *t)
{
    int64_t n = 0;
    for (int s = TN_TRIAL_DONE; s < TN_TRIAL_STATES; s++) n += t->count[s];
    return n;
}

static int64_t all_of(const tn_tally *t)
{
    return ended_of(t) + t->count[TN_TRIAL_WAITING] + t->count[TN_TRIAL_RUNNING];
}

/* By the speed of this session; by the seconds of earlier trials before it has one. */
static double eta(const tn_lab_watch *w, int64_t ended, int64_t all, double now)
{
    const int64_t fresh = ended - w->first;
    double seconds = 0;
    if (fresh >= 3) return (now - w->begun) * (double)(all - ended) / (double)fresh;
    for (size_t i = 0; i < w->k->plan->n_sides; i++)
        if (tn_side_in(w->k->sides, i))
            seconds += w->tally[i].mean_s * (double)(all_of(&w->tally[i]) - ended_of(&w->tally[i]));
    return seconds / (w->k->workers * w->k->lanes);
}

static const char *best_text(double best, char buf[32])
{
    if (isnan(best)) return "-";
    snprintf(buf, 32, "%.4g", best);
    return buf;
}

static const char *side_name(const tn_study_plan *p, size_t i)
{
    return p->sides[i].name[0] ? p->sides[i].name : "all";
}

static void put_line(const tn_lab_watch *w, char *line)
{
    tn_text_clean(line);
    fprintf(w->term.f, "%.*s\033[K\n", (int)tn_term_fit(line, w->term.width - 1), line);
}

/* "running  tep/12 epoch 7, bp/3": those that began first, as many as a line has room for. */
static tn_status draw_running(const tn_lab_watch *w)
{
    enum { SHOWN = 32 };
    const tn_study_plan *p = w->k->plan;
    tn_running list[SHOWN];
    char line[1024] = "running ";
    size_t n, at = strlen(line);
    TN_RETURN_IF(tn_lab_running(w->k->lab, w->k->study, w->k->compare, list, SHOWN, &n));
    for (size_t i = 0, shown = 0; i < n && at + 100 < sizeof line && list[i].side < p->n_sides; i++) {
        const char *side = p->sides[list[i].side].name;
        if (!tn_side_in(w->k->sides, list[i].side)) continue; /* another command's */
        at += (size_t)snprintf(line + at, sizeof line - at, "%s%.60s%s%lld", shown++ ? ", " : " ", side,
                               side[0] ? "/" : "", (long long)list[i].number);
        if (!isnan(list[i].epoch)) at += (size_t)snprintf(line + at, sizeof line - at, " epoch %.0f", list[i].epoch);
    }
    put_line(w, line);
    return TN_OK;
}

static void draw_table(tn_lab_watch *w, int64_t ended, int64_t all, double now)
{
    const tn_study_plan *p = w->k->plan;
    char a[32], b[32], crew[64], line[512];
    FILE *f = w->term.f;
    int name = 4, best = (int)strlen(p->objectives[0].name) + 5;
    for (size_t i = 0; i < p->n_sides; i++)
        if (tn_side_in(w->k->sides, i) && (int)strlen(side_name(p, i)) > name) name = (int)strlen(side_name(p, i));
    if (w->lines) fprintf(f, "\033[%dA", w->lines);
    snprintf(line, sizeof line, "%lld of %lld trials, %s, %s elapsed, eta %s", (long long)ended, (long long)all,
             tn_campaign_crew_text(w->k, crew), tn_clock_text(now - w->begun, a),
             tn_clock_text(eta(w, ended, all, now), b));
    fprintf(f, "\r%.*s\033[K\n", (int)tn_term_fit(line, w->term.width - 1), line);
    snprintf(line, sizeof line, "%-*s  %7s  %7s  %7s  %7s  %7s  best %s  s/trial", name, "side", "done", "running",
             "pruned", "failed", "timeout", p->objectives[0].name);
    put_line(w, line);
    for (size_t i = 0; i < p->n_sides; i++) {
        const tn_tally *t = &w->tally[i];
        char mean[32] = "-";
        if (!tn_side_in(w->k->sides, i)) continue;
        if (!isnan(t->mean_s)) snprintf(mean, sizeof mean, "%.3g", t->mean_s);
        snprintf(line, sizeof line, "%-*s  %7lld  %7lld  %7lld  %7lld  %7lld  %*s  %7s", name, side_name(p, i),
                 (long long)t->count[TN_TRIAL_DONE], (long long)t->count[TN_TRIAL_RUNNING],
                 (long long)t->count[TN_TRIAL_PRUNED], (long long)t->count[TN_TRIAL_FAILED],
                 (long long)t->count[TN_TRIAL_TIMEOUT], best, best_text(t->best, a), mean);
        put_line(w, line);
    }
    w->lines = (int)tn_side_count(w->k->sides, p->n_sides) + 3;
}

static void draw_line(const tn_lab_watch *w, int64_t ended, int64_t all, double now)
{
    const tn_study_plan *p = w->k->plan;
    char a[32], b[32];
    fprintf(w->term.f, "trials  %lld of %lld", (long long)ended, (long long)all);
    for (size_t i = 0, shown = 0; i < p->n_sides; i++) {
        const tn_tally *t = &w->tally[i];
        if (!tn_side_in(w->k->sides, i)) continue;
        fprintf(w->term.f, "%s%s%s%lld done", shown++ ? "; " : ": ", p->sides[i].name, p->sides[i].name[0] ? " " : "",
                (long long)t->count[TN_TRIAL_DONE]);
        for (int s = TN_TRIAL_PRUNED; s < TN_TRIAL_STATES; s++)
            if (t->count[s])
                fprintf(w->term.f, ", %lld %s", (long long)t->count[s], tn_trial_state_name((tn_trial_state)s));
        if (!isnan(t->best)) fprintf(w->term.f, ", best %s %s", p->objectives[0].name, best_text(t->best, a));
    }
    fprintf(w->term.f, "  %s elapsed, eta %s\n", tn_clock_text(now - w->begun, a),
            tn_clock_text(eta(w, ended, all, now), b));
    fflush(w->term.f);
}

tn_status tn_lab_watch_look(tn_lab_watch *w, bool now_please, int64_t *ended)
{
    const tn_study_plan *p = w->k->plan;
    const double now = tn_clock_s();
    int64_t n = 0, all = 0;
    if (!now_please && now - w->looked < w->every) return TN_OK;
    TN_RETURN_IF(tn_lab_tally(w->k->lab, w->k->study, p, w->k->compare, w->k->trials, w->tally));
    w->looked = tn_clock_s();
    const double cost = COST * (w->looked - now), least = w->term.tty ? TTY_EVERY_S : PIPE_EVERY_S;
    w->every = cost > least ? cost : least;
    for (size_t i = 0; i < p->n_sides; i++) {
        if (!tn_side_in(w->k->sides, i)) continue;
        n += ended_of(&w->tally[i]);
        all += all_of(&w->tally[i]);
    }
    if (!w->started) w->first = n;
    if (w->term.tty) {
        draw_table(w, n, all, now);
        TN_RETURN_IF(draw_running(w));
        fflush(w->term.f);
    } else if (w->started) draw_line(w, n, all, now);
    w->started = true;
    *ended = n;
    return TN_OK;
}
