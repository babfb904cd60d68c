/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a VM of the experiments does: it touches memory in a chosen way, for ever, and says how far it got.
 *
 * What to do is in QEMU's fw_cfg, in the file opt/org.vmqos/load: words name=value, numbers decimal.
 *
 *   walk=chase     follow pointers through all lines, in an order without a pattern (unless said otherwise)
 *   walk=random    read lines at random, each independent of the one before
 *   walk=stream    read all lines in order
 *   walk=copy      read the first half's lines and write the second half's, in order
 *   walk=compress  compress text of that size, the way of LZ4: a table of 4-byte entries finds repetitions
 *   size=          bytes that it works on
 *   table=         walk=compress: bytes of the table, a power of two
 *   work=          turns of an empty loop after each access
 *   every=         accesses for a dot; for compress, bytes
 *
 * The first serial port says "ready" and a newline once the memory is as the walk needs it, then one dot for every so many
 * accesses, and nothing else: each character takes the host some ten thousand instructions. It is the host that stops the
 * VM, and knows how long a second is.
 */
#include <stdint.h>

enum { LINE = 64, AREA = 2 << 20, COM1 = 0x3f8, FIFO = 16 };
enum { FW_CFG_SELECTOR = 0x510, FW_CFG_DATA = 0x511, FW_CFG_DIRECTORY = 0x19, FW_CFG_NAME = 56 };

struct line {
    struct line *next;
    uint32_t order;
    uint8_t rest[LINE - 8];
};

struct job {
    char walk[12];
    uint32_t size, table, work, every;
};

struct progress {
    uint32_t since, every;
};

