/* One value of the settings table: from text to a checked number, word or switch. Knows types, ranges and messages;
 * knows nothing of keys' neighbours, files or sources beyond the words it is told to quote. */
#ifndef TN_BASE_SETTING_VALUE_H
#define TN_BASE_SETTING_VALUE_H

#include <tenon/settings.h>

typedef struct tn_setting_value {
    int64_t i;
    double f;
    bool on, is_auto;
    char canonical
        [32]; /* numbers, "auto", "on"; empty for TEXT and CHOICE, whose text is canonical as it stands (but for aliases) */
} tn_setting_value;

/* TN_USAGE with a one-line message that ends in "  (source)"; *out is untouched then. */
tn_status tn_setting_parse(const tn_setting *row, const char *text, const char *source, tn_setting_value *out);

#endif
