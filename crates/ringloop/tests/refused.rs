//! System calls that a filter refuses while older equivalents are allowed.
#![allow(clippy::unwrap_used)]

use ringloop::net::{TcpListener, TcpStream, UdpSocket};
use ringloop::{Options, Runtime};
use ringloop_testing::drivers;
use ringloop_testing::engine::{alone, deny};

/// Numbered datagrams from one socket to the other and back: in batches, and by a stream of
/// receives.
async fn exchange(one: &UdpSocket, two: &UdpSocket) {
    let payloads: Vec<Vec<u8>> = (1..=50u8).map(|n| vec![n; usize::from(n)]).collect();
    for (from, to) in [(one, two), (two, one)] {
        let address = to.local_addr().unwrap();
        let batch: Vec<_> = payloads.iter().map(|bytes| (&**bytes, Some(address))).collect();
        let (count, sent) = from.send_batch(&batch).await;
        sent.unwrap();
        assert_eq!(count, payloads.len());
        let mut datagrams = to.datagrams();
        let mut seen: Vec<Vec<u8>> = Vec::new();
        while seen.len() < payloads.len() {
            let datagram = datagrams.next().await.unwrap();
            assert_eq!(datagram.source().to_std(), from.local_addr().ok());
            seen.extend(datagram.segments().map(<[u8]>::to_vec));
        }
        assert_eq!(seen, payloads);
    }
}

/// Runs `body` with each driver and each errno of a filter, in a separate thread: a filter ends
/// with it.
fn filtered<F: Future<Output = ()>>(body: impl Fn(i32) -> F + Send + Copy + 'static) {
    let _alone = alone();
    for driver in drivers() {
        for errno in [libc::ENOSYS, libc::EPERM] {
            let filtered = std::thread::spawn(move || {
                let runtime = Runtime::with_options(Options { driver, ..Options::default() });
                runtime.unwrap().block_on(body(errno)).unwrap();
            });
            filtered.join().unwrap();
        }
    }
}

#[test]
fn connections_are_accepted_where_accept4_is_refused() {
    filtered(|errno| async move {
        let listener = TcpListener::bind_addr("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        deny(libc::SYS_accept4, errno);
        let client = TcpStream::connect(address).await.unwrap();
        let accepted = listener.accept().await.unwrap();
        assert_eq!(accepted.peer_addr().ok(), client.local_addr().ok());
        let mut incoming = listener.incoming();
        for _ in 0..3 {
            let client = TcpStream::connect(address).await.unwrap();
            let accepted = incoming.next().await.unwrap();
            assert_eq!(accepted.peer_addr().ok(), client.local_addr().ok());
        }
    });
}

#[test]
fn datagrams_go_one_by_one_where_the_calls_for_many_are_refused() {
    filtered(|errno| async move {
        let [one, two] =
            [(); 2].map(|()| UdpSocket::bind_addr("127.0.0.1:0".parse().unwrap()).unwrap());
        exchange(&one, &two).await;
        deny(libc::SYS_recvmmsg, errno);
        deny(libc::SYS_sendmmsg, errno);
        exchange(&one, &two).await;
    });
}
