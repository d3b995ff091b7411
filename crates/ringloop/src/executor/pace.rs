//! How a loop's streams had better receive: by one operation for all that comes, or by one operation a message.
//!
//! Owns: what the loop knows of its turns and of its receives. Called by: `Engine` (each turn), `net::Receive` (each
//! receive). Never does: receive.
//!
//! A multishot receive arms nothing a message, but hears of each by a wake-up: the kernel calls it on the sender's
//! processor, and has the loop's thread do the receive as a piece of work of its own. A single receive that is
//! submitted after the peer has answered finds the bytes there, and none of that happens. Where it finds nothing
//! it has to wait, which costs more than what it would save. So it pays for a loop whose turns are long, with peers that answer
//! within one. Whether they do is tried with a few streams:
//!
//! ```text
//!          turns bring many completions,               receives found
//!          and no trial failed lately                  their bytes there
//!   Many ─────────────────────────────────▶ Trial ─────────────────────────▶ One
//!    ▲ ▲          they mostly had to wait     │                               │
//!    │ └──────────────────────────────────────┘                               │
//!    └────────────────────────────────────────────────────────────────────────┘
//!          turns bring few, or they mostly had to wait, two samples in a row
//! ```
//! After a failure the next trial comes later.

use crate::limits;

/// By what operation bytes are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shots {
    /// One for all that comes.
    Many,
    /// By a few streams one for each message, to see how that goes.
    Trial,
    /// One for each message.
    One,
}

impl Shots {
    /// How many streams may receive message by message.
    #[inline]
    pub fn single_max(self) -> usize {
        match self {
            Self::Many => 0,
            Self::Trial => limits::SINGLE_TRIAL_STREAMS,
            Self::One => limits::SINGLE_STREAMS,
        }
    }
}

/// Completions of a turn, on the average, from which a trial is worth it; and below which single receives are over.
const BATCH_MIN: u32 = 16;
const BATCH_LOW: u32 = 4;
/// The average is kept in parts of a completion, over about so many turns.
const BATCH_PARTS: u32 = 256;
const BATCH_TURNS: u32 = 256;
/// Receives of a trial, and of what is looked at at a time after it: some 64 rounds of the streams either way, so that a moment
/// in which the peer is held up is a small part.
const TRIAL_SAMPLE: u32 = 1024;
const SAMPLE: u32 = 4096;
/// In how many parts of ten they have to be prompt: with fewer, waiting costs more than it saves.
const PROMPT_TENTHS: u32 = 6;
/// Turns from a failed trial to the next: each costs a cancel a stream. It doubles with each failure.
const PAUSE_MIN: u32 = 1 << 10;
const PAUSE_MAX: u32 = 1 << 16;

/// What a loop knows of its turns and its receives.
#[derive(Debug)]
pub(crate) struct Pace {
    shots: Shots,
    /// The number of the turn; it wraps.
    turn: u32,
    /// Completions of this turn.
    batch: u32,
    /// The average, in parts.
    batches: u32,
    /// Of the present sample.
    seen_count: u32,
    prompt_count: u32,
    /// The sample before it failed.
    has_missed: bool,
    /// Turns before a trial may begin, and how many a failure costs.
    rest: u32,
    pause: u32,
    #[cfg(test)]
    insists: bool,
}

impl Pace {
    pub fn new() -> Self {
        Self {
            shots: Shots::Many,
            turn: 0,
            batch: 0,
            batches: 0,
            seen_count: 0,
            prompt_count: 0,
            has_missed: false,
            rest: 0,
            pause: PAUSE_MIN,
            #[cfg(test)]
            insists: false,
        }
    }

    /// A turn begins, with so many completions.
    #[inline]
    pub fn begin_turn(&mut self, completions: u32) {
        self.turn = self.turn.wrapping_add(1);
        self.batch = completions;
        let parts = completions.min(u16::MAX.into()) * BATCH_PARTS;
        self.batches = self.batches - self.batches / BATCH_TURNS + parts / BATCH_TURNS;
        self.rest = self.rest.saturating_sub(1);
        match self.shots {
            Shots::Many if self.rest == 0 && self.batches >= BATCH_MIN * BATCH_PARTS => {
                self.go_over(Shots::Trial);
            }
            Shots::Trial | Shots::One if self.batches < BATCH_LOW * BATCH_PARTS => {
                self.go_over(Shots::Many);
            }
            _ => {}
        }
    }

    fn go_over(&mut self, shots: Shots) {
        #[cfg(test)]
        if self.insists {
            return;
        }
        self.shots = shots;
        self.has_missed = false;
        (self.seen_count, self.prompt_count) = (0, 0);
    }

    /// How the next receive had better be made.
    #[inline]
    pub fn shots(&self) -> Shots {
        self.shots
    }

