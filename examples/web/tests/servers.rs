//! Both servers, with clients of the same runtime; and the traits that they stand on. On both drivers.
#![allow(clippy::unwrap_used)]

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, client};
use hyper_util::rt::TokioIo;
use ringloop::Choice;
use ringloop::compat::hyper::{Executor, Timer};
use ringloop::net::{Polled, TcpListener, TcpStream, UnixStream};
use ringloop::{Runtime, join, spawn};
use ringloop_web_examples::{self_signed, serve_plain, serve_tls};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

const ANY: &str = "127.0.0.1:0";

fn on_both(test: impl Fn(Runtime)) {
    for driver in [Choice::Uring, Choice::Epoll] {
        match Runtime::builder().driver(driver).workers(2).build() {
            Ok(runtime) => test(runtime),
            Err(error)
                if driver == Choice::Uring
                    && std::env::var_os("RINGLOOP_ALLOW_NO_URING").is_some() =>
            {
                eprintln!("skipped on io_uring: {error}");
            }
            Err(error) => panic!("{driver:?}: {error}"),
        }
    }
}

/// A greeting, an echo of a megabyte, and a page that is not there, on one connection.
async fn talk<I>(io: I, is_http2: bool)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    if is_http2 {
        let mut builder = client::conn::http2::Builder::new(Executor);
        let (mut sender, connection) = builder.timer(Timer).handshake(io).await.unwrap();
        let connection = spawn(connection);
        exchange(|request| sender.send_request(request)).await;
        drop(sender);
        connection.await.unwrap().unwrap();
    } else {
        let (mut sender, connection) = client::conn::http1::handshake(io).await.unwrap();
        let connection = spawn(connection);
        exchange(|request| sender.send_request(request)).await;
        drop(sender);
        connection.await.unwrap().unwrap();
    }
}

async fn exchange<F>(mut send: impl FnMut(Request<Full<Bytes>>) -> F)
where
    F: Future<Output = hyper::Result<hyper::Response<hyper::body::Incoming>>>,
{
    let large: Bytes = (0..1 << 20).map(|index: u32| (index * 7 / 3) as u8).collect();
    let exchanges = [
        ("/", Bytes::new(), StatusCode::OK, Bytes::from("hello from a ring\n")),
        ("/echo", large.clone(), StatusCode::OK, large),
        ("/none", Bytes::new(), StatusCode::NOT_FOUND, Bytes::new()),
    ];
    for (path, body, status, expected) in exchanges {
        let request = Request::post(format!("http://localhost{path}"))
            .header("host", "localhost")
            .body(Full::new(body));
        let response = send(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), status);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body == expected, "{path}: {} bytes came", body.len());
    }
}

async fn connect(addr: SocketAddr) -> Polled<TcpStream> {
    Polled::new(TcpStream::connect(addr).await.unwrap())
}

#[test]
fn hyper_serves_both_versions_on_every_worker() {
    on_both(|runtime| {
        for is_http2 in [false, true] {
            let serving = TcpListener::serve_on_all(
                &runtime.workers(),
                ANY.parse().unwrap(),
                move |listener| serve_plain(listener, is_http2),
            );
            let addr = serving.unwrap().local_addr;
            runtime
                .block_on(async {
                    let clients: Vec<_> = (0..8)
                        .map(|_| spawn(async move { talk(connect(addr).await, is_http2).await }))
                        .collect();
                    for client in clients {
                        client.await.unwrap();
                    }
                })
                .unwrap();
        }
        runtime.shut_down().unwrap();
    });
}

#[test]
fn rustls_serves_what_the_client_chooses() {
    on_both(|runtime| {
        let (server, mut client) = self_signed().unwrap();
        let config = Arc::new(server);
        let serve = move |listener| serve_tls(listener, config);
        let serving =
            TcpListener::serve_on_all(&runtime.workers(), ANY.parse().unwrap(), serve).unwrap();
        for protocol in ["h2", "http/1.1"] {
            client.alpn_protocols = vec![protocol.into()];
            let connector = TlsConnector::from(Arc::new(client.clone()));
            let name = ServerName::try_from("localhost").unwrap();
            runtime
                .block_on(async {
                    let stream = connect(serving.local_addr).await;
                    let stream = connector.connect(name, stream).await.unwrap();
                    talk(TokioIo::new(stream), protocol == "h2").await;
                })
                .unwrap();
        }
    });
}

