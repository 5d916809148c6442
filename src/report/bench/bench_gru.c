/* One step of a two-layer GRU cell over the flows of a 28 x 28 lattice, forward and backward: the inner loop of a
 * recurrent rollout, and the counterpart of bench/peers/step_gru.py. Weights are inputs here, so that their gradients
 * are part of the row without a store; no optimizer. */
#include "report/bench/bench.h"

#include <stdio.h>

enum { N = 784, H = 256, L = 2 };

static tn_ref wanted(tn_graph *g, const char *what, int layer, tn_dims dims)
{
    char name[16];
    snprintf(name, sizeof name, "%s%d", what, layer);
    return tn_want_gradient(g, tn_input(g, name, dims, TN_F32));
}

/* r, z = sigmoid(W x + b + U h + c), n = tanh(W_n x + b_n + r (U_n h + c_n)), h' = n + z (h - n). x, h (N,H). */
static tn_ref cell(tn_graph *g, tn_ref x, int layer)
{
    const tn_ref h = wanted(g, "h", layer, tn_shape(N, H));
    const tn_ref gi =
        tn_linear(g, x, wanted(g, "wi", layer, tn_shape(3 * H, H)), .bias = wanted(g, "bi", layer, tn_shape(3 * H)));
    const tn_ref gh =
        tn_linear(g, h, wanted(g, "wh", layer, tn_shape(3 * H, H)), .bias = wanted(g, "bh", layer, tn_shape(3 * H)));
    const tn_ref rz = tn_add(g, tn_slice(g, gi, 1, 0, 2 * H), tn_slice(g, gh, 1, 0, 2 * H));
    const tn_ref q = tn_mul_sigmoid(g, tn_part(g, gh, 2, 3), tn_part(g, rz, 0, 2));
    const tn_ref n = tn_tanh(g, tn_add(g, tn_part(g, gi, 2, 3), q));
    return tn_add(g, n, tn_mul_sigmoid(g, tn_sub(g, h, n), tn_part(g, rz, 1, 2)));
}

static tn_ref gru(tn_graph *g)
{
    tn_ref x = wanted(g, "x", 0, tn_shape(N, H));
    for (int layer = 0; layer < L; layer++) x = cell(g, x, layer);
    return x;
}

tn_status tn_bench_gru(const tn_bench *b) { return tn_bench_graph(b, "cell", "gru_784x256x2", gru); }
