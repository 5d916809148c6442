/* cont and ae: pieces of a text. cont asks for what follows a context, ae for nothing (the context itself is written again). The file's last
 * 5 % are the test, the 5 % before them validation; a piece lies in one split whole, and no two share a byte. */
#include "base/alloc.h"
#include "tasks/wire/wire_parts.h"

#include <stdio.h>

enum { ANSWER = 96, LENGTH_CONT = 512, LENGTH_AE = 128 };

typedef struct pieces {
    tn_text text;
    size_t length, answer; /* bytes of a context, and of what follows it */
    size_t begin[TN_SPLITS];
    int64_t there[TN_SPLITS], count[TN_SPLITS]; /* pieces of a split, and how many of them are used */
} pieces;

static void close_pieces(void *data)
{
    pieces *d = data;
    tn_text_free(&d->text);
    tn_free(d);
}

/* The nearest border of a character at or before `at`, not before `from`; forward: at or behind it. */
static size_t border(const tn_text *t, size_t from, size_t at, bool forward)
{
    for (int k = 0; k < 3 && at > from && at < t->n && ((unsigned char)t->data[at] & 0xc0) == 0x80; k++)
        at += forward ? 1 : (size_t)-1;
    return at;
}

/* Pieces that are used are spread over the split. */
static tn_status read_piece(const tn_wire_texts *t, int split, int64_t i, tn_wire_example *e)
{
    const pieces *d = t->data;
    const int64_t piece = tn__wire_spread(i, d->count[split], d->there[split]);
    const size_t slot = d->begin[split] + (size_t)piece * (d->length + d->answer),
                 first = border(&d->text, 0, slot, true), middle = border(&d->text, first, slot + d->length, false),
                 last = border(&d->text, middle, slot + d->length + d->answer, false);
    TN_RETURN_IF(tn__wire_add_context(e, d->text.data + first, middle - first));
    if (!d->answer) return TN_OK;
    TN_RETURN_IF(tn__wire_add_question(e, "", "", 0, ""));
    return tn__wire_add_gold(e, "", d->text.data + middle, last - middle);
}

/* Where the splits lie in the text. */
static tn_status divide(const tn_settings *st, const char *task, pieces *d)
{
    const size_t each = d->length + d->answer, part = d->text.n / 20;
    const size_t end[TN_SPLITS] = {
        [TN_TRAIN] = d->text.n - 2 * part, [TN_VALID] = d->text.n - part, [TN_TEST] = d->text.n
    };
    const int64_t heldout = tn_settings_int(st, "task.heldout"),
                  size = tn_settings_is_auto(st, "task.size") ? INT32_MAX : tn_settings_int(st, "task.size");
    d->begin[TN_VALID] = end[TN_TRAIN];
    d->begin[TN_TEST] = end[TN_VALID];
    for (int k = 0; k < TN_SPLITS; k++) {
        const int64_t most = k == TN_TRAIN ? size : heldout;
        d->there[k] = (int64_t)((end[k] - d->begin[k]) / each);
        d->count[k] = d->there[k] < most ? d->there[k] : most;
    }
    if (d->there[TN_TEST] && d->there[TN_VALID]) return TN_OK;
    return tn_error(TN_USAGE,
                    "%.640s has %zu bytes: task=%s needs at least %zu, so that a twentieth holds a piece of %zu; use a "
                    "longer text, or a smaller task.length",
                    tn_settings_text(st, "task.data"), d->text.n, task, 20 * each, each);
}

static tn_status open_pieces(const tn_settings *st, const char *task, size_t length, size_t answer, tn_wire_texts **out)
{
    tn_status s = TN_OK;
    const char *path = tn_settings_text(st, "task.data");
    if (!path[0]) return tn_error(TN_USAGE, "task=%s needs a text: give task.data=FILE", task);
    pieces *d = tn_alloc(sizeof *d);
    if (!d) return TN_MEMORY;
    d->length = tn_settings_is_auto(st, "task.length") ? length : (size_t)tn_settings_int(st, "task.length");
    d->answer = answer;
    if (d->length < 4)
        TN_FAIL(TN_USAGE, "task.length=%zu is shorter than a character can be: use 4 or more", d->length);
    TN_TRY(tn__wire_read_file(path, &d->text));
    TN_TRY(divide(st, task, d));
    tn_wire_texts t = { .task = task,
                        .kind = answer ? TN_WIRE_LM : TN_WIRE_AE,
                        .anchor = "",
                        .form = "",
                        .count = { d->count[0], d->count[1], d->count[2] },
                        .data = d,
                        .read = read_piece,
                        .close = close_pieces };
    snprintf(t.about, sizeof t.about, "pieces of %zu bytes%s of %.80s", d->length,
             answer ? " and the 96 behind them" : "", path);
    const int64_t numbers[] = { (int64_t)d->length, (int64_t)answer };
    TN_TRY(tn__wire_hash(numbers, 2, d->text.data, d->text.n, t.hash));
    return tn__wire_texts_new(&t, out);
done:
    close_pieces(d);
    return s;
}

static tn_status open_cont(const tn_settings *st, tn_wire_texts **out)
{
    return open_pieces(st, "cont", LENGTH_CONT, ANSWER, out);
}

static tn_status open_ae(const tn_settings *st, tn_wire_texts **out)
{
    return open_pieces(st, "ae", LENGTH_AE, 0, out);
}

const tn_task tn_task_cont = { .name = "cont",
                               .summary = "pieces of a text (task.data): what follows a context",
                               .texts = open_cont };
const tn_task tn_task_ae = { .name = "ae",
                             .summary = "pieces of a text (task.data): the context itself",
                             .texts = open_ae };
