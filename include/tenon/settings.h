/* The settings table: one row per key (type, default, range, unit, help), and the values a run resolves from it.
 *
 * A module or a model declares its rows with the macros below and hands them to tn_settings_add; YAML files,
 * key=value overrides, help, completion, schemas and search spaces all read the same rows. A value is always set as
 * text, with its source; it is checked then, so a getter cannot fail. The rows are borrowed: they outlive the table.
 *
 *     static const tn_setting rows[] = {
 *         TN_SETTING_FLOAT("train.lr", "1e-3", TN_RANGE_LO_OPEN(0, 1), "", "peak learning rate"),
 *         TN_SETTING_SWITCH("opt.scan", "on", "blocked parallel scan (off: one step per token)"),
 *     };
 */
#ifndef TENON_SETTINGS_H
#define TENON_SETTINGS_H

#include <tenon/status.h>

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef TN_PRINTF
#if defined(__GNUC__)
#define TN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TN_PRINTF(fmt, args)
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tn_setting_type {
    TN_TYPE_INT = 0,        /* 64, 1e6, 64k, 1.5M: must be whole and fit 64 bits */
    TN_TYPE_FLOAT = 1,      /* finite decimal number */
    TN_TYPE_BOOL = 2,       /* true or false */
    TN_TYPE_SWITCH = 3,     /* on or off: the opt.* kind */
    TN_TYPE_TEXT = 4,       /* any UTF-8 */
    TN_TYPE_CHOICE = 5,     /* one of `choices` */
    TN_TYPE_AUTO_INT = 6,   /* an integer, or "auto", or the word in `choices` ("off"), which is 0 */
    TN_TYPE_AUTO_FLOAT = 7, /* a number, or "auto" */
    TN_TYPES = 8
} tn_setting_type;

typedef struct tn_setting {
    const char *key; /* "train.lr": lower case words, at most 8, joined by dots */
    tn_setting_type type;
    const char *value;       /* default, as text */
    double min, max;         /* numbers only; +-HUGE_VAL where there is no bound */
    bool min_open, max_open; /* the bound itself is not allowed */
    const char *choices;     /* "cosine|wsd|constant", or NULL */
    const char *unit;        /* "tokens", or "" */
    const char *help;        /* one line without a full stop */
} tn_setting;

#define TN_RANGE_ANY -HUGE_VAL, HUGE_VAL, false, false
#define TN_RANGE(lo, hi) lo, hi, false, false        /* [lo, hi] */
#define TN_RANGE_LO_OPEN(lo, hi) lo, hi, true, false /* (lo, hi] */
#define TN_RANGE_HI_OPEN(lo, hi) lo, hi, false, true /* [lo, hi) */
#define TN_RANGE_OPEN(lo, hi) lo, hi, true, true     /* (lo, hi) */
#define TN_RANGE_MIN(lo) lo, HUGE_VAL, false, false  /* lo and more */
#define TN_RANGE_ABOVE(lo) lo, HUGE_VAL, true, false /* more than lo */

/* A range is four fields of the row, so its macro may only stand where these put it. */
/* clang-format off */
#define TN_SETTING_INT(key, value, range, unit, help)      { key, TN_TYPE_INT, value, range, NULL, unit, help }
#define TN_SETTING_AUTO_INT(key, value, range, unit, help) { key, TN_TYPE_AUTO_INT, value, range, NULL, unit, help }
#define TN_SETTING_AUTO_INT_OFF(key, value, range, unit, help) { key, TN_TYPE_AUTO_INT, value, range, "off", unit, help }
#define TN_SETTING_FLOAT(key, value, range, unit, help)    { key, TN_TYPE_FLOAT, value, range, NULL, unit, help }
#define TN_SETTING_AUTO_FLOAT(key, value, range, unit, help) { key, TN_TYPE_AUTO_FLOAT, value, range, NULL, unit, help }
#define TN_SETTING_BOOL(key, value, help)            { key, TN_TYPE_BOOL, value, TN_RANGE_ANY, NULL, "", help }
#define TN_SETTING_SWITCH(key, value, help)          { key, TN_TYPE_SWITCH, value, TN_RANGE_ANY, NULL, "", help }
#define TN_SETTING_TEXT(key, value, help)            { key, TN_TYPE_TEXT, value, TN_RANGE_ANY, NULL, "", help }
#define TN_SETTING_CHOICE(key, value, choices, help) { key, TN_TYPE_CHOICE, value, TN_RANGE_ANY, choices, "", help }
/* clang-format on */

