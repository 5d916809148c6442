/* Reads the text once. Open brackets are a stack, so deep nesting causes no deep recursion. */
#include "io/json_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void tn_json_open(tn_json *r, const char *text, size_t bytes)
{
    r->begin = r->at = text ? text : ""; /* what a file does not have: nothing */
    r->end = r->begin + (text ? bytes : 0);
    r->why = NULL;
    r->nul = false;
    r->raw = "";
    r->raw_bytes = r->bytes = 0;
    r->depth = 0;
}

/* An error of the caller's at this place; the first one stays. */
static bool fail_at(tn_json *r, const char *why)
{
    if (!r->why) r->why = why;
    return false;
}

size_t tn_json_line(const tn_json *r)
{
    size_t n = 1;
    for (const char *p = r->begin; p < r->at && (p = memchr(p, '\n', (size_t)(r->at - p))); p++) n++;
    return n;
}

static void skip_space(tn_json *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')) r->at++;
}

char tn_json_peek(tn_json *r)
{
    if (r->why) return 0;
    skip_space(r);
    const char c = r->at < r->end ? *r->at : 0;
    if (c == '-' || (c >= '0' && c <= '9')) return '0';
    return c == '{' || c == '[' || c == '"' || c == 't' || c == 'f' || c == 'n' ? c : 0;
}

/* --- texts ------------------------------------------------------------------------------------------------------------ */

