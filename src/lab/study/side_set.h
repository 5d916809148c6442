/* A set of a study's sides, as one 64-bit number. */
#ifndef TN_LAB_SIDE_SET_H
#define TN_LAB_SIDE_SET_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tn_study_plan;

enum { TN_STUDY_SIDES = 64 }; /* at most in a study: as many as a set has bits */
typedef uint64_t tn_side_set; /* bit i: side i; 0: all of them */

static inline bool tn_side_in(tn_side_set set, size_t side) { return !set || (set >> side & 1); }
/* How many of a study's n. */
size_t tn_side_count(tn_side_set set, size_t n);
/* "ten,gpt". TN_USAGE: a name that the study does not have (with those it has), one twice, none. */
tn_status tn_side_set_parse(const struct tn_study_plan *p, const char *names, tn_side_set *out);
/* "ten, gpt" into buf, cut with "..." where it is too long. Returns buf. */
const char *tn_side_set_text(const struct tn_study_plan *p, tn_side_set set, char *buf, size_t bytes);

#endif
