/* The builder: where vectors lie, what is fetched, and where a grid barrier is needed. */
#include "plan/decode/decode_rope.h"

#include <string.h>

void tn_decode_begin(tn_decode_builder *b, tn_decode_program *p, const tn_decode_space *space)
{
    p->n = p->staged_n = 0;
    p->slot_floats = space->slot_floats;
    p->stage_bytes = space->stage_bytes;
    b->program = p;
    b->space = *space;
    b->now = (tn_decode_places){ 0 };
}

typedef struct span {
    uintptr_t begin, end;
} span;

static span span_of(const void *at, uint8_t type, int64_t n)
{
    return (span){ (uintptr_t)at, (uintptr_t)at + (uintptr_t)n * tn_dtype_bytes((tn_dtype)type) };
}

static bool barrier_at(span a, uintptr_t begin, uintptr_t end) { return a.begin < end && begin < a.end; }

/* Since blocks met: read or written, or made by another block. */
static bool touched(const tn_decode_builder *b, span x)
{
    for (int i = b->now.since; i < b->now.n_ranges; i++)
        if (barrier_at(x, b->range[i].begin, b->range[i].end)) return true;
    return false;
}

/* Since range `from`, by anyone. */
static bool written(const tn_decode_builder *b, int from, span x)
{
    for (int i = from; i < b->now.n_ranges; i++)
        if (b->range[i].written && barrier_at(x, b->range[i].begin, b->range[i].end)) return true;
    return false;
}

static bool made_by_others(const tn_decode_builder *b, span x)
{
    for (int i = b->now.since; i < b->now.n_ranges; i++)
        if (b->range[i].written && !b->range[i].by_all && barrier_at(x, b->range[i].begin, b->range[i].end))
            return true;
    return false;
}

/* Inputs that the kernel reads from memory, whoever holds them: weights, parameters, states, keys and values. */
static bool lies_far(const tn_decode_step *s, int i)
{
    static const uint8_t far[TN_DECODE_OPS] = {
        [TN_DECODE_EMBED] = 1 << 1,
        [TN_DECODE_NORM] = 1 << 2 | 1 << 3,
        [TN_DECODE_LINEAR] = 1 << 1 | 1 << 2,
        [TN_DECODE_READOUT] = 1 << 3 | 1 << 4,
        [TN_DECODE_CONV] = 1 << 1 | 1 << 2 | 1 << 3,
        [TN_DECODE_SCAN] = 1 << 2 | 1 << 3 | 1 << 4,
        [TN_DECODE_OUTER] = 1 << 4,
        [TN_DECODE_SEEN] = 1 << 1 | 1 << 2,
    };
    return far[s->op] >> i & 1;
}

/* Products and outer read parameters and states before the steps ahead of theirs have ended, unless blocks have met in between. */
static bool made_early(const tn_decode_builder *b, const tn_decode_step *s, int i, span x)
{
    const bool early = s->op == TN_DECODE_LINEAR || s->op == TN_DECODE_CONV || s->op == TN_DECODE_OUTER;
    return early && lies_far(s, i) && written(b, b->now.since, x);
}

/* A block reads and writes its own rows of n, and nothing else of in0 and out0. */
static bool works_by_rows(const tn_decode_step *s)
{
    if (s->op == TN_DECODE_LINEAR) return (s->flags & TN_DECODE_SHARED) && !(s->flags & TN_DECODE_PAIRED);
    return s->op == TN_DECODE_COPY || s->op == TN_DECODE_BEST_PARTS;
}

/* Whether a step of n numbers reads of x only what its own block made: all of what one step made by rows. */
static bool made_by_itself(const tn_decode_builder *b, const tn_decode_step *s, span x)
{
    if (s->op == TN_DECODE_LINEAR || !works_by_rows(s)) return false;
    for (int i = b->now.since; i < b->now.n_ranges; i++) {
        const struct tn_decode_range *r = &b->range[i];
        if (!r->written || r->by_all || !barrier_at(x, r->begin, r->end)) continue;
        if (r->rows != s->n || r->begin != x.begin || r->end != x.end) return false;
    }
    return true;
}

