/* Tests only: whether a text is well-formed XML as these charts write it, and has no number that is none. Header only. */
#ifndef TN_REPORT_XML_CHECK_H
#define TN_REPORT_XML_CHECK_H

#include "testlib.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static inline const char *xml_text(const char *s)
{
    static const char *const known[] = { "&lt;", "&gt;", "&amp;", "&quot;" };
    if (*s != '&') return s + 1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(s, known[i], strlen(known[i])) == 0) return s + strlen(known[i]);
    fail_msg("a bare & at \"%.40s\"", s);
    return s + 1;
}

/* An attribute after its blank: name="value", with no < and no bare & within. */
static inline const char *xml_attribute(const char *s)
{
    const char *const from = s;
    while (isalnum((unsigned char)*s) || *s == '-' || *s == ':') s++;
    if (s == from || s[0] != '=' || s[1] != '"') fail_msg("no attribute at \"%.40s\"", from);
    for (s += 2; *s && *s != '"'; s = xml_text(s))
        if (*s == '<' || strncmp(s, "nan", 3) == 0 || strncmp(s, "inf", 3) == 0)
            fail_msg("in an attribute: \"%.40s\"", from);
    if (!*s) fail_msg("an attribute does not end: \"%.40s\"", from);
    return s + 1;
}

static inline void assert_xml(const char *s)
{
    enum { DEPTH = 16 };
    struct {
        const char *name;
        size_t n;
    } open[DEPTH];
    int depth = 0, roots = 0;
    while (*s) {
        if (*s != '<') {
            if (!depth && !isspace((unsigned char)*s)) fail_msg("text outside: \"%.40s\"", s);
            s = xml_text(s);
            continue;
        }
        const bool close = s[1] == '/';
        const char *const name = s += 1 + close;
        while (isalnum((unsigned char)*s)) s++;
        const size_t n = (size_t)(s - name);
        if (!n) fail_msg("no tag: \"%.40s\"", name - 1);
        if (close) {
            if (!depth-- || open[depth].n != n || strncmp(open[depth].name, name, n) != 0 || *s++ != '>')
                fail_msg("not the tag that is open: \"%.40s\"", name);
            continue;
        }
        while (*s == ' ') s = xml_attribute(s + 1);
        roots += depth == 0;
        if (s[0] == '/' && s[1] == '>') s += 2;
        else if (*s++ == '>' && depth < DEPTH) open[depth].name = name, open[depth++].n = n;
        else fail_msg("a tag does not end: \"%.40s\"", name);
    }
    if (depth || roots != 1) fail_msg("%d tags are open at the end, %d roots", depth, roots);
}

#endif
