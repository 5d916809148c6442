/* A worker: its lanes, and its heartbeat, a thread with its own connection, so that a step of minutes does not look
 * like death.
 *
 * A lane is a thread that runs one trial after another, with its own connection, row in the table of workers and
 * context; the first lane is the caller's thread. Lanes share the study, samples and plans. Only one lane at a time
 * looks for a trial. */
#include "lab/worker/worker.h"

#include "base/fs.h"
#include "lab/worker/trial_run.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const double BEAT_S = 5;
enum { WAIT_MS = 20, ATTEMPTS = 50 };

/* Both by the monotonic clock: one that is set back an hour must not make anybody wait for an hour. */
static void make_condition(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

static struct timespec after_ms(long ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ms % 1000 * 1000 * 1000;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* --- the heartbeat ------------------------------------------------------------------------------------------------ */

typedef struct heartbeat {
    const char *db;
    int64_t *lane; /* (n): all of them beat together */
    int n;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t end;
    bool ended, runs;
} heartbeat;

static void *beat(void *ctx)
{
    heartbeat *h = ctx;
    tn_lab *lab = NULL;
    if (tn_lab_open(h->db, true, &lab) != TN_OK) return NULL; /* the worker itself will say what is wrong with it */
    pthread_mutex_lock(&h->lock);
    while (!h->ended) {
        const struct timespec t = after_ms((long)(1000 * BEAT_S));
        if (pthread_cond_timedwait(&h->end, &h->lock, &t) != ETIMEDOUT) continue;
        pthread_mutex_unlock(&h->lock);
        for (int i = 0; i < h->n; i++) (void)tn_lab_beat(lab, h->lane[i]);
        pthread_mutex_lock(&h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    tn_lab_close(lab);
    return NULL;
}

static tn_status heartbeat_start(heartbeat *h)
{
    pthread_mutex_init(&h->lock, NULL);
    make_condition(&h->end);
    h->runs = pthread_create(&h->thread, NULL, beat, h) == 0;
    return h->runs ? TN_OK : tn_error(TN_MEMORY, "cannot start a thread for the worker's heartbeat");
}

static void heartbeat_stop(heartbeat *h)
{
    if (!h->runs) return;
    pthread_mutex_lock(&h->lock);
    h->ended = true;
    pthread_cond_signal(&h->end);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->end);
    pthread_mutex_destroy(&h->lock);
    h->runs = false;
}

/* --- the worker --------------------------------------------------------------------------------------------------- */

typedef struct lane {
    struct worker *w;
    tn_trial_host host;
    double *x;  /* (most dims) */
    int64_t id; /* in the table of workers */
    int64_t ran;
    pthread_t thread;
    bool runs;
} lane;

typedef struct worker {
    const tn_worker_options *o;
    tn_arena arena;
    tn_study *study;
    tn_study_plan plan;
    tn_shared *shared;
    lane *lane; /* (n) */
    int n;
    int64_t *ids;            /* (n) */
    tn_lab *lab;             /* of the lane that looks */
    tn_observed_store *seen; /* (n_sides), as well */
    bool looking;
    atomic_bool stop;
    tn_status status; /* the first error of a lane; being asked to stop is the least of them */
    char error[1024];
    pthread_mutex_t lock;   /* of looking, status and error */
    pthread_cond_t changed; /* a trial has ended, or nobody looks any more */
    char runs[TN_PATH_BYTES];
} worker;

tn_status tn_lab_runs(const char *db, char *out, size_t bytes)
{
    const size_t n = strlen(db), cut = n > 3 && strcmp(db + n - 3, ".db") == 0 ? n - 3 : n;
    const int wrote = snprintf(out, bytes, "%.*s%s", (int)cut, db, cut == n ? ".runs" : "");
    return wrote > 0 && (size_t)wrote < bytes ? TN_OK : tn_error(TN_USAGE, "the path of the database is too long");
}

/* By whoever started the worker, or because another lane has met something that ends all. */
static bool asked_to_stop(void *ctx)
{
    const worker *w = ((const lane *)ctx)->w;
    return atomic_load(&w->stop) || (w->o->interrupted && w->o->interrupted(w->o->ctx));
}

static tn_status open_lane(worker *w, lane *l, size_t dims)
{
    l->w = w;
    l->x = tn_arena_alloc(&w->arena, sizeof *l->x * dims);
    if (!l->x) return TN_MEMORY;
    l->host =
        (tn_trial_host){ .study = w->study->id,
                         .plan = &w->plan,
                         .runs = w->runs,
                         .shared = w->shared,
                         .context_slot = { .shared = true }, /* also alone: the table is the same with any number */
                         .ctx = l,
                         .interrupted = asked_to_stop };
    TN_RETURN_IF(tn_lab_open(w->o->db, true, &l->host.lab));
    return tn_lab_join(l->host.lab, &l->id);
}

static tn_status open_worker(worker *w)
{
    size_t dims = 1;
    char folder[TN_PATH_BYTES];
    const int n = w->o->lanes > 1 ? w->o->lanes : 1;
    TN_RETURN_IF(tn_lab_runs(w->o->db, w->runs, sizeof w->runs));
    TN_RETURN_IF(tn_lab_open(w->o->db, true, &w->lab));
    TN_RETURN_IF(tn_lab_load(w->lab, w->o->study, &w->study));
    TN_RETURN_IF(tn__study_plan_of(w->study, &w->arena, &w->plan));
    w->plan.user = w->o->user;
    TN_RETURN_IF(tn_trial_folder(w->runs, w->plan.name, folder));
    TN_RETURN_IF(tn_study_check(&w->plan));
    TN_RETURN_IF(tn_shared_new(&w->shared));
    for (size_t i = 0; i < w->plan.n_sides; i++)
        dims = w->plan.sides[i].space.n > dims ? w->plan.sides[i].space.n : dims;
    w->seen = tn_arena_alloc(&w->arena, sizeof *w->seen * w->plan.n_sides);
    w->lane = tn_arena_alloc(&w->arena, sizeof *w->lane * (size_t)n);
    w->ids = tn_arena_alloc(&w->arena, sizeof *w->ids * (size_t)n);
    if (!w->seen || !w->lane || !w->ids) return TN_MEMORY;
    while (w->n < n) {
        lane *l = &w->lane[w->n++];
        TN_RETURN_IF(open_lane(w, l, dims));
        w->ids[w->n - 1] = l->id;
    }
    return TN_OK;
}

static void close_worker(worker *w)
{
    for (size_t i = 0; w->seen && i < w->plan.n_sides; i++) tn_observed_free(&w->seen[i]);
    for (int i = 0; i < w->n; i++) {
        lane *l = &w->lane[i];
        if (l->id) (void)tn_lab_leave(l->host.lab, l->id);
        tn_context_slot_free(&l->host.context_slot);
        tn_lab_close(l->host.lab);
    }
    tn_shared_free(w->shared);
    tn_study_free(w->study);
    tn_lab_close(w->lab);
    tn_arena_free(&w->arena);
}

/* --- looking for a trial ------------------------------------------------------------------------------------------ */

/* The point, drawn from exactly the trials that the sampler needs: all of them have ended. */
static tn_status draw(lane *l, const tn_claim *c, bool *lost)
{
    worker *w = l->w;
    const tn_space *space = &w->plan.sides[c->side].space;
    tn_observed seen;
    if (c->has_x) return TN_OK;
    TN_RETURN_IF(tn_lab_observed(w->lab, w->study->id, &w->plan, c->side,
                                 w->plan.sampler->needs(&w->plan.sampling, c->number), &w->seen[c->side], &seen));
    TN_RETURN_IF(w->plan.sampler->draw(&w->plan.sampling, space, &seen, c->number, l->x));
    return tn_lab_point(w->lab, c, l->x, space->n, lost);
}

static void begin_looking(worker *w)
{
    pthread_mutex_lock(&w->lock);
    while (w->looking) pthread_cond_wait(&w->changed, &w->lock);
    w->looking = true;
    pthread_mutex_unlock(&w->lock);
}

static void end_looking(worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->looking = false;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* Until a lane says that its trial has ended, or for a little while: others may be of other processes. */
static void wait_for_others(worker *w)
{
    const struct timespec t = after_ms(WAIT_MS);
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->stop)) pthread_cond_timedwait(&w->changed, &w->lock, &t);
    pthread_mutex_unlock(&w->lock);
}

static tn_status look(lane *l, tn_claim *c, tn_claimed *got, bool *lost)
{
    worker *w = l->w;
    const tn_trial_filter of = { .compare = w->o->compare, .most = w->o->trials, .sides = w->o->sides };
    for (;;) {
        if (asked_to_stop(l)) return tn_error(TN_INTERRUPTED, "asked to stop");
        TN_RETURN_IF(tn_lab_claim(w->lab, w->study->id, &w->plan, l->id, &of, c, l->x, got));
        if (*got != TN_CLAIM_WAIT) break;
        wait_for_others(w);
    }
    return *got == TN_CLAIM_GOT && c->attempt <= ATTEMPTS ? draw(l, c, lost) : TN_OK;
}

/* --- a lane ------------------------------------------------------------------------------------------------------- */

/* One that takes its process with it every time would never end. */
static tn_status give_up(lane *l, const tn_claim *c, bool *lost)
{
    char error[128];
    snprintf(error, sizeof error,
             "the worker died %d times without an error message (killed by the system? out of memory?)",
             c->attempt - 1);
    return tn_lab_end(
        l->host.lab, c, NULL, 0,
        &(tn_ending){
            .state = TN_TRIAL_FAILED, .seconds = c->seconds, .parameters = NAN, .seed = c->seed, .error = error },
        l->w->plan.n_objectives, lost);
}

static tn_status work(lane *l)
{
    for (;;) {
        tn_claim c;
        tn_claimed got = TN_CLAIM_WAIT;
        bool lost = false;
        begin_looking(l->w);
        const tn_status s = look(l, &c, &got, &lost);
        end_looking(l->w);
        TN_RETURN_IF(s);
        if (got == TN_CLAIM_OVER) return TN_OK;
        l->ran++;
        if (c.attempt > ATTEMPTS) TN_RETURN_IF(give_up(l, &c, &lost));
        else if (!lost) TN_RETURN_IF(tn_trial_run(&l->host, &c, l->x, &lost));
    }
}

/* What ends one lane but is not its trial's own ends all: the disk, the database, somebody's wish. */
static void *lane_main(void *ctx)
{
    lane *l = ctx;
    worker *w = l->w;
    const tn_status s = work(l);
    pthread_mutex_lock(&w->lock);
    if (s != TN_OK && (w->status == TN_OK || w->status == TN_INTERRUPTED)) {
        w->status = s;
        snprintf(w->error, sizeof w->error, "%s", tn_error_text());
    }
    if (s != TN_OK) atomic_store(&w->stop, true);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static tn_status run_lanes(worker *w)
{
    tn_status s = TN_OK;
    for (int i = 1; i < w->n && s == TN_OK; i++) {
        lane *l = &w->lane[i];
        l->runs = pthread_create(&l->thread, NULL, lane_main, l) == 0;
        if (!l->runs)
            s = tn_error(TN_MEMORY, "cannot start a thread for lane %d of the worker: use fewer lanes", i + 1);
    }
    if (s == TN_OK) (void)lane_main(&w->lane[0]);
    else atomic_store(&w->stop, true);
    for (int i = 1; i < w->n; i++)
        if (w->lane[i].runs) pthread_join(w->lane[i].thread, NULL);
    if (s != TN_OK) return s;
    return w->status == TN_OK ? TN_OK : tn_error(w->status, "%s", w->error);
}

tn_status tn_worker_run(const tn_worker_options *o, int64_t *ran)
{
    worker w = { .o = o };
    heartbeat h = { .db = o->db };
    char text[1024];
    *ran = 0;
    pthread_mutex_init(&w.lock, NULL);
    make_condition(&w.changed);
    tn_status s = open_worker(&w);
    if (s == TN_OK) {
        h.lane = w.ids;
        h.n = w.n;
        s = heartbeat_start(&h);
    }
    if (s == TN_OK) s = run_lanes(&w);
    heartbeat_stop(&h);
    snprintf(text, sizeof text, "%s", tn_error_text());
    for (int i = 0; i < w.n; i++) *ran += w.lane[i].ran;
    close_worker(&w);
    pthread_cond_destroy(&w.changed);
    pthread_mutex_destroy(&w.lock);
    return s == TN_OK ? TN_OK : tn_error(s, "%s", text);
}
