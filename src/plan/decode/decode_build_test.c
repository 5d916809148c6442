/* The builder and the descriptions on calls made by hand: what is refused, where vectors lie, where barriers are. Programs of whole models:
 * tests/families/token_test.c. Message: decode_message_test.c. */
#include "ops/argmax/argmax.h"
#include "ops/cache_write/cache_write.h"
#include "ops/conv_causal/conv_causal.h"
#include "ops/embed/embed.h"
#include "ops/norm/norm_cpu.h"
#include "ops/outer/outer.h"
#include "ops/readout/readout.h"
#include "ops/readout/readout_args.h"
#include "ops/rope/rope.h"
#include "ops/scan_gated/scan_gated.h"
#include "decode_bench.h"

static job argmax(float *x, float *y, int64_t n)
{
    return (job){
        .op = &tn_op_argmax, .n_in = 1, .n_out = 1, .in = { vector(x, n) }, .out = { arg_of(y, TN_I32, tn_shape(1, 1)) }
    };
}

static job good_unary(bench *t) { return unary(numbers(t, 16), numbers(t, 16), 16); }

static job good_norm(bench *t)
{
    static const tn_norm_attr a = { TN_NORM_RMS, 1e-6f };
    return (job){ .op = &tn_op_norm,
                  .attr = &a,
                  .n_in = TN_NORM_INPUTS,
                  .n_out = 2,
                  .in = { fresh(t, tn_shape(1, 1, 16)) },
                  .out = { fresh(t, tn_shape(1, 1, 16)), fresh(t, tn_shape(1, 1, 1)) } };
}

static job good_linear(bench *t) { return linear(numbers(t, 16), numbers(t, 8 * 16), numbers(t, 8), 8, 16); }

static job good_readout(bench *t)
{
    static const tn_readout_attr a = { TN_GATE_SILU, 1, 1e-6f, 32 };
    return (job){ .op = &tn_op_readout,
                  .attr = &a,
                  .n_in = TN_READOUT_INPUTS,
                  .n_out = 1,
                  .in = { fresh(t, tn_shape(1, 1, 96)), fresh(t, tn_shape(1, 1, 96)) },
                  .out = { fresh(t, tn_shape(1, 1, 96)) } };
}

static job good_rope(bench *t)
{
    static const tn_rope_attr a = { .base = 10000, .stretch_context = 8192, .amplitude = 1 };
    return (job){ .op = &tn_op_rope,
                  .attr = &a,
                  .n_in = 2,
                  .n_out = 1,
                  .in = { fresh(t, tn_shape(1, 1, 2, 8)) },
                  .out = { fresh(t, tn_shape(1, 1, 2, 8)) } };
}

static job good_copy(bench *t) { return copy(numbers(t, 16), numbers(t, 16), 16); }

static job good_argmax(bench *t) { return argmax(numbers(t, 16), numbers(t, 1), 16); }

static job good_embed(bench *t)
{
    return (job){ .op = &tn_op_embed,
                  .n_in = 2,
                  .n_out = 1,
                  .in = { arg_of(numbers(t, 1), TN_I32, tn_shape(1, 1)), fresh(t, tn_shape(5, 16)) },
                  .out = { fresh(t, tn_shape(1, 1, 16)) } };
}

static job good_conv(bench *t)
{
    static const tn_conv_causal_attr a = { true };
    return (job){ .op = &tn_op_conv_causal,
                  .attr = &a,
                  .n_in = TN_CONV_INPUTS,
                  .n_out = 2,
                  .in = { fresh(t, tn_shape(1, 1, 16)), fresh(t, tn_shape(4, 16)) },
                  .out = { fresh(t, tn_shape(1, 1, 16)), fresh(t, tn_shape(1, 3, 16)) } };
}

static job good_scan(bench *t)
{
    static const tn_scan_gated_attr a = { 0 };
    return (job){ .op = &tn_op_scan_gated,
                  .attr = &a,
                  .n_in = TN_GATED_INPUTS,
                  .n_out = 2,
                  .in = { fresh(t, tn_shape(1, 1, 16)), fresh(t, tn_shape(1, 1, 16)), fresh(t, tn_shape(8)),
                          fresh(t, tn_shape(8)), fresh(t, tn_shape(1, 16)) },
                  .out = { fresh(t, tn_shape(1, 1, 16)), fresh(t, tn_shape(1, 16)) } };
}

