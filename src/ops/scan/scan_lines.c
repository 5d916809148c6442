/* The loops of scan_lines.h. Two tokens at a time: what a token makes is what the next one reads, without copies from
 * register to register. */
#include "ops/scan/scan_lines.h"

enum { N = TN_SCAN_N };

/* Four channels, and sixteen of them by name: compilers keep arrays in memory, and what is in memory is stored. */
typedef struct unit {
    tn_half re, im;
} unit;
typedef struct group {
    unit a, b, c, d;
} group;

/* The compiler is not to keep what lies behind p in registers: there are too few, and it would store others instead. */
#define READ_AGAIN(p) __asm__("" : "+r"(p))
/* Nor is it to begin with what comes after before this is done, for the same reason. */
#define IN_ORDER __asm__ volatile("" ::: "memory")

TN_INLINE unit narrow_unit(const double *re, const double *im)
{
    return (unit){ tn_narrow(tn_four_load(re)), tn_narrow(tn_four_load(im)) };
}

TN_INLINE group narrow_group(const tn_scan_numbers *s, int64_t k)
{
    const double *re = s->re + k, *im = s->im + k;
    READ_AGAIN(re);
    READ_AGAIN(im);
    return (group){ narrow_unit(re, im), narrow_unit(re + 4, im + 4), narrow_unit(re + 8, im + 8),
                    narrow_unit(re + 12, im + 12) };
}

/* Real parts first: whole lines. */
TN_INLINE void widen_group(tn_scan_numbers *s, int64_t k, group v)
{
    double *re = s->re + k, *im = s->im + k;
    READ_AGAIN(re);
    READ_AGAIN(im);
    tn_four_store(re, tn_widen(v.a.re));
    tn_four_store(re + 4, tn_widen(v.b.re));
    tn_four_store(re + 8, tn_widen(v.c.re));
    tn_four_store(re + 12, tn_widen(v.d.re));
    tn_four_store(im, tn_widen(v.a.im));
    tn_four_store(im + 4, tn_widen(v.b.im));
    tn_four_store(im + 8, tn_widen(v.c.im));
    tn_four_store(im + 12, tn_widen(v.d.im));
}

/* lambda^n carry + local of four channels; sign -1: conj(lambda). */
TN_INLINE void carry_unit(double *re, double *im, unit local, const double *power_re, const double *power_im,
                          double sign)
{
    const tn_four turn = { { sign, sign }, { sign, sign } };
    tn_four to_re, to_im;
    tn_scan_carried(local.re, local.im, tn_four_load(power_re), tn_mul4(tn_four_load(power_im), turn), tn_four_load(re),
                    tn_four_load(im), &to_re, &to_im);
    tn_four_store(re, to_re);
    tn_four_store(im, to_im);
}

/* What goes to the next piece: the state itself, or lambda^n carry + local. */
TN_INLINE void carry_group(tn_scan_numbers *s, group v, const tn_scan_coef *q, int64_t n, int64_t k, double sign,
                           bool brief)
{
    if (brief) {
        widen_group(s, k, v);
        return;
    }
    double *re = s->re + k, *im = s->im + k;
    const double *power_re = q->wide_re + n * q->power_step + k, *power_im = q->wide_im + n * q->power_step + k;
    READ_AGAIN(re);
    READ_AGAIN(im);
    READ_AGAIN(power_re);
    READ_AGAIN(power_im);
    carry_unit(re, im, v.a, power_re, power_im, sign);
    carry_unit(re + 4, im + 4, v.b, power_re + 4, power_im + 4, sign);
    carry_unit(re + 8, im + 8, v.c, power_re + 8, power_im + 8, sign);
    carry_unit(re + 12, im + 12, v.d, power_re + 12, power_im + 12, sign);
}

/* The tables of a group; power: of the token at hand, rows `step` apart. */
typedef struct tables {
    const float *lambda_re, *lambda_im, *gain, *power_re, *power_im;
    int64_t step;
} tables;

TN_INLINE tables tables_of(const tn_scan_coef *q, int64_t k, int64_t power, bool gain)
{
    const float *re = q->power_re + k, *im = q->power_im + k;
    const int64_t step = q->power_step;
    return (tables){ re + step, im + step, gain ? q->gain + k : NULL, re + power * step, im + power * step, step };
}

TN_INLINE void next_power(tables *w)
{
    w->power_re += w->step;
    w->power_im += w->step;
}

