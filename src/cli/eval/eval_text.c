/* tenon eval MODEL data=FILE, where FILE is plain text, packed or not: the model's perplexity on all of it. A part of it (split=) and other
 * data are cmd_eval.c's. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/eval/eval.h"
#include "cli/term.h"
#include "cli/text_model.h"
#include "cli/train/train_view.h"
#include "cli/view.h"
#include "data/dataset.h"
#include "data/input_files.h"
#include "report/perplexity.h"
#include "train/run/metric_rows.h"
#include "train/run/saved_model.h"
#include "train/run/train_settings.h"
#include "train/trainer/graph_setup.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

enum { WINDOW = 1024, TEXT_BYTES = 1 << 30, PIECE = 1 << 16 };

static const tn_setting rows[] = {
    TN_SETTING_AUTO_INT("window", "auto", TN_RANGE(2, 1e9), "tokens",
                        "tokens a window of the text has (auto: train.context, at most 1024)"),
    TN_SETTING_AUTO_INT(
        "stride", "auto", TN_RANGE(1, 1e9), "tokens",
        "from one window to the next (auto: half a window; every token then has half a window before it)"),
    TN_SETTING_TEXT("tokenizer", "", "file or folder of the tokenizer, or bytes (empty: the model's own)"),
};
static const tn_setting data_row[] = { TN_SETTING_TEXT("data", "", "the text; no data set of the model") };

tn_status tn_eval_text_settings(tn_settings **out)
{
    tn_settings *st = NULL;
    tn_status s = tn_settings_new(&st);
    if (s == TN_OK) s = tn_settings_add(st, rows, sizeof rows / sizeof *rows, "eval");
    if (s == TN_OK) *out = st;
    else tn_settings_free(st);
    return s;
}

typedef struct reading {
    tn_cli *c;
    tn_settings *keys; /* of rows */
    tn_saved_model model;
    tn_tokenizer *tokenizer;
    tn_model_tokens tokens;
    tn_tokens ids;
    tn_trainer *trainer;
    const char *file;
    int64_t bytes, window, stride, batch;
    tn_progress progress;
    double start;
} reading;

