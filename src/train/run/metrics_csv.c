/* Tables of a run as CSV: its metrics, and the layout of its arena. */
#include "train/run/metrics.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "train/run/training_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the file as a whole, from what `put` prints. */
static tn_status write_csv(const char *csv, tn_status (*put)(void *ctx, FILE *f), void *ctx)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return tn_error(TN_MEMORY, "out of memory while writing %s", csv);
    tn_status s = put(ctx, f);
    if (fclose(f) != 0 && s == TN_OK) s = tn_error(TN_MEMORY, "out of memory while writing %s", csv);
    if (s == TN_OK) s = tn_file_write_atomic(csv, text, bytes);
    free(text);
    return s;
}

/* --- metrics.jsonl as metrics.csv, made anew each time: lines that a resume cut off are gone from both --------------- */

enum { MOST_COLUMNS = 512 };

typedef struct columns {
    const char *jsonl;
    tn_arena arena;
    const char *name[MOST_COLUMNS];
    size_t n;
} columns;

static tn_status add_columns(columns *c, const json_t *line)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)line, key, v)
    {
        size_t i = 0;
        while (i < c->n && strcmp(c->name[i], key) != 0) i++;
        if (i < c->n || c->n == MOST_COLUMNS) continue;
        if (!(c->name[c->n] = tn_arena_strdup(&c->arena, key))) return TN_MEMORY;
        c->n++;
    }
    return TN_OK;
}

/* In quotes where it needs them. */
static void put_text(FILE *f, const char *text)
{
    if (!strpbrk(text, ",\"\n")) {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text, f);
    }
    fputc('"', f);
}

static void put_value(FILE *f, const json_t *v)
{
    if (json_is_integer(v)) fprintf(f, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v)) fprintf(f, "%.9g", json_real_value(v));
    else if (json_is_string(v)) put_text(f, json_string_value(v));
}

static void put_line(FILE *f, const columns *c, const json_t *line)
{
    for (size_t i = 0; i < c->n; i++) {
        if (i) fputc(',', f);
        put_value(f, json_object_get(line, c->name[i]));
    }
    fputc('\n', f);
}

/* f NULL: collects the columns. */
static tn_status each_line(columns *c, FILE *f)
{
    tn_jsonl_reader *r;
    json_t *line;
    TN_RETURN_IF(tn_jsonl_reader_open(c->jsonl, &r));
    tn_status s = tn_jsonl_reader_next(r, &line);
    for (; s == TN_OK && line; s = s == TN_OK ? tn_jsonl_reader_next(r, &line) : s) {
        if (f) put_line(f, c, line);
        else s = add_columns(c, line);
    }
    tn_jsonl_reader_close(r);
    return s;
}

static tn_status put_metrics(void *ctx, FILE *f)
{
    columns *c = ctx;
    for (size_t i = 0; i < c->n; i++) fprintf(f, "%s%s", i ? "," : "", c->name[i]);
    fputc('\n', f);
    return each_line(c, f);
}

tn_status tn_metrics_csv(const char *jsonl, const char *csv)
{
    columns c = { .jsonl = jsonl };
    tn_status s = each_line(&c, NULL);
    if (s == TN_OK) s = write_csv(csv, put_metrics, &c);
    tn_arena_free(&c.arena);
    return s;
}

/* --- the arena's layout; a tensor without a name is known by its op and that op's region ----------------------------- */

static void put_row(FILE *f, const char *plan, const tn_layout_row *r)
{
    fprintf(f, "%s,%zu,%zu,%zu,%zu,%s,%s,%s,%s,%s,%s,", plan, r->offset, r->bytes, r->first, r->last,
            r->workspace ? "workspace" : "tensor", r->name ? r->name : "", r->op, r->backward ? "backward" : "forward",
            r->region, tn_dtype_name(r->dtype));
    for (int i = 0; i < r->dims.rank; i++) fprintf(f, "%s%lld", i ? "x" : "", (long long)r->dims.dim[i]);
    fputc('\n', f);
}

static tn_status put_plan(FILE *f, const char *name, const tn_plan *p)
{
    const size_t n = tn_plan_layout(p, NULL);
    tn_layout_row *rows = tn_alloc(sizeof *rows * (n + 1));
    if (!rows) return TN_MEMORY;
    tn_plan_layout(p, rows);
    for (size_t i = 0; i < n; i++) put_row(f, name, &rows[i]);
    tn_free(rows);
    return TN_OK;
}

static tn_status put_layout(void *ctx, FILE *f)
{
    tn_trainer *t = ctx;
    (void)tn_trainer_feed(t); /* the widest plans */
    fputs("plan,offset,bytes,first_step,last_step,kind,name,op,pass,region,dtype,shape\n", f);
    TN_RETURN_IF(put_plan(f, "train", tn_trainer_plan(t, true)));
    return put_plan(f, "eval", tn_trainer_plan(t, false));
}

tn_status tn_layout_csv(tn_trainer *t, const char *csv) { return write_csv(csv, put_layout, t); }

tn_status tn__training_csv(const tn_training *t)
{
    char from[TN_PATH_BYTES], to[TN_PATH_BYTES];
    TN_RETURN_IF(tn_path_join(t->dir, "metrics.jsonl", from, sizeof from));
    TN_RETURN_IF(tn_path_join(t->dir, "metrics.csv", to, sizeof to));
    return tn_metrics_csv(from, to);
}
