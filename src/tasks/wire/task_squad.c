/* squad: paragraphs with questions, of a file in the form of SQuAD v1.1. A paragraph longer than task.length bytes is cut there, and its
 * questions whose answer does not stand in what is left are left out; both are counted. The file's last paragraphs are the test
 * (task.test_frac), those before them validation (task.valid_frac): articles stand in one piece, so that splits share at most two. */
#include "base/alloc.h"
#include "io/json_read.h"
#include "tasks/wire/wire_parts.h"

#include <stdio.h>
#include <string.h>

enum { LENGTH = 1024 };

typedef struct span {
    size_t at, bytes;
} span;

typedef struct question {
    span text;
    size_t gold, golds;
} question;

typedef struct paragraph {
    span context;
    size_t question, questions;
} paragraph;

typedef struct squad {
    tn_text text; /* of all: NUL behind each piece */
    paragraph *paragraph;
    size_t paragraphs, paragraph_capacity;
    question *question;
    size_t questions, question_capacity;
    span *gold;
    size_t golds, gold_capacity;
    size_t length;
    int64_t first[TN_SPLITS];
    int64_t there[TN_SPLITS], count[TN_SPLITS]; /* paragraphs of a split, and how many of them are used */
    int64_t cut, left_out;
} squad;

static void close_squad(void *data)
{
    squad *d = data;
    tn_text_free(&d->text);
    tn_free(d->paragraph);
    tn_free(d->question);
    tn_free(d->gold);
    tn_free(d);
}

/* --- the file ------------------------------------------------------------------------------------------------------------------- */

static tn_status keep_text(squad *d, const tn_json *r, span *out)
{
    void *p = d->text.data;
    const size_t need = d->text.n + r->bytes + 1;
    if (need > d->text.capacity) TN_RETURN_IF(tn_grow(&p, &d->text.capacity, need + need / 2, 1));
    d->text.data = p;
    (void)tn_json_copy(r, d->text.data + d->text.n);
    *out = (span){ d->text.n, r->bytes };
    d->text.n = need;
    return TN_OK;
}

static tn_status add_gold(squad *d, span text)
{
    void *p = d->gold;
    const size_t need = d->golds + 1;
    if (need > d->gold_capacity) TN_RETURN_IF(tn_grow(&p, &d->gold_capacity, need + need / 2, sizeof *d->gold));
    d->gold = p;
    d->gold[d->golds++] = text;
    return TN_OK;
}

/* The texts of a list of answers; the same text once. */
static tn_status read_answers(squad *d, tn_json *r, size_t first)
{
    if (!tn_json_enter(r, '[')) return TN_OK;
    while (tn_json_item(r)) {
        if (!tn_json_enter(r, '{')) {
            tn_json_skip(r);
            continue;
        }
        while (tn_json_key(r)) {
            span text;
            if (!tn_json_is(r, "text")) {
                tn_json_skip(r);
                continue;
            }
            if (!tn_json_text(r) || !r->bytes) continue;
            TN_RETURN_IF(keep_text(d, r, &text));
            bool known = false;
            for (size_t k = first; k < d->golds && !known; k++)
                known = strcmp(d->text.data + d->gold[k].at, d->text.data + text.at) == 0;
            if (!known) TN_RETURN_IF(add_gold(d, text));
        }
    }
    return TN_OK;
}

static tn_status add_question(squad *d, const question *q)
{
    void *p = d->question;
    const size_t need = d->questions + 1;
    if (!q->text.bytes || !q->golds) return TN_OK; /* without an answer: SQuAD 2 */
    if (need > d->question_capacity)
        TN_RETURN_IF(tn_grow(&p, &d->question_capacity, need + need / 2, sizeof *d->question));
    d->question = p;
    d->question[d->questions++] = *q;
    return TN_OK;
}

