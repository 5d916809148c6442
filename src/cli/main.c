/* Entry of the command: finds the verb, sorts its arguments, runs it. The one place that prints errors and exits; the
 * exit code is the status. */
#include "cli/cli.h"
#include "cli/habits.h"
#include "cli/term.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* The usual spellings for people who do not know the verbs yet. */
static const char *verb_name(const char *arg)
{
    if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) return "help";
    if (strcmp(arg, "--version") == 0 || strcmp(arg, "-v") == 0 || strcmp(arg, "-V") == 0) return "version";
    return arg;
}

static bool wants_help(const tn_cli *c) { return tn_args_flag(&c->args, "help") || c->verb->run == tn_cmd_help; }

static bool writes_text(const tn_cli *c)
{
    return c->verb->run == tn_cmd_sample || c->verb->run == tn_cmd_chat ||
           (c->sub && c->sub->run == tn_cmd_wire_decode);
}

/* Messages are bytes. Whoever writes them refuses a terminal. */
static bool writes_bytes(const tn_cli *c) { return c->sub && c->sub->run == tn_cmd_wire_encode; }

/* JSON has escapes of its own, and a text that was asked for goes into a file as it is. */
static bool exact_output(const tn_cli *c)
{
    return c->json || ((writes_text(c) || writes_bytes(c)) && !wants_help(c) && !isatty(STDOUT_FILENO));
}

/* Help fits 80 columns also in a pipe; what other programs read is never folded. */
static void choose_folding(const tn_cli *c)
{
    static tn_status (*const exact[])(tn_cli *) = { tn_complete_script,   tn_complete_query, tn_lab_export,
                                                    tn_cmd_config_schema, tn_cmd_wire_text,  tn_cmd_wire_encode };
    const bool help = wants_help(c);
    if (help) tn_term_fold(c->out, TN_FOLD_ALWAYS);
    else if (writes_text(c)) tn_term_fold(c->out, TN_FOLD_TEXT);
    for (size_t i = 0; !help && c->sub && i < sizeof exact / sizeof *exact; i++)
        if (c->sub->run == exact[i]) tn_term_fold(c->out, TN_FOLD_NEVER);
}

static tn_status run_verb(tn_cli *c, int argc, char **argv)
{
    tn_status s = TN_OK;
    size_t n;
    TN_TRY(tn_verb_find(verb_name(argv[1]), &c->verb));
    c->argc = argc - 2;
    c->argv = argv + 2;
    const tn_flag_row *flags = tn_verb_flags(c->verb, &n);
    TN_TRY(tn_args_parse(&c->args, c->argc, c->argv, flags, n));
    const tn_status found = tn_sub_find(c->verb, tn_args_positional(&c->args, 0), &c->sub);
    c->args.usage = c->sub ? c->sub->usage : c->verb->usage;
    c->user = (tn_user_args){ .word = c->args.words, .n = c->args.positional_n + c->args.overrides_n };
    c->json = tn_args_flag(&c->args, "json");
    if (!exact_output(c)) c->out = tn_term_plain(stdout);
    choose_folding(c);
    if (tn_args_flag(&c->args, "help"))
        tn_verb_help(c->verb, c->sub, c->sub ? NULL : tn_args_positional(&c->args, 0), c->out);
    else {
        TN_TRY(found);
        TN_TRY(tn_cli_check_flags(c));
        TN_TRY(tn_cli_check_outputs(c));
        TN_TRY(c->sub ? c->sub->run(c) : c->verb->run(c));
    }
    errno = 0;
    tn_term_flush(c->out);
    if (fflush(c->out) != 0 || ferror(c->out) || fflush(stdout) != 0 || ferror(stdout))
        TN_FAIL(TN_DISK, "cannot write to standard output: %s",
                strerror(tn_term_errno(c->out) ? tn_term_errno(c->out) : errno));
done:
    tn_args_free(&c->args);
    return s;
}

/* Whoever presses Ctrl-C has made no error. What can be resumed is resumed by the same command, but for --fresh. */
static void print_stopped(const tn_cli *c, const char *text, tn_arena *arena, int argc, char **argv)
{
    const char *rerun = strstr(text, ": rerun this command to resume");
    const char **words = tn_arena_alloc(arena, sizeof *words * (size_t)argc);
    size_t n = 0;
    for (int i = 1; words && i < argc; i++)
        if (strcmp(argv[i], "--fresh") != 0) words[n++] = argv[i];
    const char *command = words && rerun ? tn_command_text(arena, n, words) : NULL;
    if (!command) fprintf(c->err, "stopped: %s\n", text);
    else fprintf(c->err, "stopped: %.*s; to resume: %s\n", (int)(rerun - text), text, command);
}

/* A word that is wrong leads to the whole command that was meant. */
static void print_error(const tn_cli *c, tn_status s, int argc, char **argv)
{
    char text[4096];
    tn_arena arena = { 0 };
    snprintf(text, sizeof text, "%s", tn_error_text()); /* looking for the hint makes errors of its own */
    const char *hint = s == TN_USAGE || s == TN_BAD_FILE ? tn_habits_hint(&arena, text, argc, argv) : NULL;
    if (s == TN_INTERRUPTED) print_stopped(c, text, &arena, argc, argv);
    else fprintf(c->err, "error: %s\n", hint ? hint : text);
    tn_arena_free(&arena);
}

int main(int argc, char **argv)
{
    tn_cli c = { .program = strchr(argv[0] ? argv[0] : "", '/') ? argv[0] : "tenon",
                 .out = stdout,
                 .err = tn_term_plain(stderr) };
    if (argc < 2) {
        tn_term_fold(c.err, TN_FOLD_ALWAYS);
        tn_verb_help(NULL, NULL, NULL, c.err);
        return TN_USAGE;
    }
    signal(SIGXFSZ,
           SIG_IGN); /* a limit on the size of files (ulimit -f) is an error of the write, not the end of the process */
    const tn_status s = run_verb(&c, argc, argv);
    if (s == TN_OK) return TN_OK;
    tn_term_flush(c.out); /* results before the error, also where both go to one file */
    fflush(stdout);
    print_error(&c, s, argc, argv);
    if (s == TN_INTERNAL) fprintf(c.err, "This is a bug in Tenon (%s): please report it.\n", tn_error_where());
    return (int)s;
}
