// One end of the HTTP/3 interop tests, with quic-go; the contract is in
// tests/interop/http3/programs/contract.py.
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
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	small     = "small\n"
	size      = 1 << 20
	parallels = 100
	link      = "</style.css>; rel=preload"
	patience  = 20 * time.Second
)

var large = strings.Repeat("x", 12_000)

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

// --- the server

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
	server := http3.Server{TLSConfig: http3.ConfigureTLSConfig(
		&tls.Config{Certificates: []tls.Certificate{certificate}})}
	stopped := make(chan struct{})
	server.Handler = site(func() {
		limit, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		server.Shutdown(limit)
		close(stopped)
	})
	if err := server.Serve(socket); err != http.ErrServerClosed {
		return err
	}
	<-stopped
	return nil
}

func site(stop func()) http.Handler {
	var cancelled atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/small", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(small)))
		io.WriteString(w, small)
	})
	mux.HandleFunc("/number/{number}", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.PathValue("number"))
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
		for name, values := range r.Trailer {
			w.Header()[http.TrailerPrefix+name] = values
		}
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", r.Header.Get("X-Large"))
		io.WriteString(w, small)
	})
	mux.HandleFunc("/trailers", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, small)
		w.Header().Set(http.TrailerPrefix+"X-Checksum", "42")
	})
	mux.HandleFunc("/interim", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", link)
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, small)
	})
	mux.HandleFunc("/priority", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("Priority"))
	})
	mux.HandleFunc("/cancelled", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, cancelled.Load())
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 16<<10)
		for {
			if _, err := w.Write(piece); err != nil {
				cancelled.Add(1)
				return
			}
		}
	})
	mux.HandleFunc("/reset", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, small)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/goaway", func(w http.ResponseWriter, r *http.Request) {
		go stop()
		w.Write(pattern())
	})
	return mux
}

// --- the client

type client struct {
	http.Client
	origin string
}

func run(ca, origin, name string) error {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http3.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		QUICConfig:      &quic.Config{},
		// Its names have IPv6 first.
		Dial: func(ctx context.Context, address string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
			_, port, _ := net.SplitHostPort(address)
			return quic.DialAddrEarly(ctx, "127.0.0.1:"+port, t, q)
		},
	}
	defer transport.Close()
	one, found := cases[name]
	if !found {
		return errors.New("no such case")
	}
	return one(&client{http.Client{Transport: transport, Timeout: patience}, origin})
}

var cases = map[string]func(*client) error{
	"get": func(c *client) error { return c.get("/small", small) },
	"head": func(c *client) error {
		response, err := c.Head(c.origin + "/small")
		if err != nil {
			return err
		}
		return same(response.Header.Get("Content-Length"), strconv.Itoa(len(small)))
	},
	"post": func(c *client) error {
		sent := pattern()
		response, err := c.Post(c.origin+"/echo", "application/octet-stream", bytes.NewReader(sent))
		if err != nil {
			return err
		}
		return body(response, string(sent))
	},
	"parallel": func(c *client) error {
		done := make(chan error, parallels)
		for at := range parallels {
			go func() { done <- c.get(fmt.Sprint("/number/", at), fmt.Sprint(at)) }()
		}
		var all []error
		for range parallels {
			all = append(all, <-done)
		}
		return errors.Join(all...)
	},
	"headers": func(c *client) error {
		response, err := c.send("/headers", "X-Large", large)
		if err != nil {
			return err
		}
		return same(response.Header.Get("X-Large"), large)
	},
	"trailers": func(c *client) error {
		response, err := c.Get(c.origin + "/trailers")
		if err == nil {
			err = body(response, small)
		}
		if err != nil {
			return err
		}
		return same(response.Trailer.Get("X-Checksum"), "42")
	},
	"request-trailers": func(c *client) error {
		request, _ := http.NewRequest("POST", c.origin+"/echo", struct{ io.Reader }{strings.NewReader(small)})
		request.Trailer = http.Header{"X-Checksum": {"7"}}
		response, err := c.Do(request)
		if err == nil {
			err = body(response, small)
		}
		if err != nil {
			return err
		}
		return same(response.Trailer.Get("X-Checksum"), "7")
	},
	"interim": func(c *client) error {
		var codes []int
		trace := httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			codes = append(codes, code)
			return nil
		}}
		request, _ := http.NewRequestWithContext(
			httptrace.WithClientTrace(context.Background(), &trace), "GET", c.origin+"/interim", nil)
		response, err := c.Do(request)
		if err == nil {
			err = body(response, small)
		}
		if err != nil {
			return err
		}
		return same(fmt.Sprint(codes), "[103]")
	},
	"priority": func(c *client) error {
		response, err := c.send("/priority", "Priority", "u=1, i")
		if err != nil {
			return err
		}
		return body(response, "u=1, i")
	},
	"client-reset": func(c *client) error {
		response, err := c.Get(c.origin + "/endless")
		if err != nil {
			return err
		}
		response.Body.Read(make([]byte, 1))
		response.Body.Close()
		for c.get("/cancelled", "1") != nil {
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	},
	"server-reset": func(c *client) error {
		response, err := c.Get(c.origin + "/reset")
		if err == nil {
			_, err = io.ReadAll(response.Body)
		}
		if failed := new(http3.Error); !errors.As(err, &failed) || !failed.Remote {
			return fmt.Errorf("no reset came: %v", err)
		}
		return c.get("/small", small)
	},
	// A request after GOAWAY goes to a new connection, which the server does not take.
	"goaway": func(c *client) error { return c.get("/goaway", string(pattern())) },
}

func (c *client) send(path, name, value string) (*http.Response, error) {
	request, err := http.NewRequest("GET", c.origin+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set(name, value)
	return c.Do(request)
}

func (c *client) get(path, wanted string) error {
	response, err := c.Get(c.origin + path)
	if err != nil {
		return err
	}
	return body(response, wanted)
}

func body(response *http.Response, wanted string) error {
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return same(string(got), wanted)
}

func same(got, wanted string) error {
	if got != wanted {
		return fmt.Errorf("%.40q came instead of %.40q", got, wanted)
	}
	return nil
}
