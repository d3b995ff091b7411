package main

import (
	"context"
	"fmt"
	"io"

	"github.com/quic-go/quic-go"
)

// The same work on plain QUIC streams: what HTTP/3 and WebTransport cost beside them. A stream is a
// request line, "GET N", "POST" or "INFO", and its body; the response has no head.
const streamsProtocol = "bench-streams"

// A source of bidirectional streams: a connection, or a session of WebTransport, whose streams begin
// with its number.
type opener struct {
	connection *quic.Conn
	prefix     string
}

func (t target) connectQUIC() (opener, error) {
	connection, err := quic.DialAddr(context.Background(), t.address, t.security(streamsProtocol), config())
	return opener{connection, ""}, err
}

func (o opener) request(line string, body int64) (*quic.Stream, error) {
	stream, err := o.connection.OpenStreamSync(context.Background())
	if err != nil {
		return nil, err
	}
	if _, err = io.WriteString(stream, o.prefix+line+"\n"); err == nil && body > 0 {
		_, err = io.Copy(stream, io.LimitReader(zeros{}, body))
	}
	if err == nil {
		err = stream.Close()
	}
	return stream, err
}

func (o opener) greet() error {
	stream, err := o.request("GET 13", 0)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(stream)
	if err == nil && len(body) != len(greeting) {
		err = fmt.Errorf("another answer: %q", body)
	}
	return err
}

func (o opener) download(t target) (result, error) {
	w := newWork()
	buffer := make([]byte, handlerBytes)
	task := func() {
		w.repeat(func() error {
			stream, err := o.request("GET "+downloadPath[1:], 0)
			if err != nil {
				return err
			}
			return w.drain(stream, buffer)
		})
	}
	return w.run(t, []func(){task}, w.count)
}

func (o opener) upload(t target) (result, error) {
	w := newWork()
	task := func() {
		w.repeat(func() error {
			stream, err := o.request("POST", uploadBytes)
			if err != nil {
				return err
			}
			return w.confirm(stream)
		})
	}
	return w.run(t, []func(){task}, w.count)
}

func streamRequests(t target) (result, error) {
	connections, streams, err := t.shape()
	if err != nil {
		return result{}, err
	}
	w := newWork()
	var tasks []func()
	for range connections {
		connection, err := t.connectQUIC()
		if err != nil {
			return result{}, err
		}
		for range streams {
			tasks = append(tasks, func() { w.repeat(connection.greet) })
		}
	}
	return w.run(t, tasks, w.count)
}

func streamDownload(t target) (result, error) {
	connection, err := t.connectQUIC()
	if err != nil {
		return result{}, err
	}
	return connection.download(t)
}

func streamUpload(t target) (result, error) {
	connection, err := t.connectQUIC()
	if err != nil {
		return result{}, err
	}
	return connection.upload(t)
}