/* Length of the well-formed UTF-8 character at p, of which `left` bytes are there; 0: none (Unicode, table 3-7). */
static size_t utf8_bytes(const unsigned char *p, size_t left)
{
    const unsigned char c = p[0];
    const size_t n = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    if (n > left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    if ((c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F)) return 0; /* overlong; surrogates */
    if ((c == 0xF0 && p[1] < 0x90) || (c == 0xF4 && p[1] > 0x8F)) return 0; /* overlong; beyond U+10FFFF */
    return n;
}

/* Four hexadecimal digits; -1 where they are none. */
static int32_t hex4(const char *p, size_t left)
{
    int32_t x = 0;
    for (int i = 0; i < 4; i++) {
        const char c = left > (size_t)i ? p[i] : 0;
        const int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (d < 0) return -1;
        x = x << 4 | d;
    }
    return x;
}

/* The escape after a backslash at p: its code point in *code and how many bytes of p it takes; 0: it is none. A surrogate
 * without its other half is none. */
static size_t escape_at(const char *p, size_t left, uint32_t *code)
{
    static const char names[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
    const char *known = left > 1 && p[1] ? strchr(names, p[1]) : NULL;
    if (known) return *code = (unsigned char)codes[known - names], 2;
    const int32_t high = left > 1 && p[1] == 'u' ? hex4(p + 2, left - 2) : -1;
    if (high < 0 || (high >= 0xDC00 && high <= 0xDFFF)) return 0;
    *code = (uint32_t)high;
    if (high < 0xD800 || high > 0xDBFF) return 6;
    const int32_t low = left > 7 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8, left - 8) : -1;
    if (low < 0xDC00 || low > 0xDFFF) return 0;
    *code = 0x10000u + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
    return 12;
}

static size_t put_utf8(uint32_t c, char *out)
{
    static const unsigned char lead[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    const size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(n == 1 ? c : lead[n] | c);
    return n;
}

/* Bytes from p that stand for themselves: ASCII but quotes, backslashes and controls. */
static size_t plain_bytes(const char *p, const char *end)
{
    const char *from = p;
    while (p < end && (unsigned char)(*p - 0x20) < 0x60 && *p != '"' && *p != '\\') p++;
    return (size_t)(p - from);
}

/* The text whose first quote is at r->at. */
static bool scan_text(tn_json *r)
{
    const char *p = r->at + 1;
    size_t bytes = 0;
    for (;;) {
        const size_t n = plain_bytes(p, r->end);
        p += n;
        bytes += n;
        r->at = p;
        if (p == r->end) return fail_at(r, "a string does not end");
        if (*p == '"') break;
        uint32_t code;
        char utf8[4];
        const size_t left = (size_t)(r->end - p),
                     k = *p == '\\' ? escape_at(p, left, &code) : utf8_bytes((const unsigned char *)p, left);
        if (k == 0) return fail_at(r, *p == '\\' ? "an invalid escape" : "a string is not UTF-8");
        if (*p == '\\' && code == 0 && !r->nul) return fail_at(r, "a NUL in a string");
        if ((unsigned char)*p < 0x20) return fail_at(r, "a control byte in a string");
        bytes += *p == '\\' ? put_utf8(code, utf8) : k;
        p += k;
    }
    r->bytes = bytes;
    r->at = p + 1;
    return true;
}

static bool read_text(tn_json *r)
{
    const char *begin = r->at + 1;
    if (!scan_text(r)) return false;
    r->raw = begin;
    r->raw_bytes = (size_t)(r->at - begin) - 1;
    return true;
}

char *tn_json_copy(const tn_json *r, char *out)
{
    const char *p = r->raw, *end = p + r->raw_bytes;
    char *q = out;
    while (p < end) {
        uint32_t code;
        const char *escape = memchr(p, '\\', (size_t)(end - p)), *stop = escape ? escape : end;
        memmove(q, p, (size_t)(stop - p));
        q += stop - p;
        p = stop;
        if (!escape) break;
        p += escape_at(p, (size_t)(end - p), &code);
        q += put_utf8(code, q);
    }
    *q = 0;
    return out;
}

bool tn_json_is(const tn_json *r, const char *word)
{
    const char *p = r->raw, *end = p + r->raw_bytes;
    if (r->bytes != strlen(word)) return false;
    if (r->bytes == r->raw_bytes) return memcmp(p, word, r->bytes) == 0;
    while (p < end) {
        uint32_t code;
        char utf8[4] = { *p };
        const size_t k = *p == '\\' ? escape_at(p, (size_t)(end - p), &code) : 1,
                     n = *p == '\\' ? put_utf8(code, utf8) : 1;
        if (memcmp(utf8, word, n) != 0) return false; /* both have r->bytes in all */
        p += k;
        word += n;
    }
    return true;
}

/* --- brackets ----------------------------------------------------------------------------------------------------------- */

static bool open_bracket(tn_json *r)
{
    if (r->depth == TN_JSON_DEPTH) return fail_at(r, "lists and objects are nested too deep");
    r->open[r->depth] = *r->at++;
    r->some[r->depth++] = false;
    return true;
}

bool tn_json_enter(tn_json *r, char bracket) { return tn_json_peek(r) == bracket && open_bracket(r); }

/* Whether the open bracket has one more value, whose first byte is then next; else the bracket that closes it is behind. */
static bool one_more(tn_json *r)
{
    if (r->why) return false;
    skip_space(r);
    const char close = r->open[r->depth - 1] == '{' ? '}' : ']';
    bool *some = &r->some[r->depth - 1];
    const char c = r->at < r->end ? *r->at : 0;
    if (c == close) {
        r->at++;
        r->depth--;
        return false;
    }
    if (*some && c != ',') return fail_at(r, close == '}' ? "',' or '}' is missing" : "',' or ']' is missing");
    if (*some) r->at++;
    *some = true;
    return true;
}

bool tn_json_item(tn_json *r) { return one_more(r) && (tn_json_peek(r) || fail_at(r, "a value is missing")); }

bool tn_json_key(tn_json *r)
{
    if (!one_more(r)) return false;
    if (tn_json_peek(r) != '"') return fail_at(r, "a key is missing");
    if (!read_text(r)) return false;
    skip_space(r);
    if (r->at == r->end || *r->at != ':') return fail_at(r, "':' is missing");
    r->at++;
    return true;
}

/* --- values ------------------------------------------------------------------------------------------------------------- */

static size_t digits_at(const char *p, const char *end)
{
    const char *from = p;
    while (p < end && *p >= '0' && *p <= '9') p++;
    return (size_t)(p - from);
}

static bool skip_number(tn_json *r, bool *whole)
{
    const char *p = r->at, *end = r->end;
    if (p < end && *p == '-') p++;
    size_t n = digits_at(p, end);
    bool ok = n > 0 && (*p != '0' || n == 1);
    p += n;
    *whole = true;
    if (ok && p < end && *p == '.') {
        n = digits_at(++p, end);
        ok = n > 0;
        p += n;
        *whole = false;
    }
    if (ok && p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        n = digits_at(p, end);
        ok = n > 0;
        p += n;
        *whole = false;
    }
    r->at = p;
    return ok || fail_at(r, "an invalid number");
}

static bool skip_word(tn_json *r, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return fail_at(r, "a word that is not JSON");
    r->at += n;
    return true;
}

/* A value that is no list and no object. */
static bool skip_plain(tn_json *r, char kind)
{
    bool whole;
    switch (kind) {
    case '"': return scan_text(r);
    case '0': return skip_number(r, &whole);
    case 't': return skip_word(r, "true");
    case 'f': return skip_word(r, "false");
    case 'n': return skip_word(r, "null");
    default: return fail_at(r, "a value is missing");
    }
}

bool tn_json_skip(tn_json *r)
{
    const int outside = r->depth;
    do {
        if (r->depth > outside && !(r->open[r->depth - 1] == '{' ? tn_json_key(r) : one_more(r)))
            continue; /* closed one */
        const char kind = tn_json_peek(r);
        if (!(kind == '{' || kind == '[' ? open_bracket(r) : skip_plain(r, kind))) return false;
    } while (r->depth > outside && !r->why);
    return !r->why;
}

bool tn_json_extent(tn_json *r, const char **text, size_t *bytes)
{
    (void)tn_json_peek(r);
    *text = r->at;
    const bool ok = tn_json_skip(r);
    *bytes = (size_t)(r->at - *text);
    return ok;
}

bool tn_json_text(tn_json *r)
{
    if (tn_json_peek(r) == '"') return read_text(r);
    (void)tn_json_skip(r);
    return false;
}

bool tn_json_integer(tn_json *r, int64_t *out)
{
    char text[24];
    bool whole = false;
    if (tn_json_peek(r) != '0') return tn_json_skip(r), false;
    const char *from = r->at;
    if (!skip_number(r, &whole)) return false;
    const size_t n = (size_t)(r->at - from);
    if (!whole) return false;
    if (n >= sizeof text) return fail_at(r, "an integer is too large");
    memcpy(text, from, n);
    text[n] = 0;
    errno = 0;
    const long long x = strtoll(text, NULL, 10);
    if (errno) return fail_at(r, "an integer is too large");
    *out = x;
    return true;
}

bool tn_json_flag(tn_json *r, bool *out)
{
    const char kind = tn_json_peek(r);
    const bool ok = tn_json_skip(r) && (kind == 't' || kind == 'f');
    if (ok) *out = kind == 't';
    return ok;
}

bool tn_json_end(tn_json *r)
{
    if (r->why) return false;
    skip_space(r);
    return r->at == r->end || fail_at(r, "data follows the end");
}

/* --- a tree, within bounds ------------------------------------------------------------------------------------------------ */

/* Bytes that jansson 2.14 takes with glibc's malloc, tables half full included, and the texts. */
static bool tree_fits(const char *text, size_t bytes)
{
    enum { PLAIN = 48, OBJECT = 250, LIST = 140, KEY = 112, ROOM = 8 << 20 };
    tn_json r;
    size_t cost = 0;
    const size_t most = bytes + ROOM;
    tn_json_open(&r, text, bytes);
    do {
        bool more = true;
        if (r.depth && r.open[r.depth - 1] == '{') {
            more = tn_json_key(&r);
            cost += more ? KEY + r.bytes : 0;
        } else if (r.depth) more = one_more(&r);
        if (!more) continue;
        const char kind = tn_json_peek(&r);
        if (kind == '{' || kind == '[') {
            (void)open_bracket(&r);
            cost += kind == '{' ? OBJECT : LIST;
        } else if (skip_plain(&r, kind)) cost += PLAIN + (kind == '"' ? r.bytes + 16 : 0);
    } while (r.depth && !r.why && cost <= most);
    return cost <= most; /* what is no JSON is jansson's to say */
}

json_t *tn_json_tree(const char *text, size_t bytes, size_t flags, json_error_t *err)
{
    enum { SMALL = 128 << 10 }; /* 80 times that is in the 16 MiB that any file may take */
    json_error_t unused;
    if (!err) err = &unused;
    if (bytes <= SMALL || tree_fits(text, bytes)) return json_loadb(text, bytes, flags, err);
    *err = (json_error_t){ .line = 1, .text = "it contains too many values for what it is" };
    return NULL;
}
