/* Held-out batches, read once to see how long rows and answers are, and once for each method to decode. */
#include "report/wire/decoded_parts.h"

#include "base/alloc.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { A_FEW = 4 }; /* tokens more than the longest right answer */

const bool tn_wire_decodes[TN_WIRE_METHODS] = {
    [TN_WIRE_TEXT] = true,   [TN_WIRE_NONE] = true,   [TN_WIRE_FIRST] = true, [TN_WIRE_LAST] = true,
    [TN_WIRE_RANDOM] = true, [TN_WIRE_LATENT] = true, [TN_WIRE_INT4] = true,  [TN_WIRE_SHUFFLED] = true,
};

/* --- rows ------------------------------------------------------------------------------------------------------------------ */

/* Tokens of a row before its answer: BOS ; question. 0: there is no such question. */
static int64_t asked_of(const tn_decoded_reader *r, int64_t row)
{
    const int32_t *label = r->labels.at + row * r->labels.n;
    int64_t at = 1;
    while (at < r->labels.n && label[at] < 0) at++;
    return at < r->labels.n ? at : 0;
}

/* The same of a row of text: BOS ; what is left of the context ; anchor ; question. */
static tn_wire_row text_row(const tn_decoded_reader *r, int64_t asked, const int32_t *told, const int32_t *document)
{
    int64_t first = 0;
    while (first < r->told.n && !document[first]) first++;
    return (tn_wire_row){ told + first, r->told.n - (r->labels.n - 1) + asked - 1 - first };
}

/* How long a batch's rows and answers are. */
static tn_status measure_context(tn_decoder_work *w, int64_t i)
{
    tn_wire_tokens work = { 0 };
    tn_status s = TN_OK;
    tn_answer gold[TN_WIRE_MOST_GOLDS];
    TN_TRY(tn_wire_golds_read(&w->golds, w->before + i));
    for (int64_t q = 0; q < w->golds.n; q++) {
        const tn_answer question = tn_wire_golds_question(&w->golds, q);
        const size_t golds = tn_wire_golds_of(&w->golds, q, gold, TN_WIRE_MOST_GOLDS);
        w->out->questions++;
        w->out->bytes += (double)gold[0].bytes;
        for (int k = 0; k < w->c->readers && w->out->in_words; k++) {
            tn_decoded_reader *r = &w->reader[k];
            const tn_wire_reader words = tn_wire_words_reader(&r->words);
            const int64_t row = i * r->labels.q + q, asked = asked_of(r, row), at = row * r->told.n;
            const int64_t text = text_row(r, asked, r->told.at + at, r->document.at + at).n,
                          message = asked + r->own + 1;
            if (text > r->longest_row) r->longest_row = text;
            if (message > r->longest_row) r->longest_row = message;
            const int64_t context = r->length.at[i] - 1, note = text - (context - 1) + w->c->slots;
            if (context > r->longest_context) r->longest_context = context;
            if (note > r->longest_note) r->longest_note = note;
            for (size_t k2 = 0; k2 < golds && k2 < TN_WIRE_MOST_GOLDS; k2++) {
                const tn_wire_parts parts = { .question = question.text,
                                              .question_bytes = question.bytes,
                                              .answer = gold[k2].text,
                                              .answer_bytes = gold[k2].bytes };
                TN_TRY(tn_wire_tokenize(&words, r->words.scratch, &parts, &work));
                const int64_t n = (int64_t)(work.asked.n - work.answer);
                if (n > r->longest_gold) r->longest_gold = n;
            }
        }
    }
done:
    tn_wire_tokens_free(&work);
    return s;
}

/* Calls `each` for every batch that is held out, with its contexts in w->before and w->valid. */
static tn_status for_batches(tn_decoder_work *w, tn_status (*each)(tn_decoder_work *w))
{
    w->before = 0;
    for (int64_t i = 0, count; w->before < w->c->contexts; i++) {
        if (w->o->stop) TN_RETURN_IF(w->o->stop(w->o->ctx));
        TN_RETURN_IF(tn_source_heldout(&w->s->source, i, w->s->trainer, &count));
        if (!count) break;
        w->valid = tn_wire_valid(w->s);
        TN_RETURN_IF(each(w));
        w->before += w->valid;
    }
    return TN_OK;
}

