/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first instructions of a VM that has this ROM in place of a firmware: from the reset vector (Intel SDM volume 3,
 * 10.1.4) to 32-bit protected mode with flat segments and no paging, then load_main.
 *
 * There are no page tables: the VM's addresses are translated by the hypervisor's alone, which are of 2 MiB where the
 * host has huge pages.
 */
    .set STACK, 0x80000

    .code16
    .section .reset, "ax"
    jmp start

    .globl start
    .section .boot, "ax"
start:
    cli
    cld
    lgdtl %cs:(gdtr - start + BOOT_OFFSET)
    /* PE and ET; caching on (CD and NW off) */
    movl $0x11, %eax
    movl %eax, %cr0
    ljmpl $8, $flat

    .code32
flat:
    movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl $STACK, %esp
    call load_main
halt:
    hlt
    jmp halt

    .balign 8
gdt:
    .quad 0
    .quad 0x00cf9b000000ffff /* code: base 0, limit 4 GiB */
    .quad 0x00cf93000000ffff /* data: the same */
gdtr:
    .word gdtr - gdt - 1
    .long gdt
