/* UTF-8 and classes of code points. The class table is unpacked from runs once per tokenizer: equal blocks are kept
 * once, which leaves some 60 KiB. */
#include "token/unicode.h"

#include "base/alloc.h"

#include <string.h>

#define TN_UNICODE_CLASSES
#include "token/unicode_tables.h"

static int32_t find_block(const uint8_t *classes, size_t n, const uint8_t *block)
{
    for (size_t i = n; i > 0; i--)
        if (memcmp(classes + ((i - 1) << 8), block, 256) == 0) return (int32_t)(i - 1);
    return -1;
}

tn_status tn_unicode_new(tn_unicode **out)
{
    tn_status s = TN_OK;
    size_t n = 0, capacity = 0, run = 0;
    uint32_t left = class_runs[0] >> 7;
    uint8_t block[256];
    tn_unicode *u = tn_alloc(sizeof *u);
    if (!u) return TN_MEMORY;
    for (size_t b = 0; b < TN_UNICODE_BLOCKS; b++) {
        for (size_t i = 0; i < 256; i++) {
            if (left == 0) left = class_runs[++run] >> 7;
            block[i] = class_runs[run] & 0x7f;
            left--;
        }
        int32_t at = find_block(u->classes, n, block);
        if (at < 0) {
            void *p = u->classes;
            if ((n + 1) << 8 > capacity) TN_TRY(tn_grow(&p, &capacity, n ? n << 9 : 64 << 8, 1));
            u->classes = p;
            memcpy(u->classes + (n << 8), block, sizeof block);
            at = (int32_t)n++;
        }
        u->block[b] = (uint16_t)at;
    }
    *out = u;
    u = NULL;
done:
    tn_unicode_free(u);
    return s;
}

void tn_unicode_free(tn_unicode *u)
{
    if (!u) return;
    tn_free(u->classes);
    tn_free(u);
}

tn_utf8 tn_utf8_first(const unsigned char *p, size_t n, size_t *length)
{
    const unsigned c = p[0];
    const size_t need = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    /* the second byte is narrower after four leads: no overlong forms, no surrogates, nothing above U+10FFFF */
    const unsigned low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80, high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    *length = 1;
    if (need == 0) return TN_UTF8_BAD;
    for (size_t i = 1; i < need; i++) {
        *length = i;
        if (i == n) return TN_UTF8_CUT;
        if (p[i] < (i == 1 ? low : 0x80) || p[i] > (i == 1 ? high : 0xbf)) return TN_UTF8_BAD;
    }
    *length = need;
    return TN_UTF8_CHAR;
}

size_t tn_utf8_prefix(const char *text, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t i = 0;
    while (i < bytes) {
        uint64_t eight;
        for (; bytes - i >= 8; i += 8) { /* most text is ASCII */
            memcpy(&eight, p + i, 8);
            if (eight & 0x8080808080808080u) break;
        }
        size_t n = 1;
        if (i < bytes && p[i] >= 0x80 && tn_utf8_first(p + i, bytes - i, &n) != TN_UTF8_CHAR) return i;
        if (i < bytes) i += n;
    }
    return i;
}

tn_status tn_text_append(tn_text *t, const void *data, size_t bytes)
{
    size_t need;
    void *p = t->data;
    if (bytes == 0) return TN_OK;
    if (!tn_add_ok(t->n, bytes, &need))
        return tn_error(TN_MEMORY, "a text outgrew the address space; encode it in parts");
    if (need > t->capacity) {
        TN_RETURN_IF(tn_grow(&p, &t->capacity, need + need / 2, 1));
        t->data = p;
    }
    memcpy(t->data + t->n, data, bytes);
    t->n = need;
    return TN_OK;
}

void tn_text_free(tn_text *t)
{
    tn_free(t->data);
    *t = (tn_text){ 0 };
}

tn_status tn_tokens_reserve(tn_tokens *t, size_t more)
{
    size_t need;
    void *p = t->ids;
    if (!tn_add_ok(t->n, more, &need))
        return tn_error(TN_MEMORY, "too many tokens for the address space; encode in parts");
    if (need <= t->capacity) return TN_OK;
    TN_RETURN_IF(tn_grow(&p, &t->capacity, need + need / 2, sizeof *t->ids));
    t->ids = p;
    return TN_OK;
}

void tn_tokens_free(tn_tokens *t)
{
    tn_free(t->ids);
    *t = (tn_tokens){ 0 };
}

tn_status tn_utf8_repair(const char *text, size_t bytes, tn_text *out)
{
    const size_t before = out->n;
    for (size_t at = 0; at < bytes;) {
        const size_t good = tn_utf8_prefix(text + at, bytes - at);
        tn_status s = tn_text_append(out, text + at, good);
        at += good;
        if (s == TN_OK && at < bytes) {
            size_t length;
            (void)tn_utf8_first((const unsigned char *)text + at, bytes - at, &length);
            s = tn_text_append(out, "\xef\xbf\xbd", 3);
            at += length;
        }
        if (s != TN_OK) {
            out->n = before;
            return s;
        }
    }
    return TN_OK;
}

size_t tn_utf8_write(uint32_t code, char *out)
{
    if (code < 0x80) return out[0] = (char)code, 1;
    const size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00u >> n & 0xf0) | code);
    return n;
}
