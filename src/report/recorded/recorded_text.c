/* What runs recorded, as Markdown. */
#include "report/recorded/recorded.h"

#include "base/text.h"
#include "report/page/markdown.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *tn_recorded_about(const tn_recorded_run *r, char buf[TN_RECORDED_TEXT])
{
    const tn_run_info *i = &r->info;
    const char *model = i->preset[0] ? i->preset : i->model[0] ? i->model : "a model that is not known";
    char step[64], version[96] = "";
    snprintf(step, sizeof step, i->steps ? "step %lld of %lld" : "step %lld", (long long)i->step, (long long)i->steps);
    if (r->version && strcmp(r->version, TN_VERSION) != 0)
        snprintf(version, sizeof version, "; written by tenon %s, this is %s", r->version, TN_VERSION);
    snprintf(buf, TN_RECORDED_TEXT, "%.240s: %s, %s, %s%s", r->name, model, step, tn_run_state_name(i->state), version);
    return buf;
}

static void put_item(FILE *out, const char *what, const char *why)
{
    fputs("- ", out);
    tn_markdown_text(out, what);
    if (why) fputs(": ", out), tn_markdown_text(out, why);
    fputc('\n', out);
}

/* A heading, and the first row of a table with a column for each run. */
static void put_head(const tn_recorded *r, const char *heading, FILE *out)
{
    fprintf(out, "\n## %s\n\n| ", heading);
    for (size_t i = 0; i < r->n; i++) fputs("| ", out), tn_markdown_text(out, r->run[i].name), fputc(' ', out);
    fputs("|\n| --- |", out);
    for (size_t i = 0; i < r->n; i++) fputs(" --- |", out);
    fputc('\n', out);
}

static void put_numbers(const tn_recorded *r, FILE *out)
{
    if (!r->n_numbers) return;
    put_head(r, "Numbers", out);
    for (size_t k = 0; k < r->n_numbers; k++) {
        const tn_recorded_number *x = &r->number[k];
        fprintf(out, "| %s%s%s ", x->name, x->unit[0] ? ", " : "", x->unit);
        for (size_t i = 0; i < r->n; i++) {
            if (isnan(x->value[i])) fputs("| ", out);
            else fprintf(out, "| %s ", TN_NUMBER(x->value[i]));
        }
        fputs("|\n", out);
    }
}

static void put_settings(const tn_recorded *r, FILE *out)
{
    if (!r->n_settings) return;
    put_head(r, "Settings", out);
    for (size_t k = 0; k < r->n_settings; k++) {
        fprintf(out, "| %s ", r->setting[k].key);
        for (size_t i = 0; i < r->n; i++)
            fputs("| ", out), tn_markdown_text(out, r->setting[k].value[i]), fputc(' ', out);
        fputs("|\n", out);
    }
}

static void put_parts(const tn_recorded_run *x, FILE *out)
{
    if (!x->n_parts) return;
    fputs("\n## Components, as ", out);
    tn_markdown_text(out, x->name);
    fputs(" timed them\n\n| component | forward ms | backward ms |\n| --- | --- | --- |\n", out);
    for (size_t k = 0; k < x->n_parts; k++) {
        const double ms[] = { x->part[k].forward_ms, x->part[k].backward_ms };
        fputs("| ", out);
        tn_markdown_text(out, x->part[k].name);
        for (int i = 0; i < 2; i++) {
            if (isnan(ms[i])) fputs(" |", out);
            else fprintf(out, " | %s", TN_NUMBER(ms[i]));
        }
        fputs(" |\n", out);
    }
}

tn_status tn_recorded_text(const tn_recorded *r, FILE *out)
{
    char text[TN_RECORDED_TEXT];
    fputs("# ", out);
    tn_markdown_text(out, r->title);
    fprintf(out, "\n\n%s\n\n", TN_RECORDED_LEAD);
    for (size_t i = 0; i < r->n; i++) {
        put_item(out, tn_recorded_about(&r->run[i], text), NULL);
        if (r->run[i].timed) put_item(out, tn_run_time_text(&r->run[i].time, text), NULL);
    }
    fputs("\n## What is missing\n\n", out);
    for (size_t i = 0; i < r->n_missing; i++) put_item(out, r->missing[i].what, r->missing[i].why);
    put_numbers(r, out);
    for (size_t i = 0; i < r->n; i++) put_parts(&r->run[i], out);
    put_settings(r, out);
    return ferror(out) ? tn_error(TN_DISK, "the report could not be written") : TN_OK;
}