static job good_outer(bench *t)
{
    static const tn_outer_attr a = { .chunk = 64, .raw = true };
    return (job){ .op = &tn_op_outer,
                  .attr = &a,
                  .n_in = TN_OUTER_INPUTS,
                  .n_out = 3,
                  .in = { fresh(t, tn_shape(1, 1, 2, 4)),
                          fresh(t, tn_shape(1, 1, 2, 4)),
                          fresh(t, tn_shape(1, 1, 2, 8)),
                          fresh(t, tn_shape(1, 1, 2)),
                          fresh(t, tn_shape(1, 2, 4, 8)),
                          { 0 },
                          fresh(t, tn_shape(1, 1, 2, 1)) },
                  .out = { fresh(t, tn_shape(1, 1, 2, 8)), fresh(t, tn_shape(1, 2, 4, 8)) } };
}

/* A cache of 2 heads, 5 rows and 4 numbers, seen with rows first. */
static job good_write(bench *t)
{
    job j = { .op = &tn_op_cache_write, .n_in = 3, .n_out = 1, .out = { fresh(t, tn_shape(1, 5, 2, 4)) } };
    j.out[0].stride[1] = 4;
    j.out[0].stride[2] = 20;
    j.in[0] = j.out[0];
    j.in[1] = fresh(t, tn_shape(1, 1, 2, 4));
    j.in[2] = arg_of(numbers(t, 1), TN_I32, tn_shape(1));
    return j;
}

/* --- refusals ------------------------------------------------------------------------------------------------------------------ */

static void resize(tn_arg *a, tn_dims dims) { *a = arg_of(a->data, a->dtype, dims); }

static void strided(job *j) { j->in[0].stride[2] = 2; }
static void longest(job *j)
{
    resize(&j->in[0], tn_shape(TN_DECODE_LONGEST + 1)), resize(&j->out[0], tn_shape(TN_DECODE_LONGEST + 1));
}
static void backward(job *j) { j->backward = true; }
static void doubled(job *j) { j->in[0].dtype = TN_F64; }
static void two_rows(job *j) { resize(&j->in[0], tn_shape(1, 2, tn_dims_count(j->in[0].dims) / 2)); }
static void two_tokens(job *j) { resize(&j->in[0], tn_shape(1, 2, 2, tn_dims_count(j->in[0].dims) / 4)); }
static void twice(job *j) { resize(&j->in[0], tn_shape(1, 2, 16)); }
static void two_ids(job *j) { resize(&j->in[0], tn_shape(1, 2)); }
static void narrow(job *j) { resize(&j->in[0], tn_shape(1, 1, 12)), resize(&j->in[1], tn_shape(8, 12)); }
static void askew(job *j) { j->in[1].data = (float *)j->in[1].data + 1; }
static void turned(job *j) { j->in[1].stride[0] = 1, j->in[1].stride[1] = 8; }
static void packed(job *j) { j->in[TN_LINEAR_PACKED] = j->in[1]; }
static void kept_before(job *j) { j->out[1] = j->out[0]; }
static void half_weights(job *j) { j->in[1].dtype = TN_F16; }
static void integers(job *j) { j->in[0].dtype = j->out[0].dtype = TN_I32; }
static void kept_states(job *j) { j->out[TN_OUTER_KEPT] = j->out[0]; }
static void columns(job *j) { j->in[TN_NORM_COLUMNS] = j->in[0]; }
static void other_view(job *j) { j->out[0].stride[2] = 24; }
static void two_written(job *j) { resize(&j->in[1], tn_shape(1, 2, 2, 2)); }

static void longer(job *j)
{
    resize(&j->in[0], tn_shape(1, 1, TN_DECODE_NORMED + 32)), resize(&j->out[0], tn_shape(1, 1, TN_DECODE_NORMED + 32));
}
static void five_taps(job *j) { resize(&j->in[1], tn_shape(5, 16)), resize(&j->out[1], tn_shape(1, 4, 16)); }