/* Asks for the line so many bytes from here, which may lie outside the tensor. */
TN_INLINE void ask_for(const float *from, intptr_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)bytes));
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* Where a token of a group lies in x and c: pointers of their own, for fewer sums of addresses. */
typedef struct place {
    const float *x_re, *x_im;
    float *c_re, *c_im;
} place;

/* Four channels, k after the group's first, of one token: lambda from + gain x, which is c; + lambda^(i+1) carry unless brief. */
TN_INLINE unit step(unit from, unit carry, const tables *w, int64_t k, const place *p, tn_scan_form is)
{
    const tn_half lr = tn_half_load(w->lambda_re + k), li = tn_half_load(w->lambda_im + k);
    tn_half re = tn_half_load(p->x_re + k), im = tn_half_load(p->x_im + k);
    if (is.gain) {
        const tn_half g = tn_half_load(w->gain + k);
        re *= g;
        im *= g;
    }
    re += lr * from.re;
    im += lr * from.im;
    re -= li * from.im;
    im += li * from.re;
    const unit to = { re, im };
    if (!is.brief) {
        const tn_half pr = tn_half_load(w->power_re + k), pi = tn_half_load(w->power_im + k);
        re = (re + pr * carry.re) - pi * carry.im;
        im = (im + pr * carry.im) + pi * carry.re;
    }
    tn_half_store(p->c_re + k, re);
    tn_half_store(p->c_im + k, im);
    return to;
}

/* A token of a group; then p and w are the next one's. `ahead`: bytes from here to the token to ask for. */
TN_INLINE group token(group from, group carry, tables *w, place *p, int64_t x_step, int64_t c_step, intptr_t ahead,
                      tn_scan_form is)
{
    group to;
    READ_AGAIN(w->lambda_re);
    READ_AGAIN(w->lambda_im);
    if (is.gain) READ_AGAIN(w->gain);
    READ_AGAIN(p->x_re);
    READ_AGAIN(p->x_im);
    READ_AGAIN(p->c_re);
    READ_AGAIN(p->c_im);
    ask_for(p->x_re, ahead);
    ask_for(p->x_im, ahead);
    to.a = step(from.a, carry.a, w, 0, p, is);
    to.b = step(from.b, carry.b, w, 4, p, is);
    to.c = step(from.c, carry.c, w, 8, p, is);
    to.d = step(from.d, carry.d, w, 12, p, is);
    if (!is.brief) next_power(w);
    p->x_re += x_step;
    p->x_im += x_step;
    p->c_re += c_step;
    p->c_im += c_step;
    return to;
}

/* All that a run needs, read anew for every group: nothing lives across a group but this, a token and a channel. */
typedef struct forward_job {
    tn_scan_numbers *s;
    const tn_scan_coef *q;
    tn_scan_planes x, c;
    int64_t width, n;
} forward_job;

/* Tokens t .. t + n - 1 (at most N) of a group. */
TN_INLINE void forward_group(const forward_job *j, int64_t t, int64_t n, int64_t k, tn_scan_form is)
{
    READ_AGAIN(j);
    const int64_t x_step = j->x.step, c_step = j->c.step;
    const intptr_t ahead = (intptr_t)sizeof(float) * N * x_step;
    const group carry = narrow_group(j->s, k), zero = { 0 };
    tables w = tables_of(j->q, k, 1, is.gain);
    place p = { .x_re = j->x.at + t * x_step + k, .c_re = j->c.at + t * c_step + k };
    p.x_im = p.x_re + j->x.im;
    p.c_im = p.c_re + j->c.im;
    group v = is.brief ? carry : zero;
    int64_t i = n;
    for (; i >= 2; i -= 2) {
        v = token(v, carry, &w, &p, x_step, c_step, ahead, is);
        v = token(v, carry, &w, &p, x_step, c_step, ahead, is);
    }
    if (i) v = token(v, carry, &w, &p, x_step, c_step, ahead, is);
    READ_AGAIN(j);
    carry_group(j->s, v, j->q, n, k, 1, is.brief);
}

TN_INLINE void forward_run(const forward_job *j, tn_scan_form is)
{
    for (int64_t t = 0; t < j->n; t += N)
        for (int64_t k = 0; k < j->width; k += TN_SCAN_LINE) forward_group(j, t, j->n - t < N ? j->n - t : N, k, is);
}

