/* Two configurations beside each other: what a step takes, by component. */
#include "report/page/report.h"

#include "base/text.h"
#include "report/chart/chart.h"
#include "report/chart/html.h"

#include <math.h>
#include <stdio.h>

enum { DRAWN = 12, LABEL = 96 };

static const char *verdict(const tn_profile_change *x)
{
    return !x->seen ? "not seen" : x->after_ms < x->before_ms ? "less" : "more";
}

static void say_ratio(const tn_profile_change *x, char *buf, size_t bytes)
{
    if (x->before_ms > 0 && x->after_ms > 0) snprintf(buf, bytes, "%.3f", x->after_ms / x->before_ms);
    else snprintf(buf, bytes, "%s", x->after_ms > 0 ? "new" : "gone");
}

static const char *more(const tn_profile_change *x, char buf[TN_NUMBER_TEXT + 1])
{
    const double ms = x->after_ms - x->before_ms;
    snprintf(buf, TN_NUMBER_TEXT + 1, "%s%s", ms < 0 ? "" : "+", TN_NUMBER(ms));
    return buf;
}

static void say_work(const tn_profile *p, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "ms for %s %s, what a step of the first learns from; two rounds, measured in turn",
             TN_NUMBER(p->items), p->unit);
}

void tn_report_changes_text(const tn_comparison *c, FILE *out)
{
    tn_profile_change x[TN_PROFILE_CHANGES + 1];
    const size_t n = tn_profile_changes(c->before, c->after, x);
    char text[160], difference[TN_NUMBER_TEXT + 1];
    say_work(c->before[0], text, sizeof text);
    fprintf(out, "\n## What changed\n\n%s\n\n| component | pass | first | second | difference | ratio | |\n", text);
    fputs("| --- | --- | --- | --- | --- | --- | --- |\n", out);
    for (size_t i = 0; i < n; i++) {
        say_ratio(&x[i], text, sizeof text);
        fprintf(out, "| %s | %s | %s | %s | %s | %s | %s |\n", x[i].name, x[i].pass, TN_NUMBER(x[i].before_ms),
                TN_NUMBER(x[i].after_ms), more(&x[i], difference), text, verdict(&x[i]));
    }
}

static tn_status draw(const tn_profile_change *x, size_t n, FILE *out)
{
    static const char *const groups[] = { "first", "second" };
    char label[DRAWN][LABEL];
    const char *names[DRAWN];
    double value[2 * DRAWN];
    n = n < DRAWN ? n : DRAWN;
    for (size_t i = 0; i < n; i++) {
        snprintf(label[i], LABEL, "%s%s%s", x[i].name, x[i].pass[0] ? ", " : "", x[i].pass);
        names[i] = label[i];
        value[2 * i] = x[i].before_ms, value[2 * i + 1] = x[i].after_ms;
    }
    return tn_chart_bars(&(tn_bars){ .title = "What changed most",
                                     .x_label = "ms for as much work",
                                     .names = names,
                                     .groups = groups,
                                     .n = n,
                                     .n_groups = 2,
                                     .value = value },
                         out);
}

tn_status tn_report_changes_page(const tn_comparison *c, FILE *out)
{
    tn_profile_change x[TN_PROFILE_CHANGES + 1];
    const size_t n = tn_profile_changes(c->before, c->after, x);
    char text[160], difference[TN_NUMBER_TEXT + 1];
    say_work(c->before[0], text, sizeof text);
    fputs("<h2>What changed</h2>\n", out);
    tn_html_tag(out, "p", text);
    TN_RETURN_IF(draw(x, n - 1, out));
    fputs("<table><tr><th>component</th><th>pass</th><th>first</th><th>second</th><th>difference</th><th>ratio</th>"
          "<th></th></tr>\n",
          out);
    for (size_t i = 0; i < n; i++) {
        say_ratio(&x[i], text, sizeof text);
        fputs("<tr>", out);
        tn_html_tag(out, "td", x[i].name);
        tn_html_tag(out, "td", x[i].pass);
        fprintf(out, "<td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n", TN_NUMBER(x[i].before_ms),
                TN_NUMBER(x[i].after_ms), more(&x[i], difference), text, verdict(&x[i]));
    }
    fputs("</table>\n", out);
    return TN_OK;
}
