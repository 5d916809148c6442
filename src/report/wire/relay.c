/* A relay: the first reader says in words what it makes of the text, and the others read these words in the place of the text.
 *
 *     sender:   BOS ; context                                it goes on, greedily, for at most as many tokens as a message has slots
 *     reader:   BOS ; what it said ; anchor ; question       the layout of a text
 *
 * Readers are trained on documents that go on with lines of questions and answers (`tenon wire text repeats=N`), so that what the sender says is
 * what it would note about the text. Nothing is trained for it. */
#include "report/wire/decoded_parts.h"

#include "base/alloc.h"
#include "base/status.h"

#include <string.h>

/* BOS ; context of text i, from its row of text. */
static tn_wire_row context_row(const tn_decoded_reader *r, int64_t i)
{
    const int64_t Q = r->labels.q, n = r->told.n, at = i * Q * n;
    int64_t first = 0;
    while (first < n && !r->document.at[at + first]) first++;
    if (first == n) return (tn_wire_row){ NULL, 0 }; /* it has no question */
    return (tn_wire_row){ r->told.at + at + first, r->length.at[i] - 1 };
}

/* What the sender says to all texts of the batch, into said (B). */
static tn_status send(tn_decoder_work *w, tn_wire_said *said)
{
    const tn_decoded_reader *r = &w->reader[0];
    tn_wire_row rows[TN_WIRE_TOGETHER] = { { NULL, 0 } };
    tn_wire_said some[TN_WIRE_TOGETHER];
    int64_t of[TN_WIRE_TOGETHER], most[TN_WIRE_TOGETHER];
    const tn_wire_say_options how = { .max_tokens = w->c->slots,
                                      .most = most, /* a text that leaves little room is no limit of the others */
                                      .ends = tn_wire_words_end,
                                      .ends_ctx = &r->words,
                                      .stop = w->o->stop,
                                      .ctx = w->o->ctx };
    for (int64_t at = 0; at < w->valid;) {
        int64_t n = 0;
        for (; at < w->valid && n < w->together; at++) {
            const tn_wire_row row = context_row(r, at);
            said[at].text.n = said[at].ids.n = 0;
            const int64_t room = tn_wire_speaker_room(r->speaker, &row, false);
            if (!row.n || room < 1) continue;
            most[n] = room, rows[n] = row, some[n] = said[at], of[n++] = at;
        }
        if (!n) break;
        const tn_status s = tn_wire_speaker_say(r->speaker, rows, n, NULL, TN_WIRE_QA, &how, some);
        for (int64_t i = 0; i < n; i++) said[of[i]] = some[i]; /* their memory has moved along */
        TN_RETURN_IF(s);
        for (int64_t i = 0; i < n; i++) TN_RETURN_IF(tn_wire_words_spell(&r->words, &said[of[i]]));
    }
    return TN_OK;
}

/* Rows of reader k, behind each other in ids, and their places in w->row. A note that another tokenizer makes too long for
 * the reader's speaker is cut. */
static tn_status lay_rows(tn_decoder_work *w, int k, const tn_wire_said *said, tn_tokens *ids, tn_wire_tokens *work)
{
    tn_decoded_reader *r = &w->reader[k];
    const int64_t Q = r->labels.q;
    const tn_wire_reader words = tn_wire_words_reader(&r->words);
    const char *anchor = w->golds.texts->anchor;
    ids->n = 0;
    memset(w->row, 0, (size_t)(w->valid * Q) * sizeof *w->row);
    for (int64_t i = 0; i < w->valid; i++) {
        TN_RETURN_IF(tn_wire_golds_read(&w->golds, w->before + i));
        for (int64_t q = 0; q < w->golds.n; q++) {
            const tn_answer question = tn_wire_golds_question(&w->golds, q);
            const tn_wire_parts parts = { .context = said[i].text.data,
                                          .context_bytes = said[i].text.n,
                                          .anchor = anchor,
                                          .anchor_bytes = strlen(anchor),
                                          .question = question.text,
                                          .question_bytes = question.bytes };
            TN_RETURN_IF(tn_wire_tokenize(&words, r->words.scratch, &parts, work));
            const tn_wire_row behind = { NULL, 1 + (int64_t)(work->anchor.n + work->asked.n) };
            const int64_t room = tn_wire_speaker_room(r->speaker, &behind, false) - w->out->max_tokens[k];
            if (room < 0) continue; /* its tokens are not those of its rows: it says nothing */
            if ((int64_t)work->context.n > room) work->context.n = (size_t)room;
            work->answer = work->asked.n;
            const tn_wire_sequence s = tn_wire_sequence_of(&words, work);
            void *grown = ids->ids;
            TN_RETURN_IF(tn_grow(&grown, &ids->capacity, ids->n + tn_wire_length(&s), sizeof *ids->ids));
            ids->ids = grown;
            tn_wire_lay(&s, ids->ids + ids->n);
            w->row[i * Q + q] = (tn_wire_row){ NULL, (int64_t)tn_wire_length(&s) - 1 }; /* without the end */
            ids->n += tn_wire_length(&s);
        }
    }
    size_t at = 0;
    for (int64_t row = 0; row < w->valid * Q; row++) /* after all of them are there: the array may have moved */
        if (w->row[row].n) w->row[row].ids = ids->ids + at, at += (size_t)w->row[row].n + 1;
    return TN_OK;
}

tn_status tn__wire_relay_batch(tn_decoder_work *w)
{
    tn_status s = TN_OK;
    tn_tokens ids = { 0 };
    tn_wire_tokens work = { 0 };
    tn_wire_said *said = tn_alloc((size_t)w->s->batch * sizeof *said);
    if (!said) return TN_MEMORY;
    memset(said, 0, (size_t)w->s->batch * sizeof *said);
    TN_TRY(send(w, said));
    for (int64_t i = 0; i < w->valid; i++) w->out->relay_tokens += (double)said[i].ids.n;
    for (int k = 0; k < w->c->readers; k++) {
        TN_TRY(lay_rows(w, k, said, &ids, &work));
        TN_TRY(tn__wire_say_rows(w, TN_WIRE_TEXT, k));
        TN_TRY(tn__wire_score_rows(w, k, &w->out->relay[k]));
    }
done:
    for (int64_t i = 0; i < w->s->batch; i++) tn_wire_said_free(&said[i]);
    tn_free(said);
    tn_tokens_free(&ids);
    tn_wire_tokens_free(&work);
    return s;
}