void tn_scan_lines_forward(tn_scan_numbers *s, const tn_scan_coef *q, int64_t width, int64_t n, tn_scan_planes x,
                           tn_scan_planes c)
{
    const forward_job j = { s, q, x, c, width, n };
    if (q->brief && q->gain) forward_run(&j, (tn_scan_form){ .gain = true, .brief = true });
    else if (q->brief) forward_run(&j, (tn_scan_form){ .brief = true });
    else if (q->gain) forward_run(&j, (tn_scan_form){ .gain = true });
    else forward_run(&j, (tn_scan_form){ .gain = false });
}

/* --- backward -----------------------------------------------------------------------------------------------------
 * Four tensors at once are read and written fastest row by row: two tokens of all channels, then the two before. What is
 * carried from one pair to the next lies in the L1 cache. */

/* Rows of what is carried, W channels each, so that one pointer reaches all of a channel. */
enum {
    LOCAL_RE, /* the adjoint from zero at the piece's end, or all of it where brief */
    LOCAL_IM,
    CARRY_RE, /* what entered the piece */
    CARRY_IM,
    SUM_M_RE, /* over the piece */
    SUM_M_IM,
    SUM_E,
    ROWS,
    W = TN_SCAN_W
};
typedef struct between {
    _Alignas(64) float at[ROWS * W];
} between;

/* All that a run needs, as in forward_job; dc, c, x and dx: its first token. */
typedef struct reverse_job {
    tn_scan_numbers *g;
    const tn_scan_coef *q;
    tn_scan_planes dc, c, before, x, dx;
    tn_scan_sums *sums;
    between *room;
    int64_t width, n;
} reverse_job;

typedef struct reverse_kind {
    bool gain, brief;
    bool state; /* there is one before the token */
} reverse_kind;

/* Sums over a piece of four channels, and of a group. */
typedef struct found {
    tn_half mr, mi, e;
} found;
typedef struct found_group {
    found a, b, c, d;
} found_group;

/* Where one token of a group lies; c: the state before it; room: what is carried. */
typedef struct spot {
    const float *dc_re, *dc_im, *c_re, *c_im, *x_re, *x_im, *room;
    float *dx_re, *dx_im;
} spot;

/* Four channels, k after the group's first, of one token backwards: the local adjoint al = dc + v gives
 * conj(lambda) al; the adjoint, al or al + conj(lambda^m) carry, gives dx and adds to the sums. */
TN_INLINE void step_back(unit *v, found *sum, const tables *w, const spot *p, int64_t k, reverse_kind is)
{
    const tn_half lr = tn_half_load(w->lambda_re + k), li = tn_half_load(w->lambda_im + k);
    tn_half re = v->re + tn_half_load(p->dc_re + k), im = v->im + tn_half_load(p->dc_im + k);
    *v = (unit){ lr * re + li * im, lr * im - li * re };
    if (!is.brief) {
        const tn_half pr = tn_half_load(w->power_re + k), pi = tn_half_load(w->power_im + k);
        const tn_half cr = tn_half_load(p->room + CARRY_RE * W + k), ci = tn_half_load(p->room + CARRY_IM * W + k);
        re += pr * cr;
        im += pr * ci;
        re += pi * ci;
        im -= pi * cr;
    }
    if (is.state) {
        const tn_half cr = tn_half_load(p->c_re + k), ci = tn_half_load(p->c_im + k);
        sum->mr += re * cr;
        sum->mi += im * cr;
        sum->mr += im * ci;
        sum->mi -= re * ci;
    }
    if (is.gain) {
        const tn_half g = tn_half_load(w->gain + k);
        sum->e += re * tn_half_load(p->x_re + k);
        sum->e += im * tn_half_load(p->x_im + k);
        re *= g;
        im *= g;
    }
    tn_half_store(p->dx_re + k, re);
    tn_half_store(p->dx_im + k, im);
}

/* Token t of the run, channels k.. of the block. */
TN_INLINE spot spot_at(const reverse_job *j, int64_t t, int64_t k, reverse_kind is)
{
    spot p = { .dc_re = j->dc.at + t * j->dc.step + k,
               .dx_re = j->dx.at + t * j->dx.step + k,
               .room = j->room->at + k };
    p.dc_im = p.dc_re + j->dc.im;
    p.dx_im = p.dx_re + j->dx.im;
    if (is.state) {
        p.c_re = t > 0 ? j->c.at + (t - 1) * j->c.step + k : j->before.at + k;
        p.c_im = p.c_re + (t > 0 ? j->c.im : j->before.im);
    }
    if (is.gain) {
        p.x_re = j->x.at + t * j->x.step + k;
        p.x_im = p.x_re + j->x.im;
    }
    return p;
}