static inline void out8(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline void out16(uint16_t port, uint16_t value)
{
    __asm__ volatile("outw %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint8_t in8(uint16_t port)
{
    uint8_t value;

    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static inline uint32_t read(const struct line *line)
{
    return *(const volatile uint32_t *)&line->order;
}

/* ---- The serial port: a 16550 (its divisor means nothing to QEMU). ---- */

static void serial_open(void)
{
    out8(COM1 + 1, 0);    /* no interrupts */
    out8(COM1 + 3, 0x03); /* 8 bits, no parity */
    out8(COM1 + 2, 0x07); /* FIFOs on and empty */
}

static void say(const char *text, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++) {
        if (i % FIFO == 0)
            while (!(in8(COM1 + 5) & 0x20)) /* the transmitter is empty */
                ;
        out8(COM1, text[i]);
    }
}

static inline void count(struct progress *p, uint32_t accesses)
{
    for (p->since += accesses; p->since >= p->every; p->since -= p->every)
        out8(COM1, '.');
}

/* ---- What to do, from fw_cfg (QEMU: docs/specs/fw_cfg.rst). ---- */

static uint32_t big_endian(int bytes)
{
    uint32_t value = 0;

    while (bytes--)
        value = value << 8 | in8(FW_CFG_DATA);
    return value;
}

static int same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

/* The file's content, ended by a NUL; empty where there is none. */
static void fw_cfg_read(const char *wanted, char *to, uint32_t room)
{
    uint32_t files;

    *to = 0;
    out16(FW_CFG_SELECTOR, FW_CFG_DIRECTORY);
    for (files = big_endian(4); files; files--) {
        uint32_t size = big_endian(4), selector = big_endian(2);
        char name[FW_CFG_NAME];

        big_endian(2);
        for (int i = 0; i < FW_CFG_NAME; i++)
            name[i] = in8(FW_CFG_DATA);
        if (!same(name, wanted))
            continue;
        out16(FW_CFG_SELECTOR, selector);
        while (size-- && room-- > 1)
            *to++ = in8(FW_CFG_DATA);
        *to = 0;
        return;
    }
}

static uint32_t number(const char *text)
{
    uint32_t value = 0;

    while (*text >= '0' && *text <= '9')
        value = value * 10 + (*text++ - '0');
    return value;
}

/* The value of a word name=value; the name includes the sign. */
static const char *value_of(const char *text, const char *name)
{
    while (*text) {
        const char *here = text, *n = name;

        while (*n && *here == *n)
            here++, n++;
        if (!*n)
            return here;
        while (*text && *text++ != ' ')
            ;
    }
    return 0;
}

static void job_read(struct job *job)
{
    static const struct {
        const char *name;
        uint8_t field; /* of the numbers, in their order */
        uint32_t standard;
    } numbers[] = {
        { "size=", 0, 1 << 20 }, { "table=", 1, 1 << 16 }, { "work=", 2, 0 }, { "every=", 3, 100000 },
    };
    char text[256];
    const char *walk;
    uint32_t i;

    fw_cfg_read("opt/org.vmqos/load", text, sizeof text);
    walk = value_of(text, "walk=");
    for (i = 0; walk && i < sizeof job->walk - 1 && walk[i] && walk[i] != ' '; i++)
        job->walk[i] = walk[i];
    job->walk[i] = 0;
    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *given = value_of(text, numbers[i].name);

        (&job->size)[numbers[i].field] = given ? number(given) : numbers[i].standard;
    }
}

/* ---- The walks. ---- */

/* xorshift: G. Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8 (14), 2003. */
static inline uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

static inline void idle(uint32_t turns)
{
    while (turns--)
        __asm__ volatile("");
}

/* One circle through all lines: S. Sattolo, "An algorithm to generate a random cyclic permutation", 1986. */
static void make_circle(struct line *lines, uint32_t n)
{
    uint32_t state = 2463534242u;

    for (uint32_t i = 0; i < n; i++)
        lines[i].order = i;
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t j = next_random(&state) % i, kept = lines[i].order;

        lines[i].order = lines[j].order;
        lines[j].order = kept;
    }
    for (uint32_t i = 0; i < n; i++)
        lines[i].next = &lines[lines[i].order];
}

static void chase(const struct job *job, struct progress *p, struct line *lines)
{
    for (const struct line *here = lines;; count(p, 1)) {
        here = *(struct line *const volatile *)&here->next;
        idle(job->work);
    }
}

static void random(const struct job *job, struct progress *p, const struct line *lines)
{
    for (uint32_t n = job->size / LINE, state = 2463534242u;; count(p, 1)) {
        read(&lines[next_random(&state) % n]);
        idle(job->work);
    }
}

static void stream(const struct job *job, struct progress *p, const struct line *lines)
{
    for (;;)
        for (uint32_t i = 0; i < job->size / LINE; i++, count(p, 1)) {
            read(&lines[i]);
            idle(job->work);
        }
}

static void copy(const struct job *job, struct progress *p, struct line *lines)
{
    for (uint32_t half = job->size / LINE / 2;;)
        for (uint32_t i = 0; i < half; i++, count(p, 2)) {
            *(volatile uint32_t *)&lines[half + i].order = read(&lines[i]);
            idle(job->work);
        }
}

/* Words of a language of 4096 words, the frequent ones much more often than the others, as in every language. */
static void write_text(uint8_t *text, uint32_t size)
{
    uint32_t state = 2463534242u;

    for (uint32_t at = 0; at < size;) {
        uint32_t a = next_random(&state) >> 20, b = next_random(&state) >> 20, word = a * b >> 12;
        uint32_t letters = (word + 1) * 2654435761u;

        for (uint32_t length = 2 + word % 9; length && at < size; length--, letters = letters * 5 + 1)
            text[at++] = 'a' + (letters >> 16) % 26;
        if (at < size)
            text[at++] = ' ';
    }
}

static inline uint32_t word_at(const uint8_t *at)
{
    return *(const volatile uint32_t *)at;
}

/* Y. Collet, "LZ4 Block Format Description": a match of 4 bytes or more, found by a hash, in the last 64 KiB. */
static void compress(const struct job *job, struct progress *p, uint8_t *text)
{
    uint32_t shift = 32, end = job->size - 8;
    volatile uint32_t *table = (volatile uint32_t *)(text + job->size);
    uint8_t *to = (uint8_t *)table + job->table;

    for (uint32_t entries = job->table / 4; entries > 1; entries >>= 1)
        shift--;
    for (;;)
        for (uint32_t at = 0, put = 0, literal = 0; at < end;) {
            volatile uint32_t *entry = &table[word_at(text + at) * 2654435761u >> shift];
            uint32_t found = *entry, length = 4;

            *entry = at;
            if (found >= at || at - found > 0xffff || word_at(text + found) != word_at(text + at)) {
                at++;
                count(p, 1);
                continue;
            }
            while (at + length < end && text[found + length] == text[at + length])
                length++;
            for (; literal < at; literal++)
                ((volatile uint8_t *)to)[put++ & 0xffff] = text[literal];
            at += length;
            literal = at;
            count(p, length);
        }
}

void load_main(void);

void load_main(void)
{
    struct job job;
    struct progress p = { 0 };
    struct line *area = (struct line *)AREA;

    serial_open();
    job_read(&job);
    p.every = job.every;
    if (same(job.walk, "compress"))
        write_text((uint8_t *)area, job.size);
    else
        make_circle(area, job.size / LINE);
    say("ready\n", 6);
    if (same(job.walk, "random"))
        random(&job, &p, area);
    else if (same(job.walk, "stream"))
        stream(&job, &p, area);
    else if (same(job.walk, "copy"))
        copy(&job, &p, area);
    else if (same(job.walk, "compress"))
        compress(&job, &p, (uint8_t *)area);
    else
        chase(&job, &p, area);
}
