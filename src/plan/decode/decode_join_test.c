/* The builder's joints on calls made by hand: what is done with a product's rows or with a fetch, and what is not. Each program is run for
 * blocks in many orders, against what the calls make one after the other. */
#include "decode_made.h"

/* K: numbers of a product's x; FIRST: row of a conv of HALF channels */
enum { K = 8, ROWS = 96, HALF = ROWS / 2, FIRST = 16, CALLS = 8, SEEDS = 6, SLOTS = 4096 };

/* Calls, and what most of them lie in. */
typedef struct scene {
    bench *t;
    float *x, *rows, *y; /* of the product (K, ROWS and as many again); of what reads its rows */
    int32_t *reset;
    job call[CALLS];
    int n, product; /* which call it is; what is joined to it comes after it */
} scene;

static void then(scene *s, job j)
{
    assert_true(s->n < CALLS);
    s->call[s->n++] = j;
}

/* Before all others. */
static void first(scene *s, job j)
{
    assert_true(s->n < CALLS);
    memmove(s->call + 1, s->call, sizeof *s->call * (size_t)s->n++);
    s->call[0] = j;
    s->product++;
}

static job *reader(scene *s) { return &s->call[s->product + 1]; }

/* y = x + 1 to memory of its own. */
static job plus_one(const scene *s, float *x, int64_t n) { return unary(x, numbers(s->t, n), n); }

static scene open_scene(int64_t rows, tn_act act)
{
    static const tn_linear_attr gates = { TN_ACT_SIGMOID };
    bench *t = open_bench(SLOTS);
    scene s = { .t = t, .x = numbers(t, K), .rows = numbers(t, 2 * ROWS), .y = numbers(t, ROWS) };
    job product = linear(s.x, numbers(t, rows * K), s.rows, rows, K);
    product.in[TN_LINEAR_BIAS] = fresh(t, tn_shape(rows));
    if (act == TN_ACT_SIGMOID) product.attr = &gates;
    const tn_arg reset = fresh(t, tn_shape(1, 1));
    s.reset = reset.data;
    *s.reset = 0;
    then(&s, product);
    return s;
}

/* Rows are a conv's input from FIRST on; all of them and what it makes are read, but not its input. */
static scene conv_scene(int64_t at_row, int64_t n)
{
    static const tn_conv_causal_attr silu = { true };
    scene s = open_scene(ROWS, TN_ACT_NONE);
    bench *t = s.t;
    then(&s, (job){ .op = &tn_op_conv_causal,
                    .attr = &silu,
                    .n_in = TN_CONV_INPUTS,
                    .n_out = 2,
                    .in = { vector(s.rows + at_row, n), fresh(t, tn_shape(4, n)), fresh(t, tn_shape(n)),
                            fresh(t, tn_shape(1, 3, n)), arg_of(s.reset, TN_I32, tn_shape(1, 1)) },
                    .out = { vector(s.y, n), fresh(t, tn_shape(1, 3, n)) } });
    then(&s, plus_one(&s, s.y, n));
    if (at_row) then(&s, plus_one(&s, s.rows, at_row));
    if (at_row + n < ROWS) then(&s, plus_one(&s, s.rows + at_row + n, ROWS - at_row - n));
    return s;
}

static scene gate_scene(float *(*x)(const scene *), float *(*z)(const scene *), int64_t rows, int64_t n)
{
    static const tn_gate_attr silu = { TN_GATE_SILU };
    scene s = open_scene(rows, TN_ACT_NONE);
    then(&s, (job){ .op = &tn_op_gate,
                    .attr = &silu,
                    .n_in = 2,
                    .n_out = 1,
                    .in = { vector(x(&s), n), vector(z(&s), n) },
                    .out = { vector(s.y, n) } });
    then(&s, plus_one(&s, s.y, n));
    return s;
}

static float *upper(const scene *s) { return s->rows; }
static float *lower(const scene *s) { return s->rows + HALF; }
static float *at_40(const scene *s) { return s->rows + 40; }
static float *elsewhere(const scene *s) { return numbers(s->t, HALF); }

