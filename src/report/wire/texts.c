/* Sizes of texts, one by one as they would be sent. */
#include "report/wire/texts.h"

#include "base/alloc.h"
#include "base/status.h"
#include "report/wire/rows.h"

#include <string.h>
#include <zstd.h>

enum { LEVEL = 19 };

/* One context of n bytes, each in an i32. */
static tn_status add_text(const int32_t *bytes, int64_t n, unsigned char *text, unsigned char *packed, size_t room,
                          tn_wire_sizes *to)
{
    for (int64_t i = 0; i < n; i++) text[i] = (unsigned char)bytes[i];
    const size_t size = ZSTD_compress(packed, room, text, (size_t)n, LEVEL);
    if (ZSTD_isError(size)) return tn_error(TN_INTERNAL, "zstd: %s", ZSTD_getErrorName(size));
    to->bytes += (double)n, to->packed += (double)size;
    to->contexts++;
    return TN_OK;
}

/* Of text i, of which the encoder reads n bytes: the question that it may see there is the reader's anyway, and would not be sent. */
static tn_status context_bytes(tn_wire_golds *g, bool both, int64_t i, int64_t *n)
{
    if (!both) return TN_OK;
    TN_RETURN_IF(tn_wire_golds_read(g, i));
    if ((int64_t)g->example.context.bytes < *n) *n = (int64_t)g->example.context.bytes;
    return TN_OK;
}

tn_status tn_wire_sizes_measure(tn_session *session, int split, tn_wire_sizes *out)
{
    tn_status s = TN_OK;
    const bool both = strcmp(tn_settings_text(session->settings, "encoder_sees"), "both") == 0;
    tn_wire_golds golds = { .texts = NULL };
    const int32_t *bytes = tn_trainer_input(session->trainer, "bytes"),
                  *lengths = tn_trainer_input(session->trainer, "lengths");
    const int64_t most = tn_settings_int(session->settings, "bytes");
    const size_t room = ZSTD_compressBound((size_t)most);
    unsigned char *text = NULL, *packed = NULL;
    tn_wire_sizes sum = { 0 };
    if (bytes && lengths) {
        if (both) TN_TRY(tn_wire_golds_open(session, split, &golds));
        text = tn_alloc((size_t)most + 1);
        packed = tn_alloc(room);
        if (!text || !packed) TN_FAIL(TN_MEMORY, "out of memory");
        for (int64_t i = 0, count;; i++) {
            TN_TRY(tn_source_heldout(&session->source, i, session->trainer, &count));
            if (!count) break;
            const int64_t rows = *tn_trainer_feed_again(session->trainer).valid;
            for (int64_t k = 0; k < rows && k < session->batch; k++) {
                int64_t n = lengths[k] < most ? lengths[k] : most;
                TN_TRY(context_bytes(&golds, both, sum.contexts, &n));
                TN_TRY(add_text(bytes + k * most, n, text, packed, room, &sum));
            }
        }
    }
    if (sum.contexts) sum.bytes /= (double)sum.contexts, sum.packed /= (double)sum.contexts;
    *out = sum;
done:
    tn_wire_golds_free(&golds);
    tn_free(text);
    tn_free(packed);
    return s;
}
