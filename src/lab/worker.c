/* A worker's loop, and its heart: a thread with a connection of its own, so that a step of minutes does not look like death. */
#include "lab/worker.h"

#include "base/fs.h"
#include "lab/trial_run.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const double BEAT_S = 5;
enum { WAIT_MS = 20, ATTEMPTS = 50 };

/* --- the heart -------------------------------------------------------------------------------------------------------- */

typedef struct heart {
    const char *db;
    int64_t worker;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t end;
    bool ended, runs;
} heart;

static void *beat(void *ctx)
{
    heart *h = ctx;
    tn_lab *lab = NULL;
    if (tn_lab_open(h->db, true, &lab) != TN_OK) return NULL; /* the worker itself will say what is wrong with it */
    pthread_mutex_lock(&h->lock);
    while (!h->ended) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_sec += (time_t)BEAT_S;
        if (pthread_cond_timedwait(&h->end, &h->lock, &t) != ETIMEDOUT) continue;
        pthread_mutex_unlock(&h->lock);
        (void)tn_lab_beat(lab, h->worker);
        pthread_mutex_lock(&h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    tn_lab_close(lab);
    return NULL;
}

static tn_status heart_start(heart *h)
{
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->end, NULL);
    h->runs = pthread_create(&h->thread, NULL, beat, h) == 0;
    return h->runs ? TN_OK : tn_error(TN_MEMORY, "cannot start a thread for the worker's heart-beat");
}

static void heart_stop(heart *h)
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

/* --- the loop --------------------------------------------------------------------------------------------------------- */

typedef struct worker {
    const tn_worker_options *o;
    tn_arena arena;
    tn_study *study;
    tn_study_plan plan;
    tn_trial_host host;
    tn_seen_store *seen; /* (n_sides) */
    double *x;           /* (most dims) */
    int64_t id;
    char runs[TN_PATH_BYTES];
} worker;

tn_status tn_lab_runs(const char *db, char *out, size_t bytes)
{
    const size_t n = strlen(db), cut = n > 3 && strcmp(db + n - 3, ".db") == 0 ? n - 3 : n;
    const int wrote = snprintf(out, bytes, "%.*s%s", (int)cut, db, cut == n ? ".runs" : "");
    return wrote > 0 && (size_t)wrote < bytes ? TN_OK : tn_error(TN_USAGE, "the path of the database is too long");
}

static void pause_ms(int ms)
{
    const struct timespec t = { .tv_nsec = ms * 1000L * 1000L };
    nanosleep(&t, NULL);
}

static bool asked_to_stop(const worker *w) { return w->o->interrupted && w->o->interrupted(w->o->ctx); }

static tn_status open_worker(worker *w)
{
    size_t dims = 1;
    TN_RETURN_IF(tn_lab_runs(w->o->db, w->runs, sizeof w->runs));
    TN_RETURN_IF(tn_lab_open(w->o->db, true, &w->host.lab));
    TN_RETURN_IF(tn_lab_load(w->host.lab, w->o->study, &w->study));
    TN_RETURN_IF(tn__study_plan_of(w->study, &w->arena, &w->plan));
    TN_RETURN_IF(tn_study_check(&w->plan));
    for (size_t i = 0; i < w->plan.n_sides; i++)
        dims = w->plan.sides[i].space.n > dims ? w->plan.sides[i].space.n : dims;
    w->x = tn_arena_alloc(&w->arena, sizeof *w->x * dims);
    w->seen = tn_arena_alloc(&w->arena, sizeof *w->seen * w->plan.n_sides);
    if (!w->x || !w->seen) return tn_error(TN_MEMORY, "out of memory");
    w->host.study = w->study->id;
    w->host.plan = &w->plan;
    w->host.runs = w->runs;
    w->host.ctx = w->o->ctx;
    w->host.interrupted = w->o->interrupted;
    return tn_lab_join(w->host.lab, &w->id);
}

static void close_worker(worker *w)
{
    for (size_t i = 0; w->seen && i < w->plan.n_sides; i++) tn_seen_free(&w->seen[i]);
    if (w->id) (void)tn_lab_leave(w->host.lab, w->id);
    tn_samples_cache_free(&w->host.samples);
    tn_study_free(w->study);
    tn_lab_close(w->host.lab);
    tn_arena_free(&w->arena);
}

/* The point, drawn from exactly the trials that the sampler needs: all of them have ended. */
static tn_status draw(worker *w, const tn_claim *c, bool *lost)
{
    const tn_space *space = &w->plan.sides[c->side].space;
    tn_seen seen;
    if (c->has_x) return TN_OK;
    TN_RETURN_IF(tn_lab_seen(w->host.lab, w->host.study, &w->plan, c->side,
                             w->plan.sampler->needs(&w->plan.sampling, c->number), &w->seen[c->side], &seen));
    TN_RETURN_IF(w->plan.sampler->draw(&w->plan.sampling, space, &seen, c->number, w->x));
    return tn_lab_point(w->host.lab, c, w->x, space->n, lost);
}

/* One that takes its process with it every time would never end. */
static tn_status give_up(worker *w, const tn_claim *c, bool *lost)
{
    char error[128];
    snprintf(error, sizeof error, "begun %d times, and its process ended each time without a word: memory? a fault?",
             c->attempt - 1);
    return tn_lab_end(
        w->host.lab, c, NULL, 0,
        &(tn_ending){
            .state = TN_TRIAL_FAILED, .seconds = c->seconds, .parameters = NAN, .seed = c->seed, .error = error },
        w->plan.n_objectives, lost);
}

static tn_status work(worker *w, int64_t *ran)
{
    for (;;) {
        tn_claim c;
        tn_claimed got;
        bool lost = false;
        if (asked_to_stop(w)) return tn_error(TN_INTERRUPTED, "asked to stop");
        TN_RETURN_IF(
            tn_lab_claim(w->host.lab, w->host.study, &w->plan, w->id, w->o->compare, w->o->trials, &c, w->x, &got));
        if (got == TN_CLAIM_OVER) return TN_OK;
        if (got == TN_CLAIM_WAIT) {
            pause_ms(WAIT_MS);
            continue;
        }
        ++*ran;
        if (c.attempt > ATTEMPTS) {
            TN_RETURN_IF(give_up(w, &c, &lost));
            continue;
        }
        TN_RETURN_IF(draw(w, &c, &lost));
        if (!lost) TN_RETURN_IF(tn_trial_run(&w->host, &c, w->x, &lost));
    }
}

tn_status tn_worker_run(const tn_worker_options *o, int64_t *ran)
{
    worker w = { .o = o };
    heart h = { .db = o->db };
    *ran = 0;
    tn_status s = open_worker(&w);
    if (s == TN_OK) {
        h.worker = w.id;
        s = heart_start(&h);
    }
    if (s == TN_OK) s = work(&w, ran);
    heart_stop(&h);
    if (s != TN_OK) {
        char text[1024];
        snprintf(text, sizeof text, "%s", tn_error_text());
        close_worker(&w);
        return tn_error(s, "%s", text);
    }
    close_worker(&w);
    return TN_OK;
}
