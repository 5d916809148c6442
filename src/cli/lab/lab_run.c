/* tenon lab run: begins a study or goes on with it. */
#include "base/alloc.h"
#include "cli/lab/lab_campaign.h"
#include "cli/lab/lab_view.h"
#include "cli/train/train_view.h"
#include "lab/db/trials.h"
#include "lab/worker/trial_run.h"
#include "lab/worker/worker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    char db[TN_PATH_BYTES];
    int workers, lanes; /* 0: not said */
    tn_device device;   /* of its trials */
    int64_t trials;     /* a side */
    double seconds;
    tn_side_set sides; /* whose trials are run */
} options;

/* FILE.db beside FILE.yaml, unless --db or the file names another one. */
static tn_status database(const tn_cli *c, const tn_study_plan *p, const char *file, char *out)
{
    const char *db = tn_args_value(&c->args, "db") ? tn_args_value(&c->args, "db") : p->db;
    const char *dot = strrchr(file, '.'), *slash = strrchr(file, '/');
    if (db && db == p->db && !tn_path_is_below(db)) /* a file from others does not choose what is written to */
        return tn_error(TN_USAGE,
                        "db: %.300s names %.300s, outside the current directory: pass --db=%.300s to allow it", file,
                        db, db);
    const int stem = dot && (!slash || dot > slash) ? (int)(dot - file) : (int)strlen(file);
    const int n = db ? snprintf(out, TN_PATH_BYTES, "%s", db) : snprintf(out, TN_PATH_BYTES, "%.*s.db", stem, file);
    return n > 0 && n < TN_PATH_BYTES ? TN_OK : tn_error(TN_USAGE, "the path of the database is too long");
}

static tn_status read_options(const tn_cli *c, const tn_study_plan *p, const char *file, options *o)
{
    int64_t workers = 0, lanes = 0;
    o->trials = p->trials;
    TN_RETURN_IF(tn_args_whole(&c->args, "workers", 1, TN_CAMPAIGN_WORKERS, &workers));
    TN_RETURN_IF(tn_args_whole(&c->args, "lanes", 1, TN_WORKER_LANES, &lanes));
    TN_RETURN_IF(tn_args_whole(&c->args, "trials", 1, 1000000000, &o->trials));
    TN_RETURN_IF(tn_args_number(&c->args, "seconds", 0.001, 1e9, &o->seconds));
    o->workers = (int)workers;
    o->lanes = (int)lanes;
    if (tn_args_value(&c->args, "sides"))
        TN_RETURN_IF(tn_side_set_parse(p, tn_args_value(&c->args, "sides"), &o->sides));
    return database(c, p, file, o->db);
}

/* Some point of every side that is run must open: a file that is missing, or settings that contradict each other, are better said once than by every
 * trial. Points that are drawn here are random ones; that one of them does not fit together is for its trial to say. */
static tn_status try_sides(const tn_study_plan *p, const char *db, tn_side_set sides, tn_device *device, bool *testable)
{
    enum { TRIES = 8 };
    char runs[TN_PATH_BYTES];
    const tn_sampler *random = tn_sampler_find("random");
    const tn_observed none = { .objectives = p->n_objectives };
    TN_RETURN_IF(tn_lab_runs(db, runs, sizeof runs));
    tn_trial_host h = { .plan = p, .runs = runs };
    TN_RETURN_IF(tn_shared_new(&h.shared));
    tn_status s = TN_OK;
    for (size_t i = 0; i < p->n_sides && s == TN_OK; i++) {
        if (!tn_side_in(sides, i)) continue;
        double *x = tn_alloc(sizeof *x * (p->sides[i].space.n + 1));
        if (!x) s = TN_MEMORY;
        for (int64_t k = 0; x && k < TRIES; k++) {
            s = random->draw(&p->sampling, &p->sides[i].space, &none, k, x);
            if (s == TN_OK) s = tn_trial_try(&h, i, x, device, testable);
            if (s == TN_OK) break;
        }
        if (s != TN_OK)
            tn_error_prefix("%s%s%s: no trial can start", p->name, p->sides[i].name[0] ? ", side " : "",
                            p->sides[i].name);
        tn_free(x);
    }
    tn_context_slot_free(&h.context_slot);
    tn_shared_free(h.shared);
    return s;
}

