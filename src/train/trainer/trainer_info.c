/* What a trainer reports: memory of its plans, times, and the model's instruments. */
#include "train/trainer/trainer_internal.h"

#include "base/settings_watch.h"
#include "base/tracer.h"

#include <math.h>
#include <string.h>

const tn_model *tn_trainer_model(const tn_trainer *t) { return t->model; }

const tn_settings *tn_trainer_settings(const tn_trainer *t) { return t->settings; }

int64_t tn_trainer_microbatches(const tn_trainer *t) { return t->microbatches; }

int64_t tn_trainer_batches(const tn_trainer *t) { return t->accumulate; }

tn_memory_plan tn_trainer_memory(const tn_trainer *t)
{
    tn_memory_plan m = { 0 };
    size_t arena = 0;
    for (int i = 0; i < tn_store_buckets(t->store); i++) {
        const tn_bucket *b = tn_store_bucket(t->store, i);
        const size_t bytes = sizeof(float) * (size_t)b->count;
        m.parameters += bytes;
        m.gradients += t->forward_only ? 0 : bytes;
        m.optimizer += bytes * (size_t)((b->m != NULL) + (b->v != NULL));
    }
    for (size_t i = 0; i < tn_store_count(t->store); i++) {
        const tn_entry *e = tn_store_at(t->store, i);
        const size_t bytes = (size_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype);
        if (e->role == TN_ROLE_FROZEN) m.frozen += bytes;
        if (e->role == TN_ROLE_STATE || e->role == TN_ROLE_CACHE) m.state += bytes;
        if (e->role == TN_ROLE_DATA) m.samples += bytes;
    }
    for (const tn_trainer *w = t; w; w = w->narrower) {
        for (size_t i = 0; i < w->n_steps; i++) tn_memory_plan_add(&m, w->step[i].plan, &arena);
        if (w->chunks) tn_chunks_memory(w->chunks, &m, &arena);
    }
    tn_memory_plan_add(&m, t->apply, &arena);
    m.other += t->guard ? tn_guard_bytes(t->guard) : 0;
    m.data = t->setup.device == TN_CPU ? t->reserved_bytes : 0;
    m.host = t->reserved_bytes - m.data;
    m.total = m.parameters + m.gradients + m.optimizer + m.frozen + m.state + m.samples + m.activations + m.workspace +
              m.other;
    if (!tn_add_ok(m.total, m.data, &m.total)) m.total = SIZE_MAX;
    return m;
}

/* --- time ------------------------------------------------------------------------------------------------------------------- */

/* The training plans of one width: the whole, or the parts of a batch in chunks. NULL: there are no more. */
static tn_bound *part_of_width(const tn_trainer *w, int i, int64_t *runs)
{
    if (w->chunks) return tn_chunks_part(w->chunks, i, runs);
    if (i >= (int)w->n_train) return NULL;
    *runs = &w->step[i] == w->grad;
    return w->step[i].bound;
}

/* Those of all widths, the widest first. The widths are plans of one model: they have the same regions, and ops, in the
 * same order. A batch has one width: only the first one's FLOPs count. */
static tn_bound *part_of(const tn_trainer *t, int i, int64_t *runs)
{
    for (const tn_trainer *w = t; w; w = w->narrower) {
        int n = 0;
        for (tn_bound *b; (b = part_of_width(w, n, runs)); n++)
            if (i == n) {
                if (w != t) *runs = 0;
                return b;
            }
        i -= n;
    }
    return NULL;
}

void tn_trainer_check(tn_trainer *t, tn_finding *f)
{
    int64_t runs;
    tn_bound *b;
    for (int i = 0; (b = part_of(t, i, &runs)); i++) tn_bound_check(b, f);
}

void tn_trainer_timers(tn_trainer *t, bool on)
{
    int64_t runs;
    tn_bound *b;
    for (int i = 0; (b = part_of(t, i, &runs)); i++) tn_bound_timers(b, on);
}

size_t tn_trainer_times(const tn_trainer *t, tn_region_time *rows, size_t most)
{
    int64_t runs;
    tn_bound *b = part_of(t, 0, &runs);
    const size_t n = tn_bound_times(b, rows, most);
    for (size_t k = 0; k < n && k < most; k++) rows[k].flops *= (double)runs;
    for (int i = 1; (b = part_of(t, i, &runs)); i++) tn_bound_times_add(b, runs, rows, n < most ? n : most);
    return n;
}

size_t tn_trainer_op_times(const tn_trainer *t, tn_op_time *rows, size_t most)
{
    int64_t runs;
    size_t n = 0;
    tn_bound *b;
    for (int i = 0; (b = part_of(t, i, &runs)); i++) n = tn_bound_op_times(b, rows, n, most);
    return n;
}

size_t tn_trainer_node_times(const tn_trainer *t, tn_node_time *rows, size_t most)
{
    int64_t runs;
    size_t n = 0;
    tn_bound *b;
    for (int i = 0; (b = part_of(t, i, &runs)); i++) n = tn_bound_node_times(b, rows, n, most);
    return n;
}

