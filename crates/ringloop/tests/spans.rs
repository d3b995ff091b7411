//! The spans of tasks: each poll of a task is inside of its span; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::spawn;
use ringloop::time::yield_now;
use ringloop_testing::engine::in_runtimes;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Notes what happens to spans of tasks.
#[derive(Default)]
struct Notes {
    next: AtomicU64,
    log: Mutex<Vec<String>>,
}

/// Lets the test read the notes of its subscriber.
struct Noting(Arc<Notes>);

struct Fields(Vec<String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push(format!("{field}={value:?}"));
    }
}

impl Subscriber for Noting {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("ringloop")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fields = Fields(Vec::new());
        span.record(&mut fields);
        self.0.log.lock().unwrap().push(format!("new {id}: {}", fields.0.join(" ")));
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.0.log.lock().unwrap().push(format!("enter {}", id.into_u64()));
    }

    fn exit(&self, id: &Id) {
        self.0.log.lock().unwrap().push(format!("exit {}", id.into_u64()));
    }

    fn try_close(&self, id: Id) -> bool {
        self.0.log.lock().unwrap().push(format!("close {}", id.into_u64()));
        true
    }
}

#[test]
fn each_poll_of_a_task_is_inside_of_its_span() {
    let notes = Arc::new(Notes::default());
    tracing::subscriber::with_default(Noting(Arc::clone(&notes)), || {
        in_runtimes(|runtime| {
            notes.log.lock().unwrap().clear();
            let first = notes.next.load(Ordering::Relaxed) + 1;
            let log = Arc::clone(&notes);
            runtime
                .block_on(async move {
                    spawn(async move {
                        log.log.lock().unwrap().push("one".to_owned());
                        yield_now().await;
                        log.log.lock().unwrap().push("two".to_owned());
                    })
                    .await
                })
                .unwrap()
                .unwrap();
            let (root, task) = (first, first + 1);
            let log = notes.log.lock().unwrap();
            assert!(log[0].starts_with(&format!("new {root}: id=")), "{log:?}");
            let made = log.iter().find(|line| line.starts_with(&format!("new {task}"))).unwrap();
            assert!(made.contains("spans.rs") && made.contains("spawned_at.line="), "{made}");
            let of_task: Vec<_> = log
                .iter()
                .filter(|line| line.ends_with(&format!(" {task}")) || !line.contains(' '))
                .map(|line| line.split(' ').next().unwrap())
                .collect();
            assert_eq!(of_task, ["enter", "one", "exit", "enter", "two", "exit", "close"]);
        });
    });
}
