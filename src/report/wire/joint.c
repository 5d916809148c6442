/* One answer of several readers to the same message: candidates are theirs, and all of them score each. */
#include "report/wire/decoded_parts.h"

#include "base/alloc.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

enum { READERS = TN_CONTROL_READERS };

/* A candidate as tokens of one reader: BOS ; question, and the answer with its end. */
typedef struct candidate {
    tn_tokens ids;
    size_t answer;
} candidate;

typedef struct scoring {
    tn_decoder_work *w;
    candidate *x; /* (together) */
    tn_wire_tokens work;
    double *nats; /* (B Q, candidates): sums over readers, per byte */
} scoring;

static const tn_text *said_by(const tn_decoder_work *w, int reader, int64_t row)
{
    return &w->reader[reader].first[row].text;
}

/* Candidate `of` of a row as reader k reads it. */
static tn_status lay(scoring *x, int k, int of, int64_t row, candidate *to)
{
    tn_decoded_reader *r = &x->w->reader[k];
    const tn_wire_reader words = tn_wire_words_reader(&r->words);
    const tn_text *text = said_by(x->w, of, row);
    const tn_answer question = tn_wire_golds_question(&x->w->golds, row % r->labels.q);
    const tn_wire_parts parts = {
        .question = question.text, .question_bytes = question.bytes, .answer = text->data, .answer_bytes = text->n
    };
    return tn_wire_lay_out(&words, r->words.scratch, &parts, &x->work, &to->ids, &to->answer);
}

/* Rows that were laid out, n of them, by reader k. A candidate that does not fit it, which another tokenizer makes long, or whose end is beyond
 * its positions, counts as impossible: its first tokens alone would be too few nats for all its bytes, so that answers that run on would
 * win, and which bytes these tokens spell is not known where one ends within a character. */
static tn_status score_some(scoring *x, int k, int of, const int64_t *rows, int64_t n)
{
    tn_decoder_work *w = x->w;
    tn_wire_row row[TN_WIRE_TOGETHER] = { { NULL, 0 } }, answer[TN_WIRE_TOGETHER] = { { NULL, 0 } };
    double nats[TN_WIRE_TOGETHER];
    const int64_t each = w->c->slots * w->c->width, Q = w->reader[k].labels.q;
    for (int64_t i = 0; i < n; i++) {
        const candidate *c = &x->x[i];
        row[i] = (tn_wire_row){ c->ids.ids, (int64_t)c->answer };
        const int64_t room = tn_wire_speaker_room(w->reader[k].speaker, &row[i], true),
                      all = (int64_t)(c->ids.n - c->answer);
        answer[i] = (tn_wire_row){ c->ids.ids + c->answer, all <= room ? all : 0 };
        memcpy(w->z + i * each, w->given.z + (w->before + rows[i] / Q) * each, sizeof *w->z * (size_t)each);
    }
    if (w->o->stop) TN_RETURN_IF(w->o->stop(w->o->ctx));
    TN_RETURN_IF(tn_wire_speaker_score(w->reader[k].speaker, row, n, w->z, TN_WIRE_QA, answer, nats));
    for (int64_t i = 0; i < n; i++)
        x->nats[rows[i] * READERS + of] +=
            answer[i].n ? nats[i] / (double)(said_by(w, of, rows[i])->n + 1) : (double)INFINITY;
    return TN_OK;
}

/* All candidates of one reader, scored by another or itself. */
static tn_status score_all(scoring *x, int k, int of)
{
    tn_decoder_work *w = x->w;
    const int64_t Q = w->reader[k].labels.q;
    int64_t rows[TN_WIRE_TOGETHER], n = 0;
    for (int64_t i = 0; i < w->valid; i++) {
        TN_RETURN_IF(tn_wire_golds_read(&w->golds, w->before + i));
        for (int64_t q = 0; q < w->golds.n; q++) {
            TN_RETURN_IF(lay(x, k, of, i * Q + q, &x->x[n]));
            rows[n++] = i * Q + q;
            if (n < w->together) continue;
            TN_RETURN_IF(score_some(x, k, of, rows, n));
            n = 0;
        }
    }
    return n ? score_some(x, k, of, rows, n) : TN_OK;
}

static tn_status all_equal(const tn_decoder_work *w, int64_t row, bool *out)
{
    tn_answer_score x;
    *out = true;
    for (int k = 1; k < w->c->readers; k++) {
        const tn_text *a = said_by(w, 0, row), *b = said_by(w, k, row);
        const tn_answer gold = { a->data ? a->data : "", a->n };
        TN_RETURN_IF(tn_answer_score_of((tn_answer){ b->data ? b->data : "", b->n }, &gold, 1, &x));
        *out = *out && x.exact == 1;
    }
    return TN_OK;
}

/* The answer with the least nats per byte; of equal ones the first. */
static tn_status take(scoring *x, int64_t q, int64_t row, double *em)
{
    tn_decoder_work *w = x->w;
    tn_wire_joint *j = &w->out->joint;
    tn_answer_score best = { 0, 0 }, taken = { 0, 0 };
    int least = 0;
    bool equal;
    for (int k = 0; k < w->c->readers; k++) {
        tn_answer_score s;
        TN_RETURN_IF(tn__wire_score_said(&w->golds, q, said_by(w, k, row), &s));
        if (x->nats[row * READERS + k] < x->nats[row * READERS + least]) least = k;
        if (k == least) taken = s;
        best.exact = fmax(best.exact, s.exact), best.f1 = fmax(best.f1, s.f1);
    }
    TN_RETURN_IF(all_equal(w, row, &equal));
    j->em += taken.exact, j->f1 += taken.f1;
    j->oracle_em += best.exact, j->oracle_f1 += best.f1;
    j->agree += equal;
    j->taken[least]++;
    *em += taken.exact;
    return TN_OK;
}

static tn_status weigh(scoring *x)
{
    tn_decoder_work *w = x->w;
    for (int of = 0; of < w->c->readers; of++)
        for (int k = 0; k < w->c->readers; k++) TN_RETURN_IF(score_all(x, k, of));
    for (int64_t i = 0; i < w->valid; i++) {
        double em = 0;
        TN_RETURN_IF(tn_wire_golds_read(&w->golds, w->before + i));
        for (int64_t q = 0; q < w->golds.n; q++) TN_RETURN_IF(take(x, q, i * w->reader[0].labels.q + q, &em));
        w->out->joint.em_of[w->before + i] = w->golds.n ? (float)(em / (double)w->golds.n) : NAN;
    }
    return TN_OK;
}

tn_status tn__wire_joint_batch(tn_decoder_work *w)
{
    tn_status s = TN_OK;
    scoring x = { .w = w };
    const size_t n = (size_t)(w->valid * w->reader[0].labels.q * READERS);
    x.x = tn_alloc((size_t)w->together * sizeof *x.x);
    x.nats = tn_alloc(n * sizeof *x.nats);
    if (!x.x || !x.nats) TN_FAIL(TN_MEMORY, "out of memory for the answers of several readers");
    memset(x.x, 0, (size_t)w->together * sizeof *x.x);
    memset(x.nats, 0, n * sizeof *x.nats);
    TN_TRY(weigh(&x));
done:
    for (int64_t i = 0; x.x && i < w->together; i++) tn_tokens_free(&x.x[i].ids);
    tn_free(x.x);
    tn_free(x.nats);
    tn_wire_tokens_free(&x.work);
    return s;
}
