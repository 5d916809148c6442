/* What the block of `tep` keeps out of its solve, put back in: a twin that computes queries, keys, values and the whole matrix of
 * attention in every iteration has the same equilibria and the same gradients. */
#include "tep_world.h"

#include <tenon/ops.h>

enum { B = 3, F = 5, C = 3, D = 8, M = 32, H = 2 };

typedef struct variation {
    int64_t S;
    bool softmax, faithful;
} variation;

static const variation variations[] = {
    { 1, false, false }, { 1, true, false }, { 1, false, true }, { 4, false, false },
    { 4, true, false },  { 4, false, true }, { 4, true, true },  { 7, true, false },
};

static tn_ref feature(tn_graph *g, tn_ref z)
{
    return tn_exp(g, tn_minimum(g, z, tn_log(g, tn_affine(g, tn_relu(g, z), 1.f, 1.f))));
}

static tn_ref heads(tn_graph *g, tn_ref x, int64_t S)
{
    return tn_transpose(g, tn_reshape(g, x, tn_shape(B, S, H, D / H)), 0, 2, 1, 3);
}

/* Constants: e, [wq wk wv], [bq bk bv], wo, bo, norm1, norm2, w1 b1 w2 b2, norm_f. */
static void literal(tn_graph *g, tn_body_io *io, void *user)
{
    const variation *v = user;
    const tn_ref *c = io->consts, e = c[0];
    const tn_ref inner = tn_layernorm(g, io->state[0], c[5], c[6]);
    tn_ref part[3];
    for (int i = 0; i < 3; i++) {
        const tn_ref x = i ? e : v->faithful ? inner : tn_add(g, inner, e);
        part[i] =
            heads(g, tn_add(g, tn_linear(g, x, tn_slice(g, c[1], 0, i * D, D)), tn_slice(g, c[2], 0, i * D, D)), v->S);
    }
    tn_ref weight;
    if (v->softmax) {
        weight =
            tn_softmax(g, tn_matmul(g, part[0], part[1], .transpose_b = true), .scale = 1.f / sqrtf((float)(D / H)));
    } else {
        const tn_ref s = tn_matmul(g, feature(g, part[0]), feature(g, part[1]), .transpose_b = true);
        weight = tn_div(g, s, tn_affine(g, tn_reshape(g, tn_sum(g, s, -1), tn_shape(B, H, v->S, 1)), 1.f, 1e-6f));
    }
    const tn_ref y =
        tn_reshape(g, tn_copy(g, tn_transpose(g, tn_matmul(g, weight, part[2]), 0, 2, 1, 3)), tn_shape(B, v->S, D));
    const tn_ref u = tn_add(g, io->state[0], tn_linear(g, y, c[3], .bias = c[4]));
    const tn_ref z = tn_gelu_erf(g, tn_linear(g, tn_layernorm(g, u, c[7], c[8]), c[9], .bias = c[10]));
    io->next[0] = tn_layernorm(g, tn_add(g, u, tn_linear(g, z, c[11], .bias = c[12])), c[13], c[14]);
}

static tn_ref param(tn_graph *g, const char *name, int64_t n, int64_t k)
{
    const tn_dims dims = k ? tn_shape(n, k) : tn_shape(n);
    return tn_param(g, name, dims, tn_uniform(-0.3f, 0.3f));
}

