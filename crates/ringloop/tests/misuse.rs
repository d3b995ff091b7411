//! Panics for misuse name the caller's line, and errors print as sentences. A separate binary: the
//! panic hook is process-global.
#![allow(clippy::unwrap_used)]

use ringloop::embed::Local;
use ringloop::fs::RegisteredBuf;
use ringloop::{Error, Workers, spawn, spawn_blocking, spawn_on, worker};
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

#[test]
fn panics_outside_of_a_runtime_name_the_callers_line() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let place = Arc::clone(&seen);
    panic::set_hook(Box::new(move |info| {
        let file = info.location().unwrap().file().to_owned();
        place.lock().unwrap().push((file, info.to_string()));
    }));
    let misuses: [(&str, fn()); 7] = [
        ("spawn", || drop(spawn(async {}))),
        ("spawn_blocking", || drop(spawn_blocking(|| ()))),
        ("spawn_on", || drop(spawn_on(0, || async {}))),
        ("worker", || assert_eq!(worker(), 0)),
        ("Workers::current", || drop(Workers::current())),
        ("Local::current", || drop(Local::current())),
        ("RegisteredBuf", || drop(RegisteredBuf::with_capacity(1))),
    ];
    for (name, misuse) in misuses {
        assert!(catch_unwind(AssertUnwindSafe(misuse)).is_err(), "{name}");
        let (file, said) = seen.lock().unwrap().pop().unwrap();
        assert!(file.ends_with("misuse.rs"), "{name} names {file}");
        assert!(said.contains("no ringloop runtime on this thread"), "{said}");
    }
    drop(panic::take_hook());
}

#[test]
fn errors_out_of_main_are_sentences() {
    let error = Error::NoSuchWorker { worker: 7, count: 2 };
    assert_eq!(format!("{error:?}"), error.to_string());
    let refused = "kqueue".parse::<ringloop::Choice>().unwrap_err();
    assert!(format!("{refused:?}").contains("use one of auto, uring"));
}
