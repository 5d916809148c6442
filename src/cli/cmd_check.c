/* tenon check: gradients, causality, overfitting one batch, determinism and memory of a model in about a minute, or a comparison with
 * another implementation. */
#include "cli/next.h"
#include "io/safetensors.h"
#include "train/check/check.h"
#include "train/source/task_setup.h"
#include "train/run/parts.h"
#include "train/run/saved_model.h"
#include "train/run/session.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OVERRIDES = 256, SAMPLES = 16 };

/* A line for each number of the row: of each step its loss. */
static void emit_values(tn_cli *c, const tn_check_row *r)
{
    for (int64_t i = 0; i < r->n_values; i++) {
        json_t *line = json_pack("{s:s, s:I}", "name", r->name, "step", (json_int_t)(i + 1));
        if (line && isfinite(r->values[i])) json_object_set_new(line, "value", json_real((double)r->values[i]));
        (void)tn_cli_emit(c, line);
    }
}

static void print_row(void *ctx, const tn_check_row *r)
{
    tn_cli *c = ctx;
    static const char *const words[] = { [TN_PASS] = "pass", [TN_FAILED] = "FAIL", [TN_SKIPPED] = "skip" };
    if (!c->json) {
        fprintf(c->out, "%-14s %s  %s", r->name, words[r->verdict], r->detail);
        if (r->seconds > 0) fprintf(c->out, "  (%.1f s)", r->seconds);
        fputc('\n', c->out);
        fflush(c->out);
        return;
    }
    json_t *row = json_pack("{s:s, s:s, s:s, s:s}", "name", r->name, "verdict", words[r->verdict], "unit", r->unit,
                            "detail", r->detail);
    if (row && r->value == floor(r->value) && fabs(r->value) < 1e15)
        json_object_set_new(row, "value", json_integer((json_int_t)r->value));
    else if (row && isfinite(r->value)) json_object_set_new(row, "value", json_real(r->value));
    (void)tn_cli_emit(c, row);
    emit_values(c, r);
}

/* The next word at *rest, ended in place; NULL: no more. Blanks between double quotes are part of it, the quotes are not. */
static char *next_word(char **rest)
{
    bool quoted = false;
    char *word = *rest + strspn(*rest, " \n"), *to = word, *from = word;
    if (!*word) return NULL;
    for (; *from && (quoted || !strchr(" \n", *from)); from++) {
        if (*from == '"') quoted = !quoted;
        else *to++ = *from;
    }
    *rest = from + (*from != 0);
    *to = 0;
    return word;
}

/* The file's own settings; the command line's come after them. Words are cut in place in `text`. */
static tn_status file_settings(const char *path, char *text, size_t bytes, const char **list, size_t *n)
{
    tn_status s = TN_OK;
    tn_safetensors *f = NULL;
    TN_TRY(tn_safetensors_open(path, &f));
    const char *format = tn_safetensors_meta(f, "format"), *model = tn_safetensors_meta(f, "model");
    const char *settings = tn_safetensors_meta(f, "settings");
    if (!format || strcmp(format, "tenon-against 1") != 0)
        TN_FAIL(TN_BAD_FILE,
                "%s is not a reference file: its metadata lacks format \"tenon-against 1\" (docs/against.md)", path);
    const int used =
        snprintf(text, bytes, "%s%s %s", model ? "model=" : "", model ? model : "", settings ? settings : "");
    if (used < 0 || (size_t)used >= bytes) TN_FAIL(TN_BAD_FILE, "%s: the settings in its metadata are too long", path);
    for (char *rest = text, *word; (word = next_word(&rest));) {
        if (*n == MOST_OVERRIDES) TN_FAIL(TN_BAD_FILE, "%s has too many settings", path);
        list[(*n)++] = word;
    }
done:
    tn_safetensors_close(f);
    return s;
}

/* Training with the same words. */
static void say_next(const tn_cli *c, const tn_model *model, bool has_data)
{
    char line[2048] = "", word[512];
    size_t n = 0;
    for (size_t i = 0; i < c->args.positional_n + c->args.overrides_n && n < sizeof line; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, " %s", tn_shell_word(c->args.words[i], word, sizeof word));
    tn_next(c, "train%s%s", line, has_data ? "" : tn_task_words(model));
}

tn_status tn_cmd_check(tn_cli *c)
{
    tn_status s = TN_OK;
    const char *against = tn_args_value(&c->args, "against"), *list[MOST_OVERRIDES];
    char text[8192];
    size_t n = 0;
    tn_check k = { .ctx = c, .row = print_row, .batch = 2, .length = 128, .only = tn_args_value(&c->args, "only") };
    tn_settings *st = NULL;
    tn_source source = { 0 };
    TN_TRY(tn_args_expect(&c->args, against ? 0 : 1, 1));
    if (against) TN_TRY(file_settings(against, text, sizeof text, list, &n));
    TN_TRY(tn_settings_resolve_from(&(tn_settings_from){ .user = &c->user,
                                                         .target = tn_args_positional(&c->args, 0),
                                                         .file = against,
                                                         .said = list,
                                                         .n_said = n,
                                                         .overrides = c->args.overrides,
                                                         .n = c->args.overrides_n },
                                    &st, &k.model));
    TN_TRY(tn_parts_resolve(st, k.model));
    if (!tn_model_reads_sequences(k.model)) k.batch = SAMPLES;
    if (!tn_settings_is_auto(st, "train.batch"))
        k.batch = tn_settings_int(st, "train.batch"); /* before a task sets it */
    TN_TRY(tn_source_find(
        &(tn_source_open){ .model = k.model, .settings = st, .tokenizer = tn_saved_model_reader, .user = &c->user },
        &source));
    TN_TRY(tn_task_defaults(k.model, st));
    k.settings = st;
    k.source = &source;
    const int64_t context = tn_settings_int(st, "train.context");
    const char *who = tn_settings_source(st, "train.context");
    const bool given = strcmp(who, "command line") == 0 || (against && strcmp(who, against) == 0);
    if (given || context < k.length) k.length = context;
    if (!tn_model_reads_sequences(k.model)) k.length = tn_inputs_length(k.model, st);
    s = against ? tn_check_against(&k, against) : tn_check_run(&k);
    if (s == TN_OK && !against && !k.only) say_next(c, k.model, source.ctx != NULL);
done:
    tn_source_close(&source);
    tn_settings_free(st);
    return s;
}
