/* The ring of batches: batch k is in slot k % depth. A worker plans the next batch under the lock and fills it without;
 * the caller takes batches in order and releases a slot with its next call. Invariant: planned - released <= depth, and
 * a slot belongs to one thread at a time: its worker until it is ready, then the caller. */
#include "data/loader_parts.h"

#include "base/clock.h"
#include "base/tracer.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

typedef struct slot {
    bool ready;
    tn_status status;
    char error[1024];
    tn_loader_plan plan;
    tn_batch_memory memory;
    tn_loader_batch batch;
} slot;

struct tn_loader {
    tn_walk walk;
    pthread_mutex_t lock;
    pthread_cond_t not_full, ready;
    bool rests;                        /* workers begin no batch */
    int filling;                       /* workers that are at one */
    bool stop, ended;                  /* ended: the plan has come to its end or failed; no more batches are planned */
    uint64_t planned, taken, released; /* batch numbers */
    bool holds;                        /* the caller has batch taken - 1 */
    tn_loader_cursor begin;            /* where it was opened */
    tn_loader_cursor at;               /* of the next batch to plan */
    tn_loader_cursor position;         /* after the last batch handed out */
    int workers, started, depth;
    pthread_t *thread;
    slot *slots; /* (depth) */
    tn_loader_stats stats;
    tn_tracer *tracer; /* or NULL */
    int numbered;      /* workers that have begun, each with its number */
};

static slot *slot_of(tn_loader *l, uint64_t number) { return &l->slots[number % (uint64_t)l->depth]; }

static void fail(tn_loader *l, slot *s, tn_status status)
{
    s->status = status;
    snprintf(s->error, sizeof s->error, "%s", tn_error_text());
    l->ended = true;
}

/* With the lock held: takes the next number and plans it. */
static slot *plan_next(tn_loader *l)
{
    slot *s = slot_of(l, l->planned++);
    s->ready = false;
    s->status = TN_OK;
    const tn_status st = tn__loader_plan(&l->walk, &l->at, &s->plan);
    if (st != TN_OK) fail(l, s, st);
    else if (s->plan.is_end) l->ended = true;
    return s;
}

static void fill(tn_loader *l, slot *s, tn_status *status)
{
    int64_t count = 0;
    *status = TN_OK;
    if (s->status == TN_OK && !s->plan.is_end) *status = tn__loader_fill(&l->walk, &s->plan, &s->memory, &count);
    s->batch.count = count;
    s->batch.width = s->plan.width;
    s->batch.step = s->plan.start.step;
    s->batch.epoch = s->plan.start.epoch;
}

