/* Sets of sides: counting, parsing and printing. */
#include "lab/study/side_set.h"

#include "lab/study/study.h"

#include <stdio.h>
#include <string.h>

size_t tn_side_count(tn_side_set set, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += tn_side_in(set, i);
    return count;
}

const char *tn_side_set_text(const tn_study_plan *p, tn_side_set set, char *buf, size_t bytes)
{
    size_t at = 0;
    buf[0] = 0;
    for (size_t i = 0; i < p->n_sides; i++) {
        if (!tn_side_in(set, i)) continue;
        const int n = snprintf(buf + at, bytes - at, "%s%s", at ? ", " : "", p->sides[i].name);
        at += n > 0 ? (size_t)n : 0;
        if (at < bytes) continue;
        if (bytes > 3) memcpy(buf + bytes - 4, "...", 4);
        break;
    }
    return buf;
}

static size_t side_named(const tn_study_plan *p, const char *name, size_t length)
{
    size_t i = 0;
    while (i < p->n_sides && (strlen(p->sides[i].name) != length || memcmp(p->sides[i].name, name, length) != 0)) i++;
    return i;
}

tn_status tn_side_set_parse(const tn_study_plan *p, const char *names, tn_side_set *out)
{
    char all[1024];
    tn_side_set set = 0;
    if (!p->sides[0].name[0])
        return tn_error(TN_USAGE, "--sides=%.64s: study %s has no sides: remove --sides", names, p->name);
    tn_side_set_text(p, 0, all, sizeof all);
    for (const char *at = names;; at++) {
        const size_t length = strcspn(at, ","), i = side_named(p, at, length);
        if (!length)
            return tn_error(TN_USAGE, "--sides=%.64s: a name is missing; study %s has %s", names, p->name, all);
        if (i == p->n_sides)
            return tn_error(TN_USAGE, "--sides=%.64s: study %s has no side %.*s; it has %s", names, p->name,
                            length < 64 ? (int)length : 64, at, all);
        if (set >> i & 1) return tn_error(TN_USAGE, "--sides=%.64s names %s twice", names, p->sides[i].name);
        set |= (tn_side_set)1 << i;
        at += length;
        if (!*at) break;
    }
    *out = set;
    return TN_OK;
}
