package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
)

// A client of WebTransport in the dialects of deployed servers: drafts 02 and 07, and the newest one.
// (webtransport-go speaks the newest alone, and wants RESET_STREAM_AT, which most do not have.)
const (
	settingDraft02 = 0x2b603742
	settingEnabled = 0x2c7cf000
	streamSignal   = 0x41
	sessionPath    = "/bench"
	openTime       = 5 * time.Second
)

var settings = map[uint64]uint64{
	settingDraft02: 1,
	// The number of sessions, of draft 07 and of later ones.
	0xc671706a:     1,
	0x14e9cd29:     1,
	settingEnabled: 1,
	// Flow control of sessions: bytes, without bound, unidirectional and bidirectional streams.
	0x2b61: 1 << 60,
	0x2b64: 100,
	0x2b65: 100,
}

type session struct {
	opener
	stream *http3.RequestStream
}

func (t target) connectSession() (*session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	connection, err := quic.DialAddr(ctx, t.address, t.security(http3.NextProtoH3), config())
	if err != nil {
		return nil, err
	}
	transport := http3.Transport{
		EnableDatagrams:    true,
		AdditionalSettings: settings,
	}
	client := transport.NewClientConn(connection)
	select {
	case <-client.ReceivedSettings():
	case <-ctx.Done():
		return nil, fmt.Errorf("no SETTINGS in time")
	}
	stream, err := client.OpenRequestStream(ctx)
	if err != nil {
		return nil, err
	}
	protocol := "webtransport"
	if theirs := client.Settings().Other; theirs[settingEnabled] == 1 && theirs[settingDraft02] == 0 {
		protocol = "webtransport-h3"
	}
	request := &http.Request{
		Method: http.MethodConnect, Proto: protocol, Host: "localhost",
		URL:    &url.URL{Scheme: "https", Host: t.address, Path: sessionPath},
		Header: http.Header{"Sec-Webtransport-Http3-Draft02": {"1"}},
	}
	if err := stream.SendRequestHeader(request); err != nil {
		return nil, err
	}
	stream.SetReadDeadline(time.Now().Add(5 * time.Second))
	response, err := stream.ReadResponse()
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("status %d for a session", response.StatusCode)
	}
	stream.SetReadDeadline(time.Time{})
	prefix := quicvarint.Append(nil, streamSignal)
	prefix = quicvarint.Append(prefix, uint64(stream.StreamID()))
	return &session{opener{connection, string(prefix)}, stream}, nil
}

// Ends the session by the end of its stream, then the connection.
func (s *session) close() {
	s.stream.Close()
	s.connection.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
}

// A connection and a session each, closed again.
func sessions(t target) (result, error) {
	inFlight, err := strconv.Atoi(t.size)
	if err != nil {
		return result{}, err
	}
	w := newWork()
	task := func() {
		w.repeat(func() error {
			made, err := t.connectSession()
			if err == nil {
				made.close()
			}
			return err
		})
	}
	tasks := make([]func(), inFlight)
	for at := range tasks {
		tasks[at] = task
	}
	return w.run(t, tasks, w.count)
}

func sessionDownload(t target) (result, error) {
	made, err := t.connectSession()
	if err != nil {
		return result{}, err
	}
	return made.download(t)
}

func sessionUpload(t target) (result, error) {
	made, err := t.connectSession()
	if err != nil {
		return result{}, err
	}
	return made.upload(t)
}

// Datagrams, as many as the connection takes; the server is asked on a session of its own how many
// have arrived.
func sessionDatagrams(t target) (result, error) {
	size, err := strconv.Atoi(t.size)
	if err != nil {
		return result{}, err
	}
	made, err := t.connectSession()
	if err != nil {
		return result{}, err
	}
	control, err := t.connectSession()
	if err != nil {
		return result{}, err
	}
	w := newWork()
	data := make([]byte, size)
	send := func() {
		for !w.isOver.Load() {
			if err := made.stream.SendDatagram(data); err != nil {
				w.fail(err)
				return
			}
			w.sent.Add(1)
		}
	}
	return w.run(t, []func(){send}, func() (count, error) {
		seen, err := control.ask()
		seen.Sent = w.sent.Load()
		return seen, err
	})
}

// Asks what the server has received: bytes, datagrams, and nanoseconds of its clock.
func (s *session) ask() (count, error) {
	stream, err := s.request("INFO", 0)
	if err != nil {
		return count{}, err
	}
	body, err := io.ReadAll(stream)
	if err != nil {
		return count{}, err
	}
	var seen count
	_, err = fmt.Sscanf(string(body), "%d %d %d", &seen.Bytes, &seen.Operations, &seen.Nanos)
	return seen, err
}
