/* The report as Markdown. */
#include "report/page/markdown.h"
#include "report/page/report_parts.h"

static void put_finding(void *ctx, const char *sentence)
{
    fputs("- ", ctx);
    tn_markdown_text(ctx, sentence);
    fputc('\n', ctx);
}

tn_status tn_report_text(const tn_report *r, FILE *out)
{
    const tn_page to = { .out = out };
    fputs("# ", out);
    tn_markdown_text(out, r->title);
    fprintf(out, "\n\n%s\n\n", r->machine);
    tn_report_findings(r, put_finding, out);
    if (r->against) {
        tn_report_changes_text(r->against, out);
        return ferror(out) ? tn_error(TN_DISK, "the report could not be written") : TN_OK;
    }
    if (r->advised) fputs("\n## Advice\n\n", out);
    tn_report_advice(r, put_finding, out);
    tn_report_put_parts(&to, r->profile);
    tn_report_put_run(&to, r->run);
    tn_report_put_use(&to, r);
    tn_report_put_figures(&to, r);
    tn_report_put_ops(&to, r->profile);
    return ferror(out) ? tn_error(TN_DISK, "the report could not be written") : TN_OK;
}
