/* Settings as a person reads them: what a row allows, and which section of `tenon config show` it stands in. */
#ifndef TN_CLI_SETTINGS_VIEW_H
#define TN_CLI_SETTINGS_VIEW_H

#include <tenon/settings.h>

/* "cosine|wsd|constant", "on|off", "above 0 to 1", "1 to 1024 or auto" into buf; "" where that says nothing. */
const char *tn_setting_allowed(const tn_setting *row, char *buf, size_t bytes);

/* Sections in the order they are shown, i < tn_sections_n. */
extern const size_t tn_sections_n;
const char *tn_section_name(size_t i);
/* Of a key: common settings by the table of sections, others are the model's own. */
size_t tn_section_of(const char *key);
/* The section of that name, or tn_sections_n. */
size_t tn_section_named(const char *name);

#endif
