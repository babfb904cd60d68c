# SPDX-License-Identifier: Apache-2.0
#
# A boot sector that loads one byte of each line of the 512 KiB from 64 KiB on, again and again.
    .code16
    .globl _start
_start:
    cli
pass:
    movw $0x1000, %ax
segment:
    movw %ax, %ds
    xorw %si, %si
line:
    movb (%si), %bl
    addw $64, %si
    jnz line
    addw $0x1000, %ax
    cmpw $0x9000, %ax
    jne segment
    jmp pass
    .org 510
    .word 0xaa55
