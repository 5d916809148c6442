/* Measures a profile: a step as training runs it, then one with timers, in turn. */
#include "report/profile/replayed.h"

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/memory_peak.h"
#include "report/bench/timing.h"
#include "train/trainer/inputs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { MOST_ROWS = 4096, MOST_STEPS = 32, LEAST_STEPS = 5, WARM_STEPS = 2 };

/* Times of each step, by what they are of; counts of all timed ones together: rows of other widths are other work. */
enum { STEP, TIMED, DATA, OPTIMIZER, HOST, CLOCKS };
typedef struct taking {
    tn_session *s;
    tn_node_time *node; /* (MOST_ROWS) of the last timed step */
    double *ms;         /* (MOST_ROWS,MOST_STEPS) */
    tn_node_time *sum;  /* (MOST_ROWS): calls, FLOPs and bytes of all timed steps */
    double items;       /* that the source counted in plain steps */
    int plain;          /* steps */
    size_t n;
    double clock[CLOCKS][MOST_STEPS];
    double wall_s, cores_s; /* of plain steps: on the clock, and of all threads of the process */
    int steps;
    int64_t next; /* the optimizer's */
} taking;

/* Processor time of all threads. */
static double cores_s(void)
{
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) != 0) return NAN;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static tn_status fill(taking *t, double *waited)
{
    int64_t count;
    const double start = tn_clock_s();
    tn_status s = TN_OK;
    if (t->s->source.ctx) {
        s = tn_source_next(&t->s->source, t->next, t->s->trainer, &count);
        if (s == TN_OK) t->items += (double)count;
    }
    *waited += tn_clock_s() - start;
    return s;
}

/* Without data the batch stays as it is. */
static void fill_once(tn_session *s)
{
    const tn_feed f = tn_trainer_feed(s->trainer);
    if (!s->source.ctx) tn_feed_random(&f, (tn_rng){ .seed = 1, .stream = 1 });
}

/* As training runs them: as many as it queues ahead, then their results; the time of one. */
static tn_status plain_steps(taking *t, double *ms)
{
    tn_trainer *to = t->s->trainer;
    const int64_t batches = tn_trainer_batches(to);
    const int depth = tn_trainer_queue_depth(to);
    tn_step_result x;
    double waited = 0;
    const double start = tn_clock_s(), worked = cores_s();
    for (int k = 0; k < depth; k++, t->plain++) {
        for (int64_t i = 0; i < batches; i++) {
            TN_RETURN_IF(fill(t, &waited));
            TN_RETURN_IF(tn_trainer_queue_grad(to, t->next * batches + i, 1, false));
        }
        TN_RETURN_IF(tn_trainer_queue_apply(to, t->next++));
    }
    while (tn_trainer_queued(to)) TN_RETURN_IF(tn_trainer_collect(to, &x));
    const double took = tn_clock_s() - start;
    t->wall_s += took, t->cores_s += cores_s() - worked;
    *ms = 1e3 * took / depth;
    return TN_OK;
}

/* With timers around every op: host is what the gradient took beyond its ops. */
static tn_status timed_step(taking *t, int k)
{
    tn_trainer *to = t->s->trainer;
    const int64_t batches = tn_trainer_batches(to);
    float loss = 0;
    double waited = 0, graded = 0, ops = 0;
    const double counted = t->items; /* of plain steps */
    tn_update_result x;
    tn_trainer_timers(to, true);
    const double start = tn_clock_s();
    for (int64_t i = 0; i < batches; i++) {
        TN_RETURN_IF(fill(t, &waited));
        const double before = tn_clock_s();
        TN_RETURN_IF(tn_trainer_grad(to, t->next * batches + i, &loss));
        graded += tn_clock_s() - before;
    }
    const double applying = tn_clock_s();
    TN_RETURN_IF(tn_trainer_apply(to, t->next++, (float)batches, loss, &x));
    const double end = tn_clock_s();
    memset(t->node, 0, sizeof *t->node * MOST_ROWS);
    t->n = tn_trainer_node_times(to, t->node, MOST_ROWS);
    tn_trainer_timers(to, false);
    t->items = counted;
    for (size_t i = 0; i < t->n; i++) {
        ops += t->ms[i * MOST_STEPS + (size_t)k] = t->node[i].ms;
        t->sum[i].calls += t->node[i].calls;
        t->sum[i].flops += t->node[i].flops;
        t->sum[i].bytes += t->node[i].bytes;
    }
    t->clock[TIMED][k] = 1e3 * (end - start);
    t->clock[DATA][k] = 1e3 * waited;
    t->clock[OPTIMIZER][k] = 1e3 * (end - applying);
    t->clock[HOST][k] = fmax(1e3 * graded - ops, 0);
    return TN_OK;
}

