/* tenon wire decode: messages from a file or a pipe to what a reader says to them. */
#include "base/alloc.h"
#include "base/fs.h"
#include "cli/term.h"
#include "cli/text_model.h"
#include "cli/wire/wire_cli.h"

#include <string.h>
#include <unistd.h>

static const tn_setting rows[] = {
    TN_SETTING_INT("max_tokens", "24", TN_RANGE(1, 1e5), "tokens", "of an answer at most"),
    TN_SETTING_INT("batch", "1", TN_RANGE(1, 4096), "messages", "read together"),
};

static const char *const kinds[] = { "ae", "lm", "qa" }; /* anchors of the model, in their order */

typedef struct decoding {
    tn_cli *c;
    tn_settings *keys;
    tn_saved_model model;
    tn_wire_post *post;
    tn_wire_stream *reader;
    tn_wire_message message;
    int fd; /* -1: not ours */
    int64_t batch, answered;
    float *z;           /* (batch, slots, width) */
    tn_wire_said *said; /* (batch) */
} decoding;

static tn_status ask_stop(void *ctx)
{
    (void)ctx;
    return tn_interrupted(NULL) ? tn_error(TN_INTERRUPTED, "interrupted") : TN_OK;
}

static tn_status read_flags(const tn_cli *c, tn_wire_post_options *o)
{
    const char *model = tn_args_value(&c->args, "model"), *kind = tn_args_value(&c->args, "kind");
    if (!model) return tn_error(TN_USAGE, "who reads the messages? name the reader with --model=a");
    if (strlen(model) != 1 || model[0] < 'a' || model[0] > 'c')
        return tn_error(TN_USAGE, "--model=%.80s: a reader is named by its letter: a, b or c", model);
    o->reader = model[0];
    o->question = tn_args_value(&c->args, "question");
    for (o->kind = 0; kind && o->kind < 3 && strcmp(kind, kinds[o->kind]) != 0;) o->kind++;
    if (!kind) o->kind = 2;
    if (o->kind == 3) return tn_error(TN_USAGE, "--kind=%.80s: choose qa, lm or ae", kind);
    if (o->kind == 2 && !(o->question && o->question[0]))
        return tn_error(TN_USAGE, "what is asked? give --question=TEXT, or --kind=lm (what follows the text) or "
                                  "--kind=ae (the text itself)");
    return TN_OK;
}

static tn_status open_messages(decoding *d)
{
    const tn_wire_about *a = tn_wire_post_about(d->post);
    const tn_wire_limits limits = { .encoder = a->encoder, .most_values = (size_t)(a->slots * a->width) };
    const char *path = tn_args_positional(&d->c->args, 2);
    const bool input = !path || strcmp(path, "-") == 0;
    if (input && isatty(STDIN_FILENO))
        return tn_error(TN_USAGE, "name a file of messages, or send them through a pipe (tenon wire encode)");
    if (!input) TN_RETURN_IF(tn_fd_open(path, &d->fd));
    return tn_wire_stream_open(input ? STDIN_FILENO : d->fd, input ? "standard input" : path, &limits, &d->reader);
}

/* Up to a batch of messages; *n is 0 at the end, and how many are good where the next one is bad. */
static tn_status read_messages(decoding *d, int64_t *n)
{
    const tn_wire_about *a = tn_wire_post_about(d->post);
    bool more = true;
    for (*n = 0; *n < d->batch; ++*n) {
        TN_RETURN_IF(tn_wire_stream_next(d->reader, &d->message, &more));
        if (!more) break;
        const tn_wire_options *m = &d->message.about, own = tn_wire_header_of(a, 16, 0);
        if (m->shared_slots != own.shared_slots || m->private_slots != own.private_slots || m->width != own.width ||
            d->message.size.slots != (size_t)a->slots)
            return tn_error(TN_BAD_FILE,
                            "message %lld has %zu slots of %u numbers, and those of the run have %lld of %lld",
                            (long long)(d->answered + *n + 1), d->message.size.slots, m->width, (long long)a->slots,
                            (long long)a->width);
        memcpy(d->z + *n * a->slots * a->width, d->message.z, sizeof *d->z * (size_t)(a->slots * a->width));
    }
    return TN_OK;
}

