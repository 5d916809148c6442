/* Parsing of one value. The grammar of numbers is our own (strtod alone would take "0x1p3", "inf" and " 7"), integers
 * are never routed through double, and every refusal is one line that ends with the source of the text. */
#include "base/setting_value.h"

#include "base/status.h"
#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { QUOTE_BYTES = 80 };

/* Splits [+-]digits[.digits][e[+-]digits] from what follows; false when the text does not begin with a number. */
typedef struct number {
    bool negative;
    const char *digits, *fraction,
        *end;             /* fraction: just behind the point, or NULL; end: first byte not of the number */
    const char *exponent; /* just behind the e, or NULL */
} number;

static const char *skip_digits(const char *s)
{
    while (isdigit((unsigned char)*s)) s++;
    return s;
}

static bool number_scan(const char *s, number *n)
{
    *n = (number){ .negative = *s == '-' };
    n->digits = *s == '-' || *s == '+' ? s + 1 : s;
    const char *p = skip_digits(n->digits);
    ptrdiff_t count = p - n->digits;
    if (*p == '.') {
        n->fraction = p + 1;
        p = skip_digits(n->fraction);
        count += p - n->fraction;
    }
    if (count == 0) return false;
    n->end = p;
    if (*p == 'e' || *p == 'E') {
        const char *first = p[1] == '-' || p[1] == '+' ? p + 2 : p + 1;
        if (!isdigit((unsigned char)*first)) return false;
        n->exponent = p + 1;
        n->end = skip_digits(first);
    }
    return true;
}

/* Decimal power of an integer's suffix; -1 for anything else. Decimal, not 1024: 64k tokens are 64000. */
static int suffix_power(const char *s)
{
    if (*s == 0) return 0;
    if (s[1] != 0) return -1;
    return *s == 'k' ? 3 : *s == 'M' ? 6 : *s == 'G' ? 9 : -1;
}

typedef enum int_result { INT_OK, INT_SYNTAX, INT_FRACTION, INT_OVERFLOW } int_result;

/* Exact: digits without their trailing zeros make a 64-bit mantissa, and the powers of ten left over multiply it. */
static int_result int_parse(const char *text, int64_t *out)
{
    number n;
    if (!number_scan(text, &n)) return INT_SYNTAX;
    int power = suffix_power(n.end);
    if (power < 0 || (power > 0 && n.exponent)) return INT_SYNTAX;
    long exponent = n.exponent ? strtol(n.exponent, NULL, 10) : 0; /* clamps by itself */
    exponent = exponent > 100000 ? 100000 : exponent < -100000 ? -100000 : exponent;
    long scale = exponent + power;
    uint64_t m = 0;
    long zeros = 0; /* digits 0 not yet in m */
    for (const char *p = n.digits; isdigit((unsigned char)*p) || p + 1 == n.fraction; p++) {
        if (*p == '.') continue;
        if (n.fraction && p >= n.fraction) scale--;
        if (*p == '0') {
            zeros += m != 0;
            continue;
        }
        for (; zeros >= 0; zeros--)
            if (__builtin_mul_overflow(m, 10u, &m)) return INT_OVERFLOW;
        zeros = 0;
        if (__builtin_add_overflow(m, (uint64_t)(*p - '0'), &m)) return INT_OVERFLOW;
    }
    scale += zeros;
    if (m != 0 && scale < 0) return INT_FRACTION;
    for (; m != 0 && scale > 0; scale--)
        if (__builtin_mul_overflow(m, 10u, &m)) return INT_OVERFLOW;
    if (m > (uint64_t)INT64_MAX) return INT_OVERFLOW;
    *out = n.negative ? -(int64_t)m : (int64_t)m;
    return INT_OK;
}

static bool float_parse(const char *text, double *out)
{
    number n;
    char *end;
    if (!number_scan(text, &n) || *n.end) return false;
    const double f = strtod(text, &end);
    if (end != n.end) return false; /* a process that set LC_NUMERIC: better refused than cut at the point */
    *out = f;
    return true;
}

/* The fewest digits that read back as the same number. The point is always there: without it other YAML readers
 * take 1e-05 for a string. */
static void float_print(double f, char *buf, size_t bytes)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, bytes, "%.*g", digits, f);
        if (strtod(buf, NULL) == f) break;
    }
    char *e = strchr(buf, 'e');
    if (!e || strchr(buf, '.')) return;
    char tail[8];
    snprintf(tail, sizeof tail, "%s", e);
    snprintf(e, bytes - (size_t)(e - buf), ".0%s", tail);
}

