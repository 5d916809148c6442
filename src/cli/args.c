/* Sorting of arguments. An argument is an override when a key stands before its first '=': paths hold a '/' or a
 * capital and stay positional. Refuses flags that the rows do not name. */
#include "cli/args.h"

#include "base/alloc.h"
#include "base/setting_value.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const tn_flag_row tn_global_flags[TN_GLOBAL_FLAGS] = {
    { "", "", "--json", "one JSON object per line on standard output" },
    { "", "", "--help", "show how to use this verb" },
};

tn_flag_kind tn_flag_row_read(const tn_flag_row *r, char name[32])
{
    const size_t n = strcspn(r->text + 2, "[=");
    snprintf(name, 32, "%.*s", (int)n, r->text + 2);
    return r->text[2 + n] == '=' ? TN_FLAG_VALUE : r->text[2 + n] == '[' ? TN_FLAG_MAY : TN_FLAG_ALONE;
}

static bool flag_find(const tn_flag_row *rows, size_t n, const char *name, tn_flag_kind *kind, tn_nearest *near,
                      char best[32])
{
    char known[32];
    for (size_t i = 0; i < n; i++) {
        *kind = tn_flag_row_read(&rows[i], known);
        if (strcmp(known, name) == 0) return true;
        const size_t before = near->best ? near->distance : SIZE_MAX;
        tn_nearest_try(near, known);
        if (near->best && near->distance < before) memcpy(best, known, sizeof known);
    }
    return false;
}

/* One that the verb has: no other word that begins with dashes is taken for a forgotten value. */
static bool is_flag(const char *arg, const tn_flag_row *rows, size_t n_rows)
{
    char name[32], best[32] = "";
    tn_flag_kind kind;
    const size_t n = strncmp(arg, "--", 2) == 0 ? strcspn(arg + 2, "=") : 0;
    if (!n || n >= sizeof name) return false;
    snprintf(name, sizeof name, "%.*s", (int)n, arg + 2);
    tn_nearest near = { .word = name };
    return flag_find(rows, n_rows, name, &kind, &near, best) ||
           flag_find(tn_global_flags, TN_GLOBAL_FLAGS, name, &kind, &near, best);
}

/* argv[*i] begins with a dash; a value may be the argument behind it. */
static tn_status take_flag(tn_args *a, int argc, char *const *argv, int *i, const tn_flag_row *rows, size_t n_rows)
{
    const char *arg = argv[*i], *text = strcmp(arg, "-h") == 0 ? "help" : arg + strspn(arg, "-");
    char name[32], best[32] = "", quoted[80];
    tn_flag_kind kind = TN_FLAG_ALONE;
    const size_t n = strcspn(text, "=");
    const char *value = text[n] ? text + n + 1 : NULL;
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), text);
    tn_nearest near = { .word = name };
    const bool dashes = arg[1] == '-' || strcmp(arg, "-h") == 0;
    if (!dashes || n >= sizeof name ||
        (!flag_find(rows, n_rows, name, &kind, &near, best) &&
         !flag_find(tn_global_flags, TN_GLOBAL_FLAGS, name, &kind, &near, best))) {
        tn_text_quote(arg, quoted, sizeof quoted);
        if (*best) return tn_error(TN_USAGE, "unknown flag %s: did you mean --%s?", quoted, best);
        return tn_error(TN_USAGE, "unknown flag %s: --help lists the flags", quoted);
    }
    if (kind == TN_FLAG_ALONE && value) return tn_error(TN_USAGE, "--%s takes no value", name);
    if (kind == TN_FLAG_VALUE && !value) {
        if (*i + 1 >= argc || is_flag(argv[*i + 1], rows, n_rows))
            return tn_error(TN_USAGE, "--%s needs a value: --%s=VALUE", name, name);
        value = argv[++*i];
    }
    tn_flag *f = &a->flags[a->flags_n++];
    memcpy(f->name, name, sizeof name);
    f->value = value;
    return TN_OK;
}

static bool is_override(const char *arg)
{
    const size_t n = strspn(arg, "abcdefghijklmnopqrstuvwxyz0123456789_.");
    return n > 0 && arg[n] == '=' && arg[0] >= 'a' && arg[0] <= 'z';
}

tn_status tn_args_parse(tn_args *a, int argc, char *const *argv, const tn_flag_row *rows, size_t n_rows)
{
    const size_t n = (size_t)argc + 1;
    a->positional = tn_alloc(n * sizeof *a->positional);
    a->overrides = tn_alloc(n * sizeof *a->overrides);
    a->words = tn_alloc(n * sizeof *a->words);
    a->flags = tn_alloc(n * sizeof *a->flags);
    if (!a->positional || !a->overrides || !a->words || !a->flags) return TN_MEMORY;
    bool only_words = false;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        const size_t before = a->positional_n + a->overrides_n;
        if (only_words) a->positional[a->positional_n++] = arg;
        else if (strcmp(arg, "--") == 0) only_words = true;
        else if (arg[0] == '-' && arg[1]) TN_RETURN_IF(take_flag(a, argc, argv, &i, rows, n_rows));
        else if (is_override(arg)) a->overrides[a->overrides_n++] = arg;
        else a->positional[a->positional_n++] = arg;
        if (a->positional_n + a->overrides_n > before) a->words[before] = arg;
    }
    return TN_OK;
}

void tn_args_free(tn_args *a)
{
    tn_free(a->positional);
    tn_free(a->overrides);
    tn_free(a->words);
    tn_free(a->flags);
    *a = (tn_args){ 0 };
}

