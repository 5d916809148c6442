/* The builder's message on calls made by hand: what is fetched instead of a barrier, and slots that are used again. */
#include "decode_bench.h"

/* y = x, by a product that blocks share. */
static job same(bench *t, float *x, float *y)
{
    float *w = numbers(t, 80 * 80);
    for (int i = 0; i < 80 * 80; i++) w[i] = i / 80 == i % 80;
    return linear(x, w, y, 80, 80);
}

static const tn_decode_step *before_last(const bench *t) { return &t->p.step[t->p.n - 2]; }

static void joint_vectors_are_fetched(void **state)
{
    (void)state;
    bench *t = open_bench(4096);
    float *x = numbers(t, 80), *y = numbers(t, 80), *z = numbers(t, 80), *end = numbers(t, 80);
    const job make = same(t, x, y), use = unary(y, z, 80), again = unary(y, numbers(t, 80), 80), then = same(t, z, end),
              out = unary(end, x, 80);
    assert_true(add(t, &make));
    assert_true(last(t)->message == t->message && t->b.now.sent_words == 80);
    assert_true(add(t, &use));
    assert_true(t->p.n == 3 && before_last(t)->op == TN_DECODE_FETCH && before_last(t)->n == 80 &&
                before_last(t)->message == t->message);
    assert_true(!has_barrier(t) && last(t)->in_slot[0] == before_last(t)->out_slot[0] && last(t)->in_slot[0] >= 0);
    assert_true(add(t, &again)); /* it was fetched before */
    assert_true(t->p.n == 4 && add(t, &then));
    assert_true(t->p.n == 5 && last(t)->message == t->message + 80);
    assert_true(add(t, &out)); /* over x, which others may still bring to their slots */
    assert_true(has_barrier(t) && t->p.n == 6 && last(t)->in_slot[0] < 0 && t->b.now.barriers == 1 &&
                t->b.now.fetches == 1);
    for (int blocks = 1; blocks <= 8; blocks++) {
        uint64_t seed = (uint64_t)blocks;
        const float first = x[3], other = x[79];
        tn_decode_simulate(&t->p, blocks, &seed);
        assert_float_equal(end[3], first + 1, 1e-6f);
        assert_float_equal(x[79], other + 2, 1e-6f);
    }
    free(t);
}

static void views_of_fetched_vectors(void **state)
{
    (void)state;
    static const tn_gate_attr silu = { TN_GATE_SILU };
    bench *t = open_bench(4096);
    float *x = numbers(t, 80), *y = numbers(t, 80), *w = numbers(t, 8 * 8);
    const job make = same(t, x, y), at_4 = linear(y + 4, w, numbers(t, 8), 8, 8),
              at_2 = linear(y + 2, w, numbers(t, 8), 8, 8);
    const job gate = { .op = &tn_op_gate,
                       .attr = &silu,
                       .n_in = 2,
                       .n_out = 1,
                       .in = { vector(y + 40, 36), vector(y, 36) },
                       .out = { fresh(t, tn_shape(1, 1, 36)) } };
    assert_true(add(t, &make) && add(t, &gate)); /* both parts by one fetch of the whole */
    assert_true(t->p.n == 3 && !has_barrier(t) && before_last(t)->n == 80);
    assert_true(last(t)->in_slot[1] == before_last(t)->out_slot[0] && last(t)->in_slot[0] == last(t)->in_slot[1] + 40);
    assert_true(add(t, &at_4));
    assert_true(t->p.n == 4 && !has_barrier(t) && last(t)->in_slot[0] == t->p.step[1].out_slot[0] + 4);
    assert_true(add(t, &at_2)); /* not at 16 bytes: from memory */
    assert_true(t->p.n == 5 && has_barrier(t) && (last(t)->flags & TN_DECODE_FETCHES));
    begin(t, 4096, MESSAGE);
    const job across = unary(y + 40, numbers(t, 80), 80);
    assert_true(add(t, &make) && add(t, &across)); /* more than the message has */
    assert_true(t->p.n == 2 && has_barrier(t));
    free(t);
}

