/* Which workers are alive. */

#include "base/alloc.h"
#include "lab/db/db.h"

#include <string.h>

static tn_status find(tn_heartbeats *h, int64_t worker, tn_heartbeat **out)
{
    size_t i = 0;
    while (i < h->n && h->seen[i].worker != worker) i++;
    if (i == h->n) {
        TN_RETURN_IF(tn_grow((void **)&h->seen, &h->capacity, h->n + 1, sizeof *h->seen));
        h->seen[h->n++] = (tn_heartbeat){ .worker = worker, .beat = -1 };
    }
    *out = &h->seen[i];
    return TN_OK;
}

static bool is_dead(const tn_heartbeat *heartbeat, double now, double unix_now)
{
    const double still = now - heartbeat->since;
    return still >= TN_LAB_STALE_S || (still >= TN_LAB_DOUBT_S && unix_now - heartbeat->beat >= TN_LAB_STALE_S);
}

/* Only if it has not beaten in the meantime. */
static tn_status mark_dead(tn_lab *lab, const tn_heartbeat *heartbeat)
{
    return tn__db_do(lab, "UPDATE worker SET gone = 1 WHERE id = ? AND beat = ?",
                     TN_DB_VALUES(TN_DB_INT(heartbeat->worker), TN_DB_NUM(heartbeat->beat)));
}

/* `seen` keeps those that are in the table: workers come and go for as long as a study runs. */
static tn_status look(tn_lab *lab, double now)
{
    tn_heartbeats *h = &lab->heartbeats;
    sqlite3_stmt *q;
    size_t kept = 0;
    tn_status s = TN_OK;
    TN_RETURN_IF(tn__db_get(lab, "SELECT id, beat FROM worker WHERE gone = 0", &q));
    while (tn__db_next(lab, q, &s)) {
        tn_heartbeat *heartbeat;
        s = find(h, sqlite3_column_int64(q, 0), &heartbeat);
        if (s != TN_OK) continue;
        const double beat = sqlite3_column_double(q, 1);
        if (beat != heartbeat->beat) heartbeat->beat = beat, heartbeat->since = now;
        const tn_heartbeat t = *heartbeat; /* to the front, where this look's are */
        *heartbeat = h->seen[kept];
        h->seen[kept++] = t;
    }
    if (s == TN_OK) h->n = kept;
    return s;
}

tn_status tn__heartbeats_watch(tn_lab *lab)
{
    tn_heartbeats *h = &lab->heartbeats;
    const double now = h->clock_s(), unix_now = tn__unix_s();
    if (h->begun && now - h->looked < TN_LAB_LOOK_S) return TN_OK;
    TN_RETURN_IF(look(lab, now));
    h->begun = true;
    h->looked = now;
    for (size_t i = 0; i < h->n; i++)
        if (is_dead(&h->seen[i], now, unix_now)) TN_RETURN_IF(mark_dead(lab, &h->seen[i]));
    return TN_OK;
}
