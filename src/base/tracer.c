/* Buffers of spans, one for each thread. `n` alone is read by another thread: events below it are whole. */
#include "base/tracer.h"

#include "base/alloc.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Spans that hold others come last: a part of the room is for them alone, so that a full trace still has whole steps. */
enum { RESERVED_PART = 16, LEAST_EVENTS = 256, MOST_WORKER_EVENTS = 1 << 22, COUNTERS_OF_STEP = 4 };

typedef struct track {
    tn_event *event; /* (capacity) */
    size_t capacity;
    atomic_size_t n, dropped;
    size_t sorted; /* events that are in order */
} track;

struct tn_tracer {
    track *track; /* (tracks) */
    int tracks, workers;
    int64_t steps, warm_up, seen; /* seen: steps that have begun */
    int64_t traced;
    uint64_t begun, ended;
    atomic_bool on;
    tn_event work; /* what workers work at */
    tn_counter *counter;
    size_t n_counters, counter_capacity, counters_dropped;
    int statm; /* file of the process's memory; -1: none */
    double page_bytes;
};

static tn_status open_tracks(tn_tracer *t, const tn_tracer_options *o)
{
    const size_t most = MOST_WORKER_EVENTS / (size_t)(o->workers + 1),
                 events = o->events < LEAST_EVENTS ? LEAST_EVENTS : o->events;
    const size_t of_worker = 2 * events < most ? 2 * events : most;
    t->track = tn_alloc(sizeof *t->track * (size_t)t->tracks);
    if (!t->track) return TN_MEMORY;
    for (int i = 0; i < t->tracks; i++) {
        track *x = &t->track[i];
        x->capacity = i == TN_TRACK_MAIN ? events : of_worker;
        if (!(x->event = tn_alloc(sizeof *x->event * x->capacity))) return TN_MEMORY;
    }
    t->counter_capacity = COUNTERS_OF_STEP * (size_t)(o->steps > 0 ? o->steps + 1 : LEAST_EVENTS);
    t->counter = tn_alloc(sizeof *t->counter * t->counter_capacity);
    return t->counter ? TN_OK : TN_MEMORY;
}

tn_status tn_tracer_new(const tn_tracer_options *o, tn_tracer **out)
{
    tn_tracer *t = tn_alloc(sizeof *t);
    if (!t) return TN_MEMORY;
    t->tracks = 1 + o->workers + o->loaders;
    t->workers = o->workers;
    t->steps = o->steps;
    t->warm_up = o->warm_up;
    t->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    t->page_bytes = (double)sysconf(_SC_PAGESIZE);
    const tn_status s = open_tracks(t, o);
    if (s == TN_OK) *out = t;
    else tn_tracer_free(t);
    return s;
}

void tn_tracer_free(tn_tracer *t)
{
    if (!t) return;
    for (int i = 0; t->track && i < t->tracks; i++) tn_free(t->track[i].event);
    if (t->statm >= 0) close(t->statm);
    tn_free(t->track);
    tn_free(t->counter);
    tn_free(t);
}

void tn_tracer_restart(tn_tracer *t, int64_t warm_up)
{
    atomic_store(&t->on, false);
    for (int i = 0; i < t->tracks; i++) {
        atomic_store(&t->track[i].n, 0);
        atomic_store(&t->track[i].dropped, 0);
        t->track[i].sorted = 0;
    }
    t->n_counters = t->counters_dropped = 0;
    t->seen = t->traced = 0;
    t->begun = t->ended = 0;
    t->warm_up = warm_up;
    t->work = (tn_event){ .name = NULL };
}

/* --- on and off -------------------------------------------------------------------------------------------------------------- */

bool tn_tracer_stop_at(tn_tracer *t, uint64_t when)
{
    if (!tn_tracer_on(t)) return false;
    t->ended = when;
    atomic_store(&t->on, false);
    return true;
}

bool tn_tracer_stop(tn_tracer *t) { return tn_tracer_stop_at(t, tn_tracer_now()); }

tn_tracer_change tn_tracer_step(tn_tracer *t)
{
    if (!t) return TN_TRACER_SAME;
    const bool was = tn_tracer_on(t);
    if (was && t->steps > 0 && t->traced == t->steps) {
        tn_tracer_stop(t);
        return TN_TRACER_ENDS;
    }
    const bool begins = !t->begun && t->seen >= t->warm_up;
    t->seen++;
    t->traced += was || begins;
    if (!begins) return TN_TRACER_SAME;
    t->begun = tn_tracer_now();
    atomic_store(&t->on, true);
    return TN_TRACER_BEGINS;
}

bool tn_tracer_on(const tn_tracer *t) { return t && atomic_load_explicit(&t->on, memory_order_relaxed); }

