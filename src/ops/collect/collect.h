/* collect: where flows landed, as a surface.
 *
 *     O = tn_collect(g, e, u, v, d, plane, age, landed, .width = W, .height = H)
 *
 *     e (B,N,E) energies      u, v, d (B,N): place in [-1,1], distance that was left      plane, age, landed (B,N) i32: 0 or 1
 *     (the plane at -1 or +1), steps lived, not 0 where the slot holds a landing; TN_NONE: all do
 *     O (B,S,E) f32 with S = W H, cell y W + x; beside: (B,2 S,E), plane 0 first, instead of both planes on one surface
 *
 *     s_i = |e_i| (1 + age_factor age_i) / (1 + d_i)
 *     splat      O_c = sum_i k_ic w_i e_i / (eps + sum_i k_ic w_i)      w_i = exp(s_i - M), M the largest s of the sample
 *     nearest    O_c = sum_i w_i e_i / sum_i w_i over the landings nearest to c; half goes to the even cell; 0 where none is
 *
 * k is bilinear over the four cells around (u,v). |e| is Euclidean. Sums go slot by slot, so no sample depends on another, nor a
 * result on the number of threads. A landing with NaN makes NaN of the cells that it reaches (a NaN place is that of cell 0).
 * Gradients: e, u, v (0 in nearest), d; M has one too. At a cell that no other landing reaches, the slope by the place is up to
 * |e| W / (2 eps): a smaller eps gives rarer and larger gradients. Switch opt.collect_cells: off takes weights of all cells and
 * matrix products (NaN then reaches all cells of the sample, and in nearest a landing exactly between two cells is in neither). */
#ifndef TN_OPS_COLLECT_H
#define TN_OPS_COLLECT_H

#include <tenon/op.h>

enum {
    TN_COLLECT_E,
    TN_COLLECT_U,
    TN_COLLECT_V,
    TN_COLLECT_D,
    TN_COLLECT_PLANE,
    TN_COLLECT_AGE,
    TN_COLLECT_LANDED,
    TN_COLLECT_INPUTS
};

typedef struct tn_collect_attr {
    int32_t width, height;
    bool nearest, beside;
    float age_factor, eps;
} tn_collect_attr;

typedef struct tn_collect_options {
    int unused_;
    int64_t width, height; /* cells, at least 2 each */
    bool nearest, beside;
    float age_factor; /* 0 = 0.1 */
    float eps;        /* 0 = 1e-3 */
} tn_collect_options;

extern const tn_op tn_op_collect;

#define tn_collect(g, e, u, v, d, plane, age, landed, ...)                                                             \
    tn_collect_((g), __FILE__, __LINE__, (const tn_ref[]){ (e), (u), (v), (d), (plane), (age), (landed) },             \
                (tn_collect_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_collect_(tn_graph *g, const char *file, int line, const tn_ref *in, tn_collect_options o);

#endif