static void describe(tn_cli *c, const tn_study_plan *p, const options *o, const tn_campaign *k, bool found,
                     const tn_study *there)
{
    char crew[64], names[512];
    int64_t ended = 0;
    const size_t sides = tn_side_count(o->sides, p->n_sides);
    for (size_t i = 0; i < there->n; i++)
        ended += tn_side_in(o->sides, (size_t)there->trials[i].side) && tn_trial_ended(there->trials[i].state) &&
                 there->trials[i].kind != TN_TRIAL_COMPARE;
    fprintf(c->err, "study   %s, ", p->name);
    if (sides < p->n_sides) fprintf(c->err, "%zu of %zu sides of ", sides, p->n_sides);
    else if (p->n_sides > 1 || p->sides[0].name[0])
        fprintf(c->err, "%zu side%s of ", p->n_sides, p->n_sides == 1 ? "" : "s");
    if (p->seeds) fprintf(c->err, "%lld common seeds for each of ", (long long)p->seeds);
    fprintf(c->err, "%lld trial%s, sampler %s, pruner %s; %s\n", (long long)o->trials, o->trials == 1 ? "" : "s",
            p->sampler->name, p->pruner->name, tn_campaign_crew_text(k, crew));
    if (sides < p->n_sides)
        fprintf(c->err, "sides   %s   (without --sides the others run too)\n",
                tn_side_set_text(p, o->sides, names, sizeof names));
    fprintf(c->err, "data    %s", o->db);
    if (found) fprintf(c->err, ", resuming: %lld trials have finished", (long long)ended);
    fprintf(c->err, "   (rerun this command to resume)\n");
}

static tn_status emit_side(tn_cli *c, const tn_study_plan *p, size_t i, bool chosen, const tn_tally *t)
{
    char best[32] = "-";
    if (c->json) {
        json_t *row =
            json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:s}", "name", "side", "side", p->sides[i].name,
                      "chosen", chosen, "done", (json_int_t)t->count[TN_TRIAL_DONE], "pruned",
                      (json_int_t)t->count[TN_TRIAL_PRUNED], "failed", (json_int_t)t->count[TN_TRIAL_FAILED], "timeout",
                      (json_int_t)t->count[TN_TRIAL_TIMEOUT], "waiting",
                      (json_int_t)(t->count[TN_TRIAL_WAITING] + t->count[TN_TRIAL_RUNNING]), "objective",
                      p->objectives[0].name);
        if (row) json_object_set_new(row, "best", tn_number_or_null(t->best));
        return tn_cli_emit(c, row);
    }
    if (!isnan(t->best)) snprintf(best, sizeof best, "%.4g", t->best);
    fprintf(c->out, "%s%s%lld done, %lld pruned, %lld failed, %lld timed out, %lld left; best %s %s%s\n",
            p->sides[i].name, p->sides[i].name[0] ? ": " : "", (long long)t->count[TN_TRIAL_DONE],
            (long long)t->count[TN_TRIAL_PRUNED], (long long)t->count[TN_TRIAL_FAILED],
            (long long)t->count[TN_TRIAL_TIMEOUT], (long long)(t->count[TN_TRIAL_WAITING] + t->count[TN_TRIAL_RUNNING]),
            p->objectives[0].name, best, chosen ? "" : " (not in --sides)");
    return TN_OK;
}

