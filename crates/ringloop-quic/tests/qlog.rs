//! Logs, on both drivers: valid records, with the events that tools draw.
#![allow(clippy::unwrap_used)]

use ringloop_quic::config::Transport;
use ringloop_quic::qlog::Qlog;
use ringloop_testing::quic::{client_config, on_both, pair_with, pattern, server_config};
use ringloop_testing::relay::{Faults, Relay};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

/// Records of RFC 7464: each starts with a separator and ends with a newline.
fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut parts = text.split('\u{1e}');
    assert_eq!(parts.next(), Some(""));
    let parse = |part: &str| {
        assert!(part.ends_with('\n'));
        serde_json::from_str(part).unwrap_or_else(|error| panic!("{error}: {part}"))
    };
    parts.map(parse).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Checks one end's log; returns the count of each event.
fn checked(path: &Path, point: &str) -> HashMap<String, usize> {
    let records = records(path);
    let header = &records[0];
    assert_eq!(header["qlog_version"], "0.3");
    assert_eq!(header["qlog_format"], "JSON-SEQ");
    assert_eq!(header["title"], "a \"test\"");
    let trace = &header["trace"];
    assert_eq!(trace["vantage_point"]["type"], point);
    assert_eq!(trace["common_fields"]["time_format"], "relative");
    let id = trace["common_fields"]["ODCID"].as_str().unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    assert_eq!(name, format!("{id}_{point}.sqlog"));
    let (mut counts, mut last_ms) = (HashMap::new(), 0.0);
    let mut sent = HashSet::new();
    for event in &records[1..] {
        let time_ms = event["time"].as_f64().unwrap();
        assert!(time_ms >= last_ms && time_ms < 60_000.0, "{event}");
        last_ms = time_ms;
        let (name, data) = (event["name"].as_str().unwrap(), &event["data"]);
        *counts.entry(name.to_owned()).or_default() += 1;
        let packet = &data["header"];
        match name {
            "transport:packet_sent" | "transport:packet_received" => {
                let frames = data["frames"].as_array().unwrap();
                assert!(!frames.is_empty() && number(&data["raw"]["length"]) > 20);
                for frame in frames {
                    assert_ne!(frame["frame_type"], "unknown", "{event}");
                    *counts.entry(frame["frame_type"].as_str().unwrap().to_owned()).or_default() +=
                        1;
                }
                if name == "transport:packet_sent" {
                    let kind = packet["packet_type"].as_str().unwrap().to_owned();
                    let is_new = sent.insert((kind, number(&packet["packet_number"])));
                    assert!(is_new, "a number is used once: {event}");
                }
            }
            "recovery:packet_lost" => {
                let kind = packet["packet_type"].as_str().unwrap().to_owned();
                assert!(sent.contains(&(kind, number(&packet["packet_number"]))));
            }
            _ => {}
        }
    }
    counts
}

#[test]
fn both_ends_log_events_for_tools() {
    on_both(|| async {
        let directory = std::env::temp_dir().join(format!(
            "ringloop-qlog-{}-{:?}",
            std::process::id(),
            std::time::Instant::now()
        ));
        std::fs::create_dir(&directory).unwrap();
        let qlog = Qlog::to_directory(&directory).title("a \"test\"");
        let faults = Faults { lost: 20, delay: Duration::from_millis(1), ..Faults::default() };
        let mut relay = None;
        let route = |server| relay.insert(Relay::start(server, faults, 5)).address;
        let server = server_config().qlog(Some(qlog.clone()));
        let client = client_config().transport(&Transport::default()).unwrap();
        let pair = pair_with(server, client.qlog(Some(qlog)), route).await;
        let bytes = pattern(1 << 20, 3);
        let mut send = pair.ours.open_uni().await.unwrap();
        let writer = ringloop::spawn({
            let bytes = bytes.clone();
            async move { send.write_all(&bytes).await }
        });
        let mut recv = pair.theirs.accept_uni().await.unwrap();
        assert!(recv.read_to_end(1 << 20).await.unwrap() == bytes);
        writer.await.unwrap().unwrap();
        let lost = pair.ours.stats().packets_lost;
        pair.ours.close(3, b"the \"end\"\n");
        pair.theirs.closed().await;
        let (server, client) = (pair.server.clone(), pair.client.clone());
        drop((pair, recv));
        client.wait_idle().await;
        server.wait_idle().await;

        let paths = std::fs::read_dir(&directory).unwrap();
        let mut paths: Vec<_> = paths.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert_eq!(paths.len(), 2, "{paths:?}");
        let client = checked(&paths[0], "client");
        let server = checked(&paths[1], "server");
        for counts in [&client, &server] {
            for name in [
                "connectivity:connection_started",
                "transport:parameters_set",
                "transport:packet_sent",
                "transport:packet_received",
                "recovery:metrics_updated",
                "connectivity:connection_closed",
                "crypto",
                "ack",
                "stream",
            ] {
                assert!(counts.contains_key(name), "{name}: {counts:?}");
            }
            assert_eq!(counts["transport:parameters_set"], 2);
        }
        let told = client.get("recovery:packet_lost").copied().unwrap_or(0) as u64;
        assert!(lost > 0 && told >= lost, "{told} of {lost}");
        std::fs::remove_dir_all(&directory).unwrap();
    });
}
