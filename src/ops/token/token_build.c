/* The builder: where vectors lie, and where blocks must meet. */
#include "ops/token/token.h"

#include <string.h>

void tn_token_begin(tn_token_builder *b, tn_token_program *p, int32_t slot_floats, int32_t stage_bytes)
{
    p->n = p->staged_n = 0;
    p->slot_floats = slot_floats;
    p->stage_bytes = stage_bytes;
    b->program = p;
    b->top = 0;
    b->meetings = b->n_ranges = b->n_held = b->n_made = 0;
}

typedef struct span {
    uintptr_t begin, end;
} span;

static span span_of(const void *at, uint8_t type, int64_t n)
{
    return (span){ (uintptr_t)at, (uintptr_t)at + (uintptr_t)n * tn_dtype_bytes((tn_dtype)type) };
}

static bool meet_at(span a, uintptr_t begin, uintptr_t end) { return a.begin < end && begin < a.end; }

static bool touched(const tn_token_builder *b, span x, bool reads_too)
{
    for (int i = 0; i < b->n_ranges; i++)
        if ((reads_too || b->range[i].written) && meet_at(x, b->range[i].begin, b->range[i].end)) return true;
    return false;
}

/* The slot that holds these numbers, or -1. */
static int32_t find_held(const tn_token_builder *b, span x, uint8_t type)
{
    for (int i = b->n_held; i-- > 0;) {
        const struct tn_token_held *h = &b->held[i];
        const size_t each = tn_dtype_bytes((tn_dtype)type);
        if (h->type == type && x.begin >= h->begin && x.end <= h->end && (x.begin - h->begin) % each == 0)
            return h->slot + (int32_t)((x.begin - h->begin) / each);
    }
    return -1;
}

/* Floats, so that a slot begins at 16 bytes. */
static int32_t slot_size(int64_t n) { return (int32_t)((n + 3) / 4 * 4); }

/* Inputs that the kernel reads from memory, whoever holds them. */
static bool lies_far(const tn_token_step *s, int i)
{
    return i == (s->op == TN_TOKEN_OUTER ? 4 : 1) && (s->op == TN_TOKEN_EMBED || s->op == TN_TOKEN_LINEAR || s->op == TN_TOKEN_OUTER);
}

/* Weights are fetched before the steps ahead of theirs have run. */
static bool comes_too_early(const tn_token_builder *b, const tn_token_step *s, const tn_token_sizes *z)
{
    if (!(s->flags & TN_TOKEN_STAGED)) return false;
    const span w = span_of(s->in[1], s->in_type[1], z->in[1]);
    for (int i = 0; i < b->n_made; i++)
        if (meet_at(w, b->made[i].begin, b->made[i].end)) return true;
    return false;
}

static bool place_inputs(const tn_token_builder *b, const tn_token_sizes *z, tn_token_step *s)
{
    for (int i = 0; i < TN_TOKEN_IN; i++) {
        s->in_slot[i] = -1;
        if (!s->in[i]) continue;
        const span x = span_of(s->in[i], s->in_type[i], z->in[i]);
        if (!lies_far(s, i)) s->in_slot[i] = (int16_t)find_held(b, x, s->in_type[i]);
        if (s->op == TN_TOKEN_LINEAR && i == 0 && s->in_slot[i] % 4) s->in_slot[i] = -1; /* it is read at 16 bytes */
        if (s->in_slot[i] < 0 && touched(b, x, false)) return false; /* another block made it */
    }
    return true;
}

/* An output over an input that is read from memory: each number is read and written by one thread, or a block might read what another one
 * has overwritten already. */
static bool overwrites_own(const tn_token_step *s, const tn_token_sizes *z, span y, const void *at)
{
    for (int i = 0; i < TN_TOKEN_IN; i++) {
        if (!s->in[i] || s->in_slot[i] >= 0) continue;
        const span x = span_of(s->in[i], s->in_type[i], z->in[i]);
        const bool one_by_one = s->op == TN_TOKEN_LINEAR && (s->flags & TN_TOKEN_SHARED) && i == 3 && s->in[i] == at && s->in_type[i] == s->out_type[0];
        if (!one_by_one && meet_at(y, x.begin, x.end)) return true;
    }
    return false;
}