static tn_status measure_batch(tn_decoder_work *w)
{
    for (int64_t i = 0; i < w->valid; i++) TN_RETURN_IF(measure_context(w, i));
    return TN_OK;
}

/* --- decoding -------------------------------------------------------------------------------------------------------------- */

/* Rows of the batch as the method has them, for reader k. Rows that ask nothing have no tokens. */
static void lay_rows(tn_decoder_work *w, tn_wire_method m, int k)
{
    tn_decoded_reader *r = &w->reader[k];
    const int64_t Q = r->labels.q, n = r->told.n;
    for (int64_t row = 0; row < w->valid * Q; row++) {
        const int64_t i = row / Q, asked = asked_of(r, row), context = r->length.at[i] - 2;
        w->row[row] = (tn_wire_row){ r->tokens.at + row * r->labels.n, asked };
        if (!asked || !tn_wire_is_text(m)) continue;
        int32_t *to = w->cut + row * n, *document = w->cut_document + row * n;
        tn_wire_give_tokens(&w->given, m, w->before + i, context < n ? context : n, w->keep);
        tn_wire_cut_row(r->told.at + row * n, r->document.at + row * n, n, context, w->keep, to, document);
        w->row[row] = text_row(r, asked, to, document);
    }
}

tn_status tn__wire_say_rows(tn_decoder_work *w, tn_wire_method m, int k)
{
    tn_decoded_reader *r = &w->reader[k];
    const int64_t Q = r->labels.q, each = w->c->slots * w->c->width;
    const tn_wire_say_options how = { .max_tokens = w->out->max_tokens[k],
                                      .ends = tn_wire_words_end,
                                      .ends_ctx = &r->words,
                                      .stop = w->o->stop,
                                      .ctx = w->o->ctx };
    tn_wire_row rows[TN_WIRE_TOGETHER];
    tn_wire_said said[TN_WIRE_TOGETHER];
    int64_t of[TN_WIRE_TOGETHER];
    for (int64_t at = 0; at < w->valid * Q;) {
        int64_t n = 0;
        size_t bytes;
        for (; at < w->valid * Q && n < w->together; at++) {
            r->said[at].text.n = r->said[at].ids.n = 0;
            r->said[at].nats = 0;
            if (!w->row[at].n) continue;
            if (!tn_wire_is_text(m))
                TN_RETURN_IF(tn_wire_give_message(&w->given, m, w->before + at / Q, w->z + n * each, &bytes));
            rows[n] = w->row[at], said[n] = r->said[at], of[n++] = at;
        }
        if (!n) break;
        const tn_status s =
            tn_wire_speaker_say(r->speaker, rows, n, tn_wire_is_text(m) ? NULL : w->z, TN_WIRE_QA, &how, said);
        for (int64_t i = 0; i < n; i++) r->said[of[i]] = said[i]; /* their memory has moved along */
        TN_RETURN_IF(s);
        for (int64_t i = 0; i < n; i++) TN_RETURN_IF(tn_wire_words_spell(&r->words, &r->said[of[i]]));
    }
    return TN_OK;
}

tn_status tn__wire_score_said(const tn_wire_golds *g, int64_t q, const tn_text *text, tn_answer_score *out)
{
    tn_answer gold[TN_WIRE_MOST_GOLDS];
    const size_t n = tn_wire_golds_of(g, q, gold, TN_WIRE_MOST_GOLDS);
    return tn_answer_score_of((tn_answer){ text->data ? text->data : "", text->n }, gold,
                              n < TN_WIRE_MOST_GOLDS ? n : TN_WIRE_MOST_GOLDS, out);
}

tn_status tn__wire_score_rows(tn_decoder_work *w, int k, tn_wire_decoded_score *to)
{
    const tn_decoded_reader *r = &w->reader[k];
    for (int64_t i = 0; i < w->valid; i++) {
        double em = 0, f1 = 0;
        TN_RETURN_IF(tn_wire_golds_read(&w->golds, w->before + i));
        for (int64_t q = 0; q < w->golds.n; q++) {
            tn_answer_score x;
            TN_RETURN_IF(tn__wire_score_said(&w->golds, q, &r->said[i * r->labels.q + q].text, &x));
            em += x.exact, f1 += x.f1;
            to->nats += r->said[i * r->labels.q + q].nats;
        }
        to->em_sum += em, to->f1_sum += f1;
        if (!to->em) continue;
        to->em[w->before + i] = w->golds.n ? (float)(em / (double)w->golds.n) : NAN;
        to->f1[w->before + i] = w->golds.n ? (float)(f1 / (double)w->golds.n) : NAN;
    }
    return TN_OK;
}

