/* The inputs of a run: a model's rows matched with those that the source fills, sizes resolved. Plans, feeds, chunks,
 * buckets, evaluation and the C API walk this list; no name has a meaning here. */
#ifndef TN_TRAIN_INPUTS_H
#define TN_TRAIN_INPUTS_H

#include "base/hash.h"
#include "base/rng.h"

#include <tenon/model.h>

/* What somebody fills inputs with. A source states its own; who has none (checks, benchmarks, a caller's arrays) takes the model's. */
typedef struct tn_input_spec {
    const tn_input_row *rows; /* (n_rows), or NULL: the model's own */
    size_t n_rows;
    bool optional;                   /* of the model's own: the optional ones too */
    const tn_source_number *numbers; /* (n_numbers) */
    size_t n_numbers;
} tn_input_spec;

/* The model's own rows without the optional ones, but with the input of this name; `rows` is what the answer points to. */
tn_input_spec tn_input_spec_with(const tn_model *model, const char *input, tn_input_row rows[TN_INPUTS_MAX]);
/* NaN: it has none of that name. */
double tn_input_spec_number(const tn_input_spec *s, const char *name);

typedef struct tn_input_slot {
    const tn_input_row *row;   /* the model's; the supplier's where the model has none */
    const tn_input_row *given; /* the supplier's: the same sizes, by the names that a shape has for them */
    bool read;                 /* the model has it */
    bool has_time;             /* its second dim is T */
    int rank;
    int64_t dim[TN_INPUT_RANK]; /* B and T are 0 here */
    int64_t each; /* items of a row of the batch, of one token where it is timed; 0: it has no B, and `all` items */
    int64_t all;
    int64_t below; /* 0: any number */
    /* > 0: training plans take it from so many samples that stay on the device (resident.h), stored in this type */
    int64_t samples;
    tn_dtype stored;
    float scale;   /* of TN_U8 */
    bool left_out; /* batches of training are without it */
} tn_input_slot;

typedef struct tn_inputs {
    tn_input_slot slot[TN_INPUTS_MAX]; /* (n): the supplier's rows in its order */
    size_t n;
    tn_source_number number[TN_BATCH_NUMBERS];
    size_t n_numbers;
    bool cut;                    /* one of them is: sequences of T tokens, else samples */
    int number_slot, valid_slot; /* where samples stay: which one a row is, how many rows are valid */
} tn_inputs;

/* Smaller sizes of some of the data's numbers, for batches of short records: the sizes of a plan of its own. */
enum { TN_SHAPE_SIZES = 16, TN_SHAPES_MOST = 63 };
typedef struct tn_input_shape {
    tn_source_number size[TN_SHAPE_SIZES]; /* (n) */
    size_t n;
} tn_input_shape;

/* Of the model's rows of inputs and losses what can be said without data: TN_USAGE where there are none or too many, or names are wrong. */
tn_status tn_inputs_check(const tn_model *model, const tn_settings *st);
/* TN_USAGE, with model, row and remedy: a dim nobody knows, an input that nobody fills, types or sizes that differ, two of one name.
 * supply NULL: the model's own rows without the optional ones. */
tn_status tn_inputs_match(const tn_model *model, const tn_settings *st, const tn_input_spec *input_spec,
                          tn_inputs *out);
/* The same inputs with the sizes of a shape. */
void tn_inputs_narrow(const tn_inputs *whole, const tn_input_shape *s, tn_inputs *out);
/* Whether the model's rows have an input of that name. */
bool tn_model_reads(const tn_model *model, const char *input);
/* Whether it reads sequences that can be cut along time (tokens), not samples. */
bool tn_model_reads_sequences(const tn_model *model);
/* T as the settings have it: the model's own setting for it, or train.context; 1 where no input has it. */
int64_t tn_inputs_length(const tn_model *model, const tn_settings *st);

/* Whether there is a setting of whole numbers by that name: sizes come from such alone. */
bool tn_inputs_setting(const tn_settings *st, const char *key);

/* What the samples of an input are called in the store. */
enum { TN_INPUT_DATA_NAME = 128 };
const char *tn_input_data_name(const char *input, char name[TN_INPUT_DATA_NAME]);

/* Makes the inputs in the graph, for B rows of T tokens, and puts them and the numbers into the batch. */
void tn_inputs_build(const tn_inputs *in, tn_graph *g, tn_batch *b);
/* Items of a slot at this size. */
int64_t tn_input_items(const tn_input_slot *s, int64_t B, int64_t T);

/* Of all that a plan's inputs, and the outputs wanted of it, depend on. */
tn_status tn_inputs_hash(const tn_inputs *in, const char *const *wants, char hash[TN_HASH_BYTES]);

/* Where inputs are written, by slot. NULL: the plan has no use for it. All items have four bytes. */
typedef struct tn_feed {
    const tn_inputs *inputs;
    int64_t batch, length; /* B, T of the plan at work */
    int shape;             /* whose sizes `inputs` have, from 1; 0: the whole ones */
    int64_t *valid;        /* rows that are no padding: all, until tn_feed_end says otherwise */
    void *at[TN_INPUTS_MAX];
} tn_feed;

/* Who hands out feeds: of a shape; where that is 0, for rows of `width` tokens, the narrowest that holds them. */
typedef struct tn_feeder {
    void *ctx;
    tn_feed (*feed)(void *ctx, int64_t width, int shape);
} tn_feeder;

static inline tn_feed tn_feed_for(const tn_feeder *f, int64_t width) { return f->feed(f->ctx, width, 0); }
static inline tn_feed tn_feed_full(const tn_feeder *f) { return f->feed(f->ctx, INT64_MAX, 0); }
static inline tn_feed tn_feed_of(const tn_feeder *f, int shape) { return f->feed(f->ctx, INT64_MAX, shape); }
static inline tn_feed tn_feed_like(const tn_feeder *f, const tn_feed *as)
{
    return f->feed(f->ctx, as->length, as->shape);
}

/* Which slots somebody's rows are: found once, used in every step. */
typedef struct tn_feed_map {
    int slot[TN_INPUTS_MAX]; /* by row; -1: nobody reads it */
} tn_feed_map;

tn_feed_map tn_feed_map_of(const tn_inputs *in, const tn_input_row *rows, size_t n);
static inline void *tn_feed_row(const tn_feed *f, const tn_feed_map *m, int row)
{
    return m->slot[row] < 0 ? NULL : f->at[m->slot[row]];
}

/* By name; not inside a step. */
void *tn_feed_at(const tn_feed *f, const char *name);
/* The first n rows are valid; those behind become padding, and an input that has .valid_rows becomes n. */
void tn_feed_end(const tn_feed *f, int64_t n);
/* Row b of all cut inputs has its first `width` tokens; those behind become padding. */
void tn_feed_pad_row(const tn_feed *f, int64_t b, int64_t width);
/* Numbers nobody has seen: normal ones, and whole ones below their bound; where there is none, a row's own number. All rows are valid. */
void tn_feed_random(const tn_feed *f, tn_rng rng);

#endif