/* No f16, and no states of bf16. */
static void half_vector(job *j) { j->in[0].dtype = TN_F16; }
static void half_result(job *j) { j->out[0].dtype = TN_F16; }
static void half_gain(job *j) { j->in[TN_NORM_W] = arg_of(j->in[0].data, TN_F16, tn_shape(16)); }
static void half_bias(job *j) { j->in[TN_LINEAR_BIAS] = arg_of(j->in[0].data, TN_F16, tn_shape(8)); }
static void half_omega(job *j) { j->in[TN_GATED_OMEGA].dtype = TN_F16; }
static void short_before_conv(job *j) { j->in[TN_CONV_STATE] = arg_of(j->in[1].data, TN_BF16, tn_shape(1, 3, 16)); }
static void short_before(job *j) { j->in[4].dtype = TN_BF16; } /* scan's and outer's */

static void living(job *j)
{
    static const int32_t one = 1;
    j->in[0].live = &one;
}

static void added(job *j)
{
    static const tn_copy_attr a = { TN_F32, true };
    j->attr = &a;
}

static void stretched(job *j) /* by more digits than a float has */
{
    static const tn_rope_attr a = { .base = 10000, .stretch = 8.1, .stretch_context = 8192, .amplitude = 1 };
    j->attr = &a;
}

static void louder(job *j)
{
    static const tn_rope_attr a = { .base = 10000, .stretch = 1, .stretch_context = 8192, .amplitude = 1.5 };
    j->attr = &a;
}

static void odd_groups(job *j)
{
    static const tn_readout_attr a = { TN_GATE_SILU, 1, 1e-6f, 48 };
    j->attr = &a;
}

typedef struct refusal {
    const char *name;
    job (*good)(bench *t);
    void (*spoil)(job *j);
} refusal;

static const refusal refusals[] = {
    { "numbers apart", good_unary, strided },
    { "a live extent", good_unary, living },
    { "too many numbers", good_unary, longest },
    { "a backward call", good_unary, backward },
    { "doubles", good_unary, doubled },
    { "two rows of norm", good_norm, two_rows },
    { "sums of columns", good_norm, columns },
    { "two rows of linear", good_linear, twice },
    { "12 numbers of linear", good_linear, narrow },
    { "weights askew", good_linear, askew },
    { "weights turned", good_linear, turned },
    { "packed weights", good_linear, packed },
    { "f16 weights", good_linear, half_weights },
    { "numbers before gelu", good_linear, kept_before },
    { "groups of 48", good_readout, odd_groups },
    { "a rope with an odd stretch", good_rope, stretched },
    { "a rope that also scales", good_rope, louder },
    { "two tokens of rope", good_rope, two_tokens },
    { "a copy that adds", good_copy, added },
    { "a copy of integers", good_copy, integers },
    { "two rows of argmax", good_argmax, two_rows },
    { "two tokens of embed", good_embed, two_ids },
    { "two tokens of conv", good_conv, two_rows },
    { "two tokens of outer", good_outer, two_tokens },
    { "states that are kept", good_outer, kept_states },
    { "another view of a cache", good_write, other_view },
    { "two rows into a cache", good_write, two_written },
    { "a norm of too many", good_norm, longer },
    { "five taps of conv", good_conv, five_taps },
    { "an f16 vector", good_unary, half_vector },
    { "an f16 result", good_unary, half_result },
    { "f16 of norm", good_norm, half_vector },
    { "f16 of linear", good_linear, half_vector },
    { "f16 taps of conv", good_conv, half_weights },
    { "an f16 gain of norm", good_norm, half_gain },
    { "an f16 bias of linear", good_linear, half_bias },
    { "an f16 omega of scan", good_scan, half_omega },
    { "a bf16 state of conv", good_conv, short_before_conv },
    { "a bf16 state of scan", good_scan, short_before },
    { "a bf16 state of outer", good_outer, short_before },
};

static void is_refused(void **state)
{
    const refusal *r = *state;
    bench *t = open_bench(1024);
    job j = r->good(t);
    const job first = good_unary(t);
    assert_true(add(t, &first));
    assert_true(add(t, &j)); /* as it should be, it is taken */
    begin(t, 1024, MESSAGE);
    assert_true(add(t, &first));
    tn_decode_builder *before = malloc(sizeof *before);
    assert_non_null(before);
    memcpy(before, &t->b, sizeof *before);
    r->spoil(&j);
    assert_false(add(t, &j));
    assert_memory_equal(before, &t->b, sizeof *before);
    assert_int_equal(t->p.n, 1);
    free(before);
    free(t);
}

/* --- descriptions ------------------------------------------------------------------------------------------------------------------ */

