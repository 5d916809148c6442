/* Decoding one token in one kernel. A network that reads one token of one sequence makes about a hundred small calls in a row; as kernels of
 * their own each costs a launch and a round trip through memory, and the GPU is idle most of the time. Here consecutive calls of a plan
 * become steps of one program, and one kernel with a block on every multiprocessor runs it.
 *
 * A step that reads much (a large weight, a matrix state) is shared by all blocks. The others work on vectors of a few thousand numbers:
 * every block computes them for itself, keeps the result in its shared memory (a slot), and one block also writes it to memory.
 * A vector that blocks compute together is sent as well: each number is one word with a sequence flag, the number of the launch. A block that
 * needs the vector (a fetch) waits for those words alone, and the flag says that a word has arrived. A grid barrier is needed only where a
 * block reads what was not sent, or would overwrite what another block may still read.
 * A step that reads a product's rows one by one or in pairs (conv, gate) is joined to the product and runs in the block that computes the
 * row; its result is sent instead. A norm, readout or scan is joined to the fetch of its vector. Parameters and states stay in memory, states
 * as f32. The builder decides all this from addresses. Weights of later products are loaded into shared memory meanwhile.
 *
 * Any call may be refused; it then runs as its own kernel between two programs. Batches and backward passes are not supported. */
#ifndef TN_PLAN_DECODE_H
#define TN_PLAN_DECODE_H

#include <tenon/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TN_DECODE_STEPS = 224,
    TN_DECODE_IN = 7,
    TN_DECODE_OUT = 2,
    TN_DECODE_LONGEST = 8192,               /* numbers that every block works through */
    TN_DECODE_SENT = 2 * TN_DECODE_LONGEST, /* ... of one message; a gate makes half as many of them */
    TN_DECODE_NORMED = 2048,                /* ... over which it sums */
    TN_DECODE_TAPS = 4,                     /* of conv */
    TN_DECODE_ANGLES = 128,                 /* of rope */
    TN_DECODE_HEADS = 512,                  /* of attention; blocks, too, are no more */
    TN_DECODE_HALF = 512 * 258              /* floats of half of the scratch: parts of 256 numbers and 2 more */
};

/* Threads of a block. The first of them, the front, fetch vectors and do what every block does for itself; the others make products and outer, and
 * are ready for them when the vector is. Steps that have much to read are done by both. */
enum {
    TN_DECODE_FRONT = 8 * 32,
    TN_DECODE_BACK = 8,     /* warps of the others */
    TN_DECODE_PLACES = 3,   /* for weights that one of them has under way, at most; 4 where rows are cut */
    TN_DECODE_PIECE = 2048, /* bytes of a row, where rows are cut */
    TN_DECODE_PAIRS = 4     /* of numbers of a vector that is summed over that a thread of the front has, at most */
};

