/* The host's hands on a store's memory in a test, wherever that lies. Header only; fails the test when it cannot. */
#ifndef TN_DEVICE_MEMORY_H
#define TN_DEVICE_MEMORY_H

#include "plan/store.h"
#include "testlib.h"

#include <stdlib.h>
#include <string.h>

static inline void tn_memory_get(const tn_store *s, const void *from, void *host, size_t bytes)
{
    tn_host_copy copy = { 0 };
    const void *x = bytes ? tn_store_read(s, from, bytes, &copy) : host;
    assert_non_null(x);
    if (x != host) memcpy(host, x, bytes);
    tn_host_copy_free(&copy);
}

static inline void tn_memory_put(const tn_store *s, void *to, const void *host, size_t bytes)
{
    if (bytes) assert_ok(tn_store_write(s, to, host, bytes));
}

/* Copies for the test to free. */
static inline void *tn_memory_copy(const tn_store *s, const void *from, size_t bytes)
{
    void *x = malloc(bytes + 1);
    assert_non_null(x);
    tn_memory_get(s, from, x, bytes);
    return x;
}

static inline float *tn_memory_floats(const tn_store *s, const void *from, int64_t n)
{
    return (float *)tn_memory_copy(s, from, sizeof(float) * (size_t)n);
}

/* Whether the store holds these bytes there. */
static inline bool tn_memory_equal(const tn_store *s, const void *at, const void *host, size_t bytes)
{
    void *x = tn_memory_copy(s, at, bytes);
    const bool same = memcmp(x, host, bytes) == 0;
    free(x);
    return same;
}

static inline float tn_memory_float(const tn_store *s, const void *at)
{
    float x;
    tn_memory_get(s, at, &x, sizeof x);
    return x;
}

static inline void tn_memory_set(const tn_store *s, void *at, float x) { tn_memory_put(s, at, &x, sizeof x); }

#endif
