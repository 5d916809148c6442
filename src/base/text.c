/* Edit distance, UTF-8 decoding, quoting, and counts in words. Pure functions over NUL-terminated text of any bytes.
 * Invariant: what tn_text_quote returns is one line of valid UTF-8. */
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WORD_BYTES = 64 };

static size_t min3(size_t a, size_t b, size_t c)
{
    const size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Optimal string alignment: three rows of the usual table, since a swap looks two rows back. */
size_t tn_text_distance(const char *a, const char *b)
{
    const size_t na = strlen(a), nb = strlen(b);
    size_t rows[3][WORD_BYTES + 1] = { { 0 } };
    if (na > WORD_BYTES || nb > WORD_BYTES) return SIZE_MAX;
    for (size_t j = 0; j <= nb; j++) rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *row = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            row[j] = min3(up[j] + 1, row[j - 1] + 1, up[j - 1] + (a[i - 1] != b[j - 1]));
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && up2[j - 2] + 1 < row[j]) row[j] = up2[j - 2] + 1;
        }
    }
    return rows[na % 3][nb];
}

void tn_nearest_try(tn_nearest *n, const char *candidate)
{
    const size_t typed = strlen(n->word), d = tn_text_distance(n->word, candidate);
    /* A third of the letters may be wrong: more would suggest words that only share their length. */
    if (d == SIZE_MAX || d > (typed + 2) / 3 || d >= typed) return;
    if (n->best && d >= n->distance) return;
    n->best = candidate;
    n->distance = d;
}

size_t tn_utf8_decode(const char *s, uint32_t *code)
{
    static const uint32_t smallest[5] = { 0, 0, 0x80, 0x800, 0x10000 }; /* by length: shorter forms are overlong */
    const unsigned char *u = (const unsigned char *)s;
    size_t n = u[0] < 0x80 ? 1 : (u[0] & 0xe0) == 0xc0 ? 2 : (u[0] & 0xf0) == 0xe0 ? 3 : (u[0] & 0xf8) == 0xf0 ? 4 : 0;
    if (n == 0 || u[0] == 0) return 0;
    uint32_t c = n == 1 ? u[0] : u[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((u[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (u[i] & 0x3fu);
    }
    if (c < smallest[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    *code = c;
    return n;
}

bool tn_utf8_valid(const char *s)
{
    uint32_t code;
    for (size_t n; *s; s += n) {
        n = tn_utf8_decode(s, &code);
        if (n == 0) return false;
    }
    return true;
}

/* Not a control and not a line break of any kind, Unicode's own included. */
static bool is_graphic(uint32_t c)
{
    const bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
    return !control && c != 0x2028 && c != 0x2029 && c != 0xfeff && c != 0xfffe && c != 0xffff;
}

const char *tn_text_quote(const char *s, char *buf, size_t bytes)
{
    static const char dots[] = "...";
    size_t used = 0, mark = 0; /* mark: where the dots would go */
    while (*s) {
        uint32_t code = 0;
        const size_t n = tn_utf8_decode(s, &code), step = n ? n : 1;
        const bool plain = n && is_graphic(code);
        const size_t out = plain ? n : 1;
        if (used + out + 1 > bytes) {
            memcpy(buf + mark, dots, sizeof dots);
            return buf;
        }
        if (plain) memcpy(buf + used, s, n);
        else buf[used] = '?';
        used += out;
        s += step;
        if (used + sizeof dots <= bytes) mark = used;
    }
    buf[used] = 0;
    return buf;
}

void tn_text_clean(char *s)
{
    for (unsigned char *p = (unsigned char *)s; *p; p++) {
        if (*p == '\n' || *p == '\r' || *p == '\t') *p = ' ';
        else if (*p < 0x20 || *p == 0x7f) *p = '?';
        else if (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f) *p = p[1] = '?';
    }
}

const char *tn_count_text(double n, char buf[16])
{
    const char *unit = n >= 1e9 ? " G" : n >= 1e6 ? " M" : n >= 1e3 ? " k" : "";
    const double x = n >= 1e9 ? n / 1e9 : n >= 1e6 ? n / 1e6 : n >= 1e3 ? n / 1e3 : n;
    snprintf(buf, 16, "%.*f%s", *unit && x < 100 ? 1 : 0, x, unit);
    return buf;
}

const char *tn_number_text(double x, char buf[TN_NUMBER_TEXT])
{
    snprintf(buf, TN_NUMBER_TEXT, fabs(x) >= 1000 && fabs(x) < 1e12 ? "%.0f" : "%.4g", x);
    return buf;
}