static bool in_range(const tn_setting *r, double x)
{
    return (r->min_open ? x > r->min : x >= r->min) && (r->max_open ? x < r->max : x <= r->max);
}

static void bound_print(double x, char *buf, size_t bytes)
{
    if (x == floor(x) && fabs(x) < 1e15) snprintf(buf, bytes, "%.0f", x);
    else snprintf(buf, bytes, "%g", x);
}

/* "(0, 1]" into buf; returns buf. */
static const char *range_text(const tn_setting *r, char *buf, size_t bytes)
{
    char lo[32], hi[32];
    bound_print(r->min, lo, sizeof lo);
    bound_print(r->max, hi, sizeof hi);
    snprintf(buf, bytes, "%c%s, %s%c", r->min_open || isinf(r->min) ? '(' : '[', lo, hi,
             r->max_open || isinf(r->max) ? ')' : ']');
    return buf;
}

/* 3e4 for 3e-4 is the usual slip: writes the text with its exponent's sign turned if that value would be allowed. */
static bool flip_exponent(const tn_setting *row, const char *text, char *buf, size_t bytes)
{
    number n;
    if (!number_scan(text, &n) || !n.exponent) return false;
    const char *digits = *n.exponent == '-' || *n.exponent == '+' ? n.exponent + 1 : n.exponent;
    const int used =
        snprintf(buf, bytes, "%.*s%s%s", (int)(n.exponent - text), text, *n.exponent == '-' ? "" : "-", digits);
    if (used < 0 || (size_t)used >= bytes) return false;
    if (row->type == TN_TYPE_FLOAT || row->type == TN_TYPE_AUTO_FLOAT) {
        double f;
        return float_parse(buf, &f) && in_range(row, f);
    }
    int64_t i;
    return int_parse(buf, &i) == INT_OK && in_range(row, (double)i);
}

static tn_status outside(const tn_setting *row, const char *text, const char *source)
{
    char range[72], better[QUOTE_BYTES], quoted[QUOTE_BYTES];
    range_text(row, range, sizeof range);
    tn_text_quote(text, quoted, sizeof quoted);
    if (flip_exponent(row, text, better, sizeof better))
        return tn_error(TN_USAGE, "%s=%s is outside %s: did you mean %s?  (%s)", row->key, quoted, range, better,
                        source);
    return tn_error(TN_USAGE, "%s=%s is outside %s  (%s)", row->key, quoted, range, source);
}

static bool takes_auto(const tn_setting *row, const char *text, tn_setting_value *v)
{
    v->is_auto = (row->type == TN_TYPE_AUTO_INT || row->type == TN_TYPE_AUTO_FLOAT) && strcmp(text, "auto") == 0;
    if (v->is_auto) snprintf(v->canonical, sizeof v->canonical, "auto");
    return v->is_auto;
}

static tn_status parse_int(const tn_setting *row, const char *text, const char *source, tn_setting_value *v)
{
    static const char *const wrong[] = {
        [INT_SYNTAX] = "is not an integer: write 64, 64k or 1e6",
        [INT_FRACTION] = "is not an integer",
        [INT_OVERFLOW] = "does not fit 64 bits",
    };
    char quoted[QUOTE_BYTES];
    if (takes_auto(row, text, v)) return TN_OK;
    if (row->choices && strcmp(text, row->choices) == 0) {
        snprintf(v->canonical, sizeof v->canonical, "%s", text);
        return TN_OK;
    }
    const int_result r = int_parse(text, &v->i);
    if (r != INT_OK)
        return tn_error(TN_USAGE, "%s=%s %s%s%s%s  (%s)", row->key, tn_text_quote(text, quoted, sizeof quoted),
                        wrong[r], row->type == TN_TYPE_AUTO_INT ? ", or auto" : "", row->choices ? ", or " : "",
                        row->choices ? row->choices : "", source);
    v->f = (double)v->i;
    if (!in_range(row, v->f)) return outside(row, text, source);
    snprintf(v->canonical, sizeof v->canonical, "%" PRId64, v->i);
    return TN_OK;
}

