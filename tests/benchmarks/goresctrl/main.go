// SPDX-License-Identifier: Apache-2.0

// Reads the counters of every monitoring group by goresctrl. The groups are looked for once, at the start; then it says
// how many there are and how many counters they have. For each line "go 0" on standard input it reads all of them, for
// any other line nothing, and prints the nanoseconds that took, on the clock and of CPU time, as system_calls.c does.
package main

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/intel/goresctrl/pkg/rdt"
)

const prefix = "vmqos."

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, "goresctrl: "+format+"\n", values...)
	os.Exit(1)
}

func find() []rdt.MonGroup {
	if err := rdt.Initialize(prefix); err != nil {
		fail("%v", err)
	}
	var found []rdt.MonGroup
	for _, class := range rdt.GetClasses() {
		found = append(found, class.GetMonGroups()...)
	}
	return found
}

// Returns how many counters had a value.
func read(groups []rdt.MonGroup) int {
	values := 0
	for _, group := range groups {
		for _, cache := range group.GetMonData().L3 {
			values += len(cache)
		}
	}
	return values
}

func cpu() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail("%v", err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func main() {
	groups := find()
	fmt.Println(len(groups), read(groups))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		before, began := cpu(), time.Now()
		if lines.Text() == "go 0" {
			read(groups)
		}
		wall := time.Since(began).Nanoseconds()
		fmt.Println(wall, cpu()-before)
	}
}
