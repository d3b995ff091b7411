//! Sequences as streams of `futures-core`: the same items, and an end if there is one; on both
//! drivers.
#![allow(clippy::unwrap_used)]

use futures_core::Stream;
use ringloop::net::{TcpListener, TcpStream, UdpSocket};
use ringloop_testing::engine;
use ringloop_testing::engine::in_runtimes;
use std::future::poll_fn;
use std::io::Write as _;
use std::pin::Pin;

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await
}

#[test]
fn sequences_are_streams() {
    in_runtimes(|runtime| {
        let done = runtime.block_on(async {
            let std = engine::listener();
            let listener: TcpListener = std.try_clone().unwrap().into();
            let mut incoming = listener.incoming();
            let mut client = engine::connect_to(&std);
            let stream: TcpStream = next(&mut incoming).await.unwrap().unwrap();
            client.write_all(b"hello").unwrap();
            let mut receive = stream.receive();
            assert_eq!(&*next(&mut receive).await.unwrap().unwrap(), b"hello");
            drop(client);
            assert!(next(&mut receive).await.is_none());

            let socket = UdpSocket::bind_addr(([127, 0, 0, 1], 0).into()).unwrap();
            let to = socket.local_addr().unwrap();
            socket.send_to(b"datagram".to_vec(), to).await.0.unwrap();
            let datagram = next(&mut socket.datagrams()).await.unwrap().unwrap();
            assert_eq!(datagram.payload(), b"datagram");
        });
        done.unwrap();
    });
}