static tn_status read_questions(squad *d, tn_json *r)
{
    if (!tn_json_enter(r, '[')) return TN_OK;
    while (tn_json_item(r)) {
        question q = { .gold = d->golds };
        if (!tn_json_enter(r, '{')) {
            tn_json_skip(r);
            continue;
        }
        while (tn_json_key(r))
            if (tn_json_is(r, "question")) {
                if (tn_json_text(r)) TN_RETURN_IF(keep_text(d, r, &q.text));
            } else if (tn_json_is(r, "answers") && tn_json_peek(r) == '[') TN_RETURN_IF(read_answers(d, r, q.gold));
            else tn_json_skip(r);
        q.golds = d->golds - q.gold;
        TN_RETURN_IF(add_question(d, &q));
    }
    return TN_OK;
}

/* What does not stand in a context that was cut was cut off. */
static void leave_out(squad *d, paragraph *p)
{
    const char *context = d->text.data + p->context.at;
    size_t kept = p->question;
    for (size_t k = p->question; k < d->questions; k++)
        if (strstr(context, d->text.data + d->gold[d->question[k].gold].at)) d->question[kept++] = d->question[k];
        else d->left_out++;
    d->questions = kept;
}

static void cut_context(squad *d, paragraph *p)
{
    char *context = d->text.data + p->context.at;
    if (p->context.bytes <= d->length) return;
    size_t n = d->length;
    while (n > 0 && ((unsigned char)context[n] & 0xc0) == 0x80) n--;
    p->context.bytes = n;
    context[n] = 0;
    d->cut++;
}

static tn_status read_paragraph(squad *d, tn_json *r)
{
    paragraph p = { .question = d->questions };
    if (!tn_json_enter(r, '{')) {
        tn_json_skip(r);
        return TN_OK;
    }
    while (tn_json_key(r))
        if (tn_json_is(r, "context")) {
            if (tn_json_text(r)) TN_RETURN_IF(keep_text(d, r, &p.context));
        } else if (tn_json_is(r, "qas") && tn_json_peek(r) == '[') TN_RETURN_IF(read_questions(d, r));
        else tn_json_skip(r);
    if (r->why) return TN_OK; /* it is said at the end */
    if (!p.context.bytes) {
        d->questions = p.question;
        return TN_OK;
    }
    cut_context(d, &p);
    leave_out(d, &p);
    p.questions = d->questions - p.question;
    if (!p.questions) return TN_OK;
    void *v = d->paragraph;
    const size_t need = d->paragraphs + 1;
    if (need > d->paragraph_capacity)
        TN_RETURN_IF(tn_grow(&v, &d->paragraph_capacity, need + need / 2, sizeof *d->paragraph));
    d->paragraph = v;
    d->paragraph[d->paragraphs++] = p;
    return TN_OK;
}

static tn_status read_article(squad *d, tn_json *r)
{
    if (!tn_json_enter(r, '{')) {
        tn_json_skip(r);
        return TN_OK;
    }
    while (tn_json_key(r))
        if (tn_json_is(r, "paragraphs") && tn_json_enter(r, '[')) {
            while (tn_json_item(r)) TN_RETURN_IF(read_paragraph(d, r));
        } else tn_json_skip(r);
    return TN_OK;
}

static tn_status read_squad_file(const char *path, const tn_text *file, squad *d)
{
    tn_json r;
    tn_json_open(&r, file->data, file->n);
    if (tn_json_enter(&r, '{')) {
        while (tn_json_key(&r))
            if (tn_json_is(&r, "data") && tn_json_enter(&r, '[')) {
                while (tn_json_item(&r)) TN_RETURN_IF(read_article(d, &r));
            } else tn_json_skip(&r);
    }
    if (!tn_json_end(&r))
        return tn_error(TN_BAD_FILE, "%.640s:%zu: %s: download the file again", path, tn_json_line(&r), r.why);
    if (d->paragraphs) return TN_OK;
    return tn_error(TN_BAD_FILE,
                    "%.640s has no paragraph with a question that is answered in it: it should be SQuAD v1.1 (data, "
                    "paragraphs, context, qas, question, answers, text)",
                    path);
}

