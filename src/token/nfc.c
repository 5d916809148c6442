/* NFC, as the `tokenizers` library does it (Unicode 9.0). Text is copied until a character that NFC may touch; from the
 * starter before it up to the next untouched starter it is decomposed, put in canonical order and composed again.
 * Time is linear in the text, whatever it holds: marks are ordered by counting. */
#include "token/unicode.h"

#include "base/alloc.h"

#include <string.h>

#define TN_UNICODE_NFC
#include "token/unicode_tables.h"

enum {
    HANGUL = 0xac00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11a7, /* T of a syllable without one */
    N_L = 19,
    N_V = 21,
    N_T = 28,
    N_HANGUL = N_L * N_V * N_T,
    N_CANONICAL = sizeof canonical / sizeof *canonical / 3,
    N_COMPOSED = sizeof composed / sizeof *composed,
    N_MARKS = sizeof mark_runs / sizeof *mark_runs / 2
};

void tn_nfc_space_free(tn_nfc_space *x)
{
    tn_free(x->code);
    tn_free(x->sorted);
    *x = (tn_nfc_space){ 0 };
}

static unsigned combining(uint32_t code)
{
    size_t lo = 0, hi = N_MARKS;
    if (code < 0x300) return 0;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        const uint32_t first = mark_runs[2 * mid], n = mark_runs[2 * mid + 1] >> 8;
        if (code < first) hi = mid;
        else if (code >= first + n) lo = mid + 1;
        else return mark_runs[2 * mid + 1] & 0xff;
    }
    return 0;
}

static const uint32_t *decomposition(uint32_t code) /* (code, first, second), or NULL */
{
    size_t lo = 0, hi = N_CANONICAL;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (canonical[3 * mid] == code) return canonical + 3 * mid;
        if (canonical[3 * mid] < code) lo = mid + 1;
        else hi = mid;
    }
    return NULL;
}

/* The character that a and b make, or 0. */
static uint32_t compose(uint32_t a, uint32_t b)
{
    size_t lo = 0, hi = N_COMPOSED;
    if (a - HANGUL_L < N_L && b - HANGUL_V < N_V) return HANGUL + ((a - HANGUL_L) * N_V + (b - HANGUL_V)) * N_T;
    if (a - HANGUL < N_HANGUL && (a - HANGUL) % N_T == 0 && b - HANGUL_T - 1 < N_T - 1) return a + (b - HANGUL_T);
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        const uint32_t *c = canonical + 3 * (size_t)composed[mid];
        if (c[1] == a && c[2] == b) return c[0];
        if (c[1] < a || (c[1] == a && c[2] < b)) lo = mid + 1;
        else hi = mid;
    }
    return 0;
}

static tn_status put(tn_nfc_space *x, uint32_t code)
{
    if (x->n == x->capacity) {
        void *p = x->code;
        TN_RETURN_IF(tn_grow(&p, &x->capacity, x->n ? 2 * x->n : 64, sizeof *x->code));
        x->code = p;
    }
    x->code[x->n++] = code;
    return TN_OK;
}

/* The full decomposition; the first part of a pair may decompose again, the second never does. */
static tn_status put_decomposed(tn_nfc_space *x, uint32_t code)
{
    uint32_t tail[8];
    size_t n = 0;
    if (code - HANGUL < N_HANGUL) {
        const uint32_t i = code - HANGUL;
        TN_RETURN_IF(put(x, HANGUL_L + i / (N_V * N_T)));
        TN_RETURN_IF(put(x, HANGUL_V + i % (N_V * N_T) / N_T));
        return i % N_T ? put(x, HANGUL_T + i % N_T) : TN_OK;
    }
    for (const uint32_t *d; n < 8 && (d = decomposition(code)); code = d[1])
        if (d[2]) tail[n++] = d[2];
    TN_RETURN_IF(put(x, code));
    while (n > 0) TN_RETURN_IF(put(x, tail[--n]));
    return TN_OK;
}

