// One end of the interop tests, with quic-go; the contract is that of
// crates/ringloop-quic/examples/interop.rs.
//
//	peer server 127.0.0.1:4433 cert.pem key.pem [retry]
//	peer client ca.pem            reads `CASE PORT` from standard input
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
)

const (
	alpn = "interop"
	size = 1 << 20
	// Fewer packets than quic-go updates keys after: it derives the next ones as in version 1.
	sizeV2    = 20_000
	datagrams = 20
	patience  = 15 * time.Second
)

type object map[string]any

func say(what object) {
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}

func pattern(n int) []byte {
	made := make([]byte, n)
	for at := range made {
		made[at] = byte(at ^ at>>8 ^ at>>16)
	}
	return made
}

func main() {
	var err error
	switch words := os.Args[1:]; {
	case len(words) >= 4 && words[0] == "server":
		err = serve(words[1], words[2], words[3], len(words) == 5 && words[4] == "retry")
	case len(words) == 2 && words[0] == "client":
		err = obey(words[1])
	default:
		err = errors.New("see the first lines of the source")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// --- the server

func serve(address, cert, key string, retry bool) error {
	certificate, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	local, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", local)
	if err != nil {
		return err
	}
	transport := quic.Transport{Conn: socket, VerifySourceAddress: func(net.Addr) bool { return retry }}
	config := quic.Config{Allow0RTT: true, EnableDatagrams: true}
	listener, err := transport.ListenEarly(
		&tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{alpn}}, &config)
	if err != nil {
		return err
	}
	say(object{"event": "ready"})
	for {
		connection, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		go answer(connection)
	}
}

func answer(connection *quic.Conn) {
	go func() {
		for {
			data, err := connection.ReceiveDatagram(context.Background())
			if err != nil || connection.SendDatagram(data) != nil {
				return
			}
		}
	}()
	for {
		stream, err := connection.AcceptStream(context.Background())
		if err != nil {
			told := object{"event": "closed", "code": nil, "reason": err.Error(),
				"resumed": connection.ConnectionState().TLS.DidResume}
			if application := new(quic.ApplicationError); errors.As(err, &application) && application.Remote {
				told["code"], told["reason"] = application.ErrorCode, application.ErrorMessage
			}
			say(told)
			return
		}
		go echo(connection, stream)
	}
}

func echo(connection *quic.Conn, stream *quic.Stream) {
	defer stream.Close()
	buffer := make([]byte, 1<<16)
	for isFirst := true; ; isFirst = false {
		n, err := stream.Read(buffer)
		if rest, found := strings.CutPrefix(string(buffer[:n]), "close "); isFirst && found {
			number, reason, _ := strings.Cut(rest, " ")
			code, _ := strconv.ParseUint(number, 10, 62)
			connection.CloseWithError(quic.ApplicationErrorCode(code), reason)
			return
		}
		if _, failed := stream.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// --- the client

func obey(ca string) error {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		name, port, _ := strings.Cut(lines.Text(), " ")
		told, err := run(roots, name, "127.0.0.1:"+port)
		if err != nil {
			told = object{"ok": false, "reason": err.Error()}
		} else {
			told["ok"] = true
		}
		say(told)
	}
	return lines.Err()
}

// A cache that tells of each ticket.
type sessions struct {
	tls.ClientSessionCache
	arrived chan struct{}
}

func (cache *sessions) Put(key string, state *tls.ClientSessionState) {
	cache.ClientSessionCache.Put(key, state)
	if state != nil {
		select {
		case cache.arrived <- struct{}{}:
		default:
		}
	}
}

func run(roots *x509.CertPool, name, server string) (object, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	config := &quic.Config{EnableDatagrams: true}
	if name == "v2" {
		config.Versions = []quic.Version{quic.Version2}
	}
	cache := &sessions{tls.NewLRUClientSessionCache(4), make(chan struct{}, 16)}
	security := &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{alpn},
		ClientSessionCache: cache}
	connection, err := quic.DialAddr(ctx, server, security, config)
	if err != nil {
		return nil, err
	}
	switch name {
	case "handshake":
	case "resumption", "early-data":
		if err := exchange(ctx, connection, 1000); err != nil {
			return nil, err
		}
		select {
		case <-cache.arrived: // after the handshake
		case <-ctx.Done():
			return nil, errors.New("no ticket came")
		}
		connection.CloseWithError(0, "")
		return again(ctx, server, security, config, name == "early-data")
	case "datagrams":
		for at := range datagrams {
			sent := []byte(fmt.Sprintf("datagram %d", at))
			if err := connection.SendDatagram(sent); err != nil {
				return nil, err
			}
			if back, err := connection.ReceiveDatagram(ctx); err != nil || !bytes.Equal(back, sent) {
				return nil, fmt.Errorf("another datagram came back: %w", err)
			}
		}
	case "close-codes":
		// Until the server has the last flight no code may be sent (RFC 9000 section 10.2.3).
		if err := exchange(ctx, connection, 100); err != nil {
			return nil, err
		}
		connection.CloseWithError(42, "as the client says")
		return closedBy(ctx, server, security, config)
	case "v2":
		if err := exchange(ctx, connection, sizeV2); err != nil {
			return nil, err
		}
	default:
		// quic-go updates keys by itself after its first hundred packets: `key-update` is a transfer.
		if err := exchange(ctx, connection, size); err != nil {
			return nil, err
		}
	}
	return object{}, connection.CloseWithError(0, "")
}

func exchange(ctx context.Context, connection *quic.Conn, n int) error {
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	stream.SetDeadline(deadline)
	sent := pattern(n)
	go func() {
		stream.Write(sent)
		stream.Close()
	}()
	back, err := io.ReadAll(stream)
	if err == nil && !bytes.Equal(back, sent) {
		err = fmt.Errorf("%d other bytes came back", len(back))
	}
	return err
}

func again(ctx context.Context, server string, security *tls.Config, config *quic.Config, early bool) (object, error) {
	dial := quic.DialAddr
	if early {
		dial = quic.DialAddrEarly
	}
	connection, err := dial(ctx, server, security, config)
	if err != nil {
		return nil, err
	}
	if err := exchange(ctx, connection, 1000); err != nil {
		return nil, err
	}
	<-connection.HandshakeComplete()
	state := connection.ConnectionState()
	told := object{"resumed": state.TLS.DidResume}
	if early {
		told["early"] = state.Used0RTT
	}
	return told, connection.CloseWithError(0, "")
}

func closedBy(ctx context.Context, server string, security *tls.Config, config *quic.Config) (object, error) {
	connection, err := quic.DialAddr(ctx, server, security, config)
	if err != nil {
		return nil, err
	}
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	stream.Write([]byte("close 43 as the server says"))
	stream.Close()
	select {
	case <-connection.Context().Done():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	application := new(quic.ApplicationError)
	if cause := context.Cause(connection.Context()); !errors.As(cause, &application) {
		return nil, cause
	}
	return object{"code": application.ErrorCode, "reason": application.ErrorMessage}, nil
}