typedef enum tn_decode_op {
    TN_DECODE_EMBED,  /* out0 (n) = row in0[0] of in1 (k,n); NaN where there is none */
    TN_DECODE_NORM,   /* as norm: x, residual, w, b -> y, sum (n); kind: tn_norm_kind; a: eps */
    TN_DECODE_LINEAR, /* as linear: x (k), w (n,k), bias, residual (n) -> y (n); kind: tn_act */
    TN_DECODE_CONV, /* as conv_causal: x (n), w (k,n), bias, state, reset -> y (n), final (k-1,n); kind: 1 with silu */
    TN_DECODE_SCAN, /* as scan_gated: x, ri (2n), nu, omega (n), state (2n), reset -> c, final (2n) */
    TN_DECODE_READOUT, /* as readout: c, z, x (n), skip, gain (n) -> y (n); kind: tn_gate_kind; k: group; a: scale; b: eps */
    TN_DECODE_GATE,   /* x, z -> x act(z) (n) */
    TN_DECODE_UNARY,  /* kind, a, b as tn_unary_attr */
    TN_DECODE_BINARY, /* in0 (n), in1 (k): number i goes with number (i / m) % k of in1 */
    TN_DECODE_OUTER, /* as outer: q, k (n,k), v (n,m), alpha (n), state (n,k,m), reset, write (n) -> o (n,m), final; kind: 1 raw gates */
    TN_DECODE_COPY, /* in0 -> out0 (n) */
    TN_DECODE_ROPE, /* as rope: x (n,k), position -> y; kind: 1 interleaved, and 2 * tn_decode_scaling; a + b: logarithm (2) of the
                     * base; c: stretch; d: stretch_context, or yarn's amplitude; m, j: the pairs between which yarn blends */
    TN_DECODE_PUT, /* in0 (n) to row in1[0] of each of out0 (n/m,k,m), by every block; where there is none, NaN to the nearest */
    TN_DECODE_SEEN, /* attention: q (n,m), keys and values (j,k,m), in3[0] or k of them -> scratch, part by part; a: scale; b: window or 0 */
    TN_DECODE_SEEN_ALL,   /* ... and of all parts out0 (n,m) */
    TN_DECODE_BEST_PARTS, /* a block's largest of in0 (n) into the scratch */
    TN_DECODE_BEST, /* out0[0] = where the largest of all is, -1: a NaN; kind of these four: which half of the scratch */
    TN_DECODE_FETCH, /* message (n) -> slot out_slot[0], when all of it has come */
    TN_DECODE_OPS
} tn_decode_op;

/* How rope's frequencies are scaled. */
typedef enum tn_decode_scaling {
    TN_DECODE_AS_IS,
    TN_DECODE_LLAMA3,
    TN_DECODE_LINEARLY,
    TN_DECODE_YARN
} tn_decode_scaling;

enum {
    TN_DECODE_BARRIER = 1, /* blocks wait for each other before it */
    TN_DECODE_SHARED = 2,  /* each block does a part */
    TN_DECODE_STAGED = 4,  /* linear: weights come through shared memory */
    TN_DECODE_FETCHES = 8, /* linear: x is first brought to slot out_slot[1] */
    TN_DECODE_JOINED =
        16, /* done together with the step behind it: linear with conv or gate, fetch with norm, readout or scan */
    TN_DECODE_PAIRED = 32, /* linear: rows i and i + n/2 belong together */
    TN_DECODE_BESIDE = 64, /* copy: may be done at the same time as the copies right before it */
    TN_DECODE_SAME = 128   /* put, seen: its integer is that of the last such step; rope: its angles are */
};

typedef struct tn_decode_step {
    void *in[TN_DECODE_IN], *out[TN_DECODE_OUT];            /* NULL: absent, not wanted */
    int16_t in_slot[TN_DECODE_IN], out_slot[TN_DECODE_OUT]; /* place in the slots, in floats, or -1: in memory only */
    uint8_t in_type[TN_DECODE_IN], out_type[TN_DECODE_OUT]; /* tn_dtype */
    uint8_t op, kind, flags;
    int32_t n, k, m,
        j; /* j of a conv or gate that is joined to a product: the product's row that is the first of in0 */
    float a, b, c, d;
    uint64_t *
        message; /* (n), or (n,m) of outer: where out0 is sent to, NULL: nowhere; of a fetch: where it comes from. Of a product that is
                     * joined: (n) with what the conv makes in place of its rows, or (n/2) what the gate makes */
} tn_decode_step;

/* Goes to the kernel as its argument: at most 32,764 bytes. */
typedef struct tn_decode_program {
    int32_t n, staged_n;
    int32_t slot_floats, stage_bytes; /* of shared memory: the slots, and what weights go through */
    int32_t place_bytes, places,
        sets;            /* of what a warp has of the latter, and how many times two rows it makes at once */
    int32_t piece_bytes; /* of a row in a place, where rows are cut; 0: a place has all of a row */
    uint32_t *barrier;   /* (3): two counters, 0 between programs, and how many programs have run */
    float *scratch;      /* (2,TN_DECODE_HALF) for what parts leave for the step that joins them */
    uint8_t staged[TN_DECODE_STEPS]; /* steps with TN_DECODE_STAGED */
    tn_decode_step step[TN_DECODE_STEPS];
    int32_t
        pairs; /* of a PLAIN program: of numbers that a thread of the front has of the longest vector that is summed over; 0: it is not PLAIN */
    bool sees; /* it looks at caches, or turns or writes what goes there */
} tn_decode_program;

