/* tenon new model NAME: a folder with a small model that compiles, its test and its Makefile.
 * The text is src/cli/template/, with NAME and the @...@ of the Makefile filled in. The folder is written under another
 * name and renamed, so that it appears whole or not at all; what is there is never touched. */
#include "base/text.h"
#include "cli/cli.h"
#include "models/models.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- headers beside the running binary; asks no compiler and no pkg-config --- */

static bool holds(const char *dir, const char *header)
{
    char path[2 * TN_PATH_BYTES];
    snprintf(path, sizeof path, "%s/tenon/%s", dir, header);
    return access(path, R_OK) == 0;
}

/* dir/part without links and dots; "" when it is not there. */
static void resolve(const char *dir, const char *part, char out[TN_PATH_BYTES])
{
    char path[2 * TN_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", dir, part);
    char *real = realpath(path, NULL);
    snprintf(out, TN_PATH_BYTES, "%s", real ? real : "");
    free(real);
}

static void beside_binary(tn_headers *h)
{
    char own[TN_PATH_BYTES], above[TN_PATH_BYTES], folder[TN_PATH_BYTES];
    const ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (n <= 0) return;
    folder[n] = 0;
    snprintf(h->command, sizeof h->command, "%s", folder);
    *strrchr(folder, '/') = 0;
    resolve(folder, "include", own);
    resolve(folder, "../include", above);
    if (!holds(above, "model.h")) return;
    if (holds(above, "ops.h")) memcpy(h->dir[0], above, sizeof above);
    else if (holds(own, "ops.h")) {
        memcpy(h->dir[0], above, sizeof above);
        memcpy(h->dir[1], own, sizeof own);
    }
}

tn_status tn_headers_find(const char *given, tn_headers *out)
{
    tn_headers h = { .command = "tenon" };
    char quoted[80];
    beside_binary(&h);
    if (given) {
        if (!holds(given, "model.h") || !holds(given, "ops.h"))
            return tn_error(TN_USAGE,
                            "--include=%s has no tenon/model.h and tenon/ops.h: name the folder that `make install` "
                            "put them in, PREFIX/include",
                            tn_text_quote(given, quoted, sizeof quoted));
        resolve(given, ".", h.dir[0]);
        h.dir[1][0] = 0;
    }
    *out = h;
    return TN_OK;
}

/* --- the folder --- */

enum { LONGEST_NAME = 40 };

static const struct template_file {
    const char *name, *text;
} template[] = {
#define TN_TEMPLATE(name, text) { name, text },
#include "tenon_template.def"
#undef TN_TEMPLATE
};
enum { FILES = sizeof template / sizeof *template };

typedef struct filling {
    const char *name;
    tn_headers headers;
} filling;

static tn_status check_name(const char *name)
{
    char quoted[80];
    const size_t n = strlen(name);
    tn_text_quote(name, quoted, sizeof quoted);
    if (name[0] < 'a' || name[0] > 'z' || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != n ||
        n > LONGEST_NAME)
        return tn_error(
            TN_USAGE, "%s is not a model name: use a lower-case C identifier of at most %d characters, such as my_cell",
            quoted, LONGEST_NAME);
    if (tn_model_named(name))
        return tn_error(TN_USAGE, "the model %s already exists (`tenon presets`): choose another name", name);
    return TN_OK;
}

/* A word for the shell that runs a make recipe: quoted once for the shell, and $ and # once for make. */
static void put_path(FILE *f, const char *path)
{
    fputc('\'', f);
    for (const char *p = path; *p; p++) {
        if (*p == '\'') fputs("'\\''", f);
        else if (*p == '$') fputs("$$", f);
        else if (*p == '#') fputs("\\#", f);
        else fputc(*p, f);
    }
    fputc('\'', f);
}

static void put_flags(FILE *f, const tn_headers *h)
{
    if (!h->dir[0][0]) fputs("$(if $(TENON_INCLUDE),,$(shell pkg-config --cflags tenon))", f);
    for (int i = 0; i < 2 && h->dir[i][0]; i++) {
        fputs(i ? " -I" : "-I", f);
        put_path(f, h->dir[i]);
    }
}

static void put_text(FILE *f, const char *text, const filling *fill)
{
    static const char *const marks[] = { "NAME", "@TENON@", "@CFLAGS@" };
    while (*text) {
        size_t k = 0;
        while (k < 3 && strncmp(text, marks[k], strlen(marks[k])) != 0) k++;
        if (k == 0) fputs(fill->name, f);
        else if (k == 1) put_path(f, fill->headers.command);
        else if (k == 2) put_flags(f, &fill->headers);
        else fputc(*text, f);
        text += k < 3 ? strlen(marks[k]) : 1;
    }
}

/* "NAME_test.sh" -> "cell_test.sh"; the .mk is called Makefile. */
static void file_name(const char *pattern, const char *name, char out[128])
{
    if (strcmp(pattern, "NAME.mk") == 0) snprintf(out, 128, "Makefile");
    else snprintf(out, 128, "%s%s", name, pattern + strlen("NAME"));
}

static tn_status write_file(const char *dir, const struct template_file *t, const filling *fill)
{
    tn_status s = TN_OK;
    char name[128], path[512], *text = NULL;
    size_t bytes = 0;
    file_name(t->name, fill->name, name);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return tn_error(TN_MEMORY, "out of memory while writing %s", path);
    put_text(f, t->text, fill);
    if (fclose(f) != 0) TN_FAIL(TN_MEMORY, "out of memory while writing %s", path);
    TN_TRY(tn_file_write_atomic(path, text, bytes));
    if (strstr(name, ".sh") && chmod(path, 0755) != 0)
        TN_FAIL(TN_DISK, "cannot make %s executable: %s", path, strerror(errno));
done:
    free(text);
    return s;
}

static void remove_folder(const char *dir, const char *name)
{
    char file[128], path[512];
    for (int i = 0; i < FILES; i++) {
        file_name(template[i].name, name, file);
        snprintf(path, sizeof path, "%s/%s", dir, file);
        unlink(path);
    }
    rmdir(dir);
}

static tn_status write_folder(const filling *fill)
{
    tn_status s = TN_OK;
    char temp[128];
    struct stat info;
    if (lstat(fill->name, &info) == 0)
        return tn_error(TN_USAGE, "%s already exists; not overwritten: choose another name, or remove it", fill->name);
    snprintf(temp, sizeof temp, ".tmp-%s-%ld", fill->name, (long)getpid());
    if (mkdir(temp, 0777) != 0)
        return tn_error(TN_DISK, "cannot create a folder here: %s; change to a writable folder", strerror(errno));
    for (int i = 0; i < FILES; i++) TN_TRY(write_file(temp, &template[i], fill));
    if (rename(temp, fill->name) != 0) TN_FAIL(TN_DISK, "cannot create %s: %s", fill->name, strerror(errno));
done:
    if (s != TN_OK) remove_folder(temp, fill->name);
    return s;
}

static tn_status say(tn_cli *c, const filling *fill)
{
    const char *name = fill->name;
    char file[128];
    for (int i = 0; i < FILES; i++) {
        file_name(template[i].name, name, file);
        if (c->json)
            TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:s+++}", "name", "file", "model", name, "value", name,
                                                  "/", file, "")));
        else fprintf(c->out, "wrote  %s/%s\n", name, file);
    }
    if (c->json) return TN_OK;
    fprintf(c->out,
            "next   cd %s && make && tenon check ./%s.so\n"
            "       tenon train ./%s.so data=FILE      (any text; `make test` runs %s_test.sh)\n",
            name, name, name, name);
    if (!fill->headers.dir[0][0])
        fprintf(c->out, "note   no headers beside this binary: make asks pkg-config, or set TENON_INCLUDE=DIR\n");
    return TN_OK;
}

tn_status tn_cmd_new_model(tn_cli *c)
{
    filling fill;
    TN_RETURN_IF(tn_args_expect(&c->args, 2, 2));
    if (c->args.overrides_n) return tn_error(TN_USAGE, "new takes no settings: they are in the model's own table");
    fill.name = tn_args_positional(&c->args, 1);
    TN_RETURN_IF(check_name(fill.name));
    TN_RETURN_IF(tn_headers_find(tn_args_value(&c->args, "include"), &fill.headers));
    TN_RETURN_IF(write_folder(&fill));
    return say(c, &fill);
}