uint64_t tn_tracer_now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

uint64_t tn_tracer_clock(const tn_tracer *t) { return tn_tracer_on(t) ? tn_tracer_now() : 0; }

/* --- adding ------------------------------------------------------------------------------------------------------------------ */

static bool holds_none(tn_event_kind k) { return k == TN_TRACED_OP || k == TN_TRACED_WAIT; }

void tn_tracer_add(tn_tracer *t, int number, const tn_event *e)
{
    if (!e->begin || number < 0 || !tn_tracer_on(t) || number >= t->tracks) return;
    track *x = &t->track[number];
    const size_t n = atomic_load_explicit(&x->n, memory_order_relaxed),
                 room = x->capacity - (holds_none(e->kind) ? x->capacity / RESERVED_PART : 0);
    if (n >= room) {
        atomic_fetch_add_explicit(&x->dropped, 1, memory_order_relaxed);
        return;
    }
    x->event[n] = *e;
    if (!e->end) x->event[n].end = tn_tracer_now();
    atomic_store_explicit(&x->n, n + 1, memory_order_release);
}

void tn_tracer_work_at(tn_tracer *t, const char *name, const char *where, bool backward)
{
    t->work = (tn_event){ .name = name, .where = where, .backward = backward, .kind = TN_TRACED_PIECES };
}

void tn_tracer_add_pieces(tn_tracer *t, int worker, uint64_t begun, int64_t pieces)
{
    tn_event e = t->work;
    if (!e.name || !pieces || worker > t->workers) return;
    e.begin = begun;
    e.number = pieces;
    tn_tracer_add(t, worker, &e);
}

void tn_tracer_add_batch(tn_tracer *t, int loader, uint64_t begun, int64_t number)
{
    if (!t) return;
    tn_tracer_add(t, 1 + t->workers + loader,
                  &(tn_event){ .begin = begun, .name = "prepare a batch", .number = number, .kind = TN_TRACED_BATCH });
}

void tn_tracer_count(tn_tracer *t, tn_counter_kind kind, double value)
{
    if (!tn_tracer_on(t)) return;
    if (t->n_counters == t->counter_capacity) t->counters_dropped++;
    else t->counter[t->n_counters++] = (tn_counter){ tn_tracer_now(), value, kind };
}

/* "size resident shared ...", in pages. */
void tn_tracer_count_resident(tn_tracer *t)
{
    char text[128];
    if (!tn_tracer_on(t) || t->statm < 0) return;
    const ssize_t n = pread(t->statm, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    const char *p = strchr(text, ' ');
    if (p) tn_tracer_count(t, TN_COUNTED_RESIDENT, t->page_bytes * strtod(p, NULL));
}

/* --- looking ------------------------------------------------------------------------------------------------------------------ */

int tn_tracer_tracks(const tn_tracer *t) { return t->tracks; }

int tn_tracer_workers(const tn_tracer *t) { return t->workers; }

const char *tn_tracer_track_name(const tn_tracer *t, int number, char buf[TN_TRACK_NAME])
{
    if (number == TN_TRACK_MAIN) snprintf(buf, TN_TRACK_NAME, "main");
    else if (number <= t->workers) snprintf(buf, TN_TRACK_NAME, "worker %d", number);
    else snprintf(buf, TN_TRACK_NAME, "loader %d", number - t->workers);
    return buf;
}

/* Of two that begin together the longer one holds the other; of two that are equal the one that was added later. The place in the
 * buffer is the order of adding. */
static int by_time(const void *a, const void *b)
{
    const tn_event *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end > y->end ? -1 : 1;
    return x->kind != y->kind ? (x->kind < y->kind ? -1 : 1) : 0;
}

size_t tn_tracer_events(tn_tracer *t, int number, const tn_event **out)
{
    track *x = &t->track[number];
    const size_t n = atomic_load_explicit(&x->n, memory_order_acquire);
    if (n > x->sorted) qsort(x->event, n, sizeof *x->event, by_time);
    x->sorted = n;
    *out = x->event;
    return n;
}

size_t tn_tracer_counters(const tn_tracer *t, const tn_counter **out)
{
    *out = t->counter;
    return t->n_counters;
}

size_t tn_tracer_dropped(const tn_tracer *t)
{
    size_t sum = t->counters_dropped;
    for (int i = 0; i < t->tracks; i++) sum += atomic_load_explicit(&t->track[i].dropped, memory_order_relaxed);
    return sum;
}

int64_t tn_tracer_traced(const tn_tracer *t) { return t->traced; }

uint64_t tn_tracer_begun(const tn_tracer *t) { return t->begun; }

uint64_t tn_tracer_ended(const tn_tracer *t) { return t->ended; }