static tn_status run_steps(taking *t, double seconds)
{
    double ms;
    tn_trainer_steady(t->s->trainer, true);
    for (int i = 0; i < WARM_STEPS; i++) TN_RETURN_IF(plain_steps(t, &ms)); /* they touch the memory */
    TN_RETURN_IF(timed_step(t, 0));
    memset(t->sum, 0, sizeof *t->sum * MOST_ROWS);
    t->items = t->wall_s = t->cores_s = t->plain = 0;
    const double start = tn_clock_s();
    for (int k = 0; k < MOST_STEPS && (k < LEAST_STEPS || tn_clock_s() - start < seconds); k++) {
        TN_RETURN_IF(plain_steps(t, &t->clock[STEP][k]));
        TN_RETURN_IF(timed_step(t, k));
        t->steps = k + 1;
    }
    return TN_OK;
}

/* --- what they say ----------------------------------------------------------------------------------------------------------- */

/* Means over the middle half of the timed steps, the same for all rows: so what they say adds up to a step, which medians of each
 * alone do not, and a step that other work on the machine lengthened does not count. */
typedef struct middle {
    int step[MOST_STEPS], n;
} middle;

static middle middle_of(const double *total, int n)
{
    middle m = { .n = n - 2 * (n / 4) };
    int order[MOST_STEPS];
    for (int i = 0; i < n; i++) { /* by insertion: there are few */
        int k = i;
        for (; k > 0 && total[order[k - 1]] > total[i]; k--) order[k] = order[k - 1];
        order[k] = i;
    }
    memcpy(m.step, order + n / 4, (size_t)m.n * sizeof *order);
    return m;
}

static double mean_of(const middle *m, const double *ms, int all, double *spread)
{
    double copy[MOST_STEPS], sum = 0;
    for (int i = 0; i < m->n; i++) sum += ms[m->step[i]];
    memcpy(copy, ms, (size_t)all * sizeof *ms);
    tn_median(copy, (size_t)all, spread);
    return sum / m->n;
}

static tn_status put_rows(const taking *t, tn_profile *p)
{
    p->row = tn_alloc(sizeof *p->row * (t->n + 1));
    if (!p->row) return TN_MEMORY;
    const double steps = (double)t->steps;
    const middle m = middle_of(t->clock[TIMED], t->steps);
    for (size_t i = 0; i < t->n; i++) {
        const tn_node_time *x = &t->node[i];
        tn_profile_row *r = &p->row[p->n++];
        *r = (tn_profile_row){ .component = x->phase ? x->phase : tn_component_of(x->op),
                               .backward = x->backward,
                               .varies = x->varies,
                               .calls = t->sum[i].calls / steps,
                               .flops = t->sum[i].flops / steps,
                               .bytes = t->sum[i].bytes / steps };
        snprintf(r->op, sizeof r->op, "%s", x->op);
        snprintf(r->region, sizeof r->region, "%s", x->region);
        r->ms = mean_of(&m, t->ms + i * MOST_STEPS, t->steps, &r->spread_ms);
    }
    return TN_OK;
}

static double peak_of_device(tn_device d)
{
    size_t left, all;
    const tn_backend *b = tn_backend_get(d);
    return b && b->memory(&left, &all) == TN_OK ? (double)(all - left) : NAN;
}

