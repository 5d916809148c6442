/* Steps queued ahead of a device. Each has a slot in a ring: the weights of its batches, and a reply that the device
 * fills with losses, gradient norm and whether the step was finite. On the CPU the numbers are there at once and wait
 * in their slot.
 *
 * Invariant: when a step is collected depends on the caller alone, never on when the device was ready. */
#include "backend/backend.h"
#include "train/trainer/trainer_internal.h"

#include <math.h>
#include <string.h>

typedef struct place {
    int64_t step;
    int64_t n;      /* batches so far */
    float *weight;  /* (batches) */
    float *loss;    /* (batches): of those the host knows at once */
    double *factor; /* (batches, parts): what the losses of the reply count; 0: there is none */
    void *reply;    /* losses (batches, parts), then the norm, then ok as an i32; NULL where the host computes */
    bool known;     /* all numbers are in `loss` and `applied` */
    tn_update_result update;
} place;

struct tn_ring {
    const tn_backend *backend;
    void *queue;
    int queue_depth, first, n; /* n places from `first` on are queued */
    int64_t batches;           /* of a step */
    int64_t parts;             /* losses of a batch, at most */
    float *memory;             /* of all weights and losses */
    double *factors;           /* of all places */
    float *losses;             /* (batches, parts), of the device: of the step that is being queued */
    place place[TN_TRAINER_QUEUE_MAX];
};

static int64_t parts_of(const tn_trainer *t)
{
    return t->chunks ? tn_chunk_most_losses(t->model, t->settings, t->setup.device, t->batch, t->length) : 1;
}

int64_t tn__ring_losses(const tn_trainer *t) { return t->setup.device == TN_CPU ? 1 : t->accumulate * parts_of(t); }

/* Whether nothing a step finds out, but for its end, changes what is done next. */
static bool steps_are_alike(const tn_trainer *t)
{
    return strcmp(tn_settings_text(t->settings, "train.nonfinite"), "stop") == 0 && !t->scales && !t->on_policy;
}

static tn_status open_places(tn_ring *r)
{
    const size_t n = (size_t)r->batches, all = n * (size_t)r->parts, reply = sizeof(float) * (all + 2);
    r->memory = tn_alloc(sizeof *r->memory * 2 * n * TN_TRAINER_QUEUE_MAX);
    r->factors = tn_alloc(sizeof *r->factors * all * TN_TRAINER_QUEUE_MAX);
    if (!r->memory || !r->factors) return TN_MEMORY;
    for (size_t i = 0; i < TN_TRAINER_QUEUE_MAX; i++) {
        r->place[i].weight = r->memory + 2 * n * i;
        r->place[i].loss = r->place[i].weight + n;
        r->place[i].factor = r->factors + all * i;
        if (!r->backend->host_memory) TN_RETURN_IF(r->backend->reply_new(r->queue, reply, &r->place[i].reply));
    }
    if (!r->backend->host_memory && !(r->losses = r->backend->alloc(sizeof *r->losses * all))) return TN_MEMORY;
    return TN_OK;
}

tn_status tn__ring_new(tn_trainer *t, int queue_depth, tn_ring **out)
{
    tn_ring *r = tn_alloc(sizeof *r);
    if (!r) return TN_MEMORY;
    *r = (tn_ring){ .backend = tn_context_backend(t->context),
                    .queue = tn_context_queue(t->context),
                    .batches = t->accumulate,
                    .parts = parts_of(t) };
    r->queue_depth = queue_depth > 0 ? queue_depth : r->backend->host_memory ? 1 : TN_TRAINER_QUEUE_MAX;
    if (!steps_are_alike(t) || r->queue_depth < 1) r->queue_depth = 1;
    if (r->queue_depth > TN_TRAINER_QUEUE_MAX) r->queue_depth = TN_TRAINER_QUEUE_MAX;
    const tn_status s = open_places(r);
    if (s == TN_OK) *out = r;
    else tn__ring_free(r);
    return s;
}

void tn__ring_free(tn_ring *r)
{
    if (!r) return;
    (void)r->backend->wait(r->queue);
    for (int i = 0; i < TN_TRAINER_QUEUE_MAX; i++)
        if (r->place[i].reply) r->backend->reply_free(r->place[i].reply);
    if (r->losses) r->backend->free(r->losses);
    tn_free(r->memory);
    tn_free(r->factors);
    tn_free(r);
}

int tn_trainer_queue_depth(const tn_trainer *t) { return t->ring->queue_depth; }

int tn_trainer_queued(const tn_trainer *t) { return t->ring->n; }

/* --- queueing --------------------------------------------------------------------------------------------------------------- */

static tn_status check_free(const tn_ring *r)
{
    if (r->n < r->queue_depth) return TN_OK;
    return tn_error(TN_INTERNAL, "%d steps are queued already: collect the oldest first", r->n);
}

/* Of the step that is being queued. */
static place *next_place(tn_ring *r) { return &r->place[(r->first + r->n) % TN_TRAINER_QUEUE_MAX]; }

static tn_status queue_loss(tn_trainer *t, const place *p)
{
    static const double one = 1;
    const tn_ring *r = t->ring;
    const tn_trainer *w = t->now;
    const size_t parts = (size_t)r->parts, at = parts * (size_t)p->n;
    size_t n = 1;
    const double *factor = &one;
    const void *loss = w->chunks ? tn_chunks_losses(w->chunks, &n, &factor) : tn_bound_place(w->grad->bound, "loss");
    if (!loss || n > parts)
        return tn_error(TN_INTERNAL, "the training plan has %s", loss ? "too many losses" : "no loss");
    for (size_t i = 0; i < parts; i++) p->factor[at + i] = i < n ? factor[i] : 0;
    if (n < parts) TN_RETURN_IF(r->backend->zero(r->queue, r->losses + at + n, sizeof(float) * (parts - n)));
    TN_RETURN_IF(r->backend->copy(r->queue, r->losses + at, loss, sizeof(float) * n));
    return r->backend->reply_add(r->queue, p->reply, sizeof(float) * at, loss, sizeof(float) * n);
}

