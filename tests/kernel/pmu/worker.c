/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes as many instructions as it is told, so that a test knows what a counter must say. It says "ready". Then each
 * line of standard input is an order, after which it says "done":
 *     loop N      executes 2 N instructions
 *     thread      starts a thread, which waits
 *     inside N    has the thread execute 2 N instructions
 *     end         ends the thread
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

static sem_t ordered, carried_out;
static long in_thread; /* times round; less than 0: end */
static pthread_t thread;

static void loop(long count)
{
    if (count > 0)
        __asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(count) : : "cc");
}

static void *wait_for_orders(void *unused)
{
    sem_post(&carried_out);
    for (;;) {
        sem_wait(&ordered);
        if (in_thread < 0)
            return unused;
        loop(in_thread);
        sem_post(&carried_out);
    }
}

static int carry_out(const char *what, long count)
{
    if (!strcmp(what, "loop")) {
        loop(count);
    } else if (!strcmp(what, "thread")) {
        if (pthread_create(&thread, NULL, wait_for_orders, NULL))
            return 1;
        sem_wait(&carried_out);
    } else if (!strcmp(what, "inside")) {
        in_thread = count;
        sem_post(&ordered);
        sem_wait(&carried_out);
    } else if (!strcmp(what, "end")) {
        in_thread = -1;
        sem_post(&ordered);
        pthread_join(thread, NULL);
    } else {
        return 1;
    }
    return 0;
}

int main(void)
{
    char order[64], what[16];
    long count;

    sem_init(&ordered, 0, 0);
    sem_init(&carried_out, 0, 0);
    puts("ready");
    fflush(stdout);
    while (fgets(order, sizeof order, stdin)) {
        count = 0;
        if (sscanf(order, "%15s %ld", what, &count) < 1 || carry_out(what, count))
            return 1;
        puts("done");
        fflush(stdout);
    }
    return 0;
}
