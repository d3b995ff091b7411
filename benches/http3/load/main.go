// The load generator of benches/http3, and a server of quic-go for context.
//
//	load client 127.0.0.1:4433 ca.pem SERVER WORKLOAD SIZE WARM-UP SECONDS
//	load server 127.0.0.1:4433 cert.pem key.pem
//
// SERVER is the session of the server: the CPU time of its processes is taken from /proc when
// the measured time begins and ends. The result is one line of JSON. The paths and the contract of
// the streams are described in ../peers/contract.py.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	window    = 16 << 20
	startTime = 20 * time.Second
)

func main() {
	var err error
	switch words := os.Args[1:]; {
	case len(words) == 4 && words[0] == "server":
		err = serve(words[1], words[2], words[3])
	case len(words) == 8 && words[0] == "client":
		err = client(words[1:])
	default:
		err = errors.New("see the first lines of the source")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// The target of a run, and how long it takes.
type target struct {
	address string
	roots   *x509.CertPool
	server  int
	size    string
	warmup  time.Duration
	seconds time.Duration
}

func client(words []string) error {
	pem, err := os.ReadFile(words[1])
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	server, err := strconv.Atoi(words[2])
	if err != nil {
		return err
	}
	warmup, err := duration(words[5])
	if err != nil {
		return err
	}
	seconds, err := duration(words[6])
	if err != nil {
		return err
	}
	run, known := workloads[words[3]]
	if !known {
		return fmt.Errorf("no workload %q", words[3])
	}
	aim := target{words[0], roots, server, words[4], warmup, seconds}
	if err := aim.awaitServer(); err != nil {
		return err
	}
	result, err := run(aim)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func duration(text string) (time.Duration, error) {
	seconds, err := strconv.ParseFloat(text, 64)
	return time.Duration(seconds * float64(time.Second)), err
}

var workloads = map[string]func(target) (result, error){
	"requests":      requests,
	"download":      download,
	"upload":        upload,
	"quic-requests": streamRequests,
	"quic-download": streamDownload,
	"quic-upload":   streamUpload,
	"wt-sessions":   sessions,
	"wt-download":   sessionDownload,
	"wt-upload":     sessionUpload,
	"wt-datagrams":  sessionDatagrams,
}

// Connects until the server answers: not all servers say when they are ready.
func (t target) awaitServer() error {
	var err error
	for until := time.Now().Add(startTime); time.Now().Before(until); {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		var connection *quic.Conn
		security := t.security(http3.NextProtoH3)
		security.NextProtos = append(security.NextProtos, streamsProtocol)
		connection, err = quic.DialAddr(ctx, t.address, security, config())
		cancel()
		if err == nil {
			return connection.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("the server does not answer: %w", err)
}

func config() *quic.Config {
	return &quic.Config{
		EnableDatagrams:                  true,
		EnableStreamResetPartialDelivery: true,
		InitialStreamReceiveWindow:       window,
		MaxStreamReceiveWindow:           window,
		InitialConnectionReceiveWindow:   window,
		MaxConnectionReceiveWindow:       window,
	}
}

func (t target) security(protocol string) *tls.Config {
	return &tls.Config{RootCAs: t.roots, ServerName: "localhost", NextProtos: []string{protocol}}
}
