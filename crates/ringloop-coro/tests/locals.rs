//! Coroutine-local values; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_coro::{JoinError, block_on, coroutine_local, sleep, spawn_local, yield_now};
use ringloop_testing::coro::on_both;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

struct Note(Rc<RefCell<Vec<&'static str>>>, &'static str);

impl Drop for Note {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
    }
}

coroutine_local! {
    static NUMBER: Cell<u32> = Cell::new(1);
    static NOTES: RefCell<Vec<Note>> = RefCell::new(Vec::new());
    static DOUBLE: u32 = NUMBER.with(Cell::get) * 2;
}

#[test]
fn each_coroutine_has_its_own_across_its_parks() {
    on_both(|| {
        let handles: Vec<_> = (0..10)
            .map(|number| {
                spawn_local(move || {
                    assert_eq!(NUMBER.with(Cell::get), 1);
                    NUMBER.with(|it| it.set(number));
                    yield_now();
                    sleep(Duration::from_micros(10));
                    NUMBER.with(Cell::get)
                })
            })
            .collect();
        for (number, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.join().unwrap() as usize, number);
        }
        assert_eq!(NUMBER.with(Cell::get), 1);
    });
}

#[test]
fn value_is_made_from_others() {
    on_both(|| {
        NUMBER.with(|it| it.set(21));
        assert_eq!(DOUBLE.with(|double| *double), 42);
    });
}

#[test]
fn values_are_dropped_before_join_returns() {
    on_both(|| {
        for way in ["return", "panic", "cancel"] {
            let dropped = Rc::new(RefCell::new(Vec::new()));
            let note = Note(Rc::clone(&dropped), "local");
            let handle = spawn_local(move || {
                NOTES.with(|notes| notes.borrow_mut().push(note));
                match way {
                    "return" => {}
                    "panic" => panic!("as planned"),
                    _ => block_on(std::future::pending()),
                }
            });
            yield_now();
            handle.cancel();
            let ended = match handle.join() {
                Ok(()) => "return",
                Err(JoinError::Panicked(_)) => "panic",
                Err(JoinError::Cancelled) => "cancel",
                Err(JoinError::Refused(error)) => panic!("{error}"),
            };
            assert_eq!(ended, way);
            assert_eq!(*dropped.borrow(), ["local"]);
        }
    });
}

#[test]
fn no_value_outside_of_a_coroutine() {
    assert_eq!(NUMBER.try_with(Cell::get), None);
}
