/* tenon tune: the fastest settings of this machine for a configuration, as a table, a settings file and in the memory of tenon train --tuned. */
#include "cli/next.h"
#include "cli/table_file.h"
#include "cli/term.h"
#include "cli/tune/tuned.h"
#include "cli/view.h"
#include "base/memory_limit.h"
#include "base/output.h"
#include "base/text.h"
#include "io/yaml_settings.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char MARK[] = "# tenon tune: "; /* the first line of a file of ours */

typedef struct printing {
    tn_cli *c;
    double seconds;
    bool begun;
    int untried;
} printing;

/* --- what is printed ----------------------------------------------------------------------------------------------------------- */

static const char *const verdicts[] = {
    [TN_TUNE_TAKEN] = "taken",
    [TN_TUNE_BEATEN] = "another is faster",
    [TN_TUNE_SLOWER] = "slower",
    [TN_TUNE_UNCLEAR] = "no clear gain",
    [TN_TUNE_UNCONFIRMED] = "gain not confirmed",
    [TN_TUNE_LOSSES] = "other losses",
    [TN_TUNE_MEMORY] = "does not fit",
    [TN_TUNE_REFUSED] = "not possible",
    [TN_TUNE_TIME] = "time is up",
    [TN_TUNE_UNDECIDED] = "",
};

static void print_begun(void *ctx, const tn_tune_base *b)
{
    printing *p = ctx;
    tn_cli *c = p->c;
    char bytes[24];
    const tn_session *s = b->session;
    const bool sequences = tn_model_reads_sequences(s->model);
    const int64_t rows = s->batch * tn_settings_int(s->settings, "train.accumulate");
    if (c->json) {
        (void)tn_cli_emit(c, json_pack("{s:s, s:f, s:s, s:I, s:f}", "name", "step", "value", b->ms, "unit", "ms",
                                       "rows", (json_int_t)rows, "bytes", b->bytes));
        return;
    }
    tn_session_describe_ladder(s, 0, c->err);
    fprintf(c->err, "tune    %s ms a step of %lld ", TN_NUMBER(b->ms), (long long)rows);
    if (sequences) fprintf(c->err, "x %lld tokens", (long long)s->length);
    else fprintf(c->err, "samples");
    fprintf(c->err, ", %s; measuring for at most %.3g s%s\n", tn_bytes_text(b->bytes, bytes), p->seconds,
            s->source.ctx ? "" : ", on made-up numbers");
}

static const char *ratio_text(const tn_ratio *r, char buf[40])
{
    if (!r->n) snprintf(buf, 40, "-");
    else if (r->n < TN_RATIOS_LEAST) snprintf(buf, 40, "%.2f (%d pair%s)", r->median, r->n, r->n > 1 ? "s" : "");
    else snprintf(buf, 40, "%.2f (%.2f to %.2f)", r->median, r->low, r->high);
    return buf;
}

static void emit_row(tn_cli *c, const tn_tune_row *r)
{
    (void)tn_cli_emit(c, json_pack("{s:s, s:s, s:o, s:s, s:o, s:o, s:i, s:f, s:s, s:s}", "name", "tried", "settings",
                                   r->words, "value", tn_number_or_null(r->ratio.median), "unit", "x", "low",
                                   tn_number_or_null(r->ratio.low), "high", tn_number_or_null(r->ratio.high), "pairs",
                                   r->ratio.n, "bytes", r->bytes, "verdict", verdicts[r->verdict], "why", r->why));
}

static void print_row(void *ctx, const tn_tune_row *r)
{
    printing *p = ctx;
    tn_cli *c = p->c;
    char ratio[40], bytes[24] = "-";
    if (c->json) {
        emit_row(c, r);
        return;
    }
    if (r->verdict == TN_TUNE_TIME && !r->ratio.n) {
        p->untried++;
        return;
    }
    if (!p->begun) fprintf(c->out, "%-36s %-22s %-9s %s\n", "setting", "times as fast", "memory", "");
    p->begun = true;
    if (r->bytes > 0) tn_bytes_text(r->bytes, bytes);
    fprintf(c->out, "%-36s %-22s %-9s %s", r->words, ratio_text(&r->ratio, ratio), bytes, verdicts[r->verdict]);
    fprintf(c->out, "%s%s\n", r->why[0] ? ": " : "", r->why);
    fflush(c->out);
}

