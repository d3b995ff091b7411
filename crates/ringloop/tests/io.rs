//! Buffered reads, lines, frames and copying, over sockets, pipes and files, on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::fs::File;
use ringloop::io::{
    AsyncRead, AsyncWrite, BufReader, Decoder, Framed, FramedWrite, LengthDelimited, LinesCodec,
    Side, StartRead, copy, copy_bidirectional,
};
use ringloop::net::{TcpListener, TcpStream, UnixStream};
use ringloop::process::pipe;
use ringloop::time::{timeout, yield_now};
use ringloop::{future, spawn};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine::{in_directories, in_runtimes};
use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::task::{Context, Waker};

/// Larger than any buffer involved, and not a multiple of one.
const LARGE_LEN: usize = 3_000_001;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    in_runtimes(|runtime| {
        runtime.block_on(async { timeout(PATIENCE, test()).await.unwrap() }).unwrap();
    });
}

async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (ours, listener.accept().await.unwrap())
}

async fn send(stream: &UnixStream, bytes: &'static str) {
    stream.write_all(bytes).await.0.unwrap();
}

/// Polls once, and drops the future.
fn poll_and_drop<F: Future>(future: F) -> bool {
    pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn lines_come_without_their_ends_and_the_last_one_needs_none() {
    on_both(async || {
        let (ours, peer) = UnixStream::pair().unwrap();
        send(&peer, "one\ntwo\r\n\n\r\nthr").await;
        let mut lines = BufReader::new(ours).lines();
        for line in ["one", "two", "", ""] {
            assert_eq!(lines.next_line().await.unwrap().as_deref(), Some(line));
        }
        send(&peer, "ee").await;
        drop(peer);
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("three"));
        assert_eq!(lines.next_line().await.unwrap(), None);
        assert_eq!(lines.next_line().await.unwrap(), None);
    });
}

