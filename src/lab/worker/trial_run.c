/* One trial, from claim to record. */
#include "lab/worker/trial_run.h"

#include "base/clock.h"
#include "lab/worker/trial_log.h"
#include "train/run/run.h"
#include "train/run/same_settings.h"
#include "train/run/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_OVERRIDES = 640 };
static const double WRITE_EVERY_S = 1; /* reports reach the database this often, at checkpoints and at the end */

typedef enum stop { STOP_NOT, STOP_PRUNED, STOP_RULE, STOP_TIME, STOP_LOST, STOP_ERROR } stop;

typedef struct trial {
    tn_trial_host *h;
    const tn_claim *c;
    const tn_study_side *side;
    uint64_t seed;
    tn_session on;
    tn_ckpt_extra keeper; /* of the trial's own state, in its checkpoints */
    tn_trial_log log;
    tn_run_dir run;
    char dir[TN_PATH_BYTES];
    double begun, written; /* clock */
    double parameters, working_s;
    int64_t look_every; /* steps between looks at an environment */
    bool looks;         /* rules ask for instruments between evaluations */
    bool taken;         /* another process has its directory */
    bool damaged;       /* its checkpoint cannot be gone on from: once more from the beginning */
    stop stop;
    tn_status status; /* of STOP_ERROR */
    char error[1024];
} trial;