static tn_status emit_result(tn_cli *c, const tn_tune_result *r)
{
    for (size_t i = 0; i < r->n_changed; i++) {
        char key[TN_TUNE_WORD];
        const char *eq = strchr(r->changed[i], '=');
        snprintf(key, sizeof key, "%.*s", (int)(eq - r->changed[i]), r->changed[i]);
        TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:s}", "name", "chosen", "key", key, "value", eq + 1)));
    }
    TN_RETURN_IF(
        tn_cli_emit(c, json_pack("{s:s, s:f, s:s, s:f, s:f, s:i, s:f, s:f, s:f, s:f, s:b}", "name", "gain", "value",
                                 r->gain.n ? r->gain.median : 1.0, "unit", "x", "low", r->gain.n ? r->gain.low : 1.0,
                                 "high", r->gain.n ? r->gain.high : 1.0, "pairs", r->gain.n, "before_ms", r->start_ms,
                                 "after_ms", r->ms, "before_bytes", r->start_bytes, "after_bytes", r->bytes,
                                 "out_of_time", r->out_of_time)));
    return tn_cli_emit(c, json_pack("{s:s, s:f, s:s, s:i}", "name", "loss_error", "value", r->loss_error, "unit", "",
                                    "steps", r->losses));
}

static void print_losses(tn_cli *c, const tn_tune_result *r)
{
    if (!r->exact) fprintf(c->out, "losses  change with compute\n");
    else if (!r->losses) fprintf(c->out, "losses  not compared: without data= the rows are made up\n");
    else if (r->loss_error == 0) fprintf(c->out, "losses  bit-identical in %d steps\n", r->losses);
    else fprintf(c->out, "losses  within %.0e in %d steps\n", r->loss_error, r->losses);
}

static void print_result(const printing *p, const tn_tune_result *r)
{
    tn_cli *c = p->c;
    char before[24], after[24];
    if (p->untried) fprintf(c->out, "%d more not tried: time is up (--seconds=%.0f)\n", p->untried, 2 * p->seconds);
    fprintf(c->out, "chosen ");
    for (size_t i = 0; i < r->n_changed; i++) fprintf(c->out, " %s", r->changed[i]);
    fprintf(c->out, "%s\n", r->n_changed ? "" : " the settings as they are: nothing was clearly faster");
    if (!r->n_changed) return;
    fprintf(c->out,
            "gain    %.2f times as fast (%.2f to %.2f, %d pairs): %s ms a step instead of %s, %s instead of %s\n",
            r->gain.median, r->gain.low, r->gain.high, r->gain.n, TN_NUMBER(r->ms), TN_NUMBER(r->start_ms),
            tn_bytes_text(r->bytes, after), tn_bytes_text(r->start_bytes, before));
    print_losses(c, r);
}

/* --- the settings file --------------------------------------------------------------------------------------------------------- */

/* "ten_tiny.tuned.yaml" for ten_tiny, configs/ten_tiny.yaml and runs/ten_tiny. */
static tn_status default_path(const char *target, char path[TN_PATH_BYTES])
{
    size_t n = strlen(target);
    static const char *const ends[] = { ".yaml", ".yml", ".so", ".tuned" };
    while (n > 1 && target[n - 1] == '/') n--;
    size_t from = n;
    while (from > 0 && target[from - 1] != '/') from--;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t k = strlen(ends[i]);
        if (n - from > k && strncmp(target + n - k, ends[i], k) == 0) n -= k;
    }
    if (n - from == 0 || n - from > 200) return tn_error(TN_USAGE, "name the file to write: --out=FILE");
    snprintf(path, TN_PATH_BYTES, "%.*s.tuned.yaml", (int)(n - from), target + from);
    return TN_OK;
}

/* A file that nobody named is not written over a file of somebody else's. */
static tn_status check_default(const char *path)
{
    char line[sizeof MARK] = "";
    if (access(path, F_OK) != 0) return tn_output_file_check(path);
    FILE *f = fopen(path, "r");
    const bool ours = f && fgets(line, sizeof line, f) && strcmp(line, MARK) == 0;
    if (f) fclose(f);
    if (ours) return tn_output_file_check(path);
    return tn_error(TN_USAGE, "%s already exists and tenon tune did not write it: choose another file with --out=FILE",
                    path);
}

/* What the command said and what was found; all else stays a default, which data and tasks may fill. */
static bool is_said(const tn_settings *st, size_t i)
{
    const char *source = tn_settings_source_at(st, i);
    return strcmp(source, "default") != 0 && strncmp(source, "preset ", 7) != 0;
}

static tn_status set_word(tn_settings *st, const char *word)
{
    char key[TN_TUNE_WORD];
    const char *eq = strchr(word, '=');
    snprintf(key, sizeof key, "%.*s", (int)(eq - word), word);
    return tn_settings_set(st, key, eq + 1, "tenon tune");
}