static void *worker_main(void *arg)
{
    tn_loader *l = arg;
    tn_status st;
    pthread_mutex_lock(&l->lock);
    const int number = l->numbered++;
    while (!l->stop) {
        if (l->rests || l->ended || l->planned - l->released >= (uint64_t)l->depth) {
            pthread_cond_wait(&l->not_full, &l->lock);
            continue;
        }
        slot *s = plan_next(l);
        const int64_t batch = (int64_t)l->planned;
        tn_tracer *to = l->tracer;
        l->filling++;
        pthread_mutex_unlock(&l->lock);
        const uint64_t begun = tn_tracer_clock(to);
        fill(l, s, &st);
        tn_tracer_add_batch(to, number, begun, batch);
        pthread_mutex_lock(&l->lock);
        if (st != TN_OK) fail(l, s, st);
        s->ready = true;
        l->filling--;
        pthread_cond_signal(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* --- opening -------------------------------------------------------------------------------------------------------------- */

static tn_status check_options(const tn_loader_options *o, const tn_dataset_counts *c)
{
    const tn_dataset_info *info = tn_dataset_about(o->dataset);
    const char *name = tn_data_split_names[o->split];
    size_t n;
    if (o->batch < 1 || o->batch > INT32_MAX || o->workers < 0 || o->workers > 256 || o->window_batches > 1 << 20)
        return tn_error(TN_USAGE, "a loader of %lld rows with %d workers: rows from 1, workers from 0 to 256",
                        (long long)o->batch, o->workers);
    if (c->documents == 0)
        return tn_error(TN_BAD_FILE, "the data set has no %s split: prepare it with %s_frac= or %s=FILE", name, name,
                        name);
    if (info->kind == TN_SHARD_ARRAYS) return TN_OK;
    if (o->length < 1 || o->length > INT32_MAX || !tn_mul_ok((size_t)o->batch, (size_t)o->length, &n) ||
        n > (size_t)1 << 40)
        return tn_error(TN_USAGE, "batches of %lld x %lld tokens: use a smaller batch or length", (long long)o->batch,
                        (long long)o->length);
    if (info->eot < 0 && c->tokens <= c->documents)
        return tn_error(TN_BAD_FILE, "every document of the %s split is a single token: nothing to predict", name);
    if (o->mode == TN_LOADER_WINDOW && o->evaluate)
        return tn_error(TN_USAGE, "an evaluation walks the split in order: use pack or bucket");
    if (o->mode == TN_LOADER_WINDOW && c->tokens <= (uint64_t)o->length)
        return tn_error(TN_BAD_FILE,
                        "the %s split has %llu tokens, too few for windows of %lld tokens: use a smaller train.context "
                        "or more text",
                        name, (unsigned long long)c->tokens, (long long)o->length);
    return TN_OK;
}

static tn_status restore(tn_loader *l, const tn_loader_cursor *from)
{
    const tn_loader_cursor mine = l->at;
    if (!from) return TN_OK;
    if (from->seed != mine.seed || from->documents != mine.documents || from->tokens != mine.tokens ||
        from->rows != mine.rows || from->length != mine.length || from->mode != mine.mode)
        return tn_error(TN_USAGE, "the data position to resume from belongs to other data, another seed or another "
                                  "batch shape: resume with the "
                                  "same ones, or start anew");
    if (from->index > mine.documents || (from->index == mine.documents && !l->walk.evaluate) ||
        from->offset > mine.tokens)
        return tn_error(TN_BAD_FILE, "the data position to resume from is beyond the data; the checkpoint is damaged");
    l->at = *from;
    return TN_OK;
}

static tn_status make_slot(tn_loader *l, slot *s)
{
    const tn_dataset_info *info = tn_dataset_about(l->walk.data);
    const size_t B = (size_t)l->walk.B;
    size_t n;
    tn_batch_memory *m = &s->memory;
    s->batch.rows = l->walk.B;
    if (info->kind == TN_SHARD_ARRAYS) {
        if (!tn_mul_ok(B, (size_t)info->sample * sizeof(float), &n))
            return tn_error(TN_MEMORY, "a batch of %zu samples overflows", B);
        m->features = tn_alloc(n);
        m->labels = tn_alloc(B * sizeof *m->labels);
        if (!m->features || !m->labels) return TN_MEMORY;
        s->batch.features = m->features;
        s->batch.labels = m->labels;
        return TN_OK;
    }
    n = B * (size_t)l->walk.T * sizeof(int32_t);
    m->tokens = tn_alloc(n);
    m->targets = tn_alloc(n);
    m->reset = tn_alloc(n);
    s->plan.rows = tn_alloc(B * sizeof *s->plan.rows);
    if (!m->tokens || !m->targets || !m->reset || !s->plan.rows) return TN_MEMORY;
    s->batch.tokens = m->tokens;
    s->batch.targets = m->targets;
    s->batch.reset = m->reset;
    return TN_OK;
}

static tn_status start_workers(tn_loader *l)
{
    sigset_t all, old;
    sigfillset(&all); /* signals stay with the thread that asked for them */
    for (; l->started < l->workers; l->started++) {
        pthread_sigmask(SIG_SETMASK, &all, &old);
        const int err = pthread_create(&l->thread[l->started], NULL, worker_main, l);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (err)
            return tn_error(TN_MEMORY, "loader thread %d of %d could not be started (%s): use fewer", l->started + 1,
                            l->workers, strerror(err));
    }
    return TN_OK;
}

static void set_walk(tn_loader *l, const tn_loader_options *o, const tn_dataset_counts *counts)
{
    const tn_dataset_info *info = tn_dataset_about(o->dataset);
    const bool arrays = info->kind == TN_SHARD_ARRAYS;
    l->walk = (tn_walk){ .data = o->dataset,
                         .split = o->split,
                         .counts = *counts,
                         .eot = info->eot,
                         .B = o->batch,
                         .T = arrays ? 1 : o->length,
                         .evaluate = o->evaluate,
                         .seed = o->seed,
                         .mode = arrays ? TN_LOADER_PACK : o->mode,
                         .scale = o->scale != 0              ? o->scale
                                  : info->item == TN_ITEM_U8 ? 1.0f / 255
                                                             : 1 };
    l->at = (tn_loader_cursor){ .seed = o->seed,
                                .documents = counts->documents,
                                .tokens = counts->tokens,
                                .rows = o->batch,
                                .length = l->walk.T,
                                .mode = l->walk.mode };
}

/* --- how much it takes ----------------------------------------------------------------------------------------------------- */

static int depth_of(const tn_loader_options *o)
{
    const int depth = o->depth > 0 ? o->depth : o->workers + 2;
    return depth < 2 ? 2 : depth; /* the caller holds one */
}

/* Batches whose rows are planned together; 0: there is no such window. */
static size_t window_batches(const tn_loader_options *o)
{
    const bool arrays = tn_dataset_about(o->dataset)->kind == TN_SHARD_ARRAYS;
    if (arrays || o->mode == TN_LOADER_WINDOW) return 0;
    if (o->evaluate && o->mode == TN_LOADER_PACK) return 1;
    return o->window_batches > 0 ? (size_t)o->window_batches : 32;
}

size_t tn_loader_bytes(const tn_loader_options *o)
{
    const tn_dataset_info *info = tn_dataset_about(o->dataset);
    const bool arrays = info->kind == TN_SHARD_ARRAYS;
    const size_t B = (size_t)o->batch, row = arrays ? (size_t)info->sample * sizeof(float) + sizeof(int32_t)
                                                    : 3 * sizeof(int32_t) * (size_t)o->length + sizeof(tn_segment);
    size_t slots, window, all;
    if (!tn_mul_ok(B, row, &slots) || !tn_add_ok(slots, sizeof(slot), &slots) ||
        !tn_mul_ok(slots, (size_t)depth_of(o), &slots) ||
        !tn_mul_ok(B, window_batches(o) * sizeof(tn_segment), &window) || !tn_add_ok(slots, window, &all))
        return SIZE_MAX;
    return all;
}

tn_status tn_loader_open(const tn_loader_options *o, tn_loader **out)
{
    tn_status s = TN_OK;
    const tn_dataset_counts counts = tn_dataset_count(o->dataset, o->split);
    TN_RETURN_IF(check_options(o, &counts));
    tn_loader *l = tn_alloc(sizeof *l);
    if (!l) return TN_MEMORY;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->not_full, NULL);
    pthread_cond_init(&l->ready, NULL);
    set_walk(l, o, &counts);
    TN_TRY(restore(l, o->from));
    l->begin = l->position = l->at;
    l->workers = o->workers;
    l->depth = depth_of(o);
    l->slots = tn_alloc((size_t)l->depth * sizeof *l->slots);
    l->thread = tn_alloc((size_t)(l->workers + 1) * sizeof *l->thread);
    if (!l->slots || !l->thread) TN_TRY(TN_MEMORY);
    for (int i = 0; i < l->depth; i++) TN_TRY(make_slot(l, &l->slots[i]));
    l->walk.window.capacity = (size_t)o->batch * window_batches(o);
    if (l->walk.window.capacity) {
        l->walk.window.v = tn_alloc(l->walk.window.capacity * sizeof *l->walk.window.v);
        if (!l->walk.window.v) TN_TRY(TN_MEMORY);
    }
    TN_TRY(start_workers(l));
    *out = l;
    l = NULL;
done:
    tn_loader_free(l);
    return s;
}

void tn_loader_free(tn_loader *l)
{
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->not_full);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->started; i++) pthread_join(l->thread[i], NULL);
    for (int i = 0; l->slots && i < l->depth; i++) {
        const slot *s = &l->slots[i];
        tn_free(s->memory.tokens);
        tn_free(s->memory.targets);
        tn_free(s->memory.reset);
        tn_free(s->memory.features);
        tn_free(s->memory.labels);
        tn_free(s->plan.rows);
    }
    tn_free(l->walk.window.v);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->not_full);
    pthread_mutex_destroy(&l->lock);
    tn_free(l->slots);
    tn_free(l->thread);
    tn_free(l);
}

