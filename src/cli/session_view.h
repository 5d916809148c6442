/* A session in words. */
#ifndef TN_CLI_SESSION_VIEW_H
#define TN_CLI_SESSION_VIEW_H

#include "train/run/session.h"

#include <stdio.h>

/* "device ...", "model ...", "memory ..." lines of the session. */
void tn_session_describe(tn_session *s, FILE *f);
void tn_session_describe_halving(const tn_session *s, FILE *f);
/* "8.4 M" */
const char *tn_count_text(double n, char buf[16]);

#endif
