/* wire: one latent message that several frozen language models understand.
 *
 *     Z = encode(text)                          (B,M,z), M slots of z numbers
 *     P_x = adapt_x(Z)                          (B,M,d_x), of the size of embeddings of model x
 *     loss = mean over readers x of CE(answer | BOS ; P_x ; anchor ; question) + other terms
 *
 * A reader is a frozen gpt with a letter (a, b, c) for its scope: weights a.*, adapter to.a.*. What it reads is laid out in one way
 * wherever it is read (wire_read.c): BOS ; P ; anchor ; question ; answer ; EOS. Labels have the places of tokens, the model moves
 * them by one in one place.
 *
 * A batch is B contexts with Q questions each:
 *     bytes (B,bytes), lengths (B)     the context        sample (B)   which of the training set
 *     (with encoder_sees=both the context and its question; a sender has both in sent (B,m), sent_length (B))
 *     kind (B)                         0 AE, 1 LM, 2 QA: the anchor of its questions
 *     x.tokens, x.labels (B,Q,n)       BOS, question, answer, EOS; labels are -1 but for answer and EOS
 *     x.text, x.text_labels (B,m), x.text_length (B)     BOS, context, EOS; labels are -1 at BOS and behind the end
 *     x.told, x.told_document (B,Q,t)  the same with the text in place of P, right-aligned: for the teacher, and for controls
 * and of a teacher that is kept (loss.teacher=cached), at the places of labels, what it says there:
 *     x.teach_ids, x.teach_logits (B,Q,n,K), x.teach_lse (B,Q,n)     its largest logits (linear_top)
 *     x.teach_states (B,Q,n,states*d)                                its last states
 * and of a sender (sender_features=cached), for training steps:
 *     features (B,m,d)                                               its states of x.text */
#ifndef TN_MODELS_WIRE_H
#define TN_MODELS_WIRE_H

#include "models/decoder.h"

#include <tenon/model.h>

enum { WIRE_READERS = 3, WIRE_ANCHORS = 3 };
enum { WIRE_AE, WIRE_LM, WIRE_QA }; /* anchors */

/* In the order of the choices in the settings. */
typedef enum wire_encoder { WIRE_BYTES, WIRE_SENDER, WIRE_FREE, WIRE_CONSTANT } wire_encoder;
typedef enum wire_place { WIRE_EMBEDDINGS, WIRE_KEYS } wire_place;

typedef struct wire_reader {
    char letter[2]; /* its scope */
    tn_part part;
    tn_decoder_shape shape;
    int64_t own;    /* its place among the readers */
    int64_t before; /* no answer begins behind so many tokens, BOS among them; 0: not known */
} wire_reader;

typedef struct wire_config {
    wire_reader reader[WIRE_READERS];
    int64_t readers;
    int64_t shared, private_slots, slots; /* slots = shared + readers * private */
    int64_t width;                        /* of a slot */
    wire_encoder encoder;
    int64_t bytes;                   /* longest text */
    int64_t places;                  /* of the encoder: the longest of all texts as it reads them */
    int64_t dim, heads, ffn, layers; /* of the encoder */
    int64_t refine;                  /* layers of the refiner */
    int64_t contexts;                /* of the training set: rows of a free latent */
    wire_reader sender;              /* whose states the encoder reads; it need not read itself */
    bool given;                      /* the encoder is another run's, and frozen */
    int64_t sender_layer;
    bool features; /* what it gives is kept */
    wire_place place;
    int64_t hidden; /* width inside an adapter */
    int64_t questions;
    float keep, dropout;
    float nce_temperature, kd_temperature;
    double first, k_ce, kd, state, ae, nce; /* weights in the loss */
    double entropy, manifold, rms, scale, align, cosine;
    int64_t align_k; /* slots that align and cosine see; 0: as many as an answer has tokens */
    int64_t k;       /* first tokens of an answer that k_ce and distillation see; 0: all */
    int64_t states;  /* layers whose states are compared */
    bool cached;     /* the teacher is kept */
    int64_t kd_top;  /* logits that are kept of it */
} wire_config;

/* Opens the readers' parts too. b NULL: no lengths are checked. */
tn_status wire_config_read(tn_graph *g, const tn_settings *st, const tn_batch *b, wire_config *c);
enum { WIRE_SETTINGS = 74 };
extern const tn_setting wire_settings[WIRE_SETTINGS];

/* Z (B,slots,width) f32 of the batch's contexts. */
tn_status wire_encode(tn_graph *g, const wire_config *c, const tn_batch *b, tn_ref *z);

/* What the sender gives the encoder: (B,m,d) of its tokens of the text. */
tn_status wire_send(tn_graph *g, const wire_config *c, const tn_batch *b, tn_ref *x);

