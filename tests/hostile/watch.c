/* Runs a command with a time limit and says how it ended: `watch SECONDS REPORT COMMAND ...` writes "exit N", "signal N" or
 * "time" and the largest resident set of the command and its children in KiB. A program of its own, because a child begins
 * with the memory of whoever forked it, and Python's is larger than what is measured. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child;
static volatile sig_atomic_t late;

static void stop(int sig)
{
    (void)sig;
    late = 1;
    kill(-child, SIGKILL);
}

int main(int argc, char **argv)
{
    struct rusage use = { 0 };
    int status = 0;
    if (argc < 4 || (child = fork()) < 0) return 1;
    if (child == 0) {
        setpgid(0, 0);
        execvp(argv[3], argv + 3);
        _exit(127);
    }
    setpgid(child, child); /* whoever is first: the group is there when the alarm comes */
    signal(SIGALRM, stop);
    alarm((unsigned)atoi(argv[1]));
    while (wait4(child, &status, 0, &use) < 0) {
    }
    alarm(0);
    kill(-child, SIGKILL); /* what it left behind */
    FILE *f = fopen(argv[2], "w");
    if (!f) return 1;
    if (late) fprintf(f, "time 0");
    else if (WIFSIGNALED(status)) fprintf(f, "signal %d", WTERMSIG(status));
    else fprintf(f, "exit %d", WEXITSTATUS(status));
    fprintf(f, " %ld\n", use.ru_maxrss);
    return fclose(f) != 0;
}
