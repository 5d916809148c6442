/* What calls made by hand (decode_bench.h) make one after the other, against which a token's program is held. f32 alone, in double; conv has 4
 * taps, readout groups of 32 and silu, attention one key. Header only. */
#ifndef TN_DECODE_MADE_H
#define TN_DECODE_MADE_H

#include "ops/attention/attention.h"
#include "ops/attention/attention_mask.h"
#include "ops/conv_causal/conv_causal.h"
#include "ops/norm/norm_cpu.h"
#include "ops/readout/readout.h"
#include "ops/readout/readout_args.h"
#include "ops/scan_gated/scan_gated.h"
#include "decode_bench.h"

static inline double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static inline double at(const tn_arg *a, int64_t i) { return ((const float *)a->data)[i]; }

static inline double at_or(const tn_arg *a, int64_t i, double otherwise) { return a->data ? at(a, i) : otherwise; }

static inline void put(const tn_arg *a, int64_t i, double x)
{
    if (a->data) ((float *)a->data)[i] = (float)x;
}

static inline bool begins(const tn_arg *state, const tn_arg *reset)
{
    return !state->data || (reset->data && *(const int32_t *)reset->data);
}

static inline void make_linear(const job *j)
{
    const int64_t n = j->in[1].dims.dim[0], k = j->in[1].dims.dim[1];
    for (int64_t i = 0; i < n; i++) {
        double y = at_or(&j->in[TN_LINEAR_BIAS], i, 0);
        for (int64_t e = 0; e < k; e++) y += at(&j->in[1], i * k + e) * at(&j->in[0], e);
        put(&j->out[0], i, ((const tn_linear_attr *)j->attr)->act == TN_ACT_SIGMOID ? sigmoid(y) : y);
    }
}

static inline void make_conv(const job *j)
{
    const tn_arg *state = &j->in[TN_CONV_STATE];
    const bool fresh = begins(state, &j->in[TN_CONV_RESET]);
    const int64_t n = tn_dims_count(j->out[0].dims);
    for (int64_t i = 0; i < n; i++) {
        double seen[4] = { 0, 0, 0, at(&j->in[0], i) }, y = at_or(&j->in[TN_CONV_BIAS], i, 0);
        for (int64_t e = 0; e < 3 && !fresh; e++) seen[e] = at(state, e * n + i);
        for (int64_t e = 0; e < 4; e++) y += at(&j->in[TN_CONV_W], e * n + i) * seen[e];
        put(&j->out[0], i, ((const tn_conv_causal_attr *)j->attr)->silu ? y * sigmoid(y) : y);
        for (int64_t e = 0; e < 3; e++) put(&j->out[1], e * n + i, seen[e + 1]);
    }
}

static inline void make_gate(const job *j)
{
    const bool silu = ((const tn_gate_attr *)j->attr)->kind == TN_GATE_SILU;
    for (int64_t i = 0; i < tn_dims_count(j->out[0].dims); i++) {
        const double z = at(&j->in[1], i);
        put(&j->out[0], i, at(&j->in[0], i) * (silu ? z : 1) * sigmoid(z));
    }
}

static inline void make_scan(const job *j)
{
    const tn_arg *x = &j->in[TN_GATED_X], *ri = &j->in[TN_GATED_RI], *state = &j->in[TN_GATED_STATE];
    const bool fresh = begins(state, &j->in[TN_GATED_RESET]);
    const int64_t n = tn_dims_count(j->out[0].dims) / 2;
    for (int64_t i = 0; i < n; i++) {
        const double l = -8 * at(ri, i) * log1p(exp(at(&j->in[TN_GATED_NU], i))), w = at(&j->in[TN_GATED_OMEGA], i);
        const double gain = sqrt(fmax(-expm1(2 * l), 1e-6)) * at(ri, n + i);
        const double a = fresh ? 0 : exp(l) * at(state, i), b = fresh ? 0 : exp(l) * at(state, n + i);
        const double re = gain * at(x, i) + cos(w) * a - sin(w) * b, im = gain * at(x, n + i) + sin(w) * a + cos(w) * b;
        for (int k = 0; k < 2; k++) put(&j->out[k], i, re), put(&j->out[k], n + i, im);
    }
}

static inline void make_norm(const job *j)
{
    const int64_t n = tn_dims_count(j->out[0].dims);
    const tn_arg *residual = &j->in[TN_NORM_RESIDUAL];
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += pow(at(&j->in[0], i) + at_or(residual, i, 0), 2);
    const double scale = 1 / sqrt(squares / (double)n + 1e-6);
    for (int64_t i = 0; i < n; i++)
        put(&j->out[0], i, (at(&j->in[0], i) + at_or(residual, i, 0)) * at_or(&j->in[TN_NORM_W], i, 1) * scale);
}

static inline void make_readout(const job *j)
{
    for (int64_t i = 0; i < tn_dims_count(j->out[0].dims); i++) {
        const double z = at(&j->in[TN_READOUT_Z], i);
        double squares = 0;
        for (int64_t e = i / 32 * 32; e < i / 32 * 32 + 32; e++) squares += pow(at(&j->in[TN_READOUT_C], e), 2);
        put(&j->out[0], i, at(&j->in[TN_READOUT_C], i) / sqrt(squares / 32 + 1e-6) * z * sigmoid(z));
    }
}

static inline void make_attention(const job *j)
{
    for (int64_t i = 0; i < tn_dims_count(j->out[0].dims); i++) put(&j->out[0], i, at(&j->in[TN_ATT_V], i));
}

static inline void make(const job *j)
{
    if (j->op == &tn_op_linear) make_linear(j);
    else if (j->op == &tn_op_conv_causal) make_conv(j);
    else if (j->op == &tn_op_gate) make_gate(j);
    else if (j->op == &tn_op_scan_gated) make_scan(j);
    else if (j->op == &tn_op_norm) make_norm(j);
    else if (j->op == &tn_op_readout) make_readout(j);
    else if (j->op == &tn_op_attention) make_attention(j);
    else
        for (int64_t i = 0; i < tn_dims_count(j->out[0].dims); i++)
            put(&j->out[0], i, at(&j->in[0], i) + (j->op == &tn_op_unary));
}

#endif
