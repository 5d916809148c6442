/* Cells. */
#include "report/page/table.h"

#include "base/text.h"
#include "report/chart/html.h"
#include "report/page/markdown.h"

#include <math.h>

void tn_page_heading(const tn_page *p, const char *text)
{
    if (p->html) tn_html_tag(p->out, "h2", text);
    else fprintf(p->out, "\n## %s\n", text);
    fputc('\n', p->out);
}

void tn_page_note(const tn_page *p, const char *text)
{
    if (p->html) tn_html_tag(p->out, "p", text);
    else fputs(text, p->out);
    fputs(p->html ? "\n" : "\n\n", p->out);
}

void tn_table_begin(const tn_page *p, const char *const *heads, size_t n)
{
    fputs(p->html ? "<div class=\"wide dense\"><table><tr>" : "", p->out);
    for (size_t i = 0; i < n; i++) {
        if (p->html) tn_html_tag(p->out, "th", heads[i]);
        else fprintf(p->out, "| %s ", heads[i]);
    }
    fputs(p->html ? "</tr>\n" : "|\n", p->out);
    for (size_t i = 0; !p->html && i < n; i++) fputs("| --- ", p->out);
    if (!p->html) fputs("|\n", p->out);
}

void tn_table_end(const tn_page *p) { fputs(p->html ? "</table></div>\n" : "", p->out); }
void tn_row_begin(const tn_page *p) { fputs(p->html ? "<tr>" : "", p->out); }
void tn_row_end(const tn_page *p) { fputs(p->html ? "</tr>\n" : "|\n", p->out); }

void tn_cell_path(const tn_page *p, const char *folder, const char *name)
{
    fputs(p->html ? "<td>" : "| ", p->out);
    if (p->html && folder[0]) fprintf(p->out, "<span class=\"note\">%s</span>", folder);
    if (p->html) tn_html_text(p->out, name);
    else fputs(folder, p->out), tn_markdown_text(p->out, name);
    fputs(p->html ? "</td>" : " ", p->out);
}

void tn_cell_text(const tn_page *p, const char *s) { tn_cell_path(p, "", s); }

static void put_cell(const tn_page *p, const char *text) { fprintf(p->out, p->html ? "<td>%s</td>" : "| %s ", text); }

void tn_cell_number(const tn_page *p, double v) { put_cell(p, v > 0 && isfinite(v) ? TN_NUMBER(v) : ""); }

void tn_cell_known(const tn_page *p, double v) { put_cell(p, isfinite(v) ? TN_NUMBER(v) : ""); }

void tn_cell_percent(const tn_page *p, double frac)
{
    char text[32] = "";
    if (frac > 0 && isfinite(frac)) snprintf(text, sizeof text, "%.1f %%", 100 * frac);
    put_cell(p, text);
}
