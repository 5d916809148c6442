/* For authors of ops: the row that registers an op, what its functions see, and how its public call adds a node.
 *
 * An op computes outputs from inputs; its backward kernel computes the gradients of all wanted inputs at once. The
 * planner asks `grad` which forward tensors that kernel will read, and keeps only those alive. */
#ifndef TENON_OP_H
#define TENON_OP_H

#include <tenon/graph.h>
#include <tenon/settings.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TN_MAX_ARGS = 64 }; /* inputs, or outputs, of one node: one bit each in a mask */

typedef struct tn_type {
    tn_dtype dtype;
    tn_dims dims;
    bool absent;    /* an optional input that was not given */
    bool trainable; /* a gradient may be asked of it */
    bool live;      /* only some of its rows may be alive */
} tn_type;

/* A node's types: what infer checks and fills, and what the other functions read. */
typedef struct tn_sig {
    const void *attr;
    int n_in, n_out;
    const tn_type *in;
    tn_type *out;    /* infer fills n_out and out[i].dtype, out[i].dims (dtype starts as the activation type) */
    int threads;     /* for workspace: the most threads a context may have */
    tn_dtype round;  /* matrix operands are rounded to this type: TN_F32 (as they are), TN_BF16 or TN_F16 */
    bool bf16x3;     /* ... or split into three bf16 parts, where that is faster */
    bool portable;   /* CPU: products in portable C (opt.gemm_kernels=off) */
    bool makes_out;  /* backward: the kernel writes the outputs too, see tn_op.late_out */
    bool mixes_rows; /* infer sets it where a TN_OP_ROWWISE op works along axis 0: no live extent passes through */
} tn_sig;

/* Which forward tensors a backward kernel reads, a bit per index. */
typedef struct tn_uses {
    uint64_t in, out;
    uint64_t passes; /* inputs whose gradient is that of output 0 as it is: the kernel may not be asked for it */
    bool equal; /* inputs 0 and 1 have the same gradient: the kernel may be asked for din[0] alone, as that of both */
} tn_uses;

typedef struct tn_cost {
    double flops, flops_backward; /* multiply-add = 2; backward with all gradients wanted */
    bool varies; /* these are the most there can be: how many it takes, the numbers decide (tn_op.spent) */
} tn_cost;

/* One tensor as a kernel sees it. data is NULL when it is absent, not wanted, or (dout) zero. */
typedef struct tn_arg {
    void *data;
    tn_dtype dtype;
    tn_dims dims;
    int64_t stride[TN_MAX_RANK]; /* in elements */
    const int32_t *live;         /* rows alive along axis 0, or NULL: all */
} tn_arg;

typedef struct tn_call {
    const void *attr;
    int n_in, n_out;
    const tn_arg *in;    /* forward inputs (backward: data only where `grad` said so) */
    const tn_arg *out;   /* forward: to be written; an unwanted auxiliary output has data NULL. backward: to be read */
    const tn_arg *dout;  /* backward: gradients of the outputs; NULL data means zero */
    const tn_arg *din;   /* backward: gradients to write; NULL data means not wanted */
    uint64_t accumulate; /* backward: bit i says add to din[i] instead of overwriting it */
    void *work;          /* 64-byte aligned, as many bytes as `work` asked for */
    size_t work_bytes;
    void *host;     /* the same in the host's memory, whatever the device: as many bytes as `host` asked for */
    tn_dtype round; /* as in tn_sig, like the next two */
    bool bf16x3, portable;
    bool tf32;      /* CUDA: f32 operands of products may be rounded to tf32 */
    bool makes_out; /* backward: out is to be written here, where its data is not NULL; no forward call came before */
    struct tn_pool *pool; /* CPU */
    void *stream;         /* CUDA: a tn_cuda_queue */
} tn_call;

typedef tn_status tn_kernel(const tn_call *c);

