/* A ring of jobs with one lock. head is the next job for the caller; workers take submitted jobs in order. Invariant: a
 * job is touched by its owner only: the caller (FREE, DONE) or one worker. */
#include "data/encoder.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { FREE, READY, BUSY, DONE };

typedef struct worker {
    pthread_t thread;
    tn_encoder *e;
    tn_tokenizer_scratch *scratch;
} worker;

struct tn_encoder {
    const tn_tokenizer *tokenizer;
    pthread_mutex_t lock;
    pthread_cond_t ready, done;
    bool stop;
    int threads, started, depth;
    worker *workers;
    tn_encode_job *jobs;  /* (depth) */
    uint64_t head, taken; /* jobs claimed by the caller; jobs taken by workers */
};

void tn_encode_job_clear(tn_encode_job *j)
{
    j->text.n = 0;
    j->n = 0;
    j->ids.n = 0;
    j->status = TN_OK;
}

tn_status tn_encode_job_add(tn_encode_job *j, const char *text, size_t bytes, bool first, tn_data_split split)
{
    void *p = j->pieces, *t = j->text.data;
    TN_RETURN_IF(tn_grow(&p, &j->capacity, j->n + 1, sizeof *j->pieces));
    j->pieces = p;
    TN_RETURN_IF(tn_grow(&t, &j->text.capacity, j->text.n + bytes, 1));
    j->text.data = t;
    memcpy(j->text.data + j->text.n, text, bytes);
    j->pieces[j->n++] = (tn_encode_piece){ .at = j->text.n, .bytes = bytes, .first = first, .split = split };
    j->text.n += bytes;
    return TN_OK;
}

static tn_status encode(const tn_tokenizer *t, tn_tokenizer_scratch *x, tn_encode_job *j)
{
    for (size_t i = 0; i < j->n; i++) {
        tn_encode_piece *p = &j->pieces[i];
        const size_t before = j->ids.n;
        TN_RETURN_IF(tn_tokenizer_encode(t, x, j->text.data + p->at, p->bytes, 0, &j->ids));
        p->tokens = j->ids.n - before;
    }
    return TN_OK;
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    tn_encoder *e = w->e;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        tn_encode_job *j = &e->jobs[e->taken % (uint64_t)e->depth];
        if (e->stop) break;
        if (j->state != READY) {
            pthread_cond_wait(&e->ready, &e->lock);
            continue;
        }
        j->state = BUSY;
        e->taken++;
        pthread_mutex_unlock(&e->lock);
        const tn_status s = encode(e->tokenizer, w->scratch, j);
        if (s != TN_OK) snprintf(j->error, sizeof j->error, "%s", tn_error_text());
        pthread_mutex_lock(&e->lock);
        j->status = s;
        j->state = DONE;
        pthread_cond_signal(&e->done);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* Signals stay with the thread that asked for them. */
static tn_status start_worker(tn_encoder *e)
{
    sigset_t all, old;
    worker *w = &e->workers[e->started];
    w->e = e;
    TN_RETURN_IF(tn_tokenizer_scratch_new(&w->scratch));
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int err = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err) {
        tn_tokenizer_scratch_free(w->scratch);
        return tn_error(TN_MEMORY, "thread %d of %d could not be started: use fewer threads", e->started + 1,
                        e->threads);
    }
    e->started++;
    return TN_OK;
}

tn_status tn_encoder_new(const tn_tokenizer *t, int threads, tn_encoder **out)
{
    tn_status s = TN_OK;
    tn_encoder *e = tn_alloc(sizeof *e);
    if (!e) return TN_MEMORY;
    e->tokenizer = t;
    e->threads = threads;
    e->depth = 2 * threads + 2;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->ready, NULL);
    pthread_cond_init(&e->done, NULL);
    e->workers = tn_alloc((size_t)threads * sizeof *e->workers);
    e->jobs = tn_alloc((size_t)e->depth * sizeof *e->jobs);
    if (!e->workers || !e->jobs) TN_TRY(TN_MEMORY);
    while (e->started < threads) TN_TRY(start_worker(e));
    *out = e;
    e = NULL;
done:
    tn_encoder_free(e);
    return s;
}

void tn_encoder_free(tn_encoder *e)
{
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_broadcast(&e->ready);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < e->started; i++) {
        pthread_join(e->workers[i].thread, NULL);
        tn_tokenizer_scratch_free(e->workers[i].scratch);
    }
    for (int i = 0; e->jobs && i < e->depth; i++) {
        tn_text_free(&e->jobs[i].text);
        tn_tokens_free(&e->jobs[i].ids);
        tn_free(e->jobs[i].pieces);
    }
    pthread_cond_destroy(&e->done);
    pthread_cond_destroy(&e->ready);
    pthread_mutex_destroy(&e->lock);
    tn_free(e->jobs);
    tn_free(e->workers);
    tn_free(e);
}

int tn_encoder_depth(const tn_encoder *e) { return e->depth; }

tn_status tn_encoder_claim(tn_encoder *e, tn_encode_job **out)
{
    pthread_mutex_lock(&e->lock);
    tn_encode_job *j = &e->jobs[e->head % (uint64_t)e->depth];
    while (j->state == READY || j->state == BUSY) pthread_cond_wait(&e->done, &e->lock);
    j->state = FREE;
    e->head++;
    pthread_mutex_unlock(&e->lock);
    if (j->status != TN_OK) return tn_error(j->status, "%s", j->error);
    *out = j;
    return TN_OK;
}

void tn_encoder_submit(tn_encoder *e)
{
    pthread_mutex_lock(&e->lock);
    e->jobs[(e->head - 1) % (uint64_t)e->depth].state = READY;
    pthread_cond_signal(&e->ready);
    pthread_mutex_unlock(&e->lock);
}
