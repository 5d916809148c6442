/* Processes that run trials. Each is this program again (`lab work`), in a process group of its own: a Ctrl-C reaches this process alone,
 * which asks each worker once to save and stop. A worker whose parent is gone stops too. */
#include "cli/lab/lab_campaign.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/train/train_view.h"
#include "lab/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const double SPEND_S = 5, SAVE_S = 60, GRACE_S = 10;
enum { POLL_MS = 50, FRUITLESS = 200 };

typedef struct process {
    pid_t pid; /* 0: none */
    int err;   /* its standard error, read here; -1 */
    char said[1024];
    size_t n;
} process;

/* A trial that runs, and since when by our own clock: the one its worker wrote down is the wall's, which is stepped. */
typedef struct held {
    int64_t trial;
    int attempt;
    double since;
} held;

typedef struct crew {
    tn_cli *c;
    tn_campaign *k;
    process *p; /* (k->workers) */
    bool stopping;
    int fruitless; /* deaths since a trial ended */
    int64_t ended;
    tn_status status; /* that a worker ended with */
    char error[1024];
    double begun, spent_at;
    held *seen; /* trials that ran when last looked at */
    size_t n_seen;
} crew;

void tn_campaign_crew(const tn_study_plan *p, tn_device device, int workers, int lanes, tn_campaign *k)
{
    const int64_t limit = k->compare ? 0 : tn_study_at_once(p, k->sides),
                  most = limit > 0 ? limit : TN_CAMPAIGN_WORKERS; /* more would wait for each other */
    const int64_t usual = device != TN_CUDA ? 1 : most < TN_WORKER_GPU_LANES ? most : TN_WORKER_GPU_LANES;
    const int64_t cores = tn_campaign_cores() < most ? tn_campaign_cores() : most;
    k->lanes = lanes ? lanes : p->lanes ? (int)p->lanes : (int)usual;
    k->workers = workers ? workers : device == TN_CUDA ? 1 : (int)((cores + k->lanes - 1) / k->lanes);
}

tn_status tn_lab_objects(tn_cli *c, size_t first)
{
    c->user.add = ""; /* model=PATH would be every side's: a path alone only lets the study have it */
    for (size_t i = first; i < c->args.positional_n; i++)
        if (!tn_word_asks(c->args.positional[i])) return tn_args_expect(&c->args, 0, i);
    return TN_OK;
}

const char *tn_campaign_crew_text(const tn_campaign *k, char buf[64])
{
    const int n = snprintf(buf, 64, "%d worker%s", k->workers, k->workers == 1 ? "" : "s");
    if (k->lanes > 1) snprintf(buf + n, (size_t)(64 - n), " of %d lanes", k->lanes);
    return buf;
}

int tn_campaign_cores(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > TN_CAMPAIGN_WORKERS ? TN_CAMPAIGN_WORKERS : (int)n;
}

/* --- one process ------------------------------------------------------------------------------------------------------ */

/* What a worker is called with; shared objects that were asked for here are asked for there, since its study comes from the database. */
static tn_status worker_words(const tn_campaign *k, tn_arena *arena, const char ***out)
{
    const tn_user_args none = { 0 }, *user = k->plan->user ? k->plan->user : &none;
    size_t n = 0;
    const char **argv = tn_arena_alloc(arena, (user->n + 10) * sizeof *argv);
    const char *trials = tn_arena_printf(arena, "%lld", (long long)k->trials),
               *lanes = tn_arena_printf(arena, "%d", k->lanes),
               *sides = tn_arena_printf(arena, "%llu", (unsigned long long)k->sides);
    if (!argv || !trials || !lanes || !sides) return tn_error(TN_MEMORY, "out of memory");
    const char *const words[] = {
        "tenon", "lab", "work", tn_lab_path(k->lab), k->plan->name, trials, k->compare ? "compare" : "search",
        lanes,   sides
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) argv[n++] = words[i];
    for (size_t i = 0; i < user->n; i++)
        if (tn_word_asks(user->word[i])) argv[n++] = user->word[i];
    argv[n] = NULL;
    *out = argv;
    return TN_OK;
}

static void become_worker(const char *const *argv, int err, pid_t parent)
{
    const int null = open("/dev/null", O_RDWR);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || null < 0) _exit(TN_INTERRUPTED);
    dup2(null, 0);
    dup2(null, 1);
    dup2(err, 2);
    execv("/proc/self/exe", (char *const *)argv);
    _exit(127);
}

