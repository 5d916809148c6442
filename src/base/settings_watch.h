/* Mistakes of code that reads settings. In Tenon's own code a getter that is asked for a key no table has is a bug, and stops. While code
 * of somebody else runs (a model's build) it is watched: the first mistake is kept for its author instead. */
#ifndef TN_BASE_SETTINGS_WATCH_H
#define TN_BASE_SETTINGS_WATCH_H

#include <tenon/settings.h>

void tn_settings_watch(const tn_settings *st);
/* Ends the watch. TN_USAGE: the first mistake since it began, with its key, file and line. */
tn_status tn_settings_mistake(const tn_settings *st);

#endif