/* Number of x's first in a vector that begins at `begin` and ends at `end`, or -1: x is no part of it. */
static int32_t place_in(span x, uint8_t type, uintptr_t begin, uintptr_t end, uint8_t its_type)
{
    const size_t each = tn_dtype_bytes((tn_dtype)type);
    if (its_type != type || x.begin < begin || x.end > end || (x.begin - begin) % each) return -1;
    return (int32_t)((x.begin - begin) / each);
}

/* The slot that holds these numbers, or -1. */
static int32_t find_held(const tn_decode_builder *b, span x, uint8_t type)
{
    for (int i = b->now.n_held; i-- > 0;) {
        const struct tn_decode_held *h = &b->now.held[i];
        const int32_t at = place_in(x, type, h->begin, h->end, h->type);
        if (at >= 0) return h->slot + at;
    }
    return -1;
}

static const struct tn_decode_sent *find_sent(const tn_decode_builder *b, span x, uint8_t type)
{
    for (int i = 0; i < b->now.n_sent; i++) {
        const struct tn_decode_sent *m = &b->now.sent[i];
        if (place_in(x, type, m->begin, m->end, m->type) >= 0) return m;
    }
    return NULL;
}

/* --- slots ------------------------------------------------------------------------------------------------------------------ */

/* The step that is being placed. */
typedef struct work {
    tn_decode_step step;
    const tn_decode_sizes *size;
    const tn_call *call; /* (n_calls): its own, then those that come after it */
    size_t n_calls;
    struct {
        int32_t slot, size;
    } taken[TN_DECODE_OUT + 1]; /* slots of its own */
    int n_taken;
} work;

static span reach_of(const tn_arg *a)
{
    int64_t last = 0;
    for (int i = 0; i < a->dims.rank; i++) last += (a->dims.dim[i] - 1) * a->stride[i];
    return span_of(a->data, (uint8_t)a->dtype, last + 1);
}

/* Whether one of the calls reads x before another one writes all of it anew. */
static bool is_read(const work *w, span x)
{
    for (const tn_call *c = w->call; c < w->call + w->n_calls; c++) {
        for (int i = 0; i < c->n_in; i++) {
            if (!c->in[i].data) continue;
            const span r = reach_of(&c->in[i]);
            if (barrier_at(x, r.begin, r.end)) return true;
        }
        for (int i = 0; i < c->n_out; i++) {
            if (!c->out[i].data) continue;
            const span y = reach_of(&c->out[i]);
            if (y.begin <= x.begin && y.end >= x.end) return false;
        }
    }
    return false;
}

static bool is_used(const work *w, const struct tn_decode_held *h)
{
    for (int i = 0; i < TN_DECODE_IN; i++)
        if (w->step.in_slot[i] >= h->slot && w->step.in_slot[i] < h->slot + h->size) return true;
    return false;
}

static void drop(tn_decode_builder *b, int i)
{
    b->now.n_held--;
    memmove(b->now.held + i, b->now.held + i + 1, sizeof *b->now.held * (size_t)(b->now.n_held - i));
}

static void drop_unread(tn_decode_builder *b, const work *w)
{
    for (int i = b->now.n_held; i-- > 0;) {
        const struct tn_decode_held *h = &b->now.held[i];
        if (!is_used(w, h) && !is_read(w, (span){ h->begin, h->end })) drop(b, i);
    }
}

/* The oldest that a later step can have again without a barrier, from memory or from its message. */
static bool drop_one(tn_decode_builder *b, const work *w)
{
    for (int i = 0; i < b->now.n_held; i++) {
        const struct tn_decode_held *h = &b->now.held[i];
        const span x = { h->begin, h->end };
        if (is_used(w, h) || (made_by_others(b, x) && !find_sent(b, x, h->type))) continue;
        drop(b, i);
        return true;
    }
    return false;
}

static bool is_free(const tn_decode_builder *b, const work *w, int32_t at, int32_t size)
{
    if (at + size > b->space.slot_floats) return false;
    for (int i = 0; i < b->now.n_held; i++)
        if (at < b->now.held[i].slot + b->now.held[i].size && b->now.held[i].slot < at + size) return false;
    for (int i = 0; i < w->n_taken; i++)
        if (at < w->taken[i].slot + w->taken[i].size && w->taken[i].slot < at + size) return false;
    return true;
}

