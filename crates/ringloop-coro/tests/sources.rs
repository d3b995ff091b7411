//! What coroutines wait for beside sockets: descriptors of other libraries, signals; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_coro::event::{EventSource, Interest};
use ringloop_coro::signal::{Signal, Signals};
use ringloop_coro::{block_on, select, spawn, time};
use ringloop_testing::coro::{LONG, on_both};
use std::io::{Read, Write};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(5);

#[test]
fn descriptor_of_another_library_is_an_event_source() {
    on_both(|| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let source = EventSource::new(reader).unwrap();
        select! {
            _ = source.ready(Interest::READ) => panic!("nothing was written"),
            () = time::after(SHORT) => {}
        }
        drop(spawn(move || writer.write_all(b"event").unwrap()));
        assert!(source.wait(Interest::READ).unwrap().contains(Interest::READ));
        let mut word = String::new();
        source.into_inner().read_to_string(&mut word).unwrap();
        assert_eq!(word, "event");
    });
}

#[test]
fn signal_wakes_its_waiter() {
    on_both(|| {
        let mut signals = Signals::new(&[Signal::USER_2]).unwrap();
        drop(spawn(|| {
            let kill = ringloop::process::Command::new("kill")
                .arg("-USR2")
                .arg(std::process::id().to_string())
                .spawn();
            assert!(block_on(kill.unwrap().wait()).unwrap().success());
        }));
        let got = select! {
            signal = signals.wait_async() => signal.unwrap(),
            () = time::after(LONG) => panic!("no signal came"),
        };
        assert_eq!(got, Signal::USER_2);
    });
}
