/* Sizes of texts, one by one as they would be sent: a question is the reader's, whatever the encoder sees. */
#include "report/wire/texts.h"

#include "base/alloc.h"
#include "base/status.h"
#include "report/wire/rows.h"

#include <zstd.h>

enum { LEVEL = 19 };

tn_status tn_wire_sizes_measure(const tn_session *session, int split, tn_wire_sizes *out)
{
    tn_status s = TN_OK;
    tn_wire_golds g = { .texts = NULL };
    tn_wire_sizes sum = { 0 };
    void *packed = NULL;
    size_t capacity = 0;
    TN_TRY(tn_wire_golds_open(session, split, &g));
    for (; sum.contexts < g.texts->count[split]; sum.contexts++) {
        TN_TRY(tn_wire_golds_read(&g, sum.contexts));
        const size_t n = g.example.context.bytes;
        TN_TRY(tn_grow(&packed, &capacity, ZSTD_compressBound(n), 1));
        const size_t size = ZSTD_compress(packed, capacity, tn_wire_at(&g.example, g.example.context), n, LEVEL);
        if (ZSTD_isError(size)) TN_FAIL(TN_INTERNAL, "zstd: %s", ZSTD_getErrorName(size));
        sum.bytes += (double)n, sum.packed += (double)size;
    }
    if (sum.contexts) sum.bytes /= (double)sum.contexts, sum.packed /= (double)sum.contexts;
    *out = sum;
done:
    tn_wire_golds_free(&g);
    tn_free(packed);
    return s;
}
