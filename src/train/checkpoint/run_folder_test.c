/* Which names in a run's folder are the run's own. */
#include "train/checkpoint/run_folder.h"

#include "testlib.h"

#include <sys/stat.h>

static const struct name_row {
    const char *name;
    mode_t mode;
    bool owned;
} name_rows[] = {
    { "config.yaml", S_IFREG, true },
    { "config.yaml", S_IFLNK, false },
    { "memory.csv", S_IFREG, true },
    { "latest", S_IFLNK, true },
    { "latest", S_IFDIR, false },
    { "step-12", S_IFDIR, true },
    { "step-12", S_IFLNK, false },
    { "step-012", S_IFDIR, false },
    { "step--1", S_IFDIR, false },
    { "step-99999999999999999999", S_IFDIR, false },
    { "step-12/model.safetensors", S_IFREG, true },
    { "step-12/model.safetensors", S_IFLNK, false },
    { "step-12/.tmp-state.json-17", S_IFREG, true },
    { "step-12/notes.txt", S_IFREG, false },
    { "step-12/old", S_IFDIR, false },
    { "old", S_IFDIR, true },
    { "old", S_IFLNK, false },
    { "old/step-3", S_IFDIR, true },
    { "old/step-3/state.json", S_IFREG, true },
    { "old/config.yaml", S_IFREG, true },
    { "old/photo.jpg", S_IFREG, false },
    { "old/old", S_IFDIR, false },
    { ".tmp-step-3-99", S_IFDIR, true },
    { ".tmp-step-3-99/manifest.json", S_IFREG, true },
    { ".tmp-step-3-99/config.yaml", S_IFREG, false },
    { ".tmp-old-step-3-99", S_IFDIR, true },
    { ".tmp-old-step-3-99/state.json", S_IFREG, true },
    { ".tmp-old-99/step-3/state.json", S_IFREG, true },
    { ".tmp-best-99", S_IFLNK, true },
    { ".tmp-best-99", S_IFIFO, false },
    { ".tmp-notes", S_IFDIR, false },
    { ".tmp-notes-99", S_IFREG, false },
    { "notes.txt", S_IFREG, false },
};

static void names(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof name_rows / sizeof *name_rows; i++)
        if (tn_run_owns(name_rows[i].name, name_rows[i].mode) != name_rows[i].owned) fail_msg("%s", name_rows[i].name);
}

void tn_tests_run_folder(tn_test_list *l) { tn_test_add(l, names, NULL, "run: names it owns"); }