static bool place_outputs(const tn_token_builder *b, const tn_token_sizes *z, tn_token_step *s, int32_t *top, bool *hopeless)
{
    for (int i = 0; i < TN_TOKEN_OUT; i++) {
        s->out_slot[i] = -1;
        if (!s->out[i]) continue;
        const span y = span_of(s->out[i], s->out_type[i], z->out[i]);
        if (touched(b, y, true)) return false;
        if (overwrites_own(s, z, y, s->out[i])) *hopeless = true;
        if (!z->keeps[i] || (s->flags & TN_TOKEN_SHARED)) continue;
        s->out_slot[i] = (int16_t)*top;
        *top += slot_size(z->out[i]);
    }
    if (s->op == TN_TOKEN_LINEAR && s->in_slot[0] < 0) {
        s->flags |= TN_TOKEN_FETCHES;
        s->out_slot[1] = (int16_t)*top;
        *top += slot_size(z->in[0]);
    }
    return *top <= b->program->slot_floats;
}

static void note(tn_token_builder *b, span x, bool written)
{
    b->range[b->n_ranges++] = (struct tn_token_range){ x.begin, x.end, written };
}

static void hold(tn_token_builder *b, span x, uint8_t type, int16_t slot)
{
    if (b->n_held < TN_TOKEN_HELD) b->held[b->n_held++] = (struct tn_token_held){ x.begin, x.end, type, slot };
}

static void forget(tn_token_builder *b)
{
    b->n_ranges = b->n_held = 0;
    b->top = 0;
}

static void commit(tn_token_builder *b, const tn_token_step *s, const tn_token_sizes *z, int32_t top)
{
    tn_token_program *p = b->program;
    b->top = top;
    for (int i = 0; i < TN_TOKEN_IN; i++)
        if (s->in[i] && s->in_slot[i] < 0) note(b, span_of(s->in[i], s->in_type[i], z->in[i]), false);
    for (int i = 0; i < TN_TOKEN_OUT; i++) {
        if (!s->out[i]) continue;
        const span y = span_of(s->out[i], s->out_type[i], z->out[i]);
        note(b, y, true);
        b->made[b->n_made++] = (struct tn_token_made){ y.begin, y.end };
        if (s->out_slot[i] >= 0) hold(b, y, s->out_type[i], s->out_slot[i]);
    }
    if (s->flags & TN_TOKEN_FETCHES) hold(b, span_of(s->in[0], s->in_type[0], z->in[0]), s->in_type[0], s->out_slot[1]);
    if (s->flags & TN_TOKEN_STAGED) p->staged[p->staged_n++] = (uint8_t)p->n;
    p->step[p->n++] = *s;
}

static bool place(tn_token_builder *b, const tn_token_step *wanted, const tn_token_sizes *z)
{
    if (b->program->n == TN_TOKEN_STEPS || b->n_ranges + TN_TOKEN_IN + TN_TOKEN_OUT > TN_TOKEN_RANGES) return false;
    if (comes_too_early(b, wanted, z)) return false;
    for (int meets = wanted->flags & TN_TOKEN_MEETS; meets < 2; meets++) {
        tn_token_step s = *wanted;
        int32_t top;
        bool hopeless = false;
        if (meets && b->program->n) {
            s.flags |= TN_TOKEN_MEETS;
            b->meetings++;
            forget(b);
        }
        top = b->top;
        if (place_inputs(b, z, &s) && place_outputs(b, z, &s, &top, &hopeless) && !hopeless) {
            commit(b, &s, z, top);
            return true;
        }
    }
    return false;
}

bool tn_token_add(tn_token_builder *b, const tn_op *op, const tn_call *c)
{
    tn_token_step step[TN_TOKEN_MOST];
    tn_token_sizes size[TN_TOKEN_MOST];
    const tn_token_builder before = *b;
    const int32_t n = b->program->n, staged_n = b->program->staged_n;
    const int count = tn_token_describe(op, c, step, size);
    for (int i = 0; i < count; i++) {
        if (place(b, &step[i], &size[i])) continue;
        *b = before;
        b->program->n = n;
        b->program->staged_n = staged_n;
        return false;
    }
    return count > 0;
}

tn_status tn_token_run(const tn_op *const *op, const tn_call *call, size_t n, size_t *took)
{
#ifdef TN_HAVE_CUDA
    return tn_token_run_cuda(op, call, n, took);
#else
    (void)op, (void)call, (void)n;
    *took = 0;
    return TN_OK;
#endif
}
