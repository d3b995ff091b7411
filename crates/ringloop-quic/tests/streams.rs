//! Streams, on both drivers: data, concurrency, credit, resets, stops, ends, priorities.
#![allow(clippy::unwrap_used)]

use ringloop::time::{sleep, timeout};
use ringloop_quic::config::Transport;
use ringloop_quic::error::{ConnectionError, StreamError};
use ringloop_quic::{Bytes, Connection, Direction, SendStream};
use ringloop_testing::quic::{
    client_config, on_both, pair, pair_as, pair_with, pattern, server_config,
};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn sixteen_mebibytes_arrive_intact_in_both_directions() {
    on_both(|| async {
        let (ours, theirs, _ends) = pair().await.parts();
        let bytes = pattern(16 << 20, 1);
        let echo = ringloop::spawn(async move {
            let (mut send, mut recv) = theirs.accept_bi().await?;
            while let Some(chunk) = recv.read_chunk(usize::MAX).await? {
                send.write_chunk(chunk).await?;
            }
            send.finish()?;
            send.stopped().await
        });
        let (mut send, mut recv) = ours.open_bi().await.unwrap();
        let copy = bytes.clone();
        let writer = ringloop::spawn(async move {
            for piece in copy.chunks(10_000) {
                send.write_all(piece).await?;
            }
            send.finish()?;
            send.stopped().await
        });
        let back = recv.read_to_end(bytes.len()).await.unwrap();
        assert!(back == bytes);
        assert_eq!(recv.read(&mut [0; 4]).await.unwrap(), None, "the end stays the end");
        assert_eq!(writer.await.unwrap(), Ok(None));
        assert_eq!(echo.await.unwrap(), Ok(None));
        let stats = ours.stats();
        assert!(stats.bytes_sent > 16 << 20 && stats.messages_sent < stats.udp_sent);
    });
}

