/* A decoder (llama, mistral, qwen) in the files of others as the model `gpt` has it. One table (decoder_file.c) says which
 * tensors of a file make one of ours, with a column of names for each format; the readers (gguf_model.h, hf_model.h) find those
 * tensors and check the header.
 *
 * The file stays mapped. A tensor of ours is up to TN_PIECES tensors of the file, one after another (q, k and v; gate and up):
 * their numbers are decoded when they are asked for, or handed out where they lie. No copy of the model is held. */
#ifndef TN_IO_DECODER_FILE_H
#define TN_IO_DECODER_FILE_H

#include "base/alloc.h"
#include "io/gguf_blocks.h"
#include "io/safetensors.h"

enum { TN_PIECES = 3, TN_DECODER_META = 3 };

typedef enum tn_decoder_scaling {
    TN_SCALED_NONE,
    TN_SCALED_LLAMA3,
    TN_SCALED_LINEAR,
    TN_SCALED_YARN
} tn_decoder_scaling;

/* What is computed. The readers bound all of it before it is used: the bounds are those of gpt's settings. */
typedef struct tn_decoder_config {
    int64_t dim, ffn, layers, heads, kv_heads, head_dim, vocab, context;
    bool tied, bias, qk_norm, interleaved; /* bias: of q, k, v; interleaved: rotary pairs */
    double eps, base;
    tn_decoder_scaling scaling;
    double stretch, stretch_context;               /* its factor and original context */
    double beta_fast, beta_slow, attention_factor; /* of yarn; an attention factor of 0: by the formula */
} tn_decoder_config;

typedef enum tn_decoder_names { TN_NAMES_GGUF, TN_NAMES_HF, TN_NAMES } tn_decoder_names;

/* A tensor of ours and its pieces. Names stay valid until the visitor returns. */
typedef struct tn_decoder_tensor {
    char name[64];
    char piece[TN_PIECES][96]; /* as the format names them */
    int64_t rows[TN_PIECES];
    int64_t columns; /* 0: it has one axis */
    int n;
} tn_decoder_tensor;

/* Every tensor of such a model, in our order. */
typedef tn_status tn_decoder_visit(void *ctx, const tn_decoder_tensor *t);
tn_status tn_decoder_each(const tn_decoder_config *c, tn_decoder_names names, tn_decoder_visit *visit, void *ctx);

/* A tensor of a file. */
typedef struct tn_file_piece {
    const tn_gguf_type *type;
    const unsigned char *data; /* unaligned */
    int64_t count;
} tn_file_piece;

typedef struct tn_decoder_file {
    tn_decoder_config config;
    tn_file_tensor *
        tensor; /* (n), `data` NULL. dtype: that of all pieces where they have one of ours, else f32; bytes: of such numbers */
    tn_file_piece (*piece)[TN_PIECES]; /* (n) */
    size_t n;
    tn_text_pair meta[TN_DECODER_META]; /* as a file of ours would have it: format, model, settings */
    char settings[1024];
    tn_arena arena;
    void (*close)(void *ctx); /* the reader's */
    void *ctx;
} tn_decoder_file;

/* The tensor `name` of the file, whose shape must be `dims`. */
typedef tn_status tn_decoder_find(void *ctx, const char *name, tn_dims dims, tn_file_piece *out);
/* Fills f->tensor, piece and meta from f->config. */
tn_status tn_decoder_file_list(tn_decoder_file *f, tn_decoder_names names, tn_decoder_find *find, void *ctx);
void tn_decoder_file_close(tn_decoder_file *f); /* takes NULL; frees f */

const tn_file_tensor *tn_decoder_file_find(const tn_decoder_file *f, const char *name); /* NULL where there is none */
/* dst (n): the numbers first .. first+n-1 of a tensor of f. */
void tn_decoder_file_read(const tn_decoder_file *f, const tn_file_tensor *t, int64_t first, int64_t n, float *dst);
/* Its pieces where they lie; returns how many. */
int tn_decoder_file_pieces(const tn_decoder_file *f, const tn_file_tensor *t, tn_file_piece out[TN_PIECES]);

/* The shortest text that is the same f32. */
typedef struct tn_short_number {
    char text[32];
} tn_short_number;
tn_short_number tn_short_number_of(double x);

#endif