/* What the GPU's plans alone ask for comes to its place. */
static void describes_what_is_absorbed(void **state)
{
    (void)state;
    bench *t = open_bench(1024);
    const job o = good_outer(t), c = good_conv(t), w = good_write(t);
    assert_true(add(t, &o));
    assert_true(last(t)->kind == 1 && last(t)->in[6] == o.in[TN_OUTER_WRITE].data && !last(t)->in[5]);
    assert_true(last(t)->n == 2 && last(t)->k == 4 && last(t)->m == 8 && last(t)->flags == TN_DECODE_SHARED);
    assert_true(add(t, &c));
    assert_true(last(t)->kind == 1 && last(t)->k == 4 && !last(t)->in[3] && last(t)->out[1] &&
                last(t)->out_slot[1] < 0);
    assert_true(add(t, &w));
    assert_true(last(t)->n == 8 && last(t)->k == 5 && last(t)->m == 4);
    free(t);
}

typedef struct broadcast {
    tn_dims y, b;
    int64_t k, m; /* 0: refused */
} broadcast;

static const broadcast broadcasts[] = {
    { { 3, { 2, 3, 4 } }, { 3, { 2, 3, 4 } }, 24, 1 }, { { 3, { 2, 3, 4 } }, { 1, { 4 } }, 4, 1 },
    { { 3, { 2, 3, 4 } }, { 2, { 3, 4 } }, 12, 1 },    { { 3, { 2, 3, 4 } }, { 3, { 2, 1, 1 } }, 2, 12 },
    { { 3, { 2, 3, 4 } }, { 2, { 3, 1 } }, 3, 4 },     { { 3, { 2, 3, 4 } }, { 3, { 1, 1, 1 } }, 1, 24 },
    { { 3, { 2, 3, 4 } }, { 0, { 0 } }, 1, 24 },       { { 3, { 2, 3, 4 } }, { 3, { 2, 1, 4 } }, 0, 0 },
    { { 3, { 1, 1, 24 } }, { 1, { 24 } }, 24, 1 },     { { 4, { 1, 1, 6, 4 } }, { 4, { 1, 1, 6, 1 } }, 6, 4 },
};

static void broadcasts_as_binary(void **state)
{
    const broadcast *r = *state;
    static const tn_binary_attr a = { TN_BINARY_RSUB };
    bench *t = open_bench(1024);
    job j = { .op = &tn_op_binary,
              .attr = &a,
              .n_in = 2,
              .n_out = 1,
              .in = { fresh(t, r->y), fresh(t, r->b) },
              .out = { fresh(t, r->y) } };
    assert_int_equal(add(t, &j), r->k > 0);
    if (r->k) {
        float want[24];
        uint64_t seed = 3;
        const tn_call c = call_of(&j);
        assert_true(last(t)->k == r->k && last(t)->m == r->m);
        assert_ok(tn_op_binary.kernel[TN_CPU].forward(&c));
        memcpy(want, j.out[0].data, sizeof want);
        memset(j.out[0].data, 0xff, sizeof want);
        tn_decode_simulate(&t->p, 3, &seed);
        assert_memory_equal(want, j.out[0].data, sizeof want); /* a difference of floats is one rounding either way */
    }
    free(t);
}

/* Scalings of rope, as the op's kernel has them. */
static const tn_rope_attr ropes[] = {
    { .base = 10000, .stretch_context = 8192, .amplitude = 1 },
    { .base = 500000, .stretch = 32, .stretch_context = 8192, .amplitude = 1 },
    { .base = 500000, .stretch = 8, .stretch_context = 64, .amplitude = 1, .interleaved = true },
    { .base = 10000, .stretch = 2.5, .stretch_context = 8192, .amplitude = 1, .scaling = TN_ROPE_LINEAR },
    { .base = 10000,
      .stretch = 4,
      .stretch_context = 64,
      .low = 1,
      .high = 3,
      .amplitude = 1.13,
      .scaling = TN_ROPE_YARN },
    { .base = 10000,
      .stretch = 4,
      .stretch_context = 64,
      .low = 2,
      .high = 2.001,
      .amplitude = 1,
      .scaling = TN_ROPE_YARN },
};

