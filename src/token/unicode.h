/* What tokenizers need of Unicode: UTF-8, classes of code points, NFC. Tables come from scripts/gen_unicode.py.
 *
 * Classes are those of Unicode 16.0 and NFC that of Unicode 9.0, because the reference libraries use these. Not a
 * Unicode library: no case mapping, no compatibility forms. Invariant: functions that take valid text never read
 * beyond its end if it is valid, and text is made valid (tn_utf8_repair) before anything else looks at it. */
#ifndef TN_TOKEN_UNICODE_H
#define TN_TOKEN_UNICODE_H

#include "token/tokenizer.h"

enum {
    TN_CLASS_L = 1,      /* letter */
    TN_CLASS_N = 2,      /* number */
    TN_CLASS_SPACE = 4,  /* \s */
    TN_CLASS_MARK = 8,   /* M */
    TN_CLASS_UPPER = 16, /* Lu Lt Lm Lo M: o200k's first part of a word */
    TN_CLASS_LOWER = 32, /* Ll Lm Lo M: its second */
    TN_CLASS_LOOK = 64   /* NFC may change it, or put it together with what is before it */
};

enum { TN_UNICODE_BLOCKS = 0x1100 };

typedef struct tn_unicode {
    uint16_t block[TN_UNICODE_BLOCKS]; /* of 256 code points each: index into classes, in blocks */
    uint8_t *classes;                  /* (blocks,256); the first block is U+0000..U+00FF */
} tn_unicode;

tn_status tn_unicode_new(tn_unicode **out);
void tn_unicode_free(tn_unicode *u); /* takes NULL */

/* The first character of n > 0 bytes: TN_UTF8_CHAR with its length; TN_UTF8_BAD with the length of the maximal part
 * that one U+FFFD replaces; TN_UTF8_CUT where the text ends inside a character that could still become good (*length =
 * n). */
typedef enum tn_utf8 { TN_UTF8_CHAR, TN_UTF8_BAD, TN_UTF8_CUT } tn_utf8;
tn_utf8 tn_utf8_first(const unsigned char *p, size_t n, size_t *length);
/* Bytes at the start of text that are valid UTF-8. */
size_t tn_utf8_prefix(const char *text, size_t bytes);
/* Appends text with U+FFFD for what is no UTF-8. */
tn_status tn_utf8_repair(const char *text, size_t bytes, tn_text *out);

tn_status tn_text_append(tn_text *t, const void *data, size_t bytes);
tn_status tn_tokens_reserve(tn_tokens *t, size_t more);

/* Code points being normalized; zeroed at first. */
typedef struct tn_nfc_space {
    uint32_t *code; /* (capacity) */
    size_t n, capacity;
    uint32_t *sorted;
    size_t sorted_capacity;
} tn_nfc_space;
void tn_nfc_space_free(tn_nfc_space *x);
/* Whether valid text may not be NFC. */
bool tn_nfc_needed(const tn_unicode *u, const char *text, size_t bytes);
/* Appends the NFC of valid text. */
tn_status tn_nfc(const tn_unicode *u, tn_nfc_space *x, const char *text, size_t bytes, tn_text *out);
size_t tn_utf8_write(uint32_t code, char *out); /* 1 to 4 bytes */

/* The code point at p, in valid text, and its length. */
static inline uint32_t tn_utf8_get(const unsigned char *p, size_t *length)
{
    if (p[0] < 0x80) return *length = 1, p[0];
    if (p[0] < 0xe0) return *length = 2, (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    if (p[0] < 0xf0) return *length = 3, (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    *length = 4;
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 | (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
}

static inline unsigned tn_class_of(const tn_unicode *u, uint32_t code)
{
    return u->classes[(size_t)u->block[code >> 8] << 8 | (code & 0xff)];
}

/* The class of the character at p, in valid text, and its length. */
static inline unsigned tn_class_at(const tn_unicode *u, const unsigned char *p, size_t *length)
{
    if (p[0] < 0x80) return *length = 1, u->classes[p[0]];
    return tn_class_of(u, tn_utf8_get(p, length));
}

#endif
