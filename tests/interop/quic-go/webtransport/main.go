// One end of the WebTransport interop tests, with webtransport-go; the contract is in
// tests/interop/http3/programs/session_contract.py.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"
)

const (
	small         = "small\n"
	size          = 1 << 20
	patience      = 20 * time.Second
	path          = "/path?name=value&other=%20"
	protocol      = "two"
	resetCode     = webtransport.StreamErrorCode(70_000)
	stopCode      = webtransport.StreamErrorCode(4_000_000_000)
	closeCode     = webtransport.SessionErrorCode(3_000_000_007)
	closeReason   = "enough, thänk you"
	streams       = 100
	streamsAtOnce = 20
	datagramCount = 10
)

var closeText = fmt.Sprintf("%d %s", closeCode, closeReason)

func say(what map[string]any) {
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}

func pattern() []byte {
	made := make([]byte, size)
	for at := range made {
		made[at] = byte(at ^ at>>8 ^ at>>16)
	}
	return made
}

func main() {
	var err error
	switch words := os.Args[1:]; {
	case len(words) == 4 && words[0] == "server":
		err = serve("127.0.0.1:"+words[1], words[2], words[3])
	case len(words) == 4 && words[0] == "client":
		if failed := run(words[1], "https://localhost:"+words[2], words[3]); failed != nil {
			say(map[string]any{"ok": false, "reason": failed.Error()})
		} else {
			say(map[string]any{"ok": true})
		}
	default:
		err = errors.New("server PORT CERT KEY | client CA PORT CASE")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// --- both ends

func tell(ctx context.Context, session *webtransport.Session, what []byte) error {
	stream, err := session.OpenUniStreamSync(ctx)
	if err != nil {
		return err
	}
	if _, err := stream.Write(what); err != nil {
		return err
	}
	return stream.Close()
}

func told(ctx context.Context, session *webtransport.Session) ([]byte, error) {
	stream, err := session.AcceptUniStream(ctx)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(stream)
}

func readSmall(stream io.Reader) error {
	found := make([]byte, len(small))
	if _, err := io.ReadFull(stream, found); err != nil {
		return err
	}
	return same(found, []byte(small))
}

// What the peer has reset or stopped a stream with.
func codeOf(err error) (webtransport.StreamErrorCode, error) {
	var ended *webtransport.StreamError
	if errors.As(err, &ended) && ended.Remote {
		return ended.ErrorCode, nil
	}
	return 0, fmt.Errorf("no code of the peer: %w", err)
}

func resetCodeOf(stream io.Reader) (webtransport.StreamErrorCode, error) {
	_, err := io.Copy(io.Discard, stream)
	if err == nil {
		return 0, errors.New("the stream was complete")
	}
	return codeOf(err)
}

func stopCodeOf(stream io.Writer) (webtransport.StreamErrorCode, error) {
	for {
		if _, err := stream.Write(make([]byte, 16<<10)); err != nil {
			return codeOf(err)
		}
	}
}

// The code and reason with which the peer has closed the session.
func closed(session *webtransport.Session) (string, error) {
	<-session.Context().Done()
	var ended *webtransport.SessionError
	if _, err := session.AcceptStream(context.Background()); !errors.As(err, &ended) {
		return "", fmt.Errorf("no close: %w", err)
	}
	if !ended.Remote {
		return "", errors.New("closed here")
	}
	return fmt.Sprintf("%d %s", ended.ErrorCode, ended.Message), nil
}

// Sends all on a stream while the peer's half is read.
func exchange(stream *webtransport.Stream, data []byte) ([]byte, error) {
	sent := make(chan error, 1)
	go func() {
		_, err := stream.Write(data)
		if err == nil {
			err = stream.Close()
		}
		sent <- err
	}()
	back, err := io.ReadAll(stream)
	return back, errors.Join(err, <-sent)
}

func same(found, wanted []byte) error {
	if !bytes.Equal(found, wanted) {
		return fmt.Errorf("%.60q came instead of %.60q", found, wanted)
	}
	return nil
}

// --- the server

type ending struct {
	sync.Mutex
	text string
}

func serve(address, cert, key string) error {
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
	mux, last := http.NewServeMux(), &ending{}
	server := &webtransport.Server{
		H3: &http3.Server{
			Handler: mux,
			TLSConfig: http3.ConfigureTLSConfig(&tls.Config{
				Certificates: []tls.Certificate{certificate},
				MinVersion:   tls.VersionTLS13,
			}),
		},
		ApplicationProtocols: []string{protocol},
		CheckOrigin:          func(*http.Request) bool { return true },
	}
	for _, name := range []string{
		"path", "echo", "protocol", "server-bidi", "reset", "server-reset", "stop",
		"server-stop", "close", "closed", "server-close",
	} {
		mux.HandleFunc("/"+name, func(w http.ResponseWriter, r *http.Request) {
			session, err := server.Upgrade(w, r)
			if err != nil {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			// A session outlives its request's handler.
			go handle(session, r.URL.Path, r.URL.RequestURI(), last)
		})
	}
	return server.Serve(socket)
}

// Does what the path asks for; errors mean that the session is over.
func handle(session *webtransport.Session, name, target string, last *ending) {
	ctx := session.Context()
	switch name {
	case "/path":
		_ = tell(ctx, session, []byte(target))
	case "/closed":
		last.Lock()
		text := last.text
		last.Unlock()
		_ = tell(ctx, session, []byte(text))
	case "/close":
		text, err := closed(session)
		if err == nil {
			last.Lock()
			last.text = text
			last.Unlock()
		}
		return
	case "/server-bidi":
		stream, err := session.OpenStreamSync(ctx)
		if err != nil {
			return
		}
		back, err := exchange(stream, pattern())
		if err == nil {
			_ = tell(ctx, session, back)
		}
	}
	go returnDatagrams(session)
	go returnStreams(session)
	for {
		stream, err := session.AcceptStream(ctx)
		if err != nil {
			return
		}
		go onStream(session, name, stream)
	}
}

func returnDatagrams(session *webtransport.Session) {
	for {
		datagram, err := session.ReceiveDatagram(session.Context())
		if err != nil {
			return
		}
		_ = session.SendDatagram(datagram)
	}
}

func returnStreams(session *webtransport.Session) {
	for {
		data, err := told(session.Context(), session)
		if err != nil || tell(session.Context(), session, data) != nil {
			return
		}
	}
}

func onStream(session *webtransport.Session, name string, stream *webtransport.Stream) {
	if name == "/echo" {
		if _, err := io.Copy(stream, stream); err == nil {
			_ = stream.Close()
		}
		return
	}
	if readSmall(stream) != nil {
		return
	}
	ctx := session.Context()
	switch name {
	case "/reset":
		if _, err := io.WriteString(stream, small); err != nil {
			return
		}
		if code, err := resetCodeOf(stream); err == nil {
			_ = tell(ctx, session, []byte(strconv.Itoa(int(code))))
		}
	case "/stop":
		if code, err := stopCodeOf(stream); err == nil {
			_ = tell(ctx, session, []byte(strconv.Itoa(int(code))))
		}
	case "/server-reset":
		stream.CancelWrite(resetCode)
	case "/server-stop":
		stream.CancelRead(stopCode)
	case "/server-close":
		_ = session.CloseWithError(closeCode, closeReason)
	}
}

// --- the client

type client struct {
	transport *webtransport.Transport
	base      string
}

func (c *client) dial(ctx context.Context, path string) (*webtransport.Session, error) {
	response, session, err := c.transport.Dial(ctx, c.base+path, nil)
	if err != nil && response != nil {
		return nil, fmt.Errorf("rejected: %d: %w", response.StatusCode, err)
	}
	return session, err
}

var paths = map[string]string{
	"session": path, "protocol": "/protocol", "bidi": "/echo", "uni": "/echo",
	"server-bidi": "/server-bidi", "parallel": "/echo", "datagrams": "/echo", "reset": "/reset",
	"server-reset": "/server-reset", "stop": "/stop", "server-stop": "/server-stop",
	"server-close": "/server-close",
}

func run(ca, base, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	authority, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	target, err := url.Parse(base)
	if err != nil {
		return err
	}
	own := &client{base: base, transport: &webtransport.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{http3.NextProtoH3}},
		// localhost may mean ::1 as well.
		DialAddr: func(ctx context.Context, _ string, tlsConfig *tls.Config, config *quic.Config) (*quic.Conn, error) {
			return quic.DialAddr(ctx, "127.0.0.1:"+target.Port(), tlsConfig, config)
		},
	}}
	if name == "protocol" {
		own.transport.ApplicationProtocols = []string{"one", protocol}
	}
	switch name {
	case "reject":
		response, _, err := own.transport.Dial(ctx, base+"/missing", nil)
		if err == nil || response == nil || response.StatusCode != http.StatusNotFound {
			return fmt.Errorf("no rejection with 404: %w", err)
		}
		return nil
	case "close":
		return own.close(ctx)
	}
	session, err := own.dial(ctx, paths[name])
	if err != nil {
		return err
	}
	if err := play(ctx, session, name); err != nil {
		return err
	}
	if name == "server-close" {
		return nil
	}
	return session.CloseWithError(0, "")
}

func (c *client) close(ctx context.Context) error {
	// Of a session that has its own connection, that is closed before the capsule is sent.
	tlsConfig := c.transport.TLSClientConfig
	config := &quic.Config{EnableDatagrams: true, EnableStreamResetPartialDelivery: true}
	connection, err := c.transport.DialAddr(ctx, "", tlsConfig, config)
	if err != nil {
		return err
	}
	defer connection.CloseWithError(0, "")
	first, err := c.transport.NewClientConn(connection)
	if err != nil {
		return err
	}
	_, session, err := first.Dial(ctx, c.base+"/close", nil)
	if err != nil {
		return err
	}
	if err := session.CloseWithError(closeCode, closeReason); err != nil {
		return err
	}
	for {
		second, err := c.dial(ctx, "/closed")
		if err != nil {
			return err
		}
		text, err := told(ctx, second)
		if err != nil {
			return err
		}
		_ = second.CloseWithError(0, "")
		if len(text) > 0 {
			return same(text, []byte(closeText))
		}
	}
}

func play(ctx context.Context, session *webtransport.Session, name string) error {
	switch name {
	case "session":
		found, err := told(ctx, session)
		return errors.Join(err, same(found, []byte(path)))
	case "protocol":
		return same([]byte(session.SessionState().ApplicationProtocol), []byte(protocol))
	case "bidi":
		return echo(ctx, session, pattern())
	case "uni":
		sent := make(chan error, 1)
		go func() { sent <- tell(ctx, session, pattern()) }()
		back, err := told(ctx, session)
		return errors.Join(err, <-sent, same(back, pattern()))
	case "server-bidi":
		return serverBidi(ctx, session)
	case "parallel":
		return parallel(ctx, session)
	case "datagrams":
		return datagrams(ctx, session)
	case "server-close":
		if _, err := asked(ctx, session); err != nil {
			return err
		}
		text, err := closed(session)
		return errors.Join(err, same([]byte(text), []byte(closeText)))
	}
	return codes(ctx, session, name)
}

func asked(ctx context.Context, session *webtransport.Session) (*webtransport.Stream, error) {
	stream, err := session.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(stream, small)
	return stream, err
}

// Codes of resets and stops, of either end.
func codes(ctx context.Context, session *webtransport.Session, name string) error {
	stream, err := asked(ctx, session)
	if err != nil {
		return err
	}
	wanted, found := resetCode, webtransport.StreamErrorCode(0)
	switch name {
	case "server-reset":
		found, err = resetCodeOf(stream)
	case "server-stop":
		wanted = stopCode
		found, err = stopCodeOf(stream)
	case "reset":
		if err := readSmall(stream); err != nil {
			return err
		}
		stream.CancelWrite(resetCode)
		return isTold(ctx, session, resetCode)
	case "stop":
		if _, err := stream.Read(make([]byte, 1)); err != nil {
			return err
		}
		stream.CancelRead(stopCode)
		return isTold(ctx, session, stopCode)
	default:
		return errors.New("no such case")
	}
	if err == nil && found != wanted {
		err = fmt.Errorf("code %d came instead of %d", found, wanted)
	}
	return err
}

func isTold(ctx context.Context, session *webtransport.Session, code webtransport.StreamErrorCode) error {
	found, err := told(ctx, session)
	return errors.Join(err, same(found, []byte(strconv.Itoa(int(code)))))
}

func echo(ctx context.Context, session *webtransport.Session, data []byte) error {
	stream, err := session.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	back, err := exchange(stream, data)
	return errors.Join(err, same(back, data))
}

func serverBidi(ctx context.Context, session *webtransport.Session) error {
	stream, err := session.AcceptStream(ctx)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(stream)
	if err := errors.Join(err, same(data, pattern())); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := stream.Write(data)
		sent <- errors.Join(err, stream.Close())
	}()
	back, err := told(ctx, session)
	return errors.Join(err, <-sent, same(back, data))
}

func parallel(ctx context.Context, session *webtransport.Session) error {
	gate, done := make(chan struct{}, streamsAtOnce), make(chan error, streams)
	for number := range streams {
		go func() {
			gate <- struct{}{}
			done <- echo(ctx, session, []byte(strconv.Itoa(number)))
			<-gate
		}()
	}
	var all error
	for range streams {
		all = errors.Join(all, <-done)
	}
	return all
}

// Each datagram is sent until it has come back: they may be lost.
func datagrams(ctx context.Context, session *webtransport.Session) error {
	missing := map[string]bool{}
	for number := range datagramCount {
		missing[string(append([]byte(strconv.Itoa(number)+" "), make([]byte, 900)...))] = true
	}
	for len(missing) > 0 {
		for datagram := range missing {
			if err := session.SendDatagram([]byte(datagram)); err != nil {
				return err
			}
		}
		waiting, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		for len(missing) > 0 {
			datagram, err := session.ReceiveDatagram(waiting)
			if err != nil && waiting.Err() == nil {
				cancel()
				return err
			}
			if err != nil {
				break
			}
			delete(missing, string(datagram))
		}
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
