/* tenon wire text: documents of a task with questions, to train the models that will read messages on. */
#include "base/clock.h"
#include "base/text.h"
#include "cli/next.h"
#include "cli/term.h"
#include "cli/wire/wire_cli.h"
#include "tasks/wire/wire_document.h"

#include <stdlib.h>
#include <string.h>

enum { DOCUMENTS = 10000 };

static const tn_setting rows[] = {
    TN_SETTING_AUTO_INT("documents", "auto", TN_RANGE(1, 1e9), "documents",
                        "how many (auto: 10000, or all contexts of a file where these are fewer)"),
    TN_SETTING_INT("repeats", "0", TN_RANGE(0, 4096), "questions", "questions with answers before the last one"),
    TN_SETTING_TEXT("out", "", "file to write (empty: standard output)"),
};

typedef struct writer {
    tn_cli *c;
    tn_atomic_file file; /* where out= names one */
    uint64_t bytes;
} writer;

static tn_status put_line(writer *w, const char *text, size_t n)
{
    w->bytes += n;
    if (w->file.is_open) return tn_atomic_write(&w->file, text, n);
    return fwrite(text, 1, n, w->c->out) == n ? TN_OK : tn_error(TN_DISK, "cannot write to standard output");
}

/* Letters beyond ASCII as escapes: the line is the same in a file and on a terminal. */
static tn_status put_document(writer *w, int64_t i, const tn_text *text)
{
    if (strlen(text->data) != text->n || !tn_utf8_valid(text->data))
        return tn_error(TN_BAD_FILE,
                        "document %lld is not UTF-8 text, which JSON needs: convert task.data (iconv -c -t utf-8)",
                        (long long)i);
    json_t *row = json_pack("{s:s%}", "text", text->data, text->n);
    char *line = row ? json_dumps(row, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(row);
    if (!line) return tn_error(TN_MEMORY, "out of memory while writing JSON");
    tn_status s = put_line(w, line, strlen(line));
    free(line);
    return s == TN_OK ? put_line(w, "\n", 1) : s;
}

static tn_status write_documents(writer *w, const tn_wire_texts *t, int64_t documents, int64_t repeats)
{
    tn_status s = TN_OK;
    tn_wire_document d = { 0 };
    tn_progress line;
    tn_progress_start(&line, w->c->err);
    line.last_s = tn_clock_s(); /* a quick job draws nothing */
    line.drawn = !line.term.tty;
    for (int64_t i = 0; i < documents; i++) {
        if (tn_interrupted(NULL)) TN_FAIL(TN_INTERRUPTED, "interrupted after %lld documents", (long long)i);
        TN_TRY(tn_wire_document_make(t, i, repeats, &d));
        TN_TRY(put_document(w, i, &d.text));
        tn_progress_line(&line, tn_clock_s(), "documents  %lld of %lld", (long long)i + 1, (long long)documents);
    }
done:
    line.pending = line.pending && line.term.tty;
    tn_progress_end(&line);
    tn_wire_document_free(&d);
    return s;
}

static tn_status open_texts(tn_cli *c, const tn_settings *st, tn_wire_texts **out)
{
    const tn_task *task;
    char about[200]; /* a file's name may have lines of its own */
    const char *name = tn_settings_text(st, "task.name");
    if (!name[0]) return tn_error(TN_USAGE, "name the task: tenon wire text task=recall");
    TN_RETURN_IF(tn_task_find(name, &task));
    if (!task->texts)
        return tn_error(TN_USAGE, "task=%s has no texts with questions: choose recall, cont, ae, cls or squad", name);
    TN_RETURN_IF(task->texts(st, out));
    fprintf(c->err, "task    %s, %s\n", name, tn_text_quote((*out)->about, about, sizeof about));
    return TN_OK;
}

static int64_t how_many(const tn_settings *st, const tn_wire_texts *t)
{
    if (!tn_settings_is_auto(st, "documents")) return tn_settings_int(st, "documents");
    return t->endless || t->count[TN_TRAIN] > DOCUMENTS ? DOCUMENTS : t->count[TN_TRAIN];
}

static tn_status read_settings(tn_cli *c, tn_settings **out)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    TN_TRY(tn_settings_new(&st));
    TN_TRY(tn_settings_add(st, rows, sizeof rows / sizeof *rows, "wire text"));
    TN_TRY(tn_settings_add(st, tn_task_settings, tn_task_settings_n, "task"));
    for (size_t i = 0; i < c->args.overrides_n; i++) TN_TRY(tn_settings_override(st, c->args.overrides[i]));
    *out = st;
    st = NULL;
done:
    tn_settings_free(st);
    return s;
}

static tn_status say_done(tn_cli *c, const char *out, int64_t documents, uint64_t bytes)
{
    char word[TN_PATH_BYTES], shown[512];
    fprintf(c->err, "wrote %lld documents, %.1f MB%s%s\n", (long long)documents, (double)bytes / 1e6,
            out[0] ? ", to " : "", tn_text_quote(out, shown, sizeof shown));
    if (out[0]) tn_next(c, "data prepare %s out=prepared tokenizer=train:1024", tn_shell_word(out, word, sizeof word));
    return TN_OK;
}

tn_status tn_cmd_wire_text(tn_cli *c)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    tn_wire_texts *t = NULL;
    writer w = { .c = c };
    TN_TRY(tn_args_expect(&c->args, 1, 1));
    TN_TRY(read_settings(c, &st));
    const char *out = tn_settings_text(st, "out");
    if (out[0]) TN_TRY(tn_output_file_check(out));
    TN_TRY(open_texts(c, st, &t));
    if (out[0]) TN_TRY(tn_atomic_open(out, &w.file));
    tn_interrupt_watch();
    const int64_t n = how_many(st, t);
    TN_TRY(write_documents(&w, t, n, tn_settings_int(st, "repeats")));
    if (out[0]) TN_TRY(tn_atomic_finish(&w.file));
    TN_TRY(say_done(c, out, n, w.bytes));
done:
    tn_atomic_abort(&w.file);
    tn_wire_texts_free(t);
    tn_settings_free(st);
    return s;
}