static tn_status write_settings(const tn_settings *st, const tn_tune_result *r, FILE *f)
{
    tn_status s = TN_OK;
    tn_settings *all = NULL, *said = NULL;
    TN_TRY(tn_settings_clone(st, &all));
    TN_TRY(tn_settings_new(&said));
    for (size_t i = 0; i < r->n; i++) TN_TRY(set_word(all, r->word[i]));
    for (size_t i = 0; i < tn_settings_count(all); i++) {
        const tn_setting *row = tn_settings_row_at(all, i);
        if (!is_said(all, i)) continue;
        TN_TRY(tn_settings_add(said, row, 1, tn_settings_owner_at(all, i)));
        TN_TRY(tn_settings_set(said, row->key, tn_settings_text_at(all, i), "%s", tn_settings_source_at(all, i)));
    }
    TN_TRY(tn_settings_write_yaml(said, f));
done:
    tn_settings_free(all);
    tn_settings_free(said);
    return s;
}

static const char *today(char buf[32])
{
    const time_t now = time(NULL);
    struct tm t;
    if (!gmtime_r(&now, &t) || !strftime(buf, 32, "%Y-%m-%d", &t)) buf[0] = 0;
    return buf;
}

static tn_status write_file(tn_cli *c, const char *path, const tn_settings *st, const tn_tune_result *r)
{
    FILE *f;
    char machine[TN_MACHINE_TEXT], when[32];
    TN_RETURN_IF(tn_table_open(path, &f));
    fprintf(f, "%s%s, tenon %s, %s", MARK, tn_machine_text("/proc", tn_memory_limit(), machine), TN_VERSION,
            today(when));
    if (r->n_changed) fprintf(f, ": %.2f times as fast (%.2f to %.2f)\n", r->gain.median, r->gain.low, r->gain.high);
    else fprintf(f, ": nothing was clearly faster\n");
    TN_RETURN_IF(tn_table_close(path, f, write_settings(st, r, f)));
    if (!c->json) fprintf(c->err, "wrote   %s\n", path);
    return TN_OK;
}

/* A memory that cannot be written is no reason to lose what was found. */
static tn_status remember(tn_cli *c, const tn_settings *st, const tn_tune_result *r)
{
    tn_tuned_key key;
    char dir[TN_PATH_BYTES], why[600];
    tn_tuned t = { .n = r->n, .gain = r->gain };
    memcpy(t.word, r->word, sizeof t.word);
    today(t.when);
    TN_RETURN_IF(tn_tuned_key_here(st, &key));
    if (!tn_tuned_dir(dir)[0]) return tn_cli_warn(c, "not remembered: set XDG_CACHE_HOME to a folder");
    if (tn_tuned_save(dir, &key, &t) == TN_OK) return TN_OK;
    snprintf(why, sizeof why, "not remembered: %.560s", tn_error_text());
    return tn_cli_warn(c, why);
}

/* --- the verb ------------------------------------------------------------------------------------------------------------------- */

static tn_status tune(tn_cli *c, const tn_settings *st, const tn_model *model, const char *path)
{
    printing p = { .c = c, .seconds = 60 };
    tn_tune_result r;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    TN_RETURN_IF(tn_args_number(&c->args, "seconds", 0.001, 1e6, &p.seconds));
    tn_interrupt_watch();
    TN_RETURN_IF(tn_tune_run(&(tn_tune_options){ .user = &c->user,
                                                 .settings = st,
                                                 .model = model,
                                                 .seconds = p.seconds,
                                                 .cores = cores > 0 ? (int)cores : 1,
                                                 .precision = tn_args_flag(&c->args, "precision"),
                                                 .keep = tn_args_value(&c->args, "keep"),
                                                 .ctx = &p,
                                                 .begun = print_begun,
                                                 .tried = print_row,
                                                 .interrupted = tn_interrupted },
                             &r));
    if (c->json) TN_RETURN_IF(emit_result(c, &r));
    else print_result(&p, &r);
    TN_RETURN_IF(write_file(c, path, st, &r));
    TN_RETURN_IF(remember(c, st, &r));
    tn_next_of(c, "train", path, "");
    return TN_OK;
}

tn_status tn_cmd_tune(tn_cli *c)
{
    tn_settings *st = NULL;
    const tn_model *model;
    char path[TN_PATH_BYTES];
    TN_RETURN_IF(tn_args_expect(&c->args, 1, 1));
    const char *target = tn_args_positional(&c->args, 0), *out = tn_args_value(&c->args, "out");
    TN_RETURN_IF(tn_settings_resolve_user(&c->user, target, c->args.overrides, c->args.overrides_n, &st, &model));
    tn_status s = TN_OK;
    if (!out) {
        s = default_path(target, path);
        if (s == TN_OK) s = check_default(path);
        out = path;
    }
    if (s == TN_OK) s = tune(c, st, model, out);
    tn_settings_free(st);
    return s;
}
