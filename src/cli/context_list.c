/* Reading a list of contexts. */
#include "cli/context_list.h"

#include "cli/spans.h"

tn_status tn_context_list_read(const char *text, tn_context_list *out)
{
    *out = (tn_context_list){ 0 };
    return tn_spans_read("--contexts", text, out->at, TN_CONTEXTS_MOST, &out->n);
}