/* Of HALF numbers, whose gates are the first ROWS of the product's rows. */
static scene scan_scene(int64_t rows)
{
    static const tn_scan_gated_attr a = { 0 };
    scene s = open_scene(rows, TN_ACT_SIGMOID);
    bench *t = s.t;
    then(&s, (job){ .op = &tn_op_scan_gated,
                    .attr = &a,
                    .n_in = TN_GATED_INPUTS,
                    .n_out = 2,
                    .in = { fresh(t, tn_shape(1, 1, ROWS)), vector(s.rows, ROWS), fresh(t, tn_shape(HALF)),
                            fresh(t, tn_shape(HALF)), fresh(t, tn_shape(1, ROWS)),
                            arg_of(s.reset, TN_I32, tn_shape(1, 1)) },
                    .out = { vector(s.y, ROWS), fresh(t, tn_shape(1, ROWS)) } });
    return s;
}

static void add_scene(scene *s)
{
    const job *list[CALLS];
    for (int i = 0; i < s->n; i++) list[i] = &s->call[i];
    add_all(s->t, list, (size_t)s->n);
}

/* Steps of the program with this op and all these flags. */
static int count(const scene *s, tn_decode_op op, int flags)
{
    int n = 0;
    for (int i = 0; i < s->t->p.n; i++) n += s->t->p.step[i].op == op && (s->t->p.step[i].flags & flags) == flags;
    return n;
}

static void simulate_once(const scene *s, const float *before, const float *want, int blocks, uint64_t seed)
{
    memcpy(s->t->room, before, sizeof s->t->room);
    tn_decode_simulate(&s->t->p, blocks, &seed);
    for (int i = 0; i < s->t->used; i++) {
        const double x = (double)s->t->room[i], y = (double)want[i];
        if (!(fabs(x - y) <= 1e-5 * (1 + fabs(y))))
            fail_msg("%d blocks: number %d of the room is %g, not %g", blocks, i, x, y);
    }
}

/* All of memory, after the program and after the calls; the scene ends with it. */
static void simulate(const scene *s)
{
    float *before = malloc(2 * sizeof s->t->room), *want = before + ROOM;
    assert_non_null(before);
    memcpy(before, s->t->room, sizeof s->t->room);
    for (int i = 0; i < s->n; i++) make(&s->call[i]);
    memcpy(want, s->t->room, sizeof s->t->room);
    for (int blocks = 1; blocks <= TN_DECODE_MACHINE_BLOCKS; blocks++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) simulate_once(s, before, want, blocks, seed);
    free(before);
    free(s->t);
}

/* --- joined ---------------------------------------------------------------------------------------------------------------------------- */

typedef enum state { ABSENT, APART, IN_PLACE } state;

typedef struct joint {
    state state;
    bool reset;
    int row, n; /* of the conv */
} joint;

static const joint joints[] = {
    { APART, false, FIRST, HALF }, { IN_PLACE, false, FIRST, HALF }, { ABSENT, false, FIRST, HALF },
    { APART, true, FIRST, HALF },  { IN_PLACE, true, FIRST, HALF },  { IN_PLACE, false, 0, 32 },
    { APART, false, 64, 32 },      { IN_PLACE, false, 0, ROWS },     { IN_PLACE, false, 4, 42 },
    { APART, false, 8, 87 },
};

static void set_state(scene *s, int input, state where, bool reset)
{
    job *j = reader(s);
    if (where == ABSENT) j->in[input] = (tn_arg){ 0 };
    if (where == IN_PLACE) j->out[1] = arg_of(j->in[input].data, TN_F32, j->out[1].dims);
    *s->reset = reset;
}

static void joins_conv(void **given)
{
    const joint *k = *given;
    scene s = conv_scene(k->row, k->n);
    const tn_decode_step *p = s.t->p.step;
    set_state(&s, TN_CONV_STATE, k->state, k->reset);
    add_scene(&s);
    assert_int_equal(p[0].flags & (TN_DECODE_JOINED | TN_DECODE_PAIRED), TN_DECODE_JOINED);
    assert_true(p[1].op == TN_DECODE_CONV && p[1].flags == TN_DECODE_SHARED && p[1].j == k->row &&
                p[1].out_slot[0] < 0);
    assert_true(p[2].op == TN_DECODE_FETCH && p[2].message == p[0].message && p[2].n == ROWS &&
                p[3].in_slot[0] == p[2].out_slot[0] + k->row);
    assert_true(s.t->p.n == s.n + 1 && s.t->b.now.fetches == 1 &&
                s.t->b.now.barriers == 0); /* one for all that read rows */
    simulate(&s);
}

