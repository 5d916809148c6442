/* tenon wire encode: texts to messages, one behind the other on standard output or in a file. */
#include "base/alloc.h"
#include "base/clock.h"
#include "cli/term.h"
#include "cli/wire/wire_cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOGETHER = 8, MOST_TEXTS = 1000000, MOST_BYTES = 256 << 20 };

static const tn_setting rows[] = {
    TN_SETTING_CHOICE("bits", "16", "16|8|6|4", "of a value: 16 (fp16), or an integer times a scale"),
    TN_SETTING_INT("group", "32", TN_RANGE(1, TN_WIRE_MOST_GROUP), "values", "that share a scale (bits below 16)"),
    TN_SETTING_AUTO_INT("batch", "auto", TN_RANGE(1, 4096), "texts", "encoded together (auto: all, at most 8)"),
    TN_SETTING_TEXT("out", "", "file to write (empty: standard output)"),
};

typedef struct encoding {
    tn_cli *c;
    tn_settings *keys;
    tn_saved_model model;
    tn_wire_post *post;
    char **file; /* (files): contents */
    size_t files, lines, capacity;
    tn_wire_line *line; /* (lines): texts, in the order of the messages */
    tn_arena arena;
    float *z;               /* (batch, slots, width) */
    unsigned char *message; /* one */
    tn_wire_options header;
    tn_wire_size size;
    tn_atomic_file to; /* where out= names one */
    tn_progress progress;
} encoding;

/* --- texts ---------------------------------------------------------------------------------------------------------------- */

static tn_status add_line(encoding *e, const char *text, size_t bytes, const char *name, size_t number)
{
    const char *where = number ? tn_arena_printf(&e->arena, "%.300s:%zu", name, number) : name;
    if (!where) return tn_error(TN_MEMORY, "out of memory");
    if (e->lines == MOST_TEXTS)
        return tn_error(TN_USAGE, "%.300s: more than %d texts at once: split them", where, MOST_TEXTS);
    if (e->lines == e->capacity)
        TN_RETURN_IF(tn_grow((void **)&e->line, &e->capacity, 2 * e->lines + 16, sizeof *e->line));
    e->line[e->lines++] = (tn_wire_line){ text, bytes, where };
    return TN_OK;
}

static tn_status add_file(encoding *e, const char *path)
{
    size_t bytes, number = 1;
    const bool input = strcmp(path, "-") == 0;
    const char *name = input ? "standard input" : path;
    TN_RETURN_IF(tn_file_read_all(input ? "/dev/stdin" : path, MOST_BYTES, &e->file[e->files], &bytes));
    const char *text = e->file[e->files++], *const end = text + bytes;
    if (!tn_args_flag(&e->c->args, "lines")) return add_line(e, text, bytes, name, 0);
    for (const char *at = text; at < end; number++) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        TN_RETURN_IF(add_line(e, at, (size_t)((next ? next : end) - at), name, number));
        at = next ? next + 1 : end;
    }
    return TN_OK;
}

static tn_status read_texts(encoding *e)
{
    const size_t n = e->c->args.positional_n;
    e->file = tn_alloc((n + 1) * sizeof *e->file);
    if (!e->file) return TN_MEMORY;
    if (n == 2) TN_RETURN_IF(add_file(e, "-"));
    for (size_t i = 2; i < n; i++) TN_RETURN_IF(add_file(e, tn_args_positional(&e->c->args, i)));
    return e->lines ? TN_OK : tn_error(TN_USAGE, "there is no text: name files with lines of text");
}

/* --- messages ------------------------------------------------------------------------------------------------------------- */

static tn_status put_message(encoding *e, const tn_wire_line *t, const float *z)
{
    const tn_status s = tn_wire_encode(&e->header, z, e->message);
    if (s != TN_OK) tn_error_prefix("%.300s", t->name);
    TN_RETURN_IF(s);
    if (!e->to.is_open) {
        if (fwrite(e->message, 1, e->size.message, e->c->out) != e->size.message)
            return tn_error(TN_DISK, "cannot write to standard output");
        return TN_OK;
    }
    TN_RETURN_IF(tn_atomic_write(&e->to, e->message, e->size.message));
    if (!e->c->json) return TN_OK;
    return tn_cli_emit(e->c, json_pack("{s:s, s:s, s:I, s:I, s:I, s:s}", "name", "message", "from", t->name,
                                       "text_bytes", (json_int_t)t->bytes, "value", (json_int_t)e->size.message, "bits",
                                       (json_int_t)e->header.bits, "unit", "bytes"));
}