static void turns_as_rope(void **state)
{
    static const int32_t position = 4321;
    bench *t = open_bench(1024);
    float want[32], *x = numbers(t, 32);
    uint64_t seed = 3;
    job j = good_rope(t);
    j.attr = *state;
    j.in[0] = arg_of(x, TN_F32, tn_shape(1, 1, 2, 16));
    j.in[1] = arg_of((void *)&position, TN_I32, tn_shape(1));
    j.out[0] = fresh(t, tn_shape(1, 1, 2, 16));
    for (int i = 0; i < 32; i++) x[i] = (float)(i % 7) - 2.5f;
    const tn_call c = call_of(&j);
    assert_true(add(t, &j));
    assert_ok(tn_op_rope.kernel[TN_CPU].forward(&c));
    memcpy(want, j.out[0].data, sizeof want);
    memset(j.out[0].data, 0xff, sizeof want);
    tn_decode_simulate(&t->p, 3, &seed);
    for (int i = 0; i < 32; i++) assert_true(fabsf(want[i] - ((const float *)j.out[0].data)[i]) < 2e-6f);
    free(t);
}

/* --- slots ------------------------------------------------------------------------------------------------------------------------ */

static void full_slots_begin_anew(void **state)
{
    (void)state;
    bench *t = open_bench(64);
    float *x = numbers(t, 40), *y = numbers(t, 40), *z = numbers(t, 40), *more = numbers(t, 80);
    const job first = unary(x, y, 40), second = unary(y, z, 40), too_long = unary(more, numbers(t, 80), 80);
    assert_true(add(t, &first));
    assert_true(!has_barrier(t) && last(t)->out_slot[0] == 0 && last(t)->in_slot[0] < 0);
    assert_true(add(t, &second)); /* no room next to the first: a barrier, and it is read from memory */
    assert_true(has_barrier(t) && last(t)->out_slot[0] == 0 && last(t)->in_slot[0] < 0);
    assert_false(add(t, &too_long));
    assert_true(t->p.n == 2 && t->b.now.barriers == 1 && t->b.now.n_held == 1);
    free(t);
}

/* More than there is room for, and more vectors than the builder remembers, of which it forgets those that nothing reads: the number 224
 * still comes out. */
static void steps_end(void **state)
{
    (void)state;
    uint64_t seed = 9;
    bench *t = open_bench(4096);
    float *x[TN_DECODE_STEPS + 2];
    for (int i = 0; i < TN_DECODE_STEPS + 2; i++) x[i] = numbers(t, 4);
    for (int i = 0; i <= TN_DECODE_STEPS; i++) {
        const job j = unary(x[i], x[i + 1], 4);
        assert_int_equal(add(t, &j), i < TN_DECODE_STEPS);
    }
    assert_int_equal(t->p.n, TN_DECODE_STEPS);
    assert_true(t->b.now.barriers == 0 && t->b.now.n_held <= TN_DECODE_HELD);
    tn_decode_simulate(&t->p, 7, &seed);
    for (int i = 0; i < 4; i++) assert_float_equal(x[TN_DECODE_STEPS][i], x[0][i] + TN_DECODE_STEPS, 1e-3f);
    free(t);
}

static void views_lie_in_slots(void **state)
{
    (void)state;
    static const tn_gate_attr silu = { TN_GATE_SILU };
    bench *t = open_bench(4096);
    float *x = numbers(t, 5), *y = numbers(t, 5), *a = numbers(t, 32), *h = numbers(t, 32), *w = numbers(t, 8 * 8);
    const job odd = unary(x, y, 5), whole = unary(a, h, 32), at_4 = linear(h + 4, w, numbers(t, 8), 8, 8),
              at_2 = linear(h + 2, w, numbers(t, 8), 8, 8);
    const job gate = { .op = &tn_op_gate,
                       .attr = &silu,
                       .n_in = 2,
                       .n_out = 1,
                       .in = { vector(h, 15), vector(h + 15, 15) },
                       .out = { fresh(t, tn_shape(1, 1, 15)) } };
    assert_true(add(t, &odd) && add(t, &whole));
    assert_int_equal(last(t)->out_slot[0], 8); /* slots begin at 16 bytes */
    assert_true(add(t, &gate));
    assert_true(!has_barrier(t) && last(t)->in_slot[0] == 8 && last(t)->in_slot[1] == 23);
    assert_true(add(t, &at_4)); /* small: every block for itself, from where it lies */
    assert_true(last(t)->flags == 0 && last(t)->in_slot[0] == 12 && last(t)->in_slot[1] < 0);
    assert_true(add(t, &at_2)); /* not at 16 bytes: brought there from memory, when it is there */
    assert_true(last(t)->flags == (TN_DECODE_BARRIER | TN_DECODE_FETCHES) && last(t)->in_slot[0] < 0 &&
                last(t)->out_slot[1] % 4 == 0);
    free(t);
}

