/* Files of settings: refused, or a table that written as YAML and read back is the same. */
#include "fuzz_file.h"
#include "io/yaml_settings.h"
#include "models/models.h"
#include "train/run/train_settings.h"

static tn_settings *table(void)
{
    tn_settings *st = NULL;
    const tn_model *m = NULL;
    CHECK(tn_settings_new(&st) == TN_OK && tn_settings_common(st) == TN_OK && tn_model_load("gpt", NULL, &m) == TN_OK);
    CHECK(tn_settings_add(st, m->settings, m->n_settings, m->name) == TN_OK);
    return st;
}

static void same_again(const tn_settings *st)
{
    char *text = NULL;
    size_t bytes = 0;
    tn_settings *again = table();
    FILE *f = open_memstream(&text, &bytes);
    CHECK(f && tn_settings_write_yaml(st, f) == TN_OK && fclose(f) == 0);
    CHECK(tn_settings_read_yaml_text(again, text, bytes, "again") == TN_OK);
    for (size_t i = 0; i < tn_settings_count(st); i++)
        CHECK(strcmp(tn_settings_text_at(st, i), tn_settings_text_at(again, i)) == 0);
    free(text);
    tn_settings_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    tn_settings *st = table();
    const tn_status s = tn_settings_read_yaml_text(st, (const char *)input, bytes, "fuzz");
    if (s == TN_OK) same_again(st);
    else fuzz_refused(s);
    tn_settings_free(st);
    return 0;
}
