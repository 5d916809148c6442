/* Workers, and how they claim trials. */
#include "lab/db/trials.h"

#include "lab/db/db.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* --- workers ------------------------------------------------------------------------------------------------------ */

/* Within which a process number means one process: machine, boot, and the numbers' own space (containers). */
static void host_name(char host[160])
{
    struct utsname u;
    char space[64] = "", boot[9] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f && fread(boot, 1, 8, f) != 8) boot[0] = 0;
    if (f) fclose(f);
    if (readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) space[0] = 0;
    snprintf(host, 160, "%.64s %s %s", uname(&u) == 0 ? u.nodename : "?", boot, space);
}

/* A process that has ended but that nobody has waited for yet still has its number. */
static bool is_dead(pid_t pid)
{
    char path[64], line[512] = "";
    if (kill(pid, 0) != 0) return errno == ESRCH;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    const bool read = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    const char *state = read ? strrchr(line, ')') : NULL;
    return state && state[1] == ' ' && (state[2] == 'Z' || state[2] == 'X');
}

/* Of this machine before it was started again. "?" and what is not known is nobody's. */
static bool is_rebooted(const char *host, const char *theirs)
{
    const size_t node = strcspn(host, " "), boot = strcspn(host + node + 1, " ");
    return strncmp(host, theirs, node + 1) == 0 && boot && theirs[node + 1] != ' ' &&
           strncmp(host + node + 1, theirs + node + 1, boot + 1) != 0;
}

/* Those whose process is no more, where that can be seen: nobody has to wait for their hearts. */
static tn_status mark_dead_workers(tn_lab *lab, const char *host)
{
    sqlite3_stmt *q;
    tn_status s = TN_OK;
    int64_t dead[64];
    size_t n = 0;
    TN_RETURN_IF(tn__db_get(lab, "SELECT id, pid, host FROM worker WHERE gone = 0", &q));
    while (n < sizeof dead / sizeof *dead && tn__db_next(lab, q, &s)) {
        const char *theirs = tn__db_text(q, 2);
        if (strcmp(host, theirs) == 0 ? is_dead((pid_t)sqlite3_column_int64(q, 1)) : is_rebooted(host, theirs))
            dead[n++] = sqlite3_column_int64(q, 0);
    }
    sqlite3_reset(q);
    for (size_t i = 0; s == TN_OK && i < n; i++) s = tn_lab_leave(lab, dead[i]);
    return s;
}

tn_status tn_lab_join(tn_lab *lab, int64_t *worker)
{
    char host[160];
    host_name(host);
    TN_RETURN_IF(mark_dead_workers(lab, host));
    TN_RETURN_IF(tn__db_do(lab, "INSERT INTO worker(pid, host, started, beat) VALUES(?1, ?2, ?3, ?3)",
                           TN_DB_VALUES(TN_DB_INT(getpid()), TN_DB_TEXT(host), TN_DB_NUM(tn__unix_s()))));
    *worker = sqlite3_last_insert_rowid(lab->db);
    return TN_OK;
}

tn_status tn_lab_beat(tn_lab *lab, int64_t worker)
{
    char host[160];
    host_name(host);
    TN_RETURN_IF(mark_dead_workers(lab, host));
    /* Always another number, though the clock may be set back to just this one; and whoever was taken for dead is
     * alive. */
    return tn__db_do(lab,
                     "UPDATE worker SET beat = CASE beat WHEN ?2 THEN ?2 + 0.001 ELSE ?2 END, gone = 0 WHERE id = ?1",
                     TN_DB_VALUES(TN_DB_INT(worker), TN_DB_NUM(tn__unix_s())));
}

tn_status tn_lab_leave(tn_lab *lab, int64_t worker)
{
    return tn__db_do(lab, "UPDATE worker SET gone = 1 WHERE id = ?", TN_DB_VALUES(TN_DB_INT(worker)));
}

tn_status tn_lab_mark_dead(tn_lab *lab, int64_t pid)
{
    char host[160];
    host_name(host);
    return tn__db_do(lab, "UPDATE worker SET gone = 1 WHERE pid = ? AND host = ? AND gone = 0",
                     TN_DB_VALUES(TN_DB_INT(pid), TN_DB_TEXT(host)));
}

/* --- claiming ----------------------------------------------------------------------------------------------------- */