/* --- taking batches --------------------------------------------------------------------------------------------------------- */

/* With the lock held: batch number `taken`, filled; by the caller itself where there are no workers. */
static slot *wait_for(tn_loader *l)
{
    tn_status st;
    slot *s = slot_of(l, l->taken);
    if (l->workers == 0 && l->planned == l->taken) {
        s = plan_next(l);
        fill(l, s, &st);
        if (st != TN_OK) fail(l, s, st);
        s->ready = true;
        return s;
    }
    const bool waits = l->planned <= l->taken || !s->ready;
    const double before = waits ? tn_clock_s() : 0;
    while (l->planned <= l->taken || !s->ready) pthread_cond_wait(&l->ready, &l->lock);
    if (waits) l->stats.wait_s += tn_clock_s() - before;
    return s;
}

static void count_batch(tn_loader *l, const tn_loader_batch *b)
{
    const uint64_t items =
        (uint64_t)b->rows * (uint64_t)(b->tokens ? b->width : tn_dataset_about(l->walk.data)->sample);
    l->stats.batches++;
    l->stats.targets += (uint64_t)b->count;
    l->stats.positions += (uint64_t)b->rows * (uint64_t)b->width;
    l->stats.bytes += items * (b->tokens ? 3 * sizeof(int32_t) : sizeof(float));
}

