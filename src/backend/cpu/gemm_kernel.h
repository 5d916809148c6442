/* What the loop nest and the micro-kernels of each ISA share: the seam where a new ISA plugs in.
 *
 * A micro-kernel multiplies one packed panel of A by one packed panel of B and ADDS the product to a tile of the
 * accumulator. It says how its panels are packed: their type, and how many numbers along k lie together. An fp32 product
 * must be one chain of fused multiply-adds per element, in the order of k, from 0, added at the end: that is what keeps
 * bits independent of panel shapes and ISAs. A bf16 one may take any order that depends on k alone.
 * A new ISA is one file with one tn_gemm_ukernel, and a line in gemm_kernel.c. */
#ifndef TN_BACKEND_CPU_GEMM_KERNEL_H
#define TN_BACKEND_CPU_GEMM_KERNEL_H

#include "backend/cpu/gemm.h"

enum {
    TN_GEMM_MR_MAX = 32,
    TN_GEMM_GROUP = 4,    /* panels that are packed together */
    TN_GEMM_DIRECT = 4,   /* up to this many rows B is read where it lies; with more, packing it pays */
    TN_GEMM_PARTS = 3,    /* of an operand with bf16x3 */
    TN_GEMM_NARROW = 2,   /* kinds of narrower panels */
    TN_GEMM_KEEP_K = 4096 /* the longest k whose rows are kept packed: bounds the workspace of products with few rows */
};

/* A panel of `width` rows of A or columns of B; number (i,p) lies at ((p / depth) * width + i) * depth + p % depth. */
typedef struct tn_gemm_panel {
    int width, depth;
    int64_t k; /* a multiple of depth and of 4: what is beyond the product's k is 0 */
} tn_gemm_panel;

/* A matrix to pack: element (i,p) is data[i*outer + p*inner], i along the panel's width and p along k. */
typedef struct tn_gemm_source {
    const void *data; /* of `type` */
    tn_dtype type;
    int64_t outer, inner; /* strides in elements */
    tn_dtype round;       /* TN_F32: not at all */
    int part;             /* bf16 panels: 0 the number rounded, 1 what that leaves rounded, 2 what both leave */
} tn_gemm_source;

/* acc (rows,columns) with rows acc_row apart, 16-byte aligned at least, gets a times b added; k <= tn__gemm_kc.
 * Packed: a and b are panels; b_step is the k of a panel of B where one call takes several (b_width), else nr, by which fp32
 * kernels step b from one k to the next. Where b is read as it lies, a is a packed fp32 panel and b_step is b's stride in elements, along k or from column to
 * column. */
typedef void tn_gemm_micro(int64_t k, const void *restrict a, const void *restrict b, int64_t b_step,
                           float *restrict acc, int64_t acc_row);
/* dst: panels of bf16, one after the other, enough for i < valid; the last is padded with zeros. */
typedef void tn_gemm_packer(uint16_t *restrict dst, tn_gemm_panel to, tn_gemm_source src, int64_t valid, int64_t k);
/* dst: panels (k,width) of fp32, one after the other, enough for i < valid; the last is padded with zeros. */
typedef void tn_gemm_packer_f32(float *restrict dst, int width, tn_gemm_source src, int64_t valid, int64_t k);

/* A kernel for B as it lies in memory, and the columns it takes at once; run NULL: none. */
typedef struct tn_gemm_direct {
    tn_gemm_micro *run;
    int columns;
} tn_gemm_direct;

/* What is done to the numbers of a B that is read in place along k. */
typedef enum tn_gemm_way {
    TN_GEMM_AS_F32,
    TN_GEMM_F32_TO_BF16,
    TN_GEMM_AS_BF16,
    TN_GEMM_F32_TO_F16,
    TN_GEMM_AS_F16,
    TN_GEMM_WAYS
} tn_gemm_way;

/* acc (columns) gets a (k) times b added, in blocks of TN_GEMM_KC; b's columns are contiguous along k and b_step numbers apart. So many
 * columns at once: */
enum { TN_GEMM_ROW_16, TN_GEMM_ROW_8, TN_GEMM_ROW_4, TN_GEMM_ROWS };
typedef void tn_gemm_row(int64_t k, const float *restrict a, const void *restrict b, int64_t b_step,
                         float *restrict acc);

/* Kernels for a panel of B of which only the first columns count; `columns` 0: none. The rest as in tn_gemm_ukernel. */
typedef struct tn_gemm_narrow {
    int columns;
    tn_gemm_micro *run[TN_GEMM_MR_MAX + 1], *fresh[TN_GEMM_MR_MAX + 1];
} tn_gemm_narrow;

