/* A thread that fills batches ahead of the run, into a ring of buffers. Each remembers its position, so a saved
 * cursor or a description of a batch first moves the source back to where the run is; the thread then starts again
 * from there. */
#include "train/source/prefetch.h"

#include "base/alloc.h"
#include "base/status.h"
#include "base/tracer.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

typedef struct buffer {
    tn_prefetch *of;
    char *memory;
    tn_feed feed; /* of the width that was asked for */
    int64_t valid, count, step;
    int64_t number;      /* of the batch, from 1, for traces */
    tn_source_mark from; /* where the source was before it */
    tn_status status;
    char error[512];
} buffer;

struct tn_prefetch {
    tn_source source; /* its functions: whoever has it may move it */
    const tn_trainer *trainer;
    const tn_inputs *inputs;
    int64_t batch, length, accumulate;
    int depth;
    size_t offset[TN_INPUTS_MAX]; /* of inputs in a buffer */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool begun;          /* the thread is there */
    bool ends, held;     /* it is told to end, to stand still */
    bool armed, filling; /* it knows which step comes next; it has the source */
    buffer *buffer;      /* (depth): n from `first` on are filled */
    int first, n;
    int64_t step, filled; /* the step that was asked for when it was armed, and batches since then */
    tn_tracer *tracer;    /* or NULL; changes while nothing is filled */
    tn_source_mark last;  /* where the batch that was handed out last came from, */
    int64_t last_step;    /* and its step */
};

/* --- filling ------------------------------------------------------------------------------------------------------------ */

static bool is_made(const tn_input_slot *s) { return s->read && !s->left_out; }

static tn_feed lend(void *ctx, int64_t width, int shape)
{
    buffer *b = ctx;
    const tn_prefetch *a = b->of;
    b->valid = a->batch;
    b->feed = tn_trainer_feed_blank(a->trainer, width, shape);
    b->feed.batch = a->batch; /* of all parts of a step */
    b->feed.valid = &b->valid;
    for (size_t i = 0; i < a->inputs->n; i++)
        if (is_made(&a->inputs->slot[i])) b->feed.at[i] = b->memory + a->offset[i];
    return b->feed;
}

static void fill(const tn_prefetch *a, buffer *b)
{
    const tn_feeder to = { b, lend };
    const uint64_t begun = tn_tracer_clock(a->tracer);
    a->source.mark(a->source.ctx, &b->from);
    b->status = a->source.next(a->source.ctx, b->step, &to, &b->count);
    if (b->status != TN_OK) snprintf(b->error, sizeof b->error, "%s", tn_error_text());
    tn_tracer_add_batch(a->tracer, 0, begun, b->number);
}

static bool may_fill(const tn_prefetch *a)
{
    const bool failed = a->n && a->buffer[(a->first + a->n - 1) % a->depth].status != TN_OK;
    return a->armed && !a->held && !failed && a->n < a->depth;
}

