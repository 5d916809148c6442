/* Bytes as a source. The cursor also holds the sizes of the text, so that a run is not continued on another one. */
#include "train/source.h"

static tn_status bytes_next(void *ctx, int32_t *tokens, int32_t *labels)
{
    tn_bytes_source *b = ctx;
    tn_bytes_batch(b->data, b->seed, b->at++, b->batch, b->length, tokens, labels);
    return TN_OK;
}

static tn_status bytes_heldout(void *ctx, int64_t i, int32_t *tokens, int32_t *labels)
{
    const tn_bytes_source *b = ctx;
    tn_bytes_heldout(b->data, i, b->batch, b->length, tokens, labels);
    return TN_OK;
}

static json_t *bytes_save(void *ctx)
{
    const tn_bytes_source *b = ctx;
    return json_pack("{s:s, s:I, s:I, s:I}", "kind", "bytes", "batches", (json_int_t)b->at, "train",
                     (json_int_t)tn_bytes_size(b->data, false), "heldout", (json_int_t)tn_bytes_size(b->data, true));
}

static tn_status bytes_load(void *ctx, const json_t *cursor)
{
    tn_bytes_source *b = ctx;
    const long long train = json_integer_value(json_object_get(cursor, "train")),
                    heldout = json_integer_value(json_object_get(cursor, "heldout"));
    const json_t *at = json_object_get(cursor, "batches");
    if (!json_is_integer(at) || json_integer_value(at) < 0)
        return tn_error(TN_USAGE, "the run was trained on other data than plain text: give it the same, or start over with --fresh");
    if ((size_t)train != tn_bytes_size(b->data, false) || (size_t)heldout != tn_bytes_size(b->data, true))
        return tn_error(TN_USAGE, "the text has %zu + %zu bytes and had %lld + %lld when the run began: put the old text back, or start "
                                  "over with --fresh or run=OTHER", tn_bytes_size(b->data, false), tn_bytes_size(b->data, true),
                        train, heldout);
    b->at = json_integer_value(at);
    return TN_OK;
}

tn_source tn_source_of_bytes(tn_bytes_source *b)
{
    return (tn_source){ .ctx = b, .next = bytes_next, .heldout = bytes_heldout, .save = bytes_save, .load = bytes_load };
}