/* The same parameters by name; what the model's store does not have yet is made here. */
static tn_bound *add_twin(tn_world *w, const variation *v)
{
    const tep_shape z = { .B = B, .S = v->S, .F = F, .C = C, .L = 1 };
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .training = true, .threads = 1 });
    const tn_batch b = tep_batch(g, &z);
    tn_ref e = tn_linear(g, tn_in(&b, "features"), param(g, "embed.w", D, F), .bias = param(g, "embed.b", D, 0));
    if (v->S > 1) e = tn_add(g, e, param(g, "position", v->S, D));
    const tn_ref ws[] = { param(g, "attn.wq", D, D), param(g, "attn.wk", D, D), param(g, "attn.wv", D, D) };
    const tn_ref bs[] = { param(g, "attn.bq", D, 0), param(g, "attn.bk", D, 0), param(g, "attn.bv", D, 0) };
    const tn_ref consts[] = { e,
                              tn_concat(g, ws, 3, 0),
                              tn_concat(g, bs, 3, 0),
                              param(g, "attn.wo", D, D),
                              param(g, "attn.bo", D, 0),
                              param(g, "norm1.w", D, 0),
                              param(g, "norm1.b", D, 0),
                              param(g, "norm2.w", D, 0),
                              param(g, "norm2.b", D, 0),
                              param(g, "ffn.w1", M, D),
                              param(g, "ffn.b1", M, 0),
                              param(g, "ffn.w2", D, M),
                              param(g, "ffn.b2", D, 0),
                              param(g, "norm_f.w", D, 0),
                              param(g, "norm_f.b", D, 0) };
    const tn_ref h0 = tn_fill(g, tn_shape(B, v->S, D), TN_F32, 0.f);
    const tn_ref rtol = tn_scalar(g, "rtol", 1e-6f), tol = tn_scalar(g, "tol", 1e-5f);
    const tn_ref h =
        tn_loop(g, ((tn_body){ literal, (void *)(uintptr_t)v }), .state = &h0, .n_state = 1, .consts = consts,
                .n_consts = 15, .steps = 20, .grad = v->faithful ? TN_LOOP_BPTT : TN_LOOP_IMPLICIT,
                .rtol = v->faithful ? TN_NONE : rtol, .tol = v->faithful ? tol : TN_NONE,
                .damping = tn_scalar(g, "damping", 0.9f));
    const tn_ref loss =
        tn_linear_xent(g, tn_mean(g, h, 1), param(g, "head.w", C, D), tn_reshape(g, tn_in(&b, "labels"), tn_shape(B)),
                       .bias = param(g, "head.b", C, 0));
    tn_output(g, "state", h);
    tn_output(g, "loss", loss);
    tn_bound *bound = tn_world_add(w, g, &(tn_compile_options){ .threads = 1, .loss = loss });
    tep_fill(bound, &z);
    return bound;
}

static void twin_is_the_same(void **state)
{
    const variation *v = *state;
    const tep_shape z = { .B = B, .S = v->S, .F = F, .C = C, .L = 1 };
    enum { MOST = 1 << 12 };
    static float h[B * 8 * D];
    static double grad[2][MOST];
    tn_world w = tn_world_open(9, 1);
    tn_bound *model = tep_add(&w, &z,
                              TEP_LIST("dim=8", "heads=2", "iterations=20", "rtol=1e-6", "tol=1e-5",
                                       v->softmax ? "attention=softmax" : "attention=linear",
                                       v->faithful ? "variant=faithful" : "variant=corrected",
                                       v->faithful ? "grad=bptt" : "grad=implicit"));
    tn_bound *twin = add_twin(&w, v); /* from here on the store has all parameters */
    tep_train(&w, model, 0.01, 10);   /* norms and biases are not what they were made as */
    int64_t n = tep_gradients(&w, model, "", grad[0], MOST);
    const float loss = *(float *)tn_world_data(model, "loss");
    memcpy(h, tn_world_data(model, "state"), sizeof *h * (size_t)(B * v->S * D));
    n = tep_gradients(&w, twin, "", grad[1], MOST);
    assert_float_equal(loss, *(float *)tn_world_data(twin, "loss"), 1e-5);
    const float *literally = tn_world_data(twin, "state");
    for (int64_t i = 0; i < B * v->S * D; i++)
        if (!(fabsf(h[i] - literally[i]) <= 1e-5f))
            fail_msg("state %d: %g and %g", (int)i, (double)h[i], (double)literally[i]);
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(grad[1][i]));
    assert_true(most > 1e-3);
    for (int64_t i = 0; i < n; i++) /* without effect on one token, and then without gradient in the twin as well */
        if (!(fabs(grad[0][i] - grad[1][i]) <= 2e-4 * most))
            fail_msg("gradient %d: %g and %g", (int)i, grad[0][i], grad[1][i]);
    tn_world_close(&w);
}

void tn_tests_tep_attention(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof variations / sizeof *variations; i++) {
        const variation *v = &variations[i];
        tn_test_add(l, twin_is_the_same, v, "tep attention: kept out of the solve, %s %s, %d tokens",
                    v->faithful ? "faithful" : "corrected", v->softmax ? "softmax" : "linear", (int)v->S);
    }
}