/* PLAIN: what most networks are made of, for which the kernel has code that is short, so that it stays near: products of bf16 that come through shared
 * memory, activations and gates by silu or sigmoid, RMS norms without bias, caches of bf16, nothing elementwise that is not joined to a product. */

/* --- building ----------------------------------------------------------------------------------------------------------- */

enum { TN_DECODE_RANGES = TN_DECODE_STEPS * (TN_DECODE_IN + TN_DECODE_OUT), TN_DECODE_HELD = 96 };

/* What a program may use. */
typedef struct tn_decode_space {
    int32_t slot_floats, stage_bytes; /* of shared memory: at most 32,000 and any */
    int32_t message_words;
    uint64_t *message; /* (message_words), at 16 bytes: 0 when the first program that uses it begins */
} tn_decode_space;

/* Where things are after the steps so far. */
typedef struct tn_decode_places {
    int barriers, fetches;
    int n_ranges, since; /* ranges [since, n_ranges) were touched since blocks met */
    int32_t sent_words;
    int half;               /* of the scratch that was last used */
    bool busy[2];           /* halves that were read since blocks met */
    struct tn_decode_held { /* vectors that every block has in a slot */
        uintptr_t begin, end;
        uint8_t type;
        int16_t slot;
        int32_t size; /* floats of the slot */
    } held[TN_DECODE_HELD];
    int n_held;
    struct tn_decode_sent { /* vectors that were sent since blocks met */
        uintptr_t begin, end;
        uint8_t type;
        uint64_t *message;
        uint64_t *whole; /* (words): what is fetched with it */
        int32_t words;
    } sent[2 * TN_DECODE_STEPS];
    int n_sent;
} tn_decode_places;

typedef struct tn_decode_builder {
    tn_decode_program *program;
    tn_decode_space space;
    tn_decode_places now;
    struct tn_decode_range { /* memory that steps read or wrote, in their order */
        uintptr_t begin, end;
        bool written, by_all; /* by_all: every block wrote all of it, and sees it */
        int32_t rows;         /* not 0: each block wrote its own of so many */
    } range[TN_DECODE_RANGES];
} tn_decode_builder;

void tn_decode_begin(tn_decode_builder *b, tn_decode_program *p, const tn_decode_space *space);
/* c (n): the call, then those that come after it, which tell what is read later. False: the call cannot be part of this program; nothing has
 * changed. */
bool tn_decode_add(tn_decode_builder *b, const tn_op *op, const tn_call *c, size_t n);
/* After the last call: how weights go through shared memory, and what the kernel has to be able to. */
void tn_decode_finish(tn_decode_program *p);

/* --- describing: what a call is as steps, without slots and barriers ------------------------------------------------------ */

typedef struct tn_decode_sizes {
    int64_t in[TN_DECODE_IN], out[TN_DECODE_OUT]; /* numbers */
    bool keeps[TN_DECODE_OUT];                    /* out is wanted in a slot */
} tn_decode_sizes;

enum { TN_DECODE_MOST = 16 }; /* steps of a call */

/* Steps of the call, 0: it has no such form. */
int tn_decode_describe(const tn_op *op, const tn_call *c, tn_decode_step *step, tn_decode_sizes *size);

/* --- CUDA ------------------------------------------------------------------------------------------------------------------- */

/* Queues as many of the n calls as make a program worth running, *took: how many, 0: none (always where there is no CUDA). */
tn_status tn_decode_run_cuda(const tn_op *const *op, const tn_call *call, size_t n, size_t *took);

#ifdef __cplusplus
}
#endif
#endif
