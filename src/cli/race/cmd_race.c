/* tenon race: trains several configurations on the same data with the same seed, one after the other, equal in steps, tokens or
 * seconds and, if asked, in parameters, and compares them. Keeps a run of each. Stopped early, it shows what it has. */
#include "cli/race/race.h"

static tn_status run_all(tn_race *r)
{
    TN_RETURN_IF(tn_race_prepare(r));
    TN_RETURN_IF(tn_race_keep(r));
    tn_interrupt_watch();
    tn_status s = TN_OK, shown;
    size_t n = 0;
    while (s == TN_OK && n < r->n) s = tn_race_run(r, &r->racer[n++]);
    if (!tn_race_chosen(&r->racer[0])) return s;
    char text[1024]; /* showing must not lose why it ended */
    snprintf(text, sizeof text, "%s", s == TN_OK ? "" : tn_error_text());
    shown = tn_race_show(r);
    return s == TN_OK ? shown : tn_error(s, "%s", text);
}

tn_status tn_cmd_race(tn_cli *c)
{
    tn_race r;
    tn_status s = tn_race_read(c, &r);
    if (s == TN_OK) s = run_all(&r);
    tn_race_free(&r);
    return s;
}