#[test]
fn line_that_is_too_long_or_no_text_is_an_error() {
    on_both(async || {
        let (ours, peer) = UnixStream::pair().unwrap();
        peer.write_all(b"\xff\xfe\nnext\n").await.0.unwrap();
        let mut reader = BufReader::new(ours).with_record_max(8);
        let mut line = String::from("kept");
        let error = reader.read_line(&mut line).await.unwrap_err();
        assert_eq!((error.kind(), line.as_str()), (io::ErrorKind::InvalidData, "kept"));
        assert_eq!(reader.read_line(&mut line).await.unwrap(), 5);
        assert_eq!(line, "keptnext\n");
        // Exactly the maximum is allowed, and one byte more is refused, also without an end.
        send(&peer, "1234567\n12345678").await;
        line.clear();
        assert_eq!(reader.read_line(&mut line).await.unwrap(), 8);
        for _ in 0..2 {
            let error = reader.read_line(&mut line).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
        assert_eq!(reader.buffer(), b"12345678", "a refused line is not lost");
    });
}

#[test]
fn dropped_read_loses_nothing() {
    on_both(async || {
        let (ours, peer) = UnixStream::pair().unwrap();
        let mut reader = BufReader::new(ours);
        let mut line = String::new();
        for part in ["a", "b", "c\nd"] {
            assert!(!poll_and_drop(reader.read_line(&mut line)), "{part}");
            assert!(!poll_and_drop(reader.fill_buf()));
            send(&peer, part).await;
            for _ in 0..3 {
                yield_now().await;
            }
        }
        assert_eq!(reader.read_line(&mut line).await.unwrap(), 4);
        assert_eq!((line.as_str(), reader.buffer()), ("abc\n", &b"d"[..]));
        // Nor what a frame's part had brought.
        let mut framed = reader.framed(LengthDelimited::new(100).with_length_bytes(1));
        assert!(!poll_and_drop(framed.next()));
        peer.write_all(vec![7; 150]).await.0.unwrap();
        let frame = framed.next().await.unwrap().unwrap();
        assert_eq!(frame, [7; 100], "the length is the letter that was unread");
    });
}

#[test]
fn exact_reads_span_parts_and_report_an_early_end() {
    on_both(async || {
        let (mut ours, peer) = UnixStream::pair().unwrap();
        let writer = spawn(async move {
            for part in ["he", "llo", " and"] {
                send(&peer, part).await;
                yield_now().await;
            }
        });
        let (read, bytes) = ours.read_exact(5, b"> ".to_vec()).await;
        read.unwrap();
        assert_eq!(bytes, b"> hello");
        let (read, bytes) = ours.read_exact(5, Vec::new()).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(bytes, b" and");
        assert!(ours.read_exact(0, Vec::new()).await.0.is_ok());
        writer.await.unwrap();
    });
}

#[test]
fn reading_to_the_end_is_bounded() {
    on_both(async || {
        for (len, max, fits) in
            [(0, 0, true), (10, 10, true), (11, 10, false), (LARGE_LEN, usize::MAX, true)]
        {
            let (ours, peer) = tcp_pair().await;
            let writer = spawn(async move { peer.write_all(pattern(len)).await.0 });
            let (read, bytes) = (&ours).read_to_end(max, Vec::new()).await;
            if fits {
                assert_eq!(read.unwrap(), len);
                assert!(bytes == pattern(len));
            } else {
                assert_eq!(read.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
            }
            writer.await.unwrap().unwrap();
        }
    });
}

#[test]
fn buffered_reader_passes_on_what_it_holds() {
    on_both(async || {
        let (ours, peer) = UnixStream::pair().unwrap();
        send(&peer, "CONNECT\nrest of it, and more").await;
        let mut reader = BufReader::new(ours);
        let mut head = Vec::new();
        assert_eq!(reader.read_until(b'\n', &mut head).await.unwrap(), 8);
        let (read, bytes) = reader.read_exact(4, Vec::new()).await;
        read.unwrap();
        assert_eq!(bytes, b"rest");
        let mut three = [0; 3];
        assert_eq!(reader.read(&mut three).await.unwrap(), 3);
        assert_eq!(&three, b" of");
        let mut all = Vec::new();
        let feeder = spawn(async move { peer.write_all(pattern(LARGE_LEN)).await.0 });
        assert_eq!(copy(&mut reader, &mut all).await.unwrap(), 13 + LARGE_LEN as u64);
        assert!(all.starts_with(b" it, and more") && all[13..] == pattern(LARGE_LEN)[..]);
        feeder.await.unwrap().unwrap();
        let (ours, peer) = UnixStream::pair().unwrap();
        send(&peer, "one\ntwo").await;
        let mut reader = BufReader::new(ours);
        reader.read_line(&mut String::new()).await.unwrap();
        let (ours, unread) = reader.into_parts();
        assert_eq!(unread, b"two");
        drop((ours, peer));
    });
}

/// Copies `pattern(LARGE_LEN)` through a source and a sink.
async fn copies<R: AsyncRead + 'static, W: AsyncWrite + 'static>(
    mut from: R,
    mut to: W,
    feed: impl Future<Output = ()> + 'static,
    drain: impl Future<Output = Vec<u8>> + 'static,
) {
    let (feeding, draining) = (spawn(feed), spawn(drain));
    assert_eq!(copy(&mut from, &mut to).await.unwrap(), LARGE_LEN as u64);
    to.shut_down().await.unwrap();
    drop((from, to));
    feeding.await.unwrap();
    assert!(draining.await.unwrap() == pattern(LARGE_LEN));
}

async fn drain<R: StartRead>(mut from: R) -> Vec<u8> {
    let (read, bytes) = from.read_to_end(usize::MAX, Vec::new()).await;
    read.unwrap();
    bytes
}

async fn feed<W: AsyncWrite>(mut to: W) {
    to.write_all(pattern(LARGE_LEN)).await.0.unwrap();
    to.shut_down().await.unwrap();
}

#[test]
fn everything_is_copied_between_sockets_and_pipes() {
    on_both(async || {
        let ((tcp, far), (unix, peer)) = (tcp_pair().await, UnixStream::pair().unwrap());
        copies(tcp, unix, feed(far), drain(peer)).await;
        let ((reader, far), (near, writer)) = (pipe().unwrap(), pipe().unwrap());
        copies(reader, writer, feed(far), drain(near)).await;
        let ((from, far), (to, peer)) = (tcp_pair().await, tcp_pair().await);
        let (reader, _writer) = from.into_split();
        let (_reader, writer) = to.into_split();
        copies(reader, writer, feed(far), drain(peer)).await;
    });
}

#[test]
fn files_are_sources_and_sinks() {
    in_directories("io-files", async |dir| {
        let (from, to) = (dir.join("from"), dir.join("to"));
        std::fs::write(&from, pattern(LARGE_LEN)).unwrap();
        let mut reader = BufReader::new(File::open(&from).await.unwrap());
        let mut writer = File::create(&to).await.unwrap();
        assert_eq!(copy(&mut reader, &mut writer).await.unwrap(), LARGE_LEN as u64);
        AsyncWrite::write_all(&mut writer, "end").await.0.unwrap();
        AsyncWrite::write_all(&mut writer, "of file\n").await.0.unwrap();
        let copied = std::fs::read(&to).unwrap();
        assert!(copied[..LARGE_LEN] == pattern(LARGE_LEN)[..] && copied.ends_with(b"endof file\n"));
        let directory = File::open(&dir).await.unwrap();
        let failed = copy(&mut &directory, &mut Vec::new()).await.unwrap_err();
        assert_eq!((failed.side, failed.copied), (Side::Read, 0));
        assert_eq!(io::Error::from(failed).raw_os_error(), Some(libc_eisdir()));
    });
}

/// `EISDIR`, by std.
fn libc_eisdir() -> i32 {
    std::fs::write("/", "").unwrap_err().raw_os_error().unwrap()
}

#[test]
fn failed_copy_names_its_side() {
    on_both(async || {
        let (ours, peer) = tcp_pair().await;
        peer.set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(peer);
        let failed = copy(&mut &ours, &mut Vec::new()).await.unwrap_err();
        assert_eq!(
            (failed.side, failed.error.kind()),
            (Side::Read, io::ErrorKind::ConnectionReset)
        );
        assert!(failed.to_string().starts_with("reading from the first stream after 0 bytes"));
        let (reader, mut writer) = pipe().unwrap();
        drop(reader);
        let failed = copy(&mut &b"bytes"[..], &mut writer).await.unwrap_err();
        assert_eq!((failed.side, failed.error.kind()), (Side::Write, io::ErrorKind::BrokenPipe));
    });
}

/// A client and a server, each connected to a copier between them.
struct Between {
    client: TcpStream,
    server: TcpStream,
    copying: ringloop::JoinHandle<Result<(u64, u64), ringloop::io::CopyError>>,
}

async fn between() -> Between {
    let ((client, front), (back, server)) = (tcp_pair().await, tcp_pair().await);
    let copying = spawn(async move { copy_bidirectional(&front, &back).await });
    Between { client, server, copying }
}

#[test]
fn both_directions_are_copied_and_half_closed_one_by_one() {
    on_both(async || {
        let Between { client, server, copying } = between().await;
        let asking = async {
            client.write_all("request").await.0.unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            // The other direction goes on after the end of this one.
            assert!(drain(&client).await == pattern(LARGE_LEN));
        };
        let answering = async {
            assert_eq!(drain(&server).await, b"request");
            server.write_all(pattern(LARGE_LEN)).await.0.unwrap();
            server.shutdown(Shutdown::Write).unwrap();
        };
        future::join(asking, answering).await;
        assert_eq!(copying.await.unwrap().unwrap(), (7, LARGE_LEN as u64));
    });
}

#[test]
fn both_directions_are_copied_at_once() {
    on_both(async || {
        let Between { client, server, copying } = between().await;
        let exchange = async |stream: TcpStream| {
            let ((reader, writer), len) = (stream.into_split(), LARGE_LEN);
            let (received, ()) = future::join(drain(reader), feed(writer)).await;
            assert!(received == pattern(len));
        };
        future::join(exchange(client), exchange(server)).await;
        assert_eq!(copying.await.unwrap().unwrap(), (LARGE_LEN as u64, LARGE_LEN as u64));
    });
}

#[test]
fn reset_of_either_stream_ends_both_directions_and_is_named() {
    on_both(async || {
        for is_backward in [false, true] {
            let Between { client, server, copying } = between().await;
            client.write_all("hello").await.0.unwrap();
            let (count, _) = server.read(Vec::with_capacity(5)).await;
            assert_eq!(count.unwrap(), 5);
            let (resets, other) = if is_backward { (server, client) } else { (client, server) };
            resets.set_linger(Some(std::time::Duration::ZERO)).unwrap();
            drop(resets);
            let failed = copying.await.unwrap().unwrap_err();
            assert_eq!((failed.side, failed.is_backward), (Side::Read, is_backward), "{failed}");
            assert_eq!(failed.error.kind(), io::ErrorKind::ConnectionReset);
            let name = if is_backward { "second" } else { "first" };
            assert!(failed.to_string().contains(&format!("reading from the {name} stream")));
            // Dropped with the copier.
            assert!(drain(other).await.is_empty());
        }
    });
}

/// Every frame, wherever the stream is cut.
#[test]
fn frames_come_whole_however_they_are_cut() {
    on_both(async || {
        let frames: [&[u8]; 5] = [b"", b"a", b"two\n", &[9; 300], b"end"];
        for codec in [
            LengthDelimited::new(300),
            LengthDelimited::new(300).with_length_bytes(2),
            LengthDelimited::new(300).with_length_bytes(8).little_endian(),
        ] {
            let mut encoded = FramedWrite::new(Vec::<u8>::new(), codec);
            for frame in frames {
                encoded.send(frame).await.unwrap();
            }
            let bytes = encoded.into_inner();
            for cut in 0..bytes.len() {
                let (ours, peer) = UnixStream::pair().unwrap();
                let (head, tail) = (bytes[..cut].to_vec(), bytes[cut..].to_vec());
                let mut stream = Framed::new(ours, codec);
                peer.write_all(head).await.0.unwrap();
                let mut came = Vec::new();
                // Every whole frame of the head, and the start of the next.
                while let Some(frame) = now(stream.next()) {
                    came.push(frame.unwrap().unwrap());
                }
                peer.write_all(tail).await.0.unwrap();
                drop(peer);
                while let Some(frame) = stream.next().await.unwrap() {
                    came.push(frame);
                }
                assert!(came == frames, "cut at {cut}");
            }
        }
    });
}

/// The output, if it is there at once.
fn now<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn frames_over_the_maximum_and_ends_within_one_are_errors() {
    on_both(async || {
        let (ours, peer) = UnixStream::pair().unwrap();
        // The announcement alone is refused: nothing is buffered for it.
        peer.write_all(u32::MAX.to_be_bytes().to_vec()).await.0.unwrap();
        let mut framed = Framed::new(ours, LengthDelimited::new(1000));
        assert_eq!(framed.next().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (ours, peer) = UnixStream::pair().unwrap();
        send(&peer, "\0\0\0\u{5}hel").await;
        drop(peer);
        let mut framed = Framed::new(ours, LengthDelimited::new(1000));
        assert_eq!(framed.next().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut sink =
            FramedWrite::new(Vec::<u8>::new(), LengthDelimited::new(300).with_length_bytes(1));
        for len in [256, 301] {
            let error = sink.send(vec![0; len]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{len}");
        }
        assert!(sink.into_inner().is_empty());
    });
}

#[test]
fn lines_codec_bounds_both_directions() {
    on_both(async || {
        let (ours, peer) = UnixStream::pair().unwrap();
        let mut ours = Framed::new(ours, LinesCodec::new(8));
        let mut peer = Framed::new(peer, LinesCodec::new(8));
        peer.feed("one").unwrap();
        peer.feed("two").unwrap();
        for refused in ["12345678", "a\nb"] {
            assert_eq!(peer.feed(refused).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        peer.flush().await.unwrap();
        peer.get_ref().write_all("123456789").await.0.unwrap();
        assert_eq!(ours.next().await.unwrap().as_deref(), Some("one"));
        assert_eq!(ours.next().await.unwrap().as_deref(), Some("two"));
        assert_eq!(ours.next().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    });
}

/// A codec that never finds a message.
struct Endless;

impl Decoder for Endless {
    type Item = ();

    fn decode(&mut self, _: &[u8]) -> io::Result<Option<((), usize)>> {
        Ok(None)
    }

    fn frame_max(&self) -> usize {
        100_000
    }
}

#[test]
fn codec_without_a_message_does_not_fill_the_memory() {
    on_both(async || {
        let (ours, peer) = UnixStream::pair().unwrap();
        let flood = spawn(async move { while peer.write_all(vec![0; 65536]).await.0.is_ok() {} });
        let mut framed = Framed::new(ours, Endless);
        assert_eq!(framed.next().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(framed.into_inner().buffer().len() < 300_000);
        flood.await.unwrap();
    });
}