typedef enum tn_op_flags {
    TN_OP_STRIDED = 1,       /* kernels take any strides; otherwise the planner copies what is not contiguous */
    TN_OP_ROWWISE = 2,       /* row i of the outputs depends on row i of input 0 only: live extents pass through */
    TN_OP_INPLACE = 4,       /* output 0 may share the memory of input 0, and din 0 that of dout 0 */
    TN_OP_AUX_FROM_1 = 8,    /* outputs 1.. are kept for the backward pass only; not computed when nobody reads them */
    TN_OP_OPTIONAL_OUT = 16, /* any output nobody reads has data NULL and is not computed */
    TN_OP_WRITES_IN0 = 32, /* output 0 is input 0, a state or cache that the kernel changes in its own type and strides;
                             such a node is never dropped or repeated, and runs at its place in the order of nodes */
    TN_OP_FULL = 64,       /* kernels take no half precision on any device: the planner converts */
    TN_OP_COSTLY =
        128 /* takes long for what its outputs hold: layers that are recomputed keep them (opt.keep_costly) */
} tn_op_flags;

/* What the planner leaves as it is; other tensors are copied first. */
typedef enum tn_layout {
    TN_LAYOUT_ANY = 0,
    TN_LAYOUT_ROWS = 1,  /* the last axis is contiguous */
    TN_LAYOUT_MATRIX = 2 /* the last axis or the one before it is contiguous */
} tn_layout;

/* The elementwise function of a node, where some kernel knows it as its neighbour's. */
typedef enum tn_function {
    TN_FN_OTHER,
    TN_FN_ADD,
    TN_FN_MUL,
    TN_FN_NEG,
    TN_FN_SILU,
    TN_FN_SIGMOID,
    TN_FN_SOFTPLUS
} tn_function;

/* What the planner's passes ask of an op's kernels besides. Inputs and outputs by number, where 0 stands for none. */
typedef struct tn_fusion {
    tn_function (*function)(const void *attr);
    const struct tn_absorb_rule *absorbs; /* absorb.c: ops/absorb.h; the last one has no name */
    int sum_in, sum_out; /* fuse.c: input 0 may be a sum with this input; this output then gets it, the rest move up */
    int columns_in;      /* columns.c: backward, din of this gets the sum of din 0's rows */
    int bias_in;         /* columns.c: backward, din of this is the sum of dout 0's rows, unless pre_out is read */
    int pre_out;         /* slope.c: output 0 is an activation of this one (plus after_in, where that is given), */
    int after_in;
    bool (*is_gelu)(const void *attr); /* ... gelu; */
    int slope_in;                      /* slope.c: backward, din 0 is multiplied by gelu's slope at this input */
    int weight_in, packed_in;          /* pack.c: a weight, and the same as pack_weight leaves it; */
    bool (*packs)(const tn_sig *s, bool backward); /* ... is the product faster with it? */
    uint64_t rounded_in; /* pack.c: weights and biases that follow the type of input 0 (CUDA) */
    uint64_t some_rows;  /* plan.c: inputs of which it reads a few rows only */
} tn_fusion;