static tn_status show(decoding *d, const tn_wire_said *s)
{
    const char *text = s->text.data ? s->text.data : "";
    d->answered++;
    if (d->c->json)
        return tn_cli_emit(d->c,
                           json_pack("{s:s, s:I, s:s%, s:I, s:o, s:b}", "name", "answer", "message",
                                     (json_int_t)d->answered, "text", text, s->text.n, "tokens", (json_int_t)s->ids.n,
                                     "nats", tn_number_or_null(s->nats), "ended", s->ended));
    TN_RETURN_IF(tn_text_write(d->c, text, s->text.n));
    return tn_text_write(d->c, "\n", 1);
}

static tn_status answer_batch(decoding *d, int64_t n)
{
    if (!n) return TN_OK;
    TN_RETURN_IF(tn_wire_post_answer(d->post, d->z, n, ask_stop, NULL, d->said));
    for (int64_t i = 0; i < n; i++) TN_RETURN_IF(show(d, &d->said[i]));
    return TN_OK;
}

/* Messages before a bad one are answered; then its error is the command's. */
static tn_status answer_all(decoding *d)
{
    for (int64_t n = 1; n;) {
        char error[1024];
        TN_RETURN_IF(ask_stop(NULL));
        const tn_status bad = read_messages(d, &n);
        snprintf(error, sizeof error, "%s", bad == TN_OK ? "" : tn_error_text());
        TN_RETURN_IF(answer_batch(d, n));
        if (bad != TN_OK) return tn_error(bad, "%s", error);
    }
    return d->answered ? TN_OK : tn_error(TN_BAD_FILE, "there is no message: `tenon wire encode` writes them");
}

/* An anchor that nobody was trained on is a random vector: what a reader says behind it means nothing. */
static void say_untrained(const decoding *d, const tn_wire_post_options *o)
{
    static const char *const trained[] = { "task=ae or loss.ae", "task=cont", "task=recall, cls or squad" };
    const tn_settings *st = d->model.settings;
    const char *task = tn_settings_text(st, "task.name");
    const bool ae = strcmp(task, "ae") == 0, lm = strcmp(task, "cont") == 0;
    const bool knows = o->kind == 0 ? ae || tn_settings_float(st, "loss.ae") != 0 : o->kind == 1 ? lm : !ae && !lm;
    if (task[0] && !knows)
        fprintf(d->c->err,
                "warning: the run was trained with task=%s, not for --kind=%s (%s): the answer means nothing\n", task,
                kinds[o->kind], trained[o->kind]);
}

static tn_status run(decoding *d)
{
    tn_wire_post_options o = { .user = &d->c->user, .model = &d->model };
    TN_RETURN_IF(read_flags(d->c, &o));
    TN_RETURN_IF(tn_wire_keys(rows, sizeof rows / sizeof *rows, &d->keys));
    TN_RETURN_IF(tn_wire_find(d->c, d->keys, &d->model));
    say_untrained(d, &o);
    o.max_tokens = tn_settings_int(d->keys, "max_tokens");
    o.no_cache = tn_args_flag(&d->c->args, "no-cache");
    o.batch = d->batch = tn_settings_int(d->keys, "batch");
    TN_RETURN_IF(tn_wire_post_open(&o, &d->post));
    const tn_wire_about *a = tn_wire_post_about(d->post);
    d->z = tn_alloc(sizeof *d->z * (size_t)(d->batch * a->slots * a->width));
    d->said = tn_alloc(sizeof *d->said * (size_t)d->batch);
    if (!d->z || !d->said) return tn_error(TN_MEMORY, "out of memory for %lld messages", (long long)d->batch);
    memset(d->said, 0, sizeof *d->said * (size_t)d->batch);
    TN_RETURN_IF(open_messages(d));
    tn_interrupt_watch();
    return answer_all(d);
}

tn_status tn_cmd_wire_decode(tn_cli *c)
{
    decoding d = { .c = c, .fd = -1 };
    TN_RETURN_IF(tn_args_expect(&c->args, 2, 3));
    const tn_status s = run(&d);
    tn_wire_stream_close(d.reader);
    if (d.fd >= 0) close(d.fd);
    tn_wire_message_free(&d.message);
    tn_wire_post_close(d.post);
    for (int64_t i = 0; d.said && i < d.batch; i++) tn_wire_said_free(&d.said[i]);
    tn_free(d.said);
    tn_free(d.z);
    tn_saved_model_free(&d.model);
    tn_settings_free(d.keys);
    return s;
}
