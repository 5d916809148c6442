/* What trials write while they run and when they end, and how far a study is. */
#include "lab/db/db.h"
#include "lab/db/trials.h"

#include <math.h>

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Whether the claim still stands; the transaction that asks has the lock, so nobody takes it away before its end. */
static tn_status still_mine(tn_lab *lab, const tn_claim *c, bool *mine)
{
    int64_t n = 0;
    TN_RETURN_IF(tn__db_first(lab, "SELECT 1 FROM trial WHERE id = ? AND worker = ? AND attempt = ? AND state = 1", 0,
                              &n, TN_DB_VALUES(TN_DB_INT(c->trial), TN_DB_INT(c->worker), TN_DB_INT(c->attempt))));
    *mine = n > 0;
    return TN_OK;
}

tn_status tn_lab_point(tn_lab *lab, const tn_claim *c, const double *x, size_t n, bool *lost)
{
    sqlite3_stmt *q;
    int64_t changed = 0;
    char *text = tn__numbers_write(x, n);
    if (!text) return TN_MEMORY;
    tn_status s =
        tn__db_query(lab,
                     "UPDATE trial SET x = ?4, sum = NULL WHERE id = ?1 AND worker = ?2 AND attempt = ?3 AND state = 1",
                     &q,
                     TN_DB_VALUES(TN_DB_INT(c->trial), TN_DB_INT(c->worker), TN_DB_INT(c->attempt), TN_DB_TEXT(text)));
    if (s == TN_OK) s = tn__db_run(lab, q, &changed);
    if (s == TN_OK && changed) s = tn__db_sum_trial(lab, c->trial);
    *lost = s == TN_OK && changed == 0;
    tn_free(text);
    return s;
}

static tn_status write_reports(tn_lab *lab, const tn_claim *c, const tn_report *reports, size_t n)
{
    for (const tn_report *r = reports; r < reports + n; r++)
        TN_RETURN_IF(
            tn__db_do(lab,
                      "INSERT OR REPLACE INTO report(trial, rung, step, epoch, seconds, score, value, sum) "
                      "VALUES(?1,?2,?3,?4,?5,?6,?7, tn_sum(?1,?2,?3,?4,?5,?6,?7))",
                      TN_DB_VALUES(TN_DB_INT(c->trial), TN_DB_INT(r->rung), TN_DB_INT(r->step), TN_DB_NUM(r->epoch),
                                   TN_DB_NUM(r->seconds), TN_DB_NUM(r->score), TN_DB_TEXT(r->value))));
    return TN_OK;
}

static tn_status write_parameters(tn_lab *lab, const tn_claim *c, double parameters)
{
    if (isnan(parameters)) return TN_OK;
    TN_RETURN_IF(tn__db_do(lab, "UPDATE trial SET parameters = ?2, sum = NULL WHERE id = ?1 AND parameters IS NOT ?2",
                           TN_DB_VALUES(TN_DB_INT(c->trial), TN_DB_NUM(parameters))));
    return tn__db_sum_trial(lab, c->trial);
}

static tn_status write_end(tn_lab *lab, const tn_claim *c, const tn_ending *e, const char *y)
{
    TN_RETURN_IF(
        tn__db_do(lab,
                  "UPDATE trial SET state = ?2, y = ?3, ended = ?4, seconds = ?5, seed = ?6, error = ?7, "
                  "parameters = coalesce(?8, parameters), sum = NULL WHERE id = ?1",
                  TN_DB_VALUES(TN_DB_INT(c->trial), TN_DB_INT(e->state), TN_DB_TEXT(y),
                               TN_DB_NUM(tn_trial_ended(e->state) ? tn__unix_s() : NAN), TN_DB_NUM(e->seconds),
                               TN_DB_INT(e->seed), TN_DB_TEXT(e->error ? e->error : ""), TN_DB_NUM(e->parameters))));
    return tn__db_sum_trial(lab, c->trial);
}

