/* Switches of the planner itself; those of ops are in their folders. */
#ifndef TN_PLAN_SWITCHES_H
#define TN_PLAN_SWITCHES_H

#include <tenon/settings.h>

extern const tn_setting tn_plan_switches[];
extern const size_t tn_plan_switches_n;

#endif
