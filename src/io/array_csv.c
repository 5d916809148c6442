/* Tables of numbers as text: fields between commas, semicolons or tabs (as in the first line), one row per line,
 * equally many fields in each; a first line with words is a header. No quotes. nan and inf count as numbers, so such a
 * row is refused by name and not taken for a header. */
#include "io/array_parts.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

enum { READ_BYTES = 64 << 10 };

static tn_status fill(tn_array *a)
{
    void *p = a->raw;
    size_t got = 0;
    if (a->end - a->begin > TN_CSV_LINE_BYTES)
        return tn_error(TN_BAD_FILE, "%.640s:%lld: the line is longer than %d bytes; is the file a table of numbers?",
                        tn_stream_path(a->stream), (long long)a->row + 1, TN_CSV_LINE_BYTES);
    if (a->begin) memmove(a->raw, a->raw + a->begin, a->end - a->begin);
    a->end -= a->begin;
    a->begin = 0;
    TN_RETURN_IF(tn_grow(&p, &a->capacity, a->end + READ_BYTES, 1));
    a->raw = p;
    TN_RETURN_IF(tn_stream_read(a->stream, a->raw + a->end, READ_BYTES, &got));
    a->end += got;
    a->file_end = got < READ_BYTES;
    return TN_OK;
}

/* The next line that is not blank, without its end; *line is NULL at the end of the file. a->row counts lines here. */
static tn_status next_line(tn_array *a, const char **line, size_t *bytes)
{
    for (;;) {
        const size_t left = a->end - a->begin;
        const unsigned char *p = left ? a->raw + a->begin : NULL, *newline = left ? memchr(p, '\n', left) : NULL;
        if (!newline && !a->file_end) {
            TN_RETURN_IF(fill(a));
            continue;
        }
        *line = left ? (const char *)p : NULL;
        if (!left) return TN_OK;
        *bytes = newline ? (size_t)(newline - p) : left;
        a->begin += *bytes + (newline ? 1 : 0);
        a->row++;
        while (*bytes && (p[*bytes - 1] == '\r' || p[*bytes - 1] == ' ')) --*bytes;
        if (*bytes) return TN_OK;
    }
}

static bool is_word(const char *s, size_t n, const char *word)
{
    size_t i = 0;
    for (; i < n && word[i] && (s[i] | 32) == word[i]; i++) continue;
    return i == n && !word[i];
}

/* A decimal number that fills s, or nan, inf, infinity; by hand, since strtod follows the locale and wants a NUL. */
static bool parse_number(const char *s, size_t n, double *out)
{
    size_t i = 0;
    double x = 0;
    int exponent = 0, digits = 0, written = 0;
    while (i < n && s[i] == ' ') i++;
    while (n > i && s[n - 1] == ' ') n--;
    const bool minus = i < n && s[i] == '-';
    if (i < n && (s[i] == '-' || s[i] == '+')) i++;
    *out = NAN;
    if (is_word(s + i, n - i, "nan") || is_word(s + i, n - i, "inf") || is_word(s + i, n - i, "infinity")) return true;
    for (bool point = false; i < n && ((s[i] >= '0' && s[i] <= '9') || (s[i] == '.' && !point)); i++) {
        if (s[i] == '.') {
            point = true;
            continue;
        }
        if (digits < 17) x = 10 * x + (s[i] - '0');
        exponent += (digits >= 17) - point;
        digits += digits > 0 || s[i] != '0';
        written++;
        if (written > 1000) return false;
    }
    if (written == 0) return false;
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        int e = 0;
        const bool down = ++i < n && s[i] == '-';
        if (i < n && (s[i] == '-' || s[i] == '+')) i++;
        if (i == n) return false;
        for (; i < n && s[i] >= '0' && s[i] <= '9'; i++) e = e < 10000 ? 10 * e + (s[i] - '0') : e;
        exponent += down ? -e : e;
    }
    if (exponent < 0) x = exponent < -300 ? x / 1e300 / pow(10, -exponent - 300) : x / pow(10, -exponent);
    else if (exponent > 0 && x != 0) x *= pow(10, exponent);
    *out = minus ? -x : x;
    return i == n;
}

/* Fields of the line into row (a->info.sample); the field that is no finite number in *wrong, else 0. Without a row they are
 * counted, and *wrong is a field that is no number at all. */
static size_t parse_line(const tn_array *a, const char *s, size_t n, double *row, size_t *wrong)
{
    size_t fields = 0;
    *wrong = 0;
    for (size_t at = 0;;) {
        const char *end = memchr(s + at, a->separator, n - at);
        const size_t bytes = end ? (size_t)(end - s) - at : n - at;
        double x;
        fields++;
        if (!parse_number(s + at, bytes, &x) || (row && !isfinite(x))) {
            if (!*wrong) *wrong = fields;
        } else if (row && fields <= a->info.sample) row[fields - 1] = x;
        if (!end) return fields;
        at += bytes + 1;
    }
}

tn_status tn__csv_header(tn_array *a)
{
    const char *line;
    size_t n = 0, wrong;
    TN_RETURN_IF(next_line(a, &line, &n));
    if (!line)
        return tn_error(TN_BAD_FILE, "%.640s contains no rows; is it the right file?", tn_stream_path(a->stream));
    a->separator = memchr(line, ',', n) ? ',' : memchr(line, ';', n) ? ';' : memchr(line, '\t', n) ? '\t' : ',';
    const size_t fields = parse_line(a, line, n, NULL, &wrong);
    if (fields > TN_CSV_FIELDS_MAX)
        return tn_error(TN_BAD_FILE, "%.640s has %zu columns, too many", tn_stream_path(a->stream), fields);
    if (!wrong) { /* not a heading: read it again */
        a->begin = 0;
        a->row = 0;
    }
    a->info = (tn_array_info){ .rank = 1, .dims = { (int64_t)fields }, .sample = fields, .rows = -1 };
    return TN_OK;
}

tn_status tn__csv_next(tn_array *a, double *row, bool *got)
{
    const char *line;
    size_t n = 0, wrong;
    TN_RETURN_IF(next_line(a, &line, &n));
    *got = line != NULL;
    if (!line) return TN_OK;
    const size_t fields = parse_line(a, line, n, row, &wrong);
    if (wrong)
        return tn_error(TN_BAD_FILE, "%.640s:%lld: field %zu is not a finite number; correct it or remove the line",
                        tn_stream_path(a->stream), (long long)a->row, wrong);
    if (fields != a->info.sample)
        return tn_error(TN_BAD_FILE, "%.640s:%lld: %zu fields, the first line has %zu; correct it or remove the line",
                        tn_stream_path(a->stream), (long long)a->row, fields, a->info.sample);
    return TN_OK;
}