/* A batch without weight: its gradient is 0, and states must not move for it. */
static tn_status queue_nothing(const tn_ring *r, const place *p)
{
    const size_t parts = (size_t)r->parts, at = parts * (size_t)p->n;
    p->loss[p->n] = 0;
    for (size_t i = 0; i < parts; i++) p->factor[at + i] = 0;
    return p->known ? TN_OK : r->backend->zero(r->queue, r->losses + at, sizeof(float) * parts);
}

tn_status tn_trainer_queue_grad(tn_trainer *t, int64_t step, float weight, bool keep)
{
    tn_ring *r = t->ring;
    place *p = next_place(r);
    TN_RETURN_IF(check_free(r));
    if (p->n == r->batches) return tn_error(TN_INTERNAL, "a step has %lld batches", (long long)r->batches);
    p->known = r->backend->host_memory;
    p->weight[p->n] = weight;
    tn_trainer_weigh(t, weight);
    if (weight == 0) {
        TN_RETURN_IF(queue_nothing(r, p));
        if (keep && !p->known) tn__trainer_keep(t); /* of the batch before */
    } else if (p->known) TN_RETURN_IF(tn_trainer_grad(t, step, &p->loss[p->n]));
    else {
        TN_RETURN_IF(tn__trainer_run_grad(t, step));
        TN_RETURN_IF(queue_loss(t, p));
        if (keep) tn__trainer_keep(t);
    }
    p->n++;
    return TN_OK;
}

static double weights_of(const place *p)
{
    double sum = 0;
    for (int64_t i = 0; i < p->n; i++) sum += (double)p->weight[i];
    return sum;
}

static double mean_of(const place *p, const float *loss)
{
    double sum = 0;
    const double weights = weights_of(p);
    for (int64_t i = 0; i < p->n; i++) sum += (double)p->weight[i] * (double)loss[i];
    return weights > 0 ? sum / weights : 0;
}

static tn_status queue_update(tn_trainer *t, place *p)
{
    const tn_ring *r = t->ring;
    const void *norm = tn_bound_place(t->apply_bound, "grad_norm"), *ok = tn_bound_place(t->apply_bound, "ok");
    const size_t at = sizeof(float) * (size_t)(r->batches * r->parts);
    if (p->n != r->batches)
        return tn_error(TN_INTERNAL, "a step of %lld batches has %lld", (long long)r->batches, (long long)p->n);
    TN_RETURN_IF(tn__trainer_set_apply(t, p->step, (float)weights_of(p), r->n, &p->update));
    TN_RETURN_IF(tn_bound_take(t->apply_bound, "loss", r->losses));
    TN_RETURN_IF(tn_run(t->apply_bound));
    TN_RETURN_IF(r->backend->reply_add(r->queue, p->reply, at, norm, sizeof(float)));
    TN_RETURN_IF(r->backend->reply_add(r->queue, p->reply, at + sizeof(float), ok, sizeof(int32_t)));
    return r->backend->reply_end(r->queue, p->reply);
}

tn_status tn_trainer_queue_apply(tn_trainer *t, int64_t step)
{
    tn_ring *r = t->ring;
    place *p = next_place(r);
    TN_RETURN_IF(check_free(r));
    p->step = step;
    if (p->known)
        TN_RETURN_IF(
            tn__trainer_apply_now(t, step, (float)weights_of(p), (float)mean_of(p, p->loss), r->n, &p->update));
    else TN_RETURN_IF(queue_update(t, p));
    r->n++;
    return TN_OK;
}

/* --- collecting -------------------------------------------------------------------------------------------------------------- */

/* A batch's loss from its parts. */
static float sum_of(const tn_ring *r, const double *factor, const float *part)
{
    double sum = 0;
    for (int64_t i = 0; i < r->parts; i++)
        if (factor[i] != 0) sum += factor[i] * (double)part[i];
    return (float)sum;
}

static tn_status read_reply(const tn_ring *r, place *p)
{
    const void *host;
    int32_t ok;
    TN_RETURN_IF(r->backend->reply_wait(p->reply, &host));
    const float *x = host, *end = x + r->batches * r->parts;
    for (int64_t i = 0; i < p->n; i++) p->loss[i] = sum_of(r, p->factor + i * r->parts, x + i * r->parts);
    p->update.grad_norm = end[0];
    memcpy(&ok, end + 1, sizeof ok);
    p->update.ok = ok != 0;
    return TN_OK;
}

tn_status tn_trainer_collect(tn_trainer *t, tn_step_result *out)
{
    tn_ring *r = t->ring;
    if (!r->n) return tn_error(TN_INTERNAL, "no step is queued");
    place *p = &r->place[r->first];
    if (!p->known) TN_RETURN_IF(read_reply(r, p));
    *out = (tn_step_result){ .loss = mean_of(p, p->loss), .update = p->update };
    p->n = 0;
    r->first = (r->first + 1) % TN_TRAINER_QUEUE_MAX;
    r->n--;
    return tn__trainer_after_step(t, p->step, (float)out->loss, &out->update);
}