/* --- examples ------------------------------------------------------------------------------------------------------------------- */

static tn_status read_squad(const tn_wire_texts *t, int split, int64_t i, tn_wire_example *e)
{
    const squad *d = t->data;
    const paragraph *p = &d->paragraph[d->first[split] + tn__wire_spread(i, d->count[split], d->there[split])];
    TN_RETURN_IF(tn__wire_add_context(e, d->text.data + p->context.at, p->context.bytes));
    for (size_t k = p->question; k < p->question + p->questions; k++) {
        const question *q = &d->question[k];
        TN_RETURN_IF(tn__wire_add_question(e, "Question: ", d->text.data + q->text.at, q->text.bytes, " Answer:"));
        for (size_t g = q->gold; g < q->gold + q->golds; g++)
            TN_RETURN_IF(tn__wire_add_gold(e, " ", d->text.data + d->gold[g].at, d->gold[g].bytes));
    }
    return TN_OK;
}

static tn_status divide(const tn_settings *st, squad *d)
{
    const double n = (double)d->paragraphs;
    const int64_t all = (int64_t)d->paragraphs, test = (int64_t)(n * tn_settings_float(st, "task.test_frac")),
                  valid = (int64_t)(n * tn_settings_float(st, "task.valid_frac")), train = all - test - valid;
    const int64_t heldout = tn_settings_int(st, "task.heldout"),
                  size = tn_settings_is_auto(st, "task.size") ? train : tn_settings_int(st, "task.size");
    if (train < 1)
        return tn_error(TN_USAGE,
                        "task.valid_frac and task.test_frac leave none of %lld paragraphs to train on: make "
                        "them smaller",
                        (long long)all);
    d->first[TN_VALID] = train;
    d->first[TN_TEST] = train + valid;
    d->count[TN_TRAIN] = d->there[TN_TRAIN] = size < train ? size : train; /* the first ones */
    d->there[TN_VALID] = valid;
    d->there[TN_TEST] = test;
    for (int k = TN_VALID; k < TN_SPLITS; k++) d->count[k] = d->there[k] < heldout ? d->there[k] : heldout;
    return TN_OK;
}

static tn_status open_squad(const tn_settings *st, tn_wire_texts **out)
{
    tn_status s = TN_OK;
    tn_text file = { 0 };
    const char *path = tn_settings_text(st, "task.data");
    if (!path[0]) return tn_error(TN_USAGE, "task=squad needs a file of SQuAD v1.1: give task.data=FILE");
    squad *d = tn_alloc(sizeof *d);
    if (!d) return TN_MEMORY;
    d->length = tn_settings_is_auto(st, "task.length") ? LENGTH : (size_t)tn_settings_int(st, "task.length");
    TN_TRY(tn__wire_read_file(path, &file));
    TN_TRY(read_squad_file(path, &file, d));
    tn_wire_texts t = { .task = "squad",
                        .kind = TN_WIRE_QA,
                        .anchor = TN_WIRE_BETWEEN,
                        .form = "Question: %s Answer: %s",
                        .data = d,
                        .read = read_squad,
                        .close = close_squad };
    TN_TRY(divide(st, d));
    memcpy(t.count, d->count, sizeof t.count);
    t.cut = d->cut;
    t.left_out = d->left_out;
    snprintf(t.about, sizeof t.about, "paragraphs of %.120s", path);
    const int64_t numbers[] = { (int64_t)d->length, d->first[TN_VALID], d->first[TN_TEST] };
    TN_TRY(tn__wire_hash(numbers, 3, file.data, file.n, t.hash));
    tn_text_free(&file);
    return tn__wire_texts_new(&t, out);
done:
    tn_text_free(&file);
    close_squad(d);
    return s;
}

const tn_task tn_task_squad = { .name = "squad",
                                .summary = "paragraphs with questions (task.data: SQuAD v1.1)",
                                .texts = open_squad };