static tn_status start(crew *w, process *p)
{
    int ends[2];
    const pid_t parent = getpid();
    const char **argv = NULL;
    tn_arena arena = { 0 };
    TN_RETURN_IF(worker_words(w->k, &arena, &argv));
    if (pipe(ends) != 0)
        return tn_arena_free(&arena), tn_error(TN_MEMORY, "cannot start a worker: %s", strerror(errno));
    fcntl(ends[0], F_SETFD, FD_CLOEXEC); /* other workers must not hold it open */
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    const pid_t pid = fork();
    if (pid == 0) become_worker(argv, ends[1], parent);
    tn_arena_free(&arena);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return tn_error(TN_MEMORY, "cannot start a worker: %s; use fewer with --workers=N", strerror(errno));
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *p = (process){ .pid = pid, .err = ends[0] };
    return TN_OK;
}

static void listen_to(process *p)
{
    while (p->err >= 0) {
        if (p->n + 1 == sizeof p->said) { /* the last words count */
            p->n /= 2;
            memmove(p->said, p->said + sizeof p->said / 2, p->n);
        }
        const ssize_t n = read(p->err, p->said + p->n, sizeof p->said - 1 - p->n);
        if (n <= 0) break;
        p->n += (size_t)n;
        p->said[p->n] = 0;
    }
}

/* The text of an error line, or all that was said. */
static const char *last_words(process *p)
{
    char *error = strstr(p->said, "error: ");
    if (error) error += 7;
    else error = p->said;
    error[strcspn(error, "\n")] = 0;
    return error[0] ? error : "it died without an error message";
}

/* --- all of them ------------------------------------------------------------------------------------------------------ */

static void ask_all(crew *w, int signal)
{
    for (int i = 0; i < w->k->workers; i++)
        if (w->p[i].pid) kill(w->p[i].pid, signal);
    w->stopping = true;
}

static int alive(const crew *w)
{
    int n = 0;
    for (int i = 0; i < w->k->workers; i++) n += w->p[i].pid != 0;
    return n;
}

static void keep_error(crew *w, tn_status s, const char *text)
{
    if (w->status != TN_OK) return;
    w->status = s;
    snprintf(w->error, sizeof w->error, "%s", text);
}

/* What a worker that is no more leaves behind: its trial for another one, perhaps an error for all. */
static tn_status bury(crew *w, process *p, int how)
{
    char text[256];
    listen_to(p);
    close(p->err);
    const pid_t pid = p->pid;
    p->pid = 0;
    p->err = -1;
    TN_RETURN_IF(tn_lab_mark_dead(w->k->lab, pid));
    if (WIFEXITED(how) && WEXITSTATUS(how) == TN_OK) return TN_OK; /* nothing is left for it */
    if (WIFEXITED(how) && WEXITSTATUS(how) == TN_INTERRUPTED && w->stopping) return TN_OK;
    if (WIFEXITED(how)) {
        const int code = WEXITSTATUS(how);
        keep_error(w, code > 0 && code <= TN_DISK ? (tn_status)code : TN_INTERNAL, last_words(p));
        ask_all(w, SIGTERM);
        return TN_OK;
    }
    if (w->stopping) return TN_OK;
    w->k->deaths++;
    if (++w->fruitless < FRUITLESS) return start(w, p);
    snprintf(text, sizeof text, "%d workers in a row were killed by signals (the last by %d, %s) and no trial finished",
             FRUITLESS, WTERMSIG(how), strsignal(WTERMSIG(how)));
    keep_error(w, TN_INTERNAL, text);
    ask_all(w, SIGTERM);
    return TN_OK;
}

static tn_status collect(crew *w)
{
    for (int i = 0; i < w->k->workers; i++) {
        process *p = &w->p[i];
        int how;
        listen_to(p);
        if (p->pid && waitpid(p->pid, &how, WNOHANG) == p->pid) TN_RETURN_IF(bury(w, p, how));
    }
    return TN_OK;
}

static double since_of(const crew *w, const tn_claim *c, double now)
{
    for (size_t i = 0; i < w->n_seen; i++)
        if (w->seen[i].trial == c->trial && w->seen[i].attempt == c->attempt) return w->seen[i].since;
    return now;
}

static bool is_ours(const crew *w, int64_t pid)
{
    for (int i = 0; i < w->k->workers; i++)
        if (w->p[i].pid && w->p[i].pid == (pid_t)pid) return true;
    return false;
}