static void *work(void *ctx)
{
    tn_prefetch *a = ctx;
    pthread_mutex_lock(&a->lock);
    for (;;) {
        while (!a->ends && !may_fill(a)) pthread_cond_wait(&a->changed, &a->lock);
        if (a->ends) break;
        buffer *b = &a->buffer[(a->first + a->n) % a->depth];
        b->step = a->step + a->filled++ / a->accumulate;
        b->number = a->step * a->accumulate + a->filled;
        a->filling = true;
        pthread_mutex_unlock(&a->lock);
        fill(a, b);
        pthread_mutex_lock(&a->lock);
        a->filling = false;
        a->n++;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* With the lock. */
static void stand_still(tn_prefetch *a)
{
    a->held = true;
    while (a->filling) pthread_cond_wait(&a->changed, &a->lock);
}

static void go_on(tn_prefetch *a)
{
    a->held = false;
    pthread_cond_broadcast(&a->changed);
}

/* Standing still: what is filled is forgotten, and the source is where the run is. */
static tn_status forget(tn_prefetch *a)
{
    const tn_status s = a->n ? a->source.back(a->source.ctx, &a->buffer[a->first].from) : TN_OK;
    a->n = 0;
    a->armed = false;
    return s;
}

/* --- for the run --------------------------------------------------------------------------------------------------------- */

/* Of the batch that comes next: one that is filled now is counted in `filled` already. */
static int64_t next_step(const tn_prefetch *a)
{
    return a->n || a->filling ? a->buffer[a->first].step : a->step + a->filled / a->accumulate;
}

/* A step that nobody counted on: a diagnosis, a run that goes on elsewhere. */
static tn_status arm(tn_prefetch *a, int64_t step)
{
    stand_still(a);
    const tn_status s = forget(a);
    a->step = step;
    a->filled = 0;
    a->armed = true;
    go_on(a);
    return s;
}

static void copy(const tn_prefetch *a, const buffer *b, const tn_feed *to)
{
    for (size_t i = 0; i < a->inputs->n; i++)
        if (b->feed.at[i] && to->at[i])
            memcpy(to->at[i], b->feed.at[i],
                   sizeof(float) * (size_t)tn_input_items(&to->inputs->slot[i], to->batch, to->length));
    *to->valid = b->valid;
}

static tn_status hand_out(tn_prefetch *a, buffer *b, const tn_feeder *to, int64_t *count)
{
    if (b->status != TN_OK) return tn_error(b->status, "%s", b->error);
    const tn_feed feed = tn_feed_like(to, &b->feed);
    copy(a, b, &feed);
    *count = b->count;
    a->last = b->from;
    a->last_step = b->step;
    return TN_OK;
}

tn_status tn_prefetch_next(tn_prefetch *a, int64_t step, const tn_feeder *to, int64_t *count)
{
    tn_status s = TN_OK;
    pthread_mutex_lock(&a->lock);
    if (a->held) go_on(a);
    if (!a->armed || next_step(a) != step) s = arm(a, step);
    while (s == TN_OK && !a->n) pthread_cond_wait(&a->changed, &a->lock);
    buffer *b = &a->buffer[a->first];
    pthread_mutex_unlock(&a->lock);
    if (s == TN_OK) s = hand_out(a, b, to, count); /* the thread does not touch it before it is given back */
    pthread_mutex_lock(&a->lock);
    if (s == TN_OK) {
        a->first = (a->first + 1) % a->depth;
        a->n--;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return s;
}

void tn_prefetch_mark(tn_prefetch *a, tn_source_mark *out)
{
    pthread_mutex_lock(&a->lock);
    while (!a->n && a->filling) pthread_cond_wait(&a->changed, &a->lock);
    if (a->n) *out = a->buffer[a->first].from;
    else {
        stand_still(a);
        a->source.mark(a->source.ctx, out);
        go_on(a);
    }
    pthread_mutex_unlock(&a->lock);
}

tn_status tn_prefetch_sync(tn_prefetch *a, bool last)
{
    pthread_mutex_lock(&a->lock);
    stand_still(a);
    tn_status s = forget(a);
    if (s == TN_OK && last) s = a->source.back(a->source.ctx, &a->last);
    if (s == TN_OK && last) {
        a->buffer[0].step = a->last_step;
        fill(a, &a->buffer[0]);
        s = a->buffer[0].status;
    }
    go_on(a);
    pthread_mutex_unlock(&a->lock);
    return s;
}

void tn_prefetch_pause(tn_prefetch *a)
{
    pthread_mutex_lock(&a->lock);
    stand_still(a);
    pthread_mutex_unlock(&a->lock);
}

void tn_prefetch_resume(tn_prefetch *a)
{
    pthread_mutex_lock(&a->lock);
    go_on(a);
    pthread_mutex_unlock(&a->lock);
}

void tn_prefetch_trace(tn_prefetch *a, tn_tracer *to)
{
    pthread_mutex_lock(&a->lock);
    const bool rests = a->held;
    stand_still(a);
    a->tracer = to;
    if (!rests) go_on(a);
    pthread_mutex_unlock(&a->lock);
}

/* --- opening ------------------------------------------------------------------------------------------------------------- */

static size_t padded(int64_t items) { return (sizeof(float) * (size_t)items + 63) / 64 * 64; }

/* Before anybody has looked whether they fit: in double, so that nothing here can overflow. */
size_t tn_prefetch_bytes(const tn_inputs *in, int64_t batch, int64_t length, int depth)
{
    double n = 0;
    for (size_t i = 0; i < in->n; i++)
        if (is_made(&in->slot[i]))
            n += (double)in->slot[i].all * (in->slot[i].each ? (double)batch : 1) *
                 (in->slot[i].has_time ? (double)length : 1);
    n *= (double)sizeof(float) * depth;
    return n < 1e18 ? (size_t)n : SIZE_MAX;
}

/* Signals are the main thread's. */
static tn_status begin_thread(tn_prefetch *a)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    a->begun = pthread_create(&a->thread, NULL, work, a) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return a->begun ? TN_OK : tn_error(TN_MEMORY, "cannot start the prefetch thread: set loader.workers=0");
}

tn_status tn_prefetch_new(const tn_source *source, const tn_source_start *how, int depth, tn_prefetch **out)
{
    tn_status s = TN_OK;
    size_t each = 0;
    tn_prefetch *a = tn_alloc(sizeof *a);
    if (!a) return TN_MEMORY;
    *a = (tn_prefetch){ .source = *source,
                        .trainer = how->trainer,
                        .inputs = tn_trainer_inputs(how->trainer),
                        .batch = how->batch,
                        .length = how->length,
                        .accumulate = how->accumulate > 0 ? how->accumulate : 1,
                        .depth = depth };
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    for (size_t i = 0; i < a->inputs->n; i++) {
        a->offset[i] = each;
        if (is_made(&a->inputs->slot[i])) each += padded(tn_input_items(&a->inputs->slot[i], a->batch, a->length));
    }
    a->buffer = tn_alloc(sizeof *a->buffer * (size_t)depth);
    if (!a->buffer) TN_TRY(TN_MEMORY);
    memset(a->buffer, 0, sizeof *a->buffer * (size_t)depth);
    for (int i = 0; i < depth; i++) {
        a->buffer[i].of = a;
        if (!(a->buffer[i].memory = tn_alloc(each + 1))) TN_TRY(TN_MEMORY);
    }
    s = begin_thread(a);
done:
    if (s == TN_OK) *out = a;
    else tn_prefetch_free(a);
    return s;
}

void tn_prefetch_free(tn_prefetch *a)
{
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->ends = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (a->begun) pthread_join(a->thread, NULL);
    for (int i = 0; a->buffer && i < a->depth; i++) tn_free(a->buffer[i].memory);
    tn_free(a->buffer);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    tn_free(a);
}
