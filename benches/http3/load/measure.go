package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The counts of a run's measured time. Operations are requests, sessions or datagrams; bytes are
// counted by the receiver.
type result struct {
	Operations int64   `json:"operations"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	ServerCPU  float64 `json:"server_cpu_s"`
	ClientCPU  float64 `json:"client_cpu_s"`
	Sent       int64   `json:"sent"`
}

// A count that grows while the work goes on, and the clock it was read by.
type count struct {
	Operations int64
	Bytes      int64
	Sent       int64
	Nanos      int64
}

// The work of a run: its tasks count, and stop when it is over.
type work struct {
	operations, bytes, sent atomic.Int64
	isMeasured, isOver      atomic.Bool
	mutex                   sync.Mutex
	latencies               []time.Duration
	failure                 error
	failed                  chan struct{}
}

func newWork() *work { return &work{failed: make(chan struct{})} }

func (w *work) fail(err error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if err != nil && w.failure == nil && !w.isOver.Load() {
		w.failure = err
		close(w.failed)
	}
}

// Repeats an operation until the run is over, and keeps how long it took each time.
func (w *work) repeat(operation func() error) {
	var own []time.Duration
	for !w.isOver.Load() {
		began := time.Now()
		if err := operation(); err != nil {
			w.fail(err)
			break
		}
		w.operations.Add(1)
		if w.isMeasured.Load() {
			own = append(own, time.Since(began))
		}
	}
	w.mutex.Lock()
	w.latencies = append(w.latencies, own...)
	w.mutex.Unlock()
}

func (w *work) count() (count, error) {
	now := time.Now().UnixNano()
	return count{w.operations.Load(), w.bytes.Load(), w.sent.Load(), now}, nil
}

// Runs tasks; `look` reads the counts of the receiver when the measured time begins and ends.
func (w *work) run(t target, tasks []func(), look func() (count, error)) (result, error) {
	var running sync.WaitGroup
	for _, task := range tasks {
		running.Go(task)
	}
	if err := w.pass(t.warmup); err != nil {
		return result{}, err
	}
	first, err := look()
	if err != nil {
		return result{}, err
	}
	serverCPU, clientCPU := sessionCPU(t.server), ownCPU()
	w.isMeasured.Store(true)
	if err := w.pass(t.seconds); err != nil {
		return result{}, err
	}
	w.isMeasured.Store(false)
	serverCPU, clientCPU = sessionCPU(t.server)-serverCPU, ownCPU()-clientCPU
	last, err := look()
	if err != nil {
		return result{}, err
	}
	w.isOver.Store(true)
	wait(&running)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	slices.Sort(w.latencies)
	found := result{
		Operations: last.Operations - first.Operations,
		Bytes:      last.Bytes - first.Bytes,
		Sent:       last.Sent - first.Sent,
		Seconds:    float64(last.Nanos-first.Nanos) / 1e9,
		P50:        percentile(w.latencies, 500),
		P99:        percentile(w.latencies, 990),
		ServerCPU:  serverCPU,
		ClientCPU:  clientCPU,
	}
	if found.Operations == 0 && found.Bytes == 0 {
		return result{}, fmt.Errorf("nothing was done in the measured time")
	}
	return found, nil
}

// A task that hangs in the last operation does not hold the result up.
func wait(running *sync.WaitGroup) {
	over := make(chan struct{})
	go func() { running.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(time.Second):
	}
}

func (w *work) pass(span time.Duration) error {
	select {
	case <-time.After(span):
		return nil
	case <-w.failed:
		return w.failure
	}
}

func percentile(sorted []time.Duration, thousandths int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(len(sorted)-1, len(sorted)*thousandths/1000)]) / 1e3
}

// CPU seconds of all processes of a session, proc_pid_stat(5). A server's workers may come and go.
func sessionCPU(session int) float64 {
	ticks := 0
	found, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// The name, in brackets, may have spaces.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if fields[3] != strconv.Itoa(session) {
			continue
		}
		for _, field := range fields[11:13] {
			one, _ := strconv.Atoi(field)
			ticks += one
		}
	}
	return float64(ticks) / 100
}

func ownCPU() float64 {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