/* A trial that does not come to the end of a step cannot stop itself. Recorded first: what its worker still writes is then lost. */
static tn_status end_overdue(crew *w, double now)
{
    const tn_study_plan *p = w->k->plan;
    const size_t most = (size_t)w->k->workers * (size_t)w->k->lanes;
    tn_status s = TN_OK;
    size_t n = 0;
    if (!(p->trial_seconds > 0)) return TN_OK;
    tn_held *run = tn_alloc(sizeof *run * most);
    held *seen = tn_alloc(sizeof *seen * most);
    if (!run || !seen) TN_FAIL(TN_MEMORY, "out of memory");
    TN_TRY(tn_lab_held(w->k->lab, w->k->study, run, most, &n));
    for (size_t i = 0; i < n; i++) {
        const tn_claim *c = &run[i].claim;
        char text[128];
        bool lost;
        seen[i] = (held){ c->trial, c->attempt, since_of(w, c, now) };
        if (now - seen[i].since < 1.5 * p->trial_seconds + GRACE_S || !is_ours(w, run[i].pid)) continue;
        snprintf(text, sizeof text, "trial_seconds: %g; it did not stop, and its worker was killed", p->trial_seconds);
        const tn_ending e = {
            .state = TN_TRIAL_TIMEOUT, .seconds = NAN, .parameters = NAN, .seed = c->seed, .error = text
        };
        TN_TRY(tn_lab_end(w->k->lab, c, NULL, 0, &e, p->n_objectives, &lost));
        kill((pid_t)run[i].pid, SIGKILL);
        w->k->deaths--;
    }
    tn_free(w->seen);
    w->seen = seen;
    w->n_seen = n;
    seen = NULL;
done:
    tn_free(run);
    tn_free(seen);
    return s;
}

static tn_status spend(crew *w, double now)
{
    double all;
    const double since = now - w->spent_at;
    w->spent_at = now;
    return tn_lab_spend(w->k->lab, w->k->study, since, &all);
}

static tn_status watch_over(crew *w, tn_lab_watch *view)
{
    const struct timespec pause = { .tv_nsec = POLL_MS * 1000L * 1000L };
    while (alive(w)) {
        int64_t ended = w->ended;
        nanosleep(&pause, NULL);
        const double now = tn_clock_s();
        TN_RETURN_IF(collect(w));
        TN_RETURN_IF(tn_lab_watch_look(view, false, &ended));
        if (ended > w->ended) w->fruitless = 0;
        w->ended = ended;
        if (now - w->spent_at > SPEND_S) {
            TN_RETURN_IF(spend(w, now));
            TN_RETURN_IF(end_overdue(w, now));
        }
        if (w->stopping) continue;
        if (tn_interrupted(NULL)) {
            keep_error(w, TN_INTERRUPTED, "interrupted");
            ask_all(w, SIGTERM);
        } else if (w->k->seconds > 0 && now - w->begun > w->k->seconds) {
            w->k->out_of_time = true;
            ask_all(w, SIGTERM);
        }
    }
    return TN_OK;
}

/* Whatever happened, nothing of ours stays behind: they had time to save. */
static void end_all(crew *w)
{
    const struct timespec pause = { .tv_nsec = POLL_MS * 1000L * 1000L };
    const double from = tn_clock_s();
    if (alive(w)) ask_all(w, SIGTERM);
    for (bool killed = false; alive(w);) {
        for (int i = 0; i < w->k->workers; i++) {
            process *p = &w->p[i];
            listen_to(p);
            if (!p->pid || waitpid(p->pid, NULL, WNOHANG) != p->pid) continue;
            close(p->err);
            (void)tn_lab_mark_dead(w->k->lab, p->pid);
            p->pid = 0;
        }
        if (!killed && tn_clock_s() - from > SAVE_S) {
            ask_all(w, SIGKILL);
            killed = true;
        }
        nanosleep(&pause, NULL);
    }
}

tn_status tn_campaign_run(tn_cli *c, tn_campaign *k)
{
    tn_status s = TN_OK;
    tn_lab_watch *view = NULL;
    char text[1024];
    crew w = { .c = c, .k = k, .begun = tn_clock_s(), .spent_at = tn_clock_s() };
    w.p = tn_alloc(sizeof *w.p * (size_t)k->workers);
    if (!w.p) return TN_MEMORY;
    tn_interrupt_watch();
    TN_TRY(tn_lab_watch_start(c, k, &view));
    TN_TRY(tn_lab_watch_look(view, true, &w.ended));
    for (int i = 0; i < k->workers; i++) TN_TRY(start(&w, &w.p[i]));
    TN_TRY(watch_over(&w, view));
    TN_TRY(spend(&w, tn_clock_s()));
    TN_TRY(tn_lab_watch_look(view, true, &w.ended));
done:
    snprintf(text, sizeof text, "%s", tn_error_text());
    end_all(&w);
    tn_lab_watch_end(view);
    tn_free(w.p);
    tn_free(w.seen);
    k->ended = w.ended;
    if (s != TN_OK) return tn_error(s, "%s", text);
    return w.status == TN_OK ? TN_OK : tn_error(w.status, "%s", w.error);
}
