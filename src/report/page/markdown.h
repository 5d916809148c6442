/* Text in Markdown: names and values may come from files. */
#ifndef TN_REPORT_MARKDOWN_H
#define TN_REPORT_MARKDOWN_H

#include <stdio.h>

/* What would end a cell, or begin a tag, does not; control characters are replaced, as tn_text_clean does. */
void tn_markdown_text(FILE *out, const char *s);

#endif
