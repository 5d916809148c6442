/* Calls made by hand and the memory they lie in, for tests of a token's builder (plan/decode/decode.h). Header only. */
#ifndef TN_DECODE_BENCH_H
#define TN_DECODE_BENCH_H

#include "ops/copy/copy.h"
#include "decode_machine.h"

/* A call with its arguments. */
typedef struct job {
    const tn_op *op;
    const void *attr;
    int n_in, n_out;
    tn_arg in[8], out[4];
    bool backward;
} job;

enum { ROOM = 1 << 18, MESSAGE = 1024 };

typedef struct bench {
    tn_decode_program p;
    tn_decode_builder b;
    _Alignas(16) float room[ROOM]; /* where vectors lie */
    _Alignas(16) uint64_t message[MESSAGE];
    uint32_t barrier[3];
    int used;
} bench;

static inline void begin(bench *t, int32_t slot_floats, int32_t message_words)
{
    tn_decode_begin(&t->b, &t->p, &(tn_decode_space){ slot_floats, 1 << 14, message_words, t->message });
    t->p.barrier = t->barrier;
}

static inline bench *open_bench(int32_t slot_floats)
{
    bench *t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);
    assert_non_null(t);
    memset(t, 0, sizeof *t);
    for (int i = 0; i < ROOM; i++) t->room[i] = (float)(i * 37 % 101) / 50 - 1;
    begin(t, slot_floats, MESSAGE);
    return t;
}

/* Memory of its own for so many numbers, at 16 bytes. */
static inline float *numbers(bench *t, int64_t n)
{
    float *x = t->room + t->used;
    t->used += (int)((n + 3) / 4 * 4);
    assert_true(t->used <= ROOM);
    return x;
}

static inline tn_arg arg_of(void *data, tn_dtype type, tn_dims dims)
{
    tn_arg a = { .data = data, .dtype = type, .dims = dims };
    int64_t step = 1;
    for (int i = dims.rank - 1; i >= 0; i--) {
        a.stride[i] = step;
        step *= dims.dim[i];
    }
    return a;
}

static inline tn_arg vector(float *x, int64_t n) { return arg_of(x, TN_F32, tn_shape(1, 1, n)); }

static inline tn_arg fresh(bench *t, tn_dims dims) { return arg_of(numbers(t, tn_dims_count(dims)), TN_F32, dims); }

static inline tn_call call_of(const job *j)
{
    return (tn_call){ .attr = j->attr,
                      .n_in = j->n_in,
                      .n_out = j->n_out,
                      .in = j->in,
                      .out = j->out,
                      .dout = j->backward ? j->out : NULL };
}

static inline bool add(bench *t, const job *j)
{
    const tn_call c = call_of(j);
    return tn_decode_add(&t->b, j->op, &c, 1);
}

/* All of them, each with those after it in sight. */
static inline void add_all(bench *t, const job *const *j, size_t n)
{
    tn_call c[16];
    assert_true(n <= 16);
    for (size_t i = 0; i < n; i++) c[i] = call_of(j[i]);
    for (size_t i = 0; i < n; i++) assert_true(tn_decode_add(&t->b, j[i]->op, c + i, n - i));
}

static inline const tn_decode_step *last(const bench *t) { return &t->p.step[t->p.n - 1]; }

static inline bool has_barrier(const bench *t) { return last(t)->flags & TN_DECODE_BARRIER; }

/* --- calls ------------------------------------------------------------------------------------------------------------------ */

/* y = x + 1 */
static inline job unary(float *x, float *y, int64_t n)
{
    static const tn_unary_attr a = { TN_UNARY_AFFINE, 1, 1 };
    return (
        job){ .op = &tn_op_unary, .attr = &a, .n_in = 1, .n_out = 1, .in = { vector(x, n) }, .out = { vector(y, n) } };
}

static inline job linear(float *x, float *w, float *y, int64_t n, int64_t k)
{
    static const tn_linear_attr a = { TN_ACT_NONE };
    return (job){ .op = &tn_op_linear,
                  .attr = &a,
                  .n_in = TN_LINEAR_INPUTS,
                  .n_out = 2,
                  .in = { vector(x, k), arg_of(w, TN_F32, tn_shape(n, k)) },
                  .out = { vector(y, n) } };
}

static inline job copy(float *x, float *y, int64_t n)
{
    static const tn_copy_attr a = { TN_F32, false };
    return (
        job){ .op = &tn_op_copy, .attr = &a, .n_in = 1, .n_out = 1, .in = { vector(x, n) }, .out = { vector(y, n) } };
}

#endif