/* Floats, so that a slot begins at 16 bytes. */
static int32_t slot_size(int64_t n) { return (int32_t)((n + 3) / 4 * 4); }

/* The lowest place for so many floats, or -1. */
static int32_t find_gap(const tn_decode_builder *b, const work *w, int32_t size)
{
    int32_t best = is_free(b, w, 0, size) ? 0 : INT32_MAX;
    for (int i = 0; i < b->now.n_held; i++) {
        const int32_t at =
            slot_size(b->now.held[i].slot + b->now.held[i].size); /* parts of a message may end anywhere */
        if (at < best && is_free(b, w, at, size)) best = at;
    }
    for (int i = 0; i < w->n_taken; i++) {
        const int32_t at = w->taken[i].slot + w->taken[i].size;
        if (at < best && is_free(b, w, at, size)) best = at;
    }
    return best == INT32_MAX ? -1 : best;
}

/* A slot for n numbers, or -1. Slots are a block's own, and who writes one waits for all who read it before: one that nothing reads is free. */
static int16_t take_slot(tn_decode_builder *b, work *w, int64_t n)
{
    if (n > b->space.slot_floats) return -1;
    const int32_t size = slot_size(n);
    int32_t at = find_gap(b, w, size);
    if (at < 0 || b->now.n_held + 1 + TN_DECODE_OUT >= TN_DECODE_HELD) {
        drop_unread(b, w);
        at = find_gap(b, w, size);
    }
    while (at < 0 && drop_one(b, w)) at = find_gap(b, w, size);
    if (at < 0) return -1;
    w->taken[w->n_taken].slot = at;
    w->taken[w->n_taken++].size = size;
    return (int16_t)at;
}

static void hold(tn_decode_builder *b, span x, uint8_t type, int16_t slot, int64_t n)
{
    if (b->now.n_held < TN_DECODE_HELD)
        b->now.held[b->now.n_held++] = (struct tn_decode_held){ x.begin, x.end, type, slot, slot_size(n) };
}

/* --- a step ------------------------------------------------------------------------------------------------------------------ */

/* Weights are fetched before the steps ahead of theirs have run: they may not lie where any of those writes. */
static bool comes_too_early(const tn_decode_builder *b, const tn_decode_step *s, const tn_decode_sizes *z)
{
    return s->flags & TN_DECODE_STAGED && written(b, 0, span_of(s->in[1], s->in_type[1], z->in[1]));
}

static void clear_slots(tn_decode_step *s)
{
    for (int i = 0; i < TN_DECODE_IN; i++) s->in_slot[i] = -1;
    for (int i = 0; i < TN_DECODE_OUT; i++) s->out_slot[i] = -1;
}

/* Brings all of a message to a slot. */
static bool fetch(tn_decode_builder *b, work *w, const struct tn_decode_sent *m)
{
    tn_decode_program *p = b->program;
    tn_decode_step s = { .op = TN_DECODE_FETCH, .n = m->words, .message = m->whole };
    if (p->n + 1 >= TN_DECODE_STEPS) return false;
    clear_slots(&s);
    s.out_slot[0] = take_slot(b, w, s.n);
    w->n_taken = 0;
    if (s.out_slot[0] < 0) return false;
    for (int i = 0; i < b->now.n_sent; i++) {
        const struct tn_decode_sent *part = &b->now.sent[i];
        if (part->whole != s.message) continue;
        const int32_t at = (int32_t)(part->message - s.message);
        hold(b, (span){ part->begin, part->end }, part->type, (int16_t)(s.out_slot[0] + at),
             (int64_t)((part->end - part->begin) / tn_dtype_bytes((tn_dtype)part->type)));
    }
    p->step[p->n++] = s;
    b->now.fetches++;
    return true;
}

/* Inputs that blocks have made together since they met come from their message. */
static bool fetch_inputs(tn_decode_builder *b, work *w)
{
    const tn_decode_step *s = &w->step;
    for (int i = 0; i < TN_DECODE_IN; i++) {
        if (!s->in[i] || lies_far(s, i)) continue;
        const span x = span_of(s->in[i], s->in_type[i], w->size->in[i]);
        if (find_held(b, x, s->in_type[i]) >= 0 || !made_by_others(b, x) || made_by_itself(b, s, x)) continue;
        const struct tn_decode_sent *m = find_sent(b, x, s->in_type[i]);
        if (!m || !fetch(b, w, m)) return false;
    }
    return true;
}