static void joins_gate(void **given)
{
    (void)given;
    for (int swapped = 0; swapped < 2; swapped++) {
        scene s = gate_scene(swapped ? lower : upper, swapped ? upper : lower, ROWS, HALF);
        const tn_decode_step *p = s.t->p.step;
        add_scene(&s);
        assert_true((p[0].flags & TN_DECODE_JOINED) && (p[0].flags & TN_DECODE_PAIRED));
        assert_true(p[1].op == TN_DECODE_GATE && p[1].flags == TN_DECODE_SHARED && p[1].j == (swapped ? HALF : 0));
        assert_true(p[2].op == TN_DECODE_FETCH && p[2].message == p[0].message && p[2].n == HALF && s.t->p.n == 4 &&
                    !s.t->b.now.barriers && s.t->b.now.sent_words == HALF); /* not as much as the rows would take */
        simulate(&s);
    }
}

/* Rows that are made anew before they are read again are not wanted either; and what blocks made before they met is there. */
static void joins_all_the_same(void **given)
{
    (void)given;
    scene s = conv_scene(FIRST, HALF);
    then(&s, copy(numbers(s.t, ROWS), s.rows, ROWS));
    then(&s, plus_one(&s, s.rows + FIRST, HALF));
    add_scene(&s);
    assert_int_equal(count(&s, TN_DECODE_LINEAR, TN_DECODE_JOINED), 1);
    simulate(&s);
    s = conv_scene(FIRST, HALF);
    first(&s, copy(numbers(s.t, K), s.x, K)); /* for which the product needs a barrier */
    first(&s, copy(numbers(s.t, HALF), reader(&s)->in[TN_CONV_BIAS].data, HALF));
    add_scene(&s);
    assert_int_equal(count(&s, TN_DECODE_LINEAR, TN_DECODE_JOINED | TN_DECODE_BARRIER), 1);
    simulate(&s);
}

/* What a joined step writes, and what it reads in memory, is as any other's: a barrier comes before it is read or overwritten. */
static void waits_for_what_is_joined(void **given)
{
    (void)given;
    for (int i = 0; i < 2; i++) {
        scene s = conv_scene(FIRST, HALF);
        then(&s, i ? unary(s.y, reader(&s)->in[TN_CONV_STATE].data, HALF)
                   : plus_one(&s, reader(&s)->out[1].data, 3 * HALF));
        add_scene(&s);
        assert_true(count(&s, TN_DECODE_LINEAR, TN_DECODE_JOINED) == 1 && has_barrier(s.t));
        simulate(&s);
    }
}

/* Scenes whose last call reads a row of what might be joined. */
static scene conv_input_is_read(void)
{
    scene s = conv_scene(FIRST, HALF);
    then(&s, plus_one(&s, s.rows + FIRST + HALF - 1, 1)); /* the last of it */
    return s;
}

static scene gate_input_is_read(void)
{
    scene s = gate_scene(upper, lower, ROWS, HALF);
    then(&s, plus_one(&s, s.rows + HALF, 8));
    return s;
}

/* ... by the blocks that would have made each, if they were not joined. */
static scene gate_input_is_copied(void)
{
    scene s = gate_scene(upper, lower, ROWS, HALF);
    then(&s, copy(s.rows, numbers(s.t, ROWS), ROWS));
    return s;
}

/* Calls that were not in sight: rows that were joined have not been sent, but they lie in memory. */
static void joined_rows_lie_in_memory(void **given)
{
    (void)given;
    for (int i = 0; i < 3; i++) {
        scene s = i == 0 ? conv_input_is_read() : i == 1 ? gate_input_is_read() : gate_input_is_copied();
        for (int k = 0; k < s.n; k++) assert_true(add(s.t, &s.call[k]));
        assert_int_equal(count(&s, TN_DECODE_LINEAR, TN_DECODE_JOINED), 1);
        assert_true(has_barrier(s.t) && last(s.t)->in_slot[0] < 0);
        simulate(&s);
    }
}

