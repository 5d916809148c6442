/* Sessions and metrics in words, and metrics as JSON Lines, by their rows. */
#ifndef TN_CLI_VIEW_H
#define TN_CLI_VIEW_H

#include "base/text.h"
#include "cli/cli.h"
#include "cli/term.h"
#include "report/chart/plot.h"
#include "train/run/metric_rows.h"
#include "train/run/session.h"
#include "train/run/weights_load.h"

/* "device ...", "model ...", "memory ..." lines of the session. */
void tn_session_describe(tn_session *s, FILE *f);
/* The lines about the memory ladder from number `from` on. */
void tn_session_describe_ladder(const tn_session *s, size_t from, FILE *f);
/* Says what quantised matrices of a file become in memory; nothing where there are none. */
void tn_cli_expanded(tn_cli *c, const char *file, const tn_matrices *m);
/* "12.3 MB" */
const char *tn_bytes_text(double bytes, char buf[24]);

/* "1.2345" with 4 decimals; three significant digits where fewer would be left of a small one: "0.000412", "4.12e-05". "NaN" without a sign. */
const char *tn_score_text(double x, int decimals, char buf[24]);

/* "1.2345 nats per token, 1.7810 bits per byte", or briefly "1.2345 nats (1.781 bits per byte)"; others behind it: ", NAME 0.9765 (8 0.9990,
 * 16 0.9531)". counts: what was counted (tn_metric_counts). Those that are not known are left out. */
void tn_scores_print(FILE *f, const tn_metric_list *l, const tn_scores *s, const char *counts, bool brief);
/* A line for each that is known: "LEADNAME", its value and unit; with its split where one is given. */
tn_status tn_scores_emit(tn_cli *c, const tn_metric_list *l, const tn_scores *s, const char *lead, const char *counts,
                         const char *split);
/* "nats/token": of a metric, or "" */
const char *tn_score_unit(const tn_metric_row *r, const char *counts, char buf[40]);
/* Of one of the first metric's unit, in what is shown: bits per byte, or per token where bytes are not known; 1 where it is no nat. */
double tn_score_scale(const tn_metric_list *l, double bits);
/* "bits per byte", "bits per token", or the metric's own name and unit. */
const char *tn_score_axis(const tn_metric_list *l, double bits, char buf[64]);

/* A chart of that many rows for the terminal: its width, at most 100 columns, its colours and characters. */
void tn_chart_fit(tn_plot *p, const tn_term *t, int rows);

#endif
