/* Reading lists of numbers. */
#include "cli/spans.h"

#include "base/alloc.h"
#include "base/setting_value.h"

#include <string.h>

typedef struct spans {
    const char *flag;
    int64_t *out;
    size_t most, n;
} spans;

static tn_status add(spans *s, int64_t x)
{
    if (s->n && x <= s->out[s->n - 1])
        return tn_error(TN_USAGE, "%s: %lld follows %lld: list them in increasing order", s->flag, (long long)x,
                        (long long)s->out[s->n - 1]);
    if (s->n == s->most) return tn_error(TN_USAGE, "%s: at most %d values", s->flag, (int)s->most);
    s->out[s->n++] = x;
    return TN_OK;
}

static tn_status read_span(spans *s, char *text)
{
    const tn_setting row = TN_SETTING_INT(s->flag, "0", TN_RANGE(1, 1e9), "", "");
    tn_setting_value first, last;
    char *dots = strstr(text, "..");
    if (dots) *dots = 0;
    TN_RETURN_IF(tn_setting_parse(&row, text, "command line", &first));
    last = first;
    if (dots) TN_RETURN_IF(tn_setting_parse(&row, dots + 2, "command line", &last));
    if (last.i < first.i) return tn_error(TN_USAGE, "%s: list them in increasing order", s->flag);
    for (int64_t x = first.i; x <= last.i; x *= 2) TN_RETURN_IF(add(s, x));
    return TN_OK;
}

tn_status tn_spans_read(const char *flag, const char *text, int64_t *out, size_t most, size_t *n)
{
    tn_status s = TN_OK;
    spans all = { .flag = flag, .out = out, .most = most };
    tn_arena arena = { 0 };
    char *copy = tn_arena_strdup(&arena, text);
    if (!copy) TN_TRY(TN_MEMORY);
    for (char *comma; copy; copy = comma) {
        comma = strchr(copy, ',');
        if (comma) *comma++ = 0;
        TN_TRY(read_span(&all, copy));
    }
    *n = all.n;
done:
    tn_arena_free(&arena);
    return s;
}
