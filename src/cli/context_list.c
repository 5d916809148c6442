/* Reading a list of contexts. */
#include "cli/context_list.h"

#include "base/setting_value.h"

#include <stdio.h>
#include <string.h>

static const tn_setting row = TN_SETTING_INT("--contexts", "0", TN_RANGE(1, 1e9), "tokens", "");

static tn_status add_context(tn_context_list *l, int64_t context)
{
    if (l->n && context <= l->at[l->n - 1])
        return tn_error(TN_USAGE, "--contexts: %lld does not come after %lld: write them from small to large", (long long)context,
                        (long long)l->at[l->n - 1]);
    if (l->n == TN_CONTEXTS_MOST) return tn_error(TN_USAGE, "--contexts: more than %d of them", TN_CONTEXTS_MOST);
    l->at[l->n++] = context;
    return TN_OK;
}

/* "1k", or "1024..32768": doubled from one to the other. */
static tn_status read_span(tn_context_list *l, char *text)
{
    tn_setting_value first, last;
    char *dots = strstr(text, "..");
    if (dots) *dots = 0;
    TN_RETURN_IF(tn_setting_parse(&row, text, "command line", &first));
    last = first;
    if (dots) TN_RETURN_IF(tn_setting_parse(&row, dots + 2, "command line", &last));
    if (last.i < first.i) return tn_error(TN_USAGE, "--contexts: write them from small to large");
    for (int64_t T = first.i; T <= last.i; T *= 2) TN_RETURN_IF(add_context(l, T));
    return TN_OK;
}

tn_status tn_context_list_read(const char *text, tn_context_list *out)
{
    char copy[512];
    *out = (tn_context_list){ 0 };
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return tn_error(TN_USAGE, "--contexts: more than %d of them", TN_CONTEXTS_MOST);
    for (char *at = copy, *comma; at; at = comma) {
        comma = strchr(at, ',');
        if (comma) *comma++ = 0;
        TN_RETURN_IF(read_span(out, at));
    }
    return TN_OK;
}