#[test]
fn client_that_does_not_trust_the_certificate_is_refused_and_the_server_goes_on() {
    on_both(|runtime| {
        let (server, client) = self_signed().unwrap();
        let (_, stranger) = self_signed().unwrap();
        let config = Arc::new(server);
        let serve = move |listener| serve_tls(listener, config);
        let serving =
            TcpListener::serve_on_all(&runtime.workers(), ANY.parse().unwrap(), serve).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        runtime
            .block_on(async {
                let stream = connect(serving.local_addr).await;
                let refused =
                    TlsConnector::from(Arc::new(stranger)).connect(name.clone(), stream).await;
                assert!(refused.is_err());
                let stream = connect(serving.local_addr).await;
                let trusted = TlsConnector::from(Arc::new(client)).connect(name, stream);
                talk(TokioIo::new(trusted.await.unwrap()), false).await;
            })
            .unwrap();
    });
}

#[test]
fn timer_of_hyper_sleeps_is_set_again_and_can_be_given_up() {
    on_both(|runtime| {
        runtime
            .block_on(async {
                let (timer, start) = (Timer, Instant::now());
                let limit = Duration::from_millis(10);
                hyper::rt::Timer::sleep(&timer, limit).await;
                assert!(start.elapsed() >= limit);
                let mut sleep = hyper::rt::Timer::sleep_until(&timer, start);
                sleep.as_mut().await;
                sleep.as_mut().await;
                let later = Instant::now() + limit;
                hyper::rt::Timer::reset(&timer, &mut sleep, later);
                sleep.await;
                assert!(Instant::now() >= later);
                drop(hyper::rt::Timer::sleep(&timer, Duration::from_secs(3600)));
            })
            .unwrap();
    });
}

#[test]
fn traits_of_tokio_carry_both_directions_at_once() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    on_both(|runtime| {
        runtime
            .block_on(async {
                let (ours, peer) = UnixStream::pair().unwrap();
                let (mut reader, mut writer) = tokio::io::split(Polled::new(ours));
                let (mut echo_reader, mut echo_writer) = tokio::io::split(Polled::new(peer));
                let bytes: Vec<u8> = (0..3_000_000_u32).map(|index| (index / 3) as u8).collect();
                let mut back = Vec::new();
                let write = async {
                    writer.write_all(&bytes).await.unwrap();
                    writer.shutdown().await.unwrap();
                };
                let echo = async {
                    tokio::io::copy(&mut echo_reader, &mut echo_writer).await.unwrap();
                    echo_writer.shutdown().await.unwrap();
                };
                let read = async { reader.read_to_end(&mut back).await.unwrap() };
                join!(write, echo, read);
                assert!(back == bytes, "{} bytes came back", back.len());
            })
            .unwrap();
    });
}

#[test]
fn traits_of_futures_io_carry_lines() {
    use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};
    on_both(|runtime| {
        runtime
            .block_on(async {
                let (ours, peer) = UnixStream::pair().unwrap();
                let (mut ours, mut peer) = (Polled::new(ours), Polled::new(peer));
                let text = b"one\ntwo\n";
                let count = poll_fn(|cx| AsyncWrite::poll_write(Pin::new(&mut ours), cx, text));
                assert_eq!(count.await.unwrap(), text.len());
                poll_fn(|cx| AsyncWrite::poll_close(Pin::new(&mut ours), cx)).await.unwrap();
                let line = poll_fn(|cx| {
                    AsyncBufRead::poll_fill_buf(Pin::new(&mut peer), cx)
                        .map(|filled| filled.unwrap()[..4].to_vec())
                });
                assert_eq!(line.await, b"one\n");
                AsyncBufRead::consume(Pin::new(&mut peer), 4);
                let mut rest = [0; 9];
                for expected in [4, 0] {
                    let read =
                        poll_fn(|cx| AsyncRead::poll_read(Pin::new(&mut peer), cx, &mut rest));
                    assert_eq!(read.await.unwrap(), expected);
                }
                assert_eq!(&rest[..4], b"two\n");
            })
            .unwrap();
    });
}
