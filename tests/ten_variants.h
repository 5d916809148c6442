/* The networks of docs/variants.md, a line of settings each: what is listed here is checked as `tenon check` does, carried on
 * token by token, and trained in chunks. Header only. */
#ifndef TN_TEN_VARIANTS_H
#define TN_TEN_VARIANTS_H

#include <stdio.h>
#include <string.h>

enum { TN_VARIANT_WORDS = 8 };

typedef struct tn_variant {
    const char *name, *model, *line; /* the line's words are settings; empty: defaults */
} tn_variant;

static const tn_variant tn_variants[] = {
    { "gpt2", "gpt", "shape=gpt2" },
    { "gpt", "gpt", "" },
    { "gpt_conv", "gpt", "conv=4" },
    { "gpt_gate", "gpt", "gate=silu" },
    { "gpt_conv_gate", "gpt", "preset=gpt_conv_gate" },
    { "tenb", "ten", "preset=ten_b train.decay_on=all" },
    { "tenb_i123", "ten", "preset=ten_b_ring" },
    { "diag_s256", "ten", "preset=ten_static" },
    { "diag_g256", "ten", "pattern=D" },
    { "diag_g, real", "ten", "pattern=D omega=zero" },
    { "diag_g, fixed phases", "ten", "pattern=D omega=fixed" },
    { "diag_g, no convolution", "ten", "pattern=D conv=0" },
    { "diag_g, no skip", "ten", "pattern=D skip=false" },
    { "diag_g, no branch", "ten", "pattern=D gate=none" },
    { "diag_g, sigmoid gate", "ten", "pattern=D gate=sigmoid" },
    { "diag_g, other ring", "ten", "pattern=D ring_min=0.5 ring_max=0.99" },
    { "diag_s, ring", "ten", "pattern=E spectrum=ring" },
    { "diag_s, real", "ten", "pattern=E omega=zero" },
    { "outer", "ten", "pattern=O skip=false rotate=learned" },
    { "outer_norot", "ten", "pattern=O skip=false" },
    { "outer_half", "ten", "pattern=O skip=false rotate=learned rotate_pairs=half" },
    { "outer_ddrot", "ten", "pattern=O skip=false rotate=token" },
    { "outer_static", "ten", "pattern=O skip=false rotate=learned forget=fixed" },
    { "outer_dt", "ten", "pattern=O skip=false rotate=learned write=decay" },
    { "outer_qkn", "ten", "pattern=O skip=false rotate=learned qk_norm=true" },
    { "outer_lin", "ten", "pattern=O skip=false rotate=learned conv_act=none" },
    { "outer_noconv", "ten", "pattern=O skip=false rotate=learned conv=0" },
    { "outer_noz", "ten", "pattern=O skip=false rotate=learned gate=none" },
    { "outerD", "ten", "pattern=O" },
    { "outerD, fixed rotation", "ten", "pattern=O rotate=true" },
    { "outerD, half of the pairs rotated", "ten", "pattern=O rotate=true rotate_pairs=half" },
    { "outerD, fixed decay and strength", "ten", "pattern=O forget=fixed write=decay" },
    { "outerDg", "ten", "pattern=O write=normed" },
    { "outerDgh", "ten", "pattern=O write=normed rotate=learned rotate_pairs=half" },
    { "delta", "ten", "pattern=O skip=false rotate=learned qk_norm=true write=delta" },
    { "delta_norot", "ten", "pattern=O skip=false qk_norm=true write=delta" },
    { "delta_ddrot", "ten", "pattern=O skip=false rotate=token qk_norm=true write=delta" },
    { "delta_channel", "ten", "pattern=O skip=false qk_norm=true write=delta forget=channel" },
    { "mix, delta", "ten", "qk_norm=true write=delta" },
    { "hybrid_delta", "ten", "preset=ten_hybrid skip=false rotate=learned qk_norm=true write=delta" },
    { "mix", "ten", "" },
    { "mix, static D", "ten", "pattern=EO" },
    { "mix, real D", "ten", "omega=zero" },
    { "mix, sigmoid gate", "ten", "gate=sigmoid conv=2" },
    { "hybrid_nr", "ten", "preset=ten_hybrid" },
    { "hybrid", "ten", "preset=ten_hybrid skip=false rotate=learned" },
};
enum { TN_VARIANTS = sizeof tn_variants / sizeof *tn_variants };

/* Cuts a line into words, which lie in `room`; returns how many. */
static inline size_t tn_variant_words(const tn_variant *v, char room[256], const char *words[TN_VARIANT_WORDS])
{
    size_t n = 0;
    snprintf(room, 256, "%s", v->line);
    for (char *rest = NULL, *w = strtok_r(room, " ", &rest); w && n < TN_VARIANT_WORDS; w = strtok_r(NULL, " ", &rest))
        words[n++] = w;
    return n;
}

#endif