tn_status tn_loader_next(tn_loader *l, const tn_loader_batch **out)
{
    tn_status st = TN_OK;
    pthread_mutex_lock(&l->lock);
    if (l->holds || l->rests) {
        l->released += l->holds;
        l->holds = l->rests = false;
        pthread_cond_broadcast(&l->not_full);
    }
    slot *s = wait_for(l);
    if (s->status != TN_OK) st = tn_error(s->status, "%s", s->error); /* stays there: every later call says the same */
    else if (s->plan.is_end) *out = NULL;
    else {
        l->taken++;
        l->holds = true;
        l->position = s->plan.after;
        count_batch(l, &s->batch);
        *out = &s->batch;
    }
    pthread_mutex_unlock(&l->lock);
    return st;
}

void tn_loader_rewind(tn_loader *l)
{
    l->at = l->position = l->begin;
    l->planned = l->taken = l->released = 0;
    l->holds = l->ended = false;
}

tn_status tn_loader_row(tn_loader *l, int64_t row, uint64_t *document, uint64_t *offset)
{
    const tn_loader_plan *plan = l->holds ? &slot_of(l, l->taken - 1)->plan : NULL;
    const bool tokens = tn_dataset_about(l->walk.data)->kind == TN_SHARD_TOKENS;
    if (!plan || !tokens || row < 0 || row >= (l->walk.mode == TN_LOADER_WINDOW ? l->walk.B : plan->rows_n))
        return tn_error(TN_USAGE, "no batch of documents with a row %lld was handed out", (long long)row);
    return tn__loader_row(&l->walk, plan, row, document, offset);
}

tn_loader_cursor tn_loader_position(const tn_loader *l) { return l->position; }

void tn_loader_trace(tn_loader *l, tn_tracer *to)
{
    pthread_mutex_lock(&l->lock);
    l->tracer = to;
    pthread_mutex_unlock(&l->lock);
}

void tn_loader_rest(tn_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->rests = true;
    while (l->filling) pthread_cond_wait(&l->ready, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

tn_loader_stats tn_loader_measure(const tn_loader *l) { return l->stats; }