static tn_status decode_batch(tn_decoder_work *w)
{
    for (int m = 0; m < TN_WIRE_METHODS; m++)
        for (int k = 0; k < w->c->readers && tn_wire_decodes[m]; k++) {
            tn_decoded_reader *r = &w->reader[k];
            lay_rows(w, (tn_wire_method)m, k);
            TN_RETURN_IF(tn__wire_say_rows(w, (tn_wire_method)m, k));
            TN_RETURN_IF(tn__wire_score_rows(w, k, &w->out->score[m][k]));
            if (m == TN_WIRE_LATENT) { /* kept for the joint answer */
                tn_wire_said *x = r->said;
                r->said = r->first, r->first = x;
            }
        }
    TN_RETURN_IF(tn__wire_relay_batch(w));
    return w->c->readers > 1 ? tn__wire_joint_batch(w) : TN_OK;
}

/* --- opening --------------------------------------------------------------------------------------------------------------- */

static tn_status open_reader(tn_decoder_work *w, int k)
{
    tn_decoded_reader *r = &w->reader[k];
    const char x = w->c->reader[k];
    const tn_settings *st = w->s->settings;
    r->tokens = tn_wire_input_of(w->s, x, "tokens");
    r->labels = tn_wire_input_of(w->s, x, "labels");
    r->told = tn_wire_input_of(w->s, x, "told");
    r->document = tn_wire_input_of(w->s, x, "told_document");
    r->length = tn_wire_input_of(w->s, x, "text_length");
    if (!r->tokens.at || !r->labels.at || !r->told.at || !r->document.at || !r->length.at)
        return tn_error(TN_INTERNAL, "the session does not read the rows of reader %c", x);
    r->own = tn_settings_int(st, "slots") + tn_settings_int(st, "private");
    return w->out->in_words ? tn_wire_words_open(w->o->user, st, x, &r->words) : TN_OK;
}

/* Positions of a speaker: as many as its rows and answers need, and where the reader has them those of the relay, whose first reader says as
 * many tokens behind a text as a message has slots, and of the end of an answer, which other readers score. */
static int64_t positions_of(const tn_decoder_work *w, int k, int64_t most, int64_t positions)
{
    const tn_decoded_reader *r = &w->reader[k];
    const int64_t needed = r->longest_row + most - 1, said = k ? 0 : r->longest_context + w->c->slots - 1;
    int64_t wanted = r->longest_note + most - 1;
    if (said > wanted) wanted = said;
    if (w->c->readers > 1 && needed + 1 > wanted) wanted = needed + 1;
    if (wanted > positions) wanted = positions;
    return wanted > needed ? wanted : needed;
}

/* After all rows are measured. What a reader was never trained on so long ends earlier, where nobody asked for a number. */
static tn_status open_speaker(tn_decoder_work *w, int k)
{
    tn_decoded_reader *r = &w->reader[k];
    int64_t positions, *most = &w->out->max_tokens[k];
    TN_RETURN_IF(tn_wire_speaker_positions(w->s->trainer, w->c->reader[k], &positions));
    *most = w->o->max_tokens ? w->o->max_tokens : r->longest_gold + A_FEW;
    if (!w->o->max_tokens && r->longest_row + *most - 1 > positions) *most = positions + 1 - r->longest_row;
    if (*most < 1) *most = 1;
    const tn_wire_speaker_options o = { .trainer = w->s->trainer,
                                        .reader = w->c->reader[k],
                                        .batch = w->together,
                                        .longest = positions_of(w, k, *most, positions) };
    return tn_wire_speaker_new(&o, &r->speaker);
}