/* --- not joined ------------------------------------------------------------------------------------------------------------------------- */

static scene conv_of_more(void)
{
    scene s = conv_scene(FIRST, HALF);
    reader(&s)->in[0] = vector(s.rows + ROWS - 8, HALF); /* 8 rows, and others */
    return s;
}

static scene gate_of_fewer(void) { return gate_scene(upper, at_40, ROWS, 40); }
static scene gate_of_more(void) { return gate_scene(upper, lower, ROWS + 2, HALF); }
static scene gate_of_one_half(void) { return gate_scene(lower, lower, ROWS, HALF); }
static scene gate_by_another(void) { return gate_scene(upper, elsewhere, ROWS, HALF); }
static scene gate_of_another(void) { return gate_scene(elsewhere, lower, ROWS, HALF); }
static scene conv_askew(void) { return conv_scene(5, 42); } /* a slot of what it makes would not begin at 16 bytes */

static scene conv_bias_is_copied(void)
{
    scene s = conv_scene(FIRST, HALF);
    first(&s, copy(numbers(s.t, HALF), reader(&s)->in[TN_CONV_BIAS].data, HALF));
    return s;
}

static scene conv_state_is_held(void)
{
    scene s = conv_scene(FIRST, HALF);
    first(&s, unary(numbers(s.t, 3 * HALF), reader(&s)->in[TN_CONV_STATE].data, 3 * HALF));
    return s;
}

static scene conv_over_what_is_read(void)
{
    scene s = conv_scene(FIRST, HALF);
    first(&s, plus_one(&s, s.y, HALF));
    return s;
}

static scene conv_state_over_what_is_read(void)
{
    scene s = conv_scene(FIRST, HALF);
    first(&s, plus_one(&s, reader(&s)->out[1].data, 8));
    return s;
}

static scene gate_over_products_x(void)
{
    scene s = gate_scene(upper, lower, ROWS, HALF);
    s.call[0].in[0] = vector(s.y + 8, K); /* which others may still bring to their slots */
    return s;
}

static scene without_message(scene s)
{
    begin(s.t, SLOTS, 0);
    return s;
}

static scene conv_without_message(void) { return without_message(conv_scene(FIRST, HALF)); }

static scene gate_of_small_product(void)
{
    scene s = gate_scene(upper, upper, 8, 4);
    s.call[1].in[1] = vector(s.rows + 4, 4);
    return s;
}

static scene conv_after_another(void)
{
    scene s = conv_scene(FIRST, HALF);
    const job between = plus_one(&s, numbers(s.t, 8), 8);
    first(&s, s.call[0]);
    s.call[1] = between;
    s.product = 0;
    return s;
}

typedef struct apart {
    const char *name;
    scene (*open)(void);
} apart;

static const apart aparts[] = {
    { "conv's input is read later", conv_input_is_read },
    { "gate's input is read later", gate_input_is_read },
    { "conv from an odd row on", conv_askew },
    { "conv reaches beyond the rows", conv_of_more },
    { "gate of less than halves", gate_of_fewer },
    { "gate of rows and more", gate_of_more },
    { "gate of one half", gate_of_one_half },
    { "gate by other numbers", gate_by_another },
    { "gate of other numbers", gate_of_another },
    { "conv's bias is made by others", conv_bias_is_copied },
    { "conv's state is held in a slot", conv_state_is_held },
    { "conv over what was read", conv_over_what_is_read },
    { "conv's state over what was read", conv_state_over_what_is_read },
    { "gate over the product's x", gate_over_products_x },
    { "a product without message", conv_without_message },
    { "a small product", gate_of_small_product },
    { "another call between", conv_after_another },
};

static void stays_apart(void **given)
{
    const apart *k = *given;
    scene s = k->open();
    add_scene(&s);
    assert_int_equal(count(&s, TN_DECODE_LINEAR, TN_DECODE_JOINED), 0);
    simulate(&s);
}