typedef struct tn_gemm_ukernel {
    const char *name;
    tn_dtype type;        /* of the panels: TN_F32 or TN_BF16 */
    int a_depth, b_depth; /* 1 for fp32; powers of two that divide TN_GEMM_KC, the larger at least 4 */
    int mr, nr;           /* nr a multiple of 4, at most 64 */
    int b_width;          /* columns of a panel of B, a part of nr; 0: nr */
    int kc; /* steps along k before sums go back to memory; 0: TN_GEMM_KC. A multiple of that, for kernels that go on
                             from the sums they find: the bits are the same */
    size_t keep_bytes; /* rows of A stay packed, all of k, for the tiles beside theirs if they take no more; 0: never */
    int tile_m, tile_n; /* the largest tile; A's block along k and the tile's sums should stay in L2 */
    bool split_pays;    /* six products of this kernel take less time than one in fp32 */
    /* run[r] takes a panel of r rows. run[mr] must be there; the others serve the last rows, and where run[r] is NULL
     * the next larger one runs on zero padding. */
    tn_gemm_micro *run[TN_GEMM_MR_MAX + 1];
    /* The same for an acc that holds nothing yet, or NULL for all r. These take an acc of any alignment, as does run
     * beside them: it may lie in C. */
    tn_gemm_micro *fresh[TN_GEMM_MR_MAX + 1];
    tn_gemm_narrow narrow[TN_GEMM_NARROW]; /* for the last panel, by columns; each has what run and fresh have */
    /* The same for a few rows and B in place: contiguous along n, of fp32; or along k. fp32 kernels only. */
    tn_gemm_direct along_n[TN_GEMM_DIRECT + 1];
    tn_gemm_direct along_k[TN_GEMM_WAYS][TN_GEMM_DIRECT + 1];
    tn_gemm_row *row[TN_GEMM_WAYS]
                    [TN_GEMM_ROWS];    /* one row of fp32 that is not rounded, and B along k; 16 may be NULL, or all */
    tn_gemm_packer *pack;              /* of bf16 panels, or */
    tn_gemm_packer_f32 *pack_f32;      /* of fp32 ones */
    void (*begin)(void), (*end)(void); /* what a thread does before and after a row of calls, or NULL */
    /* bf16 kernels: its instruction alone, in independent chains of registers, `loops` times; returns the floating-point
     * operations done. The most this kernel could reach: a ceiling to measure it by. */
    double (*probe)(int64_t loops, const uint16_t *numbers); /* tn_gemm_probe_bf16 */
} tn_gemm_ukernel;

static inline int64_t tn__gemm_kc(const tn_gemm_ukernel *u) { return u->kc ? u->kc : TN_GEMM_KC; }

static inline int tn__gemm_b_width(const tn_gemm_ukernel *u) { return u->b_width ? u->b_width : u->nr; }

/* The row of along_k for a B of this type with this rounding; -1: it has to be packed. */
static inline int tn__gemm_way(tn_dtype type, tn_dtype round)
{
    if (type == TN_BF16) return round == TN_F16 ? -1 : TN_GEMM_AS_BF16;
    if (type == TN_F16) return round == TN_BF16 ? -1 : TN_GEMM_AS_F16;
    if (type != TN_F32) return -1;
    return round == TN_BF16 ? TN_GEMM_F32_TO_BF16 : round == TN_F16 ? TN_GEMM_F32_TO_F16 : TN_GEMM_AS_F32;
}

extern const tn_gemm_ukernel tn__gemm_portable;
extern const tn_gemm_ukernel tn__gemm_neon_bf16; /* arm64 only */
extern const tn_gemm_ukernel tn__gemm_avx2, tn__gemm_avx512, tn__gemm_avx512_8, tn__gemm_avx512_bf16,
    tn__gemm_amx; /* x86-64 only */

/* The kernels this machine runs, fp32 and bf16, the plainest first; NULL past the end. */
const tn_gemm_ukernel *tn__gemm_kernel_at(int index);
const tn_gemm_ukernel *tn__gemm_kernel_best(void); /* of the fp32 ones */
const tn_gemm_ukernel *tn__gemm_kernel_bf16(void); /* the best bf16 one, or NULL */

/* The packer of fp32 panels that runs everywhere, and those for AVX2 and AVX-512. */
tn_gemm_packer_f32 tn__gemm_pack, tn__gemm_pack_avx2, tn__gemm_pack_f32_avx512;
tn_gemm_row tn__gemm_row_avx512, tn__gemm_row_bf16_avx512;
/* 1, 2 or 4 rows times 16 columns that lie along k (tn_gemm_ukernel.along_k). */
tn_gemm_micro tn__gemm_along_avx512_1, tn__gemm_along_avx512_2, tn__gemm_along_avx512_4;
tn_gemm_micro tn__gemm_along_bf16_avx512_1, tn__gemm_along_bf16_avx512_2, tn__gemm_along_bf16_avx512_4;
/* The packer of bf16 panels that runs everywhere. */
void tn__gemm_pack_bf16(uint16_t *restrict dst, tn_gemm_panel to, tn_gemm_source src, int64_t valid, int64_t k);
/* The one for panels of x86-64 (A's depth 32, B's depth 2); needs AVX512-BF16 and AVX512-BW. */
void tn__gemm_pack_avx512(uint16_t *restrict dst, tn_gemm_panel to, tn_gemm_source src, int64_t valid, int64_t k);

/* Sends row i, columns j..j+count-1 of one product of the batch through the epilogue. acc (count) is
 * overwritten; it may be C itself where nothing is added to C and there is no residual. */
void tn__gemm_store_row(const tn_gemm *g, int64_t batch, int64_t i, int64_t j, int64_t count, float *restrict acc);

#endif