/* --- barriers ------------------------------------------------------------------------------------------------------------------------ */

static void copies_read_slots(void **state)
{
    (void)state;
    bench *t = open_bench(4096);
    float *x = numbers(t, 32), *y = numbers(t, 32), *z = numbers(t, 32);
    const job make = unary(x, y, 32), keep = copy(y, z, 32), again = copy(z, numbers(t, 32), 32),
              over = unary(numbers(t, 32), x, 32);
    assert_true(add(t, &make) && add(t, &keep));
    assert_true(!has_barrier(t) && last(t)->in_slot[0] == 0 && last(t)->out_slot[0] < 0);
    assert_false(last(t)->flags & TN_DECODE_BESIDE);
    assert_true(add(t, &again)); /* a block copies the part that it wrote, when it has */
    assert_false(last(t)->flags & (TN_DECODE_BARRIER | TN_DECODE_BESIDE));
    const job beside = copy(y, numbers(t, 32), 32);
    assert_true(add(t, &beside));
    assert_true((last(t)->flags & (TN_DECODE_BARRIER | TN_DECODE_BESIDE)) == TN_DECODE_BESIDE);
    assert_true(add(t, &over)); /* another block may still read x */
    assert_true(has_barrier(t));
    free(t);
}

static void reads_come_before_writes(void **state)
{
    (void)state;
    bench *t = open_bench(4096);
    float *x = numbers(t, 32), *y = numbers(t, 32);
    const job make = unary(x, y, 32), over = unary(numbers(t, 32), x, 32), in_place = unary(y, y, 32);
    assert_true(add(t, &make) && add(t, &over));
    assert_true(has_barrier(t));    /* another block may still read x */
    assert_true(add(t, &in_place)); /* every block reads its own y */
    assert_true(!has_barrier(t) && last(t)->in_slot[0] == 0 && last(t)->out_slot[0] != 0);
    const job after = unary(y, numbers(t, 32), 32);
    assert_true(add(t, &after)); /* the new one */
    assert_int_equal(last(t)->in_slot[0], t->p.step[2].out_slot[0]);
    begin(t, 4096, MESSAGE);
    assert_false(add(t, &in_place)); /* of memory: one block might write before another one reads */
    assert_int_equal(t->p.n, 0);
    free(t);
}

/* Its residual apart, a product may not lie over what it reads. */
static void residuals_in_place(void **state)
{
    (void)state;
    bench *t = open_bench(4096);
    float *x = numbers(t, 80), *w = numbers(t, 80 * 80), *y = numbers(t, 80);
    job j = linear(x, w, y, 80, 80), over_x = linear(x, w, x, 80, 80);
    j.in[TN_LINEAR_RESIDUAL] = vector(y, 80);
    assert_true(add(t, &j));
    assert_int_equal(last(t)->flags, TN_DECODE_SHARED | TN_DECODE_STAGED | TN_DECODE_FETCHES);
    j.in[TN_LINEAR_RESIDUAL] = vector(y + 4, 80); /* not number by number */
    assert_false(add(t, &j));
    assert_true(add(t, &over_x)); /* every block has x in a slot */
    assert_true(has_barrier(t) && last(t)->in_slot[0] >= 0);
    begin(t, 4096, MESSAGE);
    assert_false(add(t, &over_x));
    free(t);
}

/* Weights that the program makes are not there when they would be fetched. */
static void made_weights_wait(void **state)
{
    (void)state;
    bench *t = open_bench(4096);
    float *from = numbers(t, 80 * 80), *w = numbers(t, 80 * 80), *x = numbers(t, 80), *y = numbers(t, 80);
    const job make = copy(from, w, 80 * 80), large = linear(x, w, y, 80, 80), small = linear(x, w, y, 8, 80),
              other = unary(numbers(t, 8), numbers(t, 8), 8);
    assert_true(add(t, &make) && add(t, &other));
    assert_false(add(t, &large));
    assert_true(add(t, &small)); /* read when they are needed */
    assert_true(has_barrier(t));
    assert_false(add(t, &large)); /* blocks have met, but it is fetched before that */
    begin(t, 4096, MESSAGE);
    assert_true(add(t, &large));
    begin(t, 4096, MESSAGE);
    const job make_few = unary(from, w, 64), few = linear(x, w, y, 8, 8);
    assert_true(add(t, &make_few) && add(t, &few)); /* a slot holds them, but products read memory */
    assert_true(has_barrier(t) && last(t)->in_slot[1] < 0);
    free(t);
}