/* Reports, and the end (or else the size) of a trial, in one transaction; nothing where the claim is lost. */
static tn_status write_all(tn_lab *lab, const tn_claim *c, const tn_report *reports, size_t n, double parameters,
                           const tn_ending *e, const char *y, bool *lost)
{
    bool mine = false;
    *lost = false;
    TN_RETURN_IF(tn__db_begin(lab));
    tn_status s = still_mine(lab, c, &mine);
    if (s == TN_OK && mine) s = write_reports(lab, c, reports, n);
    if (s == TN_OK && mine) s = e ? write_end(lab, c, e, y) : write_parameters(lab, c, parameters);
    s = tn__db_end(lab, s);
    *lost = s == TN_OK && !mine;
    return s;
}

tn_status tn_lab_report(tn_lab *lab, const tn_claim *c, const tn_report *reports, size_t n, double parameters,
                        bool *lost)
{
    return write_all(lab, c, reports, n, parameters, NULL, NULL, lost);
}

tn_status tn_lab_end(tn_lab *lab, const tn_claim *c, const tn_report *reports, size_t n, const tn_ending *e,
                     size_t objectives, bool *lost)
{
    char *y = e->y ? tn__numbers_write(e->y, objectives) : NULL;
    if (e->y && !y) return TN_MEMORY;
    const tn_status s = write_all(lab, c, reports, n, NAN, e, y, lost);
    tn_free(y);
    return s;
}

/* --- going on ----------------------------------------------------------------------------------------------------- */