#[test]
fn many_streams_carry_their_own_bytes() {
    on_both(|| async {
        let (ours, theirs, _ends) = pair().await.parts();
        let serve = ringloop::spawn(async move {
            for _ in 0..500 {
                let (mut send, mut recv) = theirs.accept_bi().await.unwrap();
                ringloop::spawn(async move {
                    let request = recv.read_to_end(1 << 20).await.unwrap();
                    send.write_all(&request).await.unwrap();
                    send.finish().unwrap();
                    send.stopped().await.unwrap();
                });
            }
            theirs.closed().await
        });
        // Five times the limit of open streams: opening waits for the peer.
        let tasks: Vec<_> = (0..500)
            .map(|number| {
                let ours = ours.clone();
                ringloop::spawn(async move {
                    let (mut send, mut recv) = ours.open_bi().await.unwrap();
                    let bytes = pattern(number * 7, number as u64);
                    send.write_all(&bytes).await.unwrap();
                    send.finish().unwrap();
                    assert!(recv.read_to_end(1 << 20).await.unwrap() == bytes);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        ours.close(7, b"done");
        let ended = serve.await.unwrap();
        let reason = Bytes::from_static(b"done");
        assert_eq!(ended, ConnectionError::ClosedByPeer { code: 7, reason });
    });
}

#[test]
fn writer_blocks_until_reader_gives_credit() {
    on_both(|| async {
        let transport = Transport {
            stream_receive_window: 10_000,
            receive_window: 15_000,
            ..Transport::default()
        };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        let mut first = ours.open_uni().await.unwrap();
        let mut second = ours.open_uni().await.unwrap();
        let all = vec![5; 20_000];
        assert_eq!(first.write(&all).await.unwrap(), 10_000, "the stream's window");
        assert!(timeout(SHORT, first.write(&all)).await.is_err());
        assert_eq!(first.try_write(&all).unwrap(), 0);
        assert_eq!(second.write(&all).await.unwrap(), 5_000, "the connection's window");
        let mut one = theirs.accept_uni().await.unwrap();
        let mut buf = vec![0; 9_000];
        one.read_exact(&mut buf).await.unwrap();
        // All of the credit goes to the first writer.
        assert_eq!(first.write(&all).await.unwrap(), 9_000);
        assert!(timeout(SHORT, second.write(&all)).await.is_err());
        one.read_exact(&mut buf).await.unwrap();
        assert!(second.write(&all).await.unwrap() >= 5_000);
    });
}

#[test]
fn open_waits_for_stream_credit() {
    on_both(|| async {
        let transport = Transport { bi_streams_max: 2, uni_streams_max: 0, ..Transport::default() };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        let (mut send, recv) = ours.open_bi().await.unwrap();
        let other = ours.open_bi().await.unwrap();
        assert!(ours.try_open_bi().unwrap().is_none());
        assert!(timeout(SHORT, ours.open_bi()).await.is_err());
        assert!(timeout(SHORT, ours.open_uni()).await.is_err());
        // Ending a stream makes room for another.
        send.finish().unwrap();
        let (answer, mut asked) = theirs.accept_bi().await.unwrap();
        assert_eq!(asked.read_to_end(1).await.unwrap(), []);
        drop((answer, asked, recv, send));
        let third = timeout(ringloop_testing::PATIENCE, ours.open_bi()).await.unwrap().unwrap();
        assert!(ours.try_open_bi().unwrap().is_none());
        // So does raising the limit.
        theirs.set_uni_streams_max(1);
        timeout(ringloop_testing::PATIENCE, ours.open_uni()).await.unwrap().unwrap();
        drop((other, third));
    });
}

#[test]
fn resets_and_stops_carry_their_codes() {
    on_both(|| async {
        let (ours, theirs, _ends) = pair().await.parts();
        for (here, there) in [(&ours, &theirs), (&theirs, &ours)] {
            let (mut send, mut recv) = here.open_bi().await.unwrap();
            send.write_all(b"begin").await.unwrap();
            let (mut answer, mut asked) = there.accept_bi().await.unwrap();
            let mut buf = [0; 5];
            asked.read_exact(&mut buf).await.unwrap();
            send.reset(17).unwrap();
            assert_eq!(send.reset(18), Err(StreamError::Closed));
            assert_eq!(asked.read(&mut buf).await, Err(StreamError::Reset(17)));
            assert_eq!(asked.read(&mut buf).await, Err(StreamError::Reset(17)), "it stays so");
            recv.stop(1 << 40).unwrap();
            assert_eq!(recv.read(&mut buf).await, Err(StreamError::Closed));
            assert_eq!(answer.stopped().await, Ok(Some(1 << 40)));
            assert_eq!(answer.write(b"x").await, Err(StreamError::Stopped(1 << 40)));
        }
    });
}

#[test]
fn dropped_streams_finish_or_stop() {
    on_both(|| async {
        let (ours, theirs, _ends) = pair().await.parts();
        let (mut send, recv) = ours.open_bi().await.unwrap();
        send.write_all(b"all of it").await.unwrap();
        drop((send, recv));
        let (mut answer, mut asked) = theirs.accept_bi().await.unwrap();
        assert_eq!(asked.read_to_end(100).await.unwrap(), b"all of it");
        assert_eq!(answer.stopped().await, Ok(Some(0)));
    });
}

#[test]
fn data_received_before_close_is_read_first() {
    on_both(|| async {
        let (ours, theirs, _ends) = pair().await.parts();
        let received = || theirs.stats().bytes_received;
        let before = received();
        let mut send = ours.open_uni().await.unwrap();
        send.write_all(&pattern(30_000, 3)).await.unwrap();
        let mut recv = theirs.accept_uni().await.unwrap();
        let mut head = [0; 10];
        recv.read_exact(&mut head).await.unwrap();
        // Late handshake packets count too: everything has arrived once the counter stays.
        let mut seen = 0;
        while seen < before + 30_000 || seen != received() {
            seen = received();
            sleep(Duration::from_millis(20)).await;
        }
        ours.close(3, b"");
        assert!(matches!(theirs.closed().await, ConnectionError::ClosedByPeer { code: 3, .. }));
        let mut rest = vec![0; 29_990];
        recv.read_exact(&mut rest).await.unwrap();
        assert!([&head[..], &rest].concat() == pattern(30_000, 3));
        let ended = recv.read(&mut rest).await;
        assert!(matches!(ended, Err(StreamError::Connection(_))), "{ended:?}");
    });
}

#[test]
fn read_to_end_has_a_limit() {
    on_both(|| async {
        let (ours, theirs, _ends) = pair().await.parts();
        for (len, limit) in [(100, 100), (101, 100), (0, 0)] {
            let mut send = ours.open_uni().await.unwrap();
            send.write_all(&vec![1; len]).await.unwrap();
            send.finish().unwrap();
            let mut recv = theirs.accept_uni().await.unwrap();
            let read = recv.read_to_end(limit).await;
            if len > limit {
                assert_eq!(read, Err(StreamError::TooLong));
            } else {
                assert_eq!(read.unwrap().len(), len);
            }
        }
    });
}

#[test]
fn chunks_are_sent_and_received_without_copy() {
    on_both(|| async {
        let (ours, theirs, _ends) = pair().await.parts();
        let mut send = ours.open_uni().await.unwrap();
        let mut chunks =
            [Bytes::from(pattern(3_000, 1)), Bytes::new(), Bytes::from(pattern(500, 2))];
        assert_eq!(send.write_chunks(&mut chunks).await.unwrap(), 3_500);
        assert!(chunks.iter().all(Bytes::is_empty));
        send.finish().unwrap();
        let mut recv = theirs.accept_uni().await.unwrap();
        let mut all = Vec::new();
        loop {
            let mut some: [Bytes; 3] = Default::default();
            let Some(count) = recv.read_chunks(&mut some).await.unwrap() else {
                break;
            };
            assert!((1..=3).contains(&count));
            some[..count].iter().for_each(|bytes| all.extend_from_slice(bytes));
        }
        assert!(all == [pattern(3_000, 1), pattern(500, 2)].concat());
    });
}

#[test]
fn higher_priority_stream_sends_first() {
    on_both(|| async {
        let transport =
            Transport { send_window: 4 << 20, send_window_min: 4 << 20, ..Transport::default() };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        let mut low = ours.open_uni().await.unwrap();
        let mut high = ours.open_uni().await.unwrap();
        high.set_priority(5).unwrap();
        assert_eq!((low.priority().unwrap(), high.priority().unwrap()), (0, 5));
        // Both are queued before anything is sent: nothing is awaited between.
        assert_eq!(low.try_write(&vec![0; 1 << 20]).unwrap(), 1 << 20);
        assert_eq!(high.try_write(&vec![1; 1 << 20]).unwrap(), 1 << 20);
        high.finish().unwrap();
        let mut first = theirs.accept_uni().await.unwrap();
        let mut second = theirs.accept_uni().await.unwrap();
        if first.id() == low.id() {
            std::mem::swap(&mut first, &mut second);
        }
        assert_eq!(first.read_to_end(1 << 20).await.unwrap().len(), 1 << 20);
        let read = second.read_chunk(usize::MAX).await.unwrap().map_or(0, |chunk| chunk.len());
        assert!(read < 1 << 20, "low came whole before high");
    });
}

#[test]
fn staged_writes_arrive_in_order_between_other_operations() {
    on_both(|| async {
        let transport = Transport {
            stream_receive_window: 40_000,
            receive_window: 50_000,
            ..Transport::default()
        };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        let bytes = pattern(300_000, 8);
        let reader = ringloop::spawn(async move {
            let mut whole = Vec::new();
            for _ in 0..2 {
                let mut recv = theirs.accept_uni().await.unwrap();
                whole.push(recv.read_to_end(1 << 20).await.unwrap());
            }
            whole
        });
        let mut first = ours.open_uni().await.unwrap();
        let mut second = ours.open_uni().await.unwrap();
        let mut at = 0;
        for number in 0.. {
            // Chunks of all sizes, also larger than the staging buffer; now and then a write on
            // another stream.
            let len = [1, 700, 3_000, 20_000, 40][number % 5].min(bytes.len() - at);
            if len == 0 {
                break;
            }
            first.write_all(&bytes[at..at + len]).await.unwrap();
            at += len;
            if number % 7 == 0 {
                second.write_all(b"second").await.unwrap();
            }
        }
        first.finish().unwrap();
        assert_eq!(first.write(b"x").await, Err(StreamError::Closed));
        second.finish().unwrap();
        let whole = reader.await.unwrap();
        assert!(whole[0] == bytes);
        assert_eq!(&whole[1][..12], b"secondsecond");
        assert_eq!(first.stopped().await, Ok(None));
    });
}

#[test]
fn peer_opens_exactly_the_allowed_streams() {
    on_both(|| async {
        let (bi_streams_max, uni_streams_max) = (300, 70);
        let transport = Transport { bi_streams_max, uni_streams_max, ..Transport::default() };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        // The first ones without waiting: they are allowed from the start.
        let mut open = Vec::new();
        for _ in 0..16 {
            open.push(ours.try_open_bi().unwrap().unwrap());
        }
        for at in 0..bi_streams_max as usize {
            if open.len() == at {
                open.push(ours.open_bi().await.unwrap());
            }
            open[at].0.write_all(b"x").await.unwrap();
        }
        let mut uni = Vec::new();
        for _ in 0..uni_streams_max {
            let mut send = ours.open_uni().await.unwrap();
            send.write_all(b"x").await.unwrap();
            uni.push(send);
        }
        for stream in &mut uni {
            assert_eq!(stream.id().direction(), Direction::Uni);
        }
        assert!(ours.try_open_bi().unwrap().is_none());
        assert!(ours.try_open_uni().unwrap().is_none());
        // Finished streams make room for others, once they are an eighth of the limit.
        for (mut ours, mut recv) in open.drain(..40) {
            ours.finish().unwrap();
            let (mut send, mut theirs) = theirs.accept_bi().await.unwrap();
            send.finish().unwrap();
            assert_eq!(theirs.read_to_end(10).await.unwrap(), b"x");
            assert_eq!(recv.read_to_end(10).await.unwrap(), b"");
        }
        ours.open_bi().await.unwrap();
    });
}

/// Also if the last ones are less than an eighth, which the engine does not announce by itself.
#[test]
fn last_streams_of_a_limit_are_announced() {
    on_both(|| async {
        let transport =
            Transport { bi_streams_max: 32, uni_streams_max: 128, ..Transport::default() };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        let (mut bi, mut uni) = (Vec::new(), Vec::new());
        for _ in 0..32 {
            let opened = timeout(ringloop_testing::PATIENCE, ours.open_bi()).await;
            bi.push(opened.expect("there is room").unwrap());
            bi.last_mut().unwrap().0.write_all(b"x").await.unwrap();
        }
        for _ in 0..128 {
            let opened = timeout(ringloop_testing::PATIENCE, ours.open_uni()).await;
            uni.push(opened.expect("there is room").unwrap());
            uni.last_mut().unwrap().write_all(b"x").await.unwrap();
        }
        assert!(ours.try_open_uni().unwrap().is_none());
        theirs.set_uni_streams_max(130);
        for _ in 0..2 {
            let opened = timeout(ringloop_testing::PATIENCE, ours.open_uni()).await;
            uni.push(opened.expect("there is room").unwrap());
        }
        assert!(ours.try_open_uni().unwrap().is_none());
    });
}

#[test]
fn bytes_of_reset_stream_are_credited_once() {
    on_both(|| async {
        let transport = Transport {
            stream_receive_window: 10_000,
            receive_window: 10_000,
            receive_window_max: 10_000,
            ..Transport::default()
        };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        for _ in 0..3 {
            let mut send = ours.open_uni().await.unwrap();
            send.write_all(&[1; 8000]).await.unwrap();
            let recv = theirs.accept_uni().await.unwrap();
            // The reset must find unread bytes.
            sleep(SHORT).await;
            send.reset(1).unwrap();
            sleep(SHORT).await;
            drop(recv);
        }
        sleep(SHORT).await;
        let mut fills = ours.open_uni().await.unwrap();
        assert_eq!(fills.try_write(&[2; 10_000]), Ok(10_000));
        let mut waits = ours.open_uni().await.unwrap();
        assert_eq!(waits.try_write(&[3; 8000]), Ok(0));
    });
}

#[test]
fn stopped_streams_free_credit_however_they_end() {
    on_both(|| async {
        let transport = Transport { stream_receive_window: 1000, ..Transport::default() };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        for number in 0..200u64 {
            let is_staged = number % 2 == 0;
            let opened = timeout(ringloop_testing::PATIENCE, ours.open_bi()).await;
            let (mut send, recv) = opened.expect("there is room").unwrap();
            assert_eq!(send.try_write(&[1; 1000]), Ok(1000));
            if is_staged {
                // Beyond the peer's credit.
                assert_eq!(send.try_write(b"more"), Ok(4));
                send.finish().unwrap();
            }
            let (answer, mut asked) = theirs.accept_bi().await.unwrap();
            asked.stop(number).unwrap();
            drop((answer, asked));
            if !is_staged {
                assert_eq!(send.stopped().await, Ok(Some(number)));
                assert_eq!(send.finish(), Err(StreamError::Stopped(number)));
            }
            drop((send, recv));
        }
    });
}

#[test]
fn stop_behind_a_finish_keeps_its_code() {
    on_both(|| async {
        let transport = Transport { stream_receive_window: 1000, ..Transport::default() };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        let mut send = ours.open_uni().await.unwrap();
        // Finished behind bytes without credit.
        assert_eq!(send.try_write(&[1; 1000]), Ok(1000));
        assert_eq!(send.try_write(b"more"), Ok(4));
        send.finish().unwrap();
        theirs.accept_uni().await.unwrap().stop(7).unwrap();
        until_forgotten(&ours, &mut send).await;
        assert_eq!(send.stopped().await, Ok(Some(7)));
        assert_eq!(send.reset(18), Err(StreamError::Closed));
        assert_eq!(send.stopped().await, Ok(Some(7)));
    });
}

#[test]
fn bytes_put_back_are_read_again() {
    on_both(|| async {
        let (ours, theirs, _ends) = pair().await.parts();
        let mut send = ours.open_uni().await.unwrap();
        send.write_all(b"kind, then data").await.unwrap();
        send.finish().unwrap();
        let mut recv = theirs.accept_uni().await.unwrap();
        let mut kind = recv.read_chunk(9).await.unwrap().unwrap();
        let rest = kind.split_off(4);
        recv.put_back(rest);
        assert_eq!(kind, b"kind"[..]);
        assert_eq!(recv.read_to_end(100).await.unwrap(), b", then data");
        assert_eq!(recv.read(&mut [0; 9]).await, Ok(None));
    });
}

#[test]
fn reset_or_stopped_stream_reports_its_code_later() {
    on_both(|| async {
        let transport = Transport { stream_receive_window: 1000, ..Transport::default() };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        // Reset locally: the engine does not report that.
        let mut send = ours.open_uni().await.unwrap();
        send.write_all(b"x").await.unwrap();
        assert!(timeout(SHORT, send.stopped()).await.is_err());
        send.reset(17).unwrap();
        let said = timeout(ringloop_testing::PATIENCE, send.stopped()).await;
        assert_eq!(said.expect("it does not wait"), Ok(Some(17)));
        let mut asked = theirs.accept_uni().await.unwrap();
        let reset = async {
            while asked.read(&mut [0; 8]).await?.is_some() {}
            Ok(())
        };
        assert_eq!(reset.await, Err(StreamError::Reset(17)));
        until_forgotten(&ours, &mut send).await;
        assert_eq!(send.stopped().await, Ok(Some(17)));
        assert_eq!(send.finish(), Err(StreamError::Closed));
        // Stopped by the peer, and reset by whichever call sees it.
        for step in 0..3 {
            let mut send = ours.open_uni().await.unwrap();
            send.write_all(b"x").await.unwrap();
            theirs.accept_uni().await.unwrap().stop(7).unwrap();
            match step {
                0 => {
                    while send.try_write(b"x").is_ok() {
                        sleep(Duration::from_millis(1)).await;
                    }
                    assert_eq!(send.finish(), Err(StreamError::Stopped(7)));
                }
                1 => {
                    assert_eq!(send.stopped().await, Ok(Some(7)));
                    assert_eq!(send.finish(), Err(StreamError::Stopped(7)));
                }
                _ => {
                    // No call has seen the stop yet.
                    while ours.stats().frames_received.stop_sending < step + 1 {
                        sleep(Duration::from_millis(1)).await;
                    }
                    send.reset(18).unwrap();
                }
            }
            until_forgotten(&ours, &mut send).await;
            assert_eq!(send.stopped().await, Ok(Some(7)), "{step}");
        }
    });
}

/// Waits until the peer has acknowledged a stream's reset, and the engine has forgotten the stream.
async fn until_forgotten(ours: &Connection, send: &mut SendStream) {
    let wait = async {
        while send.priority().is_ok() {
            ours.ping();
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(ringloop_testing::PATIENCE, wait).await.expect("the reset is acknowledged");
}

#[test]
fn huge_stream_limit_does_not_cost_unbounded_work() {
    on_both(|| async {
        let (ours, theirs, _ends) = pair().await.parts();
        theirs.set_bi_streams_max(u64::MAX);
        theirs.set_uni_streams_max(u64::MAX);
        let mut opened = Vec::new();
        while opened.len() < 300 {
            let stream = timeout(ringloop_testing::PATIENCE, ours.open_bi()).await;
            opened.push(stream.unwrap().unwrap());
        }
    });
}

/// CPU time of this thread.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

/// With a zero or tiny window, the stream and the endpoint wait for credit.
#[test]
fn tiny_receive_window_does_not_spin() {
    on_both(|| async {
        for receive_window in [1, 2] {
            let transport =
                Transport { receive_window, receive_window_max: 1 << 20, ..Transport::default() };
            let (ours, theirs, _ends) = pair_as(&transport).await.parts();
            theirs.set_receive_window(0);
            let mut send = ours.open_uni().await.unwrap();
            let writer = ringloop::spawn(async move {
                send.write_all(&vec![1; 10_000]).await.unwrap();
                send.finish().unwrap();
            });
            let began = processor_time();
            sleep(SHORT * 4).await;
            assert!(processor_time().saturating_sub(began) < SHORT * 2);
            theirs.set_receive_window(1 << 20);
            let mut receive = timeout(ringloop_testing::PATIENCE, theirs.accept_uni()).await;
            let received = receive.as_mut().unwrap().as_mut().unwrap().read_to_end(1 << 20);
            let received = timeout(ringloop_testing::PATIENCE, received).await;
            assert_eq!(received.unwrap().unwrap().len(), 10_000);
            timeout(ringloop_testing::PATIENCE, writer).await.unwrap().unwrap();
        }
    });
}

#[test]
fn larger_send_window_unblocks_writers() {
    on_both(|| async {
        // Nothing can be written, so nothing is in flight: neither an acknowledgement nor a timer
        // wakes the endpoint, except for the idle timeout.
        let transport = Transport { mtu_max: None, ..Transport::default() };
        let client = client_config().transport(&transport).unwrap();
        let pair = pair_with(server_config(), client, |address| address).await;
        let (ours, _theirs, _ends) = pair.parts();
        ours.set_send_window(0);
        let mut send = ours.open_uni().await.unwrap();
        let writer = ringloop::spawn(async move {
            send.write_all(&vec![1; 100_000]).await.unwrap();
            send
        });
        sleep(SHORT).await;
        assert!(!writer.is_finished());
        ours.set_send_window(1 << 20);
        let writer = timeout(ringloop_testing::PATIENCE, writer).await;
        let _send = writer.expect("the writer is woken").unwrap();
    });
}