static tn_status emit_result(tn_cli *c, const tn_campaign *k)
{
    tn_tally *t = tn_alloc(sizeof *t * k->plan->n_sides);
    tn_status s = t ? tn_lab_tally(k->lab, k->study, k->plan, k->compare, k->trials, t) : TN_MEMORY;
    for (size_t i = 0; s == TN_OK && i < k->plan->n_sides; i++)
        s = emit_side(c, k->plan, i, tn_side_in(k->sides, i), &t[i]);
    tn_free(t);
    return s;
}

/* The time that is left of the study's, and of this command's. */
static double seconds_left(const tn_study_plan *p, const options *o, double spent)
{
    double left = o->seconds;
    if (p->seconds > 0) {
        const double rest = p->seconds - spent > 0.001 ? p->seconds - spent : 0.001;
        left = left > 0 && left < rest ? left : rest;
    }
    return left;
}

static tn_status sweep(const tn_study_plan *p, const options *o, tn_lab *lab)
{
    char runs[TN_PATH_BYTES];
    tn_study *s = NULL;
    TN_RETURN_IF(tn_lab_runs(o->db, runs, sizeof runs));
    TN_RETURN_IF(tn_lab_load(lab, p->name, &s));
    const tn_status st = tn_trial_sweep(&(tn_trial_host){ .plan = p, .runs = runs }, s);
    tn_study_free(s);
    return st;
}

/* Trials of the search are the means of what has run. */
static tn_status settle(const tn_study_plan *p, tn_lab *lab)
{
    tn_study *s = NULL;
    TN_RETURN_IF(tn_lab_load(lab, p->name, &s));
    const tn_status st = tn_lab_seeds_settle(lab, s, p);
    tn_study_free(s);
    return st;
}

static tn_status run_it(tn_cli *c, const tn_study_plan *p, const options *o, tn_campaign *k)
{
    const tn_status s = tn_campaign_run(c, k);
    char text[1024];
    snprintf(text, sizeof text, "%s", tn_error_text());
    if (k->deaths)
        fprintf(c->err, "note    %lld worker%s killed by a signal and replaced\n", (long long)k->deaths,
                k->deaths == 1 ? " was" : "s were");
    if (k->out_of_time)
        fprintf(c->err, "note    time limit reached (%s): %s\n",
                o->seconds > 0 && k->seconds >= o->seconds ? "--seconds" : "seconds in the study file",
                o->seconds > 0 && k->seconds >= o->seconds ? "rerun this command to resume" : "raise it to resume");
    if (s == TN_INTERRUPTED)
        return tn_error(
            s, "interrupted: %lld trials have finished, running ones are saved in %s: rerun this command to resume",
            (long long)k->ended, o->db);
    if (s != TN_OK) return tn_error(s, "%s", text);
    TN_RETURN_IF(sweep(p, o, k->lab));
    if (p->seeds) TN_RETURN_IF(settle(p, k->lab));
    k->compare = false;
    k->trials = o->trials;
    TN_RETURN_IF(emit_result(c, k));
    tn_lab_next(c, "best", o->db, p->name);
    tn_lab_next(c, p->n_sides > 1 ? "compare" : "plot", o->db, p->name);
    return TN_OK;
}

static void note_waiting(tn_cli *c, const tn_study_plan *p, const tn_campaign *k)
{
    const int64_t most = k->compare ? 0 : tn_study_at_once(p, k->sides), all = (int64_t)k->workers * k->lanes;
    if (most > 0 && all > most)
        fprintf(c->err,
                "note    at most %lld trials can run at once: %lld of %lld %s will be idle (a new study with a larger "
                "`lag` runs more)\n",
                (long long)most, (long long)(all - most), (long long)all, k->lanes > 1 ? "lanes" : "workers");
}

