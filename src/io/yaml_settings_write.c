/* Writes settings files: keys grouped into nested maps in table order, canonical values, sources as comments. Texts are
 * quoted unless clearly safe, so that any YAML reader takes them as text. */
#include "io/yaml_settings.h"

#include "base/status.h"
#include "base/text.h"

#include <errno.h>
#include <string.h>

enum { COMMENT_COLUMN = 36 };

/* Words such as no, null or 1.5 would change type in other readers: only letters and a few marks stay unquoted. */
static bool text_is_plain(const char *s)
{
    static const char *const words[] = { "true", "false", "yes", "no", "on", "off", "null", "y", "n" };
    const size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-");
    const bool letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z');
    if (!letter || s[n]) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t k = 0; /* ASCII only, whatever the locale */
        while (s[k] && (s[k] | 32) == words[i][k]) k++;
        if (!s[k] && !words[i][k]) return false;
    }
    return true;
}

/* Double quotes, with escapes for what YAML does not allow or would fold. The text is UTF-8: the table saw to it. */
static int write_quoted(const char *s, FILE *f)
{
    int used = fprintf(f, "\"");
    uint32_t c = 0;
    for (size_t n; (n = tn_utf8_decode(s, &c)) > 0; s += n) {
        const bool fold = c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffe || c == 0xffff;
        if (c == '"' || c == '\\') used += fprintf(f, "\\%c", (int)c);
        else if (c < 0x20 || (c >= 0x7f && c < 0xa0)) used += fprintf(f, "\\x%02x", (unsigned)c);
        else if (fold) used += fprintf(f, "\\u%04x", (unsigned)c);
        else used += fprintf(f, "%.*s", (int)n, s);
    }
    return used + fprintf(f, "\"");
}

static void write_leaf(const tn_settings *st, size_t i, const char *word, int indent, FILE *f)
{
    const tn_setting *row = tn_settings_row_at(st, i);
    const char *text = tn_settings_text_at(st, i);
    int used = fprintf(f, "%*s%s: ", indent, "", word);
    used += row->type == TN_TYPE_TEXT && !text_is_plain(text) ? write_quoted(text, f) : fprintf(f, "%s", text);
    const int gap = COMMENT_COLUMN - used;
    fprintf(f, "%*s# %s\n", gap > 2 ? gap : 2, "", tn_settings_source_at(st, i));
}

/* The keys below the first n bytes of `prefix` ("train." or nothing), each section once, where its first key stands. */
static void write_section(const tn_settings *st, const char *prefix, size_t n, int indent, FILE *f)
{
    const size_t count = tn_settings_count(st);
    for (size_t i = 0; i < count; i++) {
        const char *key = tn_settings_row_at(st, i)->key;
        if (strncmp(key, prefix, n) != 0) continue;
        const size_t word = strcspn(key + n, ".");
        if (!key[n + word]) {
            write_leaf(st, i, key + n, indent, f);
            continue;
        }
        bool earlier = false;
        for (size_t j = 0; j < i && !earlier; j++)
            earlier = strncmp(tn_settings_row_at(st, j)->key, key, n + word + 1) == 0;
        if (earlier) continue;
        fprintf(f, "%*s%.*s:\n", indent, "", (int)word, key + n);
        write_section(st, key, n + word + 1, indent + 2, f);
    }
}

tn_status tn_settings_write_yaml(const tn_settings *st, FILE *f)
{
    errno = 0;
    write_section(st, "", 0, 0, f);
    if (fflush(f) != 0 || ferror(f)) return tn_error(TN_DISK, "cannot write the settings: %s", strerror(errno));
    return TN_OK;
}
