package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	greeting     = "Hello, world!"
	downloadPath = "/16777216"
	uploadBytes  = 4 << 20
	handlerBytes = 64 << 10
)

type clientConnection struct {
	*http3.ClientConn
	address string
}

func (t target) connect() (*clientConnection, error) {
	connection, err := quic.DialAddr(context.Background(), t.address, t.security(http3.NextProtoH3), config())
	if err != nil {
		return nil, err
	}
	transport := http3.Transport{DisableCompression: true}
	return &clientConnection{transport.NewClientConn(connection), t.address}, nil
}

func (c *clientConnection) send(method, path string, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequest(method, "https://"+c.address+path, body)
	if err != nil {
		return nil, err
	}
	response, err := c.RoundTrip(request)
	if err == nil && response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d for %s", response.StatusCode, path)
	}
	return response, err
}

func requests(t target) (result, error) {
	connections, streams, err := t.shape()
	if err != nil {
		return result{}, err
	}
	w := newWork()
	var tasks []func()
	for range connections {
		connection, err := t.connect()
		if err != nil {
			return result{}, err
		}
		for range streams {
			tasks = append(tasks, func() { w.repeat(connection.greet) })
		}
	}
	return w.run(t, tasks, w.count)
}

// Reads "8x32": connections, and requests in flight on each.
func (t target) shape() (connections, streams int, err error) {
	_, err = fmt.Sscanf(t.size, "%dx%d", &connections, &streams)
	return
}

func (c *clientConnection) greet() error {
	response, err := c.send(http.MethodGet, "/", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && string(body) != greeting {
		err = fmt.Errorf("another answer: %q", body)
	}
	return err
}

func download(t target) (result, error) {
	connection, err := t.connect()
	if err != nil {
		return result{}, err
	}
	w := newWork()
	buffer := make([]byte, handlerBytes)
	task := func() {
		w.repeat(func() error {
			response, err := connection.send(http.MethodGet, downloadPath, nil)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			return w.drain(response.Body, buffer)
		})
	}
	return w.run(t, []func(){task}, w.count)
}

// Counts what comes up to the end, or to that of the run.
func (w *work) drain(from io.Reader, buffer []byte) error {
	for !w.isOver.Load() {
		n, err := from.Read(buffer)
		w.bytes.Add(int64(n))
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func upload(t target) (result, error) {
	connection, err := t.connect()
	if err != nil {
		return result{}, err
	}
	w := newWork()
	task := func() {
		w.repeat(func() error {
			response, err := connection.send(http.MethodPost, "/", io.LimitReader(zeros{}, uploadBytes))
			if err != nil {
				return err
			}
			defer response.Body.Close()
			return w.confirm(response.Body)
		})
	}
	return w.run(t, []func(){task}, w.count)
}

// Reads how many bytes the receiver has counted.
func (w *work) confirm(from io.Reader) error {
	body, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	counted, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
	if err == nil && counted != uploadBytes {
		err = fmt.Errorf("the server has counted %d bytes of %d", counted, uploadBytes)
	}
	w.bytes.Add(counted)
	return err
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}

// --- the server of quic-go

func serve(address, cert, key string) error {
	certificate, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	server := http3.Server{
		Addr:       address,
		TLSConfig:  http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{certificate}}),
		QUICConfig: config(),
		Handler:    http.HandlerFunc(handle),
	}
	server.QUICConfig.MaxIncomingStreams = 512
	fmt.Println("ready")
	return server.ListenAndServe()
}

func handle(response http.ResponseWriter, request *http.Request) {
	if request.Method == http.MethodPost {
		n, _ := io.Copy(io.Discard, request.Body)
		fmt.Fprint(response, n)
		return
	}
	if request.URL.Path == "/" {
		response.Header().Set("Content-Type", "text/plain")
		io.WriteString(response, greeting)
		return
	}
	n, _ := strconv.ParseInt(request.URL.Path[1:], 10, 64)
	chunk := make([]byte, handlerBytes)
	for ; n > 0; n -= handlerBytes {
		if _, err := response.Write(chunk); err != nil {
			return
		}
	}
}
