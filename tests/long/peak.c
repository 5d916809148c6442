/* peak FILE COMMAND ...: runs the command and writes "RC KIB" to FILE: its exit status (128 + the signal that ended it)
 * and the most memory it held (ru_maxrss of wait4). In C because a child of an interpreter inherits the interpreter's peak. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct rusage used;
    int status;
    if (argc < 3) return 2;
    const pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child) return 2;
    FILE *f = fopen(argv[1], "w");
    if (!f) return 2;
    fprintf(f, "%d %ld\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), used.ru_maxrss);
    return fclose(f) != 0;
}