/* Waiting, or of nobody who is alive. */
#define FREE "(state = 0 OR worker NOT IN (SELECT id FROM worker WHERE gone = 0))"
#define OPEN "study = ?1 AND (kind = 2) = ?2 AND side = ?3 AND state < 2 AND number < ?4"

#define OPEN_VALUES(study, compare, side, most)                                                                        \
    TN_DB_INT(study), TN_DB_INT(compare), TN_DB_INT(side), TN_DB_INT((most) > 0 ? (most) : INT64_MAX)

/* The first of the side that has not ended, and the first that can be claimed; -1: none. */
static tn_status look(tn_lab *lab, int64_t study, size_t side, const tn_trial_filter *of, int64_t *open, int64_t *free)
{
    *free = -1;
    TN_RETURN_IF(tn__db_first(lab, "SELECT number FROM trial WHERE " OPEN " ORDER BY number LIMIT 1", -1, open,
                              TN_DB_VALUES(OPEN_VALUES(study, of->compare, side, of->most))));
    if (*open < 0) return TN_OK;
    return tn__db_first(lab, "SELECT number FROM trial WHERE " OPEN " AND " FREE " ORDER BY number LIMIT 1", -1, free,
                        TN_DB_VALUES(OPEN_VALUES(study, of->compare, side, of->most)));
}

/* `ended`: all trials below it have. */
static bool may_start(const tn_study_plan *p, int64_t number, int64_t ended)
{
    if (p->sampler->needs(&p->sampling, number) > ended) return false;
    return strcmp(p->pruner->name, "none") == 0 || number - p->pruning.lag <= ended;
}

/* The side whose next trial has the lowest number. */
static tn_status choose(tn_lab *lab, int64_t study, const tn_study_plan *p, const tn_trial_filter *of, size_t *side,
                        int64_t *number, tn_claimed *got)
{
    int64_t best = -1;
    *got = TN_CLAIM_OVER;
    for (size_t i = 0; i < p->n_sides; i++) {
        int64_t open, free;
        if (!tn_side_in(of->sides, i)) continue;
        TN_RETURN_IF(look(lab, study, i, of, &open, &free));
        if (open < 0) continue;
        if (*got == TN_CLAIM_OVER) *got = TN_CLAIM_WAIT;
        if (free < 0 || (!of->compare && !may_start(p, free, open))) continue;
        if (best >= 0 && free >= best) continue;
        *got = TN_CLAIM_GOT;
        best = *number = free;
        *side = i;
    }
    return TN_OK;
}

static void read_claim(sqlite3_stmt *q, const tn_study_plan *p, int64_t worker, size_t side, tn_claim *out, double *x)
{
    *out = (tn_claim){ .trial = sqlite3_column_int64(q, 0),
                       .number = sqlite3_column_int64(q, 1),
                       .worker = worker,
                       .side = side,
                       .kind = (tn_trial_kind)sqlite3_column_int(q, 2),
                       .seed = (uint64_t)sqlite3_column_int64(q, 3),
                       .attempt = sqlite3_column_int(q, 4),
                       .seconds = tn__db_number(q, 5),
                       .config = sqlite3_column_int64(q, 6),
                       .begun = tn__db_number(q, 7),
                       .has_x = sqlite3_column_type(q, 8) != SQLITE_NULL };
    if (isnan(out->seconds)) out->seconds = 0;
    if (out->has_x) tn__numbers_read(tn__db_text(q, 8), x, p->sides[side].space.n);
}

/* One statement decides who has it. */
static tn_status take(tn_lab *lab, int64_t study, const tn_study_plan *p, int64_t worker, bool compare, size_t side,
                      int64_t number, tn_claim *out, double *x, tn_claimed *got)
{
    sqlite3_stmt *q;
    bool row;
    TN_RETURN_IF(tn__db_query(lab,
                              "UPDATE trial SET state = 1, worker = ?5, attempt = attempt + 1, begun = ?6, started = "
                              "coalesce(started, ?6), sum = NULL "
                              "WHERE id = (SELECT id FROM trial WHERE " OPEN " AND " FREE " ORDER BY number LIMIT 1) "
                              "RETURNING id, number, kind, seed, attempt, seconds, config, begun, x",
                              &q,
                              TN_DB_VALUES(OPEN_VALUES(study, compare, side, number + 1), TN_DB_INT(worker),
                                           TN_DB_NUM(tn__unix_s()))));
    TN_RETURN_IF(tn__db_step(lab, q, &row));
    *got = row ? TN_CLAIM_GOT : TN_CLAIM_WAIT; /* another one was quicker */
    if (!row) return TN_OK;
    read_claim(q, p, worker, side, out, x);
    TN_RETURN_IF(tn__db_run(lab, q, NULL));
    return tn__db_sum_trial(lab, out->trial);
}

