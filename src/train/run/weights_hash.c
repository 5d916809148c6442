/* Parameters in the order of their names. */
#include "train/run/weights_hash.h"

#include "base/alloc.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 1 << 18 }; /* read at a time */

tn_status tn_entry_numbers(const tn_store *store, const tn_entry *e, void (*see)(void *ctx, const float *x, int64_t n),
                           void *ctx)
{
    tn_status s = TN_OK;
    tn_host_copy host = { 0 };
    float *made = NULL;
    const int64_t count = tn_dims_count(e->dims);
    const size_t item = tn_dtype_bytes(e->dtype);
    if (e->dtype != TN_F32 && !(made = tn_alloc(NUMBERS * sizeof *made))) TN_TRY(TN_MEMORY);
    for (int64_t at = 0; at < count; at += NUMBERS) {
        const int64_t n = count - at < NUMBERS ? count - at : NUMBERS;
        const void *x =
            tn_store_read(store, (const unsigned char *)e->data + (size_t)at * item, (size_t)n * item, &host);
        if (!x) TN_TRY(TN_MEMORY);
        if (made) tn_convert(made, TN_F32, x, e->dtype, n);
        see(ctx, made ? made : x, n);
    }
done:
    tn_free(made);
    tn_host_copy_free(&host);
    return s;
}

static void add_numbers(void *ctx, const float *x, int64_t n) { tn_hash_add(ctx, x, sizeof *x * (size_t)n); }

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const tn_entry *const *)a)->name, (*(const tn_entry *const *)b)->name);
}

tn_status tn_weights_hash_add(const tn_store *store, tn_weights_name *name_of, const void *ctx, tn_hash *h, size_t *n)
{
    tn_status s = TN_OK;
    size_t count = 0;
    const tn_entry **entry = tn_alloc((tn_store_count(store) + 1) * sizeof *entry);
    if (!entry) return TN_MEMORY;
    for (size_t i = 0; i < tn_store_count(store); i++)
        if (name_of(ctx, tn_store_at(store, i))) entry[count++] = tn_store_at(store, i);
    qsort(entry, count, sizeof *entry, by_name);
    for (size_t i = 0; i < count; i++) {
        const char *name = name_of(ctx, entry[i]);
        const tn_dims *dims = &entry[i]->dims;
        tn_hash_add(h, name, strlen(name) + 1);
        for (int k = 0; k < dims->rank; k++) tn_hash_add(h, &dims->dim[k], sizeof dims->dim[k]);
        TN_TRY(tn_entry_numbers(store, entry[i], add_numbers, h));
    }
    if (n) *n = count;
done:
    tn_free(entry);
    return s;
}