void tn_trainer_mark(tn_trainer *t, bool on)
{
    int64_t runs;
    tn_bound *b;
    for (int i = 0; (b = part_of(t, i, &runs)); i++) tn_bound_mark(b, on ? TN_TRAINER_MARK(i) : 0);
    if (t->apply_bound) tn_bound_mark(t->apply_bound, on ? TN_TRAINER_MARK(TN_TRAINER_UPDATE) : 0);
}

bool tn_trainer_marked(const tn_trainer *t, uint64_t mark, tn_node_time *out, bool *update)
{
    int64_t runs;
    const uint64_t which = mark >> 32;
    *update = which == (TN_TRAINER_MARK(TN_TRAINER_UPDATE) >> 32);
    if (!which || (!*update && which > TN_TRAINER_UPDATE)) return false;
    const tn_bound *b = *update ? t->apply_bound : part_of(t, (int)which - 1, &runs);
    return b && tn_plan_node_at(tn_bound_plan(b), (size_t)(mark & UINT32_MAX), out);
}

bool tn_trainer_take_spans(tn_trainer *t, const tn_span *spans, size_t n, uint64_t batches, double *optimizer_ms)
{
    int64_t of_batch;
    tn_bound *b;
    tn_op_time op[16];
    size_t taken = 0;
    for (int i = 0; (b = part_of(t, i, &of_batch)); i++)
        taken += tn_bound_take_spans(b, TN_TRAINER_MARK(i), spans, n, batches);
    *optimizer_ms = 0;
    if (!t->apply_bound || !tn_bound_take_spans(t->apply_bound, TN_TRAINER_MARK(TN_TRAINER_UPDATE), spans, n, batches))
        return taken > 0;
    const size_t ops = tn_bound_op_times(t->apply_bound, op, 0, sizeof op / sizeof *op);
    for (size_t i = 0; i < ops; i++) *optimizer_ms += op[i].forward_ms + op[i].backward_ms;
    return taken > 0;
}

void tn_trainer_trace(tn_trainer *t, tn_tracer *to) { tn_context_trace(t->context, to); }

double tn_trainer_flops(const tn_trainer *t)
{
    int64_t runs;
    double sum = 0;
    tn_bound *b;
    for (int i = 0; (b = part_of_width(t->now, i, &runs)); i++) {
        if (tn_plan_flops_vary(tn_bound_plan(b))) return NAN;
        sum += (double)runs * tn_plan_flops(tn_bound_plan(b));
    }
    return sum;
}

/* --- instruments --------------------------------------------------------------------------------------------------------------- */

enum { READ_AT_ONCE = 16 }; /* tensors an instrument looks at together */

typedef struct instrument_call {
    tn_trainer *trainer;
    tn_instrument_report *report, *spread;
    void *ctx;
    tn_host_copy copy[READ_AT_ONCE];
    int next;
} instrument_call;

static const float *param_of(void *ctx, const char *name, int64_t *count)
{
    instrument_call *c = ctx;
    const tn_entry *e = tn_store_find(c->trainer->store, name);
    if (!e || !e->weight) return NULL;
    *count = tn_dims_count(e->dims);
    c->next = (c->next + 1) % READ_AT_ONCE;
    return tn_store_read(c->trainer->store, e->data, sizeof(float) * (size_t)*count, &c->copy[c->next]);
}

static const float *output_of(void *ctx, const char *name, int64_t *count)
{
    const tn_trainer *t = ((const instrument_call *)ctx)->trainer;
    const tn_trainer_step *s = strncmp(name, "look.", 5) == 0 ? t->evaluated : t->stepped;
    for (size_t i = 0; s && i < s->n_kept; i++)
        if (strcmp(s->kept[i].name, name) == 0) {
            *count = s->kept[i].count;
            return s->kept[i].value;
        }
    return NULL;
}

static void pass_on(void *ctx, const char *name, double value, const char *unit)
{
    const instrument_call *c = ctx;
    c->report(c->ctx, name, value, unit);
}

static void pass_on_spread(void *ctx, const char *name, double value, const char *unit)
{
    const instrument_call *c = ctx;
    c->spread(c->ctx, name, value, unit);
}

bool tn_trainer_has_instruments(const tn_trainer *t) { return t->model->instruments != NULL; }

tn_status tn_trainer_instruments(tn_trainer *t, tn_instrument_report *report, tn_instrument_report *spread, void *ctx)
{
    instrument_call c = { .trainer = t, .report = report, .spread = spread, .ctx = ctx };
    const tn_instruments in = {
        .ctx = &c, .param = param_of, .report = pass_on, .output = output_of, .spread = spread ? pass_on_spread : NULL
    };
    tn_settings_watch(t->settings);
    if (t->model->instruments) t->model->instruments(t->settings, &in);
    for (int i = 0; i < READ_AT_ONCE; i++) tn_host_copy_free(&c.copy[i]);
    return tn_settings_mistake(t->settings);
}