/* A register each, where the compiler would keep bases and offsets. */
TN_INLINE void as_pointers(spot *p, tables *w)
{
    READ_AGAIN(p->dc_re);
    READ_AGAIN(p->dc_im);
    READ_AGAIN(p->c_re);
    READ_AGAIN(p->c_im);
    READ_AGAIN(p->x_re);
    READ_AGAIN(p->x_im);
    READ_AGAIN(p->dx_re);
    READ_AGAIN(p->dx_im);
    READ_AGAIN(p->room);
    READ_AGAIN(w->lambda_re);
    READ_AGAIN(w->lambda_im);
    READ_AGAIN(w->gain);
    READ_AGAIN(w->power_re);
    READ_AGAIN(w->power_im);
}

/* Asks for the token AHEAD before in one of the tensors. */
TN_INLINE void ask_back(const float *re, const float *im, int64_t step)
{
    enum { AHEAD = 8 };
    const intptr_t bytes = -(intptr_t)sizeof(float) * AHEAD * step;
    ask_for(re, bytes);
    ask_for(im, bytes);
    IN_ORDER;
}

/* How many tokens before the last of its piece a token is. */
TN_INLINE int64_t before_end(const reverse_job *j, int64_t t) { return (j->n - 1 - t) % N; }

TN_INLINE void token_back(group *v, found_group *sum, const reverse_job *j, int64_t t, int64_t k, reverse_kind is)
{
    IN_ORDER;
    READ_AGAIN(j);
    spot p = spot_at(j, t, k, is);
    tables w = tables_of(j->q, k, is.brief ? 0 : before_end(j, t), is.gain);
    as_pointers(&p, &w);
    ask_back(p.dc_re, p.dc_im, j->dc.step); /* one tensor at a time: the core drops what it is asked for in a burst */
    step_back(&v->a, &sum->a, &w, &p, 0, is);
    IN_ORDER;
    if (is.state) ask_back(p.c_re, p.c_im, j->c.step);
    step_back(&v->b, &sum->b, &w, &p, 4, is);
    IN_ORDER;
    if (is.gain) ask_back(p.x_re, p.x_im, j->x.step);
    step_back(&v->c, &sum->c, &w, &p, 8, is);
    IN_ORDER;
    step_back(&v->d, &sum->d, &w, &p, 12, is);
    IN_ORDER;
}

TN_INLINE unit load_unit(const float *room)
{
    return (unit){ tn_half_load(room + LOCAL_RE * W), tn_half_load(room + LOCAL_IM * W) };
}

TN_INLINE group load_group(const float *room)
{
    return (group){ load_unit(room), load_unit(room + 4), load_unit(room + 8), load_unit(room + 12) };
}

TN_INLINE void store_line(float *to, tn_half a, tn_half b, tn_half c, tn_half d)
{
    tn_half_store(to, a);
    tn_half_store(to + 4, b);
    tn_half_store(to + 8, c);
    tn_half_store(to + 12, d);
}

TN_INLINE void store_group(float *to_re, float *to_im, group v)
{
    store_line(to_re, v.a.re, v.b.re, v.c.re, v.d.re);
    store_line(to_im, v.a.im, v.b.im, v.c.im, v.d.im);
}

TN_INLINE found load_found(const float *room, bool gain)
{
    const tn_half none = { 0 };
    return (found){ tn_half_load(room + SUM_M_RE * W), tn_half_load(room + SUM_M_IM * W),
                    gain ? tn_half_load(room + SUM_E * W) : none };
}

/* Tokens t, and t - 1 if there are two, of a group. */
TN_INLINE void group_back(const reverse_job *j, int64_t t, int64_t k, int tokens, reverse_kind is)
{
    READ_AGAIN(j);
    float *room = j->room->at + k;
    group v = load_group(room);
    found_group sum = { load_found(room, is.gain), load_found(room + 4, is.gain), load_found(room + 8, is.gain),
                        load_found(room + 12, is.gain) };
    token_back(&v, &sum, j, t, k, is);
    if (tokens == 2) token_back(&v, &sum, j, t - 1, k, is);
    READ_AGAIN(j);
    room = j->room->at + k;
    store_group(room + LOCAL_RE * W, room + LOCAL_IM * W, v);
    if (is.state) store_line(room + SUM_M_RE * W, sum.a.mr, sum.b.mr, sum.c.mr, sum.d.mr);
    if (is.state) store_line(room + SUM_M_IM * W, sum.a.mi, sum.b.mi, sum.c.mi, sum.d.mi);
    if (is.gain) store_line(room + SUM_E * W, sum.a.e, sum.b.e, sum.c.e, sum.d.e);
}

