/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads COUNT: once a line came on standard input, start COUNT threads, each started by the one before it, then sleep.
 * Says "begun" after the first hundred and "over" after the last one. A second argument N ends every Nth thread at once.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int count, every;
static pthread_attr_t small;

static void say(const char *word)
{
    puts(word);
    fflush(stdout);
}

static void *go_on(void *place)
{
    long number = (long)place;
    pthread_t next;

    if (number == 100)
        say("begun");
    if (number < count && pthread_create(&next, &small, go_on, (void *)(number + 1)))
        exit(1);
    if (number == count)
        say("over");
    while (!every || number % every)
        pause();
    return NULL;
}

int main(int argc, char **argv)
{
    char line[16];
    pthread_t first;

    count = argc > 1 ? atoi(argv[1]) : 1;
    every = argc > 2 ? atoi(argv[2]) : 0;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    if (!fgets(line, sizeof line, stdin) || pthread_create(&first, &small, go_on, (void *)1L))
        return 1;
    for (;;)
        pause();
}
