//! A receive that holds no memory while it waits: its bytes come in a pool buffer; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::embed::limits;
use ringloop::embed::sys::fd::AsRawFd;
use ringloop::embed::sys::libc;
use ringloop::embed::{Local, RecvInto};
use ringloop::net::UnixStream;
use ringloop::time::{sleep, timeout, yield_now};
use ringloop::{Runtime, spawn};
use ringloop_testing::drivers;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(5);

fn on_both<F: Future<Output = io::Result<()>>>(test: impl Fn() -> F) {
    for driver in drivers() {
        let runtime = Runtime::builder().driver(driver).build().unwrap();
        runtime.block_on(test()).unwrap().unwrap();
    }
}

#[test]
fn bytes_that_are_there_and_bytes_that_come_are_received_in_order() {
    on_both(|| async {
        let (ours, theirs) = UnixStream::pair()?;
        let mut into = [0; 8];
        theirs.write_all(b"there already".to_vec()).await.0?;
        let count = RecvInto::new(ours.as_raw_fd(), &mut into).await?;
        assert_eq!(&into[..count], b"there al");
        let count = RecvInto::new(ours.as_raw_fd(), &mut into).await?;
        assert_eq!(&into[..count], b"ready");
        let sender = spawn(async move {
            yield_now().await;
            theirs.write_all(b"later".to_vec()).await.0
        });
        let count = RecvInto::new(ours.as_raw_fd(), &mut into).await?;
        assert_eq!(&into[..count], b"later");
        sender.await.unwrap()?;
        assert_eq!(RecvInto::new(ours.as_raw_fd(), &mut into).await?, 0);
        assert_eq!(RecvInto::new(ours.as_raw_fd(), &mut []).await?, 0);
        Ok(())
    });
}

#[test]
fn error_is_the_systems_and_names_no_buffer() {
    on_both(|| async {
        let file = std::fs::File::open("/dev/null")?;
        let error = RecvInto::new(file.as_raw_fd(), &mut [0; 4]).await;
        let error = error.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK));
        Ok(())
    });
}

#[test]
fn one_that_is_given_up_takes_no_bytes_that_come_later() {
    on_both(|| async {
        let (ours, theirs) = UnixStream::pair()?;
        let mut into = [0; 8];
        for _ in 0..3 {
            let receive = RecvInto::new(ours.as_raw_fd(), &mut into);
            assert!(timeout(SHORT, receive).await.is_err());
        }
        // The cancel reaches the kernel before what is submitted now.
        theirs.write_all(b"kept".to_vec()).await.0?;
        let count = RecvInto::new(ours.as_raw_fd(), &mut into).await?;
        assert_eq!(&into[..count], b"kept");
        Ok(())
    });
}

/// A completion that is not taken returns its buffer: otherwise the pool would be exhausted after
/// this many.
#[test]
fn completion_of_one_that_is_dropped_returns_its_buffer() {
    on_both(|| async {
        for number in 0..=2 * limits::SINGLE_POOL_BUFFERS {
            let (ours, theirs) = UnixStream::pair()?;
            let mut into = [0; 8];
            let mut receive = Box::pin(RecvInto::new(ours.as_raw_fd(), &mut into));
            let begun = poll_fn(|cx| Poll::Ready(receive.as_mut().poll(cx))).await;
            assert!(begun.is_pending());
            theirs.write_all(b"sent".to_vec()).await.0?;
            // A turn of the loop, in which the completion arrives and is not taken.
            sleep(Duration::from_micros(10)).await;
            if number == 2 * limits::SINGLE_POOL_BUFFERS {
                assert_eq!(receive.await?, 4);
            } else {
                drop(receive);
            }
            // The stream does not know that its number was used.
            Local::current().release(ours.as_raw_fd());
        }
        Ok(())
    });
}

#[test]
fn more_receivers_than_buffers_all_get_their_bytes() {
    on_both(|| async {
        let pairs: io::Result<Vec<_>> = (0..usize::from(limits::SINGLE_POOL_BUFFERS) + 40)
            .map(|_| UnixStream::pair())
            .collect();
        let (ours, theirs): (Vec<_>, Vec<_>) = pairs?.into_iter().unzip();
        let received = Rc::new(Cell::new(0));
        let receivers = ours.into_iter().map(|stream| {
            let received = Rc::clone(&received);
            spawn(async move {
                let mut into = [0; 16];
                let count = RecvInto::new(stream.as_raw_fd(), &mut into).await?;
                received.set(received.get() + count);
                io::Result::Ok(())
            })
        });
        let receivers: Vec<_> = receivers.collect();
        yield_now().await;
        // All of them arrive in one batch, before any receiver runs.
        for stream in &theirs {
            let mut stream = std::os::unix::net::UnixStream::from(
                ringloop::embed::sys::fd::AsFd::as_fd(stream).try_clone_to_owned()?,
            );
            io::Write::write_all(&mut stream, b"four")?;
        }
        for receiver in receivers {
            receiver.await.unwrap()?;
        }
        assert_eq!(received.get(), 4 * theirs.len());
        Ok(())
    });
}