static void put_clocks(taking *t, tn_profile *p)
{
    const int n = t->steps;
    const middle plain = middle_of(t->clock[STEP], n), timed = middle_of(t->clock[TIMED], n);
    p->steps = n;
    p->step_ms = mean_of(&plain, t->clock[STEP], n, &p->spread_ms);
    p->timed_ms = mean_of(&timed, t->clock[TIMED], n, &p->timed_spread_ms);
    p->data_ms = mean_of(&timed, t->clock[DATA], n, &p->data_spread_ms);
    p->optimizer_ms = mean_of(&timed, t->clock[OPTIMIZER], n, &p->optimizer_spread_ms);
    p->host_ms = mean_of(&timed, t->clock[HOST], n, &p->host_spread_ms);
}

static void describe(const taking *t, tn_profile *p)
{
    const tn_session *s = t->s;
    const tn_device device = tn_trainer_device(s->trainer);
    const bool sequences = tn_model_reads_sequences(s->model);
    p->compute = tn_settings_text(s->settings, "compute");
    p->device = device;
    p->threads = tn_trainer_threads(s->trainer);
    p->batch = s->batch;
    p->length = s->length;
    p->batches = tn_trainer_batches(s->trainer);
    p->unit = sequences ? "tokens" : "samples";
    p->items =
        s->source.ctx && t->plain
            ? t->items / t->plain
            : (double)(tn_settings_int(s->settings, "train.accumulate") * s->batch * (sequences ? s->length : 1));
    p->memory = tn_trainer_memory(s->trainer);
    /* The optimizer reads weights, gradients and moments, and writes them again. */
    p->optimizer_bytes = 2.0 * (double)(p->memory.parameters + p->memory.gradients + p->memory.optimizer);
    /* A GPU's own time is seen in a trace of it alone (replayed.c). */
    p->busy = device == TN_CPU && t->wall_s > 0 ? t->cores_s / (t->wall_s * p->threads) : NAN;
    p->peak_bytes = device == TN_CPU ? tn_process_peak() : peak_of_device(device);
}

static tn_status measure_ceilings(const tn_session *s, const tn_profile_options *o, tn_ceilings *out)
{
    if (o->ceilings) *out = *o->ceilings;
    else if (tn_trainer_device(s->trainer) != TN_CPU) return tn_ceilings_gpu(out);
    else return tn_ceilings_measure(tn_trainer_threads(s->trainer), o->seconds > 0 ? o->seconds : 1, out);
    return TN_OK;
}

tn_status tn_profile_take(tn_session *s, const tn_profile_options *o, tn_profile **out)
{
    tn_status st = TN_OK;
    taking t = { .s = s };
    tn_profile *p = tn_alloc(sizeof *p);
    t.node = tn_alloc(sizeof *t.node * MOST_ROWS);
    t.ms = tn_alloc(sizeof *t.ms * MOST_ROWS * MOST_STEPS);
    t.sum = tn_alloc(sizeof *t.sum * MOST_ROWS);
    if (!p || !t.node || !t.ms || !t.sum) {
        tn_free(p);
        p = NULL;
        st = TN_MEMORY;
    }
    if (st == TN_OK) fill_once(s);
    if (st == TN_OK) st = run_steps(&t, o->seconds > 0 ? o->seconds : 5);
    if (st == TN_OK) {
        describe(&t, p);
        put_clocks(&t, p);
        st = put_rows(&t, p);
    }
    if (st == TN_OK) st = tn_profile_replay(s, p, &t.next);
    if (st == TN_OK) st = measure_ceilings(s, o, &p->ceilings); /* last: its memory is not the training's */
    if (st == TN_OK && !p->replayed) p->launch_ms = p->ceilings.launch_ms;
    tn_free(t.node);
    tn_free(t.ms);
    tn_free(t.sum);
    if (st == TN_OK) *out = p;
    else tn_profile_free(p);
    return st;
}

void tn_profile_free(tn_profile *p)
{
    if (!p) return;
    tn_step_record_free(&p->recorded);
    tn_free(p->row);
    tn_free(p);
}