static const tn_flag *last_flag(const tn_args *a, const char *name)
{
    for (size_t i = a->flags_n; i > 0; i--)
        if (strcmp(a->flags[i - 1].name, name) == 0) return &a->flags[i - 1];
    return NULL;
}

bool tn_args_flag(const tn_args *a, const char *name) { return last_flag(a, name) != NULL; }

const char *tn_args_value(const tn_args *a, const char *name)
{
    const tn_flag *f = last_flag(a, name);
    return f ? f->value : NULL;
}

tn_status tn_args_number(const tn_args *a, const char *name, double least, double most, double *out)
{
    const char *text = tn_args_value(a, name);
    char *end;
    if (!text) return TN_OK;
    const double x = strtod(text, &end);
    if (end == text || *end || !(x >= least && x <= most))
        return tn_error(TN_USAGE, "--%s=%.40s: give a number from %g to %g", name, text, least, most);
    *out = x;
    return TN_OK;
}

tn_status tn_args_whole(const tn_args *a, const char *name, int64_t least, int64_t most, int64_t *out)
{
    const char *text = tn_args_value(a, name);
    char *end;
    if (!text) return TN_OK;
    const double x = strtod(text, &end); /* 1e6 is one */
    if (end == text || *end || !(x >= (double)least && x <= (double)most) || x != floor(x))
        return tn_error(TN_USAGE, "--%s=%.40s: give a whole number from %lld to %lld", name, text, (long long)least,
                        (long long)most);
    *out = (int64_t)x;
    return TN_OK;
}

const char *tn_args_positional(const tn_args *a, size_t i) { return i < a->positional_n ? a->positional[i] : NULL; }

/* Names what the usage asks for: its first line up to what may be left out. */
static tn_status missing(const tn_args *a)
{
    static const struct {
        const char *word, *remedy;
    } lists[] = { { "RUN", "`tenon runs` lists the runs" }, { "PRESET", "`tenon presets` lists the presets" } };
    char needed[160];
    if (!a->usage) return tn_error(TN_USAGE, "an argument is missing: --help shows the usage");
    snprintf(needed, sizeof needed, "%.*s", (int)strcspn(a->usage, "\n"), a->usage);
    char *rest = strstr(needed, " [");
    if (rest) *rest = 0;
    const char *remedy = "--help shows the usage";
    for (size_t i = sizeof lists / sizeof *lists; i-- > 0;)
        if (strstr(needed, lists[i].word)) remedy = lists[i].remedy;
    return tn_error(TN_USAGE, "an argument is missing: tenon %s (%s)", needed, remedy);
}

tn_status tn_args_expect(const tn_args *a, size_t min, size_t max)
{
    char quoted[80];
    if (a->positional_n < min) return missing(a);
    if (a->positional_n > max)
        return tn_error(TN_USAGE, "unexpected argument %s: --help shows the usage",
                        tn_text_quote(a->positional[max], quoted, sizeof quoted));
    return TN_OK;
}

/* --- lists of numbers -------------------------------------------------------------------------------------------------- */

static tn_status add(tn_spans *s, const char *flag, int64_t x)
{
    if (s->n && x <= s->at[s->n - 1])
        return tn_error(TN_USAGE, "%s: %lld follows %lld: list them in increasing order", flag, (long long)x,
                        (long long)s->at[s->n - 1]);
    if (s->n == TN_SPANS_MOST) return tn_error(TN_USAGE, "%s: at most %d values", flag, TN_SPANS_MOST);
    s->at[s->n++] = x;
    return TN_OK;
}

static tn_status read_bound(const tn_setting *row, const char *flag, const char *text, const char *whole, int64_t *out)
{
    tn_setting_value v = { 0 };
    if (!*text)
        return tn_error(TN_USAGE, "%s: %.40s lacks a number: N, or A..B with A < B", flag, *whole ? whole : "\"\"");
    TN_RETURN_IF(tn_setting_parse(row, text, "command line", &v));
    *out = v.i;
    return TN_OK;
}

static tn_status read_span(tn_spans *s, const char *flag, char *text)
{
    const tn_setting row = TN_SETTING_INT(flag, "0", TN_RANGE(1, 1e9), "", "");
    char whole[41];
    int64_t first = 0, last;
    char *dots = strstr(text, "..");
    snprintf(whole, sizeof whole, "%s", text);
    if (dots) *dots = 0;
    TN_RETURN_IF(read_bound(&row, flag, text, whole, &first));
    last = first;
    if (dots) TN_RETURN_IF(read_bound(&row, flag, dots + 2, whole, &last));
    if (last < first) return tn_error(TN_USAGE, "%s: list them in increasing order", flag);
    for (int64_t x = first; x <= last; x *= 2) TN_RETURN_IF(add(s, flag, x));
    return TN_OK;
}

tn_status tn_spans_read(const char *flag, const char *text, tn_spans *out)
{
    tn_status s = TN_OK;
    tn_spans all = { .n = 0 };
    tn_arena arena = { 0 };
    char *copy = tn_arena_strdup(&arena, text);
    if (!copy) TN_TRY(TN_MEMORY);
    for (char *comma; copy; copy = comma) {
        comma = strchr(copy, ',');
        if (comma) *comma++ = 0;
        TN_TRY(read_span(&all, flag, copy));
    }
    *out = all;
done:
    tn_arena_free(&arena);
    return s;
}
