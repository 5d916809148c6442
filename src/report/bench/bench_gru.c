/* One step of a two-layer GRU cell over the flows of a 28 x 28 lattice, forward and backward: the inner loop of a
 * recurrent rollout, and the counterpart of bench/peers/step_gru.py. The op, then its plain twin (opt.gru_fused=off).
 * Weights are inputs here, so that their gradients are part of the row without a store; no optimizer. */
#include "report/bench/bench.h"

#include <stdio.h>

enum { N = 784, H = 256, L = 2 };

static tn_ref wanted(tn_graph *g, const char *what, int layer, tn_dims dims)
{
    char name[16];
    snprintf(name, sizeof name, "%s%d", what, layer);
    return tn_want_gradient(g, tn_input(g, name, dims, TN_F32));
}

static tn_ref gru(tn_graph *g)
{
    const tn_dims weight = tn_shape(3 * H, H), bias = tn_shape(3 * H);
    tn_ref x = wanted(g, "x", 0, tn_shape(N, H));
    for (int i = 0; i < L; i++)
        x = tn_gru(g, x, wanted(g, "h", i, tn_shape(N, H)), wanted(g, "wi", i, weight), wanted(g, "wh", i, weight),
                   wanted(g, "bi", i, bias), wanted(g, "bh", i, bias));
    return x;
}

tn_status tn_bench_gru(const tn_bench *b)
{
    static const char *const off[] = { "opt.gru_fused", NULL };
    TN_RETURN_IF(tn_bench_graph(b, "cell", "gru_784x256x2", gru, NULL));
    return tn_bench_graph(b, "cell", "gru_784x256x2 plain", gru, off);
}