static tn_status allocate(tn_decoder_work *w)
{
    tn_wire_decoded *d = w->out;
    const size_t contexts = (size_t)w->c->contexts, Q = (size_t)w->reader[0].labels.q, rows = (size_t)w->s->batch * Q;
    size_t told = 0;
    bool ok = true;
    for (int k = 0; k < w->c->readers; k++) {
        tn_decoded_reader *r = &w->reader[k];
        told = (size_t)r->told.n > told ? (size_t)r->told.n : told;
        ok = ok && (r->said = tn_alloc(rows * sizeof *r->said)) && (r->first = tn_alloc(rows * sizeof *r->first));
        for (size_t i = 0; ok && i < rows; i++) r->said[i] = r->first[i] = (tn_wire_said){ 0 };
        for (int m = 0; m < TN_WIRE_METHODS && ok; m++)
            if (tn_wire_decodes[m])
                ok = (d->score[m][k].em = tn_alloc(contexts * sizeof(float))) &&
                     (d->score[m][k].f1 = tn_alloc(contexts * sizeof(float)));
    }
    w->together = rows < TN_WIRE_TOGETHER ? (int64_t)rows : TN_WIRE_TOGETHER;
    ok = ok && (w->z = tn_alloc((size_t)(w->together * w->c->slots * w->c->width) * sizeof *w->z)) &&
         (w->cut = tn_alloc(rows * told * sizeof *w->cut)) &&
         (w->cut_document = tn_alloc(rows * told * sizeof *w->cut_document)) && (w->keep = tn_alloc(told)) &&
         (w->row = tn_alloc(rows * sizeof *w->row));
    if (ok && w->c->readers > 1) ok = (d->joint.em_of = tn_alloc(contexts * sizeof(float))) != NULL;
    return ok ? TN_OK : tn_error(TN_MEMORY, "out of memory for the answers to %zu texts", contexts);
}

static void release(tn_decoder_work *w)
{
    const int64_t rows = w->s->batch * w->reader[0].labels.q;
    for (int k = 0; k < w->c->readers; k++) {
        tn_decoded_reader *r = &w->reader[k];
        for (int64_t i = 0; i < rows; i++) {
            if (r->said) tn_wire_said_free(&r->said[i]);
            if (r->first) tn_wire_said_free(&r->first[i]);
        }
        tn_free(r->said);
        tn_free(r->first);
        tn_wire_speaker_free(r->speaker);
        tn_wire_words_free(&r->words);
    }
    tn_free(w->z);
    tn_free(w->cut);
    tn_free(w->cut_document);
    tn_free(w->keep);
    tn_free(w->row);
    tn_wire_golds_free(&w->golds);
}

tn_status tn_wire_decoded_run(tn_session *session, const tn_wire_controls *c, const tn_wire_decoded_options *o,
                              tn_wire_decoded *out)
{
    tn_status s = TN_OK;
    tn_decoder_work w = { .s = session, .c = c, .o = o, .out = out };
    *out = (tn_wire_decoded){ .in_words = false };
    w.given = tn_wire_given_of(c, session->settings, o->seed);
    TN_TRY(tn_wire_golds_open(session, o->split, &w.golds));
    out->in_words = w.golds.texts->kind == TN_WIRE_QA && !o->only_bytes;
    out->continues = w.golds.texts->kind == TN_WIRE_LM;
    for (int k = 0; k < c->readers; k++) TN_TRY(open_reader(&w, k));
    TN_TRY(for_batches(&w, measure_batch));
    if (!out->questions) out->in_words = false;
    if (out->in_words) {
        TN_TRY(allocate(&w));
        for (int k = 0; k < c->readers; k++) TN_TRY(open_speaker(&w, k));
        TN_TRY(for_batches(&w, decode_batch));
    }
done:
    release(&w);
    if (s != TN_OK) tn_wire_decoded_free(out);
    return s;
}

void tn_wire_decoded_free(tn_wire_decoded *d)
{
    for (int m = 0; m < TN_WIRE_METHODS; m++)
        for (int k = 0; k < TN_CONTROL_READERS; k++) tn_free(d->score[m][k].em), tn_free(d->score[m][k].f1);
    tn_free(d->joint.em_of);
    *d = (tn_wire_decoded){ 0 };
}

double tn_wire_bits_per_byte(const tn_wire_decoded *d, const tn_wire_score *s)
{
    return d->bytes > 0 ? (s->nll - s->end_nll) / log(2) / d->bytes : NAN;
}