/* Stable order by combining class within code[first..last), all of which are marks: a counting sort. */
static tn_status order_marks(tn_nfc_space *x, size_t first, size_t last)
{
    size_t count[257] = { 0 };
    void *p = x->sorted;
    if (last - first < 2) return TN_OK;
    if (last - first > x->sorted_capacity) {
        TN_RETURN_IF(tn_grow(&p, &x->sorted_capacity, x->capacity, sizeof *x->sorted));
        x->sorted = p;
    }
    for (size_t i = first; i < last; i++) count[combining(x->code[i]) + 1]++;
    for (size_t k = 1; k < 257; k++) count[k] += count[k - 1];
    for (size_t i = first; i < last; i++) x->sorted[count[combining(x->code[i])]++] = x->code[i];
    memcpy(x->code + first, x->sorted, (last - first) * sizeof *x->code);
    return TN_OK;
}

static tn_status order(tn_nfc_space *x)
{
    size_t first = 0;
    for (size_t i = 0; i <= x->n; i++)
        if (i == x->n || combining(x->code[i]) == 0) {
            TN_RETURN_IF(order_marks(x, first, i));
            first = i + 1;
        }
    return TN_OK;
}

/* Composition in place: a mark joins the last starter unless a mark of its class or above stands between. */
static void compose_all(tn_nfc_space *x)
{
    size_t starter = SIZE_MAX, kept = 0;
    unsigned last = 0; /* class of the mark before */
    for (size_t i = 0; i < x->n; i++) {
        const uint32_t code = x->code[i];
        const unsigned k = combining(code);
        const bool adjacent = starter != SIZE_MAX && kept == starter + 1;
        uint32_t made = 0;
        if (starter != SIZE_MAX && (adjacent || last < k)) made = compose(x->code[starter], code);
        if (made) {
            x->code[starter] = made;
            continue;
        }
        if (k == 0) {
            starter = kept;
            last = 0;
        } else {
            last = k;
        }
        x->code[kept++] = code;
    }
    x->n = kept;
}

bool tn_nfc_needed(const tn_unicode *u, const char *text, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0, n; i < bytes; i += n) {
        if (p[i] < 0xcc) n = 1; /* below U+0300 nothing changes; a continuation byte is skipped alone */
        else if (tn_class_at(u, p + i, &n) & TN_CLASS_LOOK) return true;
    }
    return false;
}

/* One stretch: text[0..bytes) decomposed, ordered, composed, appended. */
static tn_status normalize_part(tn_nfc_space *x, const unsigned char *p, size_t bytes, tn_text *out)
{
    char utf8[4];
    x->n = 0;
    for (size_t i = 0, n; i < bytes; i += n) TN_RETURN_IF(put_decomposed(x, tn_utf8_get(p + i, &n)));
    TN_RETURN_IF(order(x));
    compose_all(x);
    for (size_t i = 0; i < x->n; i++) TN_RETURN_IF(tn_text_append(out, utf8, tn_utf8_write(x->code[i], utf8)));
    return TN_OK;
}

tn_status tn_nfc(const tn_unicode *u, tn_nfc_space *x, const char *text, size_t bytes, tn_text *out)
{
    const unsigned char *p = (const unsigned char *)text;
    const size_t before = out->n;
    size_t written = 0, last = 0; /* written: of text; last: start of the character before i */
    tn_status s = TN_OK;
    for (size_t i = 0, n; i < bytes;) {
        if (!(tn_class_at(u, p + i, &n) & TN_CLASS_LOOK)) {
            last = i;
            i += n;
            continue;
        }
        const size_t first = last < written ? written : last;
        while (i < bytes && (tn_class_at(u, p + i, &n) & TN_CLASS_LOOK)) i += n;
        TN_TRY(tn_text_append(out, p + written, first - written));
        TN_TRY(normalize_part(x, p + first, i - first, out));
        written = i;
        last = i;
    }
    TN_TRY(tn_text_append(out, p + written, bytes - written));
done:
    if (s != TN_OK) out->n = before;
    return s;
}
