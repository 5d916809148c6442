/* A report without measuring: what runs wrote about themselves, in their settings, their newest checkpoint and their metrics, and what
 * such a report does not have. Time and memory are bounded: no tensor is read, and of long metrics only some lines. */
#ifndef TN_REPORT_RECORDED_H
#define TN_REPORT_RECORDED_H

#include "report/curves.h"
#include "report/run_time.h"
#include "train/run/run_info.h"

#define TN_RECORDED_LEAD "What was recorded during training. Nothing was measured now."

enum {
    TN_RECORDED_RUNS = 2,
    TN_RECORDED_NUMBERS = 24,
    TN_RECORDED_PARTS = 64,
    TN_RECORDED_SETTINGS = 16,
    TN_RECORDED_MISSING = 16
};

/* Beside each other for both runs; NaN: not known. */
typedef struct tn_recorded_number {
    const char *name, *unit;
    double value[TN_RECORDED_RUNS];
} tn_recorded_number;

/* Of steps that the run timed itself (log.level=performance), all layers together. */
typedef struct tn_recorded_part {
    const char *name;
    double forward_ms, backward_ms; /* NaN: it has no such part */
} tn_recorded_part;

/* Also beside each other; "": not set, or not known. */
typedef struct tn_recorded_setting {
    const char *key, *value[TN_RECORDED_RUNS];
} tn_recorded_setting;

typedef struct tn_recorded_run {
    const char *name;    /* its folder, as it was typed */
    const char *version; /* of the tenon that wrote its checkpoint, or NULL */
    tn_run_info info;
    bool timed; /* `time` is known */
    tn_run_time time;
    tn_recorded_part part[TN_RECORDED_PARTS]; /* the longest first */
    size_t n_parts;
} tn_recorded_run;

typedef struct tn_recorded_missing {
    const char *what, *why; /* why: with what to do about it */
} tn_recorded_missing;

typedef struct tn_recorded {
    const char *title;
    tn_recorded_run run[TN_RECORDED_RUNS];
    tn_recorded_number number[TN_RECORDED_NUMBERS];
    tn_recorded_setting setting[TN_RECORDED_SETTINGS];
    tn_recorded_missing missing[TN_RECORDED_MISSING];
    size_t n, n_numbers, n_settings, n_missing;
    tn_curves curves; /* n 0: there is none to draw */
} tn_recorded;

/* runs (n): folders. why: what kept them from being measured, or NULL: nobody wanted it. What cannot be read is missing, no error; all
 * texts are in `arena`. TN_MEMORY. */
tn_status tn_recorded_read(const char *const *runs, size_t n, const char *why, tn_arena *arena, tn_recorded *out);

tn_status tn_recorded_text(const tn_recorded *r, FILE *out); /* Markdown. TN_DISK */
tn_status tn_recorded_page(const tn_recorded *r, FILE *out); /* one HTML page. TN_DISK, TN_MEMORY */

/* "r1: gpt_tiny, step 40 of 100, stopped; written by tenon 0.2.0" */
enum { TN_RECORDED_TEXT = 640 };
const char *tn_recorded_about(const tn_recorded_run *r, char buf[TN_RECORDED_TEXT]);

#endif
