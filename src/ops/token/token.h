/* A token's step in one kernel. A network that reads one token of one sequence does about a hundred small things one after the other;
 * as kernels of their own each of them costs a launch and a round through memory, and the GPU waits for most of the time.
 * Here neighbouring calls of a plan become steps of one program, and one kernel with a block on every multiprocessor runs it.
 *
 * A step with much to read (a large weight, a matrix state) is shared by all blocks; the others, on vectors of a few thousand numbers, are
 * done by every block for itself: their results stay in its shared memory (a slot), and one block writes them to memory besides.
 * A vector that blocks make together is also mailed: each number as one word with the number of the launch beside it, so that a block
 * which needs the vector (a fetch) waits for its words alone and sees from a word itself that it has come. Blocks meet (a barrier over
 * the whole grid) only where one needs of another what was not mailed, or would overwrite what another one may still read.
 * What reads a product's rows one by one or two by two (conv, gate) is done with them, by the block that makes the row, and what comes of
 * it is mailed instead; a norm, readout or scan is done with the fetch that brings its vector. Parameters and states
 * lie in memory, states as f32.
 * The builder decides that from addresses; weights of the products ahead are on their way into shared memory meanwhile.
 *
 * Any call may be refused; it is then a kernel of its own between two programs. Not for more than one row, nor for backward passes. */
#ifndef TN_OPS_TOKEN_H
#define TN_OPS_TOKEN_H

#include <tenon/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TN_TOKEN_STEPS = 224,
    TN_TOKEN_IN = 7,
    TN_TOKEN_OUT = 2,
    TN_TOKEN_LONGEST = 8192,  /* numbers that every block works through, and those of one mail */
    TN_TOKEN_NORMED = 2048,   /* ... over which it sums */
    TN_TOKEN_TAPS = 4,        /* of conv */
    TN_TOKEN_HEADS = 512,     /* of attention; blocks, too, are no more */
    TN_TOKEN_HALF = 512 * 258 /* floats of half of the scratch: parts of 256 numbers and 2 more */
};

/* Threads of a block. The first of them, the front, fetch vectors and do what every block does for itself; the others make products and outer, and
 * are ready for them when the vector is. Steps that have much to read are done by both. */
enum {
    TN_TOKEN_FRONT = 8 * 32,
    TN_TOKEN_BACK = 8,   /* warps of the others */
    TN_TOKEN_PLACES = 3, /* for weights that one of them has under way, at most */
    TN_TOKEN_PAIRS = 2   /* of words of a mail that a thread of the front asks for at once */
};

typedef enum tn_token_op {
    TN_TOKEN_EMBED,  /* out0 (n) = row in0[0] of in1 (k,n); NaN where there is none */
    TN_TOKEN_NORM,   /* as norm: x, residual, w, b -> y, sum (n); kind: tn_norm_kind; a: eps */
    TN_TOKEN_LINEAR, /* as linear: x (k), w (n,k), bias, residual (n) -> y (n); kind: tn_act */
    TN_TOKEN_CONV,   /* as conv_causal: x (n), w (k,n), bias, state, reset -> y (n), final (k-1,n); kind: 1 with silu */
    TN_TOKEN_SCAN,   /* as scan_gated: x, ri (2n), nu, omega (n), state (2n), reset -> c, final (2n) */
    TN_TOKEN_READOUT, /* as readout: c, z, x (n), skip, gain (n) -> y (n); kind: tn_gate_kind; k: group; a: scale; b: eps */
    TN_TOKEN_GATE,   /* x, z -> x act(z) (n) */
    TN_TOKEN_UNARY,  /* kind, a, b as tn_unary_attr */
    TN_TOKEN_BINARY, /* in0 (n), in1 (k): number i meets number (i / m) % k of in1 */
    TN_TOKEN_OUTER, /* as outer: q, k (n,k), v (n,m), alpha (n), state (n,k,m), reset, write (n) -> o (n,m), final; kind: 1 raw gates */
    TN_TOKEN_COPY, /* in0 -> out0 (n) */
    TN_TOKEN_ROPE, /* as rope: x (n,k), position -> y; kind: 1 interleaved; a + b: logarithm (2) of the base */
    TN_TOKEN_PUT, /* in0 (n) to row in1[0] of each of out0 (n/m,k,m), by every block; where there is none, NaN to the nearest */
    TN_TOKEN_SEEN, /* attention: q (n,m), keys and values (j,k,m), in3[0] or k of them -> scratch, part by part; a: scale; b: window or 0 */
    TN_TOKEN_SEEN_ALL,   /* ... and of all parts out0 (n,m) */
    TN_TOKEN_BEST_PARTS, /* a block's largest of in0 (n) into the scratch */
    TN_TOKEN_BEST, /* out0[0] = where the largest of all is, -1: a NaN; kind of these four: which half of the scratch */
    TN_TOKEN_FETCH, /* mail (n) -> slot out_slot[0], when all of it has come */
    TN_TOKEN_OPS
} tn_token_op;

enum {
    TN_TOKEN_MEETS = 1,   /* blocks wait for each other before it */
    TN_TOKEN_SHARED = 2,  /* each block does a part */
    TN_TOKEN_STAGED = 4,  /* linear: weights come through shared memory */
    TN_TOKEN_FETCHES = 8, /* linear: x is first brought to slot out_slot[1] */
    TN_TOKEN_JOINED =
        16, /* done together with the step behind it: linear with conv or gate, fetch with norm, readout or scan */
    TN_TOKEN_PAIRED = 32, /* linear: rows i and i + n/2 belong together */
    TN_TOKEN_BESIDE = 64  /* copy: may be done at the same time as the copies right before it */
};

