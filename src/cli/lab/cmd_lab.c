/* tenon lab: studies of hundreds of trials. Each word is in a file of its own. */
#include "cli/lab/lab_campaign.h"
#include "cli/lab/lab_view.h"

#include <string.h>

tn_status tn_lab_objects(const tn_cli *c, size_t first)
{
    for (size_t i = first; i < c->args.positional_n; i++)
        if (!tn_word_asks(c->args.positional[i])) return tn_args_expect(&c->args, 0, i);
    return TN_OK;
}

tn_status tn_cmd_lab(tn_cli *c)
{
    static const struct {
        const char *word;
        tn_status (*run)(tn_cli *c);
    } words[] = { { "run", tn_lab_run },   { "work", tn_lab_work },     { "ls", tn_lab_ls },
                  { "show", tn_lab_show }, { "best", tn_lab_best },     { "diff", tn_lab_diff },
                  { "plot", tn_lab_plot }, { "export", tn_lab_export }, { "compare", tn_lab_compare } };
    const char *word = tn_args_positional(&c->args, 0);
    c->asked.add = ""; /* model=PATH would be every side's: a path alone only lets the study have it */
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].word, word) == 0) return words[i].run(c);
    return tn_error(TN_USAGE, "lab needs a word: tenon lab run STUDY.yaml (`tenon help lab` lists them)");
}
