//! Several workers at one address, on both drivers: clients that migrate stay with their worker.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop::net::UdpSocket;
use ringloop::time::timeout;
use ringloop::{Options, Runtime};
use ringloop_quic::config::{EndpointConfig, ServerConfig};
use ringloop_quic::{Connection, Endpoint, Steering, Worker};
use ringloop_testing::quic::{any, client_config, pattern, server_config};
use ringloop_testing::{PATIENCE, drivers};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const WORKERS: usize = 3;
const CLIENTS: usize = 12;

fn runtime(driver: Choice) -> Runtime {
    let options = Options { driver, ..Options::default() };
    Runtime::with_options(options).unwrap()
}

async fn echo(connection: Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        if let Ok(read) = recv.read_to_end(1 << 20).await {
            drop(send.write_all(&read).await);
        }
    }
}

/// The workers, each in its own thread, until stopped.
struct Servers {
    address: SocketAddr,
    stops: Arc<AtomicBool>,
    handed: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<u64>>,
}

impl Servers {
    fn start(driver: Choice, steering: Steering, config: ServerConfig) -> Self {
        let workers = Worker::bind(any(), WORKERS, steering).unwrap();
        let address = workers[0].local_addr().unwrap();
        let mut servers =
            Self { address, stops: Arc::default(), handed: Arc::default(), threads: Vec::new() };
        for worker in workers {
            let (stops, handed) = (Arc::clone(&servers.stops), Arc::clone(&servers.handed));
            let config = config.clone();
            let run = move || serve(driver, worker, config, &stops, &handed);
            servers.threads.push(std::thread::spawn(run));
        }
        servers
    }

    /// The number of connections of each, and of datagrams passed on.
    fn stop(self) -> (Vec<u64>, u64) {
        self.stops.store(true, Ordering::SeqCst);
        let counts = self.threads.into_iter().map(|thread| thread.join().unwrap());
        (counts.collect(), self.handed.load(Ordering::SeqCst))
    }
}

fn serve(
    driver: Choice,
    worker: Worker,
    config: ServerConfig,
    stops: &AtomicBool,
    handed: &AtomicU64,
) -> u64 {
    let served = runtime(driver).block_on(async {
        let secret = EndpointConfig::default().reset_secret(&[3; 64]);
        let server = Endpoint::worker(worker, &secret, Some(config), None).unwrap();
        let mut count = 0;
        while !stops.load(Ordering::SeqCst) {
            let Ok(incoming) = timeout(Duration::from_millis(20), server.accept()).await else {
                continue;
            };
            let accepting = incoming.unwrap().accept().unwrap();
            count += 1;
            ringloop::spawn(async move { echo(accepting.await.unwrap()).await });
        }
        handed.fetch_max(server.handed_over_count(), Ordering::SeqCst);
        count
    });
    served.unwrap()
}

/// Exchanges data, migrates, and exchanges again.
async fn move_about(address: SocketAddr, number: usize) {
    let client = Endpoint::client(any(), client_config()).unwrap();
    let ours = client.connect(address, "localhost").unwrap().await.unwrap();
    for round in 0..5 {
        let bytes = pattern(20_000, (number * 10 + round) as u64);
        let (mut send, mut recv) = ours.open_bi().await.unwrap();
        send.write_all(&bytes).await.unwrap();
        send.finish().unwrap();
        assert!(recv.read_to_end(1 << 20).await.unwrap() == bytes);
        client.rebind(UdpSocket::bind_addr(any()).unwrap()).unwrap();
    }
    ours.close(0, b"");
    client.wait_idle().await;
}

#[test]
fn migrating_clients_stay_with_their_worker() {
    for steering in [Steering::Kernel, Steering::Workers] {
        for driver in drivers() {
            let servers = Servers::start(driver, steering, server_config());
            let address = servers.address;
            let moved = runtime(driver).block_on(async {
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|number| ringloop::spawn(move_about(address, number)))
                    .collect();
                for client in clients {
                    timeout(PATIENCE, client).await.unwrap().unwrap();
                }
            });
            moved.unwrap();
            let (served, handed) = servers.stop();
            assert_eq!(served.iter().sum::<u64>(), CLIENTS as u64);
            let busy = served.iter().filter(|&&count| count > 0).count();
            assert!(busy > 1, "{served:?}");
            match steering {
                Steering::Kernel => assert_eq!(handed, 0, "the kernel knows the worker"),
                Steering::Workers => assert!(handed > 0, "moving takes clients to others"),
            }
        }
    }
}

#[test]
fn client_resumes_with_any_worker() {
    for driver in drivers() {
        let servers = Servers::start(driver, Steering::Kernel, server_config());
        let address = servers.address;
        let resumed = runtime(driver).block_on(async {
            let client = Endpoint::client(any(), client_config()).unwrap();
            let mut resumed = 0;
            for round in 0..6 {
                let ours = client.connect(address, "localhost").unwrap().await.unwrap();
                resumed += usize::from(ours.handshake_data().unwrap().is_resumed);
                // The ticket comes before the answer.
                let (mut send, mut recv) = ours.open_bi().await.unwrap();
                send.write_all(&[round; 10]).await.unwrap();
                send.finish().unwrap();
                assert_eq!(recv.read_to_end(10).await.unwrap(), [round; 10]);
                ours.close(0, b"");
            }
            resumed
        });
        assert_eq!(resumed.unwrap(), 5);
        servers.stop();
    }
}

#[test]
fn worker_count_is_1_to_256() {
    for count in [0, 257] {
        let refused = Worker::bind(any(), count, Steering::Kernel).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    }
}
