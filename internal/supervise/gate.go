//go:build linux || darwin

package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"github.com/natscampaign/election/internal/cli"
)

// gateName is the command that a program is until its guardian knows of it. What a program starts before that, nobody
// would end should this process be killed just then.
const gateName = "run-gate"

// Of a process behind the gate.
const (
	gateFD   = 3 // says a byte when the program may begin, and ends if it may not
	faultFD  = 4 // takes the error number if the program cannot be executed, and is closed when it is
	gateArgs = 3 // arguments before those of the program: this one's name, gateName and the program's path
)

// startGated starts a program behind the gate, which opens when guard has returned without an error.
func startGated(cmd *exec.Cmd, guard func(pid int) error) (err error) {
	path := cmd.Path
	if cmd.Path, err = ownPath(); err != nil {
		return err
	}
	cmd.Args = append([]string{"election-cli", gateName, path}, cmd.Args...)
	farGate, gate, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = gate.Close() }()
	fault, farFault, err := os.Pipe()
	if err != nil {
		_ = farGate.Close()
		return err
	}
	defer func() { _ = fault.Close() }()
	cmd.ExtraFiles = []*os.File{farGate, farFault}
	err = cmd.Start()
	_, _ = farGate.Close(), farFault.Close()
	if err != nil {
		return err
	}
	if err = guard(cmd.Process.Pid); err == nil {
		_, _ = gate.Write([]byte{0})
		err = faultFrom(fault, path)
	}
	if err != nil {
		_ = gate.Close()
		_ = cmd.Wait()
	}
	return err
}

// faultFrom waits until a program is executed, and returns the error if it cannot be.
func faultFrom(fault io.Reader, path string) error {
	text, err := io.ReadAll(fault)
	if number, _ := strconv.Atoi(string(text)); number != 0 {
		return &os.PathError{Op: "exec", Path: path, Err: syscall.Errno(number)}
	}
	return err
}

// PassGate makes this process the program that its arguments name, once it may begin, if they say that it is behind the
// gate. Else it returns at once.
func PassGate(args []string) {
	if len(args) <= gateArgs || args[1] != gateName {
		return
	}
	runtime.LockOSThread()
	endWithParent()
	gate, fault := os.NewFile(gateFD, "gate"), os.NewFile(faultFD, "fault")
	syscall.CloseOnExec(gateFD)
	syscall.CloseOnExec(faultFD)
	if n, _ := gate.Read(make([]byte, 1)); n == 1 {
		if number := syscall.Errno(0); errors.As(syscall.Exec(args[2], args[gateArgs:], os.Environ()), &number) {
			_, _ = fmt.Fprint(fault, int(number))
		}
	}
	os.Exit(cli.ExitFailure)
}
