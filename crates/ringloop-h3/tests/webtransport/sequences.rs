//! Random sequences of what two applications may do, over a network that cuts and reorders: both ends agree in the end.

use crate::pair::Pair;
use crate::{DIRECTIONS, GONE, ROLES, with_flow_control};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use ringloop_h3::webtransport::{Config, Event};
use ringloop_h3::{Code, Role, StreamId};
use std::collections::HashMap;

/// What one end knows of the sessions.
#[derive(Default)]
struct Application {
    open: Vec<StreamId>,
    /// Streams that the peer opened, with their sessions.
    streams: HashMap<StreamId, StreamId>,
}

struct Simulation {
    pair: Pair,
    client: Application,
    server: Application,
    requested: usize,
    accepted: usize,
    opened: usize,
}

impl Simulation {
    fn application(&mut self, role: Role) -> &mut Application {
        match role {
            Role::Client => &mut self.client,
            Role::Server => &mut self.server,
        }
    }

    /// Does what the events ask for.
    fn react(&mut self, role: Role) {
        while let Some(event) = self.pair.end(role).events.pop_front() {
            match event {
                Event::Request { session, .. } => {
                    let server = &mut self.pair.server;
                    if self.pair.numbers.below(5) == 0 {
                        let status = StatusCode::FORBIDDEN;
                        server
                            .sessions
                            .reject(&mut server.h3, session, status, HeaderMap::new())
                            .ok();
                    } else if server
                        .sessions
                        .accept(&mut server.h3, session, HeaderMap::new(), None)
                        .is_ok()
                    {
                        self.server.open.push(session);
                        self.accepted += 1;
                    }
                    self.pair.flush();
                }
                Event::Stream { session, stream, .. } => {
                    self.opened += 1;
                    self.application(role).streams.insert(stream, session);
                }
                Event::Closed { session, .. } | Event::Rejected { session, .. } => {
                    self.forget(role, session);
                }
                _ => {}
            }
        }
    }

    fn forget(&mut self, role: Role, session: StreamId) {
        let application = self.application(role);
        application.open.retain(|open| *open != session);
        application.streams.retain(|_, of| *of != session);
    }

    fn act(&mut self) {
        let role = ROLES[self.pair.numbers.below(2) as usize];
        let action = self.pair.numbers.below(12);
        if action == 0 && role == Role::Client {
            if let Ok(session) = self.pair.connect(&[]) {
                self.requested += 1;
                self.client.open.push(session);
            }
            return;
        }
        let count = self.application(role).open.len() as u64;
        if count == 0 {
            return;
        }
        let at = self.pair.numbers.below(count) as usize;
        let session = self.application(role).open[at];
        match action {
            1..=4 => {
                let direction = DIRECTIONS[self.pair.numbers.below(2) as usize];
                if let Ok(stream) = self.pair.open_stream(role, session, direction) {
                    let data = self.pair.numbers.bytes(50);
                    self.pair.write(role, stream, data, true);
                }
            }
            5..=6 => {
                let end = self.pair.end(role);
                end.sessions
                    .send_datagram(&mut end.h3, session, Bytes::from_static(b"datagram"))
                    .ok();
            }
            7 => {
                let end = self.pair.end(role);
                end.sessions.drain(&mut end.h3, session).ok();
            }
            8 => {
                let end = self.pair.end(role);
                end.sessions.close(&mut end.h3, session, 7, "done").ok();
                self.forget(role, session);
            }
            9 if self.pair.numbers.below(4) == 0 => {
                let end = self.pair.end(role);
                end.sessions.abort(&mut end.h3, session, Code::H3_INTERNAL_ERROR).ok();
                self.forget(role, session);
            }
            _ => {
                let streams = std::mem::take(&mut self.application(role).streams);
                let end = self.pair.end(role);
                for (stream, session) in streams {
                    end.sessions.stream_ended(&mut end.h3, session, stream, None);
                }
            }
        }
    }
}

fn simulate(seed: u64, config: &Config) {
    let mut simulation = Simulation {
        pair: Pair::new(seed, config, config),
        client: Application::default(),
        server: Application::default(),
        requested: 0,
        accepted: 0,
        opened: 0,
    };
    for _ in 0..600 {
        simulation.act();
        simulation.pair.step();
        for role in ROLES {
            simulation.react(role);
        }
    }
    for role in ROLES {
        for session in std::mem::take(&mut simulation.application(role).open) {
            let end = simulation.pair.end(role);
            end.sessions.close(&mut end.h3, session, 0, "").ok();
        }
    }
    simulation.pair.settle();
    for role in ROLES {
        simulation.react(role);
    }
    simulation.pair.settle();
    let Simulation { pair, requested, accepted, opened, .. } = &mut simulation;
    assert!(*requested > 0 && *accepted > 0 && *opened > 0, "seed {seed}");
    for role in ROLES {
        let ids: Vec<StreamId> = pair.end(role).sessions.ids().collect();
        for session in ids {
            let end = pair.end(role);
            end.sessions.close(&mut end.h3, session, 0, "").ok();
        }
        pair.settle();
    }
    for role in ROLES {
        let counts = (pair.end(role).sessions.count(), pair.end(role).h3.request_count());
        assert_eq!(counts, (0, 0), "seed {seed}, {role:?}");
        for (stream, received) in &pair.end(role).streams {
            for code in [received.reset, received.stop].into_iter().flatten() {
                // A stream that was reset before its first bytes arrived looks like a request.
                let is_known = code == GONE || code == Code::H3_REQUEST_CANCELLED;
                assert!(is_known, "seed {seed}, {stream}: {code}");
            }
        }
    }
}

#[test]
fn both_ends_agree_without_flow_control() {
    for seed in 0..60 {
        simulate(seed, &Config::default());
    }
}

#[test]
fn both_ends_agree_with_flow_control() {
    for seed in 0..60 {
        simulate(seed, &with_flow_control(1 << 30, 5));
    }
}

#[test]
fn noise_does_no_harm() {
    // A package of the crate alone has no corpus.
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/webtransport");
    for entry in std::fs::read_dir(corpus).into_iter().flatten() {
        crate::noise::run(&std::fs::read(entry.unwrap().path()).unwrap());
    }
    for seed in 0..2000 {
        let mut numbers = crate::pair::Numbers::new(seed);
        crate::noise::run(&numbers.bytes(800));
    }
}
