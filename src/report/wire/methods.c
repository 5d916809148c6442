/* What a reader is given in the place of a text. */
#include "report/wire/methods.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "io/wire_file.h"

#include <string.h>

const char *const tn_wire_method_names[TN_WIRE_METHODS] = {
    "text", "none", "first", "last", "random", "latent", "fp16", "int8", "int6", "int4", "shuffled", "mean", "zero",
};

static const int bits_of[TN_WIRE_METHODS] = {
    [TN_WIRE_FP16] = 16, [TN_WIRE_INT8] = 8, [TN_WIRE_INT6] = 6, [TN_WIRE_INT4] = 4
};

/* z as it arrives in so many bits. */
static tn_status through_wire(const tn_wire_given *x, int bits, const float *z, float *to, size_t *bytes)
{
    tn_status s = TN_OK;
    tn_wire_message m = { .z = NULL };
    unsigned char *buffer = NULL;
    tn_wire_size size;
    const uint32_t own = (uint32_t)(x->private_slots * x->readers);
    const tn_wire_options o = { .encoder = "00000000000000000000000000000000",
                                .bits = bits,
                                .group = TN_WIRE_GROUP,
                                .scale = TN_F16,
                                .shared_slots = (uint32_t)x->slots - own,
                                .private_slots = (uint32_t)x->private_slots,
                                .models = own ? (uint32_t)x->readers : 0,
                                .width = (uint32_t)x->width };
    TN_TRY(tn_wire_size_of(&o, &size));
    buffer = tn_alloc(size.message);
    if (!buffer) TN_FAIL(TN_MEMORY, "out of memory");
    TN_TRY(tn_wire_encode(&o, z, buffer));
    TN_TRY(tn_wire_decode("message", buffer, size.message, &(tn_wire_limits){ 0 }, &m));
    memcpy(to, m.z, sizeof *to * (size_t)(x->slots * x->width));
    *bytes = size.message;
done:
    tn_free(buffer);
    tn_wire_message_free(&m);
    return s;
}

tn_status tn_wire_give_message(const tn_wire_given *x, tn_wire_method m, int64_t context, float *to, size_t *bytes)
{
    const int64_t n = x->slots * x->width;
    const size_t each = sizeof *to * (size_t)n;
    switch (m) {
    case TN_WIRE_LATENT: memcpy(to, x->z + context * n, each); return TN_OK;
    case TN_WIRE_SHUFFLED: memcpy(to, x->z + (context + 1) % x->contexts * n, each); return TN_OK;
    case TN_WIRE_MEAN: memcpy(to, x->mean, each); return TN_OK;
    case TN_WIRE_ZERO: memset(to, 0, each); return TN_OK;
    default: return through_wire(x, bits_of[m], x->z + context * n, to, bytes);
    }
}

void tn_wire_give_tokens(const tn_wire_given *x, tn_wire_method m, int64_t context, int64_t n, bool *keep)
{
    const int64_t most = m == TN_WIRE_NONE ? 0 : m == TN_WIRE_TEXT ? n : x->slots < n ? x->slots : n;
    const tn_rng rng = { x->seed, (uint64_t)context };
    int64_t left = most;
    for (int64_t i = 0; i < n; i++) {
        if (m == TN_WIRE_FIRST || m == TN_WIRE_TEXT) keep[i] = i < most;
        else if (m == TN_WIRE_LAST) keep[i] = i >= n - most;
        else keep[i] = left > 0 && tn_rng_uniform(rng, (uint64_t)i) * (double)(n - i) < (double)left;
        left -= keep[i];
    }
}

void tn_wire_cut_row(const int32_t *told, const int32_t *document, int64_t n, int64_t context, const bool *keep,
                     int32_t *to, int32_t *to_document)
{
    int64_t at = 0, out = n;
    while (at < n && !document[at]) at++;
    memset(to, 0, sizeof *to * (size_t)n);
    memset(to_document, 0, sizeof *to * (size_t)n);
    if (at == n) return; /* no such question */
    for (int64_t i = n; i-- > at;) {
        const int64_t place = i - at - 1; /* in the context; -1: BOS */
        if (place >= 0 && place < context && !keep[place]) continue;
        to[--out] = told[i];
        to_document[out] = 1;
    }
}
