/* bridge: from a sentence to a sentence that follows from it, over a surface of energies.
 *
 *     p = encode(premise), h = encode(hypothesis)      surfaces (B,S), S = width height, in [-1,1]
 *     q = body(p)                                      the lattice of `flow`, or a baseline
 *     loss = InfoNCE(q/|q|, h/|h|) + decoder.weight CE(hypothesis | decode(h/|h|))
 *
 * The decoder learns to write a sentence from its own surface; a reply to a prompt is written from body(encode(prompt)). Both sides
 * see surfaces of unit length, for InfoNCE fixes directions alone.
 *
 * A text is `text` tokens; token 0 stands behind the last of its words, and ends it. */
#ifndef TN_MODELS_BRIDGE_H
#define TN_MODELS_BRIDGE_H

#include <tenon/model.h>

/* In the order of the choices in the settings. */
typedef enum bridge_body {
    BRIDGE_LATTICE,
    BRIDGE_IDENTITY,
    BRIDGE_MEAN,
    BRIDGE_LINEAR,
    BRIDGE_MLP,
    BRIDGE_TRANSFORMER
} bridge_body;

typedef struct bridge_config {
    int64_t width, height, cells;
    int64_t text, vocab;
    int64_t dim, heads, ffn, layers; /* of the encoder */
    bridge_body body;
    bool residual;  /* what the body computes is added to what it takes */
    int64_t hidden; /* of the body */
    int64_t prefix; /* states that the decoder reads a surface as */
    float temperature, dropout;
} bridge_config;

tn_status bridge_config_read(const tn_settings *st, bridge_config *c);

/* What stands where, of texts of these lengths, i32 (B). */
typedef struct bridge_mask {
    tn_ref words;   /* f32 (B,text): 1 at words */
    tn_ref written; /* f32 (B,text): 1 at words and at the token behind them; an empty text has none */
} bridge_mask;
bridge_mask bridge_masks(tn_graph *g, const bridge_config *c, tn_ref lengths);

/* tokens i32 (B,T), T <= text -> a surface (B,S). lengths and words: TN_NONE where every token is a word. */
tn_ref bridge_encode(tn_graph *g, const bridge_config *c, tn_ref tokens, tn_ref lengths, tn_ref words);
/* The layers of the encoder (models/encoder.h) as the settings have them. */
tn_ref bridge_layers(tn_graph *g, const bridge_config *c, tn_ref x, tn_ref lengths);

typedef struct bridge_mapped {
    tn_ref surface; /* (B,S) */
    tn_ref extra;   /* one number that is added to the loss of training, or none */
} bridge_mapped;
/* x (B,S) through the body. */
tn_status bridge_body_build(tn_graph *g, const tn_settings *st, const tn_batch *b, const bridge_config *c, tn_ref x,
                            bridge_mapped *out);

/* The decoder as a part: gpt with learned positions, its first `prefix` positions a surface of unit length. */
tn_status bridge_decoder_open(tn_graph *g, const tn_settings *st, const bridge_config *c, tn_part *out);
/* Hidden states (B,text,d) that the tokens of a text are read off; out->head makes logits of them. */
tn_status bridge_decode(tn_graph *g, const tn_part *p, const bridge_config *c, const char *step, tn_ref unit,
                        tn_ref tokens, tn_forward *out);
/* The surface alone, into caches where the batch has them; and one more token behind what is there. Hidden states (B,1,d). */
tn_status bridge_decode_start(tn_graph *g, const tn_part *p, const bridge_config *c, const tn_batch *b, tn_ref unit,
                              tn_forward *out);
tn_status bridge_decode_token(tn_graph *g, const tn_part *p, const bridge_config *c, const tn_batch *b,
                              tn_forward *out);

/* Schedules of the lattice, which are those of `flow`. */
double bridge_kappa_at(const tn_settings *st, int64_t step);
double bridge_drift_at(const tn_settings *st, int64_t step);
double bridge_noise_at(const tn_settings *st, int64_t step);
double bridge_exit_at(const tn_settings *st, int64_t step);

/* Metrics of all held-out rows together (tn_metric_row.whole), and of tokens (add). */
double bridge_recall_1(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st);
double bridge_recall_10(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st);
double bridge_overlap_1(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st);
double bridge_overlap_10(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st);
void bridge_add_right(const tn_metric_view *v, double *sums);
void bridge_add_right_shuffled(const tn_metric_view *v, double *sums);

#endif