static tn_status parse_float(const tn_setting *row, const char *text, const char *source, tn_setting_value *v)
{
    char quoted[QUOTE_BYTES];
    if (takes_auto(row, text, v)) return TN_OK;
    if (!float_parse(text, &v->f))
        return tn_error(TN_USAGE, "%s=%s is not a number: write 0.5 or 3e-4%s  (%s)", row->key,
                        tn_text_quote(text, quoted, sizeof quoted), row->type == TN_TYPE_AUTO_FLOAT ? ", or auto" : "",
                        source);
    if (isinf(v->f))
        return tn_error(TN_USAGE, "%s=%s is too large for a number  (%s)", row->key,
                        tn_text_quote(text, quoted, sizeof quoted), source);
    if (!in_range(row, v->f)) return outside(row, text, source);
    float_print(v->f, v->canonical, sizeof v->canonical);
    return TN_OK;
}

/* All the spellings YAML tools turn a switch into; the canonical one is the type's own. */
static tn_status parse_switch(const tn_setting *row, const char *text, const char *source, tn_setting_value *v)
{
    static const char *const words[][2] = { { "off", "on" }, { "false", "true" }, { "no", "yes" }, { "0", "1" } };
    const bool is_switch = row->type == TN_TYPE_SWITCH;
    char quoted[QUOTE_BYTES];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        for (int on = 0; on < 2; on++) {
            if (strcasecmp(text, words[i][on]) != 0) continue;
            v->on = on;
            snprintf(v->canonical, sizeof v->canonical, "%s", words[is_switch ? 0 : 1][on]);
            return TN_OK;
        }
    }
    return tn_error(TN_USAGE, "%s=%s is neither %s  (%s)", row->key, tn_text_quote(text, quoted, sizeof quoted),
                    is_switch ? "on nor off" : "true nor false", source);
}

static tn_status parse_text(const tn_setting *row, const char *text, const char *source, tn_setting_value *v)
{
    char quoted[QUOTE_BYTES];
    (void)v;
    if (tn_utf8_valid(text)) return TN_OK;
    return tn_error(TN_USAGE, "%s=%s is not UTF-8 text: rename the file or fix the encoding  (%s)", row->key,
                    tn_text_quote(text, quoted, sizeof quoted), source);
}

/* Other words for a choice, taken as it. */
static const struct {
    const char *key, *word, *choice;
} aliases[] = { { "device", "gpu", "cuda" } };

static tn_status parse_choice(const tn_setting *row, const char *text, const char *source, tn_setting_value *v)
{
    char quoted[QUOTE_BYTES], word[64], best[sizeof word] = "";
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(row->key, aliases[i].key) == 0 && strcmp(text, aliases[i].word) == 0)
            text = strcpy(v->canonical, aliases[i].choice);
    tn_nearest near = { .word = text };
    for (const char *p = row->choices ? row->choices : ""; *p; p += *p == '|') {
        const size_t n = strcspn(p, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, p);
        if (strcmp(word, text) == 0) return TN_OK;
        const size_t before = near.best ? near.distance : SIZE_MAX;
        tn_nearest_try(&near, word);
        if (near.best && near.distance < before) snprintf(best, sizeof best, "%s", word);
        p += n;
    }
    tn_text_quote(text, quoted, sizeof quoted);
    if (*best)
        return tn_error(TN_USAGE, "%s=%s is not one of %s: did you mean %s?  (%s)", row->key, quoted, row->choices,
                        best, source);
    return tn_error(TN_USAGE, "%s=%s is not one of %s  (%s)", row->key, quoted, row->choices ? row->choices : "",
                    source);
}

typedef tn_status parse_fn(const tn_setting *, const char *, const char *, tn_setting_value *);
static const struct {
    const char *name;
    parse_fn *parse;
} types[TN_TYPES] = {
    [TN_TYPE_INT] = { "int", parse_int },           [TN_TYPE_FLOAT] = { "float", parse_float },
    [TN_TYPE_BOOL] = { "bool", parse_switch },      [TN_TYPE_SWITCH] = { "switch", parse_switch },
    [TN_TYPE_TEXT] = { "text", parse_text },        [TN_TYPE_CHOICE] = { "choice", parse_choice },
    [TN_TYPE_AUTO_INT] = { "auto_int", parse_int }, [TN_TYPE_AUTO_FLOAT] = { "auto_float", parse_float },
};

tn_status tn_setting_parse(const tn_setting *row, const char *text, const char *source, tn_setting_value *out)
{
    tn_setting_value v = { 0 };
    if ((unsigned)row->type >= TN_TYPES) return tn_error(TN_USAGE, "%s has no such type: %d", row->key, (int)row->type);
    TN_RETURN_IF(types[row->type].parse(row, text, source, &v));
    *out = v;
    return TN_OK;
}

const char *tn_setting_type_name(tn_setting_type type)
{
    return (unsigned)type < TN_TYPES ? types[type].name : "unknown";
}