tn_status tn_lab_rewind(tn_lab *lab, const tn_claim *c, int64_t step, int64_t *rungs)
{
    TN_RETURN_IF(tn__db_do(lab, "DELETE FROM report WHERE trial = ? AND step > ?",
                           TN_DB_VALUES(TN_DB_INT(c->trial), TN_DB_INT(step))));
    return tn__db_first(lab, "SELECT count(*) FROM report WHERE trial = ?", 0, rungs,
                        TN_DB_VALUES(TN_DB_INT(c->trial)));
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

tn_status tn_lab_rung(tn_lab *lab, int64_t study, size_t side, int64_t before, int64_t rung, double parameters,
                      double cohort, double **out, size_t *n)
{
    sqlite3_stmt *q;
    double *list = NULL;
    size_t count = 0, capacity = 0;
    const bool all = !(cohort > 0) || isnan(parameters);
    TN_RETURN_IF(
        tn__db_query(lab,
                     "SELECT r.score, t.parameters FROM trial t JOIN report r ON r.trial = t.id AND r.rung = ?4 "
                     "WHERE t.study = ?1 AND t.side = ?2 "
                     "AND (t.kind = 2) = 0 AND t.number < ?3 AND r.score IS NOT NULL AND (?5 IS NULL OR "
                     "t.parameters BETWEEN ?5 AND ?6) "
                     "ORDER BY t.number",
                     &q,
                     TN_DB_VALUES(TN_DB_INT(study), TN_DB_INT(side), TN_DB_INT(before), TN_DB_INT(rung),
                                  TN_DB_NUM(all ? NAN : parameters / cohort),
                                  TN_DB_NUM(all ? NAN : parameters * cohort))));
    tn_status s = TN_OK;
    while (tn__db_next(lab, q, &s)) {
        s = tn_grow((void **)&list, &capacity, 2 * (count + 1), sizeof *list);
        if (s != TN_OK) continue;
        list[2 * count] = tn__db_number(q, 0);
        list[2 * count++ + 1] = tn__db_number(q, 1);
    }
    if (s != TN_OK) {
        tn_free(list);
        return s;
    }
    *out = list;
    *n = count;
    return TN_OK;
}

static tn_status tally_side(tn_lab *lab, int64_t study, const tn_study_plan *p, size_t side, bool compare, int64_t most,
                            tn_tally *out)
{
    sqlite3_stmt *q;
    tn_status s = TN_OK;
    double seconds = 0;
    int64_t ended = 0;
    *out = (tn_tally){ .best = NAN, .mean_s = NAN };
    TN_RETURN_IF(tn__db_query(lab,
                              "SELECT state, count(*), sum(seconds), max(y ->> '$[0]'), min(y ->> '$[0]') FROM trial "
                              "WHERE study = ? AND side = ? AND (kind = 2) = ? AND number < ? GROUP BY state",
                              &q,
                              TN_DB_VALUES(TN_DB_INT(study), TN_DB_INT(side), TN_DB_INT(compare),
                                           TN_DB_INT(most > 0 ? most : INT64_MAX))));
    while (tn__db_next(lab, q, &s)) {
        const int state = sqlite3_column_int(q, 0);
        if (state < 0 || state >= TN_TRIAL_STATES) continue;
        out->count[state] = sqlite3_column_int64(q, 1);
        if (!tn_trial_ended((tn_trial_state)state)) continue;
        ended += out->count[state];
        seconds += sqlite3_column_double(q, 2);
        if (state == TN_TRIAL_DONE && !compare) out->best = tn__db_number(q, p->objectives[0].maximise ? 3 : 4);
    }
    if (ended) out->mean_s = seconds / (double)ended;
    return s;
}

tn_status tn_lab_tally(tn_lab *lab, int64_t study, const tn_study_plan *p, bool compare, int64_t most, tn_tally *out)
{
    for (size_t i = 0; i < p->n_sides; i++) TN_RETURN_IF(tally_side(lab, study, p, i, compare, most, &out[i]));
    return TN_OK;
}

tn_status tn_lab_held(tn_lab *lab, int64_t study, tn_held *out, size_t most, size_t *n)
{
    sqlite3_stmt *q;
    tn_status s = TN_OK;
    *n = 0;
    TN_RETURN_IF(tn__db_query(lab,
                              "SELECT w.pid, t.id, t.number, t.side, t.worker, t.attempt, t.seed FROM trial t JOIN "
                              "worker w ON w.id = t.worker WHERE t.study = ?1 AND t.state = 1 AND w.gone = 0 LIMIT ?2",
                              &q, TN_DB_VALUES(TN_DB_INT(study), TN_DB_INT(most))));
    while (tn__db_next(lab, q, &s)) {
        if (*n == most) continue;
        out[(*n)++] = (tn_held){ .pid = sqlite3_column_int64(q, 0),
                                 .claim = { .trial = sqlite3_column_int64(q, 1),
                                            .number = sqlite3_column_int64(q, 2),
                                            .side = (size_t)sqlite3_column_int64(q, 3),
                                            .worker = sqlite3_column_int64(q, 4),
                                            .attempt = sqlite3_column_int(q, 5),
                                            .seed = (uint64_t)sqlite3_column_int64(q, 6) } };
    }
    return s;
}

tn_status tn_lab_running(tn_lab *lab, int64_t study, bool compare, tn_running *out, size_t most, size_t *n)
{
    sqlite3_stmt *q;
    tn_status s = TN_OK;
    *n = 0;
    TN_RETURN_IF(
        tn__db_query(lab,
                     "SELECT side, number, begun, (SELECT epoch FROM report WHERE trial = t.id ORDER BY rung "
                     "DESC LIMIT 1) FROM trial t "
                     "WHERE study = ?1 AND (kind = 2) = ?2 AND state < 2 AND state = 1 ORDER BY begun LIMIT ?3",
                     &q, TN_DB_VALUES(TN_DB_INT(study), TN_DB_INT(compare), TN_DB_INT(most))));
    while (tn__db_next(lab, q, &s)) {
        if (*n == most) continue;
        out[(*n)++] = (tn_running){ .side = (size_t)sqlite3_column_int64(q, 0),
                                    .number = sqlite3_column_int64(q, 1),
                                    .since = tn__db_number(q, 2),
                                    .epoch = tn__db_number(q, 3) };
    }
    return s;
}