/* Whatever else it reads in memory, it may not write over. */
static void refuses_own_inputs(void **given)
{
    (void)given;
    for (int i = 0; i < 8; i++) {
        scene s = i < 4 ? conv_scene(FIRST, HALF) : i == 4 ? conv_askew() : scan_scene(ROWS);
        job *j = reader(&s);
        if (i == 0) j->out[0].data = j->in[TN_CONV_BIAS].data;
        if (i == 1) j->out[0].data = j->in[TN_CONV_STATE].data;
        if (i == 2) j->out[1].data = (float *)j->in[TN_CONV_STATE].data + 4; /* not number by number */
        if (i == 3) j->out[0].data = j->in[TN_CONV_X].data;                  /* others' rows are not in a slot yet */
        if (i == 4) set_state(&s, TN_CONV_STATE, IN_PLACE, false); /* every block reads it, and one writes it */
        if (i == 5) set_state(&s, TN_GATED_STATE, IN_PLACE, false);
        if (i == 6) j->out[1].data = j->in[TN_GATED_X].data;
        if (i == 7) j->out[0].data = j->in[TN_GATED_NU].data;
        assert_true(add(s.t, &s.call[0]));
        assert_false(add(s.t, j));
        assert_true(s.t->p.n == 1 && count(&s, TN_DECODE_LINEAR, TN_DECODE_JOINED) == 0);
        free(s.t);
    }
}

static job norm_of(const scene *s, float *x, int64_t n)
{
    static const tn_norm_attr rms = { TN_NORM_RMS, 1e-6f };
    job j = { .op = &tn_op_norm,
              .attr = &rms,
              .n_in = TN_NORM_INPUTS,
              .n_out = 2,
              .in = { vector(x, n) },
              .out = { fresh(s->t, tn_shape(1, 1, n)) } };
    j.in[TN_NORM_W] = fresh(s->t, tn_shape(n));
    return j;
}

static job readout_of(const scene *s, float *c)
{
    static const tn_readout_attr a = { TN_GATE_SILU, 1, 1e-6f, 32 };
    return (job){ .op = &tn_op_readout,
                  .attr = &a,
                  .n_in = TN_READOUT_INPUTS,
                  .n_out = 1,
                  .in = { vector(c, ROWS), fresh(s->t, tn_shape(1, 1, ROWS)) },
                  .out = { fresh(s->t, tn_shape(1, 1, ROWS)) } };
}

/* The last call is this step, with so many fetches before it, and with its own. */
static void fetched(scene s, tn_decode_op op, int fetches, int joined)
{
    add_scene(&s);
    assert_int_equal(last(s.t)->op, op);
    assert_int_equal(count(&s, TN_DECODE_FETCH, 0), fetches);
    assert_int_equal(count(&s, TN_DECODE_FETCH, TN_DECODE_JOINED), joined);
    if (joined) assert_true(s.t->p.step[s.t->p.n - 2].flags == TN_DECODE_JOINED);
    simulate(&s);
}

static scene norm_scene(int64_t row, int64_t n)
{
    scene s = open_scene(ROWS, TN_ACT_NONE);
    then(&s, norm_of(&s, s.rows + row, n));
    return s;
}

/* Rows are fetched for another call, then x of the last one is made. */
static scene rows_before(scene s, bool x)
{
    const job end = s.call[1];
    s.call[1] = plus_one(&s, s.rows, ROWS);
    if (x) then(&s, linear(s.x, numbers(s.t, ROWS * K), end.in[0].data, ROWS, K));
    then(&s, end);
    return s;
}

static void joins_fetches(void **given)
{
    (void)given;
    fetched(norm_scene(0, ROWS), TN_DECODE_NORM, 1, 1);
    scene s = open_scene(ROWS, TN_ACT_NONE);
    then(&s, readout_of(&s, s.rows));
    fetched(s, TN_DECODE_READOUT, 1, 1);
    s = gate_scene(upper, lower, ROWS, HALF); /* of what is itself joined to a product */
    s.call[2] = norm_of(&s, s.y, HALF);
    fetched(s, TN_DECODE_NORM, 1, 1);
    s = conv_scene(0, ROWS);
    s.call[2] = readout_of(&s, s.y);
    fetched(s, TN_DECODE_READOUT, 1, 1);
    s = norm_scene(0, ROWS);
    s.call[1].in[TN_NORM_RESIDUAL] = vector(s.y, ROWS); /* it comes after x */
    first(&s, linear(s.x, numbers(s.t, ROWS * K), s.y, ROWS, K));
    fetched(s, TN_DECODE_NORM, 2, 1);
}