/* One text, and no documents (.jsonl) nor numbers. */
static bool is_text(const char *path)
{
    struct stat st;
    tn_input_files in = { 0 };
    if (!path || stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    const bool text =
        tn_input_files_add(&in, path, TN_FORMAT_AUTO) == TN_OK && in.n == 1 && in.v[0].format == TN_FORMAT_TEXT;
    tn_input_files_free(&in);
    return text;
}

static tn_status find_model(reading *r, const char *target)
{
    const char *rest[TN_CLI_SETTINGS + 1];
    size_t n = 0;
    TN_RETURN_IF(tn_eval_text_settings(&r->keys));
    TN_RETURN_IF(tn_settings_add(r->keys, data_row, 1, "eval"));
    TN_RETURN_IF(tn_cli_sort_overrides(r->c, r->keys, rest, &n));
    rest[n++] = "plan.recompute=none"; /* nothing is recomputed without gradients */
    TN_RETURN_IF(tn_saved_model_find(&r->c->user, target, rest, n, "best", &r->model));
    TN_RETURN_IF(tn_cli_warn(r->c, r->model.note));
    TN_RETURN_IF(tn_graph_setup_here(r->model.settings, false));
    if (!tn_model_reads_sequences(r->model.model))
        return tn_error(TN_USAGE, "%s is trained on samples: it has no perplexity on a text", r->model.model->name);
    if (!r->model.weights[0])
        return tn_error(TN_USAGE, "%s has no weights: name a run, a checkpoint, a folder or a file of weights", target);
    return tn_saved_model_tokenizer(&r->model, tn_settings_text(r->keys, "tokenizer"), &r->tokenizer, &r->tokens);
}

static tn_status choose_windows(reading *r)
{
    const int64_t context = tn_settings_int(r->model.settings, "train.context");
    r->window = context < WINDOW ? context : WINDOW;
    if (!tn_settings_is_auto(r->keys, "window")) r->window = tn_settings_int(r->keys, "window");
    if (r->window > context)
        return tn_error(TN_USAGE, "window=%lld is longer than the model's context of %lld", (long long)r->window,
                        (long long)context);
    r->stride = r->window > 1 ? r->window / 2 : 1;
    if (!tn_settings_is_auto(r->keys, "stride")) r->stride = tn_settings_int(r->keys, "stride");
    if (r->stride > r->window)
        return tn_error(TN_USAGE, "stride=%lld is longer than window=%lld: tokens between would not be scored",
                        (long long)r->stride, (long long)r->window);
    return tn_warn_of_context(r->c, &r->model, r->window);
}

/* All of the file, unpacked. */
static tn_status read_file(const char *path, char **text, size_t *bytes)
{
    tn_status s = TN_OK;
    tn_dataset *d = NULL;
    int32_t *piece = tn_alloc(PIECE * sizeof *piece);
    char *to = NULL;
    if (!piece) TN_FAIL(TN_MEMORY, "out of memory for a text");
    TN_TRY(tn_dataset_open(path, NULL, &d));
    const uint64_t n = tn_dataset_count(d, TN_TRAIN).tokens;
    if (n > TEXT_BYTES)
        TN_FAIL(TN_USAGE, "%.640s has %.1f GB, more than a text of 1 GB: split it", path, (double)n * 1e-9);
    if (!(to = tn_alloc(n))) TN_FAIL(TN_MEMORY, "out of memory for a text of %.1f GB", (double)n * 1e-9);
    for (uint64_t at = 0; at < n; at += PIECE) {
        const size_t k = n - at < PIECE ? (size_t)(n - at) : PIECE;
        TN_TRY(tn_dataset_read(d, TN_TRAIN, at, k, piece));
        for (size_t i = 0; i < k; i++) to[at + i] = (char)piece[i];
    }
    if (memchr(to, 0, n)) TN_FAIL(TN_BAD_FILE, "%.640s is no text: it has NUL bytes", path);
    *text = to;
    *bytes = (size_t)n;
    to = NULL;
done:
    tn_free(to);
    tn_free(piece);
    tn_dataset_close(d);
    return s;
}

/* Bytes of text that the first token stands for: nothing predicts it, and so they do not count in bits per byte. */
static tn_status first_bytes(const reading *r, size_t *bytes)
{
    tn_text first = { 0 };
    const tn_status s = tn_tokenizer_decode(r->tokenizer, r->ids.ids, 1, &first);
    *bytes = first.n;
    tn_text_free(&first);
    return s;
}

/* The text behind the token that a text of this model begins with. */
static tn_status read_text(reading *r)
{
    tn_status s = TN_OK;
    char *text = NULL;
    size_t bytes = 0, unscored = 0;
    tn_tokenizer_scratch *scratch = NULL;
    TN_TRY(read_file(r->file, &text, &bytes));
    TN_TRY(tn_tokenizer_scratch_new(&scratch));
    if (r->tokens.start >= 0) {
        TN_TRY(tn_grow((void **)&r->ids.ids, &r->ids.capacity, 1, sizeof *r->ids.ids));
        r->ids.ids[r->ids.n++] = r->tokens.start;
    }
    TN_TRY(tn_tokenizer_encode(r->tokenizer, scratch, text, bytes, 0, &r->ids));
    const int64_t vocab = tn_settings_vocab(r->model.settings), texts = tn_tokenizer_vocab(r->tokenizer);
    if (texts > vocab)
        TN_FAIL(TN_USAGE,
                "the tokenizer has %lld tokens but the model only %lld: name the model's own tokenizer with "
                "tokenizer=FILE",
                (long long)texts, (long long)vocab);
    if (r->ids.n < 2) TN_FAIL(TN_USAGE, "%.640s has no text to be evaluated", r->file);
    if (r->tokens.start < 0) TN_TRY(first_bytes(r, &unscored));
    r->bytes = (int64_t)(bytes > unscored ? bytes - unscored : 0);
done:
    tn_tokenizer_scratch_free(scratch);
    tn_free(text);
    return s;
}

/* No more windows side by side than there are, nor than the command says. */
static tn_status open_trainer(reading *r)
{
    const int64_t windows = tn_perplexity_windows((int64_t)r->ids.n, r->window, r->stride);
    const bool said = tn_cli_override(r->c, "train.batch") && !tn_settings_is_auto(r->model.settings, "train.batch");
    r->batch = said ? tn_settings_int(r->model.settings, "train.batch") : TN_SESSION_TOKENS / r->window;
    r->batch = r->batch < 1 ? 1 : r->batch < windows ? r->batch : windows;
    return tn_trainer_new(&(tn_trainer_options){ .model = r->model.model,
                                                 .settings = r->model.settings,
                                                 .batch = r->batch,
                                                 .length = r->window,
                                                 .forward_only = true,
                                                 .frozen = true,
                                                 .weights = r->model.matrices.type },
                          &r->trainer);
}

static void say_tokens(void *ctx, int64_t tokens)
{
    reading *r = ctx;
    tn_progress_line(&r->progress, tn_clock_s() - r->start, "%lld of %lld tokens", (long long)tokens,
                     (long long)r->ids.n);
}

static tn_status show(const reading *r, const char *target, const tn_perplexity *p, double seconds)
{
    tn_cli *c = r->c;
    const double rate = (double)p->tokens / seconds;
    if (!c->json) {
        fprintf(c->out,
                "%s, %s: %.4f nats per token, %.4f bits per byte, perplexity %s; %lld tokens in windows of %lld, %lld "
                "apart, %.0f tokens/s\n",
                target, r->file, p->nats, p->bits, TN_NUMBER(exp(p->nats)), (long long)p->tokens, (long long)r->window,
                (long long)r->stride, rate);
        return TN_OK;
    }
    TN_RETURN_IF(tn_cli_number(c, "loss", p->nats, "nats/token"));
    TN_RETURN_IF(tn_cli_number(c, "bits_per_byte", p->bits, "bits/byte"));
    TN_RETURN_IF(tn_cli_number(c, "perplexity", exp(p->nats), ""));
    TN_RETURN_IF(tn_cli_number(c, "tokens", (double)p->tokens, "tokens"));
    TN_RETURN_IF(tn_cli_number(c, "window", (double)r->window, "tokens"));
    TN_RETURN_IF(tn_cli_number(c, "stride", (double)r->stride, "tokens"));
    return tn_cli_number(c, "tokens_per_s", rate, "tokens/s");
}

tn_status tn_eval_warn_of_own(tn_cli *c, const tn_settings *st, const char *path)
{
    struct stat own, file;
    const char *data = tn_settings_text(st, "data");
    if (!data[0] || stat(data, &own) != 0 || stat(path, &file) != 0) return TN_OK;
    if (own.st_dev != file.st_dev || own.st_ino != file.st_ino) return TN_OK;
    return tn_cli_warn(c, "the run was trained on this text: split=valid evaluates the part that was held out");
}

static tn_status measure(reading *r, const char *target)
{
    tn_perplexity p;
    TN_RETURN_IF(tn_eval_warn_of_own(r->c, r->model.settings, r->file));
    tn_cli_expanded(r->c, target, &r->model.matrices);
    TN_RETURN_IF(choose_windows(r));
    TN_RETURN_IF(read_text(r));
    TN_RETURN_IF(open_trainer(r));
    TN_RETURN_IF(tn_saved_model_load(&r->model, tn_trainer_store(r->trainer)));
    r->start = tn_clock_s();
    tn_progress_start(&r->progress, r->c->err);
    tn_interrupt_watch();
    const tn_status s = tn_perplexity_measure(&(tn_perplexity_options){ .trainer = r->trainer,
                                                                        .batch = r->batch,
                                                                        .length = r->window,
                                                                        .stride = r->stride,
                                                                        .ids = r->ids.ids,
                                                                        .n = (int64_t)r->ids.n,
                                                                        .bytes = r->bytes,
                                                                        .ctx = r,
                                                                        .progress = say_tokens,
                                                                        .interrupted = tn_interrupted },
                                              &p);
    tn_progress_end(&r->progress);
    TN_RETURN_IF(s);
    return show(r, target, &p, tn_clock_s() - r->start);
}

/* Metrics of a model's own need its data source: windows have the loss alone. */
static bool has_own_metrics(const tn_model *m)
{
    tn_metric_list all;
    tn_metric_rows(m, &all);
    for (size_t i = 0; i < all.n; i++)
        if (!all.row[i]->needs && strcmp(all.row[i]->name, "loss") != 0) return true;
    return false;
}

tn_status tn_eval_text(tn_cli *c, const char *target, bool *taken)
{
    reading r = { .c = c, .file = tn_cli_override(c, "data") };
    *taken = false;
    if (tn_cli_override(c, "split") || !is_text(r.file)) return TN_OK;
    tn_status s = find_model(&r, target);
    const bool file =
        tn_is_weights_file(target); /* a run may say more: what is wrong is found where its data are opened */
    const bool windows = r.keys && (!tn_settings_is_auto(r.keys, "window") || !tn_settings_is_auto(r.keys, "stride"));
    *taken = s != TN_OK ? file : windows || !has_own_metrics(r.model.model);
    if (s == TN_OK && *taken) s = measure(&r, target);
    tn_trainer_free(r.trainer);
    tn_tokens_free(&r.ids);
    tn_tokenizer_free(r.tokenizer);
    tn_model_tokens_free(&r.tokens);
    tn_saved_model_free(&r.model);
    tn_settings_free(r.keys);
    return *taken ? s : TN_OK;
}
