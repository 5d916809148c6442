/* The file: a line of text that says what it is for, then entries of a key and a value each. It is read whole, checked by
 * its size, and replaced whole. It lies in $TENON_CACHE, $XDG_CACHE_HOME/tenon or ~/.cache/tenon. */
#include "backend/cuda/algorithms.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 160, MOST = 8192 };

struct tn_algorithms {
    char path[TN_PATH_BYTES]; /* "": nowhere to write */
    char line[LINE];
    size_t key, value, n, capacity;
    unsigned char *entry; /* (n, key + value) */
    bool changed;
};

bool tn_cache_path(const char *name, char *path)
{
    char dir[TN_PATH_BYTES];
    const char *own = getenv("TENON_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (own && own[0]) n = snprintf(dir, sizeof dir, "%s", own);
    else if (cache && cache[0]) n = snprintf(dir, sizeof dir, "%s/tenon", cache);
    else if (home && home[0]) n = snprintf(dir, sizeof dir, "%s/.cache/tenon", home);
    if (n < 0 || n >= (int)sizeof dir) return false;
    return tn_dir_make(dir) == TN_OK && tn_path_join(dir, name, path, TN_PATH_BYTES) == TN_OK;
}

static bool find_path(char *path, const char *purpose, const char *gpu)
{
    char name[96];
    snprintf(name, sizeof name, "%.16s-%.64s.bin", purpose, gpu);
    for (char *c = name; *c; c++)
        if (*c == ' ' || *c == '/') *c = '-';
    return tn_cache_path(name, path);
}

static void read_file(tn_algorithms *a)
{
    char *text = NULL;
    size_t bytes = 0;
    const size_t each = a->key + a->value, head = strlen(a->line);
    if (tn_file_read_all(a->path, head + MOST * each, &text, &bytes) != TN_OK) return;
    const bool ours = bytes >= head && memcmp(text, a->line, head) == 0 && (bytes - head) % each == 0;
    const size_t n = ours ? (bytes - head) / each : 0;
    if (n && tn_grow((void **)&a->entry, &a->capacity, n, each) == TN_OK) {
        memcpy(a->entry, text + head, n * each);
        a->n = n;
    }
    tn_free(text);
}

tn_algorithms *tn_algorithms_open(const char *purpose, const char *gpu, size_t version, size_t key_bytes,
                                  size_t value_bytes)
{
    tn_algorithms *a = tn_alloc(sizeof *a);
    if (!a) return NULL;
    a->key = key_bytes;
    a->value = value_bytes;
    snprintf(a->line, sizeof a->line, "tenon algorithms 1 %zu %zu %zu %.64s\n", version, key_bytes, value_bytes, gpu);
    if (find_path(a->path, purpose, gpu)) read_file(a);
    else a->path[0] = 0;
    return a;
}

bool tn_algorithms_find(const tn_algorithms *a, const void *key, void *value)
{
    for (size_t i = 0; a && i < a->n; i++) {
        const unsigned char *e = a->entry + i * (a->key + a->value);
        if (memcmp(e, key, a->key) != 0) continue;
        memcpy(value, e + a->key, a->value);
        return true;
    }
    return false;
}

void tn_algorithms_add(tn_algorithms *a, const void *key, const void *value)
{
    if (!a || a->n >= MOST) return;
    const size_t each = a->key + a->value;
    if (tn_grow((void **)&a->entry, &a->capacity, a->n + 1, each) != TN_OK) return;
    memcpy(a->entry + a->n * each, key, a->key);
    memcpy(a->entry + a->n * each + a->key, value, a->value);
    a->n++;
    a->changed = true;
}

static void write_file(const tn_algorithms *a)
{
    tn_atomic_file f;
    if (tn_atomic_open(a->path, &f) != TN_OK) return;
    if (tn_atomic_write(&f, a->line, strlen(a->line)) == TN_OK &&
        tn_atomic_write(&f, a->entry, a->n * (a->key + a->value)) == TN_OK)
        (void)tn_atomic_finish(&f);
    else tn_atomic_abort(&f);
}

void tn_algorithms_close(tn_algorithms *a)
{
    if (!a) return;
    if (a->changed && a->path[0]) write_file(a);
    tn_free(a->entry);
    tn_free(a);
}