TN_INLINE void tokens_back(const reverse_job *j, int64_t t, int tokens, reverse_kind is)
{
    for (int64_t k = 0; k < j->width; k += TN_SCAN_LINE) group_back(j, t, k, tokens, is);
}

/* Before a piece: what enters it, no local adjoint, no sums. Calls, so that their numbers live in no register of the loop. */
static __attribute__((noinline)) void begin_piece(const reverse_job *j, bool brief)
{
    const tn_half none = { 0 };
    for (int64_t k = 0; k < j->width; k += TN_SCAN_LINE) {
        float *room = j->room->at + k;
        for (int row = SUM_M_RE; row <= SUM_E; row++) store_line(room + row * W, none, none, none, none);
        if (brief) continue;
        store_group(room + CARRY_RE * W, room + CARRY_IM * W, narrow_group(j->g, k));
        store_line(room + LOCAL_RE * W, none, none, none, none);
        store_line(room + LOCAL_IM * W, none, none, none, none);
    }
}

static __attribute__((noinline)) void end_piece(const reverse_job *j, int64_t n, reverse_kind is)
{
    for (int64_t k = 0; k < j->width; k += TN_SCAN_LINE) {
        const float *room = j->room->at + k;
        if (!is.brief) carry_group(j->g, load_group(room), j->q, n, k, -1, false);
        for (int i = 0; i < (is.gain ? 3 : 2); i++)
            for (int64_t l = 0; l < TN_SCAN_LINE; l += 4)
                tn_scan_sum_up(j->sums->row[i] + k + l, tn_half_load(room + (SUM_M_RE + i) * W + l));
    }
}

/* Where brief: the adjoint that enters the run, and the one that leaves it. */
static void enter_brief(const reverse_job *j)
{
    for (int64_t k = 0; k < j->width; k += TN_SCAN_LINE)
        store_group(j->room->at + LOCAL_RE * W + k, j->room->at + LOCAL_IM * W + k, narrow_group(j->g, k));
}

static void leave_brief(const reverse_job *j)
{
    for (int64_t k = 0; k < j->width; k += TN_SCAN_LINE) widen_group(j->g, k, load_group(j->room->at + k));
}

/* Nothing but t lives from one pair to the next. */
TN_INLINE void reverse_run(const reverse_job *j, reverse_kind is)
{
    int64_t t = j->n - 1;
    READ_AGAIN(j);
    if (is.brief) enter_brief(j);
    while (t > 1) {
        if (before_end(j, t) == 0) begin_piece(j, is.brief);
        tokens_back(j, t, 2, is);
        t -= 2;
        if (before_end(j, t) == 0) end_piece(j, N, is);
    }
    for (; t >= 0; t--) { /* the second token of the run, and the first, which has another or no state before it */
        if (before_end(j, t) == 0) begin_piece(j, is.brief);
        tokens_back(j, t, 1, (reverse_kind){ is.gain, is.brief, t > 0 || j->before.at });
        if (t == 0 || before_end(j, t - 1) == 0) end_piece(j, before_end(j, t) + 1, is);
    }
    if (is.brief) leave_brief(j);
}

void tn_scan_lines_reverse(tn_scan_numbers *g, const tn_scan_coef *q, int64_t width, int64_t n,
                           const tn_scan_reverse *r, tn_scan_sums *sums, tn_scan_reverse_form is)
{
    between room;
    const reverse_job j = { g, q, r->dc, r->c, r->before, r->x, r->dx, sums, &room, width, n };
    if (is.gain && is.brief) reverse_run(&j, (reverse_kind){ true, true, true });
    else if (is.gain) reverse_run(&j, (reverse_kind){ true, false, true });
    else if (is.brief) reverse_run(&j, (reverse_kind){ false, true, true });
    else reverse_run(&j, (reverse_kind){ false, false, true });
}
