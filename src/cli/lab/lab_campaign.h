/* Running the trials of a study: workers as processes, replaced when they die, watched until nothing is left, the time is over or somebody
 * interrupts. Shared by `lab run` and whatever else has trials to run. */
#ifndef TN_CLI_LAB_CAMPAIGN_H
#define TN_CLI_LAB_CAMPAIGN_H

#include "cli/cli.h"
#include "lab/db/trials.h"

#include <tenon/op.h>

enum { TN_CAMPAIGN_WORKERS = 1024 };

typedef struct tn_campaign {
    const tn_study_plan *plan;
    tn_lab *lab;
    int64_t study;
    int workers, lanes; /* processes, and trials that each runs at once */
    int64_t trials;     /* a side: numbers below it; 0: all */
    bool compare;       /* the other series */
    tn_side_set sides;  /* whose trials are run and counted */
    double seconds;     /* at most; 0: no limit */
    /* What became of it. */
    bool out_of_time;
    int64_t ended, planned; /* trials, over these sides */
    int64_t deaths;         /* of workers, by a signal that was not ours */
} tn_campaign;

/* TN_OK also where the time was over; TN_INTERRUPTED; or what a worker ended with. */
tn_status tn_campaign_run(tn_cli *c, tn_campaign *k);
int tn_campaign_cores(void); /* at most TN_CAMPAIGN_WORKERS */
/* How many workers and lanes, where nobody says (0): a process per core on the CPU, on a GPU, which processes cannot share well, one
 * with lanes. */
void tn_campaign_crew(const tn_study_plan *p, tn_device device, int workers, int lanes, tn_campaign *k);
/* "2 workers", "1 worker of 8 lanes" into buf. */
const char *tn_campaign_crew_text(const tn_campaign *k, char buf[64]);

/* --- watching (lab_watch.c) --- */
typedef struct tn_lab_watch tn_lab_watch;
tn_status tn_lab_watch_start(tn_cli *c, const tn_campaign *k, tn_lab_watch **out);
/* Draws how far it is, where it is time to. *ended: trials that have, over the campaign's sides. */
tn_status tn_lab_watch_look(tn_lab_watch *w, bool now, int64_t *ended);
void tn_lab_watch_end(tn_lab_watch *w); /* takes NULL */

/* Positional words from `first` on are shared objects (./cell.so) that the study's file or database may load; anything else is refused. */
tn_status tn_lab_objects(tn_cli *c, size_t first);

/* --plan: opens and times these sides; trials: of each. */
tn_status tn_lab_plan(tn_cli *c, const tn_study_plan *p, const char *db, int64_t trials, tn_side_set sides, int workers,
                      int lanes);

#endif
