//! Operations brought to a state and cancelled there: shared by the tests of every state.

use crate::drivers;
use crate::engine::{Bed, Foreign, alone};
use ringloop::Choice;
use ringloop::embed::op::Request;
use ringloop::embed::{Key, Token};
use std::time::Duration;

/// One operation in its own world: how it is submitted so that it has to wait, and what makes it
/// complete.
#[derive(Debug)]
pub struct Case<W> {
    pub name: &'static str,
    pub request: fn(&mut W) -> Request,
    pub trigger: fn(&mut W),
    pub uses_foreign: bool,
}

impl<W> Case<W> {
    pub const fn new(
        name: &'static str,
        request: fn(&mut W) -> Request,
        trigger: fn(&mut W),
    ) -> Self {
        Self { name, request, trigger, uses_foreign: false }
    }

    pub const fn with_foreign(mut self) -> Self {
        self.uses_foreign = true;
        self
    }

    /// Any foreign memory it used was released once and not touched after.
    pub fn assert_released(&self, foreign: &Foreign) {
        if self.uses_foreign {
            foreign.assert_released_untouched();
        }
    }
}

/// State of an operation when it is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not submitted to the kernel yet.
    Queued,
    /// As `Queued`, and it can complete at once.
    QueuedReady,
    /// The kernel has it, or its descriptor is waited for.
    InFlight,
    /// Its result has arrived, and has not been taken.
    Completed,
    /// Its (first) completion has been taken.
    Taken,
}

const STATES: [State; 5] =
    [State::Queued, State::QueuedReady, State::InFlight, State::Completed, State::Taken];

/// How it is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Cancel,
    Forget,
    CancelThenForget,
    DropDriver,
}

/// Brings the operation of `case` to `state`; a completion that came is not taken yet.
pub fn reach<W>(bed: &mut Bed, world: &mut W, case: &Case<W>, state: State) -> (Key, Token) {
    let request = (case.request)(world);
    if state == State::QueuedReady {
        (case.trigger)(world);
    }
    let (key, token) = bed.submit(request);
    if matches!(state, State::Queued | State::QueuedReady) {
        return (key, token);
    }
    for _ in 0..2 {
        bed.engine.park(Some(Duration::ZERO)).unwrap();
    }
    if state == State::InFlight {
        return (key, token);
    }
    (case.trigger)(world);
    bed.engine.park(Some(Duration::from_millis(2))).unwrap();
    if state == State::Taken {
        for _ in 0..3 {
            bed.turn(Duration::from_millis(1));
        }
    }
    (key, token)
}

/// Ends an operation; `None` if the driver was dropped with it.
pub fn give_up(mut bed: Bed, key: Key, end: End) -> Option<Bed> {
    match end {
        End::Cancel => bed.cancel(key),
        End::Forget => bed.forget(key),
        End::CancelThenForget => {
            bed.cancel(key);
            bed.engine.park(Some(Duration::ZERO)).unwrap();
            bed.forget(key);
        }
        End::DropDriver => return None,
    }
    Some(bed)
}

/// Runs every case in every state on every driver.
pub fn at_every_state<W>(
    cases: &'static [Case<W>],
    end: End,
    run: fn(Choice, &'static Case<W>, State, End),
) {
    let _alone = alone();
    for choice in drivers() {
        for case in cases {
            for state in STATES {
                let description = format!("{choice:?}: {} {state:?} {end:?}", case.name);
                let outcome = std::panic::catch_unwind(|| run(choice, case, state, end));
                assert!(outcome.is_ok(), "{description}");
            }
        }
    }
}