typedef enum place { MEMORY, SLOT, SENT } place;

/* A scan's x is there before its gates come. */
static void joins_scan(state where, bool reset, place x)
{
    scene s = scan_scene(ROWS);
    float *in = reader(&s)->in[TN_GATED_X].data;
    set_state(&s, TN_GATED_STATE, where, reset);
    if (x == SLOT) first(&s, unary(numbers(s.t, ROWS), in, ROWS));
    if (x == SENT) first(&s, linear(s.x, numbers(s.t, ROWS * K), in, ROWS, K));
    then(&s, plus_one(&s, s.y, ROWS));
    add_scene(&s);
    const tn_decode_step *fetch = &s.t->p.step[s.t->p.n - 3], *scan = fetch + 1;
    assert_true(fetch->op == TN_DECODE_FETCH && fetch->flags == TN_DECODE_JOINED && fetch->n == ROWS &&
                scan->op == TN_DECODE_SCAN && !scan->flags);
    assert_true(scan->in_slot[TN_GATED_RI] == fetch->out_slot[0] && (scan->in_slot[TN_GATED_X] >= 0) == (x != MEMORY));
    assert_true(count(&s, TN_DECODE_FETCH, TN_DECODE_JOINED) == 1 && s.t->b.now.fetches == (x == SENT ? 2 : 1) &&
                s.t->b.now.barriers == 0);
    assert_true(last(s.t)->in_slot[0] == scan->out_slot[0] && scan->out_slot[1] < 0);
    simulate(&s);
}

static void joins_scans(void **given)
{
    (void)given;
    for (int i = 0; i < 12; i++) joins_scan(i % 2 ? APART : ABSENT, i / 2 % 2, (place)(i / 4));
}

static void leaves_fetches_alone(void **given)
{
    (void)given;
    fetched(norm_scene(0, HALF), TN_DECODE_NORM, 1, 0); /* a part: a thread would bring numbers that others read */
    fetched(norm_scene(HALF, HALF), TN_DECODE_NORM, 1, 0);
    fetched(rows_before(norm_scene(0, ROWS), false), TN_DECODE_NORM, 1, 0);
    fetched(without_message(norm_scene(0, ROWS)), TN_DECODE_NORM, 0, 0); /* there is nothing to fetch */
    scene both = norm_scene(0, ROWS); /* its other input would be looked at before it has come */
    reader(&both)->in[TN_NORM_RESIDUAL] = vector(both.rows, ROWS);
    fetched(both, TN_DECODE_NORM, 1, 0);
    fetched(scan_scene(ROWS + 32), TN_DECODE_SCAN, 1, 0); /* more than its gates */
    fetched(rows_before(scan_scene(ROWS), false), TN_DECODE_SCAN, 1, 0);
    fetched(rows_before(scan_scene(ROWS), true), TN_DECODE_SCAN, 2, 0); /* x comes after the gates */
    fetched(without_message(scan_scene(ROWS)), TN_DECODE_SCAN, 0, 0);
}

/* Parameters and states are read from memory: one computed in this program needs a barrier. */
static void barrier_for_parameters(void **given)
{
    (void)given;
    for (int i = 0; i < 6; i++) {
        scene s = i < 3 ? norm_scene(0, ROWS) : scan_scene(ROWS);
        job *j = reader(&s);
        float *w = j->in[TN_NORM_W].data, *nu = i < 3 ? NULL : j->in[TN_GATED_NU].data,
              *before = i < 3 ? NULL : j->in[TN_GATED_STATE].data;
        if (i == 0) j->in[TN_NORM_W] = arg_of(s.rows, TN_F32, tn_shape(ROWS));  /* that is fetched for x */
        if (i == 1) first(&s, unary(numbers(s.t, ROWS), w, ROWS));              /* that every block has in a slot */
        if (i == 2) first(&s, linear(s.x, numbers(s.t, ROWS * K), w, ROWS, K)); /* that is sent */
        if (i == 3) first(&s, unary(numbers(s.t, HALF), nu, HALF));
        if (i == 4) first(&s, unary(numbers(s.t, ROWS), before, ROWS));
        if (i == 5) first(&s, copy(numbers(s.t, ROWS), before, ROWS));
        add_scene(&s);
        assert_true(has_barrier(s.t) && s.t->b.now.barriers == 1 && s.t->b.now.fetches == 0);
        for (int k = i < 3 ? TN_NORM_W : TN_GATED_NU; k < TN_DECODE_IN; k++) assert_true(last(s.t)->in_slot[k] < 0);
        simulate(&s);
    }
}