tn_status tn_trial_dir(const tn_trial_host *h, const tn_claim *c, char *out)
{
    const tn_study_side *side = &h->plan->sides[c->side];
    const int n = snprintf(out, TN_PATH_BYTES, "%s/%s/%s%s%s%lld", h->runs, h->plan->name, side->name,
                           side->name[0] ? "-" : "", c->kind == TN_TRIAL_COMPARE ? "c" : "", (long long)c->number);
    return n > 0 && n < TN_PATH_BYTES ? TN_OK : tn_error(TN_USAGE, "the path of a trial's directory is too long");
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

/* Those of trials, then the study's, then the point, then what is not for the study to say. */
static tn_status make_overrides(const trial *t, const double *x, tn_arena *arena, const char **out, size_t *n)
{
    static const char *const lead[] = { "threads=1", "log.level=info", "ckpt.every=0", "ckpt.every_s=20",
                                        "ckpt.keep_latest=1" };
    const bool keeps_best = t->h->plan->keep || t->c->kind == TN_TRIAL_COMPARE;
    size_t count = 0, more;
    if (t->side->n_set + t->side->space.n + 16 > MOST_OVERRIDES)
        return tn_error(TN_USAGE, "more than %d settings", MOST_OVERRIDES);
    for (size_t i = 0; i < sizeof lead / sizeof *lead; i++) out[count++] = lead[i];
    if (t->looks || tn_study_instruments(t->h->plan))
        out[count++] = "log.level=training"; /* some have nothing to show below */
    for (size_t i = 0; i < t->side->n_set; i++) out[count++] = t->side->set[i];
    TN_RETURN_IF(tn_study_point(t->side, x, arena, out + count, &more));
    count += more;
    out[count++] = keeps_best ? "ckpt.keep_best=1" : "ckpt.keep_best=0";
    out[count++] = "train.test=off";
    out[count] = tn_arena_printf(arena, "seed=%llu", (unsigned long long)t->seed);
    if (!out[count++]) return TN_MEMORY;
    *n = count;
    return TN_OK;
}

static bool is_set(const tn_settings *st, const char *key)
{
    const char *source = tn_settings_source(st, key);
    return strcmp(source, "default") != 0 && strncmp(source, "task ", 5) != 0;
}

/* By default an evaluation per epoch, and ten in a training on text, so that rungs agree between trials. */
static tn_status set_rungs(trial *t)
{
    char text[32];
    tn_settings *st = t->on.settings;
    int64_t every = 0;
    const tn_source *source = &t->on.source;
    if (source->epoch_batches) {
        every = source->epoch_batches / tn_settings_int(st, "train.accumulate");
        if (every < 1) every = 1;
    }
    if (source->evaluations)
        every = (tn_settings_int(st, "train.steps") + source->evaluations - 1) / source->evaluations;
    if (every && !is_set(st, "train.eval_every")) {
        snprintf(text, sizeof text, "%lld", (long long)every);
        TN_RETURN_IF(tn_settings_set(st, "train.eval_every", text, "study"));
    }
    t->look_every = tn_settings_int(st, "train.eval_every");
    return TN_OK;
}

/* How many parameters the first side has as it stands, without what is searched. Looked at once. */
static tn_status count_first(const trial *t, int64_t *out)
{
    const tn_study_side *first = &t->h->plan->sides[0];
    tn_session on = { 0 };
    if (!t->h->first_parameters) {
        const tn_session_options o = { .user = t->h->plan->user,
                                       .target = first->base,
                                       .overrides = first->set,
                                       .n = first->n_set,
                                       .needs_data = true };
        TN_RETURN_IF(tn_session_open_with(&o, &on));
        t->h->first_parameters = tn_trainer_parameters(on.trainer);
        tn_session_close(&on);
    }
    *out = t->h->first_parameters;
    return TN_OK;
}

static tn_status wanted_parameters(const trial *t, int64_t *out)
{
    *out = t->h->plan->parameters;
    if (*out != TN_STUDY_FIRST) return TN_OK;
    *out = 0; /* the first side is as it is */
    return t->side == &t->h->plan->sides[0] ? TN_OK : count_first(t, out);
}

tn_status tn_trial_untested(void)
{
    return tn_error(TN_USAGE, "the data have no test split to compare on: raw text needs train.test_frac=0.05 in a new "
                              "study's `set`, prepared data test=FILE or test_frac=0.05");
}

static tn_status open_session(trial *t, const double *x)
{
    tn_arena arena = { 0 };
    const char *overrides[MOST_OVERRIDES];
    size_t n = 0;
    int64_t wanted = 0;
    tn_status s = make_overrides(t, x, &arena, overrides, &n);
    if (s == TN_OK) s = wanted_parameters(t, &wanted);
    if (s == TN_OK) {
        const tn_session_options o = { .user = t->h->plan->user,
                                       .target = t->side->base,
                                       .overrides = overrides,
                                       .n = n,
                                       .needs_data = true,
                                       .shared = t->h->shared,
                                       .context_slot = &t->h->context_slot,
                                       .parameters = wanted,
                                       .width = t->h->plan->width };
        s = tn_session_open_with(&o, &t->on);
    }
    if (s == TN_OK && t->on.source.text && t->c->kind == TN_TRIAL_COMPARE && tn_session_count(&t->on, TN_TEST) == 0)
        s = tn_trial_untested();
    if (s == TN_OK) s = set_rungs(t);
    if (s == TN_OK) t->parameters = (double)tn_trainer_parameters(t->on.trainer);
    tn_arena_free(&arena);
    if (s != TN_OK) tn_session_close(&t->on);
    return s;
}

/* --- while it runs ------------------------------------------------------------------------------------------------ */

static void stop_for(trial *t, stop why)
{
    if (t->stop == STOP_NOT) t->stop = why;
}

/* An error of the database inside one of the training's calls: kept, and the training ends. */
static void fail(trial *t, tn_status s)
{
    if (s == TN_OK || t->stop == STOP_ERROR) return;
    t->stop = STOP_ERROR;
    t->status = s;
    snprintf(t->error, sizeof t->error, "%s", tn_error_text());
}

static tn_status write_reports(trial *t)
{
    bool lost = false;
    if (t->log.n_reports == 0) return TN_OK;
    TN_RETURN_IF(tn_lab_report(t->h->lab, t->c, t->log.reports, t->log.n_reports, t->parameters, &lost));
    if (lost) stop_for(t, STOP_LOST);
    tn_trial_log_written(&t->log);
    t->written = tn_clock_s();
    return TN_OK;
}

static void keep_metric(void *to, const char *name, double value, const char *unit)
{
    trial *t = to;
    (void)unit;
    for (size_t i = 0; i < t->log.own.n; i++)
        if (strcmp(name, t->log.own.row[i]->key) == 0) name = t->log.own.row[i]->name;
    tn_trial_log_put(&t->log, name, value);
}

static void look(trial *t)
{
    if (t->on.source.report) t->on.source.report(t->on.source.ctx, keep_metric, t);
    (void)tn_trainer_instruments(t->on.trainer, keep_metric, NULL, t);
}

/* Compares with trials below number - lag, which have all ended: by the metric, or with `prune_size` by metric and
 * parameters together. */
static tn_status ask_pruner(trial *t, double score)
{
    const tn_study_plan *p = t->h->plan;
    const int64_t rung = (int64_t)t->log.n, before = t->c->number - p->pruning.lag;
    double *others = NULL, value;
    size_t n = 0;
    if (t->c->kind == TN_TRIAL_COMPARE || !p->pruner->is_rung(&p->pruning, rung)) return TN_OK;
    if (before > 0)
        TN_RETURN_IF(
            tn_lab_rung(t->h->lab, t->h->study, t->c->side, before, rung, t->parameters, p->cohort, &others, &n));
    double *values = tn_alloc(sizeof *values * (n + 1));
    tn_status s = values ? TN_OK : TN_MEMORY;
    const size_t ended = before > 0 ? (size_t)before : 0;
    for (size_t i = 0; s == TN_OK && i < n; i++) values[i] = others[2 * i];
    bool prune = s == TN_OK && p->pruner->prune(&p->pruning, rung, score, values, n, ended);
    if (prune && p->prune_size) {
        s = tn_pruner_values((double[]){ score, t->parameters }, others, n, 2, &value, values);
        prune = s == TN_OK && p->pruner->prune(&p->pruning, rung, value, values, n, ended);
    }
    if (prune) stop_for(t, STOP_PRUNED);
    tn_free(values);
    tn_free(others);
    return s;
}

static double seconds_of(const trial *t) { return t->working_s + t->log.eval_s; }

static tn_status evaluated(trial *t, const tn_progress_report *r)
{
    double score;
    look(t);
    tn_trial_log_put(&t->log, "train_loss", r->loss);
    if (!r->last.n) tn_trial_log_put(&t->log, r->metrics.row[0]->name, NAN);
    for (size_t i = 0; i < r->last.n; i++) tn_trial_log_put(&t->log, r->last.at[i].name, r->last.at[i].value);
    const double units = tn_costs_units(&t->log.costs);
    if (!isnan(units)) tn_trial_log_put(&t->log, "block_evals", units);
    TN_RETURN_IF(tn_trial_log_add(&t->log, r->step,
                                  t->on.source.epoch_batches || t->on.source.text ? r->epoch : (double)r->step,
                                  seconds_of(t), &score));
    tn_trial_log_rules(&t->log, r->epoch, NULL);
    if (r->step < r->steps) TN_RETURN_IF(ask_pruner(t, score));
    return tn_clock_s() - t->written > WRITE_EVERY_S ? write_reports(t) : TN_OK;
}

static void report(void *ctx, const tn_progress_report *r)
{
    trial *t = ctx;
    const tn_study_plan *p = t->h->plan;
    t->log.step = r->step;
    const bool rung = r->evaluated || (t->on.source.on_policy && t->look_every &&
                                       (r->step % t->look_every == 0 || r->step == r->steps));
    t->working_s = r->working_s;
    t->log.tokens_per_s = r->tokens_per_s;
    if (p->n_rules) {
        tn_trial_log_put(&t->log, "loss", r->loss);
        tn_trial_log_put(&t->log, "grad_norm", r->grad_norm);
        tn_trial_log_rules(&t->log, r->epoch, "loss");
        tn_trial_log_rules(&t->log, r->epoch, "grad_norm");
        if (t->looks && !rung && r->step % tn_settings_int(t->on.settings, "log.every") == 0) {
            look(t);
            tn_trial_log_rules(&t->log, r->epoch, NULL);
        }
    }
    if (rung) fail(t, evaluated(t, r));
    if (t->log.broken) stop_for(t, STOP_RULE);
    if (p->trial_seconds > 0 && tn_clock_s() - t->begun + t->c->seconds > p->trial_seconds) stop_for(t, STOP_TIME);
}

static bool enough(void *ctx) { return ((const trial *)ctx)->stop != STOP_NOT; }

static bool interrupted(void *ctx)
{
    const trial *t = ctx;
    return t->h->interrupted && t->h->interrupted(t->h->ctx);
}

static void ran(void *ctx, tn_trainer_event what, tn_bound *b, double seconds)
{
    trial *t = ctx;
    tn_costs_add(&t->log.costs, what, b);
    if (what == TN_EVENT_EVAL) t->log.eval_s += seconds;
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

/* The directory is made by the first checkpoint; what was reported before it has to be in the database. */
static json_t *save_own(void *ctx)
{
    trial *t = ctx;
    fail(t, write_reports(t));
    if (t->run.lock < 0) {
        tn_status s = tn_dir_make(t->dir);
        if (s == TN_OK) s = tn_run_lock(t->dir, 0, &t->run.lock);
        fail(t, s);
    }
    return t->stop == STOP_ERROR ? NULL : tn_trial_log_save(&t->log);
}

static tn_status load_own(void *ctx, const json_t *own) { return tn_trial_log_load(&((trial *)ctx)->log, own); }

static bool there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

/* A checkpoint of an earlier attempt with exactly these settings. */
static tn_status find_checkpoint(trial *t, bool *found)
{
    char now[TN_HASH_BYTES], why[256];
    tn_ckpt_state state = { 0 };
    *found = false;
    const tn_status locked = tn_run_lock(t->dir, 1000, &t->run.lock);
    t->taken = locked == TN_USAGE;
    TN_RETURN_IF(locked);
    snprintf(t->run.dir, sizeof t->run.dir, "%s", t->dir);
    TN_RETURN_IF(tn_settings_same_hash(t->on.settings, now));
    if (tn_ckpt_find(t->dir, "latest", t->run.checkpoint, why, sizeof why) != TN_OK) return TN_OK;
    if (tn_ckpt_read_state(t->run.checkpoint, &state) != TN_OK) return TN_OK;
    *found = strcmp(state.settings, now) == 0 && json_object_get(state.cursor, "trial");
    tn_ckpt_state_free(&state);
    return TN_OK;
}

static tn_status drop_dir(trial *t)
{
    tn_run_close(&t->run);
    return tn_trial_dir_check(t->dir, true);
}

static tn_status resume(trial *t, const tn_training *job, tn_ckpt_state *state, bool *resumed)
{
    int64_t rungs;
    *resumed = false;
    TN_RETURN_IF(tn_trial_dir_check(t->dir, false));
    if (there(t->dir) && t->c->attempt > 1) TN_RETURN_IF(find_checkpoint(t, resumed));
    if (*resumed) {
        const tn_status s = tn_run_resume(&t->run, job, state);
        t->damaged = s == TN_BAD_FILE || s == TN_USAGE;
        TN_RETURN_IF(s);
    }
    if (!*resumed && t->h->plan->keep && t->c->attempt == 1 && there(t->dir))
        return tn_error(TN_USAGE, "%s already exists, from an earlier study: move it away", t->dir);
    if (!*resumed) TN_RETURN_IF(drop_dir(t));
    if (t->c->attempt > 1) TN_RETURN_IF(tn_lab_rewind(t->h->lab, t->c, *resumed ? state->step : -1, &rungs));
    return *resumed ? tn_trial_log_recall(&t->log, t->h->lab, t->c->trial) : TN_OK;
}

/* --- the training ------------------------------------------------------------------------------------------------- */

/* The best parameters on the test split, for comparisons only; empty: there is none. */
static tn_status test(trial *t, tn_scores *out)
{
    tn_status s = TN_OK;
    tn_source source = { 0 };
    tn_evaluation e;
    char note[TN_CKPT_NOTE];
    if (tn_session_count(&t->on, TN_TEST) == 0) return TN_OK;
    TN_TRY(tn_ckpt_load_weights(t->dir, tn_trainer_store(t->on.trainer), note));
    if (note[0])
        TN_FAIL(TN_BAD_FILE, "%s", note); /* a comparison of other parameters than those that were chosen is none */
    TN_TRY(tn_session_heldout(&t->on, TN_TEST, &source));
    TN_TRY(tn_evaluate(t->on.trainer, &source, 0, &e));
    *out = e.scores;
done:
    tn_source_close(&source);
    return s;
}

static tn_status train(trial *t)
{
    tn_progress_report last;
    tn_ckpt_state state = { 0 };
    bool resumed;
    const tn_training job = { .trainer = t->on.trainer,
                              .settings = t->on.settings,
                              .source = &t->on.source,
                              .extra = &t->keeper,
                              .undiagnosed = true, /* a trial that goes wrong has failed */
                              .dir = t->dir,
                              .batch = t->on.batch,
                              .length = t->on.length,
                              .ctx = t,
                              .report = report,
                              .interrupted = interrupted,
                              .enough = enough,
                              .unsaved_end = !t->h->plan->keep && t->c->kind != TN_TRIAL_COMPARE };
    TN_RETURN_IF(resume(t, &job, &state, &resumed));
    if (resumed) {
        t->working_s = state.working;
        t->log.tokens_per_s = (double)state.tokens / state.working;
    }
    tn_trainer_watch(t->on.trainer, (tn_watch){ .ctx = t, .ran = ran });
    tn_status s = TN_OK;
    if (!resumed || !tn_training_finished(t->on.settings, &state))
        s = tn_training_run(&job, resumed ? &state : NULL, &last);
    tn_trainer_watch(t->on.trainer, (tn_watch){ 0 });
    tn_ckpt_state_free(&state);
    snprintf(t->run.dir, sizeof t->run.dir, "%s", t->dir);
    if (s == TN_OK && t->h->plan->keep && there(t->dir))
        s = tn_run_record(&t->run, t->on.settings); /* `tenon eval` reads it */
    return s;
}

/* --- the record --------------------------------------------------------------------------------------------------- */

/* Errors of the disk or the database, not of the trial. */
static bool is_ours(const trial *t, tn_status s) { return s == TN_DISK || t->stop == STOP_ERROR; }

static tn_trial_state state_after(const trial *t, tn_status s)
{
    if (s == TN_INTERRUPTED || t->taken || is_ours(t, s)) return TN_TRIAL_WAITING;
    if (s != TN_OK) return TN_TRIAL_FAILED;
    if (t->stop == STOP_TIME) return TN_TRIAL_TIMEOUT;
    return t->stop == STOP_PRUNED || t->stop == STOP_RULE ? TN_TRIAL_PRUNED : TN_TRIAL_DONE;
}

static tn_status finish_objectives(trial *t, double *y, tn_ending *e)
{
    const char *missing;
    tn_scores on_test = { 0 };
    tn_trial_log_objectives(&t->log, seconds_of(t), t->parameters, y, &missing);
    if (e->state == TN_TRIAL_DONE && t->c->kind == TN_TRIAL_COMPARE) {
        TN_RETURN_IF(test(t, &on_test));
        for (size_t i = 0; i < t->h->plan->n_objectives; i++) {
            const double v = tn_scores_get(&on_test, t->h->plan->objectives[i].name);
            if (!isnan(v)) y[i] = v;
        }
    }
    if (e->state == TN_TRIAL_DONE && missing) {
        e->state = TN_TRIAL_FAILED;
        snprintf(t->error, sizeof t->error,
                 "the model does not report %s; `tenon train` writes what it reports into metrics.jsonl", missing);
    }
    return TN_OK;
}

static void say_why(trial *t, tn_status s)
{
    if (s != TN_OK) snprintf(t->error, sizeof t->error, "%s", tn_error_text());
    else if (t->stop == STOP_RULE) snprintf(t->error, sizeof t->error, "rule: %s", t->log.broken);
    else if (t->stop == STOP_TIME) snprintf(t->error, sizeof t->error, "trial_seconds: %g", t->h->plan->trial_seconds);
}

/* Records the outcome of the training; returns what must stop the worker. */
static tn_status record(trial *t, tn_status s, bool *lost)
{
    const tn_study_plan *p = t->h->plan;
    double y[16];
    tn_ending e = { .seconds = seconds_of(t), .parameters = t->parameters, .seed = t->seed, .error = t->error };
    if (t->stop == STOP_LOST) {
        *lost = true;
        return TN_OK;
    }
    say_why(t, s);
    e.state = state_after(t, s);
    if (e.state != TN_TRIAL_FAILED && t->log.plan && tn_trial_ended(e.state)) {
        const tn_status measured = finish_objectives(t, y, &e);
        if (measured != TN_OK) {
            e.state = is_ours(t, measured) ? TN_TRIAL_WAITING : TN_TRIAL_FAILED;
            say_why(t, measured);
            s = measured;
        }
        if (tn_trial_ended(e.state) && e.state != TN_TRIAL_FAILED) e.y = y;
    }
    if (e.state == TN_TRIAL_WAITING) e.error = "";
    const tn_status written = tn_lab_end(t->h->lab, t->c, t->log.reports, t->log.n_reports, &e, p->n_objectives, lost);
    if (written != TN_OK) return written;
    if (tn_trial_ended(e.state) && !*lost && !p->keep) TN_RETURN_IF(drop_dir(t));
    return is_ours(t, s) ? tn_error(s, "%s", t->error) : TN_OK;
}

static void close_trial(trial *t)
{
    tn_run_close(&t->run);
    tn_trial_log_free(&t->log);
    tn_session_close(&t->on);
}

static tn_status open_trial(trial *t, const double *x)
{
    TN_RETURN_IF(tn_trial_dir(t->h, t->c, t->dir));
    TN_RETURN_IF(open_session(t, x));
    TN_RETURN_IF(tn_trial_log_open(t->h->plan, t->on.settings, t->on.model, &t->on.source, t->on.batch, &t->log));
    t->log.memory_bytes = (double)tn_trainer_memory(t->on.trainer).total;
    t->keeper = (tn_ckpt_extra){ .name = "trial", .ctx = t, .save = save_own, .load = load_own };
    return TN_OK;
}

/* Whether rules name what is only known by looking. */
static bool rules_look(const tn_study_plan *p)
{
    for (size_t i = 0; i < p->n_rules; i++) {
        const char *name = p->rules[i].metric;
        const bool counted = strcmp(name, "loss") == 0 || strcmp(name, "grad_norm") == 0 ||
                             strcmp(name, "train_loss") == 0 || strcmp(name, "block_evals") == 0;
        if (!counted && !tn_metric_find(&p->metrics, name)) return true;
    }
    return false;
}

static trial trial_of(tn_trial_host *h, const tn_claim *c)
{
    return (trial){ .h = h,
                    .c = c,
                    .side = &h->plan->sides[c->side],
                    .seed = c->seed,
                    .run = { .lock = -1 },
                    .begun = tn_clock_s(),
                    .written = tn_clock_s(),
                    .parameters = NAN,
                    .looks = rules_look(h->plan) };
}

static tn_status start_over(trial *t)
{
    int64_t rungs;
    TN_RETURN_IF(drop_dir(t));
    return tn_lab_rewind(t->h->lab, t->c, -1, &rungs);
}

tn_status tn_trial_run(tn_trial_host *h, const tn_claim *c, const double *x, bool *lost)
{
    tn_status s, ended;
    *lost = false;
    for (int64_t again = 0;; again++) {
        trial t = trial_of(h, c);
        t.seed = c->seed + (uint64_t)again;
        s = open_trial(&t, x);
        if (s == TN_OK) s = train(&t);
        if (t.stop == STOP_ERROR) s = tn_error(t.status, "%s", t.error);
        const bool fresh = t.damaged && !t.taken;
        const bool once_more =
            fresh || (state_after(&t, s) == TN_TRIAL_FAILED && again < h->plan->retries && t.stop != STOP_LOST);
        again -= fresh;
        ended = once_more ? start_over(&t) : record(&t, s, lost);
        close_trial(&t);
        if (!once_more || ended != TN_OK) return ended;
    }
}

tn_status tn_trial_try(tn_trial_host *h, size_t side, const double *x, tn_device *device, bool *testable)
{
    const tn_claim c = { .side = side,
                         .seed = h->plan->seed,
                         .kind = h->plan->seeds ? TN_TRIAL_COMPARE : TN_TRIAL_SEARCH };
    trial t = trial_of(h, &c);
    const tn_status s = open_trial(&t, x);
    if (s == TN_OK) *device = tn_trainer_device(t.on.trainer);
    if (s == TN_OK) *testable = !t.on.source.text || tn_session_count(&t.on, TN_TEST) > 0;
    close_trial(&t);
    return s;
}

tn_status tn_trial_session(tn_trial_host *h, const tn_claim *c, const double *x, tn_session *out)
{
    trial t = trial_of(h, c);
    TN_RETURN_IF(open_session(&t, x));
    *out = t.on;
    return TN_OK;
}
