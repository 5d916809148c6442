/* One driver for the tests of every op. An op's test file says only what varies: rows of shapes and tolerances, how to
 * call the op, a double-precision oracle of its forward pass, and properties. The driver gives every row
 *
 *   forward against the oracle           gradients against central differences of the oracle
 *   the same bits three times            1 thread = 2 threads
 *   strided views of every input         gradients added to what is there
 *   bf16 (GPU: f16) inputs and outputs   NaN where the oracle has NaN
 *   time and bytes (with TENON_TIMES=1)
 *
 * Error of a tensor: max|x - ref| / max|ref|. */
#ifndef TN_OPTEST_H
#define TN_OPTEST_H

#include "testlib.h"

#include <tenon/op.h>

enum { TN_CASE_DIMS = 8, TN_IO_MAX = 48 };

typedef struct tn_case {
    const char *name;
    int64_t dim[TN_CASE_DIMS]; /* meaning is the op's own: its test file says which is which */
    uint32_t flags;            /* the op's own, and the ones below */
    float f32, bf16;           /* tolerances, f16 has that of bf16; 0 = not run in that type */
} tn_case;

enum {
    TN_NO_NAN = 1u << 31,   /* skip the NaN check (documented in the op's header) */
    TN_NO_VIEWS = 1u << 30, /* skip strided inputs */
    TN_FEW = 1u << 29,      /* oracle is slow: few difference quotients */
    TN_NO_GRAD = 1u << 28,  /* forward only */
    TN_SLOW = 1u << 27,     /* tests digits, not memory: left out of builds with sanitizers, where it takes seconds */
};

/* What `build` and `oracle` see. Indices count calls of tn_test_input and tn_test_output. */
typedef struct tn_op_io tn_op_io;

typedef enum tn_fill_kind {
    TN_FILL_NORMAL,   /* N(0,1) */
    TN_FILL_UNIFORM,  /* U(lo, hi) */
    TN_FILL_INT,      /* integers in [lo, hi) as TN_I32, TN_I64 or TN_U8; never differentiated */
    TN_FILL_CONSTANT, /* lo everywhere */
} tn_fill_kind;

typedef struct tn_fill_spec {
    tn_fill_kind kind;
    double lo, hi;
    bool constant;  /* no gradient is checked by this input */
    tn_dtype dtype; /* for TN_FILL_INT: TN_I32 (default), TN_I64 or TN_U8; for frozen halves: TN_BF16 or TN_F16 */
} tn_fill_spec;

/* Declares the next input; the graph's tensor is returned (a strided view in the view check). */
tn_ref tn_test_input(tn_op_io *io, tn_dims dims, tn_fill_spec fill);
/* Declares the next output. Float outputs are compared and, unless `fixed`, seeded with a random cotangent. */
void tn_test_output(tn_op_io *io, tn_ref y);
tn_graph *tn_test_graph(tn_op_io *io);

/* The oracle's side: inputs as doubles (integers too), outputs to fill (count known from the graph). */
typedef struct tn_oracle {
    const double *in[TN_IO_MAX];
    double *out[TN_IO_MAX];
    int64_t n_in[TN_IO_MAX], n_out[TN_IO_MAX];
} tn_oracle;

typedef struct tn_property {
    const char *name;
    void (*run)(void);
} tn_property;

typedef struct tn_op_test {
    const char *op;
    const tn_case *cases;
    size_t n_cases;
    void (*build)(tn_op_io *io, const tn_case *c);
    void (*oracle)(const tn_case *c, tn_oracle *o);
    /* Optional, for rows too long for difference quotients: dout[k] are cotangents, din[i] gradients to fill. */
    void (*oracle_grad)(const tn_case *c, const tn_oracle *o, double *const *dout, double *const *din);
    /* Optional: changes an input's random numbers (masks, sorted indices, ...). */
    void (*adjust)(const tn_case *c, int input, double *x, int64_t n);
    const tn_property *properties;
    size_t n_properties;
} tn_op_test;

/* Adds all checks of all rows, and the properties, to the list. */
void tn_optest_add(tn_test_list *l, const tn_op_test *t);

/* For properties: run a graph made by `build` once on given inputs and copy the outputs out.
 * inputs[i] and outputs[k] are f32 (or i32 for integer tensors) in the order of tn_test_input/tn_test_output. */
void tn_optest_run(const tn_op_test *t, const tn_case *c, int threads, const void *const *inputs, void *const *outputs,
                   void *const *gradients, const float *const *cotangents);

#define TN_COUNT(a) (sizeof(a) / sizeof *(a))

#endif