/* Each block for itself, so that it need not wait before it reads. */
static void caches_are_written_by_all(void **state)
{
    (void)state;
    bench *t = open_bench(4096);
    const job put = good_write(t);
    float *cache = put.out[0].data, *seen = numbers(t, 40), *x = put.in[1].data;
    const job look = copy(cache, seen, 40), over = copy(numbers(t, 40), cache, 40);
    *(int32_t *)put.in[2].data = 3;
    assert_true(add(t, &put) && add(t, &look) && !has_barrier(t));
    for (int blocks = 1; blocks <= 8; blocks++) {
        uint64_t seed = (uint64_t)blocks;
        for (int i = 0; i < 8; i++) x[i] = (float)(10 * blocks + i);
        tn_decode_simulate(&t->p, blocks, &seed);
        for (int i = 0; i < 8; i++) assert_float_equal(seen[i / 4 * 20 + 3 * 4 + i % 4], 10 * blocks + i, 0);
    }
    assert_true(add(t, &over) && has_barrier(t)); /* others may still write and read it */
    begin(t, 4096, MESSAGE);
    job product = linear(numbers(t, 80), numbers(t, 40 * 80), numbers(t, 40), 40, 80);
    product.in[TN_LINEAR_BIAS] = arg_of(cache, TN_F32, tn_shape(40));
    assert_true(add(t, &put) && add(t, &product) &&
                has_barrier(t)); /* what products read besides x is looked at early */
    free(t);
}

static void two_argmax(void **state)
{
    (void)state;
    for (int blocks = 1; blocks <= 7; blocks += 3) {
        uint64_t seed = (uint64_t)blocks;
        bench *t = open_bench(4096);
        float *x = numbers(t, 90), *y = numbers(t, 90), *at = numbers(t, 1), *then = numbers(t, 1);
        const job first = argmax(x, at, 90), second = argmax(y, then, 90);
        x[71] = y[3] = y[60] = 9;
        assert_true(add(t, &first) && add(t, &second));
        assert_true(t->p.n == 4 && t->b.now.barriers == 2);
        tn_decode_simulate(&t->p, blocks, &seed);
        assert_true(*(int32_t *)(void *)at == 71 && *(int32_t *)(void *)then == 3);
        x[5] = NAN;
        for (int i = 0; i < 90; i++) y[i] = -INFINITY;
        tn_decode_simulate(&t->p, blocks, &seed);
        assert_true(*(int32_t *)(void *)at == -1 && *(int32_t *)(void *)then == 0);
        free(t);
    }
}

void tn_tests_decode_build(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        tn_test_add(l, is_refused, &refusals[i], "decode kernel: refuses %s", refusals[i].name);
    for (size_t i = 0; i < sizeof broadcasts / sizeof *broadcasts; i++)
        tn_test_add(l, broadcasts_as_binary, &broadcasts[i], "decode kernel: broadcast %d", (int)i);
    for (size_t i = 0; i < sizeof ropes / sizeof *ropes; i++)
        tn_test_add(l, turns_as_rope, &ropes[i], "decode kernel: rope %zu", i);
    tn_test_add(l, describes_what_is_absorbed, NULL, "decode kernel: raw gates, silu in conv and caches seen by rows");
    tn_test_add(l, full_slots_begin_anew, NULL, "decode kernel: full slots begin anew");
    tn_test_add(l, steps_end, NULL, "decode kernel: no more steps than there is room for");
    tn_test_add(l, views_lie_in_slots, NULL, "decode kernel: views of held vectors");
    tn_test_add(l, copies_read_slots, NULL, "decode kernel: copies of held vectors");
    tn_test_add(l, reads_come_before_writes, NULL, "decode kernel: reads come before writes");
    tn_test_add(l, residuals_in_place, NULL, "decode kernel: residuals in place");
    tn_test_add(l, made_weights_wait, NULL, "decode kernel: weights that the program makes");
    tn_test_add(l, caches_are_written_by_all, NULL, "decode kernel: caches that every block writes");
    tn_test_add(l, two_argmax, NULL, "decode kernel: two argmax in one program");
}
