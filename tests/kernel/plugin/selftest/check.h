/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test is TEST(a_sentence) { ... CHECK(what holds); ... }; its program runs those named on its command line, all if
 * none is, prints "ok NAME" or where a check failed, and ends with 1 if one did.
 */
#ifndef RDT_CHECK_H
#define RDT_CHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct test {
    const char *name;
    void (*run)(void);
    struct test *next;
};

extern struct test *all_tests;
extern bool check_failed;

#define TEST(name)                                           \
    static void name(void);                                  \
    __attribute__((constructor)) static void add_##name(void) \
    {                                                        \
        static struct test test = { #name, name, NULL };     \
        test.next = all_tests;                               \
        all_tests = &test;                                   \
    }                                                        \
    static void name(void)

#define CHECK(holds)                                                          \
    do {                                                                      \
        if (!(holds)) {                                                       \
            printf("%s:%d: in %s: not so: %s\n", __FILE__, __LINE__, __func__, #holds); \
            check_failed = true;                                              \
        }                                                                     \
    } while (0)

#endif