typedef struct tn_settings tn_settings;

tn_status tn_settings_new(tn_settings **out);
void tn_settings_free(tn_settings *st); /* takes NULL */
tn_status tn_settings_clone(const tn_settings *st, tn_settings **out);
void tn_settings_swap(tn_settings *a, tn_settings *b); /* contents: for changes that happen whole or not at all */

/* Adds n rows with their defaults; all or none. `owner` ("train", "ten") is named in errors. A key may exist once,
 * and may not be the section of another key (train and train.lr): YAML could not write both. */
tn_status tn_settings_add(tn_settings *st, const tn_setting *rows, size_t n, const char *owner);

/* Checks the text against the key's row and keeps it; the last value set wins. The source is what `config show` and
 * error messages quote: "preset nano", "config.yaml:7". Where a section has the key `name`, the section's own name is short
 * for it, here and in the getters: task=digits is task.name=digits. */
tn_status tn_settings_set(tn_settings *st, const char *key, const char *text, const char *source_fmt, ...)
    TN_PRINTF(4, 5);
/* "key=value" from the command line. */
tn_status tn_settings_override(tn_settings *st, const char *key_value);

/* Values by key. A key that is not in the table, or is of another type, is a mistake in the calling code: while a model is built,
 * the value is 0 (or "") and the build fails with the key, file and line. */
#define tn_settings_int(st, key)                                                                                       \
    tn_settings_int_((st), __FILE__, __LINE__, (key)) /* INT, AUTO_INT; 0 while it is auto */
#define tn_settings_is_auto(st, key) tn_settings_is_auto_((st), __FILE__, __LINE__, (key))
#define tn_settings_float(st, key)                                                                                     \
    tn_settings_float_((st), __FILE__, __LINE__, (key)) /* FLOAT, AUTO_FLOAT; 0 while it is auto */
#define tn_settings_on(st, key) tn_settings_on_((st), __FILE__, __LINE__, (key)) /* SWITCH, BOOL */
#define tn_settings_choice(st, key)                                                                                    \
    tn_settings_choice_((st), __FILE__, __LINE__, (key)) /* CHOICE: its place among them, from 0 */
#define tn_settings_text(st, key)                                                                                      \
    tn_settings_text_((st), __FILE__, __LINE__, (key)) /* any type, canonical; until the next set */
#define tn_settings_source(st, key) tn_settings_source_((st), __FILE__, __LINE__, (key))
int64_t tn_settings_int_(const tn_settings *st, const char *file, int line, const char *key);
bool tn_settings_is_auto_(const tn_settings *st, const char *file, int line, const char *key);
double tn_settings_float_(const tn_settings *st, const char *file, int line, const char *key);
bool tn_settings_on_(const tn_settings *st, const char *file, int line, const char *key);
int tn_settings_choice_(const tn_settings *st, const char *file, int line, const char *key);
const char *tn_settings_text_(const tn_settings *st, const char *file, int line, const char *key);
const char *tn_settings_source_(const tn_settings *st, const char *file, int line, const char *key);

/* All keys in the order they were added, i < count. */
size_t tn_settings_count(const tn_settings *st);
const tn_setting *tn_settings_row_at(const tn_settings *st, size_t i);
const char *tn_settings_owner_at(const tn_settings *st, size_t i);
const char *tn_settings_source_at(const tn_settings *st, size_t i);
const char *tn_settings_written_at(const tn_settings *st, size_t i); /* the text as somebody wrote it: 64k */
const char *tn_settings_text_at(const tn_settings *st, size_t i);    /* the canonical text: 64000 */
/* Index of a key, or count when there is none. */
size_t tn_settings_find(const tn_settings *st, const char *key);
/* Whether some key lies below `path`: train is a section when train.lr is a key. */
bool tn_settings_is_section(const tn_settings *st, const char *path);

/* "int", "float", ... for output. */
const char *tn_setting_type_name(tn_setting_type type);

#ifdef __cplusplus
}
#endif
#endif