/* What a reader is given: vectors (B,M,d), and where they go. */
typedef struct wire_prefix {
    tn_ref vectors;      /* (B,M,d) f32, each of the root mean square of the reader's embeddings; with keys: 1 */
    tn_ref keys, values; /* (B,M,layers*KV,D), or none: the vectors themselves are read */
    tn_ref anchors;      /* (WIRE_ANCHORS,d) */
    tn_ref raw;          /* (B,M,d), the vectors before they have this size */
    tn_ref rho, gain;    /* (1) f32: the size of embeddings; with embeddings alone, a factor that is learned */
} wire_prefix;
wire_prefix wire_adapt(tn_graph *g, const wire_config *c, const wire_reader *r, tn_ref z);

/* Hidden states (N,n-1,d) that say tokens 1 .. n-1 of rows (N,n): state i says token i+1. kind (B) i32, the anchor of
 * N / B rows each. states NULL, or as tn_decoder_forward's, cut alike. */
tn_status wire_read(tn_graph *g, const wire_reader *r, const char *step, const wire_prefix *p, tn_ref kind,
                    tn_ref tokens, tn_ref *states, tn_forward *out);
/* The same of a text row (N,t), right-aligned: the states of its last n-1 tokens. */
tn_status wire_read_told(tn_graph *g, const wire_reader *r, const char *step, tn_ref told, tn_ref document, int64_t n,
                         tn_ref *states, tn_forward *out);
/* The reader's table of embeddings (V,d), frozen. */
tn_ref wire_table(tn_graph *g, const wire_reader *r);
/* Vectors (B,...) as often as there are questions: (B*Q,...). */
tn_ref wire_repeat(tn_graph *g, tn_ref x, int64_t times);

/* Terms that are off unless they are set (wire_terms.c), times their weights; none where all are 0.
 * Of the first token of answers: first (N,n) is 1 at the state of f->hidden (N,n,d) that says it. */
tn_ref wire_entropy(tn_graph *g, const wire_config *c, const tn_forward *f, tn_ref first);
/* Of slots (N,M,d) and answers: those of tokens (N,n) where counts (N,n) is 1, in one piece. */
tn_ref wire_alignment(tn_graph *g, const wire_config *c, const wire_reader *r, tn_ref slots, tn_ref tokens,
                      tn_ref counts);
/* Of P itself; of its rows (axis 0) the first `count` are messages. */
tn_ref wire_size(tn_graph *g, const wire_config *c, const wire_reader *r, const wire_prefix *p, tn_ref count);

/* sum + weight x; either may be none. */
tn_ref wire_plus(tn_graph *g, tn_ref sum, double weight, tn_ref x);
/* x (N,n) moved by t columns to the right: what was at i is at i+t, and zeros before it. */
tn_ref wire_moved(tn_graph *g, tn_ref x, int64_t t);

/* An input of a reader: NAME of "x.NAME". */
tn_ref wire_in(const tn_batch *b, const wire_reader *r, const char *name);

/* The steps (wire_steps.c). */
tn_status wire_build_train(tn_graph *g, const tn_settings *st, const tn_batch *b); /* all terms */
tn_status wire_build_task(tn_graph *g, const tn_settings *st, const tn_batch *b);  /* without autoencoding */
tn_status wire_build_ae(tn_graph *g, const tn_settings *st, const tn_batch *b);    /* autoencoding alone */
tn_status wire_build_eval(tn_graph *g, const tn_settings *st, const tn_batch *b);
tn_status wire_build_encode(tn_graph *g, const tn_settings *st, const tn_batch *b);
tn_status wire_build_read(tn_graph *g, const tn_settings *st, const tn_batch *b);
tn_status wire_build_text(tn_graph *g, const tn_settings *st, const tn_batch *b);
tn_status wire_build_teach(tn_graph *g, const tn_settings *st, const tn_batch *b); /* what a teacher says, to be kept */
size_t wire_choose(const tn_settings *st, int64_t step);

/* A reader that goes on token by token (wire_say.c): puts out "logits" (B,1,vocab) of the batch's last token. The batch is cached. */
typedef struct wire_say {
    int64_t slots, own, width; /* of a message, of these those that the reader reads, numbers of a slot */
    int64_t vocab, context;    /* context: positions that it was trained on */
    bool keys;                 /* P is keys: a message takes no token's place in a batch, but positions */
} wire_say;
tn_status wire_say_shape(tn_graph *g, const tn_settings *st, char letter, wire_say *out);
tn_status wire_build_say(tn_graph *g, const tn_settings *st, const tn_batch *b, char letter);

/* Metrics (wire_metrics.c). */
enum { WIRE_METRICS = 11 };
extern const tn_metric_row wire_metrics[WIRE_METRICS];

#endif