static bool place_inputs(const tn_decode_builder *b, work *w)
{
    tn_decode_step *s = &w->step;
    for (int i = 0; i < TN_DECODE_IN; i++) {
        if (!s->in[i]) continue;
        const span x = span_of(s->in[i], s->in_type[i], w->size->in[i]);
        if (!lies_far(s, i)) s->in_slot[i] = (int16_t)find_held(b, x, s->in_type[i]);
        if (s->op == TN_DECODE_LINEAR && i == 0 && s->in_slot[i] % 4) s->in_slot[i] = -1; /* it is read at 16 bytes */
        if (s->in_slot[i] < 0 && ((made_by_others(b, x) && !made_by_itself(b, s, x)) || made_early(b, s, i, x)))
            return false;
    }
    return true;
}

/* An output over an input that is read from memory: each number is read and written by one thread, or a block might read what another one
 * has overwritten already. */
static bool overwrites_own(const tn_decode_step *s, const tn_decode_sizes *z, span y, const void *at)
{
    for (int i = 0; i < TN_DECODE_IN; i++) {
        if (!s->in[i] || s->in_slot[i] >= 0) continue;
        const span x = span_of(s->in[i], s->in_type[i], z->in[i]);
        const bool one_by_one = s->op == TN_DECODE_LINEAR && (s->flags & TN_DECODE_SHARED) && i == 3 &&
                                s->in[i] == at && s->in_type[i] == s->out_type[0];
        if (!one_by_one && barrier_at(y, x.begin, x.end)) return true;
    }
    return false;
}

static bool place_outputs(tn_decode_builder *b, work *w)
{
    tn_decode_step *s = &w->step;
    const tn_decode_sizes *z = w->size;
    for (int i = 0; i < TN_DECODE_OUT; i++) {
        if (!s->out[i]) continue;
        const span y = span_of(s->out[i], s->out_type[i], z->out[i]);
        if (touched(b, y) || overwrites_own(s, z, y, s->out[i])) return false;
        if (!z->keeps[i] || (s->flags & TN_DECODE_SHARED)) continue;
        s->out_slot[i] = take_slot(b, w, z->out[i]);
        if (s->out_slot[i] < 0) return false;
    }
    if (s->op == TN_DECODE_LINEAR && s->in_slot[0] < 0) {
        s->flags |= TN_DECODE_FETCHES;
        s->out_slot[1] = take_slot(b, w, z->in[0]);
        if (s->out_slot[1] < 0) return false;
    }
    return true;
}

/* Parts are left in one half of the scratch while the other may still be read. */
static bool place_parts(const tn_decode_builder *b, tn_decode_step *s)
{
    const bool leaves = s->op == TN_DECODE_SEEN || s->op == TN_DECODE_BEST_PARTS,
               joins = s->op == TN_DECODE_SEEN_ALL || s->op == TN_DECODE_BEST;
    if (leaves) s->kind = (uint8_t)!b->now.half;
    if (joins) s->kind = (uint8_t)b->now.half;
    return !leaves || !b->now.busy[s->kind];
}

static void note_parts(tn_decode_builder *b, const tn_decode_step *s)
{
    if (s->op == TN_DECODE_SEEN || s->op == TN_DECODE_BEST_PARTS) b->now.half = s->kind;
    if (s->op == TN_DECODE_SEEN_ALL || s->op == TN_DECODE_BEST) b->now.busy[s->kind] = true;
}

static void note(tn_decode_builder *b, span x, bool written, bool by_all, int32_t rows)
{
    b->range[b->now.n_ranges++] = (struct tn_decode_range){ x.begin, x.end, written, by_all, rows };
}

/* Part of the message `whole` (words) is x, from its number `at` on. */
static void note_message(tn_decode_builder *b, span x, uint8_t type, uint64_t *whole, int32_t words, int64_t at)
{
    if (x.begin < x.end)
        b->now.sent[b->now.n_sent++] = (struct tn_decode_sent){ x.begin, x.end, type, whole + at, whole, words };
}