typedef struct tn_token_step {
    void *in[TN_TOKEN_IN], *out[TN_TOKEN_OUT];            /* NULL: absent, not wanted */
    int16_t in_slot[TN_TOKEN_IN], out_slot[TN_TOKEN_OUT]; /* place in the slots, in floats, or -1: in memory only */
    uint8_t in_type[TN_TOKEN_IN], out_type[TN_TOKEN_OUT]; /* tn_dtype */
    uint8_t op, kind, flags;
    int32_t n, k, m,
        j; /* j of a conv or gate that is joined to a product: the product's row that is the first of in0 */
    float a, b;
    uint64_t *
        mail; /* (n), or (n,m) of outer: where out0 is mailed to, NULL: nowhere; of a fetch: where it comes from. Of a product that is
                     * joined: (n) with what the conv makes in place of its rows, or (n/2) what the gate makes */
} tn_token_step;

/* Goes to the kernel as its argument: at most 32,764 bytes. */
typedef struct tn_token_program {
    int32_t n, staged_n;
    int32_t slot_floats, stage_bytes; /* of shared memory: the slots, and what weights go through */
    int32_t place_bytes, places,
        sets;                       /* of what a warp has of the latter, and how many times two rows it makes at once */
    uint32_t *meeting;              /* (3): two counters, 0 between programs, and how many programs have run */
    float *scratch;                 /* (2,TN_TOKEN_HALF) for what parts leave for the step that joins them */
    uint8_t staged[TN_TOKEN_STEPS]; /* steps with TN_TOKEN_STAGED */
    tn_token_step step[TN_TOKEN_STEPS];
    int32_t
        pairs; /* of a PLAIN program: of numbers that a thread of the front has of the longest vector that is summed over; 0: it is not PLAIN */
    bool sees; /* it looks at caches, or turns or writes what goes there */
} tn_token_program;

/* PLAIN: what most networks are made of, for which the kernel has code that is short, so that it stays near: products of bf16 that come through shared
 * memory, activations and gates by silu or sigmoid, RMS norms without bias, caches of bf16, nothing elementwise that is not joined to a product. */

/* --- building ----------------------------------------------------------------------------------------------------------- */

enum { TN_TOKEN_RANGES = TN_TOKEN_STEPS * (TN_TOKEN_IN + TN_TOKEN_OUT), TN_TOKEN_HELD = 96 };

/* What a program may use. */
typedef struct tn_token_space {
    int32_t slot_floats, stage_bytes; /* of shared memory: at most 32,000 and any */
    int32_t mail_words;
    uint64_t *mail; /* (mail_words), at 16 bytes: 0 when the first program that uses it begins */
} tn_token_space;

/* Where things are after the steps so far. */
typedef struct tn_token_places {
    int meetings, fetches;
    int n_ranges, since; /* ranges [since, n_ranges) were touched since blocks met */
    int32_t mailed_words;
    int half;              /* of the scratch that was last used */
    bool busy[2];          /* halves that were read since blocks met */
    struct tn_token_held { /* vectors that every block has in a slot */
        uintptr_t begin, end;
        uint8_t type;
        int16_t slot;
        int32_t size; /* floats of the slot */
    } held[TN_TOKEN_HELD];
    int n_held;
    struct tn_token_mailed { /* vectors that were mailed since blocks met */
        uintptr_t begin, end;
        uint8_t type;
        uint64_t *mail;
        uint64_t *whole; /* (words): what is fetched with it */
        int32_t words;
    } mailed[2 * TN_TOKEN_STEPS];
    int n_mailed;
} tn_token_places;

typedef struct tn_token_builder {
    tn_token_program *program;
    tn_token_space space;
    tn_token_places now;
    struct tn_token_range { /* memory that steps read or wrote, in their order */
        uintptr_t begin, end;
        bool written, by_all; /* by_all: every block wrote all of it, and sees it */
        int32_t rows;         /* not 0: each block wrote its own of so many */
    } range[TN_TOKEN_RANGES];
} tn_token_builder;

void tn_token_begin(tn_token_builder *b, tn_token_program *p, const tn_token_space *space);
/* c (n): the call, then those that come after it, which tell what is read later. False: the call cannot be part of this program; nothing has
 * changed. */
bool tn_token_add(tn_token_builder *b, const tn_op *op, const tn_call *c, size_t n);
/* After the last call: how weights go through shared memory, and what the kernel has to be able to. */
void tn_token_finish(tn_token_program *p);

/* --- describing: what a call is as steps, without slots and barriers ------------------------------------------------------ */

typedef struct tn_token_sizes {
    int64_t in[TN_TOKEN_IN], out[TN_TOKEN_OUT]; /* numbers */
    bool keeps[TN_TOKEN_OUT];                   /* out is wanted in a slot */
} tn_token_sizes;

enum { TN_TOKEN_MOST = 16 }; /* steps of a call */

/* Steps of the call, 0: it has no such form. */
int tn_token_describe(const tn_op *op, const tn_call *c, tn_token_step *step, tn_token_sizes *size);

/* --- CUDA ------------------------------------------------------------------------------------------------------------------- */

/* Queues as many of the n calls as make a program worth running, *took: how many, 0: none (always where there is no CUDA). */
tn_status tn_token_run(const tn_op *const *op, const tn_call *call, size_t n, size_t *took);
tn_status tn_token_run_cuda(const tn_op *const *op, const tn_call *call, size_t n, size_t *took);

#ifdef __cplusplus
}
#endif
#endif
