/* Parsing search spaces: "log int 4..512", "[relu, gelu]", "act=gelu". Numbers are written as in settings (64k,
 * 1e-4). */
#include "lab/search/space.h"

#include "base/alloc.h"
#include "base/setting_value.h"
#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FORMS "write 1e-3..0.1, log 1e-4..0.1, int 4..512, log int 4..512, 0.5..0.9 step 0.1 or [a, b, c]"

enum { WORD_BYTES = 64, MOST_CHOICES = 4096 };

static tn_status refuse(const char *text, const char *why)
{
    char quoted[96];
    return tn_error(TN_USAGE, "\"%s\" %s; " FORMS, tn_text_quote(text, quoted, sizeof quoted), why);
}

static const char *skip_space(const char *p)
{
    while (isspace((unsigned char)*p)) p++;
    return p;
}

/* A word up to white space; false where it is empty or too long. */
static bool next_word(const char **at, char word[WORD_BYTES])
{
    const char *p = skip_space(*at);
    size_t n = 0;
    while (p[n] && !isspace((unsigned char)p[n])) n++;
    if (n == 0 || n >= WORD_BYTES) return false;
    memcpy(word, p, n);
    word[n] = 0;
    *at = skip_space(p + n);
    return true;
}

static bool number(const char *text, bool whole, double *out)
{
    const tn_setting rows[2] = { TN_SETTING_FLOAT("end", "0", TN_RANGE_ANY, "", ""),
                                 TN_SETTING_INT("end", "0", TN_RANGE_ANY, "", "") };
    tn_setting_value v = { 0 };
    if (tn_setting_parse(&rows[whole], text, "search", &v) != TN_OK) return false;
    *out = v.f;
    return true;
}

/* "lo..hi". Three dots could be read two ways and are refused. */
static tn_status ends(const char *text, char *word, tn_dim *d)
{
    char *dots = strstr(word, "..");
    if (!dots || dots[2] == '.') return refuse(text, "has no range LO..HI");
    *dots = 0;
    const bool whole = d->kind == TN_DIM_INT;
    if (!number(word, whole, &d->lo) || !number(dots + 2, whole, &d->hi))
        return refuse(text, whole ? "needs two whole numbers around .." : "needs two numbers around ..");
    return TN_OK;
}

static tn_status parse_range(const char *text, tn_dim *d)
{
    const char *p = text;
    char word[WORD_BYTES], value[WORD_BYTES];
    bool typed = false;
    for (;;) {
        if (!next_word(&p, word)) return refuse(text, "has no range LO..HI");
        if (!d->log && strcmp(word, "log") == 0) d->log = true;
        else if (!typed && (strcmp(word, "int") == 0 || strcmp(word, "float") == 0)) {
            typed = true;
            d->kind = *word == 'i' ? TN_DIM_INT : TN_DIM_FLOAT;
        } else break;
    }
    TN_RETURN_IF(ends(text, word, d));
    if (*p == 0) return TN_OK;
    if (!next_word(&p, word) || strcmp(word, "step") != 0 || !next_word(&p, value) || *p ||
        !number(value, d->kind == TN_DIM_INT, &d->step))
        return refuse(text, "takes nothing after its range but `step NUMBER`");
    return d->step > 0 ? TN_OK : refuse(text, "needs a step above 0");
}

/* "[a, b, c]": pieces between commas, without the white space and the quotes around them. */
static tn_status parse_list(const char *text, tn_arena *arena, tn_dim *out)
{
    const char *items[MOST_CHOICES], *p = skip_space(text) + 1, *close = strrchr(p, ']');
    size_t n = 0;
    if (!close || *skip_space(close + 1)) return refuse(text, "has no ] at its end");
    for (bool more = true; more;) {
        const char *end = memchr(p, ',', (size_t)(close - p));
        more = end != NULL;
        if (!end) end = close;
        const char *a = skip_space(p), *b = end;
        while (b > a && isspace((unsigned char)b[-1])) b--;
        if (b - a >= 2 && (*a == '"' || *a == '\'') && b[-1] == *a) a++, b--;
        if (b <= a) return refuse(text, "has an empty choice");
        if (n == MOST_CHOICES) return refuse(text, "has too many choices");
        char *item = tn_arena_printf(arena, "%.*s", (int)(b - a), a);
        if (!item) return TN_MEMORY;
        items[n++] = item;
        p = end + more;
    }
    return tn_dim_choices(items, n, arena, out);
}

tn_status tn_dim_choices(const char *const *items, size_t n, tn_arena *arena, tn_dim *out)
{
    if (n < 1)
        return tn_error(TN_USAGE, "a list to search needs a choice"); /* one: what a side has while others search */
    if (n > MOST_CHOICES)
        return tn_error(TN_USAGE, "a list to search has at most %d choices, not %zu", MOST_CHOICES, n);
    const char **copy = tn_arena_alloc(arena, n * sizeof *copy);
    if (!copy) return TN_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (!(copy[i] = tn_arena_strdup(arena, items[i]))) return TN_MEMORY;
    const tn_dim d = { .key = out->key, .kind = TN_DIM_CHOICE, .choices = copy, .n_choices = n, .when = -1 };
    TN_RETURN_IF(tn_space_check(&(tn_space){ &d, 1 }));
    *out = d;
    return TN_OK;
}

tn_status tn_dim_parse(const char *text, tn_arena *arena, tn_dim *out)
{
    if (*skip_space(text) == '[') return parse_list(text, arena, out);
    tn_dim d = { .key = out->key, .when = -1 };
    TN_RETURN_IF(parse_range(text, &d));
    TN_RETURN_IF(tn_space_check(&(tn_space){ &d, 1 }));
    *out = d;
    return TN_OK;
}

tn_status tn_dim_when(const tn_dim *dims, size_t n, const char *text, tn_dim *d)
{
    char key[128], quoted[96];
    const char *equals = strchr(text, '=');
    tn_text_quote(text, quoted, sizeof quoted);
    if (!equals || equals == text || equals - text >= (ptrdiff_t)sizeof key)
        return tn_error(TN_USAGE, "when: \"%s\" is not KEY=CHOICE (act=gelu)", quoted);
    snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(dims[i].key, key) != 0) continue;
        if (dims[i].kind != TN_DIM_CHOICE)
            return tn_error(TN_USAGE, "when: \"%s\": %s is a range, and `when` needs a list", quoted, key);
        tn_nearest near = { .word = equals + 1 };
        for (size_t k = 0; k < dims[i].n_choices; k++) {
            tn_nearest_try(&near, dims[i].choices[k]);
            if (strcmp(dims[i].choices[k], equals + 1) != 0) continue;
            d->when = (int)i;
            d->when_choice = (int)k;
            return TN_OK;
        }
        return tn_error(TN_USAGE, "when: \"%s\": not a choice of %s%s%s%s", quoted, key,
                        near.best ? ": did you mean " : "", near.best ? near.best : "", near.best ? "?" : "");
    }
    return tn_error(TN_USAGE, "when: \"%s\": no dimension %s comes before this one", quoted, key);
}

tn_status tn_dim_make_int(tn_dim *d)
{
    if (d->kind != TN_DIM_FLOAT) return TN_OK;
    tn_dim whole = *d;
    whole.kind = TN_DIM_INT;
    whole.when = -1; /* of a space that is not at hand here */
    TN_RETURN_IF(tn_space_check(&(tn_space){ &whole, 1 }));
    d->kind = TN_DIM_INT;
    return TN_OK;
}