static void send(tn_decode_builder *b, tn_decode_step *s, int64_t n)
{
    const bool joint = (s->flags & TN_DECODE_SHARED) && (s->op == TN_DECODE_LINEAR || s->op == TN_DECODE_OUTER);
    const int32_t words = slot_size(n < TN_DECODE_SENT ? n : TN_DECODE_SENT);
    if (!joint || !s->out[0] || n > TN_DECODE_SENT || words > b->space.message_words - b->now.sent_words) return;
    s->message = b->space.message + b->now.sent_words;
    b->now.sent_words += words;
    note_message(b, span_of(s->out[0], s->out_type[0], n), s->out_type[0], s->message, (int32_t)n, 0);
}

/* What the step reads and writes in memory; slots no longer hold what is written over. */
static void note_memory(tn_decode_builder *b, const tn_decode_step *s, const tn_decode_sizes *z)
{
    for (int i = 0; i < TN_DECODE_IN; i++)
        if (s->in[i] && s->in_slot[i] < 0) note(b, span_of(s->in[i], s->in_type[i], z->in[i]), false, false, 0);
    for (int i = 0; i < TN_DECODE_OUT; i++) {
        if (!s->out[i]) continue;
        const span y = span_of(s->out[i], s->out_type[i], z->out[i]);
        note(b, y, true, s->op == TN_DECODE_PUT, i == 0 && works_by_rows(s) ? s->n : 0);
        for (int k = b->now.n_held; k-- > 0;) /* what lay there before */
            if (barrier_at(y, b->now.held[k].begin, b->now.held[k].end)) drop(b, k);
    }
}

/* Whether a step's integer, and rope's angles, are those of the last such step: all layers of a network stand at one position. */
static bool knows(const tn_decode_builder *b, const tn_decode_step *s)
{
    const int k = s->op == TN_DECODE_SEEN ? 3 : 1;
    const tn_decode_step *o = b->program->step + b->program->n;
    if (s->op != TN_DECODE_ROPE && s->op != TN_DECODE_PUT && s->op != TN_DECODE_SEEN) return false;
    while (o > b->program->step && o[-1].op != s->op) o--;
    if (o-- == b->program->step || o->in[k] != s->in[k]) return false;
    if (s->in[k] && written(b, 0, span_of(s->in[k], TN_I32, 1))) return false;
    return s->op == TN_DECODE_ROPE ? tn_decode_turns_alike(s, o) : s->in[k] != NULL;
}

static void commit(tn_decode_builder *b, work *w)
{
    tn_decode_program *p = b->program;
    tn_decode_step *s = &w->step;
    const tn_decode_sizes *z = w->size;
    if (knows(b, s)) s->flags |= TN_DECODE_SAME;
    note_memory(b, s, z);
    for (int i = 0; i < TN_DECODE_OUT; i++)
        if (s->out[i] && s->out_slot[i] >= 0)
            hold(b, span_of(s->out[i], s->out_type[i], z->out[i]), s->out_type[i], s->out_slot[i], z->out[i]);
    if (s->flags & TN_DECODE_FETCHES)
        hold(b, span_of(s->in[0], s->in_type[0], z->in[0]), s->in_type[0], s->out_slot[1], z->in[0]);
    if (s->flags & TN_DECODE_STAGED) p->staged[p->staged_n++] = (uint8_t)p->n;
    send(b, s, z->out[0]);
    note_parts(b, s);
    p->step[p->n++] = *s;
}

/* --- steps that are done with the one before them ------------------------------------------------------------------------------ */

/* The product's row that is the first of the step's input, or -1: they do not fit. */
static int32_t first_row(const tn_decode_step *product, const work *w)
{
    const tn_decode_step *s = &w->step;
    const tn_decode_sizes *z = w->size;
    const span rows = span_of(product->out[0], product->out_type[0], product->n),
               x = span_of(s->in[0], s->in_type[0], z->in[0]);
    const int32_t at = place_in(x, s->in_type[0], rows.begin, rows.end, product->out_type[0]);
    if (at < 0) return at;
    if (s->op == TN_DECODE_CONV) return at % 4 ? -1 : at; /* what is fetched of it begins at 16 bytes */
    const span other = span_of(s->in[1], s->in_type[1], z->in[1]);
    const int32_t gate = place_in(other, s->in_type[1], rows.begin, rows.end, product->out_type[0]);
    return product->n == 2 * s->n && at + gate == s->n && at % s->n == 0 ? at : -1;
}