typedef struct tn_op {
    const char *name;
    size_t attr_bytes;
    unsigned flags;
    uint64_t half_in; /* inputs whose bf16/f16 data the CPU's kernels read themselves; elsewhere the planner converts.
                         CUDA's kernels read and write f32, bf16 and f16 wherever a tensor of theirs has it. */
    tn_status (*infer)(tn_sig *s);
    void (*grad)(const tn_sig *s, uint64_t want, tn_uses *u); /* NULL: no gradient passes */
    void (*cost)(const tn_sig *s, tn_cost *c);                /* NULL: one operation per output element */
    struct {
        tn_kernel *forward, *backward;
        size_t (*work)(const tn_sig *s, bool backward); /* bytes of tn_call.work; NULL: none */
        tn_layout layout; /* of a TN_OP_STRIDED op: what its kernels on this device take */
        size_t (*host)(const tn_sig *s, bool backward); /* bytes of tn_call.host; NULL: none */
        bool (*takes)(const tn_sig *s);                 /* false: not these types and shapes; NULL: all */
    } kernel[TN_DEVICES]; /* a device without kernels: the plain twin is built, or the plan says so */
    /* The twin made of plain ops, built instead when the switch is off; both NULL for plain ops. */
    const char *switch_name;
    const tn_setting *switch_row;
    tn_status (*plain)(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out);
    void (*release)(void *attr); /* frees what attr owns (bodies); NULL for plain data */
    uint64_t strided_in; /* without TN_OP_STRIDED: inputs, and their gradients, whose rows may lie anywhere; only their
                            last axis is contiguous */
    uint64_t
        late_out; /* not 0: the backward kernel can make the outputs on its way, if it reads none of them but these;
                          where nobody needs them earlier, the forward kernel is then not called (makes_out) */
    int aux_from; /* not 0: outputs from this one on carry no gradient, and may hold anything where nothing reads them */
    /* Where tn_cost.varies: the FLOPs of a call that has just run, from the counts that it left; NaN: it left none. For profiles, whose data
       the host can read; NULL: nobody knows. */
    double (*spent)(const tn_call *c, bool backward);
    tn_fusion fusion;
} tn_op;

/* In a tn_op: .switch_name and .switch_row of an op with a plain twin. */
#define TN_OP_SWITCH(name, help)                                                                                       \
    .switch_name = (name), .switch_row = &(const tn_setting)TN_SETTING_SWITCH(name, "on", help)

/* Adds a node; attr is copied. out[] gets the results (n_out as infer said). Returns the first output. */
tn_ref tn_graph_add(tn_graph *g, const char *file, int line, const tn_op *op, const void *attr, const tn_ref *in,
                    int n_in, tn_ref *out);
/* Ops by name, from ops.def; NULL at the end and for unknown names. */
const tn_op *tn_op_find(const char *name);
const tn_op *tn_op_at(size_t i);

/* Records an error of the graph (the first one is kept), with the caller's position. */
void tn_graph_fail(tn_graph *g, const char *file, int line, tn_status code, const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 5, 6)))
#endif
    ;
/* A number for random streams: the same for the same place in the same graph, also when recomputed. */
uint64_t tn_graph_stream(tn_graph *g);
tn_ref tn_graph_seed(tn_graph *g); /* i64 (2): seed and step (each batch has its own), as a run-time input */
/* i64 (2): seed and optimizer step. All batches of one step have the same: what draws from it has the sample's number in its key. */
tn_ref tn_graph_update_seed(tn_graph *g);

/* Rows alive: axis 0 is cut to *live; all leading axes are flattened. rank 0 counts as one row. */
static inline int64_t tn_arg_rows(const tn_arg *a)
{
    int64_t n = a->dims.rank > 0 ? a->dims.dim[0] : 1;
    if (a->live && *a->live < n) n = *a->live < 0 ? 0 : *a->live;
    for (int i = 1; i < a->dims.rank - 1; i++) n *= a->dims.dim[i];
    return a->dims.rank == 1 ? 1 : n;
}

/* Elements alive: axis 0 is cut to *live. */
static inline int64_t tn_arg_count(const tn_arg *a)
{
    int64_t n = a->dims.rank > 0 ? a->dims.dim[0] : 1;
    if (a->live && *a->live < n) n = *a->live < 0 ? 0 : *a->live;
    for (int i = 1; i < a->dims.rank; i++) n *= a->dims.dim[i];
    return n;
}

/* A run-time scalar, or `none` where it was not given. */
static inline float tn_arg_scalar(const tn_arg *a, float none) { return a->data ? *(const float *)a->data : none; }

static inline bool tn_arg_contiguous(const tn_arg *a)
{
    int64_t n = 1;
    for (int i = a->dims.rank - 1; i >= 0; i--) {
        if (a->dims.dim[i] != 1 && a->stride[i] != n) return false;
        n *= a->dims.dim[i];
    }
    return true;
}

#ifdef __cplusplus
}
#endif
#endif
