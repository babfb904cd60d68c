/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heir PID: start a process with that PID, which nobody has any more, and say "here". It ends with standard input.
 *
 * The kernel gives out a PID that one asks for; to write it to ns_last_pid and fork is a race with whoever else forks.
 */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    pid_t wanted = argc > 1 ? atoi(argv[1]) : 0, started;
    struct clone_args how = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wanted, .set_tid_size = 1};

    started = syscall(SYS_clone3, &how, sizeof how);
    if (started < 0) {
        perror("clone3");
        return 1;
    }
    if (started == 0)
        for (;;)
            pause();
    puts("here");
    fflush(stdout);
    getchar();
    kill(started, SIGKILL);
    waitpid(started, NULL, 0);
    return 0;
}