/* One thread reads and writes each of its numbers, so that a state may lie where the one after it does. */
static bool is_own_state(const tn_decode_step *s, int i, int o)
{
    return s->op == TN_DECODE_CONV && i == 3 && o == 1 && s->in[3] == s->out[1] && s->in_type[3] == s->out_type[1];
}

/* Whether all that the step reads besides the product's rows was computed before, and what it writes is read nowhere else. */
static bool reads_alone(const tn_decode_builder *b, const work *w)
{
    const tn_decode_step *s = &w->step;
    const tn_decode_sizes *z = w->size;
    for (int i = 0; i < TN_DECODE_IN; i++) {
        if (!s->in[i] || i == 0 || (s->op == TN_DECODE_GATE && i == 1)) continue;
        const span x = span_of(s->in[i], s->in_type[i], z->in[i]);
        if (made_by_others(b, x) || made_early(b, s, i, x)) return false;
        for (int o = 0; o < TN_DECODE_OUT; o++) {
            if (!s->out[o] || is_own_state(s, i, o)) continue;
            const span y = span_of(s->out[o], s->out_type[o], z->out[o]);
            if (barrier_at(x, y.begin, y.end)) return false;
        }
    }
    for (int o = 0; o < TN_DECODE_OUT; o++)
        if (s->out[o] && touched(b, span_of(s->out[o], s->out_type[o], z->out[o]))) return false;
    return true;
}

/* The product messages what the step makes of its rows, and of the others themselves. */
static void send_joined(tn_decode_builder *b, const tn_decode_step *product, const tn_decode_step *s)
{
    const tn_dtype type = (tn_dtype)product->out_type[0];
    const bool pairs = product->flags & TN_DECODE_PAIRED;
    const int32_t made = s->n, words = pairs ? made : product->n;
    const span rows = span_of(product->out[0], product->out_type[0], product->n);
    const size_t each = tn_dtype_bytes(type);
    b->now.n_sent--; /* its rows as they were */
    b->now.sent_words = (int32_t)(product->message - b->space.message) + slot_size(words);
    note_message(b, span_of(s->out[0], s->out_type[0], made), s->out_type[0], product->message, words,
                 pairs ? 0 : s->j);
    if (pairs) return;
    note_message(b, (span){ rows.begin, rows.begin + (size_t)s->j * each }, product->out_type[0], product->message,
                 words, 0);
    note_message(b, (span){ rows.begin + (size_t)(s->j + made) * each, rows.end }, product->out_type[0],
                 product->message, words, s->j + made);
}

/* Conv and gate by the blocks that make their rows, where the product before them makes them for nothing else. */
static bool join(tn_decode_builder *b, const work *wanted)
{
    tn_decode_program *p = b->program;
    tn_decode_step *product = p->n ? &p->step[p->n - 1] : NULL;
    work w = *wanted;
    tn_decode_step *s = &w.step;
    if (!product || product->op != TN_DECODE_LINEAR || !product->message || product->flags & TN_DECODE_JOINED)
        return false;
    if ((s->op != TN_DECODE_CONV && s->op != TN_DECODE_GATE) || !s->out[0] || p->n == TN_DECODE_STEPS) return false;
    clear_slots(s);
    const work after = { .call = w.call + 1, .n_calls = w.n_calls - 1 };
    const int32_t at = first_row(product, &w);
    if (at < 0 || !reads_alone(b, &w)) return false;
    const size_t each = tn_dtype_bytes((tn_dtype)product->out_type[0]);
    const uintptr_t rows = (uintptr_t)product->out[0],
                    begin = s->op == TN_DECODE_CONV ? rows + (size_t)at * each : rows;
    if (is_read(&after, (span){ begin, begin + each * (size_t)(s->op == TN_DECODE_CONV ? s->n : product->n) }))
        return false;
    product->flags |= TN_DECODE_JOINED | (s->op == TN_DECODE_CONV ? 0 : TN_DECODE_PAIRED);
    for (int i = b->now.since; i < b->now.n_ranges; i++) /* blocks have pairs of its rows now */
        if (b->range[i].begin == rows) b->range[i].rows = 0;
    s->j = at;
    s->flags |= TN_DECODE_SHARED;
    note_memory(b, s, w.size);
    send_joined(b, product, s);
    p->step[p->n++] = *s;
    return true;
}

