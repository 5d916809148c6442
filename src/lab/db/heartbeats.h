/* Which workers are alive, by watching: a heart whose beat has not changed for a while of our own monotonic clock is dead. What the wall clock says,
 * there or here, decides nothing by itself: it is stepped, and databases move between machines. */
#ifndef TN_LAB_HEARTBEATS_H
#define TN_LAB_HEARTBEATS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TN_LAB_STALE_S = 60, /* unchanged for so long: dead */
    TN_LAB_DOUBT_S = 15, /* unchanged for so long, and more than TN_LAB_STALE_S old by the wall clock: dead as well */
    TN_LAB_LOOK_S = 1    /* between looks */
};

typedef struct tn_heartbeat {
    int64_t worker;
    double beat, since; /* as it is in the table; ours when it was first seen so */
} tn_heartbeat;

typedef struct tn_heartbeats {
    tn_heartbeat *seen;
    size_t n, capacity;
    double looked; /* when; valid where `begun` */
    bool begun;
    double (*clock_s)(void); /* monotonic; a test has its own */
} tn_heartbeats;

struct tn_lab;
/* Looks at all hearts, unless that was done a moment ago; workers that are dead are marked as gone. One that beats again is alive again. */
tn_status tn__heartbeats_watch(struct tn_lab *lab);

#endif