/* ... and so are keys and values, of HALF numbers. */
static void barrier_for_keys(void **given)
{
    (void)given;
    static const tn_attention_attr a = { .scale = 1 };
    for (int i = 0; i < 2; i++) {
        scene s = open_scene(ROWS, TN_ACT_NONE);
        const tn_dims heads = tn_shape(1, 1, HALF / 8, 8);
        if (i) s.call[0] = unary(numbers(s.t, ROWS), s.rows, ROWS); /* in a slot, else sent */
        then(&s,
             (job){ .op = &tn_op_attention,
                    .attr = &a,
                    .n_in = TN_ATT_INPUTS,
                    .n_out = 1,
                    .in = { fresh(s.t, heads), arg_of(s.rows, TN_F32, heads), arg_of(s.rows + HALF, TN_F32, heads) },
                    .out = { fresh(s.t, heads) } });
        add_scene(&s);
        const tn_decode_step *seen = last(s.t) - 1;
        assert_true(seen->op == TN_DECODE_SEEN && (seen->flags & TN_DECODE_BARRIER) && seen->in_slot[1] < 0 &&
                    seen->in_slot[2] < 0);
        simulate(&s);
    }
}

/* Parts of a message may end anywhere, and what is placed behind them is read at 16 bytes all the same. */
static void slots_begin_at_16(void **given)
{
    (void)given;
    scene s = conv_scene(0, 42);
    float *x = numbers(s.t, K), *more = numbers(s.t, ROWS);
    then(&s, linear(x, numbers(s.t, ROWS * K), more, ROWS,
                    K)); /* its x is brought to a slot, and its rows are fetched to one */
    then(&s, plus_one(&s, more, ROWS));
    add_scene(&s);
    assert_int_equal(count(&s, TN_DECODE_LINEAR, TN_DECODE_JOINED), 1);
    for (int i = 0; i < 2 * s.t->p.n; i++) {
        const int slot = s.t->p.step[i / 2].out_slot[i % 2];
        if (slot >= 0) assert_int_equal(slot % 4, 0);
    }
    simulate(&s);
}

void tn_tests_decode_join(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof joints / sizeof *joints; i++)
        tn_test_add(l, joins_conv, &joints[i], "decode kernel: joins conv %d", (int)i);
    for (size_t i = 0; i < sizeof aparts / sizeof *aparts; i++)
        tn_test_add(l, stays_apart, &aparts[i], "decode kernel: not joined, %s", aparts[i].name);
    tn_test_add(l, joins_gate, NULL, "decode kernel: joins gate");
    tn_test_add(l, joins_all_the_same, NULL, "decode kernel: joins what is made anew or long there");
    tn_test_add(l, waits_for_what_is_joined, NULL, "decode kernel: waits for what is joined");
    tn_test_add(l, joined_rows_lie_in_memory, NULL, "decode kernel: rows that were joined, read out of sight");
    tn_test_add(l, refuses_own_inputs, NULL, "decode kernel: joins nothing that writes over its inputs");
    tn_test_add(l, joins_fetches, NULL, "decode kernel: joins norm and readout to their fetch");
    tn_test_add(l, joins_scans, NULL, "decode kernel: joins scan to its fetch");
    tn_test_add(l, leaves_fetches_alone, NULL, "decode kernel: fetches that are not joined");
    tn_test_add(l, barrier_for_parameters, NULL, "decode kernel: a barrier for parameters that were just made");
    tn_test_add(l, barrier_for_keys, NULL, "decode kernel: a barrier for keys and values that were just made");
    tn_test_add(l, slots_begin_at_16, NULL, "decode kernel: slots begin at 16 bytes");
}