    /// Have receives made so from now on.
    #[cfg(test)]
    pub fn insist(&mut self, shots: Shots) {
        self.shots = shots;
        self.insists = true;
    }

    /// The number of this turn, for [`Pace::note`].
    #[inline]
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// A single receive that was asked for in turn `asked` is over. One that is over at the next turn has found its
    /// bytes there, unless that turn brought little else: then the loop has slept for it.
    pub fn note(&mut self, asked: u32) {
        let sample = match self.shots {
            Shots::Many => return,
            Shots::Trial => TRIAL_SAMPLE,
            Shots::One => SAMPLE,
        };
        self.seen_count += 1;
        let is_prompt = self.turn.wrapping_sub(asked) == 1 && self.batch >= BATCH_LOW;
        self.prompt_count += u32::from(is_prompt);
        if self.seen_count < sample {
            return;
        }
        if self.prompt_count * 10 >= sample * PROMPT_TENTHS {
            self.pause = PAUSE_MIN;
            self.go_over(Shots::One);
        } else if self.shots == Shots::One && !self.has_missed {
            (self.seen_count, self.prompt_count) = (0, 0);
            self.has_missed = true;
        } else {
            self.rest = self.pause;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
            self.go_over(Shots::Many);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns with so many completions each, and as many receives of a turn that `after` says how long ago they were asked.
    fn play(pace: &mut Pace, turns: u32, batch: u32, after: u32) {
        for _ in 0..turns {
            pace.begin_turn(batch);
            for _ in 0..batch / 2 {
                pace.note(pace.turn().wrapping_sub(after));
            }
        }
    }

    #[test]
    fn loop_with_few_completions_a_turn_stays_with_one_operation_for_all() {
        let mut pace = Pace::new();
        play(&mut pace, 10_000, BATCH_MIN / 2, 1);
        assert_eq!(pace.shots(), Shots::Many);
    }

    #[test]
    fn full_turns_whose_receives_are_prompt_stay_with_one_a_message_until_turns_are_short() {
        let mut pace = Pace::new();
        play(&mut pace, 1_000, 40, 1);
        assert_eq!(pace.shots(), Shots::One);
        play(&mut pace, 100_000, 40, 1);
        assert_eq!(pace.shots(), Shots::One);
        play(&mut pace, 1_000, 2, 1);
        assert_eq!(pace.shots(), Shots::Many);
    }

    #[test]
    fn receives_that_wait_end_a_trial_and_the_next_ones_are_ever_rarer() {
        let mut pace = Pace::new();
        let mut trials = Vec::new();
        for turn in 0..200_000 {
            let before = pace.shots();
            play(&mut pace, 1, 40, 12);
            if (before, pace.shots()) == (Shots::Many, Shots::Trial) {
                trials.push(turn);
            }
        }
        let pauses: Vec<_> = trials.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.is_sorted(), "{pauses:?}");
        assert!((5..12).contains(&pauses.len()), "{pauses:?}");
    }

    #[test]
    fn one_sample_of_receives_that_waited_is_forgiven_and_two_in_a_row_are_not() {
        let mut pace = Pace::new();
        play(&mut pace, 1_000, 40, 1);
        (pace.seen_count, pace.prompt_count) = (0, 0);
        let turns = SAMPLE.div_ceil(20);
        play(&mut pace, turns, 40, 2);
        assert!(pace.has_missed);
        play(&mut pace, turns, 40, 1);
        assert!((pace.shots(), pace.has_missed) == (Shots::One, false));
        (pace.seen_count, pace.prompt_count) = (0, 0);
        play(&mut pace, 2 * turns, 40, 2);
        assert_eq!(pace.shots(), Shots::Many);
    }

    #[test]
    fn trial_is_of_a_few_streams_and_a_failed_sample_ends_it() {
        let mut pace = Pace::new();
        while pace.shots() == Shots::Many {
            pace.begin_turn(40);
        }
        assert_eq!(pace.shots(), Shots::Trial);
        assert!((1..limits::SINGLE_STREAMS).contains(&pace.shots().single_max()));
        for _ in 0..TRIAL_SAMPLE {
            pace.note(pace.turn().wrapping_sub(12));
        }
        assert_eq!((pace.shots(), pace.shots().single_max()), (Shots::Many, 0));
    }

    #[test]
    fn completion_that_the_loop_slept_for_is_not_prompt() {
        let mut pace = Pace::new();
        play(&mut pace, 1_000, 40, 1);
        pace.begin_turn(1);
        let seen = pace.prompt_count;
        pace.note(pace.turn().wrapping_sub(1));
        assert_eq!(pace.prompt_count, seen);
    }

    #[test]
    fn turns_are_counted_past_the_end_of_the_counter() {
        let mut pace = Pace::new();
        pace.turn = u32::MAX - 500;
        play(&mut pace, 1_000, 40, 1);
        assert_eq!(pace.shots(), Shots::One);
    }
}
