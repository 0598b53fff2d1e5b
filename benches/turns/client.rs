//! A client whose number of requests in flight equals its limit.

use crate::process::Server;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};
use testing::{bench::proc::cpu, redis::RedisServer};

/// The behaviour of a client.
pub(crate) struct Loops {
    /// The number of requests in flight, one per loop.
    pub(crate) loops: u32,
    /// Its pause between two requests of a loop.
    pub(crate) pause: Duration,
    /// The total number of requests.
    pub(crate) requests: u32,
}

pub(crate) struct Outcome {
    pub(crate) refused: u32,
    /// The scripts that Redis has run, per request.
    pub(crate) scripts: f64,
    /// The processor time of both servers in µs, per request.
    pub(crate) cpu: f64,
}

/// Sends requests to the two servers alternately.
pub(crate) fn run(redis: &RedisServer, servers: &[Server; 2], client: &Loops) -> Outcome {
    let addresses = servers.each_ref().map(|server| server.address);
    // Warm up, so that all is connected and the scripts are known.
    send(addresses, 50, Duration::from_millis(5));
    let servers_cpu = || -> Duration { servers.iter().map(|server| cpu(server.pid())).sum() };
    let (scripts_before, cpu_before) = (scripts(redis), servers_cpu());
    let each = client.requests / client.loops;
    let loops = (0..client.loops).map(|_| {
        let pause = client.pause;
        thread::spawn(move || send(addresses, each, pause))
    });
    let loops: Vec<_> = loops.collect();
    let refused = loops
        .into_iter()
        .map(|one| one.join().expect("it ends"))
        .sum();
    let requests = f64::from(each * client.loops);
    Outcome {
        refused,
        scripts: (scripts(redis) - scripts_before) as f64 / requests,
        cpu: (servers_cpu() - cpu_before).as_secs_f64() * 1e6 / requests,
    }
}

/// Sends requests one after another. Returns how many were refused.
fn send(addresses: [SocketAddr; 2], requests: u32, pause: Duration) -> u32 {
    let connect = |address| {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("a socket has it");
        stream
    };
    let mut streams = addresses.map(connect);
    let mut refused = 0;
    for number in 0..requests as usize {
        match status(&mut streams[number % 2]) {
            // On a busy machine the store may be too slow.
            200 | 503 => {}
            429 => refused += 1,
            other => panic!("unexpected: {other}"),
        }
        thread::sleep(pause);
    }
    refused
}

/// Sends a request, reads its answer to the end, and returns the status.
fn status(stream: &mut TcpStream) -> u16 {
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-account-id: ann\r\n\r\n")
        .expect("it is connected");
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).expect("it answers");
        assert!(read > 0, "it closes midway");
        answer.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let (_, length) = head
            .split_once("content-length: ")
            .expect("it has a length");
        let length = length.lines().next().expect("a line").parse();
        if body.len() >= length.expect("a number") {
            // The head begins with `http/1.1 200 ok`.
            return head[9..12].parse().expect("a status");
        }
    }
}

/// The number of scripts that a Redis has run.
pub(crate) fn scripts(redis: &RedisServer) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).expect("it listens");
    stream
        .write_all(b"INFO commandstats\r\nQUIT\r\n")
        .expect("it is connected");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let calls = text.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = rest.split(',').next()?.parse::<u64>().ok()?;
        name.starts_with("eval").then_some(calls)
    });
    calls.sum()
}