/* Slots for three vectors, of a chain of eight: those that nothing reads any more make room, and x + 1, which the last step reads, stays. */
static void slots_are_used_again(void **state)
{
    (void)state;
    static const tn_binary_attr sum = { TN_BINARY_ADD };
    bench *t = open_bench(3 * 80);
    float *v[10];
    for (int i = 0; i < 10; i++) v[i] = numbers(t, 80);
    const job a = unary(v[0], v[1], 80), b = same(t, v[1], v[2]), c = unary(v[2], v[3], 80), d = same(t, v[3], v[4]),
              e = unary(v[4], v[5], 80), f = unary(v[5], v[6], 80), g = unary(v[6], v[7], 80);
    const job h = { .op = &tn_op_binary,
                    .attr = &sum,
                    .n_in = 2,
                    .n_out = 1,
                    .in = { vector(v[7], 80), vector(v[1], 80) },
                    .out = { vector(v[8], 80) } };
    add_all(t, (const job *const[]){ &a, &b, &c, &d, &e, &f, &g, &h }, 8);
    assert_true(t->b.now.barriers == 0 && t->b.now.fetches == 2 && t->p.n == 10 &&
                last(t)->in_slot[1] == t->p.step[0].out_slot[0]);
    for (int blocks = 1; blocks <= 8; blocks++) {
        uint64_t seed = (uint64_t)blocks;
        memset(v[1], 0xff, sizeof(float) * 80 * 8);
        tn_decode_simulate(&t->p, blocks, &seed);
        for (int i = 0; i < 80; i++) assert_float_equal(v[8][i], 2 * v[0][i] + 6, 1e-5f);
    }
    begin(t, 2 * 80, MESSAGE); /* with one less, x + 1 must be read from memory once blocks have met */
    add_all(t, (const job *const[]){ &a, &b, &c, &d, &e, &f, &g, &h }, 8);
    assert_true(t->b.now.barriers > 0 && last(t)->in_slot[1] < 0);
    for (int blocks = 1; blocks <= 8; blocks++) {
        uint64_t seed = (uint64_t)blocks;
        memset(v[1], 0xff, sizeof(float) * 80 * 8);
        tn_decode_simulate(&t->p, blocks, &seed);
        for (int i = 0; i < 80; i++) assert_float_equal(v[8][i], 2 * v[0][i] + 6, 1e-5f);
    }
    free(t);
}

static void message_that_is_full(void **state)
{
    (void)state;
    bench *t = open_bench(4096);
    float *x = numbers(t, 80), *y = numbers(t, 80), *z = numbers(t, 80), *w = numbers(t, (TN_DECODE_SENT + 8) * 8),
          *many = numbers(t, TN_DECODE_SENT + 8);
    const job first = same(t, x, y), second = same(t, x, z), use_y = unary(y, numbers(t, 80), 80),
              use_z = unary(z, numbers(t, 80), 80);
    const job large = linear(x, w, many, TN_DECODE_SENT + 8, 8), use_some = unary(many, numbers(t, 80), 80);
    begin(t, 4096, 159);
    assert_true(add(t, &first) && last(t)->message && add(t, &second));
    assert_true(!last(t)->message && t->b.now.sent_words == 80);
    assert_true(add(t, &use_y) && !has_barrier(t) && t->b.now.fetches == 1);
    assert_true(add(t, &use_z) && has_barrier(t) && last(t)->in_slot[0] < 0);
    tn_decode_begin(&t->b, &t->p, &(tn_decode_space){ 4096, 1 << 14, 1 << 20, t->message });
    assert_true(add(t, &large) && !last(t)->message); /* longer than a message may be */
    assert_true(add(t, &use_some) && has_barrier(t));
    free(t);
}

/* What was sent is not what lies there now. */
static void message_that_is_old(void **state)
{
    (void)state;
    bench *t = open_bench(4096);
    float *x = numbers(t, 80), *y = numbers(t, 80), *z = numbers(t, 80), *other = numbers(t, 80);
    const job make = same(t, x, y), use = unary(y, z, 80), over = copy(other, y, 80), again = unary(y, x, 80);
    assert_true(add(t, &make) && add(t, &use) && add(t, &over));
    assert_true(has_barrier(t));
    assert_true(add(t, &again)); /* neither the slot nor the message */
    assert_true(has_barrier(t) && last(t)->in_slot[0] < 0 && t->b.now.fetches == 1);
    for (int blocks = 1; blocks <= 8; blocks++) {
        uint64_t seed = (uint64_t)blocks;
        tn_decode_simulate(&t->p, blocks, &seed);
        for (int i = 0; i < 80; i++) assert_float_equal(x[i], other[i] + 1, 1e-6f);
    }
    free(t);
}

void tn_tests_decode_message(tn_test_list *l)
{
    tn_test_add(l, joint_vectors_are_fetched, NULL, "decode kernel: joint vectors are fetched");
    tn_test_add(l, views_of_fetched_vectors, NULL, "decode kernel: views of fetched vectors");
    tn_test_add(l, slots_are_used_again, NULL, "decode kernel: slots are used again");
    tn_test_add(l, message_that_is_full, NULL, "decode kernel: message memory that is full");
    tn_test_add(l, message_that_is_old, NULL, "decode kernel: message of what was overwritten");
}
