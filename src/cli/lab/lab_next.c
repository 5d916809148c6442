/* What to type after a subcommand of `tenon lab`. */
#include "cli/lab/lab_view.h"
#include "cli/next.h"

#include <string.h>

/* Shared objects that the study was run with have to be named again where trials are run. */
static void add_objects(const tn_cli *c, char *text, size_t bytes)
{
    for (size_t i = 2; i < c->args.positional_n; i++) {
        const char *word = c->args.positional[i];
        const size_t n = strlen(word), used = strlen(text);
        if (!tn_word_asks(word) || used + n + 8 > bytes) continue;
        text[used] = ' ';
        tn_shell_word(word, text + used + 1, bytes - used - 1);
    }
}

void tn_lab_next(const tn_cli *c, const char *sub, const char *db, const char *study)
{
    char path[TN_PATH_BYTES], which[300] = "", objects[1024] = "", page[300], name[300] = "";
    const char *slash = strrchr(db, '/'), *file = slash ? slash + 1 : db;
    const bool own = strncmp(file, study, strlen(study)) == 0 && strcmp(file + strlen(study), ".db") == 0;
    if (!own) /* a database of another name may hold several */
        snprintf(name, sizeof name, "--study=%s", study), which[0] = ' ',
                                                          tn_shell_word(name, which + 1, sizeof which - 1);
    snprintf(name, sizeof name, "--html=%s.html", study);
    if (strcmp(sub, "compare") == 0) add_objects(c, objects, sizeof objects);
    const bool plot = strcmp(sub, "plot") == 0;
    tn_next(c, "lab %s %s%s%s%s%s", sub, tn_shell_word(db, path, sizeof path), objects, which, plot ? " " : "",
            plot ? tn_shell_word(name, page, sizeof page) : "");
}
