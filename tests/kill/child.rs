//! The process that is killed.

use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use kv::{Batch, FsyncPolicy, Options, Store};
use wal::Delivery;

pub const WRITERS: u64 = 3;
pub const CONSUMERS: [(&str, Delivery); 2] = [
    ("at-least-once", Delivery::AtLeastOnce),
    ("at-most-once", Delivery::AtMostOnce),
];

/// Every policy has its turn. A kill of the process may lose nothing acknowledged under any of them.
pub fn options(round: u64) -> Options {
    let policy = match round % 4 {
        0 => FsyncPolicy::Always,
        1 => FsyncPolicy::Group {
            max_delay: Duration::from_micros(200),
        },
        2 => FsyncPolicy::Interval(Duration::from_millis(5)),
        _ => FsyncPolicy::Os,
    };
    let retention = wal::Retention {
        lag_bytes_max: Some(256 << 10),
        ..wal::Retention::default()
    };
    let log = wal::Options::new()
        .segment_bytes(32 << 10)
        .retention(retention)
        .policy(policy);
    Options::new().log(log).checkpoint_bytes(48 << 10)
}

/// Says something, whole, at once: a line that was begun is not believed.
fn say(out: &Mutex<std::io::Stdout>, line: &str) {
    let mut out = out.lock().expect("nobody panics with it");
    let _ = out.write_all(line.as_bytes());
    let _ = out.flush();
}

fn value(writer: u64, seq: u64) -> String {
    format!("{writer} {seq} {}", "x".repeat((seq % 200) as usize))
}

/// Writer and sequence number of a value.
pub fn parse_value(value: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(value).ok()?;
    let mut words = text.split(' ');
    let (writer, seq) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (text == self::value(writer, seq)).then_some((writer, seq))
}

pub fn run(dir: &Path) -> ! {
    let round = std::env::var("KILL_ROUND")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    let store = options(round).open(dir).expect("opens");
    let out = Mutex::new(std::io::stdout());
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, out) = (&store, &out);
            scope.spawn(move || write(store, writer, out));
        }
        for (name, delivery) in CONSUMERS {
            let (store, out) = (&store, &out);
            scope.spawn(move || consume(store, name, delivery, out));
        }
    });
    unreachable!("it writes until it is killed")
}

fn write(store: &Store, writer: u64, out: &Mutex<std::io::Stdout>) {
    let last = store
        .get(format!("last/{writer}"))
        .expect("reads")
        .and_then(|v| parse_value(&v));
    for seq in last.map_or(0, |(_, seq)| seq + 1).. {
        let mut batch = Batch::new();
        batch.put(format!("last/{writer}"), value(writer, seq));
        batch.put(format!("key/{writer}/{}", seq % 40), value(writer, seq));
        batch.delete(format!("key/{writer}/{}", (seq + 17) % 40));
        let offset = store.write(&batch).expect("writes");
        say(out, &format!("ack {offset} {writer} {seq}\n"));
    }
}

fn consume(store: &Store, name: &str, delivery: Delivery, out: &Mutex<std::io::Stdout>) {
    let options = store
        .consumer(name)
        .delivery(delivery)
        .on_out_of_range(wal::Reset::Earliest);
    let mut consumer = options.open().expect("opens");
    loop {
        match consumer.poll(20) {
            Ok(records) if records.is_empty() => std::thread::sleep(Duration::from_millis(1)),
            Ok(_) => {
                let committed = consumer.commit().expect("commits");
                say(out, &format!("commit {name} {committed} 4\n"));
            }
            // It fell behind by more than it may hold back; the next poll goes on.
            Err(wal::Error::OutOfRange { .. }) => {}
            Err(e) => panic!("{e}"),
        }
    }
}
