/* metrics.jsonl as metrics.csv, made anew each time: lines that a resume cut off are then gone from both. */
#include "train/run/metrics.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 512 };

typedef struct columns {
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

static tn_status each_line(const char *jsonl, columns *c, FILE *f)
{
    tn_jsonl_reader *r;
    json_t *line;
    TN_RETURN_IF(tn_jsonl_reader_open(jsonl, &r));
    tn_status s = tn_jsonl_reader_next(r, &line);
    for (; s == TN_OK && line; s = s == TN_OK ? tn_jsonl_reader_next(r, &line) : s) {
        if (f) put_line(f, c, line);
        else s = add_columns(c, line);
    }
    tn_jsonl_reader_close(r);
    return s;
}

tn_status tn_metrics_csv(const char *jsonl, const char *csv)
{
    tn_status s = TN_OK;
    columns c = { .n = 0 };
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = NULL;
    TN_TRY(each_line(jsonl, &c, NULL));
    f = open_memstream(&text, &bytes);
    if (!f) TN_FAIL(TN_MEMORY, "out of memory while writing %s", csv);
    for (size_t i = 0; i < c.n; i++) fprintf(f, "%s%s", i ? "," : "", c.name[i]);
    fputc('\n', f);
    TN_TRY(each_line(jsonl, &c, f));
    const int closed = fclose(f);
    f = NULL;
    if (closed != 0) TN_FAIL(TN_MEMORY, "out of memory while writing %s", csv);
    TN_TRY(tn_file_write_atomic(csv, text, bytes));
done:
    if (f) fclose(f);
    free(text);
    tn_arena_free(&c.arena);
    return s;
}