static tn_status encode_all(encoding *e, size_t batch)
{
    const bool cut = tn_args_flag(&e->c->args, "cut");
    const size_t each = e->size.values;
    for (size_t at = 0; at < e->lines; at += batch) {
        const size_t n = e->lines - at < batch ? e->lines - at : batch;
        if (tn_interrupted(NULL)) return tn_error(TN_INTERRUPTED, "interrupted after %zu messages", at);
        TN_RETURN_IF(tn_wire_post_encode(e->post, e->line + at, (int64_t)n, cut, e->z));
        for (size_t i = 0; i < n; i++) TN_RETURN_IF(put_message(e, &e->line[at + i], e->z + i * each));
        tn_progress_line(&e->progress, tn_clock_s(), "messages  %zu of %zu", at + n, e->lines);
    }
    return TN_OK;
}

static tn_status open_post(encoding *e, size_t batch)
{
    TN_RETURN_IF(tn_wire_post_open(&(tn_wire_post_options){ .user = &e->c->user,
                                                            .model = &e->model,
                                                            .batch = (int64_t)batch,
                                                            .question = tn_args_value(&e->c->args, "question") },
                                   &e->post));
    e->header = tn_wire_header_of(tn_wire_post_about(e->post), atoi(tn_settings_text(e->keys, "bits")),
                                  tn_settings_int(e->keys, "group"));
    TN_RETURN_IF(tn_wire_size_of(&e->header, &e->size));
    e->z = tn_alloc(sizeof *e->z * batch * e->size.values);
    e->message = tn_alloc(e->size.message);
    return e->z && e->message ? TN_OK : tn_error(TN_MEMORY, "out of memory for %zu messages", batch);
}

static tn_status check_output(const encoding *e, const char *out)
{
    if (out[0]) return tn_output_file_check(out);
    if (e->c->json)
        return tn_error(TN_USAGE, "--json: messages go to standard output: name a file for them with out=FILE");
    if (isatty(STDOUT_FILENO))
        return tn_error(TN_USAGE, "messages are no text for a terminal: send them to a file (> FILE) or a pipe");
    return TN_OK;
}

static tn_status run(encoding *e)
{
    TN_RETURN_IF(tn_wire_keys(rows, sizeof rows / sizeof *rows, &e->keys));
    TN_RETURN_IF(tn_wire_find(e->c, e->keys, &e->model));
    const char *out = tn_settings_text(e->keys, "out");
    TN_RETURN_IF(check_output(e, out));
    TN_RETURN_IF(read_texts(e));
    const size_t most = tn_settings_is_auto(e->keys, "batch") ? TOGETHER : (size_t)tn_settings_int(e->keys, "batch"),
                 batch = e->lines < most ? e->lines : most;
    TN_RETURN_IF(open_post(e, batch));
    if (out[0]) TN_RETURN_IF(tn_atomic_open(out, &e->to));
    tn_interrupt_watch();
    tn_progress_start(&e->progress, e->c->err);
    e->progress.last_s = tn_clock_s(); /* a quick job draws nothing */
    e->progress.drawn = !e->progress.term.tty;
    const tn_status s = encode_all(e, batch);
    e->progress.pending = e->progress.pending && e->progress.term.tty;
    tn_progress_end(&e->progress);
    TN_RETURN_IF(s);
    if (out[0]) TN_RETURN_IF(tn_atomic_finish(&e->to));
    fprintf(e->c->err, "%zu message%s of %zu bytes, encoder %s\n", e->lines, e->lines == 1 ? "" : "s", e->size.message,
            e->header.encoder);
    return TN_OK;
}

tn_status tn_cmd_wire_encode(tn_cli *c)
{
    encoding e = { .c = c };
    TN_RETURN_IF(tn_args_expect(&c->args, 2, SIZE_MAX));
    const tn_status s = run(&e);
    tn_atomic_abort(&e.to);
    tn_wire_post_close(e.post);
    for (size_t i = 0; i < e.files; i++) tn_free(e.file[i]);
    tn_free(e.file);
    tn_free(e.line);
    tn_free(e.z);
    tn_free(e.message);
    tn_arena_free(&e.arena);
    tn_saved_model_free(&e.model);
    tn_settings_free(e.keys);
    return s;
}