tn_status tn_lab_claim(tn_lab *lab, int64_t study, const tn_study_plan *p, int64_t worker, const tn_trial_filter *of,
                       tn_claim *out, double *x, tn_claimed *got)
{
    size_t side = 0;
    int64_t number = 0;
    TN_RETURN_IF(tn__heartbeats_watch(lab));
    TN_RETURN_IF(
        choose(lab, study, p, of, &side, &number, got)); /* without the lock: workers that wait disturb nobody */
    if (*got != TN_CLAIM_GOT) return TN_OK;
    TN_RETURN_IF(tn__db_begin(lab));
    tn_status s = choose(lab, study, p, of, &side, &number, got);
    if (s == TN_OK && *got == TN_CLAIM_GOT) s = take(lab, study, p, worker, of->compare, side, number, out, x, got);
    return tn__db_end(lab, s);
}

/* --- what samplers see -------------------------------------------------------------------------------------------- */

void tn_observed_free(tn_observed_store *store)
{
    tn_free(store->x);
    tn_free(store->y);
    tn_free(store->pruned);
    *store = (tn_observed_store){ 0 };
}

/* In the samplers' direction. One that failed, or took too long, or has no number for an objective, is as bad as can
 * be. */
static void read_observed(sqlite3_stmt *q, const tn_study_plan *p, size_t dims, double *x, double *y, bool *pruned)
{
    const tn_trial_state state = (tn_trial_state)sqlite3_column_int(q, 0);
    bool known = state == TN_TRIAL_DONE || state == TN_TRIAL_PRUNED;
    tn__numbers_read(tn__db_text(q, 1), x, dims);
    tn__numbers_read(tn__db_text(q, 2), y, p->n_objectives);
    *pruned = state == TN_TRIAL_PRUNED;
    for (size_t k = 0; k < p->n_objectives; k++) known = known && !isnan(y[k]);
    for (size_t k = 0; k < p->n_objectives; k++) y[k] = !known ? INFINITY : p->objectives[k].maximise ? -y[k] : y[k];
}

tn_status tn_lab_observed(tn_lab *lab, int64_t study, const tn_study_plan *p, size_t side, int64_t n,
                          tn_observed_store *store, tn_observed *out)
{
    const size_t dims = p->sides[side].space.n, m = p->n_objectives, wanted = (size_t)n;
    sqlite3_stmt *q;
    tn_status s = TN_OK;
    *out = (tn_observed){ .objectives = m };
    if (n <= 0) return TN_OK;
    TN_RETURN_IF(tn_grow((void **)&store->x, &store->capacity_x, wanted * dims, sizeof *store->x));
    TN_RETURN_IF(tn_grow((void **)&store->y, &store->capacity_y, wanted * m, sizeof *store->y));
    TN_RETURN_IF(tn_grow((void **)&store->pruned, &store->capacity_pruned, wanted, sizeof *store->pruned));
    if (store->n < wanted) {
        TN_RETURN_IF(tn__db_query(lab,
                                  "SELECT state, x, y FROM trial WHERE study = ?1 AND side = ?2 AND (kind = 2) = 0 AND "
                                  "number >= ?3 AND number < ?4 "
                                  "ORDER BY number",
                                  &q,
                                  TN_DB_VALUES(TN_DB_INT(study), TN_DB_INT(side), TN_DB_INT(store->n), TN_DB_INT(n))));
        while (tn__db_next(lab, q, &s)) {
            if (store->n == wanted) continue;
            read_observed(q, p, dims, store->x + store->n * dims, store->y + store->n * m, &store->pruned[store->n]);
            store->n++;
        }
        TN_RETURN_IF(s);
        if (store->n < wanted)
            return tn_error(TN_BAD_FILE, "%.640s: trials of study %s are missing", lab->path, p->name);
    }
    *out = (tn_observed){ .n = wanted, .objectives = m, .x = store->x, .y = store->y, .pruned = store->pruned };
    return TN_OK;
}