/* A norm, readout or scan of a vector that has just been fetched for it. */
static void join_fetch(tn_decode_program *p)
{
    const tn_decode_step *s = &p->step[p->n - 1];
    tn_decode_step *f = p->n > 1 ? &p->step[p->n - 2] : NULL;
    const bool norms = s->op == TN_DECODE_NORM, reads = s->op == TN_DECODE_READOUT, scans = s->op == TN_DECODE_SCAN;
    if (!f || f->op != TN_DECODE_FETCH || s->flags & TN_DECODE_BARRIER || f->n != (scans ? 2 * s->n : s->n)) return;
    const bool first = (norms || reads) && s->in_slot[0] == f->out_slot[0],
               second = (norms || scans) && s->in_slot[1] == f->out_slot[0];
    int times = 0; /* that the step reads it: its other inputs are looked at before it has come */
    for (int i = 0; i < TN_DECODE_IN; i++)
        times += s->in_slot[i] >= f->out_slot[0] && s->in_slot[i] < f->out_slot[0] + f->n;
    if ((first || second) && times == 1) f->flags |= TN_DECODE_JOINED;
}

/* A copy behind others, none of which writes what it reads. */
static void put_beside(tn_decode_program *p, const work *w)
{
    tn_decode_step *s = &p->step[p->n - 1];
    const span x = span_of(s->in[0], s->in_type[0], w->size->in[0]);
    if (s->op != TN_DECODE_COPY || s->flags & TN_DECODE_BARRIER || p->n < 2 || s[-1].op != TN_DECODE_COPY) return;
    for (const tn_decode_step *c = s - 1;; c--) {
        const span y = span_of(c->out[0], c->out_type[0], c->n);
        if (barrier_at(x, y.begin, y.end)) return;
        if (!(c->flags & TN_DECODE_BESIDE)) break;
    }
    s->flags |= TN_DECODE_BESIDE;
}

/* What a step may need before it; each is tried if the one before it was not enough. */
typedef enum need { NOTHING, BARRIER, BARRIER_ANEW /* with slots that hold nothing, and all of memory to read */ } need;

static void barrier(tn_decode_builder *b, tn_decode_step *s, need what)
{
    if (what == BARRIER_ANEW) b->now.n_held = 0;
    if (what == NOTHING || !b->program->n) return;
    s->flags |= TN_DECODE_BARRIER;
    b->now.barriers++;
    b->now.since = b->now.n_ranges;
    b->now.n_sent = 0;
    b->now.busy[0] = b->now.busy[1] = false;
}

static bool place(tn_decode_builder *b, const work *wanted)
{
    const tn_decode_places before = b->now;
    const int32_t n = b->program->n;
    if (n == TN_DECODE_STEPS || comes_too_early(b, &wanted->step, wanted->size)) return false;
    for (int what = wanted->step.flags & TN_DECODE_BARRIER ? BARRIER : NOTHING; what <= BARRIER_ANEW; what++) {
        work w = *wanted;
        clear_slots(&w.step);
        barrier(b, &w.step, (need)what);
        if (place_parts(b, &w.step) && fetch_inputs(b, &w) && place_inputs(b, &w) && place_outputs(b, &w)) {
            commit(b, &w);
            join_fetch(b->program);
            put_beside(b->program, &w);
            return true;
        }
        b->now = before;
        b->program->n = n;
    }
    return false;
}

bool tn_decode_add(tn_decode_builder *b, const tn_op *op, const tn_call *c, size_t n)
{
    tn_decode_step step[TN_DECODE_MOST];
    tn_decode_sizes size[TN_DECODE_MOST];
    const tn_decode_places before = b->now;
    const int32_t steps = b->program->n, staged = b->program->staged_n;
    const int count = tn_decode_describe(op, c, step, size);
    for (int i = 0; i < count; i++) {
        const work w = { .step = step[i], .size = &size[i], .call = c, .n_calls = n };
        if (join(b, &w) || place(b, &w)) continue;
        b->now = before;
        b->program->n = steps;
        b->program->staged_n = staged;
        return false;
    }
    return count > 0;
}
