/* The report as Markdown. */
#include "report/page/report.h"

static void put_finding(void *ctx, const char *sentence) { fprintf(ctx, "- %s\n", sentence); }

/* Names come from files: what would end a cell does not. */
static void put_cell(FILE *out, const char *s)
{
    fputs("| ", out);
    for (; *s; s++) {
        if (*s == '|') fputs("\\|", out);
        else fputc((unsigned char)*s < ' ' ? ' ' : *s, out);
    }
    fputc(' ', out);
}

static void put_rate(FILE *out, double flops, double ms)
{
    if (flops > 0 && ms > 0) fprintf(out, "| %.4g ", flops / ms * 1e-6);
    else fputs("| ", out);
}

static void put_bound(FILE *out, const char *what, double bound_ms, double ms)
{
    if (bound_ms > 0 && ms > 0) fprintf(out, "| %s | %.0f %% |\n", what, 100 * bound_ms / ms);
    else fputs("| | |\n", out);
}

static void put_parts(const tn_profile *p, FILE *out)
{
    tn_profile_part part[TN_PROFILE_PARTS];
    const size_t n = tn_profile_parts(p, part);
    fputs("\n## Components of a step\n\n| component | pass | ms | +- | share | GFLOP/s | bound by | reached |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- |\n",
          out);
    for (size_t i = 0; i < n; i++) {
        const tn_profile_part *x = &part[i];
        put_cell(out, x->name);
        fprintf(out, "| %s | %.4g | %.2g | %.1f %% ", x->pass, x->ms, x->spread_ms, 100 * x->share);
        put_rate(out, x->flops, x->ms);
        put_bound(out, x->bound, x->bound_ms, x->ms);
    }
}

static void put_rows(const tn_profile *p, FILE *out)
{
    fputs("\n## Ops\n\n| op | region | pass | calls | ms | +- | GFLOP/s | GB/s | bound by | reached |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
          out);
    for (size_t i = 0; i < p->n; i++) {
        const tn_profile_row *r = &p->row[i];
        const tn_bound_by b = tn_profile_bound(p, r);
        put_cell(out, r->op);
        put_cell(out, r->region);
        fprintf(out, "| %s | %.0f | %.4g | %.2g ", r->backward ? "backward" : "forward", r->calls, r->ms, r->spread_ms);
        put_rate(out, r->varies ? 0 : r->flops, r->ms);
        put_rate(out, r->bytes, r->ms);
        put_bound(out, b.what, b.ms, r->ms);
    }
}

tn_status tn_report_text(const tn_report *r, FILE *out)
{
    fputs("# ", out);
    for (const char *s = r->title; *s; s++) fputc((unsigned char)*s < ' ' ? ' ' : *s, out);
    fprintf(out, "\n\n%s\n\n", r->machine);
    tn_report_findings(r, put_finding, out);
    put_parts(r->profile, out);
    put_rows(r->profile, out);
    return ferror(out) ? tn_error(TN_DISK, "the report could not be written") : TN_OK;
}