static tn_status begin(tn_cli *c, const tn_study_plan *p, const char *text, const options *o, tn_lab *lab)
{
    int64_t id = 0;
    bool found = false;
    tn_study *there = NULL;
    TN_RETURN_IF(tn_lab_begin(lab, p, text, c->args.overrides, c->args.overrides_n, &id, &found));
    if (!found && p->from_db) TN_RETURN_IF(tn_lab_transfer(lab, id, p));
    TN_RETURN_IF(tn_lab_fill(lab, id, p, o->trials));
    TN_RETURN_IF(tn_lab_load(lab, p->name, &there));
    tn_campaign k = { .plan = p,
                      .lab = lab,
                      .study = id,
                      .trials = p->seeds ? 0 : o->trials,
                      .compare = p->seeds > 0,
                      .sides = o->sides,
                      .seconds = seconds_left(p, o, there->spent) };
    tn_campaign_crew(p, o->device, o->workers, o->lanes, &k);
    describe(c, p, o, &k, found, there);
    note_waiting(c, p, &k);
    tn_status s = p->seeds ? tn_lab_seeds_fill(lab, there, p) : TN_OK;
    if (s == TN_OK) s = run_it(c, p, o, &k);
    tn_study_free(there);
    return s;
}

tn_status tn_lab_run(tn_cli *c)
{
    tn_status s = TN_OK;
    tn_arena arena = { 0 };
    tn_study_plan plan;
    tn_lab *lab = NULL;
    options o = { .device = TN_CPU };
    char *text = NULL;
    TN_RETURN_IF(tn_args_expect(&c->args, 2, SIZE_MAX));
    TN_RETURN_IF(tn_lab_objects(c, 2));
    const char *file = tn_args_positional(&c->args, 1);
    TN_TRY(tn_study_read(file, c->args.overrides, c->args.overrides_n, &arena, &text, &plan));
    plan.user = &c->user;
    TN_TRY(tn_study_check(&plan));
    TN_TRY(read_options(c, &plan, file, &o));
    if (tn_args_flag(&c->args, "plan")) {
        s = tn_lab_plan(c, &plan, o.db, o.trials, o.sides, o.workers, o.lanes);
        goto done;
    }
    bool testable = true;
    TN_TRY(try_sides(&plan, o.db, o.sides, &o.device, &testable));
    if (!testable && plan.n_sides > 1 && !c->json)
        fputs("note    the data have no test split, which `tenon lab compare` needs: raw text has one with "
              "train.test_frac=0.05 in the study's `set`\n",
              c->err);
    TN_TRY(tn_lab_open(o.db, true, &lab));
    TN_TRY(tn_lab_verify(lab));
    TN_TRY(begin(c, &plan, text, &o, lab));
done:
    tn_lab_close(lab);
    tn_free(text);
    tn_arena_free(&arena);
    return s;
}

/* What `lab run` starts: lab work DB STUDY TRIALS search|compare LANES SIDES (the number of a tn_side_set) [OBJECT.so ...]. */
tn_status tn_lab_work(tn_cli *c)
{
    int64_t ran;
    TN_RETURN_IF(tn_args_expect(&c->args, 3, SIZE_MAX));
    TN_RETURN_IF(tn_lab_objects(c, 7));
    const char *trials = tn_args_positional(&c->args, 3), *series = tn_args_positional(&c->args, 4),
               *lanes = tn_args_positional(&c->args, 5), *sides = tn_args_positional(&c->args, 6);
    const long n = lanes ? strtol(lanes, NULL, 10) : 1;
    const tn_worker_options o = { .db = tn_args_positional(&c->args, 1),
                                  .study = tn_args_positional(&c->args, 2),
                                  .trials = trials ? strtoll(trials, NULL, 10) : 0,
                                  .compare = series && strcmp(series, "compare") == 0,
                                  .sides = sides ? strtoull(sides, NULL, 10) : 0,
                                  .lanes = n > 1 && n <= TN_WORKER_LANES ? (int)n : 1,
                                  .user = &c->user,
                                  .interrupted = tn_interrupted };
    tn_interrupt_watch();
    return tn_worker_run(&o, &ran);
}
